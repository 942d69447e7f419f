//! How far an import or an export has come.

/// What is being done.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stage {
    /// The present log is loaded. Counted in bytes.
    LoadingLog,
    /// The file is read. Counted in bytes.
    Reading,
    /// The new log is written. Counted in bytes, of which the total is a guess.
    WritingLog,
    /// The file is written. Counted in keys.
    Writing,
}

/// How far it has come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Progress {
    /// With what.
    pub stage: Stage,
    /// What is done.
    pub done: u64,
    /// Of so much.
    pub total: u64,
}
