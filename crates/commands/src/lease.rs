//! The lease of the log in a bucket, to which replies are bound with `bucket-takeover yes`.
//!
//! While another process may take the log over, what this one shows is true only as long as it owns the log. So each
//! reply passes a gate **after** its request was executed: if a fresh clock shows that the lease is held, no other
//! process could own the log up to this moment, and the reply may leave whenever it gets to. If the lease is over, the
//! reply waits for a *proof*: the confirmation of an append that began after the reply had come to the gate. An append
//! that began earlier proves nothing, since it may have landed before another process claimed the log, and the request
//! may have run afterwards. A process that is deposed has no replies any more.
//!
//! The thread that writes the log tells the gate when an append begins and when it is confirmed. Without a lease the gate
//! is open.

use std::fmt::Debug;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::time::Duration;

/// Says by a fresh clock, one that goes on while the process is stopped and the machine suspended, what the lease is.
/// Asked once for each turn of a connection, so it takes no lock.
pub trait LeaseClock: Debug + Send + Sync {
    /// How long it lasts; zero if it is over.
    fn left(&self) -> Duration;

    /// Whether another process has claimed the log.
    fn is_deposed(&self) -> bool;
}

/// What the gate says to a reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Holding {
    /// It may leave.
    Held,
    /// It waits for this proof.
    Over {
        /// Compared with [`LeaseGate::proven`].
        proof: u64,
    },
    /// It never leaves.
    Deposed,
}

/// The gate. Appends are counted, and the number of an append is that of its proof.
#[derive(Debug, Default)]
pub struct LeaseGate {
    clock: OnceLock<Box<dyn LeaseClock>>,
    /// Appends that have begun.
    begun: AtomicU64,
    /// The last one that is confirmed.
    proven: AtomicU64,
    /// A reply waits for a proof.
    is_awaited: AtomicBool,
}

impl LeaseGate {
    /// Binds replies to a lease from now on. The first one counts.
    pub fn bind(&self, clock: Box<dyn LeaseClock>) {
        let _ = self.clock.set(clock);
    }

    /// The lease that replies are bound to.
    #[inline]
    #[must_use]
    pub fn clock(&self) -> Option<&dyn LeaseClock> {
        self.clock.get().map(AsRef::as_ref)
    }

    /// Asks for a reply whose request was executed.
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
        // In this order: the end of the append whose number is read next sees that it is awaited.
        self.is_awaited.store(true, SeqCst);
        Holding::Over { proof: self.begun.load(SeqCst) + 1 }
    }

    /// Whether a reply that waits for this proof may leave.
    #[must_use]
    pub fn is_proven(&self, proof: u64) -> bool {
        self.proven() >= proof || self.holding() == Holding::Held
    }

    /// The last proof that is there.
    #[must_use]
    pub fn proven(&self) -> u64 {
        self.proven.load(SeqCst)
    }

    /// An append begins: its number. To be called before its first attempt.
    pub fn note_begun(&self) -> u64 {
        self.begun.fetch_add(1, SeqCst) + 1
    }

    /// An append with this number is confirmed. Whether a reply waits for that.
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
        let gate = LeaseGate::default();
        assert_eq!(gate.holding(), Holding::Held);
        assert!(gate.clock().is_none());
    }

    #[test]
    fn an_append_that_began_before_a_reply_proves_nothing_for_it() {
        let (gate, lease) = (LeaseGate::default(), Arc::<Lease>::default());
        gate.bind(Box::new(Arc::clone(&lease)));
        let first = gate.note_begun();
        let Holding::Over { proof } = gate.holding() else { panic!("it is over") };
        assert!(gate.note_proven(first), "it is awaited");
        assert!(!gate.is_proven(proof));
        let second = gate.note_begun();
        assert!(!gate.is_proven(proof));
        assert!(gate.note_proven(second), "the question has told that it is awaited");
        assert!(gate.is_proven(proof));
        lease.left_ms.store(1, SeqCst);
        assert_eq!(gate.holding(), Holding::Held);
        assert!(gate.is_proven(u64::MAX));
        assert!(!gate.note_proven(gate.note_begun()), "nobody waits");
        lease.is_deposed.store(true, SeqCst);
        assert_eq!(gate.holding(), Holding::Deposed);
    }
}
