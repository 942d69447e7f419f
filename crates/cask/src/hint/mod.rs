//! Hint files: the index entries of a segment's records, without the values.
//!
//! Opening reads hint files instead of segments. Each is sorted like the index, so one pass with little memory
//! merges them all: the newest record of every key comes first, whatever segment it is in.
//!
//! * [`entry`]: a hint for one record, and the sort order.
//! * [`writer`]: makes a hint file: written aside, synced, renamed.
//! * [`reader`]: verifies and reads one.
//! * [`merge`]: the newest record of every key, from many hint files.
//! * [`filter`]: may this segment hold that key?
//!
//! A missing or invalid hint file is rebuilt from its segment.

pub(crate) mod entry;
pub(crate) mod filter;
pub(crate) mod merge;
pub(crate) mod reader;
pub(crate) mod writer;
