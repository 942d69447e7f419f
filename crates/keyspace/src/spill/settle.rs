//! What becomes of entries when their values have been written.

use tierce_cask::ColdPlace;

use super::gather::{SpillBatch, forget_value};
use super::value;
use crate::change::Change;
use crate::db::{Account, Db};
use crate::entry::{Attributes, Content};
use crate::key::Key;
use crate::locker::Locker;

impl Locker<'_> {
    /// Leaves the values of a batch to the disk, where they now are at `places`, and logs that: all that
    /// have not changed since they were copied. The places of the others are released. Returns how many
    /// values are out of memory, or have moved.
    ///
    /// # Panics
    ///
    /// Under a [`Many`](crate::Many).
    pub fn spill(&mut self, batch: &SpillBatch, places: &[ColdPlace], now_ms: i64) -> usize {
        let keyspace = self.keyspace();
        let mut spilled = 0;
        for (index, (item, place)) in batch.items.iter().zip(places).enumerate() {
            let key = keyspace.key(&batch.keys[item.key.clone()]);
            let mut db = self.db(item.db, key.hash(), now_ms);
            let done = match item.moved_from {
                Some(from) => db.relocate(key, from, *place),
                None => db.spill(key, batch.values.value(index), *place),
            };
            if done {
                spilled += 1;
            } else {
                keyspace.release(*place);
            }
        }
        self.release();
        spilled
    }
}

impl Db<'_> {
    /// Leaves the value of a key to the disk, if it is still the one that was written.
    fn spill(&mut self, key: Key<'_>, written: &[u8], place: ColdPlace) -> bool {
        let at = self.at;
        let Some(entry) = self.find(key) else { return false };
        // One with a place was spilled, changed back and spilled again meanwhile: let it be.
        // One that a snapshot has begun to save meanwhile stays until that is through.
        let is_taken = entry.place().is_some() || entry.save_id().is_some();
        if is_taken || !value::is_value_of(entry, written) {
            return false;
        }
        let before = Account::of(entry);
        let displaced = forget_value(entry, place);
        if let Some(pending) = at.pending {
            pending.push_change(at.db, entry, Change::Stored);
        }
        let after = Account::of(entry);
        self.settle(key.hash(), before, after);
        self.discard_annex(displaced);
        true
    }

    /// Notes that a value has been copied from one place to another, if it is still at the former.
    fn relocate(&mut self, key: Key<'_>, from: ColdPlace, to: ColdPlace) -> bool {
        let at = self.at;
        let Some(entry) = self.find(key) else { return false };
        if entry.place() != Some(from) {
            return false;
        }
        let before = Account::of(entry);
        match entry.spilled() {
            Some(spilled) => {
                let content = Content::Spilled(spilled.moved_to(to));
                entry.replace(content, entry.deadline_ms(), entry.attributes());
            }
            None => {
                let attributes = Attributes { place: Some(to), ..entry.attributes() };
                entry.set_attributes(attributes);
            }
        }
        if let Some(pending) = at.pending {
            pending.push_change(at.db, entry, Change::Stored);
        }
        let after = Account::of(entry);
        self.settle(key.hash(), before, after);
        true
    }
}
