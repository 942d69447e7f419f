//! Keys of one shard that clients may have cached, with these clients.

use std::cmp::Ordering;

use tierce_collections::size_class;
use tierce_dash::Table;

use crate::data::key::{Key, KeyHasher};
use crate::db_index::DbIndex;

/// A cached key and its readers, in one allocation, since there may be millions:
///
/// | bytes | content |
/// |---|---|
/// | 2 | database |
/// | 1 | logarithm of the number of slots |
/// | 4 | number of readers |
/// | 8 each | slots: first the readers, in ascending order |
/// | rest | the key |
#[derive(Debug)]
pub(crate) struct CachedKey(Box<[u8]>);

const SLOTS_AT: usize = 2;
const COUNT_AT: usize = 3;
const READERS_AT: usize = 7;
const READER_LEN: usize = size_of::<u64>();

impl CachedKey {
    pub(crate) fn new(db: DbIndex, key: &[u8], readers: &[u64]) -> Self {
        Self::with_slots(db.number(), key, readers, readers.len().next_power_of_two())
    }

    fn with_slots(db: u16, key: &[u8], readers: &[u64], slots: usize) -> Self {
        let mut bytes = Vec::with_capacity(READERS_AT + slots * READER_LEN + key.len());
        bytes.extend_from_slice(&db.to_le_bytes());
        bytes.push(slots.ilog2() as u8);
        bytes.extend_from_slice(&(readers.len() as u32).to_le_bytes());
        readers.iter().for_each(|reader| bytes.extend_from_slice(&reader.to_le_bytes()));
        bytes.resize(READERS_AT + slots * READER_LEN, 0);
        bytes.extend_from_slice(key);
        Self(bytes.into_boxed_slice())
    }

    fn db(&self) -> u16 {
        u16::from_le_bytes([self.0[0], self.0[1]])
    }

    fn slots(&self) -> usize {
        1 << self.0[SLOTS_AT]
    }

    /// Returns the bytes of its allocation.
    fn memory_bytes(&self) -> usize {
        size_class(self.0.len())
    }

    pub(crate) fn readers_len(&self) -> usize {
        let count = self.0[COUNT_AT..READERS_AT].try_into().expect("as long as its type");
        u32::from_le_bytes(count) as usize
    }

    fn key_at(&self) -> usize {
        READERS_AT + self.slots() * READER_LEN
    }

    pub(crate) fn key(&self) -> &[u8] {
        &self.0[self.key_at()..]
    }

    fn reader_chunks(&self) -> &[[u8; READER_LEN]] {
        let end = READERS_AT + self.readers_len() * READER_LEN;
        self.0[READERS_AT..end].as_chunks().0
    }

    pub(crate) fn readers(&self) -> impl Iterator<Item = u64> + '_ {
        self.reader_chunks().iter().map(|reader| u64::from_le_bytes(*reader))
    }

    fn is(&self, db: DbIndex, key: &[u8]) -> bool {
        self.db() == db.number() && self.key() == key
    }

    /// Adds a reader, if it is new. Without a free slot, obsolete readers are removed and some spare slots are added.
    /// So a key has few more slots than readers, and each is copied a few times. Returns the number of removed
    /// readers.
    fn add(&mut self, reader: u64, still_reads: impl Fn(u64) -> bool) -> Option<usize> {
        let order =
            |other: &[u8; READER_LEN]| -> Ordering { u64::from_le_bytes(*other).cmp(&reader) };
        let Err(position) = self.reader_chunks().binary_search_by(order) else { return None };
        let count = self.readers_len();
        if count == self.slots() {
            let mut readers: Vec<u64> = self.readers().filter(|id| still_reads(*id)).collect();
            let gone = count - readers.len();
            let slots = (readers.len() + readers.len() / 2 + 1).next_power_of_two();
            readers.insert(readers.partition_point(|other| *other < reader), reader);
            *self = Self::with_slots(self.db(), self.key(), &readers, slots);
            return Some(gone);
        }
        let (at, end) = (READERS_AT + position * READER_LEN, READERS_AT + count * READER_LEN);
        self.0.copy_within(at..end, at + READER_LEN);
        self.0[at..at + READER_LEN].copy_from_slice(&reader.to_le_bytes());
        self.0[COUNT_AT..READERS_AT].copy_from_slice(&(count as u32 + 1).to_le_bytes());
        Some(0)
    }
}

/// Result of [`CachedKeys::add`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Added {
    /// The key was added, with its reader.
    Key,
    /// A reader was added to a key, and so many obsolete ones were removed.
    Reader { gone: usize },
    /// The key already had this reader.
    Nothing,
}

/// The cached keys of one shard, behind its lock.
#[derive(Debug, Default)]
pub(crate) struct CachedKeys {
    table: Table<CachedKey>,
    /// Number of readers of all keys.
    readers: usize,
    /// Bytes of the keys.
    key_bytes: usize,
}

impl CachedKeys {
    pub(crate) fn len(&self) -> usize {
        self.table.len()
    }

    /// Returns the number of readers of all keys.
    pub(crate) fn readers_len(&self) -> usize {
        self.readers
    }

    /// Returns its memory, including its keys.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.table.memory_bytes() + self.key_bytes
    }

    /// Adds a reader of a key. Obsolete readers of the key may be removed.
    pub(crate) fn add(
        &mut self,
        hasher: &KeyHasher,
        db: DbIndex,
        key: Key<'_>,
        reader: u64,
        still_reads: impl Fn(u64) -> bool,
    ) -> Added {
        let hash = hasher.table_hash(key.hash());
        if let Some(cached) = self.table.find_mut(hash, |cached| cached.is(db, key.bytes())) {
            let bytes = cached.memory_bytes();
            let Some(gone) = cached.add(reader, still_reads) else { return Added::Nothing };
            self.readers = self.readers + 1 - gone;
            self.key_bytes = self.key_bytes - bytes + cached.memory_bytes();
            return Added::Reader { gone };
        }
        let cached = CachedKey::new(db, key.bytes(), &[reader]);
        self.key_bytes += cached.memory_bytes();
        self.table.insert_unique(hash, cached, &hash_by(hasher));
        self.readers += 1;
        Added::Key
    }

    pub(crate) fn take(
        &mut self,
        hasher: &KeyHasher,
        db: DbIndex,
        key: Key<'_>,
    ) -> Option<CachedKey> {
        let hash = hasher.table_hash(key.hash());
        let taken =
            self.table.remove(hash, |cached| cached.is(db, key.bytes()), &hash_by(hasher))?;
        self.note_taken(&taken);
        Some(taken)
    }

    fn note_taken(&mut self, taken: &CachedKey) {
        self.readers -= taken.readers_len();
        self.key_bytes -= taken.memory_bytes();
    }

    /// Removes a random key.
    pub(crate) fn take_any(&mut self, hasher: &KeyHasher, random: u64) -> Option<CachedKey> {
        let cached = self.table.sample(random)?;
        let hash = hash_by(hasher)(cached);
        let address = cached.0.as_ptr();
        let is_it = |other: &CachedKey| std::ptr::eq(other.0.as_ptr(), address);
        let taken = self.table.remove(hash, is_it, &hash_by(hasher))?;
        self.note_taken(&taken);
        Some(taken)
    }
}

fn hash_by(hasher: &KeyHasher) -> impl Fn(&CachedKey) -> u64 {
    |cached| hasher.table_hash(hasher.hash_bytes(cached.key()))
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use proptest::prelude::*;
    use tierce_harness::effort;

    use super::*;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(effort(256)))]

        #[test]
        fn each_key_has_the_readers_that_were_added(
            steps in prop::collection::vec((0..3_usize, 0..4_u8, 0..60_u64, 0..20_u8), 1..300)
        ) {
            let hasher = KeyHasher::new(7, 3);
            let mut table = CachedKeys::default();
            let mut model: BTreeMap<(usize, Vec<u8>), BTreeSet<u64>> = BTreeMap::new();
            let found = |cached: &CachedKey| (cached.db().into(), cached.key().to_vec());
            let mut gone = BTreeSet::new();
            for (db, key, reader, what) in steps {
                let name = vec![b'k'; key.into()];
                let index = DbIndex::from_number(db as u16);
                let key = hasher.key(&name);
                match what {
                    0 => {
                        let taken = table.take(&hasher, index, key);
                        let readers = taken.map(|cached| cached.readers().collect());
                        prop_assert_eq!(readers, model.remove(&(db, name)));
                    }
                    1 if reader < 20 => {
                        let taken = table.take_any(&hasher, key.hash().0);
                        prop_assert_eq!(taken.is_some(), !model.is_empty());
                        if let Some(taken) = taken {
                            let readers = model.remove(&found(&taken));
                            prop_assert_eq!(readers, Some(taken.readers().collect()));
                        }
                    }
                    1 => _ = gone.insert(reader),
                    _ => {
                        gone.remove(&reader);
                        let readers = model.entry((db, name.clone())).or_default();
                        let before = readers.len();
                        let is_new = readers.insert(reader);
                        match table.add(&hasher, index, key, reader, |id| !gone.contains(&id)) {
                            Added::Key => prop_assert_eq!(before, 0),
                            Added::Nothing => prop_assert!(!is_new),
                            Added::Reader { gone: count } => {
                                prop_assert!(is_new && before > 0);
                                if count > 0 {
                                    readers.retain(|id| !gone.contains(id));
                                    prop_assert_eq!(before + 1 - count, readers.len());
                                }
                            }
                        }
                    }
                }
                for cached in table.table.iter() {
                    let slots = cached.slots();
                    prop_assert!(slots <= 2 || slots < 4 * cached.readers_len());
                }
                let bytes = table.table.iter().map(|cached| size_class(cached.0.len())).sum::<usize>();
                prop_assert_eq!(table.memory_bytes(), table.table.memory_bytes() + bytes);
                prop_assert_eq!(table.len(), model.len());
                prop_assert_eq!(table.readers_len(), model.values().map(BTreeSet::len).sum::<usize>());
            }
        }
    }
}
