//! A connection of any protocol, and the delivery of deferred replies to it.

use std::sync::Arc;

use tierce_keyspace::forget_waiter;
use tierce_net::{ConnMut, Ticket};
use tierce_output::{Output, OutputClass};
use tierce_wire::resp::Proto;

use crate::acl::Rights;
use crate::answer::{Answer, Answered, Destination};
use crate::blocking;
use crate::caller::Caller;
use crate::clients::{Client, ClientFlags, Deferred, REPLICAS, SUBSCRIBERS, output_class};
use crate::commands::replica_level::HeldReplies;
use crate::durability::SyncPolicy;
use crate::kernel::Kernel;
use crate::memcached;
use crate::pedrokv;
use crate::reply::Reply;
use crate::results;
use crate::session::Session;
use crate::waiting::{Awaited, Waits};

/// Session of any protocol. The discriminant has a byte of its own: each request reads it several times, and a niche in
/// the states of [`Waits`] takes twice as long to read.
#[repr(u8)]
pub enum AnySession {
    /// Session that speaks RESP.
    Resp(Session),
    /// Session that speaks a memcached protocol.
    Memcached(memcached::Session),
    /// Session that speaks PedroKV.
    PedroKv(pedrokv::Session),
}

impl AnySession {
    /// Returns the part that other threads may see.
    #[inline]
    pub fn client(&self) -> &Arc<Client> {
        match self {
            Self::Resp(session) => &session.caller.client,
            Self::Memcached(session) => &session.client,
            Self::PedroKv(session) => &session.client,
        }
    }

    /// Makes it a user that needs no password.
    pub fn become_user(&mut self, rights: Rights) {
        match self {
            Self::Resp(session) => session.caller.become_user(rights, true),
            Self::Memcached(session) => session.become_user(rights),
            Self::PedroKv(session) => session.become_user(rights),
        }
    }

    /// Returns the state of its waiting.
    #[inline]
    pub fn waits(&mut self) -> &mut Waits {
        match self {
            Self::Resp(session) => &mut session.caller.waits,
            Self::Memcached(session) => &mut session.waits,
            Self::PedroKv(session) => &mut session.waits,
        }
    }

    /// Returns the durability level of its replies.
    #[inline]
    pub fn sync_policy(&self, kernel: &Kernel) -> SyncPolicy {
        match self {
            Self::Resp(session) => session.caller.sync_policy(kernel),
            Self::Memcached(_) | Self::PedroKv(_) => kernel.config.live().appendfsync(),
        }
    }

    /// Returns the part that commands see. Only RESP has commands that reply later.
    pub fn caller(&mut self) -> Option<&mut Caller> {
        match self {
            Self::Resp(session) => Some(&mut session.caller),
            Self::Memcached(_) | Self::PedroKv(_) => None,
        }
    }

    /// Returns its output limits.
    #[cold]
    pub fn output_class(&self, kernel: &Kernel) -> OutputClass {
        match self {
            Self::Resp(session) if session.caller.replica().is_some() => REPLICAS,
            Self::Resp(session) if session.caller.is_subscribed() => SUBSCRIBERS,
            _ => output_class(!self.is_stranger() || kernel.is_open()),
        }
    }

    /// Returns true if it receives published messages.
    pub fn is_subscribed(&self) -> bool {
        matches!(self, Self::Resp(session) if session.caller.is_subscribed())
    }

    /// Returns true if it was not authenticated when it was last served.
    #[inline]
    pub fn is_stranger(&self) -> bool {
        match self {
            Self::Resp(session) => !session.caller.authenticated,
            Self::Memcached(session) => !session.authenticated,
            Self::PedroKv(session) => session.is_stranger(),
        }
    }

    /// Returns true for a replica that gets the stream or a copy.
    pub fn is_replica(&self) -> bool {
        matches!(self, Self::Resp(session) if session.caller.replica().is_some())
    }

    /// Returns true if it runs MONITOR.
    pub fn is_monitor(&self) -> bool {
        matches!(self, Self::Resp(session) if session.caller.monitor)
    }
}

/// Returns the output limits of a client that speaks RESP.
#[inline]
pub fn output_class_of(caller: &Caller) -> OutputClass {
    if caller.replica().is_some() {
        REPLICAS
    } else if caller.is_subscribed() {
        SUBSCRIBERS
    } else {
        output_class(caller.authenticated)
    }
}

/// Writes the reply that a client waits for and resumes the client, if `write` has a reply for it. Returns true if the
/// client is resumed.
pub fn answer(
    conn: &mut ConnMut<'_, AnySession>,
    write: impl FnOnce(&Awaited, &mut Reply<'_>) -> bool,
) -> bool {
    let (session, output) = conn.split();
    let Some(caller) = session.caller() else { return false };
    let proto = caller.proto;
    let Some(awaited) = caller.waits.awaited() else { return false };
    let begin = output.mark();
    if !write(awaited, &mut Reply::new(output, proto)) {
        return false;
    }
    if caller.end_wait().is_some_and(|pending| !pending.is_heard) {
        output.truncate(begin);
    }
    conn.clear_timer();
    conn.resume();
    true
}

/// Fate of a connection whose replies have waited for replicas.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Settled {
    /// It continues.
    Goes,
    /// It ends after these replies.
    Closes,
    /// It ends without them: its protocol cannot express that a write is done but not confirmed.
    ClosesUnanswered,
}

/// Writes the replies that have waited for replicas. The connection then waits for nothing.
pub fn settle(
    kernel: &Kernel,
    session: &mut AnySession,
    output: &mut Output,
    is_confirmed: bool,
) -> Settled {
    // A server that has become a replica sends nothing more to a client that has waited.
    let is_closing = session.client().is_closing();
    let waits = session.waits();
    let Some(held) = waits.end_held() else { return Settled::Goes };
    // An error acknowledges no write, so it need not wait for the device.
    waits.logged.barrier.device &= is_confirmed;
    let closes = held.closes || is_closing;
    match session.caller() {
        Some(caller) => {
            let proto = caller.proto;
            let errors = held.replies.iter().filter(|held| held.has_written && !is_confirmed);
            errors.for_each(|_| kernel.count_error(&held.error(), None));
            held.write(is_confirmed, output, proto);
            // Messages that arrived meanwhile follow the replies.
            caller.catch_up(&kernel.pubsub, output, proto);
        }
        None if is_confirmed => held.write(true, output, Proto::Resp2),
        None => return Settled::ClosesUnanswered,
    }
    if closes { Settled::Closes } else { Settled::Goes }
}

/// Does this for a client that waits for replicas, with an answer that says only whether they confirmed. Returns true
/// if the client got its replies.
fn deliver_confirmation(
    kernel: &Kernel,
    conn: &mut ConnMut<'_, AnySession>,
    is_confirmed: bool,
) -> bool {
    let (session, output) = conn.split();
    match settle(kernel, session, output, is_confirmed) {
        settled @ (Settled::Goes | Settled::Closes) => {
            // It ends when it is next called, after replies that may still wait for the device.
            if settled == Settled::Closes {
                session.client().set(ClientFlags::CLOSING, true);
            }
            conn.clear_timer();
            conn.resume();
            true
        }
        Settled::ClosesUnanswered => {
            close_unlogged(kernel, conn);
            false
        }
    }
}

/// Drops an answer to a client that is gone.
pub fn lose(kernel: &Kernel, answer: &Answer) {
    if let Answered::Later(awaited) = &answer.reply {
        blocking::nobody_waits(kernel, answer.to.conn().worker, awaited);
    }
    if let Some(deferred) = answer.to.deferred() {
        kernel.end_result(deferred);
    }
}

/// Returns a ticket for output: it waits for the log on the device, for the feed in the bucket and for a proof of the
/// lease.
pub fn ticket(device: u64, bucket: u64, proof: u64) -> Ticket {
    Ticket([device, bucket, proof])
}

/// Returns the positions that the device and the bucket have reached, for output that waits for no proof. Without a log
/// there is nothing to wait for.
pub fn reached(kernel: &Kernel) -> Ticket {
    let durable_log = kernel.durability.durable_log();
    let device = durable_log.map_or(u64::MAX, |durable_log| durable_log.durable());
    ticket(device, kernel.bucket.committed(), 0)
}

/// Closes a connection that has an answer pending, because the writes behind that answer may be lost. Earlier replies
/// that the device and the bucket have covered are still sent.
#[cold]
pub fn close_unlogged(kernel: &Kernel, conn: &mut ConnMut<'_, AnySession>) {
    conn.release(reached(kernel));
    conn.close_without_held();
}

/// Gives an answer to the client that waits for it and resumes the client. Returns true if there was one.
pub fn deliver(kernel: &Kernel, conn: &mut ConnMut<'_, AnySession>, answer: Answer) -> bool {
    let wait = match &answer.to {
        Destination::Reply(to) => to.wait,
        Destination::Result(deferred) => {
            let deferred = Arc::clone(deferred);
            return deliver_result(kernel, conn, &deferred, answer);
        }
    };
    let waits = conn.session().waits();
    if waits.is_for(wait) && waits.has_held() {
        let is_confirmed = matches!(&answer.reply, Answered::With(error) if error.is_empty());
        return deliver_confirmation(kernel, conn, is_confirmed);
    }
    let (session, output) = conn.split();
    let Some(caller) = session.caller() else { return false };
    if !caller.waits.is_for(wait) {
        lose(kernel, &answer);
        return false;
    }
    let reply = match answer.reply {
        Answered::With(reply) => reply,
        Answered::Later(awaited) => {
            if let Some(from) = answer.caller {
                caller.come_back(*from);
            }
            caller.wait_instead_for(awaited);
            // Pending messages wait for no reply now.
            let proto = caller.proto;
            caller.catch_up(&kernel.pubsub, output, proto);
            // The call suspends it again on the new terms.
            conn.resume();
            return false;
        }
    };
    let Some(pending) = caller.end_wait() else { return false };
    if let Awaited::Keys { waiter, .. } = &pending.awaited {
        // The waiter has left the queues, unless another client ended its wait.
        forget_waiter(&mut kernel.keyspace.worker_locks(caller.client.conn.worker), waiter);
    }
    // This may be a transaction that changes the level for later commands.
    let level = caller.replica_level(kernel);
    if let Some(from) = answer.caller {
        caller.come_back(*from);
    }
    if let Some(at) = answer.logged_at {
        if !note_logged(kernel, caller, at, caller.durability()) {
            close_unlogged(kernel, conn);
            return false;
        }
        if let Some(level) = level {
            // Later replies wait too, even if CLIENT REPLY suppresses this one.
            let held = HeldReplies::of_write(level, pending.is_heard.then_some(reply));
            kernel.wait_for_replicas(&mut caller.waits, &caller.client, held);
            // The call suspends it again on the new terms.
            conn.resume();
            return true;
        }
    }
    if pending.is_heard {
        output.append(reply);
    }
    // A server that has become a replica sends nothing more to a client that has waited.
    caller.closing |= caller.client.is_closing();
    // Messages that arrived meanwhile follow the reply.
    let proto = caller.proto;
    caller.catch_up(&kernel.pubsub, output, proto);
    caller.invalidate(&kernel.pubsub, answer.invalidation, output);
    conn.clear_timer();
    conn.resume();
    true
}

/// Notes the log position behind the writes of an answer, with the durability that the client of the command `asked`
/// for. Returns false if these writes may be lost.
fn note_logged(kernel: &Kernel, caller: &mut Caller, at: u64, asked: Option<SyncPolicy>) -> bool {
    let barrier = kernel.barrier_of_writes(asked, None);
    match barrier.filter(|_| !kernel.durability.refuses_writes()) {
        Some(barrier) => caller.waits.logged.note(at, barrier),
        None => return false,
    }
    true
}

/// Writes a deferred result to the client that receives it, whatever that client does meanwhile. Returns true if it got
/// the result.
fn deliver_result(
    kernel: &Kernel,
    conn: &mut ConnMut<'_, AnySession>,
    deferred: &Deferred,
    answer: Answer,
) -> bool {
    let Answer { reply, logged_at, invalidation, .. } = answer;
    // A command that found nothing waits for keys by itself.
    let Answered::With(result) = reply else { return false };
    if !kernel.end_result(deferred) {
        // The receiver declined the result while it was on its way.
        return false;
    }
    let (session, output) = conn.split();
    let Some(caller) = session.caller() else { return false };
    if let Some(at) = logged_at
        && !note_logged(kernel, caller, at, deferred.durability)
    {
        close_unlogged(kernel, conn);
        return false;
    }
    results::write(output, caller.proto, deferred, result);
    caller.invalidate(&kernel.pubsub, invalidation, output);
    caller.client.note_output(Client::backlog_of(output));
    kernel.clients.memory.count(&caller.client);
    true
}
