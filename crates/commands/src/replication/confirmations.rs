//! Clients that wait until replicas have confirmed what was written: WAIT, and WAITAOF with replicas.
//!
//! What a client has written is at a position of the feed. Where that is in the stream is known when the thread that
//! appends to the stream has passed it ([`Confirmations::note_streamed`]), which then asks the replicas to confirm. A
//! confirmation ([`Kernel::serve_confirmed`]) answers those clients that have enough of them, from whichever thread it
//! comes in.
//!
//! **Invariant:** who takes a client out of the list answers it: a thread that serves it, its worker when its patience
//! ends, or the end of its connection.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use parking_lot::Mutex;
use tierce_output::Output;
use tierce_wire::resp::Proto;

use super::Replica;
use crate::answer::{Answer, Answered, Destination};
use crate::caller::Caller;
use crate::execute::Mode;
use crate::kernel::Kernel;
use crate::reply::Reply;
use crate::waiting::{Awaited, ConnAddress, Patience, ReplyTo};

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
    wanted: Wanted,
    /// On the device here.
    is_here: bool,
    /// Replicas that have it.
    replicas: usize,
}

/// Clients that wait for confirmations.
#[derive(Debug, Default)]
pub struct Confirmations {
    state: Mutex<State>,
    has_waiting: AtomicBool,
}

#[derive(Debug, Default)]
struct State {
    waiting: Vec<Waiting>,
    /// What is up to this position of the feed is up to this offset of the stream.
    streamed: (u64, u64),
}

#[derive(Debug)]
struct Waiting {
    to: ReplyTo,
    proto: Proto,
    wanted: Wanted,
    /// Of the feed.
    position: u64,
    /// Of the stream, once it is known.
    offset: Option<u64>,
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
    fn remove(&self, is_it: impl Fn(ReplyTo) -> bool) -> Option<Waiting> {
        let mut state = self.state.lock();
        let index = state.waiting.iter().position(|waiting| is_it(waiting.to))?;
        let waiting = state.waiting.swap_remove(index);
        self.has_waiting.store(!state.waiting.is_empty(), Relaxed);
        Some(waiting)
    }

    fn offset_of(&self, position: u64) -> Option<u64> {
        let (streamed, offset) = self.state.lock().streamed;
        (position <= streamed).then_some(offset)
    }
}

impl Kernel {
    fn confirmed(&self, wanted: Wanted) -> Confirmed {
        let offset = self.primary.confirmations.offset_of(self.feed.position());
        self.confirmed_of(offset, wanted, &self.primary.replicas())
    }

    fn confirmed_of(
        &self,
        offset: Option<u64>,
        wanted: Wanted,
        replicas: &[Arc<Replica>],
    ) -> Confirmed {
        let has_it = |replica: &&Arc<Replica>| {
            let reached = match wanted {
                Wanted::Received { .. } => replica.acknowledged(),
                Wanted::Synced { .. } => replica.synced(),
            };
            replica.is_online() && offset.is_some_and(|offset| reached >= offset)
        };
        let is_here = match wanted {
            Wanted::Synced { here: Some(at), .. } => {
                self.durability.wal_handle().is_some_and(|wal_handle| wal_handle.durable() >= at)
            }
            _ => false,
        };
        Confirmed { wanted, is_here, replicas: replicas.iter().filter(has_it).count() }
    }

    /// Replies what is confirmed of all that was written so far, once that is enough or the patience has ended. To be
    /// called without a locked shard, unless the client may not wait: then it gets what there is.
    pub(crate) fn confirm(
        &self,
        caller: &mut Caller,
        mode: Mode<'_>,
        reply: &mut Reply<'_>,
        wanted: Wanted,
        patience: Patience,
    ) {
        let confirmed = self.confirmed(wanted);
        if confirmed.is_enough() || !mode.may_wait() {
            confirmed.reply(reply);
        } else {
            self.wait_for_confirmations(caller, wanted, patience);
        }
    }

    fn wait_for_confirmations(&self, caller: &mut Caller, wanted: Wanted, patience: Patience) {
        let confirmations = &self.primary.confirmations;
        let (to, proto) = (caller.reply_to(), caller.proto);
        let position = self.feed.position();
        let mut state = confirmations.state.lock();
        state.waiting.push(Waiting { to, proto, wanted, position, offset: None });
        confirmations.has_waiting.store(true, Relaxed);
        drop(state);
        caller.wait_for(Awaited::Confirmations { to, patience });
        // It finds out where that is in the stream, and asks the replicas.
        self.feed.call();
    }

    /// Answers the clients that have got what they wait for.
    #[inline]
    pub fn serve_confirmed(&self) {
        if self.primary.confirmations.has_waiting.load(Relaxed) {
            self.answer_confirmed();
        }
    }

    #[cold]
    fn answer_confirmed(&self) {
        let replicas = self.primary.replicas();
        let confirmations = &self.primary.confirmations;
        let mut state = confirmations.state.lock();
        state.waiting.retain(|waiting| {
            let confirmed = self.confirmed_of(waiting.offset, waiting.wanted, &replicas);
            if confirmed.is_enough() {
                self.answer_with(waiting.to, waiting.proto, confirmed);
            }
            !confirmed.is_enough()
        });
        confirmations.has_waiting.store(!state.waiting.is_empty(), Relaxed);
    }

    fn answer_with(&self, to: ReplyTo, proto: Proto, confirmed: Confirmed) {
        let mut output = Output::new();
        confirmed.reply(&mut Reply::new(&mut output, proto));
        let (to, reply) = (Destination::Reply(to), Answered::With(output.take()));
        self.answer(Answer { to, reply, logged_at: None, invalidation: None, caller: None });
    }

    /// Takes a client from those that wait for confirmations: what there is so far, unless it is just being answered.
    pub(crate) fn stop_confirming(&self, to: ReplyTo) -> Option<Confirmed> {
        let waiting = self.primary.confirmations.remove(|other| other == to)?;
        Some(self.confirmed_at_last(&waiting))
    }

    /// The same for a connection, which may wait for something else.
    pub(crate) fn unblock_confirming(
        &self,
        conn: ConnAddress,
    ) -> Option<(ReplyTo, Proto, Confirmed)> {
        let waiting = self.primary.confirmations.remove(|to| to.conn == conn)?;
        Some((waiting.to, waiting.proto, self.confirmed_at_last(&waiting)))
    }

    fn confirmed_at_last(&self, waiting: &Waiting) -> Confirmed {
        let offset = || self.primary.confirmations.offset_of(waiting.position);
        let offset = waiting.offset.or_else(offset);
        self.confirmed_of(offset, waiting.wanted, &self.primary.replicas())
    }
}
