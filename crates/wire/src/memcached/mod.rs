//! The protocols of memcached: requests of clients, replies of the server.
//!
//! The byte layouts are in `docs/formats/memcached.md`. The first byte of a connection selects its protocol:
//! [`BINARY_MAGIC`] begins binary frames, any other byte a line. Lines are [`text`] commands or the newer [`meta`]
//! commands, freely mixed.
//!
//! A parser takes the bytes received so far and returns one request at a time. Its keys and values are slices of
//! the input. The parser never waits for a value above the caller's limit: it refuses the request at once, and
//! skips the bytes of the value as they arrive.

pub mod base64;
pub mod binary;
pub mod meta;
mod number;
pub mod text;
mod words;

/// The first byte of every binary request, and of no line.
pub const BINARY_MAGIC: u8 = 0x80;

/// The longest key.
pub const KEY_LEN_MAX: usize = 250;

/// Limits on a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Upper bound of bytes of a value.
    pub value_len_max: usize,
    /// Upper bound of bytes of a line that reads keys. Other lines are limited to [`LINE_LEN_MAX`], which must not
    /// be greater.
    pub keys_line_len_max: usize,
}

/// The longest line with one key and up to 17 short flags, as in memcached.
pub const LINE_LEN_MAX: usize = 2048;

/// The longest line that reads keys: some thousand keys of full length.
const KEYS_LINE_LEN_MAX: usize = 1 << 20;

impl Default for Limits {
    fn default() -> Self {
        Self { value_len_max: 1 << 20, keys_line_len_max: KEYS_LINE_LEN_MAX }
    }
}
