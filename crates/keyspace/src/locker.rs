//! How a thread locks shards.
//!
//! A [`Locker`] holds either the one shard of its last request, which stays locked while the next
//! ones go to it as well (a pipeline against one hot key takes one lock), or all shards of a command
//! with several keys, which are locked at once and in ascending order. While the latter are held,
//! the [`Many`] borrows the locker, so nothing else can be locked by it.
//!
//! **Invariant**: a thread waits for a shard only while all shards it holds are lower. So there is no
//! deadlock, as long as a thread has one locker at a time.
//!
//! A locker must not be kept over anything that waits: it is released at the end of a batch.

use crate::context::{Context, Touch};
use crate::db::Db;
use crate::db_index::DbIndex;
use crate::key::{Key, KeyHash};
use crate::keyspace::Keyspace;
use crate::log::pending::Pending;
use crate::shard::Held;
use crate::usage::Tracking;
use crate::waiters::Ready;

/// A thread's access to the keyspace. Dropping it unlocks what it holds.
pub struct Locker<'k> {
    keyspace: &'k Keyspace,
    /// What is kept of uses, and whether the operations that follow count as such.
    tracking: Tracking,
    usage: Option<Tracking>,
    /// The shard of the last request; `None` while `many` is in use.
    sticky: Option<Held<'k>>,
    /// The shards of a [`Many`], ascending; empty without one.
    pub(crate) many: Vec<Held<'k>>,
    /// What changed in the shards that are held and is not in the log yet, if there is a log.
    pending: Option<Pending<'k>>,
    /// Keys that were changed and that somebody may wait for.
    pub(crate) ready: Ready,
    has_logged: bool,
}

impl<'k> Locker<'k> {
    #[inline]
    pub(crate) fn new(keyspace: &'k Keyspace) -> Self {
        let tracking = keyspace.pressure.policy().tracking();
        Self {
            keyspace,
            tracking,
            usage: Some(tracking),
            sticky: None,
            many: Vec::new(),
            pending: keyspace.log().map(Pending::new),
            ready: Ready::default(),
            has_logged: false,
        }
    }

    /// The keyspace.
    #[inline]
    #[must_use]
    pub fn keyspace(&self) -> &'k Keyspace {
        self.keyspace
    }

    /// Whether the operations that follow count as uses of the keys they read or write.
    #[inline]
    pub fn set_touch(&mut self, touch: Touch) {
        self.usage = (touch == Touch::Yes).then_some(self.tracking);
    }

    /// The database `db` as far as it is in the shard of `hash`, which is locked and stays so. A
    /// shard held before for another single request is unlocked first.
    ///
    /// # Panics
    ///
    /// Under a [`Many`], if the shard is not one of those it locked.
    #[inline]
    pub fn db(&mut self, db: DbIndex, hash: KeyHash, now_ms: i64) -> Db<'_> {
        let index = self.keyspace.hasher.shard(hash);
        self.shard_db(index, db, now_ms)
    }

    /// Unlocks the shard of the last request. To be called at the end of a batch, and not under a
    /// [`Many`], whose changes are one record.
    #[inline]
    pub fn release(&mut self) {
        debug_assert!(self.many.is_empty(), "shards are locked together");
        self.log_pending();
        self.sticky = None;
    }

    /// Locks the shards of all `hashes`, at once.
    ///
    /// Under another [`Many`] nothing more is locked; the shards have to be among those of the
    /// outer one. So a command with several keys works within a transaction that has locked them.
    ///
    /// # Panics
    ///
    /// Under another `Many`, if a shard is missing there.
    pub fn lock_many(&mut self, hashes: &[KeyHash]) -> Many<'_, 'k> {
        let hasher = &self.keyspace.hasher;
        if let [hash] = hashes {
            let index = hasher.shard(*hash);
            return self.lock_ascending(index..index + 1);
        }
        let mut indices: Vec<usize> = hashes.iter().map(|hash| hasher.shard(*hash)).collect();
        indices.sort_unstable();
        indices.dedup();
        self.lock_ascending(indices.into_iter())
    }

    /// Locks each shard for a moment, one after the other. What others did in a shard before that is in
    /// the log then.
    pub fn pass_all_shards(&mut self) {
        for index in 0..self.keyspace.shard_count() {
            self.held(index);
        }
        self.end_steps();
    }

    /// Ends a walk through the shards, of which the last one is locked. Under a [`Many`], which holds all
    /// of them, they stay so, and what has changed goes to the log with what follows.
    pub(crate) fn end_steps(&mut self) {
        if !self.is_within() {
            self.release();
        }
    }

    /// Locks all shards.
    ///
    /// # Panics
    ///
    /// Under a `Many` that does not hold all shards.
    pub fn lock_all(&mut self) -> Many<'_, 'k> {
        self.lock_ascending(0..self.keyspace.shard_count())
    }

    /// Whether the shard of `hash` may be used now: always, except under a [`Many`] without it.
    #[must_use]
    pub fn covers(&self, hash: KeyHash) -> bool {
        self.many.is_empty() || self.position(self.keyspace.hasher.shard(hash)).is_some()
    }

    /// Whether any shard may be used now: always, except under a [`Many`] of some.
    #[must_use]
    pub fn covers_all(&self) -> bool {
        self.many.is_empty() || self.many.len() == self.keyspace.shard_count()
    }

    /// Whether several shards are locked together by a [`Many`], so that no other can be.
    #[inline]
    #[must_use]
    pub fn is_within(&self) -> bool {
        !self.many.is_empty()
    }

    /// Panics unless the shards of all `keys` can be locked at the same time as things are: under a
    /// [`Many`], or because they are in one shard.
    pub(crate) fn assert_together(&self, keys: &[Key<'_>]) {
        let shard = |key: &Key<'_>| self.keyspace.hasher.shard(key.hash());
        let are_together =
            self.is_within() || keys.windows(2).all(|two| shard(&two[0]) == shard(&two[1]));
        assert!(are_together, "keys that are not locked together");
    }

    /// Locks the shard of this index, or finds it among those locked.
    #[inline]
    pub(crate) fn held(&mut self, index: usize) -> &mut Held<'k> {
        self.hold(index);
        match &mut self.sticky {
            Some(held) if held.index == index => held,
            _ => held_among(&mut self.many, index),
        }
    }

    #[inline]
    fn hold(&mut self, index: usize) {
        if self.sticky.as_ref().is_none_or(|held| held.index != index) {
            self.change_to(index);
        }
    }

    #[inline]
    pub(crate) fn shard_db(&mut self, index: usize, db: DbIndex, now_ms: i64) -> Db<'_> {
        self.hold(index);
        // Not before: with the shard, the locker may have found a log.
        let Self { keyspace, tracking, usage, .. } = *self;
        let held = match &mut self.sticky {
            Some(held) if held.index == index => held,
            _ => held_among(&mut self.many, index),
        };
        let Held { shard, stats, .. } = held;
        let pending = self.pending.as_ref();
        let (shard_index, ready) = (index, &self.ready);
        let at =
            Context { keyspace, stats, shard_index, db, now_ms, pending, ready, usage, tracking };
        Db::new(shard, at)
    }

    /// All shards that a `Many` holds.
    pub(crate) fn all_held(&mut self) -> &mut [Held<'k>] {
        assert_eq!(self.many.len(), self.keyspace.shard_count(), "all shards have to be locked");
        &mut self.many
    }

    fn change_to(&mut self, index: usize) {
        if self.many.is_empty() {
            // The old lock is released before the new one is waited for.
            self.release();
            self.sticky = Some(Held::lock(&self.keyspace.slots, index));
            self.look_for_log();
        }
    }

    /// To be called with shards locked in which nothing has changed yet. So there is no change that
    /// is neither seen by a pass over all keys that begins after logging ([`Keyspace::begin_logging`])
    /// nor logged.
    #[inline]
    fn look_for_log(&mut self) {
        let log = self.keyspace.log();
        if log.is_some() != self.pending.is_some() {
            self.pending = log.map(Pending::new);
        }
    }

    /// Appends to the log what changed in the shards that are held; to be called before one of them
    /// is unlocked.
    #[inline]
    fn log_pending(&mut self) {
        if let Some(pending) = &mut self.pending {
            self.has_logged |= pending.append();
        }
    }

    /// Whether anything that was done with this locker has gone to the log since this was last
    /// asked. What was done in shards that are still locked has not, and that a key expired is nothing
    /// that somebody did.
    #[inline]
    pub fn take_logged(&mut self) -> bool {
        std::mem::take(&mut self.has_logged)
    }

    /// Like [`Locker::take_logged`], without forgetting it.
    #[must_use]
    pub fn has_logged(&self) -> bool {
        self.has_logged
    }

    /// Notes a change of a whole database.
    pub(crate) fn pending(&self) -> Option<&Pending<'k>> {
        self.pending.as_ref()
    }

    fn lock_ascending(&mut self, indices: impl Iterator<Item = usize>) -> Many<'_, 'k> {
        if !self.many.is_empty() {
            for index in indices {
                assert!(self.position(index).is_some(), "shard {index} is not locked");
            }
            return Many { locker: self, ends: Ends::Outside };
        }
        self.log_pending();
        let slots = &self.keyspace.slots;
        let mut indices = indices.peekable();
        // A lock that is held may stay if it is the lowest: the others are waited for in ascending
        // order all the same.
        match self.sticky.take_if(|held| indices.next_if_eq(&held.index).is_some()) {
            Some(held) => self.many.push(held),
            None => self.release(),
        }
        self.many.extend(indices.map(|index| Held::lock(slots, index)));
        self.look_for_log();
        Many { locker: self, ends: Ends::Here }
    }

    fn position(&self, index: usize) -> Option<usize> {
        self.many.binary_search_by_key(&index, |held| held.index).ok()
    }
}

impl Drop for Locker<'_> {
    #[inline]
    fn drop(&mut self) {
        self.log_pending();
        if self.has_ready() {
            self.sticky = None;
            self.many.clear();
            self.hand_over_ready();
        }
    }
}

/// The shard of this index among those of a transaction.
fn held_among<'h, 'k>(many: &'h mut [Held<'k>], index: usize) -> &'h mut Held<'k> {
    let position = many.binary_search_by_key(&index, |held| held.index);
    &mut many[position.expect("a shard that the transaction has locked")]
}

/// Several shards locked at once. Dropping it unlocks them, except that a single one stays locked
/// until the next request or [`Locker::release`].
pub struct Many<'l, 'k> {
    locker: &'l mut Locker<'k>,
    ends: Ends,
}

/// Who unlocks the shards.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ends {
    /// This `Many`.
    Here,
    /// The one around it.
    Outside,
}

impl<'k> Many<'_, 'k> {
    /// The database `db` as far as it is in the shard of `hash`.
    ///
    /// # Panics
    ///
    /// If that shard is not locked.
    #[inline]
    pub fn db(&mut self, db: DbIndex, hash: KeyHash, now_ms: i64) -> Db<'_> {
        self.locker.db(db, hash, now_ms)
    }

    /// The locker, for running commands that lock for themselves what this has locked already.
    #[inline]
    pub fn locker(&mut self) -> &mut Locker<'k> {
        self.locker
    }
}

impl Drop for Many<'_, '_> {
    fn drop(&mut self) {
        if self.ends == Ends::Here {
            self.locker.log_pending();
            // A single shard stays locked, as after any request to one.
            match self.locker.many.len() {
                1 => self.locker.sticky = self.locker.many.pop(),
                _ => self.locker.many.clear(),
            }
        }
    }
}
