//! Records undo steps for changes.

use std::cell::RefMut;
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::Arc;

use tierce_collections::CollectionKind;
use tierce_storage::ColdLocation;

use super::UndoLog;
use super::step::{Counted, Edits, KeyAt, Moved, Shell, Step, Written};
use crate::data::code::CodeKind;
use crate::data::collections::CollectionType;
use crate::data::entry::{Entry, Kind, OutOfLine};
use crate::data::key::{Key, KeyHash};
use crate::data::usage::Access;
use crate::db_index::DbIndex;
use crate::planted;
use crate::registries::stats::ShardStats;
use crate::registries::waiters::Waiter;

/// Part of a key's state that the steps since the last savepoint restore.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Cover {
    /// Its usage data.
    Access,
    /// Everything but its value, which is large.
    Shell,
    /// Everything.
    Full,
}

#[derive(Debug)]
struct Covered {
    epoch: u64,
    at: KeyAt,
    cover: Cover,
    /// Memory of the value that it covers.
    old: OldBytes,
}

/// Cached entry of [`Recorded::covered`] for a key of the present epoch.
#[derive(Debug, Clone, Copy)]
struct Latest {
    at: KeyAt,
    cover: Cover,
}

/// Part of a kept value that takes no additional memory, because it existed before the guard.
#[derive(Debug, Clone, Copy)]
enum OldBytes {
    /// All of it.
    All,
    /// This many bytes.
    Some(usize),
}

/// An entry that was taken out, to be put under another key.
#[derive(Debug)]
struct Taken {
    address: *const u8,
    from: KeyAt,
    shell: Shell,
}

/// Steps, and the state needed to record them.
#[derive(Debug, Default)]
pub(super) struct Recorded {
    pub(super) steps: Vec<Step>,
    /// Keys, old bytes of strings, inverse edits.
    pub(super) bytes: Vec<u8>,
    /// Keys that have steps. A key of an earlier epoch needs steps again.
    covered: HashMap<(DbIndex, KeyHash), Covered, BuildHasherDefault<MixedHasher>>,
    /// Key of the present epoch that was covered or searched last, since the next change is often to the same key.
    latest: Option<Latest>,
    /// Shards whose figures are recorded, with the epoch.
    counted: HashMap<u64, u64, BuildHasherDefault<MixedHasher>>,
    /// Shard that was searched last, if its figures are recorded in the present epoch.
    latest_counted: Option<usize>,
    /// Grows with each savepoint, each rollback, and each change of a whole database.
    epoch: u64,
    /// Bytes of copies, and of kept values that were created under the guard.
    pub(super) kept_bytes: usize,
    /// True if the last step may take further edits.
    is_extendable: bool,
    taken: Option<Taken>,
    /// A rollback is in progress: nothing is recorded.
    pub(super) is_rolling_back: bool,
}

/// Mixes an input that is a hash already.
#[derive(Debug, Default)]
struct MixedHasher(u64);

impl Hasher for MixedHasher {
    fn finish(&self) -> u64 {
        self.0.wrapping_mul(0x9e37_79b9_7f4a_7c15)
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.write_u64((*byte).into()));
    }

    fn write_u16(&mut self, value: u16) {
        self.write_u64(value.into());
    }

    fn write_u64(&mut self, value: u64) {
        self.0 = self.0.rotate_left(24) ^ value;
    }
}

impl Recorded {
    /// Begins an epoch: steps so far belong to an earlier savepoint, or to other databases.
    pub(super) fn begin_epoch(&mut self) {
        self.epoch += 1;
        self.is_extendable = false;
        self.latest = None;
        self.latest_counted = None;
        debug_assert!(self.taken.is_none(), "what was taken out has to be put under another key");
        self.taken = None;
    }

    pub(super) fn forget_taken(&mut self) {
        self.taken = None;
    }

    pub(super) fn lens(&self) -> (usize, usize, usize) {
        (self.steps.len(), self.bytes.len(), self.kept_bytes)
    }

    pub(super) fn memory_bytes(&self) -> usize {
        let covered = self.covered.len() * size_of::<((DbIndex, KeyHash), Covered)>();
        let steps: usize = self.steps.len() * (size_of::<Step>() + size_of::<Shell>());
        covered + steps + self.bytes.len() + self.kept_bytes
    }

    pub(super) fn push(&mut self, step: Step) {
        self.is_extendable = false;
        if !planted::is(step.fault()) {
            self.steps.push(step);
        }
    }

    #[inline]
    fn cover_of(&mut self, db: DbIndex, key: Key<'_>) -> Option<(KeyAt, Cover)> {
        if let Some(Latest { at, cover }) = self.latest
            && self.is_at(&at, db, key)
        {
            return Some((at, cover));
        }
        self.find_cover(db, key)
    }

    fn is_at(&self, at: &KeyAt, db: DbIndex, key: Key<'_>) -> bool {
        at.db == db && at.hash == key.hash() && at.bytes(&self.bytes) == key.bytes()
    }

    fn find_cover(&mut self, db: DbIndex, key: Key<'_>) -> Option<(KeyAt, Cover)> {
        let &Covered { epoch, at, cover, .. } = self.covered.get(&(db, key.hash()))?;
        // Another key may have the same hash: then each change is covered again.
        if epoch != self.epoch || !self.is_at(&at, db, key) {
            return None;
        }
        self.latest = Some(Latest { at, cover });
        Some((at, cover))
    }

    fn is_full(&mut self, db: DbIndex, key: Key<'_>) -> bool {
        self.is_rolling_back || matches!(self.cover_of(db, key), Some((_, Cover::Full)))
    }

    /// Returns a key for a step. Its bytes are stored once in an epoch.
    fn at(&mut self, db: DbIndex, key: Key<'_>) -> KeyAt {
        if let Some((at, _)) = self.cover_of(db, key) {
            return at;
        }
        let start = self.bytes.len();
        self.bytes.extend_from_slice(key.bytes());
        KeyAt { db, hash: key.hash(), start, len: key.bytes().len() as u32 }
    }

    /// Sets the cover of a key. `bytes` is the size of a value that may change from now on.
    fn set_cover(&mut self, at: KeyAt, cover: Cover, bytes: Option<usize>) {
        self.latest = None;
        let (epoch, all_bytes) = (self.epoch, &self.bytes);
        let old = bytes.map_or(OldBytes::All, OldBytes::Some);
        let covered = self.covered.entry((at.db, at.hash));
        let covered = covered.or_insert(Covered { epoch, at, cover, old });
        if covered.epoch != epoch {
            // The key was changed under the guard before.
            *covered = Covered { epoch, at, cover, old: OldBytes::Some(0) };
        } else if covered.at.bytes(all_bytes) == at.bytes(all_bytes) {
            let old = if matches!(covered.old, OldBytes::All) { old } else { covered.old };
            *covered = Covered { epoch, at, cover, old };
        }
    }

    /// Counts a kept value, as far as it was created under the guard.
    fn count_kept(&mut self, db: DbIndex, key: Key<'_>, bytes: usize) {
        let old = match self.covered.get(&(db, key.hash())) {
            Some(covered) if covered.epoch != self.epoch => 0,
            Some(Covered { old: OldBytes::Some(old), .. }) => *old,
            _ => bytes,
        };
        self.kept_bytes += bytes.saturating_sub(old);
    }
}

impl UndoLog {
    /// Begins an epoch: keys need steps again.
    pub(crate) fn begin_epoch(&self) {
        self.recorded.borrow_mut().begin_epoch();
    }

    pub(super) fn push(&self, step: Step) {
        self.recorded.borrow_mut().push(step);
    }

    /// Records the figures of a shard. Call it before any change in the shard.
    pub(crate) fn count(&self, shard: usize, stats: &ShardStats) {
        let mut recorded = self.recorded.borrow_mut();
        if recorded.latest_counted == Some(shard) || recorded.is_rolling_back {
            return;
        }
        recorded.latest_counted = Some(shard);
        let epoch = recorded.epoch;
        if recorded.counted.insert(shard as u64, epoch) == Some(epoch) {
            return;
        }
        recorded.push(Step::Counted(Box::new(Counted {
            shard,
            hits: stats.hits.get(),
            misses: stats.misses.get(),
            expired: stats.expired.get(),
            evicted: stats.evicted.get(),
            changes: stats.changes.get(),
            has_versions: stats.versions.get().is_some(),
        })));
    }

    /// Records an added key that was absent.
    pub(crate) fn added(&self, db: DbIndex, key: Key<'_>) {
        let mut recorded = self.recorded.borrow_mut();
        if recorded.is_full(db, key) {
            return;
        }
        let at = recorded.at(db, key);
        recorded.push(Step::Absent(at));
        recorded.set_cover(at, Cover::Full, None);
    }

    /// Keeps a removed entry, or returns it if no rollback needs it.
    pub(crate) fn keep(&self, db: DbIndex, hash: KeyHash, entry: Entry) -> Option<Entry> {
        let mut recorded = self.recorded.borrow_mut();
        let key = Key::new(entry.key(), hash);
        if recorded.is_full(db, key) {
            return Some(entry);
        }
        recorded.count_kept(db, key, entry.allocated_bytes());
        let at = recorded.at(db, key);
        recorded.push(Step::Entry(at, entry));
        recorded.set_cover(at, Cover::Full, None);
        None
    }

    /// Keeps a replaced value, or returns it if no rollback needs it.
    pub(crate) fn keep_value(
        &self,
        db: DbIndex,
        key: Key<'_>,
        value: OutOfLine,
    ) -> Option<OutOfLine> {
        let mut recorded = self.recorded.borrow_mut();
        if recorded.is_full(db, key) {
            return Some(value);
        }
        recorded.count_kept(db, key, value.allocated_bytes());
        let at = recorded.at(db, key);
        recorded.push(Step::Value(at, Box::new(value)));
        recorded.set_cover(at, Cover::Full, None);
        None
    }

    /// Records the previous usage data of an entry.
    pub(crate) fn used(&self, db: DbIndex, key: Key<'_>, before: Access) {
        let mut recorded = self.recorded.borrow_mut();
        if recorded.is_rolling_back || recorded.cover_of(db, key).is_some() {
            return;
        }
        let at = recorded.at(db, key);
        recorded.push(Step::Access(at, before));
        recorded.set_cover(at, Cover::Access, None);
    }

    /// Records the previous source of a library or script.
    pub(crate) fn code_changes(&self, kind: CodeKind, name: &[u8], before: Option<Arc<[u8]>>) {
        let mut recorded = self.recorded.borrow_mut();
        recorded.kept_bytes += name.len() + before.as_ref().map_or(0, |before| before.len());
        recorded.push(Step::Code(kind, name.into(), before));
    }

    /// Keeps a released location counted as in use until the commit.
    pub(crate) fn release(&self, location: ColdLocation) {
        let mut recorded = self.recorded.borrow_mut();
        if !recorded.is_rolling_back {
            recorded.push(Step::Location(location));
        }
    }

    /// Records a waiter that was registered.
    pub(crate) fn waits(&self, waiter: Arc<Waiter>) {
        self.recorded.borrow_mut().push(Step::Waits(waiter));
    }

    /// Records the version of a group of keys before it gets a new one.
    pub(crate) fn version_changes(&self, shard: usize, stripe: usize, version: u64) {
        let mut recorded = self.recorded.borrow_mut();
        if !recorded.is_rolling_back {
            recorded.push(Step::Stripe { shard, stripe, version });
        }
    }

    /// Returns true if a change of a key needs no [`UndoLog::cover`].
    #[inline]
    pub(super) fn is_covered(&self, db: DbIndex, key: Key<'_>) -> bool {
        let mut recorded = self.recorded.borrow_mut();
        recorded.is_rolling_back
            || matches!(recorded.cover_of(db, key), Some((_, Cover::Shell | Cover::Full)))
    }

    /// Records an entry before it changes.
    pub(super) fn cover(&self, db: DbIndex, key: Key<'_>, entry: &Entry) {
        let mut recorded = self.recorded.borrow_mut();
        let at = recorded.at(db, key);
        let (step, cover) = match copy_of_small(entry) {
            Some(copy) => {
                recorded.kept_bytes += copy.allocated_bytes();
                (Step::Entry(at, copy), Cover::Full)
            }
            None => (Step::Shell(at, Box::new(Shell::of(entry))), Cover::Shell),
        };
        recorded.push(step);
        recorded.set_cover(at, cover, Some(entry.allocated_bytes()));
    }

    /// Records bytes of a covered large string before they change.
    pub(super) fn write(
        &self,
        db: DbIndex,
        key: Key<'_>,
        entry: &mut Entry,
        offset: usize,
        len: usize,
    ) {
        let mut recorded = self.recorded.borrow_mut();
        if recorded.is_full(db, key) || entry.kind() != Kind::Blob {
            return;
        }
        let at = recorded.at(db, key);
        let (start, recorded) = (recorded.bytes.len(), &mut *recorded);
        entry.change_blob(|blob| {
            let old = blob.get(offset.min(blob.len())..).unwrap_or_default();
            let old = &old[..len.min(old.len())];
            recorded.bytes.extend_from_slice(old);
            let (old_len, old_capacity) = (blob.len(), blob.capacity());
            Written { old_len, old_capacity, offset, len: old.len() }.push(&mut recorded.bytes);
        });
        let end = recorded.bytes.len();
        if recorded.is_extendable
            && let Some(Step::Written(last, range)) = recorded.steps.last_mut()
            && last.start == at.start
            && range.end == start
        {
            range.end = end;
            return;
        }
        recorded.push(Step::Written(at, start..end));
        recorded.is_extendable = true;
    }

    /// Begins to record the inverse of edits of the collection of a key, which is covered. Returns `None` if a
    /// rollback needs no edits.
    pub(crate) fn record_edits<T: CollectionType>(
        &self,
        db: DbIndex,
        key: Key<'_>,
        value: &T,
    ) -> Option<EditRecording<'_>> {
        let mut recorded = self.recorded.borrow_mut();
        if recorded.is_rolling_back {
            return None;
        }
        let at = match recorded.cover_of(db, key) {
            Some((_, Cover::Full)) => return None,
            Some((at, _)) => at,
            None => recorded.at(db, key),
        };
        let start = recorded.bytes.len();
        let prefix = value.noted_prefix();
        Some(EditRecording { recorded, at, kind: T::KIND, start, prefix })
    }

    /// Records an entry that was taken out, to be put under another key.
    pub(crate) fn taken(&self, db: DbIndex, key: Key<'_>, entry: &Entry) {
        let mut recorded = self.recorded.borrow_mut();
        if recorded.is_full(db, key) {
            return;
        }
        let from = recorded.at(db, key);
        let (address, shell) = (entry.address(), Shell::of(entry));
        recorded.taken = Some(Taken { address, from, shell });
    }

    /// Returns true if the entry at this address was taken out and must be put under some key, so that a rollback
    /// finds it.
    pub(crate) fn is_taken(&self, address: *const u8) -> bool {
        let taken = &self.recorded.borrow().taken;
        taken.as_ref().is_some_and(|taken| taken.address == address)
    }

    /// Records the move, after the entry was put under its new key and the old entry there was recorded.
    pub(crate) fn moved(&self, db: DbIndex, key: Key<'_>) {
        let mut recorded = self.recorded.borrow_mut();
        let Some(Taken { from, shell, .. }) = recorded.taken.take() else { return };
        let to = recorded.at(db, key);
        recorded.push(Step::Moved(Box::new(Moved { from, to, shell })));
        recorded.set_cover(from, Cover::Full, None);
        // It is another entry now, without any records.
        recorded.latest = None;
        recorded.covered.remove(&(to.db, to.hash));
    }

    /// Keeps an entry that was taken out and cannot be put under any key.
    pub(crate) fn let_go(&self, entry: Entry) {
        let mut recorded = self.recorded.borrow_mut();
        // The location ends with the commit; when the entry was taken out, the location was going to belong to
        // another key.
        let location = entry.location();
        location.into_iter().for_each(|location| recorded.push(Step::Location(location)));
        if let Some(Taken { address, from, .. }) = recorded.taken.take()
            && address == entry.address()
        {
            recorded.push(Step::Entry(from, entry));
            recorded.set_cover(from, Cover::Full, None);
        }
    }
}

/// Returns a copy of a small entry, which an edit would visit or copy entirely anyway.
fn copy_of_small(entry: &Entry) -> Option<Entry> {
    match entry.kind() {
        Kind::Embedded | Kind::Raw | Kind::Int | Kind::Spilled => Some(entry.exact_copy()),
        Kind::Blob => None,
        Kind::Collection => entry.raw_collection()?.0.is_small().then(|| entry.exact_copy()),
    }
}

/// Recorder of inverse edits of a collection.
pub(crate) struct EditRecording<'a> {
    recorded: RefMut<'a, Recorded>,
    at: KeyAt,
    kind: CollectionKind,
    start: usize,
    prefix: Option<(u64, usize)>,
}

impl EditRecording<'_> {
    /// Returns the buffer to which they are appended.
    pub(crate) fn edits(&mut self) -> &mut Vec<u8> {
        &mut self.recorded.bytes
    }
}

impl Drop for EditRecording<'_> {
    /// Makes them a step, or a part of the last one.
    fn drop(&mut self) {
        let Self { recorded, at, kind, start, prefix } = self;
        let end = recorded.bytes.len();
        if end == *start {
            return;
        }
        if recorded.is_extendable
            && let Some(Step::Edits(last, edits)) = recorded.steps.last_mut()
            && last.start == at.start
            && edits.end == *start
        {
            edits.end = end;
            return;
        }
        let edits = Edits { kind: *kind, start: *start, end, prefix: *prefix };
        recorded.push(Step::Edits(*at, Box::new(edits)));
        recorded.is_extendable = true;
    }
}
