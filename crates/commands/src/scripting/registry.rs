//! Scripts, found by the SHA-1 of their source.
//!
//! SCRIPT LOAD keeps a script until SCRIPT FLUSH. Scripts of EVAL are kept as well, so that EVALSHA finds them. Clients
//! may generate scripts without end, so only the [`EVALS_MAX`] scripts of EVAL that were called last are kept, as in
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

/// Maximum of scripts that are kept because EVAL has run them.
const EVALS_MAX: usize = 500;

/// Memory of a script besides its source.
const SCRIPT_BYTES: usize = size_of::<KnownScript>() + size_of::<(Sha1, Arc<KnownScript>)>();

/// A SHA-1 is a hash already. Eight of its bytes suffice.
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

    /// Ignores the length, which is constant.
    fn write_usize(&mut self, _: usize) {}
}

/// Lifetime of a script.
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
    /// Its source, parsed.
    pub script: Script,
    /// History of its runs.
    pub history: History,
    /// Time of its last call, by a clock that counts calls.
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
    /// Scripts that are called by names.
    pub names: Names,
    /// Programs that run for long.
    pub running: Running,
    /// Queue of program calls that take too long for a worker.
    pub offload: Offload,
    /// Memory of the machines of all threads, in bytes.
    pub machine_bytes: Arc<AtomicUsize>,
}

#[derive(Default)]
struct Cache {
    scripts: HashMap<Sha1, Arc<KnownScript>, BuildHasherDefault<Sha1Hasher>>,
    /// Number of scripts that are only kept while they are used.
    evals: usize,
    source_bytes: usize,
}

impl KnownScript {
    /// Creates a script without history.
    pub(super) fn new(script: Script) -> Self {
        let (history, used, is_kept) = Default::default();
        Self { script, history, used, is_kept }
    }
}

impl Scripts {
    /// Returns the script with this SHA-1, and counts a call of it.
    #[must_use]
    pub fn get(&self, sha: &Sha1) -> Option<Arc<KnownScript>> {
        let script = self.cache.read().scripts.get(sha).cloned()?;
        self.note_use(&script);
        Some(script)
    }

    fn note_use(&self, script: &KnownScript) {
        // Permanent scripts are not compared, so that their cache line stays shared among workers.
        if !script.is_kept.load(Relaxed) {
            script.used.store(self.clock.fetch_add(1, Relaxed) + 1, Relaxed);
        }
    }

    /// Returns true if there is a script with this SHA-1.
    #[must_use]
    pub fn contains(&self, sha: &Sha1) -> bool {
        self.cache.read().scripts.contains_key(sha)
    }

    /// Adds a script that compiles, or returns the existing one.
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

    /// Removes all scripts. Running ones continue.
    pub fn flush(&self) {
        let old = std::mem::take(&mut *self.cache.write());
        drop(old);
    }

    /// Returns the number of scripts.
    #[must_use]
    pub fn len(&self) -> usize {
        self.cache.read().scripts.len()
    }

    /// Returns true if there are no scripts.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the number of scripts of EVAL that were evicted, because others were called after them.
    #[must_use]
    pub fn evicted(&self) -> u64 {
        self.evicted.load(Relaxed)
    }

    /// Returns their memory in bytes, without compiled forms in machines.
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

    /// Evicts the least recently called script of EVAL. Scans all of them, because new scripts are rare.
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
