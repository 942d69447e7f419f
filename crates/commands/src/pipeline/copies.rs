//! Long computations on values, without locking their shards.
//!
//! On a thread for long commands, [`Context::compute`] and [`Context::read`] copy the values in short turns
//! ([`ValueCopy::make`]), and compute from the copies while the shards are free. A command that writes then locks its
//! keys and verifies that no source has changed. If one has, it starts over; after [`TRIES`] it keeps its keys locked
//! throughout. If it is no longer admitted, for example after CLIENT PAUSE, it is checked and run again.
//!
//! A command takes effect at one moment. For a command that writes, this is when its keys are locked and the copies
//! are verified. For a command that only reads, it is when all copies were current together.
//!
//! On other threads the keys are locked already, and stay so while the command computes: on a worker, where
//! [`WEIGHT_MAX`](super::WEIGHT_MAX) limits the time, and inside a guard.

use std::array;

use tierce_keyspace::{
    Busy, CollectionType, CopyRoom, Entry, IntText, Key, MultiShardGuard, ShardLocks, Value,
    ValueCopy,
};

use super::weigh::Sizes;
use super::{Context, Done, Guard, Mode};
use crate::command::Access;
use crate::error::{CommandError, Interrupt};
use crate::eviction::Room;
use crate::reply::Reply;

/// Attempts of a command whose sources change while it computes.
const TRIES: usize = 3;

/// A command with less work keeps its keys locked: this takes about ten milliseconds.
const WORK_MIN: usize = if cfg!(test) { 1 } else { 100_000 };

/// A command keeps its keys locked if copying takes more than this many times the work.
const COPYING_MAX: usize = 8;

/// Use of the result of a command.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Then {
    /// It is the reply.
    Reply,
    /// It is stored, with the keys locked.
    Store,
}

impl<'a, 'k> Context<'a, 'k> {
    /// Calls `make` to compute from the values of some keys, and `finish` to store the result with all keys of the
    /// command locked. `make` may run several times.
    ///
    /// # Errors
    /// Errors of the two, an unreadable value, or a busy shard.
    pub fn compute<M, R>(
        &mut self,
        sources: &[Key<'_>],
        make: impl Fn(&[Option<Value<'_>>]) -> Result<M, CommandError>,
        finish: impl FnOnce(&mut Context<'_, 'k>, M) -> Result<R, CommandError>,
    ) -> Result<R, CommandError> {
        let mut finish = Some(finish);
        if let Some(_room) = self.room_for_copies(sources, WORK_MIN)? {
            for _ in 0..TRIES {
                let Some(copies) = self.copies(sources)? else { continue };
                let made = make(&values_of(&copies))?;
                let done = self.holding(|ctx| match ctx.are_current(&copies, sources) {
                    true => finish.take().map(|finish| finish(ctx, made)).transpose(),
                    false => Ok(None),
                })?;
                if let Some(done) = done {
                    return Ok(done);
                }
            }
        }
        let finish = finish.expect("it was not called");
        self.holding(|ctx| {
            let made = ctx.with_values(sources, |values, _| make(values))?;
            finish(ctx, made)
        })
    }

    /// Calls `load` to take what it needs from the value of a key, `make` to compute from that and from other keys,
    /// and `finish` to store or reply. `make` reads the other keys through the guard, in turns if it takes turns
    /// ([`Guard::takes_turns`]); otherwise all shards are locked.
    ///
    /// In turns, each of these keys is read at its own moment while the command runs. `finish` stores a result that
    /// is made from the value of the source at that moment.
    ///
    /// # Errors
    /// As [`Context::compute`].
    pub fn compute_with_lookups<L, M, R>(
        &mut self,
        source: Key<'_>,
        then: Then,
        load: impl Fn(Option<&Value<'_>>) -> Result<L, CommandError>,
        make: impl Fn(L, &mut Guard<'_, 'k>) -> Result<M, CommandError>,
        finish: impl FnOnce(&mut Context<'_, 'k>, M) -> Result<R, CommandError>,
    ) -> Result<R, CommandError> {
        let (index, now_ms, touch) = (self.caller.db, self.now_ms, self.caller.touch());
        let keyspace = &self.kernel.engine.keyspace;
        let mut finish = Some(finish);
        if let Some(_room) = self.room_for_copies(array::from_ref(&source), 0)? {
            for _ in 0..TRIES {
                let Some(copy) = ValueCopy::make(keyspace, index, source, now_ms, touch)? else {
                    continue;
                };
                let made = make(load(copy.value().as_ref())?, &mut self.guard)?;
                self.guard.end_turn();
                if then == Then::Reply {
                    let finish = finish.take().expect("it was not called");
                    return finish(self, made);
                }
                let done = self.holding(|ctx| {
                    if !copy.is_current(&mut ctx.guard.db(index, source.hash(), now_ms), source) {
                        return Ok(None);
                    }
                    finish.take().map(|finish| finish(ctx, made)).transpose()
                })?;
                if let Some(done) = done {
                    return Ok(done);
                }
            }
        }
        let finish = finish.expect("it was not called");
        self.holding_what(&mut ShardLocks::try_lock_all, |ctx| {
            let mut db = ctx.guard.db(index, source.hash(), now_ms);
            let loaded = load(db.get(source)?.as_ref())?;
            let made = make(loaded, &mut ctx.guard)?;
            finish(ctx, made)
        })
    }

    /// Calls `finish` to store a copy of the value and deadline of a key, with all keys of the command locked.
    ///
    /// # Errors
    /// As [`Context::compute`].
    pub fn duplicate<R>(
        &mut self,
        source: Key<'_>,
        finish: impl FnOnce(&mut Context<'_, 'k>, Option<Entry>) -> Result<R, CommandError>,
    ) -> Result<R, CommandError> {
        let (kernel, index, now_ms) = (self.kernel, self.caller.db, self.now_ms);
        let touch = self.caller.touch();
        let mut finish = Some(finish);
        if let Some(_room) = self.room_for_copies(array::from_ref(&source), WORK_MIN)? {
            for _ in 0..TRIES {
                let Some(copy) = ValueCopy::make(&kernel.keyspace, index, source, now_ms, touch)?
                else {
                    continue;
                };
                let done = self.holding(|ctx| {
                    let mut db = ctx.guard.db(index, source.hash(), now_ms);
                    if !copy.is_current(&mut db, source) {
                        return Ok(None);
                    }
                    finish.take().map(|finish| finish(ctx, copy.into_entry())).transpose()
                })?;
                if let Some(done) = done {
                    return Ok(done);
                }
            }
        }
        let finish = finish.expect("it was not called");
        self.holding(|ctx| {
            let entry = ctx.guard.db(index, source.hash(), now_ms).duplicate(source)?;
            finish(ctx, entry)
        })
    }

    /// Calls `reply` to answer from the values of some keys.
    ///
    /// # Errors
    /// Errors of `reply`, an unreadable value, or a busy shard.
    pub fn read<R>(
        &mut self,
        sources: &[Key<'_>],
        reply: impl FnOnce(&[Option<Value<'_>>], &mut Reply<'_>) -> Result<R, CommandError>,
    ) -> Result<R, CommandError> {
        if let Some(_room) = self.room_for_copies(sources, WORK_MIN)? {
            for _ in 0..TRIES {
                let Some(copies) = self.copies(sources)? else { continue };
                // A single copy is always consistent.
                if copies.len() == 1 || self.holding(|ctx| Ok(ctx.are_current(&copies, sources)))? {
                    return reply(&values_of(&copies), &mut self.reply);
                }
            }
        }
        self.holding(|ctx| ctx.with_values(sources, reply))
    }

    /// Calls `reply` to answer from the collection of a key, if there is one.
    ///
    /// # Errors
    /// As [`Context::read`], and for a value of another type.
    pub fn read_collection<T: CollectionType>(
        &mut self,
        key: &[u8],
        reply: impl FnOnce(Option<&T>, &mut Reply<'_>),
    ) -> Done {
        let key = self.key(0, key);
        self.read(array::from_ref(&key), |values, to| {
            let collection = match values {
                [Some(Value::Collection(collection))] => {
                    Some(T::of(collection).ok_or(CommandError::WRONG_TYPE)?)
                }
                [Some(_)] => return Err(CommandError::WRONG_TYPE),
                _ => None,
            };
            reply(collection, to);
            Ok(())
        })
    }

    /// Calls `reply` to answer from the string of a key, if there is one.
    ///
    /// # Errors
    /// As [`Context::read`], and for a value of another type.
    pub fn read_string(
        &mut self,
        key: &[u8],
        reply: impl FnOnce(Option<&[u8]>, &mut Reply<'_>),
    ) -> Done {
        let key = self.key(0, key);
        self.read(array::from_ref(&key), |values, to| {
            let mut text = IntText::new();
            let bytes = match values {
                [Some(Value::Str(string))] => Some(string.bytes(&mut text)),
                [Some(_)] => return Err(CommandError::WRONG_TYPE),
                _ => None,
            };
            reply(bytes, to);
            Ok(())
        })
    }

    /// Calls `body` with the values of some keys, which are locked.
    #[inline]
    fn with_values<R>(
        &mut self,
        sources: &[Key<'_>],
        body: impl FnOnce(&[Option<Value<'_>>], &mut Reply<'_>) -> Result<R, CommandError>,
    ) -> Result<R, CommandError> {
        let (index, now_ms) = (self.caller.db, self.now_ms);
        match sources {
            [key] => {
                let mut db = self.guard.db(index, key.hash(), now_ms);
                body(&[db.get(*key)?], &mut self.reply)
            }
            _ => {
                let group = self.command.spec.group;
                let values = self.guard.values(index, sources, now_ms, |of| group.combines(of));
                body(&values?, &mut self.reply)
            }
        }
    }

    /// Returns true if the keys of the command are locked only for short turns.
    pub(super) fn locks_in_turns(&self) -> bool {
        matches!(self.mode, Mode::Long { .. }) && !self.is_within()
    }

    /// Reserves memory for copies of the sources; `None` if the work is too small, or memory is short. A command that
    /// would otherwise lock all shards copies for any amount of work.
    fn room_for_copies(
        &mut self,
        sources: &[Key<'_>],
        work_min: usize,
    ) -> Result<Option<CopyRoom<'k>>, CommandError> {
        if !self.locks_in_turns() {
            return Ok(None);
        }
        let (sizes, bytes) = self.holding(|ctx| Ok(ctx.sizes_of(sources)))?;
        let work = sizes.work(self.command.spec.weight);
        let copying_max = if work_min > 0 { work.saturating_mul(COPYING_MAX) } else { usize::MAX };
        if work < work_min || sizes.elements > copying_max {
            return Ok(None);
        }
        Ok(CopyRoom::take(&self.kernel.engine.keyspace, bytes as u64))
    }

    /// Copies the values; `None` if one changed meanwhile.
    fn copies(&mut self, sources: &[Key<'_>]) -> Result<Option<Vec<ValueCopy>>, CommandError> {
        let (keyspace, db, now_ms) = (&self.kernel.keyspace, self.caller.db, self.now_ms);
        let touch = self.caller.touch();
        let copies = sources.iter().map(|key| ValueCopy::make(keyspace, db, *key, now_ms, touch));
        Ok(copies.collect::<Result<_, _>>()?)
    }

    fn are_current(&mut self, copies: &[ValueCopy], sources: &[Key<'_>]) -> bool {
        let (index, now_ms) = (self.caller.db, self.now_ms);
        copies
            .iter()
            .zip(sources)
            .all(|(copy, key)| copy.is_current(&mut self.guard.db(index, key.hash(), now_ms), *key))
    }

    /// Returns the sizes of the values of some keys, which are locked, and their bytes of memory.
    fn sizes_of(&mut self, sources: &[Key<'_>]) -> (Sizes, usize) {
        let (index, now_ms) = (self.caller.db, self.now_ms);
        let (mut sizes, mut bytes) = (Sizes::default(), 0);
        for key in sources {
            let mut db = self.guard.db(index, key.hash(), now_ms);
            sizes.add(&mut db, *key);
            bytes += db.peek(*key).map_or(0, Entry::allocated_bytes);
        }
        (sizes, bytes)
    }

    /// Calls `body` with the keys of the command locked. They are unlocked afterwards unless they were locked before.
    /// A command that writes is checked again first.
    ///
    /// # Errors
    /// Errors of `body`, a busy shard, or a failed check.
    pub fn holding<R>(
        &mut self,
        body: impl FnOnce(&mut Context<'_, 'k>) -> Result<R, CommandError>,
    ) -> Result<R, CommandError> {
        if !self.locks_in_turns() {
            return body(self);
        }
        let hashes = self.declared_keys();
        self.holding_what(&mut |locks| locks.try_lock_many(&hashes), body)
    }

    /// Calls `body` with the shards locked by `lock`.
    fn holding_what<R>(
        &mut self,
        lock: Lock<'_, 'k>,
        body: impl FnOnce(&mut Context<'_, 'k>) -> Result<R, CommandError>,
    ) -> Result<R, CommandError> {
        if !self.locks_in_turns() {
            return body(self);
        }
        let (mut body, mut result) = (Some(body), None);
        self.holding_in_turn(lock, &mut |ctx| {
            let body = body.take().expect("it runs once");
            result = Some(body(ctx)?);
            Ok(())
        })?;
        Ok(result.expect("it has run"))
    }

    /// Part that does not depend on the type of `body`, so that it is compiled only once.
    fn holding_in_turn(
        &mut self,
        lock: Lock<'_, 'k>,
        body: &mut dyn FnMut(&mut Context<'_, 'k>) -> Done,
    ) -> Done {
        let access = Access::of(self.command.spec);
        if access.grows && self.kernel.make_room(self.guard.locks, 0, self.now_ms) == Room::None {
            return Err(Interrupt::Admission.into());
        }
        let checked = |ctx: &mut Context<'_, 'k>| {
            ctx.check_again()()?;
            body(ctx)
        };
        let result = self.within(self.hashed, lock, checked)?;
        // A single shard would stay locked.
        self.guard.locks.release();
        result
    }
}

/// Locks shards.
type Lock<'a, 'k> =
    &'a mut dyn for<'l> FnMut(&'l mut ShardLocks<'k>) -> Result<MultiShardGuard<'l, 'k>, Busy>;

fn values_of(copies: &[ValueCopy]) -> Vec<Option<Value<'_>>> {
    copies.iter().map(ValueCopy::value).collect()
}
