//! State of a snapshot in one shard, under the lock of that shard.
//!
//! Invariants:
//! - Each table that was not empty at the beginning of the snapshot has a walk, until the walk is complete.
//! - A walk stays with its table: in another database after a SWAPDB, and on its own after a flush, which passes the
//!   table here instead of the lazy-free queue.
//! - Entries are copied under the number that their database had at the beginning of the snapshot.

use std::mem;
use std::sync::Arc;

use tierce_dash::{EntryHash, Snapshot as Walk, Table};

use super::backlog::Backlog;
use super::batch::SnapshotBatch;
use crate::change::Removal;
use crate::data::entry::Entry;
use crate::data::key::KeyHasher;
use crate::db_index::DbIndex;
use crate::registries::flushed::Flushed;

/// Maximum share of remembered entries: if a walk remembers more than one in this many, it saves whole buckets, as
/// intervals that merge. So it never remembers more than about seven bytes for each entry. Saving a bucket makes a
/// dozen copies for one change, which the saver of a busy server cannot fetch as fast.
const ENTRIES_PER_POSITION: usize = 3;

/// Minimum number of positions, so that a small table does not begin with that at once.
const POSITIONS_MIN: usize = 64;

/// Step of the memory figures, which all threads share.
const FOLLOW_BYTES: usize = 4096;

#[derive(Debug)]
pub(crate) struct ShardSnapshot {
    pub(crate) walks: Vec<TableWalk>,
    /// Copies made by writers.
    pub(crate) copies: SnapshotBatch,
    pub(crate) backlog: Arc<Backlog>,
    /// Memory of copies and walks that the backlog has counted.
    pub(crate) followed: usize,
    pub(crate) begun: Begun,
}

/// Time and role of the server at the beginning of the snapshot. They determine which entries were visible.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Begun {
    pub(crate) at_ms: i64,
    pub(crate) is_following: bool,
}

/// Walk of a snapshot through a table.
#[derive(Debug)]
pub(crate) struct TableWalk {
    /// Number of the database at the beginning of the snapshot.
    pub(crate) db: DbIndex,
    pub(crate) owner: TableOwner,
    pub(crate) walk: Walk,
}

/// Present location of a walk's table.
#[derive(Debug)]
pub(crate) enum TableOwner {
    /// In this database.
    Db(DbIndex),
    /// Flushed, with the bytes of its entries.
    Aside(Flushed, usize),
}

impl TableWalk {
    fn is_at(&self, db: DbIndex) -> bool {
        matches!(&self.owner, TableOwner::Db(at) if *at == db)
    }
}

/// Result of a turn of walking.
#[derive(Debug)]
pub(crate) enum Turn {
    /// There is more to do.
    Unfinished,
    /// The shard is complete. The state was taken out of it: writers may have left copies in it.
    Finished(Box<ShardSnapshot>),
}

impl ShardSnapshot {
    /// Returns a state without tables, with room for those of `databases`, so that nothing is allocated while all
    /// shards are locked.
    pub(crate) fn new(backlog: &Arc<Backlog>, begun: Begun, databases: usize) -> Self {
        Self {
            walks: Vec::with_capacity(databases),
            copies: SnapshotBatch::default(),
            backlog: Arc::clone(backlog),
            followed: 0,
            begun,
        }
    }

    /// Adds the table of a database as it is now.
    pub(crate) fn enroll(&mut self, db: DbIndex) {
        self.walks.push(TableWalk { db, owner: TableOwner::Db(db), walk: Walk::begin() });
    }

    /// Takes the copies that writers have left.
    pub(crate) fn take_copies(&mut self) -> SnapshotBatch {
        mem::take(&mut self.copies)
    }

    /// Prefetches the memory that `access::saving::save_before_change` will read for this hash.
    #[inline]
    pub(crate) fn prefetch(&self, db: DbIndex, hash: u64) {
        if let Some(TableWalk { walk, .. }) = self.walks.iter().find(|walk| walk.is_at(db)) {
            walk.prefetch(hash);
        }
    }

    /// Saves the entries of this hash that existed at the beginning of the snapshot.
    pub(crate) fn before_change(
        &mut self,
        at: DbIndex,
        table: &mut Table<Entry>,
        hash: u64,
        hasher: &KeyHasher,
    ) {
        let Self { walks, copies, backlog, begun, .. } = self;
        let Some(TableWalk { db, walk, .. }) = walks.iter_mut().find(|walk| walk.is_at(at)) else {
            return;
        };
        if !walk.concerns(hash) || backlog.is_given_up() {
            return;
        }
        let mut met = Met::default();
        let mut saver = Saver { batch: copies, met: &mut met, backlog, begun: *begun, db: *db };
        let save = |entry: &Entry| saver.save(entry, hasher);
        if walk.visited_count() < POSITIONS_MIN + table.len() / ENTRIES_PER_POSITION {
            walk.before_change_of_one(table, hash, hasher, save);
        } else {
            walk.before_change(table, hash, hasher, save);
        }
        met.begin(table, |entry| backlog.larges.begin(*db, at, entry));
        if copies.is_full() {
            // The queue counts them from now on.
            let full = mem::take(copies);
            self.backlog.follow(0, full.memory_bytes());
            self.backlog.push(full);
        }
        self.follow();
    }

    /// Updates the memory figures for copies and walks.
    pub(crate) fn follow(&mut self) {
        let walks: usize = self.walks.iter().map(|walk| walk.walk.memory_bytes()).sum();
        let now = self.copies.memory_bytes() + walks;
        if now.abs_diff(self.followed) >= FOLLOW_BYTES || now == 0 {
            self.backlog.follow(self.followed, now);
            self.followed = now;
        }
    }

    /// Updates the walks after an exchange of two databases.
    pub(crate) fn swapped(&mut self, a: DbIndex, b: DbIndex) {
        for walk in &mut self.walks {
            if let TableOwner::Db(at) = &mut walk.owner {
                *at = match *at {
                    at if at == a => b,
                    at if at == b => a,
                    at => at,
                };
            }
        }
    }

    /// Handles a flushed database: its table is kept if its walk is not complete.
    pub(crate) fn flushed(&mut self, db: DbIndex, table: Flushed, bytes: usize) -> Option<Flushed> {
        match self.detach(db) {
            Some(walk) => self.take_aside(walk, table, bytes),
            None => Some(table),
        }
    }

    /// Detaches the walk of a database that is being emptied under an undo log: the walk stays with its table.
    pub(crate) fn detach(&mut self, db: DbIndex) -> Option<TableWalk> {
        let index = self.walks.iter().position(|walk| walk.is_at(db))?;
        Some(self.walks.remove(index))
    }

    /// Attaches the walk again after a rollback.
    pub(crate) fn attach(&mut self, walk: TableWalk) {
        self.walks.push(walk);
    }

    /// Keeps a flushed table if its walk is not complete; otherwise returns it.
    pub(crate) fn take_aside(
        &mut self,
        mut walk: TableWalk,
        table: Flushed,
        bytes: usize,
    ) -> Option<Flushed> {
        if walk.walk.is_complete() || self.backlog.is_given_up() {
            return Some(table);
        }
        self.backlog.follow(0, table.memory_bytes() + bytes);
        walk.owner = TableOwner::Aside(table, bytes);
        self.walks.push(walk);
        None
    }
}

/// Saves entries of a table.
pub(crate) struct Saver<'a> {
    pub(crate) batch: &'a mut SnapshotBatch,
    pub(crate) met: &'a mut Met,
    pub(crate) backlog: &'a Backlog,
    pub(crate) begun: Begun,
    /// Number of the database at the beginning of the snapshot.
    pub(crate) db: DbIndex,
}

impl Saver<'_> {
    /// Copies an entry, unless it had expired at the beginning of the snapshot, or it is large.
    pub(crate) fn save(&mut self, entry: &Entry, hasher: &KeyHasher) {
        if Removal::due(entry, self.begun.at_ms, || self.begun.is_following).is_some() {
            return;
        }
        if entry.has_slices(self.backlog.large_bytes_min) {
            return self.met.0.push((hasher.hash(entry), entry.address()));
        }
        self.batch.push(self.db, entry);
    }
}

/// Large collections found while their table was only read: hashes and addresses.
#[derive(Debug, Default)]
pub(crate) struct Met(pub(crate) Vec<(u64, *const u8)>);

impl Met {
    /// Begins to save them, before their table changes.
    pub(crate) fn begin(self, table: &mut Table<Entry>, mut begin: impl FnMut(&mut Entry)) {
        for (hash, address) in self.0 {
            let found = table.find_mut(hash, |entry| entry.address() == address);
            begin(found.expect("the table has not changed"));
        }
    }
}
