//! Messages that many patterns may match, on their way to the inboxes.
//!
//! Matching them takes long, so it is done in steps, without a lock between the steps. Subscribers must still get the
//! messages of a channel in order. So such messages wait in one queue, and a thread that may take long publishes one at
//! a time. While a message of a channel waits, all later ones of this channel are queued behind it (`Registry` knows
//! these channels).

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use tierce_keyspace::interleaving::Condvar;

use super::names::Name;

/// Limit of waiting bytes. Beyond it, publishers that can wait do so.
const BYTES_MAX: usize = 16 << 20;

/// Limit of matching work, in patterns of usual length: about a second. Publishers wait as above.
const WEIGHT_MAX: usize = 10_000_000;

/// The queue.
#[derive(Default)]
pub(super) struct Backlog {
    state: Mutex<State>,
    /// Signaled after a message was added or published.
    changed: Condvar,
    /// Number of messages that wait or are being published. Their bytes and their matching work follow.
    len: AtomicUsize,
    bytes: AtomicUsize,
    weight: AtomicUsize,
}

#[derive(Default)]
struct State {
    waiting: VecDeque<Queued>,
    /// True while a message is being published.
    is_publishing: bool,
    /// True if there is a publishing thread.
    has_publisher: bool,
}

/// A message that waits.
pub(super) struct Queued {
    pub(super) channel: Name,
    pub(super) message: Box<[u8]>,
    weight: usize,
    /// Number of subscriptions that got it, set at the end.
    count: Count,
}

/// Number of subscriptions that get a message, once it is known.
pub(super) type Count = Arc<OnceLock<usize>>;

impl Queued {
    fn bytes(&self) -> usize {
        size_of::<Self>() + self.channel.len() + self.message.len()
    }
}

impl Backlog {
    /// Adds a message with this matching work. The caller has locked its channel.
    pub(super) fn push(&self, channel: &[u8], message: &[u8], weight: usize) -> Count {
        let count = Count::default();
        let (channel, message) = (Name::from(channel), Box::from(message));
        let queued = Queued { channel, message, weight, count: Arc::clone(&count) };
        let mut state = self.state.lock();
        self.len.fetch_add(1, Ordering::SeqCst);
        self.bytes.fetch_add(queued.bytes(), Ordering::Relaxed);
        self.weight.fetch_add(weight, Ordering::Relaxed);
        state.waiting.push_back(queued);
        self.changed.notify_all();
        count
    }

    /// Returns true if no message waits.
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.len.load(Ordering::SeqCst) == 0
    }

    /// Returns the bytes of all messages that wait or are being published.
    pub(super) fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Returns true if publishers that can wait have to do so.
    #[inline]
    pub(super) fn is_full(&self) -> bool {
        self.bytes() > BYTES_MAX || self.weight.load(Ordering::Relaxed) > WEIGHT_MAX
    }

    /// Sets whether there is a thread that calls [`Backlog::publish_next`].
    pub(super) fn set_publisher(&self, is_there: bool) {
        self.state.lock().has_publisher = is_there;
        self.changed.notify_all();
    }

    /// Returns true if there is a publishing thread.
    pub(super) fn has_publisher(&self) -> bool {
        self.state.lock().has_publisher
    }

    /// Waits for the next message and publishes it with `publish`. Returns false if there is no publisher any more.
    pub(super) fn publish_next(&self, publish: impl FnOnce(&Queued) -> usize) -> bool {
        let mut state = self.state.lock();
        loop {
            if !state.has_publisher {
                return false;
            }
            if !state.is_publishing
                && let Some(next) = state.waiting.pop_front()
            {
                state.is_publishing = true;
                drop(state);
                self.publish(&next, publish);
                return true;
            }
            self.changed.wait(&mut state);
        }
    }

    /// Waits until a message is published, and publishes waiting messages meanwhile.
    pub(super) fn wait_for(
        &self,
        count: &Count,
        mut publish: impl FnMut(&Queued) -> usize,
    ) -> usize {
        let mut state = self.state.lock();
        loop {
            if let Some(count) = count.get() {
                return *count;
            }
            let next = if state.is_publishing { None } else { state.waiting.pop_front() };
            let Some(next) = next else {
                self.changed.wait(&mut state);
                continue;
            };
            state.is_publishing = true;
            drop(state);
            self.publish(&next, &mut publish);
            state = self.state.lock();
        }
    }

    fn publish(&self, queued: &Queued, publish: impl FnOnce(&Queued) -> usize) {
        let count = publish(queued);
        let mut state = self.state.lock();
        state.is_publishing = false;
        let _ = queued.count.set(count);
        self.bytes.fetch_sub(queued.bytes(), Ordering::Relaxed);
        self.weight.fetch_sub(queued.weight, Ordering::Relaxed);
        self.len.fetch_sub(1, Ordering::SeqCst);
        self.changed.notify_all();
    }
}
