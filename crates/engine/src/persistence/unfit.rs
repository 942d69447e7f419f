//! What a file of Redis may contain that this version does not support.

/// What becomes of keys of types that this version lacks, of libraries of functions for an engine that it lacks, and of
/// data of modules.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unfit {
    /// Nothing is imported.
    Refuse,
    /// They are left out and counted.
    LeaveOut,
}

/// Why something cannot be there, and what to do about it: the directive of the server and the option of
/// the tool have the same name.
pub fn lacking(what: &str) -> String {
    format!("{what}, which this version does not support (skip-unsupported skips it)")
}
