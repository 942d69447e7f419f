//! Group commit: of all threads that want to write to a shard's log, one leads.
//!
//! The leader takes what the others have queued, appends everything in one call, syncs once if
//! anybody wants that, applies the changes to the index in order, and tells everybody. Whoever
//! comes meanwhile forms the next group. A writer that finds the lane free leads at once and
//! never waits, allocates or wakes anybody.
//!
//! Leadership can also be taken alone ([`Lane::lead`]): batches over several shards, snapshots and
//! closing keep writers out that way. Whoever takes several lanes takes them in ascending order.
//!
//! Invariants:
//! * At most one thread leads; only it changes `active`.
//! * While `busy` is false nobody is queued.

use super::write::Write;
use crate::error::Result;
use crate::segment::file::Segment;
use parking_lot::{Condvar, Mutex};
use std::collections::VecDeque;
use std::sync::Arc;

/// A group is closed when it has this many bytes; whoever is still queued leads the next.
const GROUP_LEN_MAX: usize = 8 << 20;

/// The queue before a shard's log.
#[derive(Default)]
pub(crate) struct Lane {
    queue: Mutex<Queue>,
    active: Mutex<Option<Arc<Segment>>>,
}

#[derive(Default)]
struct Queue {
    busy: bool,
    waiting: VecDeque<Waiter>,
}

struct Waiter {
    ticket: Arc<Ticket>,
    /// `None` when the thread wants to lead alone.
    write: Option<Write>,
}

#[derive(Default)]
struct Ticket {
    news: Mutex<Option<News>>,
    told: Condvar,
}

enum News {
    Lead,
    Done(Result<()>),
}

impl Ticket {
    fn tell(&self, news: News) {
        *self.news.lock() = Some(news);
        self.told.notify_one();
    }

    fn wait(&self) -> News {
        let mut news = self.news.lock();
        loop {
            match news.take() {
                Some(news) => return news,
                None => self.told.wait(&mut news),
            }
        }
    }
}

impl Lane {
    /// Has `write` committed, by this thread or another. `commit` gets a group of writes and
    /// returns a result for each.
    pub(crate) fn submit(
        &self,
        write: Write,
        commit: impl FnOnce(Vec<Write>) -> Vec<Result<()>>,
    ) -> Result<()> {
        let mut queue = self.queue.lock();
        if !queue.busy {
            queue.busy = true;
            drop(queue);
            return self.lead_group(vec![write], Vec::new(), commit);
        }
        let ticket = Arc::new(Ticket::default());
        queue.waiting.push_back(Waiter { ticket: ticket.clone(), write: Some(write) });
        drop(queue);
        match ticket.wait() {
            News::Done(result) => result,
            News::Lead => {
                let (group, mut tickets) = self.take_group();
                // Whoever is told to lead stands first in the queue.
                tickets.remove(0);
                self.lead_group(group, tickets, commit)
            }
        }
    }

    /// Waits until this thread leads; nobody else commits until the result is dropped.
    pub(crate) fn lead(&self) -> Leadership<'_> {
        let mut queue = self.queue.lock();
        if queue.busy {
            let ticket = Arc::new(Ticket::default());
            queue.waiting.push_back(Waiter { ticket: ticket.clone(), write: None });
            drop(queue);
            ticket.wait();
            self.queue.lock().waiting.pop_front();
        } else {
            queue.busy = true;
        }
        Leadership { lane: self }
    }

    /// The segment being written; none before the first write.
    pub(crate) fn active(&self) -> Option<Arc<Segment>> {
        self.active.lock().clone()
    }

    /// Changes the segment being written; for leaders only.
    pub(crate) fn set_active(&self, segment: Option<Arc<Segment>>) -> Option<Arc<Segment>> {
        std::mem::replace(&mut self.active.lock(), segment)
    }

    fn lead_group(
        &self,
        group: Vec<Write>,
        tickets: Vec<Arc<Ticket>>,
        commit: impl FnOnce(Vec<Write>) -> Vec<Result<()>>,
    ) -> Result<()> {
        let leadership = Leadership { lane: self };
        let mut results = commit(group).into_iter();
        drop(leadership);
        let own = results.next().expect("one result for each write");
        for (ticket, result) in tickets.iter().zip(results) {
            ticket.tell(News::Done(result));
        }
        own
    }

    /// Takes writes from the queue's front.
    fn take_group(&self) -> (Vec<Write>, Vec<Arc<Ticket>>) {
        let mut queue = self.queue.lock();
        let (mut group, mut tickets, mut len) = (Vec::new(), Vec::new(), 0);
        while len < GROUP_LEN_MAX
            && let Some(Waiter { write: Some(_), .. }) = queue.waiting.front()
            && let Some(Waiter { write: Some(write), ticket }) = queue.waiting.pop_front()
        {
            len += write.frame.len();
            group.push(write);
            tickets.push(ticket);
        }
        (group, tickets)
    }
}

/// The right to write to a shard's log, handed on when dropped.
pub(crate) struct Leadership<'a> {
    lane: &'a Lane,
}

impl Drop for Leadership<'_> {
    fn drop(&mut self) {
        let mut queue = self.lane.queue.lock();
        match queue.waiting.front() {
            Some(next) => next.ticket.tell(News::Lead),
            None => queue.busy = false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compression::Compression;
    use crate::hash::HashKey;
    use crate::log::write::Encoder;
    use crate::options::Durability;
    use std::sync::atomic::{AtomicUsize, Ordering};

    fn write(key: usize) -> Write {
        let encoder = Encoder { hash_key: HashKey([0, 0]), compression: Compression::None };
        Write::delete(encoder, &key.to_le_bytes(), Durability::Policy)
    }

    #[test]
    fn every_write_is_committed_once_and_leaders_exclude_each_other() {
        let lane = Lane::default();
        let (leaders, committed, alone) =
            (AtomicUsize::new(0), AtomicUsize::new(0), AtomicUsize::new(0));
        std::thread::scope(|scope| {
            for thread in 0..8 {
                let (lane, leaders, committed, alone) = (&lane, &leaders, &committed, &alone);
                scope.spawn(move || {
                    for i in 0..500 {
                        if i % 50 == thread {
                            let _leadership = lane.lead();
                            assert_eq!(leaders.fetch_add(1, Ordering::SeqCst), 0);
                            alone.fetch_add(1, Ordering::SeqCst);
                            std::thread::yield_now();
                            leaders.fetch_sub(1, Ordering::SeqCst);
                            continue;
                        }
                        lane.submit(write(i), |group| {
                            assert_eq!(leaders.fetch_add(1, Ordering::SeqCst), 0);
                            committed.fetch_add(group.len(), Ordering::SeqCst);
                            std::thread::yield_now();
                            leaders.fetch_sub(1, Ordering::SeqCst);
                            group.iter().map(|_| Ok(())).collect()
                        })
                        .unwrap();
                    }
                });
            }
        });
        assert_eq!(alone.into_inner(), 8 * 10);
        assert_eq!(committed.into_inner(), 8 * 490);
    }
}
