//! JSON lines: `tierce export --format jsonl`, and `tierce import` of such a file.
//!
//! docs/formats/jsonl.md describes the format. A key is one line, or several if its value is long. Both directions
//! work on one line at a time, so their memory is bounded by the largest element, not by the largest collection.

mod bytes;
mod line;
mod read;
mod write;

pub(crate) use read::{CodeLine, Failure, Read, Reader};
pub(crate) use write::write;

/// Name of the format in the first line of a file.
const FORMAT: &str = "tierce-jsonl";

/// Version that is written, and the only one that is read.
const VERSION: u64 = 1;

/// Returns true if a file of this format begins with this byte. RDB and append-only files never do.
pub(super) fn begins_so(first: u8) -> bool {
    first == b'{'
}

#[cfg(test)]
mod tests;
