//! A log that this server has claimed.

use tierce_bucket::{Runtime, Store};
use tierce_engine::feed::{Follower, Reader};
use tierce_keyspace::log::Unfinished;

use super::lease::KeptOwner;
use super::place::{Place, new_id};
use super::settings::bytes_max;
use super::tail;
use crate::engine::Engine;

/// One that was claimed, while the data are being loaded.
pub struct Claimed {
    pub(super) runtime: Runtime,
    pub(super) store: Store,
    pub(super) owner: KeptOwner,
    pub(super) place: Place,
    pub(super) needs_base: bool,
    /// What the log has behind the last place that both logs have, if what it lacks is searched for.
    pub(super) sent: Option<Vec<Vec<u8>>>,
    /// What the log lacks.
    pub(super) tail: Vec<Vec<u8>>,
    /// What ends the batches there that a crash has cut short: else each reader would wait for the rest for ever.
    pub(super) gaps: Vec<Vec<u8>>,
    pub(super) follower: Option<Follower>,
    /// The mark before everything that follows.
    pub(super) mark: u64,
    /// The log has changes that the directory lacks.
    pub(super) is_behind: bool,
}

impl Claimed {
    /// Follows all changes from now on. To be called when the keys are loaded, and nothing has changed any.
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

/// What ends the batches that have begun in the log behind a cut, which is in the middle of none.
fn gaps_behind(sent: &[Vec<u8>], tail: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let mut unfinished = Unfinished::default();
    for record in sent.iter().chain(tail) {
        // Whoever applies it finds that it is none.
        let _ = unfinished.operations(record);
    }
    unfinished.gaps()
}

/// The id of a mark, which no other one of this directory has.
pub(super) fn new_mark() -> u64 {
    (u128::from_le_bytes(new_id()) as u64).max(1)
}
