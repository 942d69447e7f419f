//! Messages that a worker has yet to deliver.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use parking_lot::Mutex;

use super::frame::Frame;
use super::names::{Kind, Name};
use super::run::{RUN_BYTES_MAX, Run};
use super::subscriptions::Subscriptions;
use crate::waiting::ConnAddress;

/// Limit of bytes in an inbox. Publishers that can wait do so beyond it, because a worker with many receivers cannot
/// keep up with publishers on others.
const INBOX_BYTES_MAX: usize = 16 << 20;

/// The receivers of a delivery.
#[derive(Clone)]
pub enum To {
    /// The subscribers of a name on one worker.
    Named(Kind, Name),
    /// One connection, independent of its subscriptions.
    Client(ConnAddress),
}

impl To {
    /// Returns true if the receivers are equal.
    #[must_use]
    pub fn is_same(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Named(kind, name), Self::Named(other_kind, other)) => {
                kind == other_kind && Arc::ptr_eq(name, other)
            }
            (Self::Client(conn), Self::Client(other)) => conn == other,
            _ => false,
        }
    }
}

/// A message for receivers on one worker.
pub(super) struct Delivery {
    pub(super) to: To,
    pub(super) frame: Frame,
}

/// Pending deliveries of a worker.
pub struct Pending {
    /// The receivers of the first message.
    pub to: To,
    /// Number of messages.
    pub count: usize,
    /// Their size in bytes.
    pub bytes: usize,
}

/// Number of deliveries from which on they are found by an index.
const INDEXED_FROM: usize = if cfg!(test) { 4 } else { 64 };

/// Number of deliveries for which an empty queue keeps memory (20 KiB). The rest after a burst is freed.
const CAPACITY_KEPT: usize = 256;

#[derive(Default)]
struct Queue {
    deliveries: VecDeque<Delivery>,
    index: Index,
}

/// Positions of the deliveries for each name. The index is built when a connection catches up with a long queue.
/// Without it each of many connections would scan the whole queue.
#[derive(Default)]
struct Index {
    /// Ascending numbers of deliveries. Some may have left the queue.
    by_kind: [HashMap<Name, Vec<u64>>; Kind::ALL.len()],
    by_client: HashMap<ConnAddress, Vec<u64>>,
    /// Number of indexed deliveries.
    len: usize,
    /// The index ends before the delivery with this number.
    end: u64,
}

/// The queue of one worker.
#[derive(Default)]
pub(super) struct Inbox {
    queue: Mutex<Queue>,
    /// Number of the next delivery. Those in the queue have the numbers before it, without gaps. Changed only while the
    /// queue is locked.
    end: AtomicU64,
    /// True while deliveries are in the queue or being delivered.
    has_deliveries: AtomicBool,
    /// Bytes in the queue or being delivered.
    bytes: AtomicUsize,
}

impl Delivery {
    /// Its size in an inbox, in bytes.
    pub(super) fn bytes(&self) -> usize {
        size_of::<Self>() + self.frame.len()
    }
}

impl Index {
    /// Adds the deliveries that are not indexed yet. `first` is the number of the first one in the queue.
    fn extend(&mut self, deliveries: &VecDeque<Delivery>, first: u64) {
        if self.len > 2 * deliveries.len() {
            self.clear();
        }
        let begin = self.end.max(first);
        for (number, delivery) in (begin..).zip(deliveries.iter().skip((begin - first) as usize)) {
            let numbers = match &delivery.to {
                To::Named(kind, name) => {
                    self.by_kind[*kind as usize].entry(Arc::clone(name)).or_default()
                }
                To::Client(conn) => self.by_client.entry(*conn).or_default(),
            };
            numbers.push(number);
            self.len += 1;
        }
        self.end = first + deliveries.len() as u64;
    }

    /// Returns the numbers of the deliveries to a connection from `from` on, in order.
    fn numbers(&self, subscriptions: &Subscriptions, from: u64) -> Vec<u64> {
        let named = Kind::ALL.into_iter().flat_map(|kind| {
            let of_kind = &self.by_kind[kind as usize];
            subscriptions.names(kind).filter_map(move |name| of_kind.get(name))
        });
        let mut all = Vec::new();
        for numbers in named.chain(self.by_client.get(&subscriptions.conn)) {
            all.extend_from_slice(&numbers[numbers.partition_point(|number| *number < from)..]);
        }
        all.sort_unstable();
        all
    }

    fn clear(&mut self) {
        if self.len > 0 {
            *self = Self::default();
        }
    }
}

impl Inbox {
    /// Adds a delivery. Returns true if the worker has to be notified.
    pub(super) fn post(&self, delivery: Delivery) -> bool {
        self.bytes.fetch_add(delivery.bytes(), Ordering::Relaxed);
        let mut queue = self.queue.lock();
        queue.deliveries.push_back(delivery);
        self.end.fetch_add(1, Ordering::Release);
        !self.has_deliveries.swap(true, Ordering::AcqRel)
    }

    /// Returns the number of the next delivery.
    #[inline]
    pub(super) fn end(&self) -> u64 {
        self.end.load(Ordering::Acquire)
    }

    #[inline]
    pub(super) fn has_deliveries(&self) -> bool {
        self.has_deliveries.load(Ordering::Relaxed)
    }

    /// Returns the bytes in the queue or being delivered.
    pub(super) fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }

    #[inline]
    pub(super) fn is_full(&self) -> bool {
        self.bytes() > INBOX_BYTES_MAX
    }

    pub(super) fn pending(&self) -> Option<Pending> {
        let Queue { deliveries, .. } = &*self.queue.lock();
        let to = deliveries.front()?.to.clone();
        Some(Pending { to, count: deliveries.len(), bytes: self.bytes() })
    }

    /// Visits the queued deliveries that a connection has not seen. Returns the number after the last one.
    pub(super) fn each_unseen(
        &self,
        subscriptions: &mut Subscriptions,
        mut visit: impl FnMut(&mut Subscriptions, &Delivery),
    ) -> u64 {
        let Queue { deliveries, index } = &mut *self.queue.lock();
        let end = self.end();
        let first = end - deliveries.len() as u64;
        let from = subscriptions.seen.max(first);
        let unseen = (end - from) as usize;
        if unseen <= INDEXED_FROM.max(subscriptions.len()) {
            for delivery in deliveries.iter().skip((from - first) as usize) {
                if subscriptions.gets(&delivery.to) {
                    visit(subscriptions, delivery);
                }
            }
        } else {
            index.extend(deliveries, first);
            for number in index.numbers(subscriptions, from) {
                visit(subscriptions, &deliveries[(number - first) as usize]);
            }
        }
        end
    }

    /// Removes and returns the next deliveries with the same receivers.
    pub(super) fn next_run(&self) -> Option<Run> {
        let Queue { deliveries: queue, index } = &mut *self.queue.lock();
        let first_number = self.end() - queue.len() as u64;
        let Some(first) = queue.pop_front() else {
            index.clear();
            queue.shrink_to(CAPACITY_KEPT);
            self.has_deliveries.store(false, Ordering::Release);
            return None;
        };
        let mut bytes = first.frame.len();
        let mut frames = Vec::new();
        while let Some(next) = queue.front()
            && next.to.is_same(&first.to)
            && bytes + next.frame.len() <= RUN_BYTES_MAX
        {
            bytes += next.frame.len();
            frames.extend(queue.pop_front().map(|next| next.frame));
        }
        Some(Run::new(first_number, first, frames))
    }

    /// Notes that a run has been delivered.
    pub(super) fn done(&self, run: &Run) {
        self.bytes.fetch_sub(run.bytes(), Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::super::Invalidation;
    use super::*;

    #[test]
    fn an_empty_queue_gives_its_room_back() {
        let inbox = Inbox::default();
        let name: Name = b"channel".as_slice().into();
        for _ in 0..100 * CAPACITY_KEPT {
            let frame = Frame::Invalidation(Invalidation::ALL);
            inbox.post(Delivery { to: To::Named(Kind::Channel, Arc::clone(&name)), frame });
        }
        assert!(inbox.queue.lock().deliveries.capacity() >= 100 * CAPACITY_KEPT);
        while let Some(run) = inbox.next_run() {
            inbox.done(&run);
        }
        assert!(inbox.queue.lock().deliveries.capacity() <= 2 * CAPACITY_KEPT);
        assert_eq!(inbox.bytes(), 0);
    }
}
