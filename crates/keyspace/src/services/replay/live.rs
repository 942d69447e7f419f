//! Applies the records of another server's log to a keyspace that clients read meanwhile.
//!
//! What is applied is logged here like any other change, with the place in that log to which it leads. So a restart
//! goes on where the local log ends.
//!
//! **Invariant:** the place in the local log is never one whose changes are there in part, since edits of collections
//! must not be made twice. A short object is one record together with its place. While a longer one is applied, or a
//! batch of several records is not complete, the data are those of no place.
//!
//! Time stands still: the other server decides what expires, and logs that as a removal.

use super::moved::Moved;
use crate::access::cold::fetch;
use crate::access::context::Touch;
use crate::access::shard_locks::ShardLocks;
use crate::change::log::op::{Effect, Op};
use crate::change::log::piece::Unfinished;
use crate::change::stream_place::StreamPlace;
use crate::codec::Reader;
use crate::data::collections::list::StagingLists;
use crate::data::key::KeyHash;
use crate::data::stamp::Stamp;
use crate::data::usage::Access;
use crate::registries::flushed::Freeing;
use crate::services::code::CodeEditor;
use crate::services::flush::{flush_dbs, swap_dbs};
use crate::services::replay::{NO_TIME_MS, ReplayError, apply, db_index};

/// Objects of at most so many bytes are applied under one lock: a millisecond or less.
const TOGETHER_BYTES_MAX: usize = 64 << 10;

/// See the module.
#[derive(Debug, Default)]
pub struct LiveReplay {
    unfinished: Unfinished,
    staging: StagingLists,
}

impl LiveReplay {
    /// One that goes on behind what was loaded, in the middle of batches.
    #[must_use]
    pub fn behind(unfinished: Unfinished) -> Self {
        Self { unfinished, staging: StagingLists::default() }
    }

    /// Whether no batch has begun that is not complete.
    #[must_use]
    pub fn is_between_batches(&self) -> bool {
        self.unfinished.is_empty()
    }

    /// Records that have other readers drop what has begun here ([`Unfinished::gaps`]).
    #[must_use]
    pub fn gaps(&self) -> Vec<Vec<u8>> {
        self.unfinished.gaps()
    }

    /// Applies the records of one object of a log, after which the data are those of `place`. The locks hold nothing
    /// before and afterwards; keys that clients may wait for are to be taken from them.
    ///
    /// # Errors
    ///
    /// If one is no record, or has no place in this keyspace. Some may have been applied then, and the data are those
    /// of no place.
    pub fn apply(
        &mut self,
        locks: &mut ShardLocks<'_>,
        records: &[impl AsRef<[u8]>],
        place: StreamPlace,
        now_ms: i64,
    ) -> Result<(), ReplayError> {
        let mut complete = Vec::new();
        for record in records {
            complete.extend(self.unfinished.operations(record.as_ref())?);
        }
        let place = Some(place).filter(|_| self.unfinished.is_empty());
        let len: usize = complete.iter().map(|ops| ops.len()).sum();
        locks.set_touch(Touch::No);
        let outcome = match (&complete[..], place) {
            ([], None) => move_to(locks, None),
            ([ops], Some(_)) if len <= TOGETHER_BYTES_MAX => {
                self.together(locks, ops, place, now_ms)
            }
            (all, Some(_)) if len <= TOGETHER_BYTES_MAX => {
                self.together(locks, &all.concat(), place, now_ms)
            }
            (all, _) => move_to(locks, None)
                .and_then(|()| {
                    all.iter().try_for_each(|ops| self.together(locks, ops, None, now_ms))
                })
                .and_then(|()| move_to(locks, place)),
        };
        if outcome.is_err() {
            move_to(locks, None)?;
        }
        outcome
    }

    /// Applies operations under one lock, with the place to which they lead.
    fn together(
        &mut self,
        locks: &mut ShardLocks<'_>,
        ops: &[u8],
        place: Option<StreamPlace>,
        now_ms: i64,
    ) -> Result<(), ReplayError> {
        let (hashes, is_of_all) = shards_of(locks, ops)?;
        let mut held = match (is_of_all, &hashes[..]) {
            (false, []) => {
                return if place.is_some() { move_to(locks, place) } else { Ok(()) };
            }
            (false, hashes) => locks.lock_many(hashes),
            (true, _) => locks.lock_all(),
        };
        let outcome = self.operations(held.locks(), ops, now_ms);
        match &outcome {
            Ok(()) if place.is_some() => held.locks().move_to(place),
            Ok(()) => {}
            Err(_) => held.locks().move_to(None),
        }
        outcome
    }

    fn operations(
        &mut self,
        locks: &mut ShardLocks<'_>,
        ops: &[u8],
        now_ms: i64,
    ) -> Result<(), ReplayError> {
        let keyspace = locks.keyspace();
        let access = Access { stamp: Stamp::at(now_ms), uses: 0 };
        let (mut ops, mut moved) = (Reader::new(ops), Moved::default());
        while let Some((op, _)) = ops.next()? {
            match op {
                Op::Key { db, key, effect } => {
                    let (db, key) = (db_index(keyspace, db)?, keyspace.key(key));
                    let mut at = locks.db(db, key.hash(), NO_TIME_MS);
                    match effect {
                        Effect::Taken(_) | Effect::Spilled { .. } => {
                            moved.apply(&mut at, key, effect)?;
                        }
                        effect => {
                            if !effect.is_anew() {
                                // What changes it here is not in the log as a whole, unlike in that of this server.
                                fetch(&mut at, key).map_err(|_| ReplayError::NoColdStore)?;
                            }
                            let op = (db, key, effect);
                            apply(keyspace, locks, &mut self.staging, op, access)?;
                        }
                    }
                }
                Op::Flush { db } => {
                    let db = db_index(keyspace, db)?;
                    self.staging.forget_all_of(db);
                    flush_dbs(locks, [db], Freeing::Later);
                }
                Op::Swap { a, b } => {
                    let (a, b) = (db_index(keyspace, a)?, db_index(keyspace, b)?);
                    [a, b].into_iter().for_each(|db| self.staging.forget_all_of(db));
                    swap_dbs(locks, a, b, now_ms);
                }
                // Those of the other server, which have nothing to do with this one.
                Op::Place(_) | Op::Restatement | Op::Cut(_) => {}
                Op::Code { kind, name, source: Some(source) } => {
                    CodeEditor::lock(locks).put(kind, name, source);
                }
                Op::Code { kind, name, source: None } => {
                    _ = CodeEditor::lock(locks).remove(kind, name);
                }
            }
        }
        Ok(())
    }
}

fn move_to(locks: &mut ShardLocks<'_>, place: Option<StreamPlace>) -> Result<(), ReplayError> {
    if place.is_some() || locks.keyspace().stream_place().is_some() {
        locks.move_to(place);
        locks.release();
    }
    Ok(())
}

/// Which shards operations need, or whether they need all. Nothing is applied of what is malformed.
fn shards_of(locks: &ShardLocks<'_>, ops: &[u8]) -> Result<(Vec<KeyHash>, bool), ReplayError> {
    let keyspace = locks.keyspace();
    let (mut hashes, mut is_of_all, mut ops) = (Vec::new(), false, Reader::new(ops));
    while let Some((op, _)) = ops.next()? {
        match op {
            Op::Key { db, key, .. } => {
                db_index(keyspace, db)?;
                hashes.push(keyspace.hash(key));
            }
            Op::Place(_) | Op::Restatement | Op::Cut(_) => {}
            Op::Flush { .. } | Op::Swap { .. } | Op::Code { .. } => is_of_all = true,
        }
    }
    Ok((hashes, is_of_all))
}
