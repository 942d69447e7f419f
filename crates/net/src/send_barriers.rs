//! Deferred output: it must not be sent before events, which a ticket identifies.
//!
//! A barrier is a position in the output of a connection. Output behind it waits until its ticket and all earlier tickets
//! are reached. Output in front of the first barrier may be sent.

use std::collections::VecDeque;

/// Maximum number of barriers of one connection. When there are more, neighbours are merged: the output between them waits
/// for the later ticket.
const BARRIERS_MAX: usize = 64;

/// Positions in three sequences that grow independently of each other. Output waits until all of them are reached; zero
/// is reached from the beginning.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ticket(pub [u64; 3]);

impl Ticket {
    /// Returns true if the sequences have reached these positions.
    #[must_use]
    pub fn is_reached(self, reached: Self) -> bool {
        self.0.iter().zip(reached.0).all(|(place, reached)| *place <= reached)
    }

    pub(crate) fn and(self, other: Self) -> Self {
        Self(std::array::from_fn(|index| self.0[index].max(other.0[index])))
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Barrier {
    /// Number of bytes in front of it, counted from when the first barrier was set.
    at: u64,
    ticket: Ticket,
}

/// Barriers of a connection; empty when the last one has been opened.
#[derive(Debug, Default)]
pub(crate) struct SendBarriers {
    /// Positions grow, and so do tickets: each includes the earlier ones.
    queue: VecDeque<Barrier>,
    /// Number of bytes sent since the first barrier was set.
    sent: u64,
}

impl SendBarriers {
    /// Makes output behind the `queued` bytes wait for `ticket`.
    pub(crate) fn set(&mut self, queued: usize, ticket: Ticket) {
        let at = self.sent + queued as u64;
        match self.queue.back_mut() {
            Some(last) if ticket.is_reached(last.ticket) => return,
            Some(last) if last.at == at => last.ticket = last.ticket.and(ticket),
            last => {
                let ticket = last.map_or(ticket, |last| last.ticket.and(ticket));
                self.queue.push_back(Barrier { at, ticket });
            }
        }
        if self.queue.len() > BARRIERS_MAX {
            self.merge();
        }
    }

    /// Merges neighbours in pairs, so that the rest stays evenly spread.
    #[cold]
    fn merge(&mut self) {
        let send_barriers = self.queue.make_contiguous();
        let pairs =
            send_barriers.chunks(2).map(|pair| Barrier { at: pair[0].at, ..pair[pair.len() - 1] });
        self.queue = pairs.collect();
    }

    /// Opens the barriers whose tickets are reached. Returns true if none is left.
    pub(crate) fn open(&mut self, reached: Ticket) -> bool {
        while self.queue.front().is_some_and(|barrier| barrier.ticket.is_reached(reached)) {
            self.queue.pop_front();
        }
        self.queue.is_empty()
    }

    /// Returns the tickets that output waits for.
    pub(crate) fn tickets(&self) -> impl Iterator<Item = Ticket> {
        self.queue.iter().map(|barrier| barrier.ticket)
    }

    /// Returns how many of `queued` bytes may be sent.
    pub(crate) fn sendable(&self, queued: usize) -> usize {
        self.queue.front().map_or(queued, |barrier| (barrier.at - self.sent) as usize)
    }

    /// Notes that this many bytes were sent.
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
        let mut send_barriers = SendBarriers::default();
        send_barriers.set(10, first(5));
        send_barriers.set(30, first(8));
        assert_eq!(send_barriers.sendable(40), 10);
        send_barriers.advance(10);
        assert!(!send_barriers.open(first(7)));
        assert_eq!(send_barriers.sendable(30), 20);
        assert!(send_barriers.open(first(8)));
        assert_eq!(send_barriers.sendable(30), 30);
    }

    #[test]
    fn a_gate_at_the_same_place_or_with_no_later_ticket_is_none_of_its_own() {
        let mut send_barriers = SendBarriers::default();
        send_barriers.set(10, first(5));
        send_barriers.set(10, first(6));
        send_barriers.set(20, first(6));
        assert_eq!(send_barriers.queue, [Barrier { at: 10, ticket: first(6) }]);
    }

    proptest! {
        #![proptest_config(ProptestConfig {
            cases: if cfg!(miri) { 3 } else { effort(200) },
            failure_persistence: None,
            ..ProptestConfig::default()
        })]
        /// For any number of barriers: no byte is sent before its ticket and the earlier ones, and all are sent with the
        /// last ones.
        #[test]
        fn nothing_is_sent_too_early_and_everything_in_the_end(
            steps in prop::collection::vec((0..50usize, 0..3usize, 0..3u64, any::<bool>()), 1..400),
        ) {
            let mut send_barriers = SendBarriers::default();
            // Ticket of each waiting byte.
            let mut queue = VecDeque::new();
            let (mut last, mut reached) = (first(1), Ticket::default());
            for (bytes, sequence, step, opens) in steps {
                last.0[sequence] += step;
                // It asks for one of them only.
                let mut ticket = Ticket::default();
                ticket.0[sequence] = last.0[sequence];
                send_barriers.set(queue.len(), ticket);
                queue.extend(std::iter::repeat_n(ticket, bytes));
                prop_assert!(send_barriers.queue.len() <= BARRIERS_MAX);
                if opens {
                    reached.0[sequence] = (reached.0[sequence] + last.0[sequence]).div_ceil(2);
                    send_barriers.open(reached);
                }
                let sendable = send_barriers.sendable(queue.len());
                prop_assert!(queue.drain(..sendable).all(|needed| needed.is_reached(reached)));
                send_barriers.advance(sendable);
            }
            prop_assert!(send_barriers.open(last));
            prop_assert_eq!(send_barriers.sendable(queue.len()), queue.len());
        }
    }
}
