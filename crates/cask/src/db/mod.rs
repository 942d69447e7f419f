//! The database.
//!
//! * [`store`]: the state all handles share.
//! * [`open`], [`recovery`]: open a directory as a store.
//! * [`encoder`]: encodes keys and values into records.
//! * [`commit`]: appends groups of writes and applies them to the index.
//! * [`read`], [`range`], [`iter`], [`view`], [`snapshot`]: reading. [`scan`]: passes over the disk
//!   that ranges share.
//! * [`full_scan`]: all records in disk order.
//! * [`seal`]: hint files of finished segments, and closing.
//! * [`compaction`]: reclaims space.
//! * [`reserve`]: space reserved for deletes and compaction on a full disk.
//! * [`handle`]: the public interface, [`Db`](handle::Db).

pub(crate) mod batch;
pub(crate) mod commit;
pub(crate) mod compaction;
pub(crate) mod encoder;
pub(crate) mod full_scan;
pub(crate) mod handle;
pub(crate) mod iter;
pub(crate) mod open;
pub(crate) mod range;
pub(crate) mod read;
pub(crate) mod recovery;
pub(crate) mod reserve;
pub(crate) mod scan;
pub(crate) mod seal;
pub(crate) mod snapshot;
pub(crate) mod stats;
pub(crate) mod store;
pub(crate) mod threads;
pub(crate) mod view;
