//! Output that must not be sent before an event, identified by a ticket.
//!
//! A gate is a position in the output of a connection: output behind it waits until its ticket is reached. Tickets
//! grow along the output, so what is in front of the first gate may be sent.

use std::collections::VecDeque;

/// Gates of one connection. When there are more, neighbours become one: the output between them waits
/// for the later ticket.
const GATES_MAX: usize = 64;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Gate {
    /// Bytes in front of it, counted from when the first gate of all was set.
    at: u64,
    ticket: u64,
}

/// The gates of a connection; there are none when the last one has been opened.
#[derive(Debug, Default)]
pub(crate) struct Gates {
    /// Places and tickets grow.
    gates: VecDeque<Gate>,
    /// Bytes sent since the first gate of all was set.
    sent: u64,
}

impl Gates {
    /// What comes behind the `queued` bytes that wait already waits for `ticket`.
    pub(crate) fn set(&mut self, queued: usize, ticket: u64) {
        let at = self.sent + queued as u64;
        match self.gates.back_mut() {
            Some(last) if last.ticket >= ticket => return,
            Some(last) if last.at == at => last.ticket = ticket,
            _ => self.gates.push_back(Gate { at, ticket }),
        }
        if self.gates.len() > GATES_MAX {
            self.merge();
        }
    }

    /// Makes one of every two neighbours, so that what is left is spread as evenly as before.
    #[cold]
    fn merge(&mut self) {
        let gates = self.gates.make_contiguous();
        let pairs = gates.chunks(2).map(|pair| Gate { at: pair[0].at, ..pair[pair.len() - 1] });
        self.gates = pairs.collect();
    }

    /// Everything up to this ticket has happened. Whether that was the last one awaited.
    pub(crate) fn open(&mut self, reached: u64) -> bool {
        while self.gates.front().is_some_and(|gate| gate.ticket <= reached) {
            self.gates.pop_front();
        }
        self.gates.is_empty()
    }

    /// The ticket that the first output waits for.
    pub(crate) fn first(&self) -> Option<u64> {
        self.gates.front().map(|gate| gate.ticket)
    }

    /// How many of `queued` bytes may be sent.
    pub(crate) fn sendable(&self, queued: usize) -> usize {
        self.gates.front().map_or(queued, |gate| (gate.at - self.sent) as usize)
    }

    /// This many bytes were sent.
    pub(crate) fn advance(&mut self, count: usize) {
        self.sent += count as u64;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use tierce_harness::effort;

    use super::*;

    #[test]
    fn output_waits_for_the_tickets_in_front_of_it() {
        let mut gates = Gates::default();
        gates.set(10, 5);
        gates.set(30, 8);
        assert_eq!(gates.sendable(40), 10);
        gates.advance(10);
        assert!(!gates.open(7));
        assert_eq!(gates.sendable(30), 20);
        assert!(gates.open(8));
        assert_eq!(gates.sendable(30), 30);
    }

    #[test]
    fn a_gate_at_the_same_place_or_with_no_later_ticket_is_none_of_its_own() {
        let mut gates = Gates::default();
        gates.set(10, 5);
        gates.set(10, 6);
        gates.set(20, 6);
        assert_eq!(gates.gates, [Gate { at: 10, ticket: 6 }]);
    }

    proptest! {
        #![proptest_config(ProptestConfig {
            cases: if cfg!(miri) { 3 } else { effort(200) },
            failure_persistence: None,
            ..ProptestConfig::default()
        })]
        /// However many gates were set: nothing is sent before its ticket, and everything with it.
        #[test]
        fn nothing_is_sent_too_early_and_everything_in_the_end(
            steps in prop::collection::vec((0..50usize, 0..3u64, any::<bool>()), 1..400),
        ) {
            let mut gates = Gates::default();
            // The ticket of each byte that waits.
            let mut queue = VecDeque::new();
            let (mut ticket, mut reached) = (1, 0);
            for (bytes, step, opens) in steps {
                ticket += step;
                gates.set(queue.len(), ticket);
                queue.extend(std::iter::repeat_n(ticket, bytes));
                prop_assert!(gates.gates.len() <= GATES_MAX);
                if opens {
                    reached = (reached + ticket).div_ceil(2);
                    gates.open(reached);
                }
                let sendable = gates.sendable(queue.len());
                prop_assert!(queue.drain(..sendable).all(|needed| needed <= reached));
                gates.advance(sendable);
            }
            prop_assert!(gates.open(ticket));
            prop_assert_eq!(gates.sendable(queue.len()), queue.len());
        }
    }
}
