//! Hint files: the index entries of a segment's records, without the values.
//!
//! Opening reads hint files instead of segments. Each is sorted like the index, so one pass with little memory merges
//! them all: the newest record of every key comes first, whatever segment it is in.
//!
//! * [`entry`]: a hint for one record, and the sort order.
//! * [`writer`]: creates a hint file: written to a temporary file, synced, renamed.
//! * [`reader`]: verifies and reads a hint file.
//! * [`merge`]: the newest record of every key, from many hint files.
//! * [`filter`]: Bloom filter over the keys of a segment.
//!
//! A missing or invalid hint file is rebuilt from its segment.

pub(crate) mod entry;
pub(crate) mod filter;
pub(crate) mod merge;
pub(crate) mod reader;
pub(crate) mod writer;
