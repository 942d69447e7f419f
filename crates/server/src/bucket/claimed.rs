//! A log that this server has claimed.

use tierce_bucket::{Runtime, Store};
use tierce_engine::feed::{Follower, Reader};
use tierce_keyspace::log::Unfinished;

use super::lease::KeptOwner;
use super::position_file::{PositionFile, new_id};
use super::settings::bytes_max;
use super::tail;
use crate::engine::Engine;

/// Claimed log, while the data are being loaded.
pub struct Claimed {
    pub(super) runtime: Runtime,
    pub(super) store: Store,
    pub(super) owner: KeptOwner,
    pub(super) position_file: PositionFile,
    pub(super) needs_base: bool,
    /// Records in the bucket's log behind the last common position (cut), if the missing ones are searched for.
    pub(super) sent: Option<Vec<Vec<u8>>>,
    /// Local records that the bucket's log lacks.
    pub(super) tail: Vec<Vec<u8>>,
    /// Records that end the batches which a crash left incomplete there: otherwise each reader would wait forever for
    /// the rest.
    pub(super) gaps: Vec<Vec<u8>>,
    pub(super) follower: Option<Follower>,
    /// Mark before everything that follows.
    pub(super) mark: u64,
    /// True if the log has changes that the directory lacks.
    pub(super) is_behind: bool,
}

impl Claimed {
    /// Follows all changes from now on. Must be called after the keys are loaded, and before any change.
    pub(super) fn follow(&mut self, engine: &Engine) {
        self.follower = engine.follow(Reader::Bucket, bytes_max(&engine.config.settings()));
        let found = engine.durability.take_found();
        if let (Some(sent), Some(found)) = (self.sent.take(), found) {
            match tail::without(found, &sent) {
                Some(tail) => {
                    self.gaps = gaps_behind(&sent, &tail);
                    (self.tail, self.needs_base) = (tail, false);
                }
                None => self.is_behind = true,
            }
        }
        let mut locks = engine.keyspace.long_locks();
        let _all = locks.lock_all();
        engine.feed.mark(Reader::Bucket, self.mark);
    }
}

/// Returns the records that end the batches begun in the log behind a cut. A cut is never inside a batch.
fn gaps_behind(sent: &[Vec<u8>], tail: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let mut unfinished = Unfinished::default();
    for record in sent.iter().chain(tail) {
        // An invalid record is reported when it is applied.
        let _ = unfinished.operations(record);
    }
    unfinished.gaps()
}

/// Returns the id of a mark, unique in this directory.
pub(super) fn new_mark() -> u64 {
    (u128::from_le_bytes(new_id()) as u64).max(1)
}
