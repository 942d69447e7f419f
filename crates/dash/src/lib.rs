//! In-memory index: extendible hashing in segments with SIMD fingerprints.
//!
//! A [`Table`] maps a 64-bit hash, computed by the caller, to entries of one type, typically an 8-byte tagged pointer
//! to the caller's own record. It knows neither keys nor their comparison: lookups take a closure, and operations that
//! move entries take an [`EntryHash`].
//!
//! Guarantees:
//!
//! - No operation ever touches the whole table. The worst insert rebuilds one segment (at most a thousand entries,
//!   some ten microseconds) and doubles the directory (16 bytes per segment).
//! - Memory follows the number of entries in both directions: while a table grows, 9.2 to 12.3 bytes per 8-byte entry
//!   from 33 entries on. An empty table owns nothing. `memory_bytes` is exact.
//! - Entries are ordered by their hash. A scan cursor is a point on that axis and stays valid under any growth and
//!   shrinking: see [`Table::scan`]. A [`Snapshot`] of the table as of one moment relies on the same order.
//!
//! Requirements: hashes whose upper 48 bits are evenly distributed and not under an adversary's control; the lower 16
//! are not used. Skewed hashes cost speed, never correctness. Nothing here locks; a `Table` is `Send` and `Sync` as
//! far as its entries are.
//!
//! ```
//! use tierce_dash::Table;
//!
//! // Any good hash will do; this one mixes a number into all 64 bits.
//! fn hash(number: &u64) -> u64 {
//!     let mixed = number.wrapping_mul(0x9E37_79B9_7F4A_7C15);
//!     (mixed ^ mixed >> 32).wrapping_mul(0xD6E8_FEB8_6659_FD93)
//! }
//!
//! let mut table = Table::new();
//! for number in 0..200u64 {
//!     table.insert_unique(hash(&number), number, &hash);
//! }
//! assert_eq!(table.find(hash(&17), |entry| *entry == 17), Some(&17));
//! assert_eq!(table.remove(hash(&17), |entry| *entry == 17, &hash), Some(17));
//! assert!(table.find(hash(&17), |entry| *entry == 17).is_none());
//!
//! let (mut cursor, mut seen) = (0, 0);
//! loop {
//!     cursor = table.scan(cursor, &hash, |_| seen += 1);
//!     if cursor == 0 {
//!         break;
//!     }
//! }
//! assert_eq!(seen, table.len());
//! ```

// In reading order: the 16 bytes that are matched at once, the bucket around them, the placement of hashes, the
// segment of buckets, the directory of segments, and the public interface.
mod group;

mod bucket;

mod geometry;
mod hash;
mod prefetch;
mod segment;

mod directory;
mod rebuild;

mod iter;
mod scan;
mod snapshot;
mod table;
mod visited;

#[cfg(test)]
mod invariants;

pub use hash::EntryHash;
pub use iter::{IntoIter, Iter, IterAhead};
pub use prefetch::prefetch_read;
pub use snapshot::Snapshot;
pub use table::Table;
