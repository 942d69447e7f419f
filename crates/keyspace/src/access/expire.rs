//! Deadlines of the keys of a database: the heap kept in step with them, and the removal of expired
//! keys.

use crate::access::context::Context;
use crate::access::db::Db;
use crate::change::Removal;
use crate::data::db_counters::DbCounters;
use crate::data::key::KeyHash;
use crate::data::shard_db::ShardDb;

impl Db<'_> {
    /// Handles the earliest item of the deadline heap: removes the keys that it stands for if their
    /// deadlines have come.
    pub(crate) fn expire_next(&mut self) {
        self.remove_next(self.at.now_ms);
    }

    /// Handles the earliest item of the deadline heap, whether or not its time has come, and says
    /// whether that has removed a key.
    pub(crate) fn evict_next_deadline(&mut self) -> bool {
        self.remove_next(i64::MAX)
    }

    /// Removes the keys for which the earliest item of the heap stands, if that is due at `until_ms`;
    /// whether there were any.
    ///
    /// A key with a later deadline than its item gets a new item even if that deadline has come,
    /// too: other keys may be due before it.
    fn remove_next(&mut self, until_ms: i64) -> bool {
        let Context { thread, now_ms, stats, .. } = self.at;
        let keyspace = thread.keyspace;
        let db = self.db();
        let heap_bytes = db.deadlines.memory_bytes();
        let Some((item_ms, hash)) = db.deadlines.pop_due(until_ms) else { return false };
        let why = if item_ms <= now_ms { Removal::Expired } else { Removal::Evicted };
        let mut removed = false;
        stats.deadline_bytes.follow(heap_bytes, db.deadlines.memory_bytes());
        let later_ms = loop {
            let mut later_ms = None::<i64>;
            let expired = self.unlink_where(hash, |entry| {
                let Some(deadline_ms) = entry.deadline_ms() else { return false };
                if keyspace.hash(entry.key()) != hash {
                    return false;
                }
                if deadline_ms > item_ms {
                    later_ms = Some(later_ms.map_or(deadline_ms, |time| time.min(deadline_ms)));
                }
                deadline_ms <= item_ms
            });
            match expired {
                Some(entry) => {
                    removed = true;
                    self.forget(hash, entry, why);
                }
                None => break later_ms,
            }
        };
        if let Some(deadline_ms) = later_ms {
            self.arm(deadline_ms, hash);
        }
        keyspace.follow_size(stats);
        removed
    }

    /// Brings the figures and the heap up to date with an entry whose deadline has changed.
    pub(crate) fn account_deadline(
        &mut self,
        hash: KeyHash,
        before: Option<i64>,
        after: Option<i64>,
    ) {
        let counters = self.at.counters();
        if let Some(deadline_ms) = before {
            counters.expires.sub(1);
            counters.deadline_sum.sub(DbCounters::summand(deadline_ms));
        }
        if let Some(deadline_ms) = after {
            counters.expires.add(1);
            counters.deadline_sum.add(DbCounters::summand(deadline_ms));
            if before.is_none_or(|before_ms| deadline_ms < before_ms) {
                self.arm(deadline_ms, hash);
            }
        }
        let live = self.at.counters().expires.get() as usize;
        if self.db().deadlines.is_crowded(live) {
            self.rebuild_deadlines();
        }
    }

    fn arm(&mut self, deadline_ms: i64, hash: KeyHash) {
        let at = self.at;
        let deadlines = &mut self.db().deadlines;
        let heap_bytes = deadlines.memory_bytes();
        deadlines.arm(deadline_ms, hash);
        at.stats.deadline_bytes.follow(heap_bytes, deadlines.memory_bytes());
        at.publish_deadline(deadline_ms);
    }

    #[cold]
    fn rebuild_deadlines(&mut self) {
        let at = self.at;
        let ShardDb { table, deadlines, .. } = self.db();
        let heap_bytes = deadlines.memory_bytes();
        deadlines.rebuild(|hash| {
            let mut earliest_ms = None::<i64>;
            table.find(at.keyspace.hasher.table_hash(hash), |entry| {
                if let Some(deadline_ms) = entry.deadline_ms()
                    && at.keyspace.hash(entry.key()) == hash
                {
                    let earliest = earliest_ms.map_or(deadline_ms, |time| time.min(deadline_ms));
                    earliest_ms = Some(earliest);
                }
                // No entry is the one: every candidate is to be seen.
                false
            });
            earliest_ms
        });
        at.stats.deadline_bytes.follow(heap_bytes, deadlines.memory_bytes());
    }
}
