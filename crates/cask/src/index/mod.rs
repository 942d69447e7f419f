//! The location of the newest record of each key.
//!
//! * [`hash`]: 12-byte entries of fingerprint and location, at most 16 bytes a key in total; keys with the same
//!   fingerprint are told apart by reading their records.
//! * [`ordered`]: the keys themselves in compressed leaves, in order.
//! * [`history`]: superseded locations that open snapshots still need.
//!
//! No lock of an index is ever held while a disk is read or written.

pub(crate) mod hash;
pub(crate) mod history;
mod leaf;
pub(crate) mod ordered;
