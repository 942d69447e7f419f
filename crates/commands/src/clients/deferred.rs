//! Deferred results: the connection continues before the command has its result. `NBLPOP` and others use them.
//!
//! A client may have a limited number of pending results, numbered in order. A result goes to the client itself, or to
//! another client that accepts such results. It is cancelled when either of the two disconnects.
//!
//! **Invariant:** the list of a client is a leaf lock: no shard is locked while it is locked. So it may be locked while
//! shards are.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};

use parking_lot::Mutex;
use tierce_keyspace::Waiter;
use tierce_wire::resp::Proto;

use super::{Client, ClientFlags};
use crate::config::SyncPolicy;

/// Approximate memory of a result besides its call.
const RESULT_BYTES: usize = 400;

/// A pending result.
pub struct Deferred {
    /// The client that sent the command.
    pub from: Arc<Client>,
    /// The client that gets the result.
    pub to: Arc<Client>,
    /// Number of the result among those of the sender, starting at 1.
    pub number: u64,
    /// The name of the command.
    pub command: &'static str,
    /// The sender's durability policy, which replaces `appendfsync`.
    pub durability: Option<SyncPolicy>,
    /// Bytes of the call.
    bytes: usize,
    /// True if the result is encoded in RESP3.
    is_resp3: AtomicBool,
    phase: Mutex<Phase>,
}

/// Progress of the command.
enum Phase {
    /// Queued for a thread for long commands.
    Queued,
    /// Running, or about to look at its keys.
    Running,
    /// Blocked on keys.
    Waiting(Arc<Waiter>),
    /// The result was made and is on the way.
    Answered,
    /// The result has arrived, or was cancelled.
    Over,
}

/// Step that ends a command without its result.
pub enum Ending {
    /// No further step: it has not begun.
    Now,
    /// The caller has to cancel this waiter.
    Of(Arc<Waiter>),
    /// It is too late.
    TooLate,
}

/// Tells if a result is still wanted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Listener {
    /// The result is wanted.
    There,
    /// Its client has disconnected, or accepts no more results.
    Gone,
}

/// The client that causes the end of a command: it disconnects, or accepts no more results.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Leaving {
    /// Neither the sender nor the receiver.
    Neither,
    /// The sender, which is not the receiver.
    Sender,
    /// The receiver. It gets no result from now on.
    Receiver,
}

/// Reason why a command was refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NotTaken {
    /// Its client has the maximum of pending results.
    TooMany,
    /// The chosen receiver has disconnected, or does not accept results.
    NoListener,
}

/// Pending results of a client.
#[derive(Default)]
pub struct Results {
    /// Number of results that it has waited for so far.
    begun: u64,
    /// Results of its own commands.
    sent: BTreeMap<u64, Arc<Deferred>>,
    /// Results that it gets from commands of other clients, by sender and number.
    received: BTreeMap<(u64, u64), Arc<Deferred>>,
}

/// Number of pending results of all clients.
#[derive(Default)]
pub struct Pending(AtomicUsize);

impl Pending {
    /// Returns the number.
    pub fn get(&self) -> usize {
        self.0.load(Relaxed)
    }
}

/// Properties of a command with a deferred result.
pub struct Terms {
    /// Its name.
    pub command: &'static str,
    /// The client's durability policy, which replaces `appendfsync`.
    pub durability: Option<SyncPolicy>,
    /// Bytes of its call.
    pub bytes: usize,
    /// Maximum of pending results of one client.
    pub pending_max: usize,
}

impl Deferred {
    /// Creates a result that `from` waits for and `to` gets.
    ///
    /// # Errors
    /// If `from` has too many pending results, or `to` does not accept it.
    pub fn begin(
        from: &Arc<Client>,
        to: &Arc<Client>,
        terms: &Terms,
        pending: &Pending,
    ) -> Result<Arc<Self>, NotTaken> {
        let deferred = {
            let mut results = from.results.lock();
            results.check(terms.pending_max)?;
            results.begun += 1;
            let deferred = Arc::new(Self {
                from: Arc::clone(from),
                to: Arc::clone(to),
                number: results.begun,
                command: terms.command,
                durability: terms.durability,
                bytes: RESULT_BYTES + terms.bytes,
                is_resp3: AtomicBool::new(false),
                phase: Mutex::new(Phase::Running),
            });
            results.sent.insert(deferred.number, Arc::clone(&deferred));
            pending.0.fetch_add(1, Relaxed);
            deferred
        };
        if deferred.is_redirected() && !deferred.announce() {
            deferred.end(pending);
            return Err(NotTaken::NoListener);
        }
        Ok(deferred)
    }

    /// Returns true if another client gets the result.
    #[must_use]
    pub fn is_redirected(&self) -> bool {
        self.from.id != self.to.id
    }

    /// Fixes the protocol version of the result when it is made, to that of its receiver. The receiver may have changed
    /// its version when it gets the result.
    pub fn choose_proto(&self) -> Proto {
        let proto = self.to.proto();
        self.is_resp3.store(proto == Proto::Resp3, Relaxed);
        proto
    }

    /// Returns the protocol version of the result.
    #[must_use]
    pub fn proto(&self) -> Proto {
        if self.is_resp3.load(Relaxed) { Proto::Resp3 } else { Proto::Resp2 }
    }

    /// Adds it to the list of its receiver. Returns false if that does not accept it.
    fn announce(self: &Arc<Self>) -> bool {
        let mut results = self.to.results.lock();
        let accepts = self.to.accepts_results();
        if accepts {
            results.received.insert((self.from.id, self.number), Arc::clone(self));
        }
        accepts
    }

    /// Notes that it is queued for another thread.
    pub fn queue(&self) {
        self.advance(Phase::Queued);
    }

    /// Notes that it runs now. Tells if the result is still wanted.
    pub fn run(&self) -> Listener {
        self.advance(Phase::Running)
    }

    fn advance(&self, to: Phase) -> Listener {
        let mut phase = self.phase.lock();
        if matches!(*phase, Phase::Over) {
            return Listener::Gone;
        }
        *phase = to;
        Listener::There
    }

    /// Blocks it with the waiter from `register`, unless its result is no longer wanted.
    pub fn wait(&self, register: impl FnOnce() -> Arc<Waiter>) -> Listener {
        let mut phase = self.phase.lock();
        if matches!(*phase, Phase::Over) {
            return Listener::Gone;
        }
        *phase = Phase::Waiting(register());
        Listener::There
    }

    /// Notes that its result is on the way, unless it is no longer wanted.
    pub fn answer(&self) -> Listener {
        self.advance(Phase::Answered)
    }

    /// Returns the role of the client that leaves.
    #[must_use]
    pub fn leaving(&self, client: &Client) -> Leaving {
        if self.to.id == client.id { Leaving::Receiver } else { Leaving::Sender }
    }

    /// Returns true if it has its result, or was cancelled.
    #[must_use]
    pub fn is_over(&self) -> bool {
        matches!(*self.phase.lock(), Phase::Over)
    }

    /// Returns true if it is blocked on keys.
    pub fn is_waiting(&self) -> bool {
        matches!(*self.phase.lock(), Phase::Waiting(_))
    }

    /// Begins to end it without a result. When one of its clients leaves, the result of a running command is dropped. A
    /// result on the way can only be dropped by the receiver.
    pub fn cancel(&self, leaving: Leaving) -> Ending {
        let mut phase = self.phase.lock();
        match &*phase {
            Phase::Queued => {}
            Phase::Waiting(waiter) => return Ending::Of(Arc::clone(waiter)),
            Phase::Running if leaving != Leaving::Neither => {}
            Phase::Answered if leaving == Leaving::Receiver => {}
            Phase::Running | Phase::Answered | Phase::Over => return Ending::TooLate,
        }
        *phase = Phase::Over;
        Ending::Now
    }

    /// Ends it, with or without a result. Returns true if it was pending.
    pub fn end(&self, pending: &Pending) -> bool {
        *self.phase.lock() = Phase::Over;
        let was_pending = self.from.results.lock().sent.remove(&self.number).is_some();
        if was_pending {
            pending.0.fetch_sub(1, Relaxed);
        }
        if self.is_redirected() {
            self.to.results.lock().received.remove(&(self.from.id, self.number));
        }
        was_pending
    }
}

impl Results {
    /// Checks if one more may be pending.
    ///
    /// # Errors
    /// If the maximum is reached.
    pub fn check(&self, pending_max: usize) -> Result<(), NotTaken> {
        if self.sent.len() < pending_max { Ok(()) } else { Err(NotTaken::TooMany) }
    }

    /// Returns those of the client's own commands, in order.
    pub fn sent(&self) -> impl ExactSizeIterator<Item = &Arc<Deferred>> {
        self.sent.values()
    }

    /// Returns the result with this number.
    #[must_use]
    pub fn get(&self, number: u64) -> Option<&Arc<Deferred>> {
        self.sent.get(&number)
    }

    /// Returns those that other clients send to this one.
    pub fn received(&self) -> impl Iterator<Item = &Arc<Deferred>> {
        self.received.values()
    }

    /// Returns true if the client has no pending results.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.sent.is_empty() && self.received.is_empty()
    }

    /// Returns the memory that they use.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        self.sent.values().map(|deferred| deferred.bytes).sum()
    }
}

impl Client {
    /// Returns true if it accepts results of other clients' commands.
    #[must_use]
    pub fn accepts_results(&self) -> bool {
        self.has(ClientFlags::ACCEPTS_RESULTS) && !self.is_closing()
    }

    /// Starts or stops accepting such results. Returns the pending ones that it must no longer get.
    #[must_use]
    pub fn accept_results(&self, on: bool) -> Vec<Arc<Deferred>> {
        let results = self.results.lock();
        self.set(ClientFlags::ACCEPTS_RESULTS, on);
        if on { Vec::new() } else { results.received().cloned().collect() }
    }
}
