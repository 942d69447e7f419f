//! The limits of client output buffers.

use std::fmt;

/// Classes of clients that have limits of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClientClass {
    /// Clients that send requests and get replies, monitors included.
    Normal,
    /// Replicas.
    Replica,
    /// Clients with subscriptions.
    Pubsub,
}

impl ClientClass {
    /// All classes, in the order of CONFIG GET.
    pub const ALL: [Self; 3] = [Self::Normal, Self::Replica, Self::Pubsub];

    /// Finds a class by name. Replicas have two names.
    pub fn parse(name: &[u8]) -> Option<Self> {
        match name.to_ascii_lowercase().as_slice() {
            b"normal" => Some(Self::Normal),
            b"slave" | b"replica" => Some(Self::Replica),
            b"pubsub" => Some(Self::Pubsub),
            _ => None,
        }
    }

    /// Returns the name that CONFIG GET shows: for replicas, the old one.
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

/// Limit of the output buffer: a client is closed at once above `hard_bytes`, and after
/// `soft_seconds` above `soft_bytes`.
///
/// A size of 0 means no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OutputLimit {
    /// Limit that closes the client at once.
    pub hard_bytes: u64,
    /// Limit that closes the client after `soft_seconds`.
    pub soft_bytes: u64,
    /// Number of seconds that the soft limit may be exceeded without a break.
    pub soft_seconds: u32,
}

/// One limit for each [`ClientClass`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OutputLimits([OutputLimit; 3]);

impl OutputLimits {
    /// Returns the limit of a class.
    pub fn of(&self, class: ClientClass) -> OutputLimit {
        self.0[class as usize]
    }

    /// Sets the limit of a class.
    pub fn set(&mut self, class: ClientClass, limit: OutputLimit) {
        self.0[class as usize] = limit;
    }

    /// Returns the arguments of the directive, one line for each class.
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

/// Returns the shortest exact form with a unit of 1024 bytes or a power of it.
pub(super) fn memory_with_unit(bytes: u64) -> String {
    const UNITS: [(u64, &str); 3] = [(1 << 30, "gb"), (1 << 20, "mb"), (1 << 10, "kb")];
    let fits = |&(size, _): &(u64, &str)| bytes != 0 && bytes.is_multiple_of(size);
    match UNITS.into_iter().find(fits) {
        Some((size, unit)) => format!("{}{unit}", bytes / size),
        None => bytes.to_string(),
    }
}
