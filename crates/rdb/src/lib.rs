//! Redis' persistence formats: RDB files, DUMP payloads, append-only files.
//!
//! The crate decodes and encodes bytes. It opens no file, knows no keyspace and reads no clock.
//!
//! ```
//! use tierce_rdb::{Attributes, Error, Event, Reader, ValuePart, Writer, WriterOptions};
//!
//! let mut writer = Writer::new(Vec::new(), WriterOptions::default())?;
//! writer.aux(b"redis-ver", b"7.0.15")?;
//! writer.select_db(0)?;
//! let attributes = Attributes { expiry_ms: Some(2_000_000_000_000), ..Attributes::default() };
//! writer.entry(b"vintage", &attributes).string(b"1982")?;
//! let file = writer.finish()?;
//!
//! let mut reader = Reader::new(&file[..])?;
//! while let Some(event) = reader.next_event()? {
//!     if let Event::Entry(entry) = event {
//!         assert_eq!(entry.key, b"vintage");
//!         reader.visit_value(|part| {
//!             assert_eq!(part, ValuePart::String(b"1982"));
//!             Ok::<(), Error>(())
//!         })?;
//!     }
//! }
//! # Ok::<(), Error>(())
//! ```
//!
//! Any input yields a value or an [`Error`] with its position. It never causes a panic, and memory stays in
//! proportion to the input.
#![forbid(unsafe_code)]

pub mod aof;
mod compression_heuristic;
mod crc64;
mod decode;
pub mod dump;
mod encode;
mod error;
mod format;
pub mod functions;
#[doc(hidden)]
pub mod fuzzing;
mod input;
mod lzf;
mod output;
mod packed;
mod reader;
mod string;
#[doc(hidden)]
pub mod testing;
mod value;
mod writer;

pub use crc64::crc64;
pub use encode::{CollectionWriter, ValueWriter};
pub use error::{Error, Result};
pub use format::{
    Encoding, Kind, VERSION_REDIS_6_2, VERSION_REDIS_7_0, VERSION_REDIS_7_2, VERSION_REDIS_7_4,
};
pub use reader::{Checksum, Entry, Event, Reader};
pub use value::{
    Attributes, Consumer, Group, Pending, Stream, StreamEntry, StreamId, StreamState, ValuePart,
};
pub use writer::{Writer, WriterOptions};
