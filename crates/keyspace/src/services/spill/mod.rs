//! Values on disk: spilling, fetching and moving.
//!
//! Keys, deadlines and everything else stay in memory. A value goes to a [`ColdStore`](tierce_storage::ColdStore),
//! and its entry keeps type and location ([`Spilled`](crate::data::entry::Spilled)). A command that needs the value
//! fetches it. Then the entry has it in memory and on disk, until it changes, or until the value in memory is dropped
//! to save memory.
//!
//! * `gather`: chooses cold values and copies them, for a caller that writes them.
//! * `written`: updates the entries when their values are written.
//! * [`crate::access::cold`]: fetches values into memory.
//! * `clean`: moves values out of segments with little live data.
//! * `lost`: finds missing values.
//!
//! **Invariants:**
//! - A location belongs to one entry. It is released by the code that changes or drops the entry: `Db::account`,
//!   `Keyspace::let_go` and [`Flushed`](crate::registries::flushed::Flushed). An entry that was taken out to be put
//!   under another key keeps its location.
//! - An entry refers to a location only if its value is durable, so that the log may state the location.
//! - The log has no partial changes of a value on disk: a changed value is logged as a whole
//!   (`ColdAccounting::change`). So reading the log needs no value from disk.
//! - The location of a value makes no difference to readers of the key: moving it is not a change, does not count as
//!   a use, and does not affect snapshots.

mod clean;
mod gather;
mod lost;
mod written;

pub use clean::Cleaning;
pub use gather::{Gathered, SpillBatch, gather_cold};
pub use lost::LostValues;
pub use written::leave_to_disk;
