//! The limits of client output buffers.

use std::fmt;

/// The classes of clients that have limits of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClientClass {
    /// Clients that ask and are answered, monitors among them.
    Normal,
    /// Replicas.
    Replica,
    /// Clients with subscriptions.
    Pubsub,
}

impl ClientClass {
    /// All classes, in the order in which CONFIG GET lists them.
    pub const ALL: [Self; 3] = [Self::Normal, Self::Replica, Self::Pubsub];

    /// The class of that name; replicas have two names.
    pub fn parse(name: &[u8]) -> Option<Self> {
        match name.to_ascii_lowercase().as_slice() {
            b"normal" => Some(Self::Normal),
            b"slave" | b"replica" => Some(Self::Replica),
            b"pubsub" => Some(Self::Pubsub),
            _ => None,
        }
    }

    /// The name that CONFIG GET shows, which for replicas is the old one.
    fn name(self) -> &'static str {
        match self {
            Self::Normal => "normal",
            Self::Replica => "slave",
            Self::Pubsub => "pubsub",
        }
    }

    fn name_in_file(self) -> &'static str {
        match self {
            Self::Replica => "replica",
            other => other.name(),
        }
    }
}

/// A client is closed at once above `hard_bytes`, and after `soft_seconds` above `soft_bytes`.
///
/// A size of 0 means no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OutputLimit {
    /// Never more than that.
    pub hard_bytes: u64,
    /// Not for long more than that.
    pub soft_bytes: u64,
    /// How long the soft limit may be exceeded without a break.
    pub soft_seconds: u32,
}

/// One limit for each [`ClientClass`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OutputLimits([OutputLimit; 3]);

impl OutputLimits {
    /// The limit of one class.
    pub fn of(&self, class: ClientClass) -> OutputLimit {
        self.0[class as usize]
    }

    /// Replaces the limit of one class.
    pub fn set(&mut self, class: ClientClass, limit: OutputLimit) {
        self.0[class as usize] = limit;
    }

    /// A line for each class, as arguments of the directive.
    pub(super) fn file_lines(&self) -> Vec<Vec<u8>> {
        let line = |class: ClientClass| {
            let OutputLimit { hard_bytes, soft_bytes, soft_seconds } = self.of(class);
            let hard = memory_with_unit(hard_bytes);
            let soft = memory_with_unit(soft_bytes);
            format!("{} {hard} {soft} {soft_seconds}", class.name_in_file()).into()
        };
        ClientClass::ALL.into_iter().map(line).collect()
    }
}

impl fmt::Display for OutputLimits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (class, blank) in ClientClass::ALL.into_iter().zip(["", " ", " "]) {
            let OutputLimit { hard_bytes, soft_bytes, soft_seconds } = self.of(class);
            write!(f, "{blank}{} {hard_bytes} {soft_bytes} {soft_seconds}", class.name())?;
        }
        Ok(())
    }
}

/// The shortest exact form with a unit of 1024 bytes and its powers.
pub(super) fn memory_with_unit(bytes: u64) -> String {
    const UNITS: [(u64, &str); 3] = [(1 << 30, "gb"), (1 << 20, "mb"), (1 << 10, "kb")];
    let fits = |&(size, _): &(u64, &str)| bytes != 0 && bytes.is_multiple_of(size);
    match UNITS.into_iter().find(fits) {
        Some((size, unit)) => format!("{}{unit}", bytes / size),
        None => bytes.to_string(),
    }
}
