//! The counters of commands that `stats` reports: one set per worker, written only by that worker.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Makes the enum and the names that `stats` uses, in its order.
macro_rules! counts {
    ($($(#[$doc:meta])* $count:ident = $name:literal,)*) => {
        /// What is counted.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        #[repr(usize)]
        pub enum Count {
            $($(#[$doc])* $count,)*
        }

        /// All of them with their names.
        pub const COUNTS: &[(Count, &str)] = &[$((Count::$count, $name),)*];
    };
}

counts! {
    /// Values that came to be stored.
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
    /// Of these, keys that were there, but over.
    GetExpired = "get_expired",
    /// Nothing: what is flushed is gone at once.
    GetFlushed = "get_flushed",
    /// Deletions of nothing.
    DeleteMisses = "delete_misses",
    /// Deletions.
    DeleteHits = "delete_hits",
    /// Increments of nothing.
    IncrMisses = "incr_misses",
    /// Increments.
    IncrHits = "incr_hits",
    /// Decrements of nothing.
    DecrMisses = "decr_misses",
    /// Decrements.
    DecrHits = "decr_hits",
    /// Stores by version where nothing was.
    CasMisses = "cas_misses",
    /// Stores by version.
    CasHits = "cas_hits",
    /// Stores by a version that the value no longer had.
    CasBadval = "cas_badval",
    /// Keys touched.
    TouchHits = "touch_hits",
    /// Touches of nothing.
    TouchMisses = "touch_misses",
    /// Values refused for their size.
    TooLarge = "store_too_large",
    /// Values refused for lack of memory.
    NoMemory = "store_no_memory",
    /// Authentications.
    AuthCmds = "auth_cmds",
    /// Failed ones.
    AuthErrors = "auth_errors",
    /// Values that came, but were not stored.
    Unstored = "",
    /// Values that a read or an increment of nothing made.
    Created = "",
    /// Full batches, after which a connection goes on with the next one.
    Yields = "conn_yields",
}

const LEN: usize = COUNTS.len();

/// The counters of one worker.
#[derive(Default)]
pub struct Counters([AtomicU64; LEN]);

impl Counters {
    /// Adds; only by the worker that owns them.
    #[inline]
    pub fn add(&self, count: Count, by: u64) {
        let word = &self.0[count as usize];
        word.store(word.load(Relaxed).wrapping_add(by), Relaxed);
    }

    /// Takes one back that was counted too early.
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

    /// Less what was counted up to `baseline`.
    pub fn since(mut self, baseline: &Self) -> Self {
        for (sum, base) in self.0.iter_mut().zip(&baseline.0) {
            *sum = sum.wrapping_sub(*base);
        }
        self
    }

    pub fn get(&self, count: Count) -> u64 {
        self.0[count as usize]
    }

    /// Keys read.
    pub fn gets(&self) -> u64 {
        self.get(Count::GetHits) + self.get(Count::GetMisses)
    }

    /// Values stored.
    pub fn stored(&self) -> u64 {
        let came = self.get(Count::Set) + self.get(Count::Created);
        came.saturating_sub(self.get(Count::Unstored))
    }
}
