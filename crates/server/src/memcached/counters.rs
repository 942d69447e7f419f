//! The counters of commands that `stats` reports: one set per worker, written only by that worker.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Defines the enum and the names that `stats` uses, in its order.
macro_rules! counts {
    ($($(#[$doc:meta])* $count:ident = $name:literal,)*) => {
        /// Counter of `stats`.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        #[repr(usize)]
        pub enum Count {
            $($(#[$doc])* $count,)*
        }

        /// All counters with their names.
        pub const COUNTS: &[(Count, &str)] = &[$((Count::$count, $name),)*];
    };
}

counts! {
    /// Values that arrived to be stored.
    Set = "cmd_set",
    /// Flushes.
    Flush = "cmd_flush",
    /// Keys touched.
    Touch = "cmd_touch",
    /// `me`, the only one of the meta commands that memcached counts here.
    Meta = "cmd_meta",
    /// Keys read and found.
    GetHits = "get_hits",
    /// Keys read and not found.
    GetMisses = "get_misses",
    /// Keys among the misses that had expired.
    GetExpired = "get_expired",
    /// Always 0: flushed keys are removed at once.
    GetFlushed = "get_flushed",
    /// Deletions of missing keys.
    DeleteMisses = "delete_misses",
    /// Deletions.
    DeleteHits = "delete_hits",
    /// Increments of missing keys.
    IncrMisses = "incr_misses",
    /// Increments.
    IncrHits = "incr_hits",
    /// Decrements of missing keys.
    DecrMisses = "decr_misses",
    /// Decrements.
    DecrHits = "decr_hits",
    /// Stores by version of missing keys.
    CasMisses = "cas_misses",
    /// Stores by version.
    CasHits = "cas_hits",
    /// Stores by a version that the value no longer had.
    CasBadval = "cas_badval",
    /// Keys touched.
    TouchHits = "touch_hits",
    /// Touches of missing keys.
    TouchMisses = "touch_misses",
    /// Values refused for their size.
    TooLarge = "store_too_large",
    /// Values refused for lack of memory.
    NoMemory = "store_no_memory",
    /// Authentications.
    AuthCmds = "auth_cmds",
    /// Failed authentications.
    AuthErrors = "auth_errors",
    /// Values that arrived, but were not stored.
    Unstored = "",
    /// Values created by a read or an increment of a missing key.
    Created = "",
    /// Full batches, after which a connection continues with the next one.
    Yields = "conn_yields",
}

const LEN: usize = COUNTS.len();

/// Counters of one worker.
#[derive(Default)]
pub struct Counters([AtomicU64; LEN]);

impl Counters {
    /// Adds to a counter; only called by the worker that owns it.
    #[inline]
    pub fn add(&self, count: Count, by: u64) {
        let word = &self.0[count as usize];
        word.store(word.load(Relaxed).wrapping_add(by), Relaxed);
    }

    /// Subtracts one that was counted too early.
    pub fn take_back(&self, count: Count) {
        let word = &self.0[count as usize];
        word.store(word.load(Relaxed).wrapping_sub(1), Relaxed);
    }
}

/// Sums over all workers.
#[derive(Clone, Copy, Default)]
pub struct Totals([u64; LEN]);

impl Totals {
    pub fn sum(workers: &[Counters]) -> Self {
        let mut totals = Self::default();
        for counters in workers {
            for (sum, word) in totals.0.iter_mut().zip(&counters.0) {
                *sum = sum.wrapping_add(word.load(Relaxed));
            }
        }
        totals
    }

    /// Returns the difference to `baseline`.
    pub fn since(mut self, baseline: &Self) -> Self {
        for (sum, base) in self.0.iter_mut().zip(&baseline.0) {
            *sum = sum.wrapping_sub(*base);
        }
        self
    }

    pub fn get(&self, count: Count) -> u64 {
        self.0[count as usize]
    }

    /// Returns the number of keys read.
    pub fn gets(&self) -> u64 {
        self.get(Count::GetHits) + self.get(Count::GetMisses)
    }

    /// Returns the number of values stored.
    pub fn stored(&self) -> u64 {
        let came = self.get(Count::Set) + self.get(Count::Created);
        came.saturating_sub(self.get(Count::Unstored))
    }
}
