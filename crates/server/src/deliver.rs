//! Moves published messages from a worker's inbox into the outputs of its connections.
//!
//! A message may have thousands of receivers, and each costs a system call at the end of the turn. So a worker delivers
//! to some of them in a turn, and serves all its other connections before it continues.
//!
//! The system call is most of the cost of a message, so messages to the same receivers that follow each other
//! closely are sent together ([`Pacing`]).

use tierce_net::{Conns, NextTurn};

use crate::clients::Client;
use crate::connection::AnySession;
use crate::kernel::Kernel;
use crate::pubsub::{Pending, To};
use crate::server::conn_at;

/// Upper bound of the cost of one turn: a send to each of 64 connections. That takes some 200 microseconds; waiting for
/// the next turn adds 1 %.
const BUDGET_MAX: usize = 64 * SEND_COST;

/// Lower bound of that cost. Sends take several times as long if the readers run on the same cores.
const BUDGET_MIN: usize = 4 * SEND_COST;

/// Duration of a turn after which the next one is smaller: the other clients of the worker wait for its end.
const TURN_NANOS_MAX: u64 = 300_000;

/// Cost of a connection that has nothing else to send in this turn. A message behind another one costs 1.
const SEND_COST: usize = 16;

/// Number of bytes that add 1 to the cost.
const BYTES_PER_COST: usize = 512;

/// Number of bytes that are delivered at once: collecting more saves little.
const COLLECTED_BYTES_MAX: usize = 16 * 1024;

/// Number of collected messages below which a wait was useless.
const WORTH_A_WAIT: usize = 4;

/// Number of deliveries without a wait after a useless wait: a publisher that sends each message only after the answer
/// to the previous one then seldom waits.
const WITHOUT_WAIT: u32 = 64;

/// Decides when a worker delivers: normally at once. Messages to the same receivers are delivered once per millisecond
/// while they come so fast that this collects several.
#[derive(Default)]
pub struct Pacing {
    /// Millisecond and receivers of the last delivery.
    last: Option<(u64, To)>,
    /// Time until which messages are collected.
    until_ms: Option<u64>,
    /// Number of deliveries that do not wait.
    without_wait: u32,
    /// Cost allowed for the next turn, within its bounds.
    budget: usize,
    /// Begin of a turn that could not deliver everything.
    since_nanos: Option<u64>,
}

impl Pacing {
    /// Adapts the budget to the time that the last turn's deliveries took, with the system calls at its end.
    #[inline]
    pub fn turn_begins(&mut self, kernel: &Kernel) {
        if let Some(since_nanos) = self.since_nanos.take() {
            self.adapt((kernel.nanos)().saturating_sub(since_nanos));
        }
    }

    fn adapt(&mut self, nanos: u64) {
        let budget =
            if nanos > TURN_NANOS_MAX { self.budget / 2 } else { self.budget.saturating_mul(2) };
        self.budget = budget.clamp(BUDGET_MIN, BUDGET_MAX);
    }

    /// Delivers pending messages within the budget of one turn. Returns when the next turn has to be, if more are
    /// pending.
    #[cold]
    pub fn deliver(
        &mut self,
        kernel: &Kernel,
        worker: usize,
        conns: &mut Conns<'_, AnySession>,
    ) -> Option<NextTurn> {
        if let Some(until_ms) = self.wait(kernel, worker, conns.now().monotonic_ms) {
            return Some(NextTurn::At(until_ms));
        }
        let since_nanos = (kernel.nanos)();
        kernel.pubsub.deliver(worker, self.budget.max(BUDGET_MIN), |to, run| {
            let Some(mut conn) = conns.get(conn_at(to)) else { return 1 };
            let (session, output) = conn.split();
            let AnySession::Resp(session) = session else { return 1 };
            let bytes = session.caller.receive(&kernel.pubsub, run, output);
            if !output.follows_unsent() {
                return SEND_COST + bytes / BYTES_PER_COST;
            }
            // The client reads slowly, or is served twice in this turn.
            let client = &session.caller.client;
            client.note_output(Client::backlog_of(output));
            kernel.clients.memory.count(client);
            1 + bytes / BYTES_PER_COST
        });
        if !kernel.pubsub.has_deliveries(worker) {
            return None;
        }
        self.since_nanos = Some(since_nanos);
        Some(NextTurn::Immediately)
    }

    /// Returns until when to collect messages, if that is likely to pay off.
    fn wait(&mut self, kernel: &Kernel, worker: usize, now_ms: u64) -> Option<u64> {
        // Otherwise a delivery is in progress.
        let Pending { to, count, bytes } = kernel.pubsub.pending(worker)?;
        let is_little = bytes < COLLECTED_BYTES_MAX;
        if let Some(until_ms) = self.until_ms {
            if is_little && now_ms < until_ms {
                return Some(until_ms);
            }
            self.until_ms = None;
            self.without_wait = if count < WORTH_A_WAIT { WITHOUT_WAIT } else { 0 };
        } else if is_little && self.is_repeated(&to, now_ms) {
            if self.without_wait == 0 {
                self.until_ms = Some(now_ms + 1);
                return self.until_ms;
            }
            self.without_wait -= 1;
        }
        self.last = Some((now_ms, to));
        None
    }

    /// Returns true if these receivers got something a moment ago. That turn may have taken most of a millisecond.
    fn is_repeated(&self, to: &To, now_ms: u64) -> bool {
        let last = self.last.as_ref();
        last.is_some_and(|(last_ms, last)| now_ms <= *last_ms + 1 && last.is_same(to))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slow_turns_are_followed_by_small_ones() {
        let mut pacing = Pacing::default();
        for _ in 0..10 {
            pacing.adapt(TURN_NANOS_MAX);
        }
        assert_eq!(pacing.budget, BUDGET_MAX);
        pacing.adapt(TURN_NANOS_MAX + 1);
        assert_eq!(pacing.budget, BUDGET_MAX / 2);
        for _ in 0..10 {
            pacing.adapt(u64::MAX);
        }
        assert_eq!(pacing.budget, BUDGET_MIN);
    }
}
