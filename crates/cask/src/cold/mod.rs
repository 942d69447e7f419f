//! Values without keys, appended in batches and read one at a time: the home of what is too cold for
//! memory.
//!
//! A store of this kind gives a [`ColdPlace`] for each value, and its user remembers that. Nothing
//! here knows which values still count; the user says so ([`ColdStore::hold`],
//! [`ColdStore::release`]), and the store counts, so that segments in which nothing counts any more
//! can go ([`ColdStore::dead`], [`ColdStore::remove`]) and those that are mostly empty can be found
//! ([`ColdStore::sparse`]) for the user to move what is left in them.
//!
//! There is no list of segments but the directory, and no recovery: a place is handed out when its
//! value is on the device, so whoever knows a place can read it, and what nobody knows a place of is
//! garbage. The layout is in `docs/formats/cold-segment.md`.
//!
//! * `place`: where a value stands. `batch`: values on their way to the disk.
//! * `segment`: a file of values. `store`: all of them. `reads`: reads that nobody waits for.
//! * `check`: verifying files that nobody has open.

mod batch;
mod check;
mod place;
mod reads;
mod segment;
mod store;

pub use batch::{ColdBatch, ColdLimits, ColdRefusal};
pub use check::{ColdCheckReport, check_cold, check_cold_on};
pub use place::ColdPlace;
pub use reads::ColdReads;
pub use segment::ColdBuffer;
pub use store::{ColdFigures, ColdOptions, ColdStore, Durable};
