//! What a file of Redis may contain that this version does not support.

use tierce_keyspace::KEY_LEN_MAX;

/// What becomes of keys of types that this version lacks, of libraries of functions for an engine that it lacks, and of
/// data of modules.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unfit {
    /// Nothing is imported.
    Refuse,
    /// They are left out and counted.
    LeaveOut,
}

/// So many bytes are shown of a key that is too long.
const KEY_SHOWN: usize = 32;

/// Describes a key that is longer than keys may be here; `None` if it is not.
pub fn too_long(key: &[u8]) -> Option<String> {
    let begin = key.get(..KEY_SHOWN)?.escape_ascii();
    let len = Some(key.len()).filter(|len| *len > KEY_LEN_MAX)?;
    Some(format!("the key {begin}... of {len} bytes, more than {KEY_LEN_MAX}"))
}

/// Why something cannot be there, and what to do about it: the directive of the server and the option of
/// the tool have the same name.
pub fn lacking(what: &str) -> String {
    format!("{what}, which this version does not support (skip-unsupported skips it)")
}
