//! Replies that wait until the log is on the device, or in the bucket.
//!
//! With `appendfsync always`, or if a client asked for it, the replies to a batch with writes are deferred until the
//! log is on the device up to the last write of the batch. Each batch waits only for its own writes: a client that
//! keeps writing gets the replies that a sync has covered.
//!
//! At the level `bucket`, all replies wait, also those to reads and errors, until the bucket has the log of everything
//! that any client executed before them. So no reply shows data that the loss of this machine would undo. Replies about
//! the server alone do not wait: monitoring is needed most when the bucket is unreachable.
//!
//! With `bucket-takeover yes`, all replies also wait while the lease has expired, and a deposed process sends none
//! ([`LeaseCheck`](crate::commands::lease::LeaseGate) explains why this check comes after the execution).
//!
//! So the output of a connection is split, and the part behind the split waits with a ticket. A worker knows which of
//! its connections wait. It asks for one sync per turn, and checks these connections when a sync is done
//! ([`Notice::Durable`]).

use std::ops::Range;

use tierce_net::{ConnKey, ConnMut, Conns, Ticket};

use crate::commands::lease::Holding;
use crate::connection::{AnySession, answer, reached, ticket};
use crate::durability::SyncPolicy;
use crate::kernel::Kernel;
use crate::message::Notice;
use crate::waiting;

/// Proof of the lease that never comes.
const NEVER: u64 = u64::MAX;

/// Waiting connections of a worker.
#[derive(Default)]
pub struct Awaiting {
    conns: Vec<ConnKey>,
    /// Log position that the device must reach, as found in this turn.
    wanted: u64,
    /// True if an event that a connection waits for has happened already.
    is_news: bool,
    /// True if clients wait for replicas since this turn.
    asks_replicas: bool,
    /// True if a connection waits for the bucket.
    wants_bucket: bool,
    /// Proof of the lease that must come before anything is sent. Set when output was due after the lease had expired.
    needs_proof: Option<u64>,
}

impl Awaiting {
    /// Returns the ticket that a session's output has to wait for, if any. Called for each session that may have
    /// written or replied.
    #[inline]
    pub fn note(
        &mut self,
        kernel: &Kernel,
        conn: ConnKey,
        session: &mut AnySession,
    ) -> Option<Ticket> {
        let waits = session.waits();
        let at = waits.logged.at;
        if waits.has_held() {
            // Replies follow when replicas have the writes; the device syncs meanwhile.
            self.asks_replicas = true;
            if waits.logged.barrier.device {
                self.note_device(kernel, at);
            }
            return None;
        }
        let barrier = std::mem::take(&mut waits.logged.barrier);
        let waits_for_sync = waits.awaited_position().is_some();
        let mut device = 0;
        if barrier.device || waits_for_sync {
            let is_reached = self.note_device(kernel, at);
            self.is_news |= is_reached && waits_for_sync;
            device = if barrier.device && !is_reached { at } else { 0 };
        }
        let (bucket, proof) = match kernel.bucket.is_on() {
            true => (self.note_bucket(kernel, session, barrier.bucket), self.note_lease(kernel)),
            false => (0, 0),
        };
        let needed = ticket(device, bucket, proof);
        let is_held = needed != Ticket::default();
        if is_held || waits_for_sync {
            self.list(conn, session);
        }
        is_held.then_some(needed)
    }

    /// Notes a line for a connection that has asked for no data: it waits only for the lease.
    pub fn note_line(
        &mut self,
        kernel: &Kernel,
        conn: ConnKey,
        session: &mut AnySession,
    ) -> Option<Ticket> {
        let proof = self.note_lease(kernel);
        (proof > 0).then(|| {
            self.list(conn, session);
            ticket(0, 0, proof)
        })
    }

    fn list(&mut self, conn: ConnKey, session: &mut AnySession) {
        if !std::mem::replace(&mut session.waits().logged.is_listed, true) {
            self.conns.push(conn);
        }
    }

    /// Requests a sync up to a log position. Returns true if the device has it already.
    fn note_device(&mut self, kernel: &Kernel, at: u64) -> bool {
        // The notice of its sync may have been sent before this note: then it would wait forever.
        let durable_log = kernel.durability.durable_log();
        if durable_log.is_none_or(|durable_log| durable_log.durable() >= at) {
            return true;
        }
        match kernel.durability.refuses_writes() {
            // No further notice may come for this one.
            true => self.is_news = true,
            false => self.wanted = self.wanted.max(at),
        }
        false
    }

    /// Returns the feed position that output waits for.
    #[cold]
    fn note_bucket(&mut self, kernel: &Kernel, session: &mut AnySession, asked: bool) -> u64 {
        let tells_of_server = std::mem::take(&mut session.waits().logged.tells_of_server);
        let is_at_level = !tells_of_server && session.sync_policy(kernel) == SyncPolicy::Bucket;
        // Replicas of an owner get only committed changes.
        let asks = (asked || is_at_level) && (!session.is_replica() || kernel.role.is_replica());
        let position = kernel.feed.position();
        if !asks || kernel.bucket.committed() >= position {
            return 0;
        }
        self.is_news |= kernel.durability.refuses_writes();
        self.wants_bucket = true;
        position
    }

    /// Returns the proof that output waits for.
    #[inline]
    fn note_lease(&mut self, kernel: &Kernel) -> u64 {
        match kernel.bucket.lease.holding() {
            Holding::Held => 0,
            Holding::Over { proof } => proof,
            Holding::Deposed => {
                self.is_news = true;
                NEVER
            }
        }
    }

    /// Asks for one sync for all connections of the turn, and asks replicas once.
    #[inline]
    pub fn turn_end(&mut self, kernel: &Kernel) {
        if std::mem::take(&mut self.asks_replicas) {
            kernel.call_for_replicas();
        }
        if std::mem::take(&mut self.is_news) {
            kernel.tell_all(&Notice::Durable);
        }
        if std::mem::take(&mut self.wants_bucket) {
            kernel.bucket.hasten(&kernel.feed);
        }
        if self.wanted > 0
            && let Some(durable_log) = kernel.durability.durable_log()
        {
            durable_log.demand(std::mem::take(&mut self.wanted));
        }
    }

    /// Sends the deferred replies up to the positions that the device and the bucket have reached.
    pub fn release(&mut self, kernel: &Kernel, conns: &mut Conns<'_, AnySession>) {
        let Ticket([device, bucket, _]) = reached(kernel);
        let reached = match self.proof(kernel) {
            Proof::Until(proven) => ticket(device, bucket, proven),
            Proof::Missing => return,
            Proof::Impossible => {
                // Another process owns the log: this one sends nothing more.
                self.conns.clear();
                return conns.for_each(|conn| conn.close_without_held());
            }
        };
        let has_write_error = kernel.durability.refuses_writes();
        let lost = kernel.durability.lost();
        self.conns.retain(|key| {
            let Some(mut conn) = conns.get(*key) else { return false };
            let waits = still_waits(&mut conn, reached, lost.as_ref(), has_write_error);
            conn.session().waits().logged.is_listed = waits;
            waits
        });
    }

    /// Asks the lease which output may be sent now.
    fn proof(&mut self, kernel: &Kernel) -> Proof {
        let check = &kernel.bucket.lease;
        let needed = match check.holding() {
            Holding::Held => {
                self.needs_proof = None;
                return Proof::Until(NEVER - 1);
            }
            Holding::Over { proof } => *self.needs_proof.get_or_insert(proof),
            Holding::Deposed => return Proof::Impossible,
        };
        let proven = check.proven();
        if proven < needed {
            return Proof::Missing;
        }
        self.needs_proof = None;
        Proof::Until(proven)
    }
}

/// Output that the lease allows.
enum Proof {
    /// All output that waits for this proof or an earlier one.
    Until(u64),
    /// No output: it is not known yet whether this process still owns the log.
    Missing,
    /// No output ever again.
    Impossible,
}

/// Releases the output of a connection up to these positions. Returns true if the connection waits for more.
fn still_waits(
    conn: &mut ConnMut<'_, AnySession>,
    Ticket([mut device, bucket, proven]): Ticket,
    lost: Option<&Range<u64>>,
    has_write_error: bool,
) -> bool {
    let mut is_lost = has_write_error;
    if let Some(lost) = lost
        && conn.is_held_for(|Ticket([at, ..])| lost.start < at && at <= lost.end)
    {
        // The replies before the lost range are sent.
        device = device.min(lost.start);
        is_lost = true;
    }
    let is_released = conn.release(ticket(device, bucket, proven));
    if !is_released && is_lost {
        // Nothing that may be lost is acknowledged.
        conn.close_without_held();
        return false;
    }
    match conn.session().waits().awaited_position() {
        Some(at) if at <= device => {
            answer(conn, |_, reply| {
                waiting::reply_synced(1, reply);
                true
            });
        }
        // Its timer ends the wait if the device is never reached.
        Some(_) => return true,
        None => {}
    }
    !is_released
}
