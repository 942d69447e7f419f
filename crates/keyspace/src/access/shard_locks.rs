//! Locks shards on behalf of a thread.
//!
//! A [`ShardLocks`] locks either one shard or several. It keeps the shard of its last request locked while the next
//! ones use it too, so a pipeline against one hot key takes one lock. For a command with several keys it locks all
//! shards at once, in ascending order. The [`MultiShardGuard`] then borrows the shard locks, so nothing else can be
//! locked through them.
//!
//! **Invariant**: a thread waits for a shard only while all shards that it has locked are lower. So there is no
//! deadlock, as long as a thread has one `ShardLocks` at a time.
//!
//! Never keep a shard locked while waiting for anything else: release it at the end of a batch.
//!
//! Some threads lock shards for long, and others must not wait for them: see [`BusyPolicy`] and `busy`.

use std::time::Duration;

use crate::access::context::{Context, ThreadContext, Touch};
use crate::access::db::Db;
use crate::access::effects::Effects;
use crate::access::keyspace::Keyspace;
use crate::access::notices::{hand_over_ready, tell_watchers};
use crate::access::shard::{Held, Locked};
use crate::change::event::Origin;
use crate::change::stream_position::StreamPosition;
use crate::data::key::{Key, KeyHash};
use crate::data::usage::{Tracking, Usage};
use crate::db_index::DbIndex;
use crate::error::Busy;
use crate::planted::{self, Fault};
use crate::registries::busy::{Announcement, OnBusy};
use crate::registries::waiters::WaitKey;

/// Patience of a thread that has other work, when another thread keeps a shard locked for long. A script may keep
/// shards locked without end.
pub const SHARD_PATIENCE: Duration = Duration::from_millis(100);

/// Behavior of a thread towards others that lock shards for long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BusyPolicy {
    /// It waits for them.
    Waits,
    /// It is the worker of this number. An attempt to lock a busy shard fails, and the worker is woken later.
    SetsAside(u16),
    /// It locks shards for long itself: it marks them busy before it locks them. It waits for other such threads;
    /// attempts (`try_...`) wait for `patience` at most.
    Announces { patience: Option<Duration> },
}

/// A thread's access to the keyspace. Dropping it unlocks its shards.
pub struct ShardLocks<'k> {
    /// State shared by the operations that follow: how uses are counted, the effects on the locked shards, and the
    /// undo log.
    pub(crate) thread: ThreadContext<'k>,
    busy_policy: BusyPolicy,
    /// The shard of the last request; `None` while `together` is in use.
    single: Option<Held<'k>>,
    /// The shards of a [`MultiShardGuard`], ascending; empty without one.
    pub(crate) together: Vec<Held<'k>>,
    /// Marks the locked shards as busy if they may stay locked for long. Dropped when they are unlocked.
    announcement: Option<Announcement<'k>>,
    has_logged: bool,
}

impl Keyspace {
    /// Returns locks for one thread that may wait for others. Cheap; one for each batch of requests is fine.
    #[inline]
    #[must_use]
    pub fn locks(&self) -> ShardLocks<'_> {
        ShardLocks::new(self, BusyPolicy::Waits)
    }

    /// Returns locks for a worker, which never waits for a shard that another thread locks for long. It uses
    /// [`ShardLocks::reach`], [`ShardLocks::try_lock_many`] and [`ShardLocks::try_lock_all`], and is woken when it
    /// may try again ([`Keyspace::on_freed`]).
    #[inline]
    #[must_use]
    pub fn worker_locks(&self, worker: u16) -> ShardLocks<'_> {
        ShardLocks::new(self, BusyPolicy::SetsAside(worker))
    }

    /// Returns locks for a thread that locks shards for long. It marks them busy, so that workers do not wait.
    #[must_use]
    pub fn long_locks(&self) -> ShardLocks<'_> {
        ShardLocks::new(self, BusyPolicy::Announces { patience: None })
    }

    /// Like [`Keyspace::long_locks`], for a thread that has other work. An attempt to lock fails if others keep the
    /// shards locked for longer than `patience`. The thread is not woken afterwards.
    #[must_use]
    pub fn impatient_long_locks(&self, patience: Duration) -> ShardLocks<'_> {
        let patience = (!planted::is(Fault::LongThreadsWait)).then_some(patience);
        ShardLocks::new(self, BusyPolicy::Announces { patience })
    }
}

impl<'k> ShardLocks<'k> {
    #[inline]
    pub(crate) fn new(keyspace: &'k Keyspace, busy_policy: BusyPolicy) -> Self {
        let tracking = keyspace.pressure.tracking();
        Self {
            thread: ThreadContext {
                keyspace,
                effects: Effects::new(keyspace),
                undo: None,
                usage: Usage::of(tracking),
                tracking,
            },
            busy_policy,
            single: None,
            together: Vec::new(),
            announcement: None,
            has_logged: false,
        }
    }

    /// Returns true if these are the locks of a worker, which must not keep a shard locked for long.
    #[must_use]
    pub fn is_of_worker(&self) -> bool {
        matches!(self.busy_policy, BusyPolicy::SetsAside(_))
    }

    /// Returns the keyspace.
    #[inline]
    pub fn keyspace(&self) -> &'k Keyspace {
        self.thread.keyspace
    }

    /// Sets if the operations that follow count as uses of the keys that they read or write.
    #[inline]
    pub fn set_touch(&mut self, touch: Touch) {
        self.thread.usage = match touch {
            Touch::No => Usage::None,
            Touch::Yes if self.thread.undo.is_some() => Usage::of(self.thread.tracking).undoable(),
            Touch::Yes => Usage::of(self.thread.tracking),
        };
    }

    /// Returns `Yes` if operations count as uses of keys.
    pub fn touch(&self) -> Touch {
        match self.thread.usage {
            Usage::None => Touch::No,
            Usage::Stamp | Usage::Tracked => Touch::Yes,
        }
    }

    /// Adopts event classes that [`Keyspace::set_event_classes`] has set since the shards were locked.
    pub fn look_for_event_classes(&mut self) {
        self.thread.effects.look_for_classes(self.thread.keyspace);
    }

    pub(crate) fn tracking(&self) -> Tracking {
        self.thread.tracking
    }

    /// Returns the part of database `db` in the shard of `hash`, and locks that shard until further notice. The shard
    /// of an earlier single request is unlocked first.
    ///
    /// # Panics
    ///
    /// Under a [`MultiShardGuard`], if the shard is not one of those it locked.
    #[inline]
    pub fn db(&mut self, db: DbIndex, hash: KeyHash, now_ms: i64) -> Db<'_> {
        let index = self.thread.keyspace.hasher.shard(hash);
        self.shard_db(index, db, now_ms)
    }

    /// Unlocks the shard of the last request. Call it at the end of a batch, but not under a [`MultiShardGuard`],
    /// whose changes are one record.
    #[inline]
    pub fn release(&mut self) {
        debug_assert!(self.together.is_empty(), "shards are locked together");
        self.commit_effects();
        self.single = None;
        self.announcement = None;
    }

    /// Locks the shard of `hash` as [`ShardLocks::db`] does. Fails if it is busy and these are a worker's locks.
    ///
    /// # Errors
    ///
    /// [`Busy`]; then no shard is locked. The worker is woken when the shard is free.
    #[inline]
    pub fn reach(&mut self, hash: KeyHash) -> Result<(), Busy> {
        self.reach_shard(self.thread.keyspace.hasher.shard(hash))
    }

    /// Like [`ShardLocks::reach`], but returns false if the shard is busy, and the caller is not woken.
    #[inline]
    #[must_use]
    pub fn try_reach(&mut self, hash: KeyHash) -> bool {
        self.try_reach_shard(self.thread.keyspace.hasher.shard(hash))
    }

    /// Locks the shards of all `hashes` at once.
    ///
    /// Under another [`MultiShardGuard`] nothing more is locked: the outer one must already have locked the shards.
    /// So a command with several keys works within a transaction that has locked them.
    ///
    /// # Panics
    ///
    /// Under another `MultiShardGuard`, if that one has not locked a shard.
    pub fn lock_many(&mut self, hashes: &[KeyHash]) -> MultiShardGuard<'_, 'k> {
        let ends = self.with_shards_of(hashes, Self::lock_patiently);
        MultiShardGuard { locks: self, ends }
    }

    /// Like [`ShardLocks::lock_many`]. Fails if one of the shards is busy and these are a worker's locks.
    ///
    /// # Errors
    ///
    /// [`Busy`]; then no shard is locked. The worker is woken when that shard is free.
    ///
    /// # Panics
    ///
    /// As for [`ShardLocks::lock_many`].
    pub fn try_lock_many(&mut self, hashes: &[KeyHash]) -> Result<MultiShardGuard<'_, 'k>, Busy> {
        let ends = self.with_shards_of(hashes, Self::try_lock)?;
        Ok(MultiShardGuard { locks: self, ends })
    }

    /// Locks each shard for a moment, one after the other. Afterwards, everything that other threads did in a shard
    /// before that moment is in the log.
    pub fn pass_all_shards(&mut self) {
        for index in 0..self.thread.keyspace.shard_count() {
            self.held(index);
        }
        self.end_steps();
    }

    /// Like [`ShardLocks::pass_all_shards`], beginning at `from`. Stops if another thread keeps a shard locked for
    /// too long.
    ///
    /// # Errors
    ///
    /// [`Busy`] with the shard at which to continue; then no shard is locked.
    pub fn try_pass_shards(&mut self, from: usize) -> Result<(), Busy> {
        (from..self.thread.keyspace.shard_count()).try_for_each(|index| self.reach_shard(index))?;
        self.end_steps();
        Ok(())
    }

    /// Ends a walk through the shards and unlocks the last one. Under a [`MultiShardGuard`] all shards stay locked,
    /// and the changes go to the log together with later ones.
    pub(crate) fn end_steps(&mut self) {
        if !self.is_within() {
            self.release();
        }
    }

    /// Locks all shards.
    ///
    /// # Panics
    ///
    /// Under a `MultiShardGuard` that has not locked all shards.
    pub fn lock_all(&mut self) -> MultiShardGuard<'_, 'k> {
        let ends = self.lock_patiently(&self.all_shards());
        MultiShardGuard { locks: self, ends }
    }

    /// Like [`ShardLocks::lock_all`]. Fails if a shard is busy and these are a worker's locks.
    ///
    /// # Errors
    ///
    /// [`Busy`]; then no shard is locked. The worker is woken when that shard is free.
    ///
    /// # Panics
    ///
    /// As for [`ShardLocks::lock_all`].
    pub fn try_lock_all(&mut self) -> Result<MultiShardGuard<'_, 'k>, Busy> {
        let ends = self.try_lock(&self.all_shards())?;
        Ok(MultiShardGuard { locks: self, ends })
    }

    /// Runs `change` and records its changes only for the durable log, if there is one. For callers that know that no
    /// follower needs them. All shards are locked.
    pub fn without_followers<T>(&mut self, change: impl FnOnce(&mut Self) -> T) -> T {
        debug_assert!(self.is_within() && self.covers_all() && self.thread.undo.is_none());
        let before = self.thread.effects.leave_out_followers();
        let changed = change(self);
        self.thread.effects.record_again(before);
        changed
    }

    /// Returns true if changes under the present guard are recorded for a log or a follower.
    #[must_use]
    pub fn is_recorded(&self) -> bool {
        self.thread.effects.batch.is_some()
    }

    /// Returns true if the shard of `hash` may be used now: always, except under a [`MultiShardGuard`] without it.
    pub fn covers(&self, hash: KeyHash) -> bool {
        self.together.is_empty() || self.position(self.thread.keyspace.hasher.shard(hash)).is_some()
    }

    /// Returns true if any shard may be used now: always, except under a [`MultiShardGuard`] of some shards.
    pub fn covers_all(&self) -> bool {
        self.together.is_empty() || self.together.len() == self.thread.keyspace.shard_count()
    }

    /// Returns true if a [`MultiShardGuard`] has locked several shards, so that no other can be locked.
    #[inline]
    pub fn is_within(&self) -> bool {
        !self.together.is_empty()
    }

    /// Panics unless the shards of all `keys` are or can be locked together: under a [`MultiShardGuard`], or because
    /// all keys are in one shard.
    pub(crate) fn assert_together(&self, keys: &[Key<'_>]) {
        let shard = |key: &Key<'_>| self.thread.keyspace.hasher.shard(key.hash());
        let are_together =
            self.is_within() || keys.windows(2).all(|two| shard(&two[0]) == shard(&two[1]));
        assert!(are_together, "keys that are not locked together");
    }

    /// Locks the shard of this index, or finds it among the locked ones.
    #[inline]
    pub(crate) fn held(&mut self, index: usize) -> &mut Held<'k> {
        self.hold(index);
        match &mut self.single {
            Some(held) if held.index == index => held,
            _ => held_among(&mut self.together, index),
        }
    }

    #[inline]
    fn hold(&mut self, index: usize) {
        if self.single.as_ref().is_none_or(|held| held.index != index) {
            self.change_to(index);
        }
    }

    #[inline]
    pub(crate) fn shard_db(&mut self, index: usize, db: DbIndex, now_ms: i64) -> Db<'_> {
        self.hold(index);
        let held = match &mut self.single {
            Some(held) if held.index == index => held,
            _ => held_among(&mut self.together, index),
        };
        let (thread, stats) = (&self.thread, held.stats);
        if let Some(undo) = &thread.undo {
            undo.count(index, stats);
        }
        let Locked { data, observers } = &mut *held.shard;
        let at = Context { thread, stats, observers, shard_index: index, db, now_ms };
        Db::new(data, at)
    }

    /// Returns all shards, which a `MultiShardGuard` has locked.
    pub(crate) fn all_held(&mut self) -> &mut [Held<'k>] {
        assert_eq!(
            self.together.len(),
            self.thread.keyspace.shard_count(),
            "all shards have to be locked"
        );
        &mut self.together
    }

    /// Locks the shard of this index if it is not locked, and waits as long as necessary.
    fn change_to(&mut self, index: usize) {
        if cfg!(debug_assertions) && self.change_as(index, |_| OnBusy::Fail).is_ok() {
            return;
        }
        self.assert_may_wait();
        self.change_as(index, |_| OnBusy::Wait).expect("it waits");
    }

    /// Checks, before a wait for a busy shard, that this is not a worker: workers must only try.
    fn assert_may_wait(&self) {
        debug_assert!(
            !matches!(self.busy_policy, BusyPolicy::SetsAside(_)),
            "a worker waits for a busy shard"
        );
    }

    #[inline]
    pub(crate) fn reach_shard(&mut self, index: usize) -> Result<(), Busy> {
        if self.single.as_ref().is_some_and(|held| held.index == index) {
            return Ok(());
        }
        self.change_as(index, Self::on_busy)
    }

    #[inline]
    pub(crate) fn try_reach_shard(&mut self, index: usize) -> bool {
        if self.single.as_ref().is_some_and(|held| held.index == index) {
            return true;
        }
        match self.is_within() {
            true => self.position(index).is_some(),
            false => self.change_as(index, |_| OnBusy::Fail).is_ok(),
        }
    }

    /// Inlined, since most requests lock a shard: a call costs 25 instructions.
    #[inline(always)]
    fn change_as(&mut self, index: usize, on_busy: impl Fn(&Self) -> OnBusy) -> Result<(), Busy> {
        if self.together.is_empty() {
            // Release the old lock before waiting for the new one.
            self.release();
            if self.announces() {
                self.announcement = Some(self.announce(index..index + 1, on_busy(self))?);
            }
            // No other thread locks an announced shard for long.
            let on_busy = || if self.announces() { OnBusy::Wait } else { on_busy(self) };
            self.single = Some(self.thread.keyspace.lock_shard(index, on_busy)?);
            self.thread.effects.look_for_interest(self.thread.keyspace);
        }
        Ok(())
    }

    /// Returns the action for a busy shard in an attempt to lock it.
    fn on_busy(&self) -> OnBusy {
        match self.busy_policy {
            BusyPolicy::SetsAside(worker) => OnBusy::SetAside(worker),
            BusyPolicy::Announces { patience: Some(patience) } => OnBusy::WaitFor(patience),
            BusyPolicy::Waits | BusyPolicy::Announces { patience: None } => OnBusy::Wait,
        }
    }

    fn announces(&self) -> bool {
        matches!(self.busy_policy, BusyPolicy::Announces { .. })
    }

    fn announce(
        &self,
        shards: impl Iterator<Item = usize>,
        on_busy: OnBusy,
    ) -> Result<Announcement<'k>, Busy> {
        let patience = match on_busy {
            OnBusy::WaitFor(patience) => Some(patience),
            OnBusy::Fail => Some(Duration::ZERO),
            OnBusy::Wait | OnBusy::SetAside(_) => None,
        };
        self.thread.keyspace.announce(shards, patience)
    }

    /// Delivers the effects on the locked shards. Call it before one of them is unlocked.
    #[inline]
    pub fn commit_effects(&mut self) {
        self.has_logged |= self.thread.effects.commit(self.thread.keyspace);
        tell_watchers(self);
    }

    /// Delivers the effects before the locks are dropped. Not inlined, or each drop would save the registers that
    /// this needs.
    #[inline(never)]
    fn end_effects(&mut self) {
        self.commit_effects();
        if self.thread.effects.has_ready() {
            self.single = None;
            self.together.clear();
            self.announcement = None;
            hand_over_ready(self);
        }
    }

    /// Sets the replication offset that the data will have after the changes until the next release. The first record
    /// of these changes contains the offset, so they must be one record. Without a change the offset is not logged.
    pub fn lead_to(&mut self, position: StreamPosition) {
        self.thread.effects.lead_to(Some(position), false);
    }

    /// Like [`ShardLocks::lead_to`], but logs the offset even without a change. `None` means that the data match no
    /// stream.
    pub fn move_to(&mut self, position: Option<StreamPosition>) {
        self.thread.effects.lead_to(position, true);
    }

    /// Records this primary's final offset in its own stream. Nothing may change the data afterwards until the next
    /// start, where [`ShardLocks::move_to`] revokes it before the first change.
    pub fn end_at(&mut self, position: StreamPosition) {
        self.thread.effects.end_at(position);
    }

    /// Sets the database that is selected at the pending offset.
    pub fn select_in_lead(&mut self, db: DbIndex) {
        self.thread.effects.select_in_lead(db);
    }

    /// Forgets the pending offset.
    pub fn forget_lead(&mut self) {
        self.thread.effects.due_position = None;
    }

    /// Returns true if changes made with these locks have gone to the log since the last call, or a reply tells of
    /// earlier ones ([`crate::Db::confirm_earlier`]). Changes in shards that are still locked have not gone there, and
    /// expired keys do not count.
    #[inline]
    pub fn take_logged(&mut self) -> bool {
        std::mem::take(&mut self.has_logged)
    }

    /// Like [`ShardLocks::take_logged`], without resetting it.
    pub fn has_logged(&self) -> bool {
        self.has_logged
    }

    /// Sets the origin of the changes that follow, for their events.
    #[inline]
    pub fn set_origin(&mut self, origin: Origin) {
        self.thread.effects.set_origin(origin);
    }

    /// Returns the origin of the changes.
    pub fn origin(&self) -> Origin {
        self.thread.effects.origin()
    }

    /// Notes as ready a key that another thread has changed and whose waiters have not been served.
    pub fn note_ready(&self, (db, key): &WaitKey) {
        self.thread.effects.notices().ready.note(*db, key);
    }

    /// Returns true if keys that clients may wait for were changed with these locks.
    #[inline]
    #[must_use]
    pub fn has_ready(&self) -> bool {
        self.thread.effects.has_ready()
    }

    /// Takes these keys, in the order of their changes.
    #[must_use]
    pub fn take_ready(&mut self) -> Vec<WaitKey> {
        self.thread.effects.take_ready()
    }

    /// Calls `lock` with the shards of some keys in ascending order, each once.
    fn with_shards_of<R>(
        &mut self,
        hashes: &[KeyHash],
        lock: impl FnOnce(&mut Self, &[usize]) -> R,
    ) -> R {
        let shard = |hash: &KeyHash| self.thread.keyspace.hasher.shard(*hash);
        if let [hash] = hashes {
            let index = shard(hash);
            return lock(self, &[index]);
        }
        let mut shards: Vec<usize> = hashes.iter().map(shard).collect();
        shards.sort_unstable();
        shards.dedup();
        lock(self, &shards)
    }

    fn all_shards(&self) -> Vec<usize> {
        (0..self.thread.keyspace.shard_count()).collect()
    }

    fn try_lock(&mut self, shards: &[usize]) -> Result<Ends, Busy> {
        match self.on_busy() {
            OnBusy::SetAside(worker) => self.lock_ascending(shards, OnBusy::SetAside(worker)),
            on_busy => self.lock_waiting(shards, on_busy),
        }
    }

    /// Locks shards, and waits as long as necessary.
    fn lock_patiently(&mut self, shards: &[usize]) -> Ends {
        self.lock_waiting(shards, OnBusy::Wait).expect("it waits")
    }

    /// Locks shards, and waits for busy ones as `on_busy` says. It unlocks everything while it waits, and then marks
    /// the other shards busy until all are locked. If the only wanted shard is already locked, it stays locked, and
    /// no other thread intervenes.
    fn lock_waiting(&mut self, shards: &[usize], on_busy: OnBusy) -> Result<Ends, Busy> {
        let holds_all = self.single.as_ref().is_some_and(|held| *shards == [held.index]);
        if holds_all && let Ok(ends) = self.lock_ascending(shards, OnBusy::Fail) {
            return Ok(ends);
        }
        if self.announcement.is_some() && !self.is_within() {
            self.release();
        }
        if (!self.announces() || self.is_within())
            && let Ok(ends) = self.lock_ascending(shards, OnBusy::Fail)
        {
            return Ok(ends);
        }
        self.assert_may_wait();
        self.release();
        self.announcement = Some(self.announce(shards.iter().copied(), on_busy)?);
        self.lock_ascending(shards, on_busy)
    }

    fn lock_ascending(&mut self, shards: &[usize], on_busy: OnBusy) -> Result<Ends, Busy> {
        if !self.together.is_empty() {
            for index in shards {
                assert!(self.position(*index).is_some(), "shard {index} is not locked");
            }
            return Ok(Ends::Outside);
        }
        self.commit_effects();
        self.together.reserve(shards.len());
        let mut indices = shards.iter().copied().peekable();
        // A locked shard may stay locked if it is the lowest: the others are still locked in ascending order.
        match self.single.take_if(|held| indices.next_if_eq(&held.index).is_some()) {
            Some(held) => self.together.push(held),
            None => self.single = None,
        }
        for index in indices {
            match self.thread.keyspace.lock_shard(index, || on_busy) {
                Ok(held) => self.together.push(held),
                Err(busy) => {
                    self.together.clear();
                    return Err(busy);
                }
            }
        }
        self.thread.effects.look_for_interest(self.thread.keyspace);
        Ok(Ends::Here)
    }

    pub(crate) fn position(&self, index: usize) -> Option<usize> {
        self.together.binary_search_by_key(&index, |held| held.index).ok()
    }
}

impl Drop for ShardLocks<'_> {
    #[inline]
    fn drop(&mut self) {
        if !self.thread.effects.is_empty() {
            self.end_effects();
        }
    }
}

/// Returns the shard of this index among those of a transaction.
fn held_among<'h, 'k>(together: &'h mut [Held<'k>], index: usize) -> &'h mut Held<'k> {
    let position = together.binary_search_by_key(&index, |held| held.index);
    &mut together[position.expect("a shard that the transaction has locked")]
}

/// Several shards locked at once. Dropping it unlocks them; a single shard stays locked until the next request or
/// [`ShardLocks::release`]. A pending undo log ([`ShardLocks::begin_undo`]) is rolled back.
pub struct MultiShardGuard<'l, 'k> {
    locks: &'l mut ShardLocks<'k>,
    ends: Ends,
}

/// Owner that unlocks the shards.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ends {
    /// This `MultiShardGuard`.
    Here,
    /// The `MultiShardGuard` around it.
    Outside,
}

impl<'k> MultiShardGuard<'_, 'k> {
    /// Returns the part of database `db` in the shard of `hash`.
    ///
    /// # Panics
    ///
    /// If that shard is not locked.
    #[inline]
    pub fn db(&mut self, db: DbIndex, hash: KeyHash, now_ms: i64) -> Db<'_> {
        self.locks.db(db, hash, now_ms)
    }

    /// Returns the shard locks, to run commands that lock shards which this guard has already locked.
    #[inline]
    pub fn locks(&mut self) -> &mut ShardLocks<'k> {
        self.locks
    }
}

impl Drop for MultiShardGuard<'_, '_> {
    fn drop(&mut self) {
        if self.ends == Ends::Here {
            if self.locks.has_undo() {
                self.locks.rollback();
            }
            self.locks.commit_effects();
            // A single shard stays locked, as after a request to one shard.
            match self.locks.together.len() {
                1 => self.locks.single = self.locks.together.pop(),
                _ => {
                    self.locks.together.clear();
                    self.locks.announcement = None;
                }
            }
        }
    }
}
