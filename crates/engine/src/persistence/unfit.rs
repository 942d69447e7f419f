//! Items of a Redis file that this version does not support.

use tierce_keyspace::KEY_LEN_MAX;

/// Policy for keys of unsupported types, libraries of functions for an unsupported engine, and data of modules.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unfit {
    /// The import fails.
    Refuse,
    /// They are left out and counted.
    LeaveOut,
}

/// Number of bytes shown of a key that is too long.
const KEY_SHOWN: usize = 32;

/// Describes a key that exceeds the limit of this server. Returns `None` if it does not.
pub fn too_long(key: &[u8]) -> Option<String> {
    let begin = key.get(..KEY_SHOWN)?.escape_ascii();
    let len = Some(key.len()).filter(|len| *len > KEY_LEN_MAX)?;
    Some(format!("the key {begin}... of {len} bytes, more than {KEY_LEN_MAX}"))
}

/// Returns the error for an unsupported item, with the remedy: the server's directive and the tool's option have the
/// same name.
pub fn lacking(what: &str) -> String {
    format!("{what}, which this version does not support (skip-unsupported skips it)")
}
