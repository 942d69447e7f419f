//! Prefetches the data that a batch will need: cache lines, and values on disk.

use tierce_collections::same_bytes;
use tierce_keyspace::{Busy, ShardLocks, prefetch_elements};
use tierce_wire::resp::Args;

use super::{BatchRunner, ELEMENTS_MIN};
use crate::caller::Caller;
use crate::command::Command;
use crate::fetch::{self, PendingRead};
use crate::pipeline;

impl<'k> BatchRunner<'k, '_> {
    /// Scans the batch, and prefetches the data that it will need.
    #[inline]
    pub(super) fn look_ahead(
        &mut self,
        caller: &Caller,
        locks: &mut ShardLocks<'k>,
        input: &[u8],
        now_ms: i64,
    ) {
        if self.batch.len() < 2 {
            return;
        }
        self.plan.make(self.kernel, self.batch, input);
        let db = caller.db;
        if self.kernel.keyspace.gains_from_prefetch(db) {
            locks.prefetch(self.plan.hashes().map(|hash| (db, hash)));
        }
        self.prefetch_elements(caller, locks, input, now_ms);
    }

    /// Prefetches fields or members that the batch will look up, if it begins with calls of one command for one key.
    /// That shard stays locked for the first of them.
    pub(super) fn prefetch_elements(
        &self,
        caller: &Caller,
        locks: &mut ShardLocks<'k>,
        input: &[u8],
        now_ms: i64,
    ) {
        if self.batch.len() < ELEMENTS_MIN {
            return;
        }
        let first = self.batch.get(0, input);
        let at = match self.plan.get(0).command(self.kernel) {
            Some(command) if command.spec.element_at > 0 => command.spec.element_at,
            _ => return,
        };
        let is_alike = |args: &Args<'_>| {
            args.len() > at
                && same_bytes(&args[0], &first[0])
                && same_bytes(&args[at - 1], &first[at - 1])
        };
        if !is_alike(&first) {
            return;
        }
        let elements = self.batch.iter(input).take_while(is_alike).map(|args| args.at(at));
        let key = self.kernel.keyspace.key(&first[at - 1]);
        if locks.try_reach(key.hash()) {
            prefetch_elements(&mut locks.db(caller.db, key.hash(), now_ms), key, elements);
        }
    }

    /// Returns the values on disk that the request with this index, a call of `command`, needs. If there are any, it
    /// adds those of the requests behind it, so that the disk gets all reads at once. [`Busy`] if this is unknown,
    /// because another thread locks a shard of this request for long.
    pub(super) fn pending_reads(
        &self,
        caller: &Caller,
        locks: &mut ShardLocks<'k>,
        command: &Command,
        input: &[u8],
        index: usize,
        now_ms: i64,
    ) -> Result<Vec<PendingRead>, Busy> {
        let mut pending_reads = Vec::new();
        let args = self.batch.get(index, input);
        let (call, reads) = ((command, args), &mut pending_reads);
        pipeline::add_pending_reads(locks, self.kernel, caller, call, now_ms, reads)?;
        if pending_reads.is_empty() {
            return Ok(pending_reads);
        }
        for index in index + 1..self.batch.len() {
            if fetch::is_enough(&pending_reads) {
                break;
            }
            let args = self.batch.get(index, input);
            if let Ok(command) = pipeline::resolve(self.kernel, args)
                && caller.rights().check(command, args).is_ok()
            {
                // If another command selects another database before, the only harm is that values are fetched without
                // need.
                let db = caller.db;
                let reads = &mut pending_reads;
                if fetch::add_pending_reads_of_call(locks, db, command, args, now_ms, reads)
                    .is_err()
                {
                    break;
                }
            }
        }
        Ok(pending_reads)
    }
}
