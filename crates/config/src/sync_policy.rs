//! When a write is durable enough to be acknowledged.

/// The values of `appendfsync`, and of `CLIENT DURABILITY`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum SyncPolicy {
    /// Acknowledged when the operating system has it. The kernel flushes it at any time.
    No,
    /// Acknowledged when the operating system has it. It is on the device within a second.
    #[default]
    EverySecond,
    /// Acknowledged when the write is on the device.
    Always,
    /// Acknowledged when the log in a bucket has it. A read waits for the writes that it saw.
    Bucket,
}

impl SyncPolicy {
    /// Parses the word that users write.
    pub fn parse(word: &[u8]) -> Option<Self> {
        match word.to_ascii_lowercase().as_slice() {
            b"no" => Some(Self::No),
            b"everysec" => Some(Self::EverySecond),
            b"always" => Some(Self::Always),
            b"bucket" => Some(Self::Bucket),
            _ => None,
        }
    }

    /// Inverse of `policy as u8`.
    ///
    /// # Panics
    /// When no policy has this number.
    pub fn from_code(code: u8) -> Self {
        [Self::No, Self::EverySecond, Self::Always, Self::Bucket]
            .into_iter()
            .find(|policy| *policy as u8 == code)
            .expect("the number of a policy")
    }

    /// Returns the word that users write.
    pub fn name(self) -> &'static str {
        match self {
            Self::No => "no",
            Self::EverySecond => "everysec",
            Self::Always => "always",
            Self::Bucket => "bucket",
        }
    }
}
