//! Clients that wait until replicas have acknowledged their writes: WAIT, and WAITAOF with replicas.
//!
//! The last write of a client has a position in the feed. Its offset in the stream is known when the thread that
//! appends to the stream has passed that position ([`Confirmations::note_streamed`]). This thread then asks the
//! replicas to acknowledge. The thread that receives an acknowledgement (`Kernel::serve_confirmed`) replies to the
//! clients that now have enough.
//!
//! A call without a connection waits on its own thread ([`Asker::Thread`]).
//!
//! **Invariant:** exactly one thread removes a client from the list, and this thread ends the wait: a thread that
//! replies, the worker at the timeout, or the worker that closes the connection.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc::Sender;
use std::thread::ThreadId;

use parking_lot::Mutex;
use tierce_wire::resp::Proto;

use crate::replica_level::ReplicaLevel;
use crate::reply::Reply;
use crate::waiting::ReplyTo;

/// The confirmation that a client waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// A number of replicas has processed the write.
    Received {
        /// Number of replicas.
        replicas: usize,
    },
    /// The write is on disk here, and at a number of replicas.
    Synced {
        /// Position in the log to be synced here, if there is a log.
        here: Option<u64>,
        /// True if it must be on disk here.
        needs_here: bool,
        /// Number of replicas.
        replicas: usize,
    },
    /// Replicas have the write, before its own reply is sent.
    Level(ReplicaLevel),
}

/// Question for the replicas.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Asks {
    /// Nothing.
    Nothing,
    /// Their current offset.
    Received,
    /// The offset up to which their logs are on disk, once that includes the current end of the stream.
    Logged,
}

/// State of confirmations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Confirmed {
    pub(crate) wanted: Wanted,
    /// True if it is on disk here.
    pub(crate) is_here: bool,
    /// Number of replicas that have it.
    pub(crate) replicas: usize,
}

/// Clients that wait for confirmations.
#[derive(Debug, Default)]
pub struct Confirmations {
    pub(crate) state: Mutex<State>,
    pub(crate) has_waiting: AtomicBool,
}

#[derive(Debug, Default)]
pub(crate) struct State {
    pub(crate) waiting: Vec<Waiting>,
    /// Position in the feed, and the offset in the stream that corresponds to it.
    streamed: (u64, u64),
    /// True if replicas have to be asked.
    is_to_ask: bool,
    /// True while the question is not in the stream yet.
    is_asking: bool,
}

#[derive(Debug)]
pub(crate) struct Waiting {
    pub(crate) asker: Asker,
    pub(crate) wanted: Wanted,
    /// Position in the feed.
    pub(crate) position: u64,
    /// Offset in the stream, once it is known.
    pub(crate) offset: Option<u64>,
}

/// Waiting party, and its notification.
#[derive(Debug)]
pub(crate) enum Asker {
    /// A client, which gets an answer.
    Client { to: ReplyTo, proto: Proto },
    /// A thread. It gets a message when there is enough. If the sender is dropped, it stops waiting.
    Thread { id: ThreadId, told: Sender<()> },
}

impl Asker {
    /// Returns true if it is the client that gets this reply.
    pub(crate) fn is_client(&self, is_it: impl Fn(ReplyTo) -> bool) -> bool {
        matches!(self, Self::Client { to, .. } if is_it(*to))
    }

    pub(crate) fn is_thread(&self, thread: ThreadId) -> bool {
        matches!(self, Self::Thread { id, .. } if *id == thread)
    }
}

impl Wanted {
    /// Returns true if replicas must have it on disk.
    pub(crate) fn is_logged(self) -> bool {
        matches!(self, Self::Synced { .. } | Self::Level(ReplicaLevel { is_logged: true, .. }))
    }

    fn asks(self) -> Asks {
        match self {
            Self::Synced { replicas: 0, .. } => Asks::Nothing,
            _ if self.is_logged() => Asks::Logged,
            _ => Asks::Received,
        }
    }

    fn is_met_by(self, confirmed: Confirmed) -> bool {
        match self {
            Self::Received { replicas } | Self::Level(ReplicaLevel { replicas, .. }) => {
                confirmed.replicas >= replicas
            }
            Self::Synced { needs_here, replicas, .. } => {
                (confirmed.is_here || !needs_here) && confirmed.replicas >= replicas
            }
        }
    }
}

impl Confirmed {
    /// Returns true if the wanted confirmation is reached.
    #[must_use]
    pub fn is_enough(self) -> bool {
        self.wanted.is_met_by(self)
    }

    /// Returns true if finished replies wait for it.
    pub(crate) fn is_of_level(self) -> bool {
        matches!(self.wanted, Wanted::Level(_))
    }

    /// Replies to the command that has asked. A level has replies of its own. It only gets the error, if any.
    pub fn reply(self, reply: &mut Reply<'_>) {
        if let Wanted::Level(level) = self.wanted {
            if !self.is_enough() {
                reply.error(&level.error());
            }
            return;
        }
        if let Wanted::Synced { .. } = self.wanted {
            reply.array(2);
            reply.int(self.is_here.into());
        }
        reply.int(self.replicas as i64);
    }
}

impl Confirmations {
    /// Notes that the stream has reached an offset, and contains everything up to a position in the feed. Returns the
    /// question for replicas, if clients wait for changes that are now in the stream.
    #[must_use]
    pub fn note_streamed(&self, position: u64, offset: u64) -> Asks {
        let mut state = self.state.lock();
        state.streamed = (position, offset);
        let mut asks = match std::mem::take(&mut state.is_to_ask) {
            true => Asks::Received,
            false => Asks::Nothing,
        };
        for waiting in &mut state.waiting {
            if waiting.offset.is_none() && waiting.position <= position {
                waiting.offset = Some(offset);
                asks = asks.max(waiting.wanted.asks());
            }
        }
        state.is_asking = asks != Asks::Nothing;
        asks
    }

    /// Notes that the question to the replicas is in the stream.
    pub fn note_asked(&self) {
        self.state.lock().is_asking = false;
    }

    /// Removes a waiting party from the list, if it is there.
    pub(crate) fn remove(&self, is_it: impl Fn(&Asker) -> bool) -> Option<Waiting> {
        let mut state = self.state.lock();
        let index = state.waiting.iter().position(|waiting| is_it(&waiting.asker))?;
        let waiting = state.waiting.swap_remove(index);
        self.has_waiting.store(!state.waiting.is_empty(), Relaxed);
        Some(waiting)
    }

    /// Makes all waiting threads stop, because the server has become a replica.
    pub(crate) fn dismiss_threads(&self) {
        let mut state = self.state.lock();
        state.waiting.retain(|waiting| matches!(waiting.asker, Asker::Client { .. }));
        self.has_waiting.store(!state.waiting.is_empty(), Relaxed);
    }

    /// Requests that replicas are asked for their offset, when the stream continues or the feed is called.
    pub fn ask(&self) {
        self.state.lock().is_to_ask = true;
    }

    /// Returns true if a question to the replicas is about to extend the stream.
    #[must_use]
    pub fn is_asking(&self) -> bool {
        let state = self.state.lock();
        state.is_to_ask || state.is_asking
    }

    /// Returns true if a client, or a failover, waits until the stream has reached this position in the feed.
    #[must_use]
    pub fn is_awaited_up_to(&self, position: u64) -> bool {
        let state = self.state.lock();
        let is_next = |waiting: &Waiting| waiting.offset.is_none() && waiting.position <= position;
        state.is_to_ask || state.is_asking || state.waiting.iter().any(is_next)
    }

    /// Returns the offset in the stream after a position in the feed, if the stream has reached that position.
    #[must_use]
    pub fn offset_of(&self, position: u64) -> Option<u64> {
        let (streamed, offset) = self.state.lock().streamed;
        (position <= streamed).then_some(offset)
    }
}
