//! WAIT, and WAITAOF with replicas: suspends clients until replicas have acknowledged, and replies to them.

use std::sync::Arc;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::atomic::fence;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use tierce_engine::feed::Reader;
use tierce_wire::resp::Proto;

use super::in_vain::{answer_with, unblock_by_role};
use crate::answer::Destination;
use crate::caller::Caller;
use crate::clients::Client;
use crate::durability::SyncPolicy;
use crate::kernel::Kernel;
use crate::pipeline::Mode;
use crate::replica_level::{HeldReplies, ReplicaLevel};
use crate::replication::{Asker, Confirmed, Replica, Waiting, Wanted};
use crate::reply::Reply;
use crate::waiting::{Awaited, ConnAddress, Patience, ReplyTo, Waits};

/// Interval at which a thread that waits for replicas checks if it gives up.
const LOOK_EVERY: Duration = Duration::from_millis(20);

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
            let reached = match wanted.is_logged() {
                false => replica.acknowledged(),
                true => replica.synced(),
            };
            replica.is_online() && offset.is_some_and(|offset| reached >= offset)
        };
        let is_here = match wanted {
            Wanted::Synced { here: Some(at), .. } => {
                self.durability.durable_log().is_some_and(|durable_log| durable_log.durable() >= at)
            }
            _ => false,
        };
        Confirmed { wanted, is_here, replicas: replicas.iter().filter(has_it).count() }
    }

    /// Replies with the confirmations of all earlier writes, once they suffice or the timeout ends. No shard may be
    /// locked, unless the client may not wait: it then gets the current number.
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
        let (to, proto) = (caller.reply_to(), caller.proto);
        self.list(Asker::Client { to, proto }, wanted);
        caller.wait_for(Awaited::Confirmations { to, patience });
        self.call_for_replicas();
        self.end_wait_of_replica(&caller.client);
    }

    /// Ends the wait of a client if the role has changed since its admission. One of two threads always notices: this
    /// one, which has listed the client, or the one that changes the role and ends all waits.
    fn end_wait_of_replica(&self, client: &Client) {
        fence(SeqCst);
        if self.role.is_replica() {
            unblock_by_role(self, client, false);
        }
    }

    /// Lists a client or thread that waits for all writes so far.
    fn list(&self, asker: Asker, wanted: Wanted) {
        let confirmations = &self.primary.confirmations;
        let position = self.feed.position();
        let mut state = confirmations.state.lock();
        state.waiting.push(Waiting { asker, wanted, position, offset: None });
        confirmations.has_waiting.store(true, Relaxed);
    }

    /// Sends replicas all writes so far at once, and asks for their offsets. Call this after a client has begun to
    /// wait.
    pub fn call_for_replicas(&self) {
        if self.bucket_goes_before_replicas() {
            self.bucket.hasten(&self.feed);
        }
        self.feed.call(Reader::Replicas);
    }

    /// Returns true if the stream has everything up to a position, or never gets it because a log has failed.
    #[must_use]
    pub(crate) fn streams_up_to(&self, position: u64) -> bool {
        !self.primary.is_active()
            || self.role.is_replica()
            || self.durability.log_has_failed()
            || self.primary.confirmations.offset_of(position).is_some()
    }

    /// Returns true if replicas get only writes that are in the bucket. A server that takes over from the bucket then
    /// has everything that they have.
    #[must_use]
    pub fn bucket_goes_before_replicas(&self) -> bool {
        let is_at_level = || self.config.live().appendfsync() == SyncPolicy::Bucket;
        self.bucket.is_on() && (is_at_level() || self.bucket.lease.clock().is_some())
    }

    /// Suspends the replies of a client until replicas have all writes so far. No shard may be locked. The caller
    /// must then call [`Kernel::call_for_replicas`], once for all clients of a turn.
    pub fn wait_for_replicas(&self, waits: &mut Waits, client: &Client, held: HeldReplies) {
        let to = ReplyTo { conn: client.conn, wait: waits.next_reply() };
        // The protocol is unused here, since the replies are written already.
        let asker = Asker::Client { to, proto: Proto::Resp2 };
        self.list(asker, Wanted::Level(held.level.unwrap_or_default()));
        let patience = Patience::Ms(self.config.live().durability_replicas_timeout());
        waits.hold(Awaited::Confirmations { to, patience }, held);
        self.end_wait_of_replica(client);
    }

    /// Waits on this thread until replicas have all writes so far, as long as replies wait for that. Returns true if
    /// they have them. It ends early when `gives_up` returns true, or the server becomes a replica. No shard may be
    /// locked.
    pub(crate) fn are_replicas_level(
        &self,
        level: ReplicaLevel,
        gives_up: impl Fn() -> bool,
    ) -> bool {
        let (told, is_told) = mpsc::channel();
        let id = thread::current().id();
        self.list(Asker::Thread { id, told }, Wanted::Level(level));
        self.call_for_replicas();
        // For the same reason as in `end_wait_of_replica`.
        fence(SeqCst);
        if self.role.is_replica() {
            self.primary.confirmations.dismiss_threads();
        }
        let patience = Duration::from_millis(self.config.live().durability_replicas_timeout());
        let begun = Instant::now();
        loop {
            let left = patience.saturating_sub(begun.elapsed());
            match is_told.recv_timeout(left.min(LOOK_EVERY)) {
                Ok(()) => return true,
                Err(RecvTimeoutError::Disconnected) => return false,
                Err(RecvTimeoutError::Timeout) if left.is_zero() || gives_up() => break,
                Err(RecvTimeoutError::Timeout) => {}
            }
        }
        match self.primary.confirmations.remove(|asker| asker.is_thread(id)) {
            Some(waiting) => self.confirmed_at_last(&waiting).is_enough(),
            // It was removed just now: told, or dismissed.
            None => is_told.recv().is_ok(),
        }
    }

    /// Answers the clients whose confirmations are complete.
    #[inline]
    pub fn serve_confirmed(&self) {
        self.failover.note_news();
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
                match &waiting.asker {
                    Asker::Client { to, proto } => {
                        let write = |reply: &mut Reply<'_>| confirmed.reply(reply);
                        answer_with(self, Destination::Reply(*to), *proto, write);
                    }
                    // It may have given up just now.
                    Asker::Thread { told, .. } => _ = told.send(()),
                }
            }
            !confirmed.is_enough()
        });
        confirmations.has_waiting.store(!state.waiting.is_empty(), Relaxed);
    }

    /// Stops the wait of a client for confirmations and returns the current ones, unless it is just being answered.
    pub fn stop_confirming(&self, to: ReplyTo) -> Option<Confirmed> {
        let waiting =
            self.primary.confirmations.remove(|asker| asker.is_client(|other| other == to))?;
        Some(self.confirmed_at_last(&waiting))
    }

    /// Does the same for a connection, which may wait for something else.
    pub(crate) fn unblock_confirming(
        &self,
        conn: ConnAddress,
    ) -> Option<(ReplyTo, Proto, Confirmed)> {
        let is_it = |asker: &Asker| asker.is_client(|to| to.conn == conn);
        let waiting = self.primary.confirmations.remove(is_it)?;
        let confirmed = self.confirmed_at_last(&waiting);
        match waiting.asker {
            Asker::Client { to, proto } => Some((to, proto, confirmed)),
            Asker::Thread { .. } => None,
        }
    }

    fn confirmed_at_last(&self, waiting: &Waiting) -> Confirmed {
        let offset = || self.primary.confirmations.offset_of(waiting.position);
        let offset = waiting.offset.or_else(offset);
        self.confirmed_of(offset, waiting.wanted, &self.primary.replicas())
    }
}
