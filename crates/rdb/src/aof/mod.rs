//! Redis' append-only files.
//!
//! Since Redis 7, a directory has a base, files of the commands after it, and a manifest with their order
//! ([`Manifest`]). [`Reader`] reads each file, and the single file of earlier versions: an optional RDB preamble,
//! then commands.
//!
//! The caller opens the files. To write a directory: write an RDB file with the aux field [`BASE_REMARK`] under the
//! name of [`Manifest::fresh`]'s base, create an empty increment, sync both, and write the manifest last.

mod manifest;
mod reader;

pub use manifest::{Manifest, ManifestError, Member};
pub use reader::{Item, Reader};

/// Name and value of the aux field in an RDB file that is the base of an append-only directory.
pub const BASE_REMARK: (&[u8], &[u8]) = (b"aof-base", b"1");
