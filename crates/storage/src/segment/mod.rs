//! Segments: append-only files of records.
//!
//! * [`record`]: the unit, checksummed.
//! * [`header`]: the first 64 bytes, which say whose segment this is.
//! * [`scan`]: reading a segment from end to end, for recovery, compaction and checking.
//! * [`contents`]: the keys of a segment's records, for an index.
//! * [`file`]: an open segment, and the limit on how many are open.

pub mod contents;
pub mod file;
pub mod header;
pub mod record;
pub mod scan;
