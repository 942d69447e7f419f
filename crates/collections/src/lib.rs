//! Lists, hashes, sets, sorted sets and streams in memory: one block of bytes while small, and structures with
//! operations in constant or logarithmic time when large.
//!
//! Every type chooses its form itself, by limits passed to each operation that may grow it. Common to all:
//!
//! - A value is at most two words: its [`Form`] and one pointer, see [`Collection::into_raw`].
//! - `allocated_bytes` is exact and takes constant time, in the sizes that the allocator really returns
//!   ([`size_class`]).
//! - No operation on one element scans a large collection.
//! - Elements are byte strings. The canonical text of an integer may be stored as an integer.
//!
//! This crate deliberately knows no keys, key expiry, locks, logs or protocols.

mod collection;
mod form;
mod incremental_snapshot;
mod limits;
mod prefetch;
mod raw_box;
mod same_bytes;
mod seed;
mod size_class;
mod text_int;
mod thin;

pub mod hash;
pub mod hyperloglog;
pub mod list;
pub mod packed;
pub mod random;
pub mod set;
pub mod sorted_set;
pub mod stream;

pub use collection::Collection;
pub use form::{CollectionKind, Form};
pub use hash::Hash;
pub use incremental_snapshot::{Remainder, SnapshotId, SnapshotProgress, SnapshotTag, Snapshotted};
pub use limits::{ListLimits, PackedLimits, SetLimits, StreamLimits};
pub use list::List;
pub use packed::{Element, Packed, Position};
pub use same_bytes::same_bytes;
pub use set::Set;
pub use size_class::size_class;
pub use sorted_set::{MemberBound, ScoreBound, SortedSet, Walk};
pub use stream::Stream;
pub use text_int::{INT_TEXT_MAX, IntText, int_text_len, parse_int};
