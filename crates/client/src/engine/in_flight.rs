//! The requests in flight, by id.
//!
//! Ids count up, so an id is reused only after 2^32 requests. A late answer is recognized unless it is later than
//! that. The id determines the slot of a request. If a slow request still has that slot, the id is skipped. At least
//! half of the slots are free, so this is rare.

use crate::callback::Callback;
use crate::window::Repeat;

/// No deadline. Later than all deadlines.
pub(super) const NEVER: u64 = u64::MAX;

/// Position of a request's bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ByteRange {
    /// Number of the chunk in [`Output`](super::output::Output).
    pub(super) chunk: u32,
    pub(super) offset: usize,
    pub(super) len: usize,
}

/// A request and its waiter.
pub(super) struct Request {
    pub(super) callback: Callback,
    pub(super) range: ByteRange,
    /// Time at which the request fails.
    pub(super) deadline_ms: u64,
    /// Time at which this attempt fails; not later than the deadline.
    pub(super) attempt_until_ms: u64,
    /// Number of attempts that were sent and not answered.
    pub(super) failures: u32,
    pub(super) repeat: Repeat,
    /// Number of replies in the answer.
    pub(super) replies: u32,
}

/// Requests by id.
pub(super) struct InFlight {
    slots: Box<[Option<(u32, Request)>]>,
    next_id: u32,
    len: usize,
    /// Lower bound of the end of all attempts.
    earliest_ms: u64,
}

impl InFlight {
    /// Makes a table with room for this many requests.
    pub(super) fn new(max_inflight: usize) -> InFlight {
        let slots = (max_inflight * 2).next_power_of_two();
        InFlight {
            slots: (0..slots).map(|_| None).collect(),
            next_id: 0,
            len: 0,
            earliest_ms: NEVER,
        }
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.len
    }

    #[inline]
    fn slot(&self, id: u32) -> usize {
        id as usize & (self.slots.len() - 1)
    }

    /// Returns the id for the next request.
    #[inline]
    pub(super) fn next_id(&mut self) -> u32 {
        debug_assert!(self.len < self.slots.len());
        while self.slots[self.slot(self.next_id)].is_some() {
            self.next_id = self.next_id.wrapping_add(1);
        }
        self.next_id
    }

    /// Adds a request under the last id that [`InFlight::next_id`] has returned.
    #[inline]
    pub(super) fn insert(&mut self, request: Request) {
        self.earliest_ms = self.earliest_ms.min(request.attempt_until_ms);
        let (id, slot) = (self.next_id, self.slot(self.next_id));
        self.slots[slot] = Some((id, request));
        self.len += 1;
        self.next_id = id.wrapping_add(1);
    }

    #[inline]
    pub(super) fn remove(&mut self, id: u32) -> Option<Request> {
        let slot = self.slot(id);
        let (_, request) = self.slots[slot].take_if(|(found, _)| *found == id)?;
        self.len -= 1;
        Some(request)
    }

    /// Returns a time before which no attempt ends.
    pub(super) fn earliest_ms(&self) -> u64 {
        if self.len == 0 { NEVER } else { self.earliest_ms }
    }

    /// Removes and returns the requests whose attempt is over, oldest first.
    pub(super) fn take_due(&mut self, now_ms: u64) -> Vec<(u32, Request)> {
        if self.earliest_ms() > now_ms {
            return Vec::new();
        }
        let due = self.take_if(|request| request.attempt_until_ms <= now_ms);
        let ends = self.slots.iter().flatten().map(|(_, request)| request.attempt_until_ms);
        self.earliest_ms = ends.min().unwrap_or(NEVER);
        due
    }

    /// Removes and returns all requests, oldest first.
    pub(super) fn take_all(&mut self) -> Vec<(u32, Request)> {
        self.take_if(|_| true)
    }

    /// Removes and returns the chosen requests, oldest first.
    pub(super) fn take_if(
        &mut self,
        mut chosen: impl FnMut(&Request) -> bool,
    ) -> Vec<(u32, Request)> {
        let mut taken: Vec<_> = self
            .slots
            .iter_mut()
            .filter_map(|slot| slot.take_if(|(_, request)| chosen(request)))
            .collect();
        self.len -= taken.len();
        // The newest has the id before the next one, and all are less than 2^32 ids apart.
        let next_id = self.next_id;
        taken.sort_unstable_by_key(|&(id, _)| id.wrapping_sub(next_id));
        taken
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(attempt_until_ms: u64) -> Request {
        Request {
            callback: Callback::new(|_| {}),
            range: ByteRange { chunk: 0, offset: 0, len: 0 },
            deadline_ms: NEVER,
            attempt_until_ms,
            failures: 0,
            repeat: Repeat::No,
            replies: 1,
        }
    }

    #[test]
    fn ids_count_up_past_slow_requests_and_their_end() {
        let mut requests = InFlight::new(2);
        requests.next_id = u32::MAX - 2;
        assert_eq!(requests.next_id(), u32::MAX - 2);
        requests.insert(request(9));
        let mut used = vec![];
        for _ in 0..5 {
            used.push(requests.next_id());
            requests.insert(request(NEVER));
            assert!(requests.remove(*used.last().unwrap()).is_some());
        }
        // Four slots; the slow request's slot is skipped.
        assert_eq!(used, [u32::MAX - 1, u32::MAX, 0, 2, 3]);
        assert!(requests.remove(1).is_none(), "another id in the slot of the slow request");
        assert_eq!(requests.len(), 1);
        assert_eq!(requests.take_due(9).len(), 1);
        assert_eq!(requests.earliest_ms(), NEVER);
    }

    #[test]
    fn due_requests_come_out_oldest_first() {
        let mut requests = InFlight::new(8);
        requests.next_id = u32::MAX - 3;
        for at_ms in [5, 9, 5, 7, 5, 5] {
            requests.next_id();
            requests.insert(request(at_ms));
        }
        assert_eq!(requests.earliest_ms(), 5);
        assert!(requests.take_due(4).is_empty());
        let due: Vec<u32> = requests.take_due(6).iter().map(|(id, _)| *id).collect();
        assert_eq!(due, [u32::MAX - 3, u32::MAX - 1, 0, 1]);
        assert_eq!(requests.earliest_ms(), 7);
        assert_eq!(requests.take_all().len(), 2);
        assert_eq!(requests.len(), 0);
    }
}
