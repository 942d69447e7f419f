//! Clients that wait until replicas have acknowledged their writes: WAIT, and WAITAOF with replicas.
//!
//! The last write of a client is at a position of the feed. Its offset in the stream is known once the thread that appends
//! to the stream has passed that position ([`Confirmations::note_streamed`]); that thread then asks the replicas to
//! acknowledge. The thread that receives an acknowledgement (`Kernel::serve_confirmed`) replies to the clients that have
//! enough of them.
//!
//! **Invariant:** exactly one thread takes a client out of the list, and it ends the wait: a thread that replies, the worker
//! at the timeout, or the worker that closes the connection.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use parking_lot::Mutex;
use tierce_wire::resp::Proto;

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
}

#[derive(Debug)]
pub(crate) struct Waiting {
    pub(crate) to: ReplyTo,
    pub(crate) proto: Proto,
    pub(crate) wanted: Wanted,
    /// Of the feed.
    pub(crate) position: u64,
    /// Of the stream, once it is known.
    pub(crate) offset: Option<u64>,
}

impl Wanted {
    fn is_met_by(self, confirmed: Confirmed) -> bool {
        match self {
            Self::Received { replicas } => confirmed.replicas >= replicas,
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

    /// Replies to the command that has asked.
    pub fn reply(self, reply: &mut Reply<'_>) {
        if let Wanted::Synced { .. } = self.wanted {
            reply.array(2);
            reply.int(self.is_here.into());
        }
        reply.int(self.replicas as i64);
    }
}

impl Confirmations {
    /// The stream is written up to an offset, with what is up to a position of the feed. Whether replicas are to be
    /// asked for confirmations: clients wait for what is in it now.
    #[must_use]
    pub fn note_streamed(&self, position: u64, offset: u64) -> bool {
        let mut state = self.state.lock();
        state.streamed = (position, offset);
        let mut is_asked = false;
        for waiting in &mut state.waiting {
            if waiting.offset.is_none() && waiting.position <= position {
                waiting.offset = Some(offset);
                is_asked = true;
            }
        }
        is_asked
    }

    /// Takes a client out of the list, if it is there.
    pub(crate) fn remove(&self, is_it: impl Fn(ReplyTo) -> bool) -> Option<Waiting> {
        let mut state = self.state.lock();
        let index = state.waiting.iter().position(|waiting| is_it(waiting.to))?;
        let waiting = state.waiting.swap_remove(index);
        self.has_waiting.store(!state.waiting.is_empty(), Relaxed);
        Some(waiting)
    }

    pub(crate) fn offset_of(&self, position: u64) -> Option<u64> {
        let (streamed, offset) = self.state.lock().streamed;
        (position <= streamed).then_some(offset)
    }
}
