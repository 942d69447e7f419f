//! A connection of any protocol, and how it gets the replies that it waits for.

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

/// A connection of any protocol. Which one it is has a byte of its own: each request asks for that several times, and a
/// mark among the states of [`Waits`] takes twice as long to read.
#[repr(u8)]
pub enum AnySession {
    /// Speaks RESP.
    Resp(Session),
    /// Speaks a protocol of memcached.
    Memcached(memcached::Session),
    /// Speaks PedroKV.
    PedroKv(pedrokv::Session),
}

impl AnySession {
    /// The part that others may see.
    #[inline]
    pub fn client(&self) -> &Arc<Client> {
        match self {
            Self::Resp(session) => &session.caller.client,
            Self::Memcached(session) => &session.client,
            Self::PedroKv(session) => &session.client,
        }
    }

    /// Becomes a user who need not say a password.
    pub fn become_user(&mut self, rights: Rights) {
        match self {
            Self::Resp(session) => session.caller.become_user(rights, true),
            Self::Memcached(session) => session.become_user(rights),
            Self::PedroKv(session) => session.become_user(rights),
        }
    }

    /// What it waits for.
    #[inline]
    pub fn waits(&mut self) -> &mut Waits {
        match self {
            Self::Resp(session) => &mut session.caller.waits,
            Self::Memcached(session) => &mut session.waits,
            Self::PedroKv(session) => &mut session.waits,
        }
    }

    /// How durable what it replies is.
    #[inline]
    pub fn sync_policy(&self, kernel: &Kernel) -> SyncPolicy {
        match self {
            Self::Resp(session) => session.caller.sync_policy(kernel),
            Self::Memcached(_) | Self::PedroKv(_) => kernel.config.live().appendfsync(),
        }
    }

    /// What commands see of it. Others than RESP have no commands that reply later.
    pub fn caller(&mut self) -> Option<&mut Caller> {
        match self {
            Self::Resp(session) => Some(&mut session.caller),
            Self::Memcached(_) | Self::PedroKv(_) => None,
        }
    }

    /// Its output limits.
    #[cold]
    pub fn output_class(&self, kernel: &Kernel) -> OutputClass {
        match self {
            Self::Resp(session) if session.caller.replica().is_some() => REPLICAS,
            Self::Resp(session) if session.caller.is_subscribed() => SUBSCRIBERS,
            _ => output_class(!self.is_stranger() || kernel.is_open()),
        }
    }

    /// Whether it gets messages.
    pub fn is_subscribed(&self) -> bool {
        matches!(self, Self::Resp(session) if session.caller.is_subscribed())
    }

    /// Whether it had still to say a password when it was served last.
    #[inline]
    pub fn is_stranger(&self) -> bool {
        match self {
            Self::Resp(session) => !session.caller.authenticated,
            Self::Memcached(session) => !session.authenticated,
            Self::PedroKv(session) => session.is_stranger(),
        }
    }

    /// Whether it is a replica that gets the stream or a copy.
    pub fn is_replica(&self) -> bool {
        matches!(self, Self::Resp(session) if session.caller.replica().is_some())
    }

    /// Whether it watches all commands.
    pub fn is_monitor(&self) -> bool {
        matches!(self, Self::Resp(session) if session.caller.monitor)
    }
}

/// The output limits of a client that speaks RESP.
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

/// Writes the reply that a client waits for, and has it go on, if `write` has a reply to what it waits for.
/// Whether the client goes on.
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

/// What becomes of a connection whose replies have waited for replicas.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Settled {
    /// It goes on.
    Goes,
    /// It ends behind these replies.
    Closes,
    /// It ends without them: its protocol has no words for a write that is done and not confirmed.
    ClosesUnanswered,
}

/// Writes the replies that have waited for replicas. The connection waits for nothing more.
pub fn settle(
    kernel: &Kernel,
    session: &mut AnySession,
    output: &mut Output,
    is_confirmed: bool,
) -> Settled {
    // As a replica, the server has no more to say to a client that has waited.
    let is_closing = session.client().is_closing();
    let waits = session.waits();
    let Some(held) = waits.end_held() else { return Settled::Goes };
    // An error tells of nothing that the device has to have.
    waits.logged.barrier.device &= is_confirmed;
    let closes = held.closes || is_closing;
    match session.caller() {
        Some(caller) => {
            let proto = caller.proto;
            let errors = held.replies.iter().filter(|held| held.has_written && !is_confirmed);
            errors.for_each(|_| kernel.count_error(&held.error(), None));
            held.write(is_confirmed, output, proto);
            // What has come meanwhile follows the replies.
            caller.catch_up(&kernel.pubsub, output, proto);
        }
        None if is_confirmed => held.write(true, output, Proto::Resp2),
        None => return Settled::ClosesUnanswered,
    }
    if closes { Settled::Closes } else { Settled::Goes }
}

/// The same for a client that waits for replicas, by an answer that tells nothing but what has failed. Whether the
/// client has its replies.
fn deliver_confirmation(
    kernel: &Kernel,
    conn: &mut ConnMut<'_, AnySession>,
    is_confirmed: bool,
) -> bool {
    let (session, output) = conn.split();
    match settle(kernel, session, output, is_confirmed) {
        settled @ (Settled::Goes | Settled::Closes) => {
            // It ends when it is called, behind replies that the device may still hold up.
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

/// Drops an answer to a client that has gone.
pub fn lose(kernel: &Kernel, answer: &Answer) {
    if let Answered::Later(awaited) = &answer.reply {
        blocking::nobody_waits(kernel, answer.to.conn().worker, awaited);
    }
    if let Some(deferred) = answer.to.deferred() {
        kernel.end_result(deferred);
    }
}

/// The places that output waits for: in the log on the device, in the feed for the bucket, and among the proofs of the
/// lease.
pub fn ticket(device: u64, bucket: u64, proof: u64) -> Ticket {
    Ticket([device, bucket, proof])
}

/// The places that the device and the bucket have come to, for output that waits for no proof. Without a log there is
/// nothing to wait for.
pub fn reached(kernel: &Kernel) -> Ticket {
    let durable_log = kernel.durability.durable_log();
    let device = durable_log.map_or(u64::MAX, |durable_log| durable_log.durable());
    ticket(device, kernel.bucket.committed(), 0)
}

/// Closes a connection that has an answer coming: what it tells of may be lost. What the client is waiting for besides
/// is not.
#[cold]
pub fn close_unlogged(kernel: &Kernel, conn: &mut ConnMut<'_, AnySession>) {
    conn.release(reached(kernel));
    conn.close_without_held();
}

/// Gives an answer to the client that waits for it, and has it go on. Whether there was such a client.
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
            // What was held is behind no reply now.
            let proto = caller.proto;
            caller.catch_up(&kernel.pubsub, output, proto);
            // It is called, and suspended anew on the new terms.
            conn.resume();
            return false;
        }
    };
    let Some(pending) = caller.end_wait() else { return false };
    if let Awaited::Keys { waiter, .. } = &pending.awaited {
        // It is in the queues no more, unless its waiting was ended by another client.
        forget_waiter(&mut kernel.keyspace.worker_locks(caller.client.conn.worker), waiter);
    }
    // It may be a transaction that asks for another level for what comes behind it.
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
            // Later replies wait as well where this one is not heard.
            let held = HeldReplies::of_write(level, pending.is_heard.then_some(reply));
            kernel.wait_for_replicas(&mut caller.waits, &caller.client, held);
            // It is called, and suspended anew on the new terms.
            conn.resume();
            return true;
        }
    }
    if pending.is_heard {
        output.append(reply);
    }
    // As a replica, the server has no more to say to a client that has waited.
    caller.closing |= caller.client.is_closing();
    // What has come meanwhile follows the reply.
    let proto = caller.proto;
    caller.catch_up(&kernel.pubsub, output, proto);
    caller.invalidate(&kernel.pubsub, answer.invalidation, output);
    conn.clear_timer();
    conn.resume();
    true
}

/// Notes where the log ended after what an answer tells of, which is to be as durable as its command's client has
/// `asked`. `false` if it may be lost.
fn note_logged(kernel: &Kernel, caller: &mut Caller, at: u64, asked: Option<SyncPolicy>) -> bool {
    let barrier = kernel.barrier_of_writes(asked, None);
    match barrier.filter(|_| !kernel.durability.refuses_writes()) {
        Some(barrier) => caller.waits.logged.note(at, barrier),
        None => return false,
    }
    true
}

/// Gives a result to the client that gets it, whatever that does meanwhile. Whether it got it.
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
        // Its receiver has said that it wants none while this was on its way.
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
