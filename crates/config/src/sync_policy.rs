//! When a write is durable enough to be acknowledged.

/// The values of `appendfsync`, and of `CLIENT DURABILITY`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum SyncPolicy {
    /// When the operating system has it; the device gets it when the kernel likes.
    No,
    /// When the operating system has it; the device gets it within a second.
    #[default]
    EverySecond,
    /// When the device has it.
    Always,
    /// When the log in a bucket has it, and the same for all that a read has seen.
    Bucket,
}

impl SyncPolicy {
    /// From the word users say.
    pub fn parse(word: &[u8]) -> Option<Self> {
        match word.to_ascii_lowercase().as_slice() {
            b"no" => Some(Self::No),
            b"everysec" => Some(Self::EverySecond),
            b"always" => Some(Self::Always),
            b"bucket" => Some(Self::Bucket),
            _ => None,
        }
    }

    /// Back from `policy as u8`.
    ///
    /// # Panics
    /// When no policy has this number.
    pub fn from_code(code: u8) -> Self {
        [Self::No, Self::EverySecond, Self::Always, Self::Bucket]
            .into_iter()
            .find(|policy| *policy as u8 == code)
            .expect("the number of a policy")
    }

    /// The word users say.
    pub fn name(self) -> &'static str {
        match self {
            Self::No => "no",
            Self::EverySecond => "everysec",
            Self::Always => "always",
            Self::Bucket => "bucket",
        }
    }
}
