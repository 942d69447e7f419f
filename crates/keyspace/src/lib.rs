//! Typed values in shards: expiry, memory accounting, multi-key locking.

mod entry;
mod error;
mod text_int;
mod value;

pub use entry::{Entry, size_class};
pub use error::{Error, Result};
pub use text_int::{INT_TEXT_MAX, IntText, int_text_len, parse_int};
pub use value::{BLOB_LEN_MIN, Blob, StrView, Value, ValueType, range_of};
