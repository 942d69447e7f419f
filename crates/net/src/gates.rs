//! Output that must not be sent before events, identified by a ticket.
//!
//! A gate is a position in the output of a connection: output behind it waits until its ticket is reached, and all
//! tickets in front of it. What is in front of the first gate may be sent.

use std::collections::VecDeque;

/// Gates of one connection. When there are more, neighbours become one: the output between them waits
/// for the later ticket.
const GATES_MAX: usize = 64;

/// Places in three sequences that grow independently of each other. Output waits until all of them are reached; zero is
/// reached from the beginning.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ticket(pub [u64; 3]);

impl Ticket {
    /// True once the sequences have come to the places of `reached`.
    #[must_use]
    pub fn is_reached(self, reached: Self) -> bool {
        self.0.iter().zip(reached.0).all(|(place, reached)| *place <= reached)
    }

    pub(crate) fn and(self, other: Self) -> Self {
        Self(std::array::from_fn(|index| self.0[index].max(other.0[index])))
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Gate {
    /// Bytes in front of it, counted from when the first gate of all was set.
    at: u64,
    ticket: Ticket,
}

/// The gates of a connection; there are none when the last one has been opened.
#[derive(Debug, Default)]
pub(crate) struct Gates {
    /// Places grow, and so do tickets: each contains those in front of it.
    gates: VecDeque<Gate>,
    /// Bytes sent since the first gate of all was set.
    sent: u64,
}

impl Gates {
    /// What comes behind the `queued` bytes that wait already waits for `ticket`.
    pub(crate) fn set(&mut self, queued: usize, ticket: Ticket) {
        let at = self.sent + queued as u64;
        match self.gates.back_mut() {
            Some(last) if ticket.is_reached(last.ticket) => return,
            Some(last) if last.at == at => last.ticket = last.ticket.and(ticket),
            last => {
                let ticket = last.map_or(ticket, |last| last.ticket.and(ticket));
                self.gates.push_back(Gate { at, ticket });
            }
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

    /// The sequences have come to these places. Whether nothing is awaited any more.
    pub(crate) fn open(&mut self, reached: Ticket) -> bool {
        while self.gates.front().is_some_and(|gate| gate.ticket.is_reached(reached)) {
            self.gates.pop_front();
        }
        self.gates.is_empty()
    }

    /// The tickets that output waits for.
    pub(crate) fn tickets(&self) -> impl Iterator<Item = Ticket> {
        self.gates.iter().map(|gate| gate.ticket)
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

    fn first(place: u64) -> Ticket {
        Ticket([place, 0, 0])
    }

    #[test]
    fn output_waits_for_the_tickets_in_front_of_it() {
        let mut gates = Gates::default();
        gates.set(10, first(5));
        gates.set(30, first(8));
        assert_eq!(gates.sendable(40), 10);
        gates.advance(10);
        assert!(!gates.open(first(7)));
        assert_eq!(gates.sendable(30), 20);
        assert!(gates.open(first(8)));
        assert_eq!(gates.sendable(30), 30);
    }

    #[test]
    fn a_gate_at_the_same_place_or_with_no_later_ticket_is_none_of_its_own() {
        let mut gates = Gates::default();
        gates.set(10, first(5));
        gates.set(10, first(6));
        gates.set(20, first(6));
        assert_eq!(gates.gates, [Gate { at: 10, ticket: first(6) }]);
    }

    proptest! {
        #![proptest_config(ProptestConfig {
            cases: if cfg!(miri) { 3 } else { effort(200) },
            failure_persistence: None,
            ..ProptestConfig::default()
        })]
        /// However many gates were set: nothing is sent before its ticket and those in front of it, and everything with
        /// the last ones.
        #[test]
        fn nothing_is_sent_too_early_and_everything_in_the_end(
            steps in prop::collection::vec((0..50usize, 0..3usize, 0..3u64, any::<bool>()), 1..400),
        ) {
            let mut gates = Gates::default();
            // The ticket of each byte that waits.
            let mut queue = VecDeque::new();
            let (mut last, mut reached) = (first(1), Ticket::default());
            for (bytes, sequence, step, opens) in steps {
                last.0[sequence] += step;
                // It asks for one of them only.
                let mut ticket = Ticket::default();
                ticket.0[sequence] = last.0[sequence];
                gates.set(queue.len(), ticket);
                queue.extend(std::iter::repeat_n(ticket, bytes));
                prop_assert!(gates.gates.len() <= GATES_MAX);
                if opens {
                    reached.0[sequence] = (reached.0[sequence] + last.0[sequence]).div_ceil(2);
                    gates.open(reached);
                }
                let sendable = gates.sendable(queue.len());
                prop_assert!(queue.drain(..sendable).all(|needed| needed.is_reached(reached)));
                gates.advance(sendable);
            }
            prop_assert!(gates.open(last));
            prop_assert_eq!(gates.sendable(queue.len()), queue.len());
        }
    }
}
