//! How a thread locks shards.
//!
//! A [`ShardLocks`] holds either the one shard of its last request, which stays locked while the next
//! ones go to it as well (a pipeline against one hot key takes one lock), or all shards of a command
//! with several keys, which are locked at once and in ascending order. While the latter are held,
//! the [`MultiShardGuard`] borrows the shard locks, so nothing else can be locked by it.
//!
//! **Invariant**: a thread waits for a shard only while all shards it holds are lower. So there is no
//! deadlock, as long as a thread has one `ShardLocks` at a time.
//!
//! Shard locks must not be kept over anything that waits: they are released at the end of a batch.
//!
//! Some threads hold shards for long, and others must not wait for them: see [`BusyPolicy`] and `busy`.

use std::time::Duration;

use crate::access::context::{Context, ThreadContext, Touch};
use crate::access::db::Db;
use crate::access::effects::Effects;
use crate::access::keyspace::Keyspace;
use crate::access::notices::{hand_over_ready, tell_watchers};
use crate::access::shard::{Held, Locked};
use crate::change::event::Origin;
use crate::change::stream_place::StreamPlace;
use crate::data::key::{Key, KeyHash};
use crate::data::usage::{Tracking, Usage};
use crate::db_index::DbIndex;
use crate::error::Busy;
use crate::planted::{self, Fault};
use crate::registries::busy::{Announcement, OnBusy};
use crate::registries::waiters::WaitKey;

/// A thread that has other things to do waits so long for shards that others hold for long: a program may hold them
/// without end.
pub const SHARD_PATIENCE: Duration = Duration::from_millis(100);

/// How a thread gets along with others that hold shards for long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BusyPolicy {
    /// It waits for them.
    Waits,
    /// It is the worker of this number: what it tries to lock is refused while it is busy, and the worker is
    /// woken later.
    SetsAside(u16),
    /// It is one of them: it makes shards busy before it locks them. It waits for others that hold them, and when it
    /// tries to lock them for so long at most.
    Announces { patience: Option<Duration> },
}

/// A thread's access to the keyspace. Dropping it unlocks what it holds.
pub struct ShardLocks<'k> {
    /// What the operations that follow have in common: how they count uses, what was done in the held shards, and
    /// how it is taken back.
    pub(crate) thread: ThreadContext<'k>,
    busy_policy: BusyPolicy,
    /// The shard of the last request; `None` while `together` is in use.
    single: Option<Held<'k>>,
    /// The shards of a [`MultiShardGuard`], ascending; empty without one.
    pub(crate) together: Vec<Held<'k>>,
    /// Makes the shards busy that are held, if they may be for long. Dropped when they are unlocked.
    announcement: Option<Announcement<'k>>,
    has_logged: bool,
}

impl Keyspace {
    /// Access for one thread that may wait for others. Cheap; one for each batch of requests is fine.
    #[inline]
    #[must_use]
    pub fn locks(&self) -> ShardLocks<'_> {
        ShardLocks::new(self, BusyPolicy::Waits)
    }

    /// Access for a worker, which never waits for a shard that another thread holds for long: it tries
    /// ([`ShardLocks::reach`], [`ShardLocks::try_lock_many`], [`ShardLocks::try_lock_all`]), and is woken when it may
    /// try again ([`Keyspace::on_freed`]).
    #[inline]
    #[must_use]
    pub fn worker_locks(&self, worker: u16) -> ShardLocks<'_> {
        ShardLocks::new(self, BusyPolicy::SetsAside(worker))
    }

    /// Access for a thread that holds shards for long: it makes them busy, so that workers do not wait.
    #[must_use]
    pub fn long_locks(&self) -> ShardLocks<'_> {
        ShardLocks::new(self, BusyPolicy::Announces { patience: None })
    }

    /// The same for a thread that has other things to do: what it tries to lock is refused when others have held it for
    /// so long. It is not woken when that is free.
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

    /// Whether these are the locks of a worker, which must not hold a shard for long.
    #[must_use]
    pub fn is_of_worker(&self) -> bool {
        matches!(self.busy_policy, BusyPolicy::SetsAside(_))
    }

    /// The keyspace.
    #[inline]
    pub fn keyspace(&self) -> &'k Keyspace {
        self.thread.keyspace
    }

    /// Whether the operations that follow count as uses of the keys they read or write.
    #[inline]
    pub fn set_touch(&mut self, touch: Touch) {
        self.thread.usage = match touch {
            Touch::No => Usage::None,
            Touch::Yes if self.thread.undo.is_some() => Usage::of(self.thread.tracking).undoable(),
            Touch::Yes => Usage::of(self.thread.tracking),
        };
    }

    /// `Yes` if the use of keys is noted.
    pub fn touch(&self) -> Touch {
        match self.thread.usage {
            Usage::None => Touch::No,
            Usage::Stamp | Usage::Tracked => Touch::Yes,
        }
    }

    /// Has the classes of events count that [`Keyspace::set_event_classes`] has set since the shards were locked.
    pub fn look_for_event_classes(&mut self) {
        self.thread.effects.look_for_classes(self.thread.keyspace);
    }

    pub(crate) fn tracking(&self) -> Tracking {
        self.thread.tracking
    }

    /// The database `db` as far as it is in the shard of `hash`, which is locked and stays so. A
    /// shard held before for another single request is unlocked first.
    ///
    /// # Panics
    ///
    /// Under a [`MultiShardGuard`], if the shard is not one of those it locked.
    #[inline]
    pub fn db(&mut self, db: DbIndex, hash: KeyHash, now_ms: i64) -> Db<'_> {
        let index = self.thread.keyspace.hasher.shard(hash);
        self.shard_db(index, db, now_ms)
    }

    /// Unlocks the shard of the last request. To be called at the end of a batch, and not under a
    /// [`MultiShardGuard`], whose changes are one record.
    #[inline]
    pub fn release(&mut self) {
        debug_assert!(self.together.is_empty(), "shards are locked together");
        self.commit_effects();
        self.single = None;
        self.announcement = None;
    }

    /// Locks the shard of `hash`, as [`ShardLocks::db`] does, unless it is busy and the locks are a worker's.
    ///
    /// # Errors
    ///
    /// [`Busy`]; then nothing is held. The worker is woken when the shard is free.
    #[inline]
    pub fn reach(&mut self, hash: KeyHash) -> Result<(), Busy> {
        self.reach_shard(self.thread.keyspace.hasher.shard(hash))
    }

    /// The same for callers that do without the shard if it is busy, and are not woken.
    #[inline]
    #[must_use]
    pub fn try_reach(&mut self, hash: KeyHash) -> bool {
        self.try_reach_shard(self.thread.keyspace.hasher.shard(hash))
    }

    /// Locks the shards of all `hashes`, at once.
    ///
    /// Under another [`MultiShardGuard`] nothing more is locked; the shards have to be among those of the
    /// outer one. So a command with several keys works within a transaction that has locked them.
    ///
    /// # Panics
    ///
    /// Under another `MultiShardGuard`, if a shard is missing there.
    pub fn lock_many(&mut self, hashes: &[KeyHash]) -> MultiShardGuard<'_, 'k> {
        let ends = self.with_shards_of(hashes, Self::lock_patiently);
        MultiShardGuard { locks: self, ends }
    }

    /// The same, unless one of the shards is busy and the locks are a worker's.
    ///
    /// # Errors
    ///
    /// [`Busy`]; then nothing is held. The worker is woken when that shard is free.
    ///
    /// # Panics
    ///
    /// As there.
    pub fn try_lock_many(&mut self, hashes: &[KeyHash]) -> Result<MultiShardGuard<'_, 'k>, Busy> {
        let ends = self.with_shards_of(hashes, Self::try_lock)?;
        Ok(MultiShardGuard { locks: self, ends })
    }

    /// Locks each shard for a moment, one after the other. What others did in a shard before that is in
    /// the log then.
    pub fn pass_all_shards(&mut self) {
        for index in 0..self.thread.keyspace.shard_count() {
            self.held(index);
        }
        self.end_steps();
    }

    /// The same from one shard on, unless another thread holds one for too long.
    ///
    /// # Errors
    ///
    /// [`Busy`] with the shard from which to go on; then nothing is held.
    pub fn try_pass_shards(&mut self, from: usize) -> Result<(), Busy> {
        (from..self.thread.keyspace.shard_count()).try_for_each(|index| self.reach_shard(index))?;
        self.end_steps();
        Ok(())
    }

    /// Ends a walk through the shards, of which the last one is locked. Under a [`MultiShardGuard`], which holds all
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
    /// Under a `MultiShardGuard` that does not hold all shards.
    pub fn lock_all(&mut self) -> MultiShardGuard<'_, 'k> {
        let ends = self.lock_patiently(&self.all_shards());
        MultiShardGuard { locks: self, ends }
    }

    /// The same, unless a shard is busy and the locks are a worker's.
    ///
    /// # Errors
    ///
    /// [`Busy`]; then nothing is held. The worker is woken when that shard is free.
    ///
    /// # Panics
    ///
    /// As there.
    pub fn try_lock_all(&mut self) -> Result<MultiShardGuard<'_, 'k>, Busy> {
        let ends = self.try_lock(&self.all_shards())?;
        Ok(MultiShardGuard { locks: self, ends })
    }

    /// Makes changes that are recorded for the durable log alone, if there is one, for callers that know that no
    /// follower takes them. All shards are locked.
    pub fn without_followers<T>(&mut self, change: impl FnOnce(&mut Self) -> T) -> T {
        debug_assert!(self.is_within() && self.covers_all() && self.thread.undo.is_none());
        let before = self.thread.effects.leave_out_followers();
        let changed = change(self);
        self.thread.effects.record_again(before);
        changed
    }

    /// Whether what changes under the guard that is held is recorded for anyone.
    #[must_use]
    pub fn is_recorded(&self) -> bool {
        self.thread.effects.batch.is_some()
    }

    /// Whether the shard of `hash` may be used now: always, except under a [`MultiShardGuard`] without it.
    pub fn covers(&self, hash: KeyHash) -> bool {
        self.together.is_empty() || self.position(self.thread.keyspace.hasher.shard(hash)).is_some()
    }

    /// Whether any shard may be used now: always, except under a [`MultiShardGuard`] of some.
    pub fn covers_all(&self) -> bool {
        self.together.is_empty() || self.together.len() == self.thread.keyspace.shard_count()
    }

    /// Whether several shards are locked together by a [`MultiShardGuard`], so that no other can be.
    #[inline]
    pub fn is_within(&self) -> bool {
        !self.together.is_empty()
    }

    /// Panics unless the shards of all `keys` can be locked at the same time as things are: under a
    /// [`MultiShardGuard`], or because they are in one shard.
    pub(crate) fn assert_together(&self, keys: &[Key<'_>]) {
        let shard = |key: &Key<'_>| self.thread.keyspace.hasher.shard(key.hash());
        let are_together =
            self.is_within() || keys.windows(2).all(|two| shard(&two[0]) == shard(&two[1]));
        assert!(are_together, "keys that are not locked together");
    }

    /// Locks the shard of this index, or finds it among those locked.
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

    /// All shards that a `MultiShardGuard` holds.
    pub(crate) fn all_held(&mut self) -> &mut [Held<'k>] {
        assert_eq!(
            self.together.len(),
            self.thread.keyspace.shard_count(),
            "all shards have to be locked"
        );
        &mut self.together
    }

    /// Locks the shard of this index if it is not locked, however long that takes.
    fn change_to(&mut self, index: usize) {
        if cfg!(debug_assertions) && self.change_as(index, |_| OnBusy::Fail).is_ok() {
            return;
        }
        self.assert_may_wait();
        self.change_as(index, |_| OnBusy::Wait).expect("it waits");
    }

    /// Called before a wait for a busy shard: a worker has to try instead.
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

    /// In line, as most requests lock a shard: a call costs 25 instructions.
    #[inline(always)]
    fn change_as(&mut self, index: usize, on_busy: impl Fn(&Self) -> OnBusy) -> Result<(), Busy> {
        if self.together.is_empty() {
            // The old lock is released before the new one is waited for.
            self.release();
            if self.announces() {
                self.announcement = Some(self.announce(index..index + 1, on_busy(self))?);
            }
            // Of shards that are announced no other holds one for long.
            let on_busy = || if self.announces() { OnBusy::Wait } else { on_busy(self) };
            self.single = Some(self.thread.keyspace.lock_shard(index, on_busy)?);
            self.thread.effects.look_for_interest(self.thread.keyspace);
        }
        Ok(())
    }

    /// What it does when it tries to lock a shard.
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

    /// Hands over what was done in the shards that are held; to be called before one of them is unlocked.
    #[inline]
    pub fn commit_effects(&mut self) {
        self.has_logged |= self.thread.effects.commit(self.thread.keyspace);
        tell_watchers(self);
    }

    /// Hands over what was done before the locks are dropped. Not in line, or each drop would save the registers that
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

    /// What is done until the locks are released next leads to this place in the stream of a primary. It is logged in
    /// the first record of that, so that must be one record; not if nothing changes.
    pub fn lead_to(&mut self, place: StreamPlace) {
        self.thread.effects.lead_to(Some(place), false);
    }

    /// The same for what may change nothing, or makes the data those of no stream.
    pub fn move_to(&mut self, place: Option<StreamPlace>) {
        self.thread.effects.lead_to(place, true);
    }

    /// The data are those of this place in the stream of this server itself, a primary. Nothing may change them any
    /// more until the next start, where [`ShardLocks::move_to`] takes it back before the first change.
    pub fn end_at(&mut self, place: StreamPlace) {
        self.thread.effects.end_at(place);
    }

    /// The same place, where another database is selected.
    pub fn select_in_lead(&mut self, db: DbIndex) {
        self.thread.effects.select_in_lead(db);
    }

    /// There is no such change any more.
    pub fn forget_lead(&mut self) {
        self.thread.effects.due_place = None;
    }

    /// Whether anything that was done with these locks has gone to the log since this was last
    /// asked. What was done in shards that are still locked has not, and the expiry of a key does
    /// not count.
    #[inline]
    pub fn take_logged(&mut self) -> bool {
        std::mem::take(&mut self.has_logged)
    }

    /// Like [`ShardLocks::take_logged`], without forgetting it.
    pub fn has_logged(&self) -> bool {
        self.has_logged
    }

    /// Sets the origin of the changes that follow, for their events.
    #[inline]
    pub fn set_origin(&mut self, origin: Origin) {
        self.thread.effects.set_origin(origin);
    }

    /// The origin of the changes.
    pub fn origin(&self) -> Origin {
        self.thread.effects.origin()
    }

    /// Notes a key as changed, which others have changed and not served.
    pub fn note_ready(&self, (db, key): &WaitKey) {
        self.thread.effects.notices().ready.note(*db, key);
    }

    /// True if keys were changed with these locks that clients may wait for.
    #[inline]
    #[must_use]
    pub fn has_ready(&self) -> bool {
        self.thread.effects.has_ready()
    }

    /// These keys, in the order of their changes.
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

    /// Locks shards, however long that takes.
    fn lock_patiently(&mut self, shards: &[usize]) -> Ends {
        self.lock_waiting(shards, OnBusy::Wait).expect("it waits")
    }

    /// Locks shards, and waits for them as `on_busy` says. While it waits for those that are busy it holds none, and
    /// makes the others busy for the moment until it has them all. A shard that is held, and wanted with no other,
    /// stays held: no other thread comes in between.
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
        // A lock that is held may stay if it is the lowest: the others are waited for in ascending
        // order all the same.
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

/// The shard of this index among those of a transaction.
fn held_among<'h, 'k>(together: &'h mut [Held<'k>], index: usize) -> &'h mut Held<'k> {
    let position = together.binary_search_by_key(&index, |held| held.index);
    &mut together[position.expect("a shard that the transaction has locked")]
}

/// Several shards locked at once. Dropping it unlocks them, except that a single one stays locked
/// until the next request or [`ShardLocks::release`]. What an undo log ([`ShardLocks::begin_undo`]) still has is taken
/// back.
pub struct MultiShardGuard<'l, 'k> {
    locks: &'l mut ShardLocks<'k>,
    ends: Ends,
}

/// Which thread unlocks the shards.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ends {
    /// This `MultiShardGuard`.
    Here,
    /// The one around it.
    Outside,
}

impl<'k> MultiShardGuard<'_, 'k> {
    /// The database `db` as far as it is in the shard of `hash`.
    ///
    /// # Panics
    ///
    /// If that shard is not locked.
    #[inline]
    pub fn db(&mut self, db: DbIndex, hash: KeyHash, now_ms: i64) -> Db<'_> {
        self.locks.db(db, hash, now_ms)
    }

    /// The shard locks, for running commands that lock for themselves what this has locked already.
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
            // A single shard stays locked, as after any request to one.
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
