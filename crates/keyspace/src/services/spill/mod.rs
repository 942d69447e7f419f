//! Values on disk: how they leave memory, come back, and move.
//!
//! Keys, deadlines and all else stay in memory. A value goes to a [`ColdStore`](tierce_storage::ColdStore), and its
//! entry remembers what it is and where ([`Spilled`](crate::data::entry::Spilled)). A command that needs the value
//! fetches it; then the entry has it in memory and on disk, until it is changed, or until memory is needed and the
//! value in memory is forgotten.
//!
//! * `gather`: choosing cold values and copying them, for a caller that writes them.
//! * `written`: what becomes of the entries when they are written.
//! * [`crate::access::cold`]: back into memory.
//! * `clean`: moving values out of segments in which little else counts.
//! * `lost`: finding values that are gone.
//!
//! **Invariants:**
//! - A location belongs to one entry. It is released by the code that changes or drops the entry: `Db::account`,
//!   `Keyspace::let_go` and [`Flushed`](crate::registries::flushed::Flushed). An entry that was taken out to be put
//!   under another key keeps its location.
//! - An entry refers to a location only when its value is on the device, so that the log may say so.
//! - The log holds nothing that changes a value on disk in part: what is changed is logged as a whole
//!   (`ColdAccounting::change`). So reading the log needs no value from disk.
//! - Where a value is makes no difference to readers of the key: moving it is not a change, does not
//!   count as a use, and does not concern snapshots.

mod clean;
mod gather;
mod lost;
mod written;

pub use clean::Cleaning;
pub use gather::{Gathered, SpillBatch, gather_cold};
pub use lost::LostValues;
pub use written::leave_to_disk;
