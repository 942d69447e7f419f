//! The lease of the log in a bucket. With `bucket-takeover yes`, replies are only sent while it is valid.
//!
//! While another process may take over the log, this server's data are current only as long as it owns the log. So the
//! lease is checked for each reply **after** its request was executed. If a fresh clock shows that the lease is valid,
//! no other process could own the log until now, and the reply may be sent at any time. If the lease has expired, the
//! reply waits for a *proof*: the confirmation of an append that began after this check. An earlier append proves
//! nothing. It may have been stored before another process claimed the log, and the request may have run after that
//! claim. A deposed process sends no replies any more.
//!
//! The thread that writes the log reports when an append begins and when it is confirmed. Without a lease all replies
//! pass the check.

use std::fmt::Debug;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::time::Duration;

/// Reads the state of the lease from a clock that also advances while the process is stopped or the machine suspended.
/// Called once for each turn of a connection, so it takes no lock.
pub trait LeaseClock: Debug + Send + Sync {
    /// Returns the remaining validity; zero if the lease has expired.
    fn left(&self) -> Duration;

    /// Returns true if another process has claimed the log.
    fn is_deposed(&self) -> bool;
}

/// Result of the check for a reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Holding {
    /// The reply may be sent.
    Held,
    /// The reply waits for this proof.
    Over {
        /// Compared with [`LeaseCheck::proven`].
        proof: u64,
    },
    /// The reply is never sent.
    Deposed,
}

/// The check for replies. Appends are counted; the number of an append is the number of its proof.
#[derive(Debug, Default)]
pub struct LeaseCheck {
    clock: OnceLock<Box<dyn LeaseClock>>,
    /// Number of appends that have begun.
    begun: AtomicU64,
    /// Number of the last confirmed append.
    proven: AtomicU64,
    /// True while a reply waits for a proof.
    is_awaited: AtomicBool,
}

impl LeaseCheck {
    /// Binds replies to a lease from now on. Later calls have no effect.
    pub fn bind(&self, clock: Box<dyn LeaseClock>) {
        let _ = self.clock.set(clock);
    }

    /// Returns the lease that replies are bound to.
    #[inline]
    #[must_use]
    pub fn clock(&self) -> Option<&dyn LeaseClock> {
        self.clock.get().map(AsRef::as_ref)
    }

    /// Checks the lease for a reply whose request was executed.
    #[inline]
    #[must_use]
    pub fn holding(&self) -> Holding {
        match self.clock() {
            None => Holding::Held,
            Some(clock) => self.holding_by(clock),
        }
    }

    fn holding_by(&self, clock: &dyn LeaseClock) -> Holding {
        if clock.is_deposed() {
            return Holding::Deposed;
        }
        if !clock.left().is_zero() {
            return Holding::Held;
        }
        // The order matters: the end of the append whose number is read next sees that it is awaited.
        self.is_awaited.store(true, SeqCst);
        Holding::Over { proof: self.begun.load(SeqCst) + 1 }
    }

    /// Returns true if a reply that waits for this proof may be sent.
    #[must_use]
    pub fn is_proven(&self, proof: u64) -> bool {
        self.proven() >= proof || self.holding() == Holding::Held
    }

    /// Returns the number of the last proof.
    #[must_use]
    pub fn proven(&self) -> u64 {
        self.proven.load(SeqCst)
    }

    /// Notes that an append begins, and returns its number. Call it before the first attempt.
    pub fn note_begun(&self) -> u64 {
        self.begun.fetch_add(1, SeqCst) + 1
    }

    /// Notes that the append with this number is confirmed. Returns true if a reply waits for it.
    #[must_use]
    pub fn note_proven(&self, number: u64) -> bool {
        self.proven.fetch_max(number, SeqCst);
        self.is_awaited.swap(false, SeqCst)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[derive(Debug, Default)]
    struct Lease {
        left_ms: AtomicU64,
        is_deposed: AtomicBool,
    }

    impl LeaseClock for Arc<Lease> {
        fn left(&self) -> Duration {
            Duration::from_millis(self.left_ms.load(SeqCst))
        }

        fn is_deposed(&self) -> bool {
            self.is_deposed.load(SeqCst)
        }
    }

    #[test]
    fn without_a_lease_it_is_open() {
        let check = LeaseCheck::default();
        assert_eq!(check.holding(), Holding::Held);
        assert!(check.clock().is_none());
    }

    #[test]
    fn an_append_that_began_before_a_reply_proves_nothing_for_it() {
        let (check, lease) = (LeaseCheck::default(), Arc::<Lease>::default());
        check.bind(Box::new(Arc::clone(&lease)));
        let first = check.note_begun();
        let Holding::Over { proof } = check.holding() else { panic!("it is over") };
        assert!(check.note_proven(first), "it is awaited");
        assert!(!check.is_proven(proof));
        let second = check.note_begun();
        assert!(!check.is_proven(proof));
        assert!(check.note_proven(second), "the question has told that it is awaited");
        assert!(check.is_proven(proof));
        lease.left_ms.store(1, SeqCst);
        assert_eq!(check.holding(), Holding::Held);
        assert!(check.is_proven(u64::MAX));
        assert!(!check.note_proven(check.note_begun()), "nobody waits");
        lease.is_deposed.store(true, SeqCst);
        assert_eq!(check.holding(), Holding::Deposed);
    }
}
