//! Replies that wait until the log has reached the device.
//!
//! Under `appendfsync always`, or where a client asked for it, the replies to a batch with writes are held
//! back until the log is on the device up to the last write of the batch. Each batch waits for its own
//! writes only: a client that keeps writing gets the replies that a sync has covered while it writes more.
//!
//! At the level `bucket`, all replies wait, also those of reads and errors: until the log in the bucket has what was
//! executed before them by any client, so that no reply shows what the loss of this machine would undo. Replies that
//! tell of the server alone do not wait: monitoring is needed most when the bucket is away.
//!
//! With `bucket-takeover yes`, all replies wait as well while the lease is over, and none is sent by a process that is
//! deposed ([`LeaseGate`](crate::commands::lease::LeaseGate) says why that is asked here, behind the execution). What
//! comes behind a reply that waits for the lease waits with it.
//!
//! A worker knows which of its connections wait. It asks for a sync once a turn, and checks these
//! connections when a sync is done ([`Notice::Durable`]).

use std::ops::Range;

use tierce_net::{ConnKey, ConnMut, Conns};

use crate::commands::lease::Holding;
use crate::connection::{AnySession, answer};
use crate::durability::SyncPolicy;
use crate::kernel::Kernel;
use crate::message::Notice;
use crate::waiting;

/// Output that waits for the bucket has a position of the feed as its ticket, with this bit: such tickets are above all
/// positions in the log. What is committed in the bucket was synced here before.
const OF_BUCKET: u64 = 1 << 63;

/// Output that waits for the lease has the number of a proof as its ticket, with these bits. Such tickets are above all
/// others, so output that waits for other things behind it does not tell by its ticket: the session remembers those.
const OF_LEASE: u64 = 3 << 62;

/// The ticket of output that is never sent.
const NEVER: u64 = u64::MAX;

/// The connections of a worker that wait for the device, or the bucket.
#[derive(Default)]
pub struct Awaiting {
    conns: Vec<ConnKey>,
    /// The log is to reach the device up to here: what this turn has found out.
    wanted: u64,
    /// What one of them waits for has happened already.
    is_news: bool,
    /// Clients wait for replicas since this turn.
    asks_replicas: bool,
    /// One of them waits for the bucket.
    wants_bucket: bool,
    /// Nothing is sent before this proof: the lease was over when something was to be.
    needs_proof: Option<u64>,
}

impl Awaiting {
    /// To be called for each session that may have written: the place in the log that its output has to
    /// wait for, if it has to.
    #[inline]
    pub fn note(
        &mut self,
        kernel: &Kernel,
        conn: ConnKey,
        session: &mut AnySession,
    ) -> Option<u64> {
        let waits = std::mem::take(&mut session.waits().logged.awaits_device);
        let mut ticket = None;
        if waits || session.waits().awaited_position().is_some() {
            ticket = self.list(kernel, conn, session, waits);
        }
        if kernel.bucket.is_on() {
            ticket = ticket.max(self.note_bucket(kernel, conn, session));
            ticket = ticket.max(self.note_lease(kernel, conn, session));
        }
        ticket
    }

    /// The same for the bucket.
    #[cold]
    fn note_bucket(
        &mut self,
        kernel: &Kernel,
        conn: ConnKey,
        session: &mut AnySession,
    ) -> Option<u64> {
        // What replicas of an owner get is committed already.
        let was_bucket = std::mem::take(&mut session.waits().logged.was_bucket);
        let tells_of_server = std::mem::take(&mut session.waits().logged.tells_of_server);
        let is_at_level = !tells_of_server && session.sync_policy(kernel) == SyncPolicy::Bucket;
        let asks =
            (was_bucket || is_at_level) && (!session.is_replica() || kernel.role.is_replica());
        // What comes behind output that waits for the bucket does so, too: tickets grow along the output.
        if !asks && !session.waits().logged.awaits_bucket {
            return None;
        }
        let position = kernel.feed.position();
        // What this server shows may not be so any more.
        let is_refused = kernel.durability.refuses_writes();
        let is_committed = kernel.bucket.committed() >= position;
        if is_committed && !session.waits().logged.awaits_bucket && !is_refused {
            return None;
        }
        self.is_news |= is_refused || is_committed;
        self.wants_bucket = true;
        let logged = &mut session.waits().logged;
        (logged.awaits_bucket, logged.bucket_at) = (true, position);
        self.add(conn, session);
        Some(OF_BUCKET | position)
    }

    /// The same for the lease alone, if there is one.
    #[inline]
    pub fn note_lease(
        &mut self,
        kernel: &Kernel,
        conn: ConnKey,
        session: &mut AnySession,
    ) -> Option<u64> {
        let ticket = match kernel.bucket.lease.holding() {
            Holding::Held if !session.waits().logged.awaits_lease => return None,
            Holding::Held => {
                self.is_news = true;
                OF_LEASE
            }
            Holding::Over { proof } => OF_LEASE | proof,
            Holding::Deposed => {
                self.is_news = true;
                NEVER
            }
        };
        session.waits().logged.awaits_lease = true;
        self.add(conn, session);
        Some(ticket)
    }

    fn add(&mut self, conn: ConnKey, session: &mut AnySession) {
        if !std::mem::replace(&mut session.waits().logged.is_listed, true) {
            self.conns.push(conn);
        }
    }

    fn list(
        &mut self,
        kernel: &Kernel,
        conn: ConnKey,
        session: &mut AnySession,
        waits: bool,
    ) -> Option<u64> {
        let at = session.waits().logged.at;
        // The notice of its sync may have been sent before this note: then it would wait for ever.
        let is_reached =
            kernel.durability.wal_handle().is_none_or(|wal_handle| wal_handle.durable() >= at);
        if is_reached && session.waits().awaited_position().is_none() {
            return None;
        }
        if is_reached || kernel.durability.refuses_writes() {
            // There may be no more news for this one.
            self.is_news = true;
        } else {
            self.wanted = self.wanted.max(at);
        }
        self.add(conn, session);
        if !waits || is_reached {
            return None;
        }
        session.waits().logged.device_at = at;
        Some(at)
    }

    /// The replies of a connection wait for replicas.
    pub fn note_unconfirmed(&mut self) {
        self.asks_replicas = true;
    }

    /// Asks for one sync for all connections of the turn, and replicas once.
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
            && let Some(wal_handle) = kernel.durability.wal_handle()
        {
            wal_handle.demand(std::mem::take(&mut self.wanted));
        }
    }

    /// Sends the replies that waited for the log, as far as it has reached the device, or the bucket.
    pub fn release(&mut self, kernel: &Kernel, conns: &mut Conns<'_, AnySession>) {
        let proven = match self.proof(kernel) {
            Proof::Until(proven) => OF_LEASE | proven,
            Proof::Missing => return,
            Proof::Impossible => {
                // This process shows nothing any more, whoever waits for what.
                self.conns.clear();
                return conns.for_each(|conn| conn.close_without_held());
            }
        };
        // Without a log there is nothing to wait for.
        let wal_handle = kernel.durability.wal_handle();
        let reached = Reached {
            durable: wal_handle.map_or(u64::MAX, |wal_handle| wal_handle.durable()),
            committed: kernel.bucket.committed(),
            proven,
        };
        let has_write_error = kernel.durability.refuses_writes();
        let lost = kernel.durability.lost();
        self.conns.retain(|key| {
            let Some(mut conn) = conns.get(*key) else { return false };
            let holds_lost = lost.as_ref().is_some_and(|lost| holds_lost(&mut conn, lost));
            let waits = if holds_lost {
                still_waits(&mut conn, Reached::default(), true)
            } else {
                still_waits(&mut conn, reached, has_write_error)
            };
            let logged = &mut conn.session().waits().logged;
            logged.is_listed = waits;
            logged.awaits_bucket &= waits;
            logged.awaits_lease &= waits;
            waits
        });
    }

    /// What the lease allows to be sent now.
    fn proof(&mut self, kernel: &Kernel) -> Proof {
        let gate = &kernel.bucket.lease;
        let needed = match gate.holding() {
            Holding::Held => {
                self.needs_proof = None;
                return Proof::Until(NEVER >> 2);
            }
            Holding::Over { proof } => *self.needs_proof.get_or_insert(proof),
            Holding::Deposed => return Proof::Impossible,
        };
        let proven = gate.proven();
        if proven < needed {
            return Proof::Missing;
        }
        self.needs_proof = None;
        Proof::Until(proven)
    }
}

/// What may be sent.
enum Proof {
    /// What waits for this proof at most.
    Until(u64),
    /// Nothing: whether this process still owns the log is to be seen.
    Missing,
    /// Nothing ever.
    Impossible,
}

/// How far everything is that replies wait for.
#[derive(Clone, Copy, Default)]
struct Reached {
    /// The place in the log up to which the device has it.
    durable: u64,
    /// The position of the feed up to which the bucket has everything.
    committed: u64,
    /// The ticket up to which the lease is proven.
    proven: u64,
}

/// Whether replies are held whose writes are lost, once those before them are sent.
fn holds_lost(conn: &mut ConnMut<'_, AnySession>, lost: &Range<u64>) -> bool {
    conn.release(lost.start);
    conn.held_for().is_some_and(|position| position <= lost.end)
}

/// Sends what waits for nothing any more. Whether that is everything.
fn release_to(conn: &mut ConnMut<'_, AnySession>, reached: Reached) -> bool {
    let mut is_released = conn.release(reached.durable);
    if conn.held_for().is_some_and(|ticket| ticket >= OF_BUCKET) {
        is_released = conn.release(OF_BUCKET | reached.committed);
    }
    if conn.held_for().is_some_and(|ticket| ticket >= OF_LEASE) {
        let logged = &conn.session().waits().logged;
        if logged.device_at <= reached.durable && logged.bucket_at <= reached.committed {
            is_released = conn.release(reached.proven);
        }
    }
    is_released
}

/// Gives a connection what it waited for. Whether it waits for more.
fn still_waits(conn: &mut ConnMut<'_, AnySession>, reached: Reached, is_lost: bool) -> bool {
    let is_released = release_to(conn, reached);
    if !is_released && is_lost {
        // Nothing is acknowledged that may be lost.
        conn.close_without_held();
        return false;
    }
    match conn.session().waits().awaited_position() {
        Some(at) if at <= reached.durable => {
            answer(conn, |_, reply| {
                waiting::reply_synced(1, reply);
                true
            });
        }
        // Its patience ends, should the device never be reached.
        Some(_) => return true,
        None => {}
    }
    !is_released
}
