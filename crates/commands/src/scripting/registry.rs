//! The scripts that are known by the SHA-1 of their source.
//!
//! SCRIPT LOAD keeps a script until SCRIPT FLUSH. What EVAL has run is kept as well, so that EVALSHA finds it, but
//! clients may generate scripts without end: of these only the [`EVALS_MAX`] that were called last are kept, as in
//! Redis 7.4.
//!
//! **Invariant:** every script here compiles, and is found by its SHA-1.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};

use parking_lot::RwLock;
use tierce_lua::{Script, Sha1};

use super::{History, Libraries, Names, Running};
use crate::offload::Offload;

/// Scripts that are kept because EVAL has run them.
const EVALS_MAX: usize = 500;

/// What a script takes beside its source.
const SCRIPT_BYTES: usize = size_of::<KnownScript>() + size_of::<(Sha1, Arc<KnownScript>)>();

/// A SHA-1 is a hash already, of which eight bytes will do.
#[derive(Default)]
struct Sha1Hasher(u64);

impl Hasher for Sha1Hasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        if let Some(first) = bytes.first_chunk() {
            self.0 = u64::from_ne_bytes(*first);
        }
    }

    /// The length, which is always the same.
    fn write_usize(&mut self, _: usize) {}
}

/// How long a script is kept.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Keep {
    /// Until SCRIPT FLUSH.
    Always,
    /// As long as it is among those that were called last.
    WhileUsed,
}

/// A script that compiles.
#[derive(Debug)]
pub struct KnownScript {
    /// Its source, and what its first line says.
    pub script: Script,
    /// What its earlier runs were like.
    pub history: History,
    /// When it was called last, by a clock that counts calls.
    used: AtomicU64,
    is_kept: AtomicBool,
}

/// All scripts.
#[derive(Default)]
pub struct Scripts {
    cache: RwLock<Cache>,
    /// Counts calls by EVAL and EVALSHA.
    clock: AtomicU64,
    evicted: AtomicU64,
    /// Libraries of functions.
    pub libraries: Libraries,
    /// Those that have names.
    pub names: Names,
    /// What runs for long.
    pub running: Running,
    /// Calls of programs that take too long for a worker, on their way to a thread.
    pub offload: Offload,
    /// Bytes that the machines of all threads take.
    pub machine_bytes: Arc<AtomicUsize>,
}

#[derive(Default)]
struct Cache {
    scripts: HashMap<Sha1, Arc<KnownScript>, BuildHasherDefault<Sha1Hasher>>,
    /// How many of them are kept while they are used.
    evals: usize,
    source_bytes: usize,
}

impl KnownScript {
    /// A script of which nothing else is known.
    pub(super) fn new(script: Script) -> Self {
        let (history, used, is_kept) = Default::default();
        Self { script, history, used, is_kept }
    }
}

impl Scripts {
    /// The script with this SHA-1, which is called now.
    #[must_use]
    pub fn get(&self, sha: &Sha1) -> Option<Arc<KnownScript>> {
        let script = self.cache.read().scripts.get(sha).cloned()?;
        self.note_use(&script);
        Some(script)
    }

    fn note_use(&self, script: &KnownScript) {
        // Those that are kept are not compared, so that their line of memory stays shared among workers.
        if !script.is_kept.load(Relaxed) {
            script.used.store(self.clock.fetch_add(1, Relaxed) + 1, Relaxed);
        }
    }

    /// Whether there is a script with this SHA-1.
    #[must_use]
    pub fn contains(&self, sha: &Sha1) -> bool {
        self.cache.read().scripts.contains_key(sha)
    }

    /// Adds a script that compiles, or finds it.
    pub fn add(&self, script: Script, keep: Keep) -> Arc<KnownScript> {
        let mut cache = self.cache.write();
        let script = match cache.scripts.get(script.sha()) {
            Some(script) => Arc::clone(script),
            None => {
                if cache.evals >= EVALS_MAX && keep == Keep::WhileUsed {
                    cache.evict();
                    self.evicted.fetch_add(1, Relaxed);
                }
                cache.insert(KnownScript::new(script))
            }
        };
        if keep == Keep::Always && !script.is_kept.swap(true, Relaxed) {
            cache.evals -= 1;
        }
        drop(cache);
        self.note_use(&script);
        script
    }

    /// Forgets all scripts. Those that run go on.
    pub fn flush(&self) {
        let old = std::mem::take(&mut *self.cache.write());
        drop(old);
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.cache.read().scripts.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How many of EVAL were forgotten, because others were called after them.
    #[must_use]
    pub fn evicted(&self) -> u64 {
        self.evicted.load(Relaxed)
    }

    /// Bytes that they take, without what machines have made of them.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        let cache = self.cache.read();
        cache.source_bytes + cache.scripts.len() * SCRIPT_BYTES
    }
}

impl Cache {
    fn insert(&mut self, script: KnownScript) -> Arc<KnownScript> {
        let script = Arc::new(script);
        self.source_bytes += script.script.source().len();
        self.evals += 1;
        self.scripts.insert(*script.script.sha(), Arc::clone(&script));
        script
    }

    /// Forgets the one of EVAL that was called longest ago. Goes through all of them: new scripts are rare.
    fn evict(&mut self) {
        let evals = self.scripts.values().filter(|script| !script.is_kept.load(Relaxed));
        let oldest = evals.min_by_key(|script| script.used.load(Relaxed));
        let Some(sha) = oldest.map(|script| *script.script.sha()) else { return };
        if let Some(script) = self.scripts.remove(&sha) {
            self.source_bytes -= script.script.source().len();
            self.evals -= 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn add(scripts: &Scripts, number: usize, keep: Keep) -> Sha1 {
        let script = Script::parse(format!("return {number}").into_bytes()).expect("no options");
        *scripts.add(script, keep).script.sha()
    }

    #[test]
    fn scripts_of_eval_are_forgotten_unless_they_are_called() {
        let scripts = Scripts::default();
        let loaded = add(&scripts, 1_000_000, Keep::Always);
        let called = add(&scripts, 1_000_001, Keep::WhileUsed);
        let adopted = add(&scripts, 1_000_002, Keep::WhileUsed);
        add(&scripts, 1_000_002, Keep::Always);
        let forgotten = add(&scripts, 1_000_003, Keep::WhileUsed);
        for number in 0..3 * EVALS_MAX {
            add(&scripts, number, Keep::WhileUsed);
            assert!(scripts.get(&called).is_some());
        }
        assert!(scripts.contains(&loaded) && scripts.contains(&adopted));
        assert!(!scripts.contains(&forgotten));
        assert_eq!(scripts.len(), EVALS_MAX + 2);
        assert_eq!(scripts.evicted() as usize, 2 * EVALS_MAX + 2);
        let bytes = scripts.memory_bytes();
        assert!(bytes < scripts.len() * (SCRIPT_BYTES + 20), "{bytes}");
        scripts.flush();
        assert_eq!((scripts.len(), scripts.memory_bytes()), (0, 0));
    }
}
