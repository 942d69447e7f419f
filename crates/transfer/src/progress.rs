//! Progress of an import or an export.

/// Phase of the work.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stage {
    /// The present log is loaded. Counted in bytes.
    LoadingLog,
    /// The file is read. Counted in bytes.
    Reading,
    /// The new log is written. Counted in bytes; the total is an estimate.
    WritingLog,
    /// The file is written. Counted in keys.
    Writing,
}

/// Progress of one stage.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Progress {
    /// The present stage.
    pub stage: Stage,
    /// Amount that is done.
    pub done: u64,
    /// Total amount.
    pub total: u64,
}
