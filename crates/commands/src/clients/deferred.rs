//! Results that come later than their commands, while the connection goes on: those of `NBLPOP` and its relatives.
//!
//! A client may have a limited number of them pending, numbered in their order. Each goes to the client itself, or to
//! another client that accepts such results. When either of the two disconnects, the result is cancelled.
//!
//! **Invariant:** the list of a client is locked alone, and no shard is locked while it is. So it may be locked with
//! shards held.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};

use parking_lot::Mutex;
use tierce_keyspace::Waiter;
use tierce_wire::resp::Proto;

use super::{Client, ClientFlags};
use crate::config::SyncPolicy;

/// About what one takes beside its call.
const RESULT_BYTES: usize = 400;

/// A result that is still to come.
pub struct Deferred {
    /// The client that sent the command.
    pub from: Arc<Client>,
    /// The client that gets the result.
    pub to: Arc<Client>,
    /// Which of the results that the sender has waited for, from 1 on.
    pub number: u64,
    /// The name of the command.
    pub command: &'static str,
    /// What the sender has asked for in place of `appendfsync`.
    pub durability: Option<SyncPolicy>,
    /// Bytes of the call.
    bytes: usize,
    /// The result is encoded in RESP3.
    is_resp3: AtomicBool,
    phase: Mutex<Phase>,
}

/// How far the command got.
enum Phase {
    /// It is to run on a thread for long commands.
    Queued,
    /// It is running, or about to look at its keys.
    Running,
    /// It waits for keys.
    Waiting(Arc<Waiter>),
    /// Its result is on the way.
    Answered,
    /// Its result has come, or comes no more.
    Over,
}

/// What can be done to end a command without its result.
pub enum Ending {
    /// Nothing more: it has not begun.
    Now,
    /// This waiter is to be cancelled.
    Of(Arc<Waiter>),
    /// It is too late.
    TooLate,
}

/// Whether a result is still wanted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Listener {
    /// It is.
    There,
    /// Its client has gone, or wants no more results.
    Gone,
}

/// Who has gone, or says that it wants no more results, when a command is ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Leaving {
    /// Neither the sender nor the receiver.
    Neither,
    /// The sender, which is not the receiver.
    Sender,
    /// The receiver: it gets no result from now on.
    Receiver,
}

/// Why a command was not taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NotTaken {
    /// Its client has so many pending already.
    TooMany,
    /// The client that was to get the result has gone, or does not accept it.
    NoListener,
}

/// The results that concern a client.
#[derive(Default)]
pub struct Results {
    /// How many it has waited for so far.
    begun: u64,
    /// Those of its own commands.
    sent: BTreeMap<u64, Arc<Deferred>>,
    /// Those that commands of others send to it, by sender and number.
    received: BTreeMap<(u64, u64), Arc<Deferred>>,
}

/// How many results of all clients are pending.
#[derive(Default)]
pub struct Pending(AtomicUsize);

impl Pending {
    /// The number.
    pub fn get(&self) -> usize {
        self.0.load(Relaxed)
    }
}

/// What is known of a command whose result comes later.
pub struct Terms {
    /// Its name.
    pub command: &'static str,
    /// What its client has asked for in place of `appendfsync`.
    pub durability: Option<SyncPolicy>,
    /// Bytes of its call.
    pub bytes: usize,
    /// So many results of one client may be pending.
    pub pending_max: usize,
}

impl Deferred {
    /// One that `from` waits for and `to` gets.
    ///
    /// # Errors
    /// When that is not allowed.
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

    /// Whether another client gets the result.
    #[must_use]
    pub fn is_redirected(&self) -> bool {
        self.from.id != self.to.id
    }

    /// Chooses the protocol version of the result when it is made: that of its receiver, which may have chosen another
    /// one when it gets it.
    pub fn choose_proto(&self) -> Proto {
        let proto = self.to.proto();
        self.is_resp3.store(proto == Proto::Resp3, Relaxed);
        proto
    }

    /// The protocol version of the result.
    #[must_use]
    pub fn proto(&self) -> Proto {
        if self.is_resp3.load(Relaxed) { Proto::Resp3 } else { Proto::Resp2 }
    }

    /// Enters it into the list of the client that gets the result. Whether that accepts it.
    fn announce(self: &Arc<Self>) -> bool {
        let mut results = self.to.results.lock();
        let accepts = self.to.accepts_results();
        if accepts {
            results.received.insert((self.from.id, self.number), Arc::clone(self));
        }
        accepts
    }

    /// It is to run on another thread.
    pub fn queue(&self) {
        self.advance(Phase::Queued);
    }

    /// It runs now. Whether anybody still wants its result.
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

    /// It waits as `register` says, unless its result is not wanted.
    pub fn wait(&self, register: impl FnOnce() -> Arc<Waiter>) -> Listener {
        let mut phase = self.phase.lock();
        if matches!(*phase, Phase::Over) {
            return Listener::Gone;
        }
        *phase = Phase::Waiting(register());
        Listener::There
    }

    /// Its result is on the way, unless it is not wanted.
    pub fn answer(&self) -> Listener {
        self.advance(Phase::Answered)
    }

    /// Who leaves when one of its clients goes.
    #[must_use]
    pub fn leaving(&self, client: &Client) -> Leaving {
        if self.to.id == client.id { Leaving::Receiver } else { Leaving::Sender }
    }

    /// Whether it has its result, or gets none.
    #[must_use]
    pub fn is_over(&self) -> bool {
        matches!(*self.phase.lock(), Phase::Over)
    }

    /// Whether it waits for keys.
    pub fn is_waiting(&self) -> bool {
        matches!(*self.phase.lock(), Phase::Waiting(_))
    }

    /// Begins to end it without a result. When one of its clients leaves, the result of a command that is running is
    /// dropped; one on the way is for the receiver alone to drop.
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

    /// Its result has come, or comes no more. Whether it was pending.
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
    /// Whether one more may be pending.
    ///
    /// # Errors
    /// When not.
    pub fn check(&self, pending_max: usize) -> Result<(), NotTaken> {
        if self.sent.len() < pending_max { Ok(()) } else { Err(NotTaken::TooMany) }
    }

    /// Those of the client's own commands, in their order.
    pub fn sent(&self) -> impl ExactSizeIterator<Item = &Arc<Deferred>> {
        self.sent.values()
    }

    /// The one with this number.
    #[must_use]
    pub fn get(&self, number: u64) -> Option<&Arc<Deferred>> {
        self.sent.get(&number)
    }

    /// Those that others send to the client.
    pub fn received(&self) -> impl Iterator<Item = &Arc<Deferred>> {
        self.received.values()
    }

    /// Whether the client waits for none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.sent.is_empty() && self.received.is_empty()
    }

    /// Memory that they occupy.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        self.sent.values().map(|deferred| deferred.bytes).sum()
    }
}

impl Client {
    /// Whether results of other clients' commands may be sent to it.
    #[must_use]
    pub fn accepts_results(&self) -> bool {
        self.has(ClientFlags::ACCEPTS_RESULTS) && !self.is_closing()
    }

    /// Has it accept such results, or no more of them. Returns those that it was to get and must not.
    #[must_use]
    pub fn accept_results(&self, on: bool) -> Vec<Arc<Deferred>> {
        let results = self.results.lock();
        self.set(ClientFlags::ACCEPTS_RESULTS, on);
        if on { Vec::new() } else { results.received().cloned().collect() }
    }
}
