//! The statistics of `stats detail`: uses of keys, by their prefix before the first colon.
//!
//! Off until a client enables it. All workers count in one table under a lock, which a request takes only while this is
//! on.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use parking_lot::Mutex;

/// End of a prefix.
const DELIMITER: u8 = b':';

/// Maximum number of counted prefixes, so that keys cannot fill the memory with them.
const PREFIXES_MAX: usize = 10_000;

/// Use of a key.
#[derive(Clone, Copy)]
pub enum Use {
    /// It was read, and found or not.
    Get { hit: bool },
    /// A value arrived for it.
    Set,
    /// Its deletion was requested.
    Delete,
}

#[derive(Default)]
struct Counts {
    gets: u64,
    hits: u64,
    sets: u64,
    deletes: u64,
}

/// Uses of keys by prefix; see the module.
#[derive(Default)]
pub struct Prefixes {
    on: AtomicBool,
    counts: Mutex<BTreeMap<Vec<u8>, Counts>>,
}

impl Prefixes {
    /// Returns true if uses are counted.
    #[inline]
    pub fn is_on(&self) -> bool {
        self.on.load(Relaxed)
    }

    pub fn switch(&self, on: bool) {
        self.on.store(on, Relaxed);
    }

    /// Drops all counts.
    pub fn reset(&self) {
        self.counts.lock().clear();
    }

    /// Counts a use of a key, if it has a prefix.
    #[cold]
    pub fn count(&self, key: &[u8], used: Use) {
        let Some(end) = key.iter().position(|&byte| byte == DELIMITER) else { return };
        let prefix = &key[..end];
        let mut table = self.counts.lock();
        if !table.contains_key(prefix) {
            if table.len() >= PREFIXES_MAX {
                return;
            }
            table.insert(prefix.to_vec(), Counts::default());
        }
        let Some(counts) = table.get_mut(prefix) else { return };
        match used {
            Use::Get { hit } => {
                counts.gets += 1;
                counts.hits += u64::from(hit);
            }
            Use::Set => counts.sets += 1,
            Use::Delete => counts.deletes += 1,
        }
    }

    /// Returns the reply to `stats detail dump`.
    pub fn report(&self) -> String {
        let mut text = String::new();
        for (prefix, counts) in &*self.counts.lock() {
            let Counts { gets, hits, sets, deletes } = counts;
            let prefix = String::from_utf8_lossy(prefix);
            let _ =
                write!(text, "PREFIX {prefix} get {gets} hit {hits} set {sets} del {deletes}\r\n");
        }
        text.push_str("END\r\n");
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uses_are_counted_by_prefix_and_prefixes_are_limited() {
        let prefixes = Prefixes::default();
        for (key, used) in [
            (&b"a:1"[..], Use::Get { hit: true }),
            (b"a:2:3", Use::Get { hit: false }),
            (b"a", Use::Set),
            (b"b:", Use::Set),
            (b":", Use::Delete),
        ] {
            prefixes.count(key, used);
        }
        let expected = "PREFIX  get 0 hit 0 set 0 del 1\r\nPREFIX a get 2 hit 1 set 0 del 0\r\n\
                        PREFIX b get 0 hit 0 set 1 del 0\r\nEND\r\n";
        assert_eq!(prefixes.report(), expected);
        for n in 0..2 * PREFIXES_MAX {
            prefixes.count(format!("{n}:").as_bytes(), Use::Set);
        }
        assert_eq!(prefixes.counts.lock().len(), PREFIXES_MAX);
        prefixes.reset();
        assert_eq!(prefixes.report(), "END\r\n");
    }
}
