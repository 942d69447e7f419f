//! Segments: append-only files of records.
//!
//! * [`record`]: the unit, checksummed.
//! * [`header`]: the first 64 bytes, which identify the segment.
//! * [`scan`]: reading a segment from end to end, for recovery, compaction and checking.
//! * [`contents`]: the keys of a segment's records, for an index.
//! * [`file`]: an open segment, and the limit on open segments.

pub mod contents;
pub mod file;
pub mod header;
pub mod record;
pub mod scan;
