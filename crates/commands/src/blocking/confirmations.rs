//! WAIT, and WAITAOF with replicas: suspends clients until replicas have acknowledged, and replies to them.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use tierce_output::Output;
use tierce_wire::resp::Proto;

use crate::answer::{Answer, Answered, Destination};
use crate::caller::Caller;
use crate::execute::Mode;
use crate::kernel::Kernel;
use crate::replication::{Confirmed, Replica, Waiting, Wanted};
use crate::reply::Reply;
use crate::waiting::{Awaited, ConnAddress, Patience, ReplyTo};

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
