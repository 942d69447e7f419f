//! Hint files: what a segment's records are about, without the values.
//!
//! Opening reads hint files instead of segments. Each is sorted the way the index is, so that all
//! of them are merged in one pass with little memory: the newest record of every key comes first,
//! whatever segment it is in.
//!
//! * [`entry`]: what a hint says about a record, and how it is sorted.
//! * [`writer`]: makes a hint file, aside, synced, renamed.
//! * [`reader`]: verifies and reads one.
//! * [`merge`]: the newest record of every key out of many hint files.
//! * [`filter`]: may this segment hold that key?
//!
//! A hint file is never needed: when one is missing or invalid, it is made again from its segment.

pub(crate) mod entry;
pub(crate) mod filter;
pub(crate) mod merge;
pub(crate) mod reader;
pub(crate) mod writer;
