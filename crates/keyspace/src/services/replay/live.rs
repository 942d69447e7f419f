//! Applies the records of another server's log to a keyspace that clients read meanwhile.
//!
//! Applied changes are logged here like any others, together with the offset in the other log that they reach. So a
//! restart continues at the end of the local log.
//!
//! **Invariant:** the local log never states an offset whose changes are only partly present, since edits of
//! collections must not be applied twice. A short object is one record together with its offset. While a longer
//! object is applied, or a batch of several records is incomplete, the data match no offset.
//!
//! Nothing expires here: the other server decides about expiry, and logs it as a removal.

use super::moved::Moved;
use crate::access::cold::fetch;
use crate::access::context::Touch;
use crate::access::shard_locks::ShardLocks;
use crate::change::log::op::{Effect, Op};
use crate::change::log::piece::Unfinished;
use crate::change::stream_position::StreamPosition;
use crate::codec::Reader;
use crate::data::collections::list::StagingLists;
use crate::data::key::KeyHash;
use crate::data::stamp::Stamp;
use crate::data::usage::Access;
use crate::registries::flushed::Freeing;
use crate::services::code::CodeEditor;
use crate::services::flush::{flush_dbs, swap_dbs};
use crate::services::replay::{NO_TIME_MS, ReplayError, apply, db_index};

/// Maximum size of objects that are applied under one lock: a millisecond or less.
const TOGETHER_BYTES_MAX: usize = 64 << 10;

/// See the module.
#[derive(Debug, Default)]
pub struct LiveReplay {
    unfinished: Unfinished,
    staging: StagingLists,
}

impl LiveReplay {
    /// Returns a replay that continues after the loaded data, in the middle of batches.
    #[must_use]
    pub fn behind(unfinished: Unfinished) -> Self {
        Self { unfinished, staging: StagingLists::default() }
    }

    /// Returns true if no batch is incomplete.
    #[must_use]
    pub fn is_between_batches(&self) -> bool {
        self.unfinished.is_empty()
    }

    /// Returns records that make other readers drop the incomplete batches ([`Unfinished::gaps`]).
    #[must_use]
    pub fn gaps(&self) -> Vec<Vec<u8>> {
        self.unfinished.gaps()
    }

    /// Applies the records of one object of a log; the data then match `position`. No shard is locked before and
    /// afterwards. The caller must take ready keys from the locks.
    ///
    /// # Errors
    ///
    /// If one is no record, or does not fit this keyspace. Some may have been applied then, and the data match no
    /// offset.
    pub fn apply(
        &mut self,
        locks: &mut ShardLocks<'_>,
        records: &[impl AsRef<[u8]>],
        position: StreamPosition,
        now_ms: i64,
    ) -> Result<(), ReplayError> {
        let mut complete = Vec::new();
        for record in records {
            complete.extend(self.unfinished.operations(record.as_ref())?);
        }
        let position = Some(position).filter(|_| self.unfinished.is_empty());
        let len: usize = complete.iter().map(|ops| ops.len()).sum();
        locks.set_touch(Touch::No);
        let outcome = match (&complete[..], position) {
            ([], None) => move_to(locks, None),
            ([ops], Some(_)) if len <= TOGETHER_BYTES_MAX => {
                self.together(locks, ops, position, now_ms)
            }
            (all, Some(_)) if len <= TOGETHER_BYTES_MAX => {
                self.together(locks, &all.concat(), position, now_ms)
            }
            (all, _) => move_to(locks, None)
                .and_then(|()| {
                    all.iter().try_for_each(|ops| self.together(locks, ops, None, now_ms))
                })
                .and_then(|()| move_to(locks, position)),
        };
        if outcome.is_err() {
            move_to(locks, None)?;
        }
        outcome
    }

    /// Applies operations under one lock, with the offset that they reach.
    fn together(
        &mut self,
        locks: &mut ShardLocks<'_>,
        ops: &[u8],
        position: Option<StreamPosition>,
        now_ms: i64,
    ) -> Result<(), ReplayError> {
        let (hashes, is_of_all) = shards_of(locks, ops)?;
        let mut held = match (is_of_all, &hashes[..]) {
            (false, []) => {
                return if position.is_some() { move_to(locks, position) } else { Ok(()) };
            }
            (false, hashes) => locks.lock_many(hashes),
            (true, _) => locks.lock_all(),
        };
        let outcome = self.operations(held.locks(), ops, now_ms);
        match &outcome {
            Ok(()) if position.is_some() => held.locks().move_to(position),
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
                                // The other log does not have changed values from disk as a whole, unlike this
                                // server's own log.
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
                // These belong to the other server, and do not apply here.
                Op::Position(_) | Op::Restatement | Op::Cut(_) => {}
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

fn move_to(
    locks: &mut ShardLocks<'_>,
    position: Option<StreamPosition>,
) -> Result<(), ReplayError> {
    if position.is_some() || locks.keyspace().stream_position().is_some() {
        locks.move_to(position);
        locks.release();
    }
    Ok(())
}

/// Returns the shards that operations need, or if they need all. Nothing of malformed input is applied.
fn shards_of(locks: &ShardLocks<'_>, ops: &[u8]) -> Result<(Vec<KeyHash>, bool), ReplayError> {
    let keyspace = locks.keyspace();
    let (mut hashes, mut is_of_all, mut ops) = (Vec::new(), false, Reader::new(ops));
    while let Some((op, _)) = ops.next()? {
        match op {
            Op::Key { db, key, .. } => {
                db_index(keyspace, db)?;
                hashes.push(keyspace.hash(key));
            }
            Op::Position(_) | Op::Restatement | Op::Cut(_) => {}
            Op::Flush { .. } | Op::Swap { .. } | Op::Code { .. } => is_of_all = true,
        }
    }
    Ok((hashes, is_of_all))
}
