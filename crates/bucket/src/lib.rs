//! A server's log in a bucket of object storage: durable beyond the machine, with one writer at a time.
//!
//! A *log group* is a prefix in a store. Its log is a series of objects, `log/<number>`, each put only if it is
//! absent; that orders the writers. All other objects support the log: snapshots, large payloads, the floor below
//! which it was pruned, and pins against pruning. Batches and snapshots are opaque bytes here.
//!
//! ```
//! use std::sync::Arc;
//! use tierce_bucket::{Claim, Group, Item, Location, Outcome, Owner, Restore, Right, Store, probe};
//! # use std::time::Duration;
//! # let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
//! # let dir = std::env::temp_dir().join(format!("tierce-bucket-doc-{}", std::process::id()));
//! # let url = format!("file://{}", dir.display());
//! # runtime.block_on(async {
//!
//! let store = Store::new(&Location::parse(&url)?);
//! probe(&store).await?;
//! let claim = Claim {
//!     node: [7; 16],
//!     address: "10.0.0.1:6379".into(),
//!     takeover: false,
//!     lease: Duration::from_secs(10),
//!     margin: Duration::from_secs(2),
//!     right: Right::Orderly,
//! };
//! let mut owner = Owner::claim(&store, claim).await?;
//! assert_eq!(owner.append(&[b"SET vintage 1982"]).await?, Outcome::Committed(2));
//! let mut upload = owner.begin_snapshot(2).await?;
//! upload.write(b"vintage=1982;").await?;
//! let uploaded = upload.finish(b"one database").await?;
//! owner.snapshot(uploaded).await?;
//! owner.append(&[b"SET vintage 1983", b"DEL cellar"]).await?;
//! owner.release().await?;
//!
//! let mut restore = Restore::newest(&Group::open(&store).await?).await?;
//! while let Some(item) = restore.next().await? {
//!     match item {
//!         Item::Snapshot { position, description } => assert_eq!((position, &description[..]), (2, &b"one database"[..])),
//!         Item::Part(bytes) => assert_eq!(bytes, "vintage=1982;"),
//!         Item::Batches { number, batches, .. } => assert_eq!((number, batches.len()), (4, 2)),
//!     }
//! }
//! restore.finish().await?;
//! # std::fs::remove_dir_all(&dir).unwrap();
//! # Ok::<(), tierce_bucket::Error>(())
//! # }).unwrap();
//! ```
//!
//! All functions are asynchronous, and run on a tokio runtime of the caller: one thread is enough. `runtime` shuts it
//! down without waiting for a store that does not answer. In reading order:
//! * `env`, `location`, `aws_files`, `credentials`, `store`: clocks, the location of a log, credentials, and single
//!   requests. `probe`, `nesting`: check that a store and a prefix in it are usable.
//! * `record`, `body`, `payload`: the content of an object. `chain`: the link from one record to the next.
//! * `group`: the floor and the end of a log.
//! * `append`, `owner`: the conditional append, and the process that may do it.
//! * `lease`: the time until which an owner may answer. `follower`: a process that reads the log and takes over.
//! * `snapshot`, `pin`, `prune`: keep a log short.
//! * `span`, `restore`, `history`: reading a log.
//! * `counters`: its cost.
//!
//! `docs/formats/bucket.md` specifies every byte. The crate's README has the rules, with what goes wrong without each.
#![forbid(unsafe_code)]

mod append;
mod aws_files;
mod body;
mod chain;
mod counters;
mod credentials;
mod directory;
mod env;
mod error;
mod fields;
mod follower;
mod group;
mod history;
mod lease;
mod location;
mod nesting;
mod owner;
mod payload;
mod pin;
mod probe;
mod prune;
mod record;
mod restore;
mod rules;
mod runtime;
mod snapshot;
mod span;
mod store;

#[cfg(test)]
mod simulation;

pub use append::{Outcome, Progress, Trouble};
pub use body::{BranchInfo, ClaimInfo, SnapshotInfo};
pub use counters::{Counters, GET_DOLLARS, GIGABYTE_MONTH_DOLLARS, PUT_DOLLARS, Usage};
pub use env::{Env, System};
pub use error::{Error, Result};
pub use follower::{Followed, Follower};
pub use group::{End, Group};
pub use history::{History, Verified, branch, list, verify};
pub use lease::{Clock, Lease};
pub use location::Location;
pub use owner::{Claim, Owner, Right};
pub use pin::Pin;
pub use probe::probe;
pub use prune::{Deletion, Retention};
pub use record::{HEADER_LEN, Hash, Header, Id, Kind, VERSION};
pub use restore::{Item, Restore, RestoreProgress};
pub use runtime::Runtime;
pub use snapshot::{SnapshotUpload, UploadedSnapshot};
pub use span::Moment;
pub use store::{Siblings, Store, Tuning};
