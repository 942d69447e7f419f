//! Lists, hashes, sets, sorted sets and streams in memory: in one block of bytes while they are
//! small, in structures whose operations take constant or logarithmic time when they are large.
//!
//! Every type decides by itself which of its forms it has, by limits that are handed to each
//! operation that may make it larger. What all have in common:
//!
//! - A value is two words at most: which [`Form`] it has, and one pointer, see [`Collection::into_raw`].
//! - `allocated_bytes` is exact and takes constant time, in the sizes that the allocator really hands
//!   out ([`size_class`]).
//! - No operation on one element goes through a large collection.
//! - Elements are byte strings. Those that are the canonical text of an integer may be kept as one.
//!
//! What this deliberately does not know: keys, expiry of keys, locks, logs, protocols.

mod collection;
mod limits;
mod prefetch;
mod raw_box;
mod same_bytes;
mod saving;
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

pub use collection::{Collection, CollectionKind, Form};
pub use hash::Hash;
pub use limits::{ListLimits, PackedLimits, SetLimits, StreamLimits};
pub use list::List;
pub use packed::{Element, Packed, Position};
pub use same_bytes::same_bytes;
pub use saving::{Leftover, SaveId, SaveTag, Saved};
pub use set::Set;
pub use size_class::size_class;
pub use sorted_set::{MemberBound, ScoreBound, SortedSet};
pub use stream::Stream;
pub use text_int::{INT_TEXT_MAX, IntText, int_text_len, parse_int};
