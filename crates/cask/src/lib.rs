//! Embeddable log-structured storage engine.
#![forbid(unsafe_code)]
#![allow(dead_code)]

mod bytes;
mod checksum;
mod compression;
mod disk;
mod error;
mod hash;
mod hint;
mod index;
mod location;
mod manifest;
mod names;
mod options;
mod segment;

/// Longest key in bytes.
pub const KEY_LEN_MAX: usize = 64 << 10;
/// Longest value in bytes.
pub const VALUE_LEN_MAX: usize = 512 << 20;
/// Longest batch in bytes, as encoded.
pub const BATCH_LEN_MAX: usize = 1 << 30;
