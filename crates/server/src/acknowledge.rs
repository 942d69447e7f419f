//! Replies that wait until the log has reached the device.
//!
//! Under `appendfsync always`, or where a client asked for it, the replies to a batch with writes are kept
//! back until the log is on the device up to the last of them. Each batch waits for its own writes only:
//! a client that keeps writing gets the replies to what one sync has covered while it writes more.
//!
//! A worker knows which of its connections wait. It asks for a sync once a turn, and looks through them
//! when it is told of one ([`Message::Durable`](crate::message::Message::Durable)).

use std::ops::Range;

use tierce_net::{ConnKey, ConnMut, Conns};

use crate::durability::SyncPolicy;
use crate::message::Message;
use crate::server::Server;
use crate::service::AnySession;
use crate::waiting;

/// What a session knows of the log.
#[derive(Debug, Default)]
pub struct Acknowledgements {
    /// The place in the log of the last write of this client.
    logged_at: u64,
    /// What was written last, or is being written, waits for the device.
    awaits_device: bool,
    /// Among those that wait, in the list of its worker.
    is_listed: bool,
}

impl Acknowledgements {
    /// The log ended at `at` after a write of this client, or after what it wants to be sure of. With
    /// `always` its reply waits for the device.
    #[inline]
    pub fn note(&mut self, at: u64, policy: SyncPolicy) {
        self.logged_at = at;
        self.awaits_device |= policy == SyncPolicy::Always;
    }

    /// Whether replies wait for the device: then the client is not idle.
    pub fn is_waiting(&self) -> bool {
        self.is_listed
    }
}

/// The connections of a worker that wait for the device.
#[derive(Default)]
pub struct Awaiting {
    conns: Vec<ConnKey>,
    /// The log is to reach the device up to here: what this turn has found out.
    wanted: u64,
    /// What one of them waits for has happened already.
    is_news: bool,
}

impl Awaiting {
    /// To be called for each session that may have written: the place in the log that its output has to
    /// wait for, if it has to.
    #[inline]
    pub fn note(
        &mut self,
        server: &Server,
        conn: ConnKey,
        session: &mut AnySession,
    ) -> Option<u64> {
        let waits = std::mem::take(&mut session.acknowledgements().awaits_device);
        if waits || session.awaited_position().is_some() {
            self.list(server, conn, session, waits)
        } else {
            None
        }
    }

    fn list(
        &mut self,
        server: &Server,
        conn: ConnKey,
        session: &mut AnySession,
        waits: bool,
    ) -> Option<u64> {
        let at = session.acknowledgements().logged_at;
        // Whoever hears of a write late must not wait for news of a sync that were spread before.
        let is_reached = server.durability.journal().is_none_or(|journal| journal.durable() >= at);
        if is_reached && session.awaited_position().is_none() {
            return None;
        }
        if is_reached || server.durability.refuses_writes() {
            // There may be no more news for this one.
            self.is_news = true;
        } else {
            self.wanted = self.wanted.max(at);
        }
        if !std::mem::replace(&mut session.acknowledgements().is_listed, true) {
            self.conns.push(conn);
        }
        (waits && !is_reached).then_some(at)
    }

    /// Asks for one sync for all connections of the turn.
    #[inline]
    pub fn turn_end(&mut self, server: &Server) {
        if std::mem::take(&mut self.is_news) {
            server.post_to_all(&Message::Durable);
        }
        if self.wanted > 0
            && let Some(journal) = server.durability.journal()
        {
            journal.demand(std::mem::take(&mut self.wanted));
        }
    }

    /// Sends the replies that waited for the log, as far as it has reached the device.
    pub fn release(&mut self, server: &Server, conns: &mut Conns<'_, AnySession>) {
        // Without a log there is nothing to wait for.
        let journal = server.durability.journal();
        let durable = journal.map_or(u64::MAX, |journal| journal.durable());
        let is_wounded = server.durability.refuses_writes();
        let lost = server.durability.lost();
        self.conns.retain(|key| {
            let Some(mut conn) = conns.get(*key) else { return false };
            let holds_lost = lost.as_ref().is_some_and(|lost| holds_lost(&mut conn, lost));
            let waits = if holds_lost {
                still_waits(&mut conn, 0, true)
            } else {
                still_waits(&mut conn, durable, is_wounded)
            };
            conn.session().acknowledgements().is_listed = waits;
            waits
        });
    }
}

/// Whether replies are held whose writes are lost, once those before them are sent.
fn holds_lost(conn: &mut ConnMut<'_, AnySession>, lost: &Range<u64>) -> bool {
    conn.release(lost.start);
    conn.held_for().is_some_and(|position| position <= lost.end)
}

/// Gives a connection what it waited for. Whether it waits for more.
fn still_waits(conn: &mut ConnMut<'_, AnySession>, durable: u64, is_lost: bool) -> bool {
    let is_released = conn.release(durable);
    if !is_released && is_lost {
        // Nothing is acknowledged that may be lost.
        conn.close_without_held();
        return false;
    }
    match conn.session().awaited_position() {
        Some(at) if at <= durable => waiting::device_reached(conn),
        // Its patience ends, should the device never be reached.
        Some(_) => return true,
        None => {}
    }
    !is_released
}
