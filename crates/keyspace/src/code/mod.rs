//! Code that clients keep on the server: libraries of functions, and scripts by name.
//!
//! It is data like keys are, so it is here: in the log, in snapshots, and taken back by an undo log. It belongs to
//! no database, and whatever empties databases leaves it alone. What the code means is not known here.
//!
//! * `store`: all code, shared by all threads.
//! * `edit`: changing it, under the locks of all shards.
//!
//! **Invariant:** code changes only while all shards are locked. So its changes have one order, which is that of
//! their records in the log; a [`Snapshot`](crate::Snapshot) has the code of the very moment of its keys; and
//! a holder of any shard sees code that does not change and is in the log as it sees it.
//!
//! Readers need no shard: they get what there was at some moment, and [`CodeStore::generation`] tells whether there
//! has been a change since.

mod edit;
mod store;

pub use edit::CodeEditor;
pub(crate) use store::Stored;
pub use store::{CodeKind, CodeSet, CodeStore};

/// The longest name of a library or script, in bytes.
pub const CODE_NAME_LEN_MAX: usize = 64 * 1024;
