//! Code that clients store on the server: libraries of functions, and scripts by name.
//!
//! Code is data like keys: it is in the log and in snapshots, and an undo log rolls it back. It belongs to no
//! database, and flushes do not remove it. This module does not interpret the code.
//!
//! **Invariant:** code changes only while all shards are locked. So its changes are totally ordered, like their
//! records in the log. A [`Snapshot`](crate::Snapshot) has the code of the same moment as its keys. While a thread
//! has any shard locked, the code does not change, and the log has exactly that code.
//!
//! Readers need no shard lock: they get the code of some moment, and [`CodeStore::generation`] tells them about later
//! changes.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::RwLock;
use tierce_collections::size_class;

/// Maximum length of the name of a library or script, in bytes.
pub const CODE_NAME_LEN_MAX: usize = 64 * 1024;

/// Kind of a source.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum CodeKind {
    /// A library of functions.
    Library = 0,
    /// A script that is called by its name.
    Script = 1,
}

impl CodeKind {
    /// All kinds, in the order of their numbers.
    pub const ALL: [Self; 2] = [Self::Library, Self::Script];

    /// Returns the kind with this number in files.
    pub(crate) fn of_number(number: u64) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| *kind as u64 == number)
    }
}

type Sources = BTreeMap<Box<[u8]>, Arc<[u8]>>;

/// A source with its name.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Stored<'a> {
    pub(crate) kind: CodeKind,
    pub(crate) name: &'a [u8],
    pub(crate) source: &'a [u8],
}

/// All code at one moment.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CodeSet {
    sources: [Sources; CodeKind::ALL.len()],
    bytes: [usize; CodeKind::ALL.len()],
}

impl CodeSet {
    /// Returns names and sources of a kind, in the order of the names.
    pub fn of(&self, kind: CodeKind) -> impl ExactSizeIterator<Item = (&[u8], &Arc<[u8]>)> {
        self.sources[kind as usize].iter().map(|(name, source)| (&**name, source))
    }

    /// Returns the source of this name.
    pub fn get(&self, kind: CodeKind, name: &[u8]) -> Option<&Arc<[u8]>> {
        self.sources[kind as usize].get(name)
    }

    /// Returns true if there is no code.
    pub fn is_empty(&self) -> bool {
        self.sources.iter().all(Sources::is_empty)
    }

    /// Returns the memory of a kind, in bytes.
    pub fn memory_bytes(&self, kind: CodeKind) -> usize {
        self.bytes[kind as usize]
    }

    /// Returns the memory of all code, in bytes.
    pub fn total_bytes(&self) -> usize {
        self.bytes.iter().sum()
    }

    /// Sets the source of a name, only in this copy.
    pub fn put(&mut self, kind: CodeKind, name: &[u8], source: Arc<[u8]>) {
        self.set(kind, name, Some(source));
    }

    /// Removes all sources of a kind, only from this copy.
    pub fn clear(&mut self, kind: CodeKind) {
        self.sources[kind as usize].clear();
        self.bytes[kind as usize] = 0;
    }

    /// Returns the next source after `last`, over all kinds; the first one for `None`.
    pub(crate) fn next_after(&self, last: Option<&(CodeKind, Box<[u8]>)>) -> Option<Stored<'_>> {
        CodeKind::ALL.into_iter().find_map(|kind| {
            let from = match last {
                Some((of, _)) if kind < *of => return None,
                Some((of, name)) if kind == *of => Bound::Excluded(&**name),
                _ => Bound::Unbounded,
            };
            let mut rest = self.sources[kind as usize].range::<[u8], _>((from, Bound::Unbounded));
            rest.next().map(|(name, source)| Stored { kind, name, source })
        })
    }

    /// Puts or removes a source. Returns the previous one.
    fn set(&mut self, kind: CodeKind, name: &[u8], source: Option<Arc<[u8]>>) -> Option<Arc<[u8]>> {
        let sources = &mut self.sources[kind as usize];
        let added = source.as_ref().map_or(0, |source| memory_of(name, source));
        let before = match source {
            Some(source) => sources.insert(name.into(), source),
            None => sources.remove(name),
        };
        let removed = before.as_ref().map_or(0, |before| memory_of(name, before));
        let bytes = &mut self.bytes[kind as usize];
        *bytes = *bytes + added - removed;
        before
    }
}

/// Returns the memory of a source, with its name and its slot in the map.
fn memory_of(name: &[u8], source: &[u8]) -> usize {
    const COUNTS: usize = 2 * size_of::<usize>();
    const SLOT: usize = size_of::<(Box<[u8]>, Arc<[u8]>)>();
    size_class(name.len()) + size_class(source.len() + COUNTS) + SLOT
}

/// The code of a keyspace. It changes only while all shards are locked.
#[derive(Debug, Default)]
pub struct CodeStore {
    /// Shared with readers of all code; the next change copies it while they use it.
    all: RwLock<Arc<CodeSet>>,
    generation: AtomicU64,
}

impl CodeStore {
    /// Returns a number that grows with each change.
    #[inline]
    pub fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    /// Returns the source of this name.
    pub fn get(&self, kind: CodeKind, name: &[u8]) -> Option<Arc<[u8]>> {
        self.all.read().get(kind, name).cloned()
    }

    /// Returns all code.
    pub fn all(&self) -> Arc<CodeSet> {
        Arc::clone(&self.all.read())
    }

    /// Returns its memory, in bytes.
    pub fn memory_bytes(&self) -> usize {
        self.all.read().total_bytes()
    }

    /// Puts or removes a source. Returns the previous one.
    pub(crate) fn set(
        &self,
        kind: CodeKind,
        name: &[u8],
        source: Option<Arc<[u8]>>,
    ) -> Option<Arc<[u8]>> {
        let mut all = self.all.write();
        let before = Arc::make_mut(&mut all).set(kind, name, source);
        // Readers are still locked out: a reader that sees the new number sees the change.
        self.generation.fetch_add(1, Ordering::Release);
        before
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(text: &str) -> Option<Arc<[u8]>> {
        Some(text.as_bytes().into())
    }

    #[test]
    fn kinds_have_names_of_their_own() {
        let store = CodeStore::default();
        for kind in CodeKind::ALL {
            assert_eq!(store.set(kind, b"a", source(&format!("{kind:?}"))), None);
        }
        assert_eq!(store.get(CodeKind::Library, b"a").as_deref(), Some(&b"Library"[..]));
        assert_eq!(store.get(CodeKind::Script, b"a").as_deref(), Some(&b"Script"[..]));
        assert_eq!(store.get(CodeKind::Script, b"b"), None);
        store.set(CodeKind::Library, b"a", None);
        assert_eq!(store.all().of(CodeKind::Library).len(), 0);
        assert_eq!(store.all().of(CodeKind::Script).len(), 1);
    }

    #[test]
    fn what_a_reader_got_stays_as_it_was() {
        let store = CodeStore::default();
        store.set(CodeKind::Library, b"a", source("old"));
        let (seen, generation) = (store.all(), store.generation());
        store.set(CodeKind::Library, b"a", source("new"));
        assert_eq!(seen.get(CodeKind::Library, b"a").map(|it| &**it), Some(&b"old"[..]));
        assert_ne!(store.generation(), generation);
    }

    #[test]
    fn memory_is_that_of_what_is_there() {
        let store = CodeStore::default();
        let mut sizes = Vec::new();
        for text in ["", "a", "a longer one", &"x".repeat(10_000)] {
            store.set(CodeKind::Script, b"name", source(text));
            sizes.push(store.memory_bytes());
            assert!(store.memory_bytes() > text.len());
        }
        assert!(sizes.is_sorted());
        store.set(CodeKind::Script, b"name", None);
        assert_eq!(store.memory_bytes(), 0);
    }

    #[test]
    fn a_walk_meets_what_stays_once() {
        let store = CodeStore::default();
        for name in [&b"b"[..], b"a", b"c"] {
            CodeKind::ALL.iter().for_each(|kind| _ = store.set(*kind, name, source("-")));
        }
        let (mut last, mut met) = (None, Vec::new());
        while let Some(Stored { kind, name, .. }) = store.all().next_after(last.as_ref()) {
            met.push((kind, name.to_vec()));
            // Sources changed during the walk may be visited or not; all others are.
            store.set(CodeKind::Library, b"c", None);
            last = Some((kind, name.into()));
        }
        let [library, script] = CodeKind::ALL;
        let expected =
            [(library, b"a"), (library, b"b"), (script, b"a"), (script, b"b"), (script, b"c")];
        assert_eq!(met, expected.map(|(kind, name)| (kind, name.to_vec())));
    }
}
