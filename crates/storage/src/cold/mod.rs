//! Values without keys, appended in batches and read one at a time: storage for values too cold for memory.
//!
//! A store returns a [`ColdLocation`] for each value, and the owner keeps it. The store does not know which values
//! are live: the owner reports that ([`ColdStore::hold`], [`ColdStore::release`]) and the store counts. So it can
//! name segments without live values ([`ColdStore::dead`], [`ColdStore::remove`]) and sparse ones
//! ([`ColdStore::sparse`]) whose remaining values the owner should move.
//!
//! The file `RESERVE` holds space for moving the values of one segment, so that this can be done on a full disk. New
//! values are written only while it does.
//!
//! The directory is the only list of segments, and there is no recovery. A location is returned once its value is
//! durable, and a value without a known location is garbage. The layout is in `docs/formats/cold-segment.md`.
//!
//! * `location`: location of a value. `batch`: values about to be written.
//! * `segment`: a file of values. `store`: all of them. `reads`: asynchronous reads.
//! * `check`: verification of the files of a closed store.

mod batch;
mod check;
mod location;
mod reads;
mod segment;
mod store;

pub use batch::{ColdBatch, ColdLimits, ColdRefusal};
pub use check::{ColdCheckReport, check_cold, check_cold_on};
pub use location::ColdLocation;
pub use reads::ColdReads;
pub use segment::ColdBuffer;
pub use store::{ColdFigures, ColdOptions, ColdStore, Durable, Origin};
