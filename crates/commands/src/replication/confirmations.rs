//! Clients that wait until replicas have acknowledged their writes: WAIT, and WAITAOF with replicas.
//!
//! The last write of a client is at a position of the feed. Its offset in the stream is known once the thread that
//! appends to the stream has passed that position ([`Confirmations::note_streamed`]); that thread then asks the
//! replicas to acknowledge. The thread that receives an acknowledgement (`Kernel::serve_confirmed`) replies to the
//! clients that have enough of them.
//!
//! A call without a connection waits on its own thread ([`Asker::Thread`]).
//!
//! **Invariant:** exactly one thread takes a client out of the list, and it ends the wait: a thread that replies, the
//! worker at the timeout, or the worker that closes the connection.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc::Sender;
use std::thread::ThreadId;

use parking_lot::Mutex;
use tierce_wire::resp::Proto;

use crate::replica_level::ReplicaLevel;
use crate::reply::Reply;
use crate::waiting::ReplyTo;

/// What a client wants to be confirmed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// That so many replicas have processed it.
    Received {
        /// How many.
        replicas: usize,
    },
    /// That it is on the device here, and at so many replicas.
    Synced {
        /// Where the log was, if there is one.
        here: Option<u64>,
        /// Whether it is to be on the device here.
        needs_here: bool,
        /// How many replicas.
        replicas: usize,
    },
    /// That replicas have it, before its own reply is sent.
    Level(ReplicaLevel),
}

/// What replicas are to be asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Asks {
    /// Nothing.
    Nothing,
    /// How far they are.
    Received,
    /// How far their logs are on the device, as soon as they are as far as now.
    Logged,
}

/// What is confirmed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Confirmed {
    pub(crate) wanted: Wanted,
    /// On the device here.
    pub(crate) is_here: bool,
    /// Replicas that have it.
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
    /// What is up to this position of the feed is up to this offset of the stream.
    streamed: (u64, u64),
    /// Replicas are to be asked.
    is_to_ask: bool,
    /// They are being asked: the question is not in the stream yet.
    is_asking: bool,
}

#[derive(Debug)]
pub(crate) struct Waiting {
    pub(crate) asker: Asker,
    pub(crate) wanted: Wanted,
    /// Of the feed.
    pub(crate) position: u64,
    /// Of the stream, once it is known.
    pub(crate) offset: Option<u64>,
}

/// Who waits, and how it hears of the end.
#[derive(Debug)]
pub(crate) enum Asker {
    /// A client, which gets an answer.
    Client { to: ReplyTo, proto: Proto },
    /// A thread. It hears that there is enough, or loses the sender if it is not to wait any more.
    Thread { id: ThreadId, told: Sender<()> },
}

impl Asker {
    /// Whether it is the client that gets this reply.
    pub(crate) fn is_client(&self, is_it: impl Fn(ReplyTo) -> bool) -> bool {
        matches!(self, Self::Client { to, .. } if is_it(*to))
    }

    pub(crate) fn is_thread(&self, thread: ThreadId) -> bool {
        matches!(self, Self::Thread { id, .. } if *id == thread)
    }
}

impl Wanted {
    /// Whether replicas have to have it on the device.
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
    /// Whether that is what was wanted.
    #[must_use]
    pub fn is_enough(self) -> bool {
        self.wanted.is_met_by(self)
    }

    /// `true` if replies wait for it that are written already.
    pub(crate) fn is_of_level(self) -> bool {
        matches!(self.wanted, Wanted::Level(_))
    }

    /// Replies to the command that has asked. A level has replies of its own, and needs no other.
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
    /// The stream is written up to an offset, with what is up to a position of the feed. What replicas are to be asked
    /// for: clients wait for what is in it now.
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

    /// The question to the replicas is in the stream.
    pub fn note_asked(&self) {
        self.state.lock().is_asking = false;
    }

    /// Takes one who waits out of the list, if it is there.
    pub(crate) fn remove(&self, is_it: impl Fn(&Asker) -> bool) -> Option<Waiting> {
        let mut state = self.state.lock();
        let index = state.waiting.iter().position(|waiting| is_it(&waiting.asker))?;
        let waiting = state.waiting.swap_remove(index);
        self.has_waiting.store(!state.waiting.is_empty(), Relaxed);
        Some(waiting)
    }

    /// The threads that wait do so no longer: the server has become a replica.
    pub(crate) fn dismiss_threads(&self) {
        let mut state = self.state.lock();
        state.waiting.retain(|waiting| matches!(waiting.asker, Asker::Client { .. }));
        self.has_waiting.store(!state.waiting.is_empty(), Relaxed);
    }

    /// Has replicas asked how far they are, when the stream goes on or the feed is called.
    pub fn ask(&self) {
        self.state.lock().is_to_ask = true;
    }

    /// Whether a question to the replicas is about to make the stream longer.
    #[must_use]
    pub fn is_asking(&self) -> bool {
        let state = self.state.lock();
        state.is_to_ask || state.is_asking
    }

    /// Whether a client, or a failover, waits until the stream has reached this position of the feed.
    #[must_use]
    pub fn is_awaited_up_to(&self, position: u64) -> bool {
        let state = self.state.lock();
        let is_next = |waiting: &Waiting| waiting.offset.is_none() && waiting.position <= position;
        state.is_to_ask || state.is_asking || state.waiting.iter().any(is_next)
    }

    /// The offset of the stream with all that is up to a position of the feed, if that is in it.
    #[must_use]
    pub fn offset_of(&self, position: u64) -> Option<u64> {
        let (streamed, offset) = self.state.lock().streamed;
        (position <= streamed).then_some(offset)
    }
}
