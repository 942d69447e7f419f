//! Replies that wait until the log has reached the device.
//!
//! Under `appendfsync always`, or where a client asked for it, the replies to a batch with writes are held
//! back until the log is on the device up to the last write of the batch. Each batch waits for its own
//! writes only: a client that keeps writing gets the replies that a sync has covered while it writes more.
//!
//! A worker knows which of its connections wait. It asks for a sync once a turn, and checks these
//! connections when a sync is done ([`Notice::Durable`]).

use std::ops::Range;

use tierce_net::{ConnKey, ConnMut, Conns};

use crate::connection::{AnySession, answer};
use crate::kernel::Kernel;
use crate::message::Notice;
use crate::waiting;

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
        kernel: &Kernel,
        conn: ConnKey,
        session: &mut AnySession,
    ) -> Option<u64> {
        let waits = std::mem::take(&mut session.waits().logged.awaits_device);
        if waits || session.waits().awaited_position().is_some() {
            self.list(kernel, conn, session, waits)
        } else {
            None
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
        if !std::mem::replace(&mut session.waits().logged.is_listed, true) {
            self.conns.push(conn);
        }
        (waits && !is_reached).then_some(at)
    }

    /// Asks for one sync for all connections of the turn.
    #[inline]
    pub fn turn_end(&mut self, kernel: &Kernel) {
        if std::mem::take(&mut self.is_news) {
            kernel.tell_all(&Notice::Durable);
        }
        if self.wanted > 0
            && let Some(wal_handle) = kernel.durability.wal_handle()
        {
            wal_handle.demand(std::mem::take(&mut self.wanted));
        }
    }

    /// Sends the replies that waited for the log, as far as it has reached the device.
    pub fn release(&mut self, kernel: &Kernel, conns: &mut Conns<'_, AnySession>) {
        // Without a log there is nothing to wait for.
        let wal_handle = kernel.durability.wal_handle();
        let durable = wal_handle.map_or(u64::MAX, |wal_handle| wal_handle.durable());
        let has_write_error = kernel.durability.refuses_writes();
        let lost = kernel.durability.lost();
        self.conns.retain(|key| {
            let Some(mut conn) = conns.get(*key) else { return false };
            let holds_lost = lost.as_ref().is_some_and(|lost| holds_lost(&mut conn, lost));
            let waits = if holds_lost {
                still_waits(&mut conn, 0, true)
            } else {
                still_waits(&mut conn, durable, has_write_error)
            };
            conn.session().waits().logged.is_listed = waits;
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
    match conn.session().waits().awaited_position() {
        Some(at) if at <= durable => {
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
