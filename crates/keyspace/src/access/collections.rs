//! Reading and editing collections under the lock of their shard.

use tierce_collections::Collection;

use crate::access::accounting::{Accounting, CollectionAccounting};
use crate::access::db::Db;
use crate::access::shard_locks::ShardLocks;
use crate::access::undo::EditRecording;
use crate::change::{Change, Removal};
use crate::codec::Malformed;
use crate::data::collections::convert::{apply, apply_to, is_empty};
use crate::data::collections::edits::kind_of;
use crate::data::collections::{BorrowGuard, CollectionType, Editor, with_type};
use crate::data::entry::{Attributes, Content, Entry};
use crate::data::key::Key;
use crate::data::usage::Access;
use crate::data::value::{Value, ValueType};
use crate::db_index::DbIndex;
use crate::error::{Error, Result};

/// Behavior of an edit whose key is absent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Missing {
    /// Create an empty collection.
    Create,
    /// Do nothing.
    Skip,
}

impl Db<'_> {
    /// Reads a collection. Counts a hit or a miss, and a use of the key.
    ///
    /// # Errors
    ///
    /// [`Error::WrongType`].
    #[inline]
    pub fn collection<T: CollectionType>(
        &mut self,
        key: Key<'_>,
    ) -> Result<Option<BorrowGuard<'_, T>>> {
        let now_ms = self.at.now_ms;
        let Some(entry) = self.read(key)? else { return Ok(None) };
        match entry.raw_collection() {
            Some((form, pointer)) if form.kind() == T::KIND => {
                // SAFETY: the entry owns the collection, and is borrowed as long as the guard lives.
                let mut value = unsafe { T::from_raw(form, pointer) };
                value.as_of(now_ms);
                Ok(Some(BorrowGuard::new(value)))
            }
            _ => Err(Error::WrongType),
        }
    }

    /// Lets `edit` change the collection of a key; `None` if there is none and `missing` is `Skip`. An edit that
    /// leaves the collection empty deletes the key.
    ///
    /// If an edit fails, its earlier changes stay; a new collection is discarded.
    ///
    /// # Errors
    ///
    /// [`Error::WrongType`], [`Error::KeyTooLong`], and those of `edit`.
    pub fn edit<T: CollectionType, R, E: From<Error>>(
        &mut self,
        key: Key<'_>,
        missing: Missing,
        edit: impl FnOnce(&mut Editor<'_, T>) -> std::result::Result<R, E>,
    ) -> std::result::Result<Option<R>, E> {
        let at = self.at;
        let Some(entry) = self.find_value_to_change(key)? else {
            return match missing {
                Missing::Create => self.create(key, edit).map(Some),
                Missing::Skip => Ok(None),
            };
        };
        // An edit may also drop the copy on disk, so the whole entry is accounted for.
        let copied = entry.has_copy_on_disk().then(|| Accounting::of(entry));
        let Some(mut value) = entry.borrow_collection::<T>() else {
            return Err(Error::WrongType.into());
        };
        value.as_of(at.now_ms);
        let before = CollectionAccounting::of(&*value);
        let mut recording = at.batch().map(|batch| batch.record_edits(at.db, key.bytes()));
        let mut undoing = at.undo().and_then(|undo| undo.record_edits(at.db, key, &*value));
        let inverse = undoing.as_mut().map(EditRecording::edits);
        let (edits, limits) = (recording.as_deref_mut(), &at.keyspace.limits);
        let (has_changed, serves_waiters) = (false, false);
        let mut editor =
            Editor { value: &mut *value, limits, edits, inverse, has_changed, serves_waiters };
        let result = edit(&mut editor);
        let Editor { has_changed, serves_waiters, .. } = editor;
        let is_gone = value.is_all_due(at.now_ms) && !at.keyspace.is_following();
        let is_empty = value.vanishes() || is_gone;
        let after = CollectionAccounting::of(&*value);
        drop(value);
        // Only if present: `None`, the usual case, would be moved otherwise.
        if let Some(undoing) = undoing {
            drop(undoing);
        }
        at.used(entry);
        if has_changed && !is_empty {
            let change = match &copied {
                Some(before) => before.cold.change(entry, Change::Edited),
                None => Change::Edited,
            };
            if change == Change::Edited {
                if let Some(recording) = recording {
                    recording.keep();
                }
            } else {
                // A log reader has the old value only on disk, if at all: the whole value is logged instead.
                drop(recording);
            }
            at.changed(key.hash(), entry, change);
            if serves_waiters {
                at.note_ready(entry.key());
            }
        } else {
            drop(recording);
        }
        match copied {
            None => self.account_edit(key.hash(), before, after),
            Some(before) => {
                let after = Accounting::of(entry);
                self.account(key.hash(), before, after);
            }
        }
        if is_empty {
            self.remove_emptied(key);
        }
        result.map(Some)
    }

    /// Deletes a collection that an edit has emptied. Separate from `edit`, which has many instances.
    #[cold]
    fn remove_emptied(&mut self, key: Key<'_>) {
        if let Some(entry) = self.unlink_where(key.hash(), |it| it.is_key(key.bytes())) {
            self.forget(key.hash(), entry, Removal::Deleted);
        }
    }

    /// Like [`Db::edit`], for a key that is not there.
    fn create<T: CollectionType, R, E: From<Error>>(
        &mut self,
        key: Key<'_>,
        edit: impl FnOnce(&mut Editor<'_, T>) -> std::result::Result<R, E>,
    ) -> std::result::Result<R, E> {
        self.check_key(key)?;
        let mut value = T::new();
        let limits = &self.at.keyspace.limits;
        let (edits, inverse) = (None, None);
        let (has_changed, serves_waiters) = (false, false);
        let mut editor =
            Editor { value: &mut value, limits, edits, inverse, has_changed, serves_waiters };
        let result = edit(&mut editor)?;
        let has_changed = editor.has_changed;
        if !value.is_empty() || (T::STAYS_EMPTY && has_changed) {
            let entry = self.new_collection(key, value.into_collection(), None);
            self.insert(key, entry);
        }
        Ok(result)
    }

    /// Sets a key to a collection with this deadline, whatever it was before. An empty collection deletes the key;
    /// `false` if there was none to delete.
    ///
    /// # Errors
    ///
    /// [`Error::KeyTooLong`].
    pub fn put_collection(
        &mut self,
        key: Key<'_>,
        collection: Collection,
        deadline_ms: Option<i64>,
    ) -> Result<bool> {
        if is_empty(&collection) {
            return Ok(self.remove(key));
        }
        self.check_key(key)?;
        let entry = self.new_collection(key, collection, deadline_ms);
        self.put_entry(key, entry)?;
        Ok(true)
    }

    /// Applies edits from the log. With `is_whole` they create the value, and the key has the given deadline or none.
    /// Otherwise they edit the present value, and the key keeps its deadline if none is given. The present value may
    /// be missing if the log was truncated before it; then the edits belong to a value that follows.
    ///
    /// # Errors
    ///
    /// If the bytes are no edits. Some may have been applied already.
    pub(crate) fn apply_edits(
        &mut self,
        key: Key<'_>,
        is_whole: bool,
        deadline_ms: Option<i64>,
        edits: &[u8],
        access: Access,
    ) -> std::result::Result<(), Malformed> {
        let Some(kind) = edits.first().copied().and_then(kind_of) else {
            return Err(Malformed { offset: 0, what: "edits of no type" });
        };
        let at = self.at;
        let limits = &at.keyspace.limits;
        // A value on disk is whole, and later changes of it are logged as whole values, too.
        let present = self.find_to_change(key).filter(|_| !is_whole);
        if present.as_ref().is_some_and(|entry| entry.is_spilled()) {
            return Ok(());
        }
        match present.filter(|entry| entry.value_type() == ValueType::Collection(kind)) {
            Some(entry) => {
                let before = Accounting::of(entry);
                let is_empty = with_type!(kind, T => {
                    let mut value = entry.borrow_collection::<T>().expect("the type was compared");
                    apply_to(&mut *value, edits, limits)?;
                    value.vanishes()
                });
                if !is_empty {
                    let change = before.cold.change(entry, Change::Edited);
                    if change == Change::Edited
                        && let Some(batch) = at.batch()
                    {
                        let mut recording = batch.record_edits(at.db, key.bytes());
                        recording.extend_from_slice(edits);
                        recording.keep();
                    }
                    at.changed(key.hash(), entry, change);
                    at.note_ready(entry.key());
                }
                let after = Accounting::of(entry);
                self.account(key.hash(), before, after);
                if is_empty {
                    self.remove(key);
                } else if let Some(deadline_ms) = deadline_ms {
                    self.set_deadline(key, deadline_ms);
                }
            }
            None => {
                let mut collection = Collection::new(kind);
                apply(&mut collection, edits, limits)?;
                if is_empty(&collection) {
                    self.remove(key);
                    return Ok(());
                }
                let content = Content::Collection(collection);
                let bytes = key.bytes();
                let entry =
                    Entry::with_attributes(bytes, content, deadline_ms, Attributes::NONE, access);
                self.put(key, entry).expect("a key of a log is not too long");
            }
        }
        Ok(())
    }

    fn new_collection(
        &self,
        key: Key<'_>,
        collection: Collection,
        deadline_ms: Option<i64>,
    ) -> Entry {
        let (content, access) = (Content::Collection(collection), self.at.first_access());
        Entry::with_attributes(key.bytes(), content, deadline_ms, Attributes::NONE, access)
    }
}

impl ShardLocks<'_> {
    /// Reads several keys at once, each as [`Db::get`] does.
    ///
    /// # Panics
    ///
    /// If their shards are not locked together.
    ///
    /// # Errors
    ///
    /// [`Error::Unreadable`]. [`Error::WrongType`] at the first key with a value that `fits` rejects; later keys are
    /// not read.
    pub fn values(
        &mut self,
        db: DbIndex,
        keys: &[Key<'_>],
        now_ms: i64,
        fits: impl Fn(ValueType) -> bool,
    ) -> Result<Vec<Option<Value<'_>>>> {
        // Reading removes expired keys, which may move other entries, and fetches values from disk. So all keys are
        // read before any value is borrowed.
        self.assert_together(keys);
        for key in keys {
            let mut db = self.db(db, key.hash(), now_ms);
            if db.read(*key)?.is_some_and(|entry| !fits(entry.value_type())) {
                return Err(Error::WrongType);
            }
        }
        let find = |key: &Key<'_>| {
            let mut db = self.db(db, key.hash(), now_ms);
            let entry = std::ptr::from_ref(db.peek(*key)?);
            // SAFETY: looking for unexpired keys, at the same time as above, changes nothing. No other thread can
            // change them while `self` is borrowed: their shards stay locked.
            Some(unsafe { &*entry }.value_as_of(now_ms))
        };
        Ok(keys.iter().map(find).collect())
    }
}
