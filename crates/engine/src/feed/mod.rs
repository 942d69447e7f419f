//! The change feed: all changes, in order, for readers in this process, the *followers*: one per [`Reader`].
//!
//! The feed is the log sink of the keyspace, and passes every record on to the log on disk. Each follower has its own
//! queue, which gets a copy of each change. Without followers nothing is copied. Checkpoints and locations of values on
//! disk are not changes ([`RecordKind`]), and are left out. While `appendonly` is off, changes are recorded for
//! followers alone.
//!
//! **Order.** A record enters the feed before the shards of its operations are unlocked. So the records of one key are
//! in the order of its changes. A change that is longer than a record is a batch of several, as in the log. Records of
//! other threads may be between them.
//!
//! **Beginning.** A follower misses changes in shards that were locked when it began. Everything after a
//! [mark](Feed::mark) is complete: all shards are locked while it is set, so it never divides a batch.
//!
//! **Pauses.** While a server applies the stream of another one, its follower does not need the changes
//! ([`Feed::pause`]). They are still recorded, so that the follower misses nothing when it resumes.
//!
//! **Write errors.** A change that the log has refused is not acknowledged to its client, but it is in memory and will
//! be in the next log. The feed defers it, with all later changes, until the log is healed or switched off. So a
//! replica never has a change that was refused to a client because of the disk, unless the change survives here as
//! well. Changes that only wait for a sync are not deferred.
//!
//! **Positions.** All followers count alike: every item goes to all of them, including marks and commands of others. So
//! one position tells a session how far each of them must be.
//!
//! **Limit.** A follower states how many bytes may wait for it. Beyond that its queue is [`Overrun`]: it drops
//! everything, and the follower must begin again. Writers never wait for the feed, nor one follower for another.

mod queue;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use tierce_keyspace::Keyspace;
use tierce_keyspace::log::{self, LogSink, RecordKind};

use crate::durability::DurableLog;
use queue::{Kind, Queue, Spare};

pub use queue::{Fed, FedBatch};

/// Default limit of the bytes that wait for a follower: enough for some of the longest values, or for seconds of writes
/// that saturate all processors.
pub const WAITING_BYTES_MAX: usize = 1 << 30;

/// Purpose of a follower.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reader {
    /// Replication stream.
    Replicas,
    /// Log in a bucket.
    Bucket,
}

impl Reader {
    const COUNT: usize = 2;
}

/// Sink of all changes: passes them to the log, and to followers if there are any.
pub struct Feed {
    durable_log: Arc<DurableLog>,
    /// True if there is a follower. Only a hint: the queues are authoritative.
    is_followed: AtomicBool,
    /// Number of items ever appended. Written with the queues locked.
    position: AtomicU64,
    /// A queue per reader. They share a lock, so that all have the same order.
    queues: Mutex<[Queue; Reader::COUNT]>,
    appended: [Condvar; Reader::COUNT],
    /// Number of followers. Locked while the keyspace is notified.
    followers: Mutex<usize>,
}

/// More bytes waited for a follower than its limit allows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("changes came faster than they were taken, and more bytes were waiting than may")]
pub struct Overrun;

impl Feed {
    /// Creates a feed in front of this log.
    pub fn new(durable_log: Arc<DurableLog>) -> Self {
        Self {
            durable_log,
            is_followed: AtomicBool::new(false),
            position: AtomicU64::new(0),
            queues: Mutex::default(),
            appended: Default::default(),
            followers: Mutex::new(0),
        }
    }

    /// Begins to collect the changes of `keyspace`, whose log sink this is, for `reader`, with at most `bytes_max`
    /// pending bytes. Returns `None` if it has a follower already.
    pub fn follow(
        self: &Arc<Self>,
        keyspace: &Arc<Keyspace>,
        reader: Reader,
        bytes_max: usize,
    ) -> Option<Follower> {
        let mut followers = self.followers.lock();
        if !self.queues.lock()[reader as usize].open(bytes_max) {
            return None;
        }
        *followers += 1;
        if reader == Reader::Bucket {
            keyspace.mark_restatements();
        }
        // Set before the keyspace records anything for it; that call also publishes this store.
        self.is_followed.store(true, Ordering::Relaxed);
        keyspace.begin_following();
        let (feed, keyspace) = (Arc::clone(self), Arc::clone(keyspace));
        Some(Follower { feed, keyspace, reader, spare: Spare::default() })
    }

    /// Returns true if there is a follower that is not paused.
    #[inline]
    pub fn is_followed(&self) -> bool {
        self.is_followed.load(Ordering::Relaxed)
    }

    /// Collects nothing for `reader` until [`resume`](Self::resume). Must be called with all shards locked, so that no
    /// change is split between the received and the skipped part. Changes are still recorded, and dropped if there is
    /// no other follower.
    pub fn pause(&self, reader: Reader) {
        self.set_paused(reader, true);
    }

    /// Resumes after a pause. The follower misses no change that begins afterwards.
    pub fn resume(&self, reader: Reader) {
        self.set_paused(reader, false);
    }

    fn set_paused(&self, reader: Reader, is_paused: bool) {
        let mut queues = self.queues.lock();
        queues[reader as usize].set_paused(is_paused);
        self.is_followed.store(queues.iter().any(Queue::counts), Ordering::Release);
    }

    /// Returns true if this reader has a follower.
    pub fn is_followed_by(&self, reader: Reader) -> bool {
        self.is_followed() && self.queues.lock()[reader as usize].is_open()
    }

    /// Adds a mark of `reader` after all changes so far and before all later ones. Must be called with all shards
    /// locked, by a thread that has changed nothing since. A mark of the bucket is in the log too, as a
    /// [cut](log::cut), so its id is not 0.
    pub fn mark(&self, reader: Reader, id: u64) {
        let kind = match reader {
            Reader::Replicas => Kind::ReplicasMark,
            Reader::Bucket => Kind::BucketMark,
        };
        let is_in_log = reader != Reader::Bucket || self.durable_log.keep(&log::cut(id));
        self.push(kind, &id.to_le_bytes(), is_in_log);
    }

    /// Adds a command that changes no data to the stream, as RESP.
    pub fn pass(&self, command: &[u8]) {
        if self.is_followed() {
            self.push(Kind::Command, command, true);
        }
    }

    /// Wakes the follower from waiting or resting, even if there is nothing new for it.
    pub fn call(&self, reader: Reader) {
        self.queues.lock()[reader as usize].call();
        self.appended[reader as usize].notify_one();
    }

    /// Returns the number of items appended. It covers all that this thread has changed and unlocked, and all that it
    /// has seen.
    #[inline]
    pub fn position(&self) -> u64 {
        self.position.load(Ordering::Acquire)
    }

    /// Returns the number of bytes that wait for followers.
    pub fn waiting_bytes(&self) -> usize {
        self.queues.lock().iter().map(Queue::bytes).sum()
    }

    /// Returns the number of bytes that wait for this follower.
    pub fn waiting_bytes_of(&self, reader: Reader) -> usize {
        self.queues.lock()[reader as usize].bytes()
    }

    /// Raises the limit of this reader's follower; never lowers it. Bytes that wait already never exceed the limit.
    pub fn raise_limit(&self, reader: Reader, bytes_max: usize) {
        self.queues.lock()[reader as usize].raise_limit(bytes_max);
    }

    #[inline(never)]
    fn push(&self, kind: Kind, bytes: &[u8], is_in_log: bool) {
        let mut queues = self.queues.lock();
        if !queues.iter().any(Queue::is_there) {
            return;
        }
        self.position.store(self.position.load(Ordering::Relaxed) + 1, Ordering::Release);
        let mut wakes = [false; Reader::COUNT];
        for (queue, wakes) in queues.iter_mut().zip(&mut wakes) {
            *wakes = queue.collects() && queue.push(kind, bytes, is_in_log);
        }
        drop(queues);
        if wakes != [false; Reader::COUNT] {
            self.wake(wakes);
        }
    }

    #[cold]
    fn wake(&self, wakes: [bool; Reader::COUNT]) {
        for (appended, _) in self.appended.iter().zip(wakes).filter(|(_, wakes)| *wakes) {
            appended.notify_one();
        }
    }
}

impl LogSink for Feed {
    #[inline]
    fn append(&self, record: &[u8], kind: RecordKind) {
        let is_in_log = self.durable_log.keep(record);
        if self.is_followed() && kind == RecordKind::Change {
            self.push(Kind::Record, record, is_in_log);
        }
    }
}

impl fmt::Debug for Feed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Feed").field("position", &self.position()).finish_non_exhaustive()
    }
}

/// A reader of a feed. Dropping it ends its part of the feed.
#[derive(Debug)]
pub struct Follower {
    feed: Arc<Feed>,
    keyspace: Arc<Keyspace>,
    reader: Reader,
    /// Spare blocks for the queue.
    spare: Spare,
}

impl Follower {
    /// Reuses the memory of a batch.
    pub fn recycle(&mut self, batch: FedBatch) {
        self.spare.put(batch);
    }

    /// Returns the items appended since the last call, after waiting up to `at_most` for the first one. The batch is
    /// empty if there was none, also if the follower was [called](Feed::call). This consumes all calls up to now.
    ///
    /// # Errors
    ///
    /// [`Overrun`], and from then on always.
    pub fn wait(&mut self, at_most: Duration) -> Result<FedBatch, Overrun> {
        let until = Instant::now() + at_most;
        let (feed, reader) = (&self.feed, self.reader as usize);
        let has_write_error = || feed.durable_log.has_write_error();
        let mut queues = feed.queues.lock();
        queues[reader].refill(&mut self.spare);
        loop {
            let batch = queues[reader].take(feed.position(), has_write_error())?;
            // A call that comes with items is consumed too: otherwise it would end a later rest needlessly.
            let was_called = queues[reader].take_call();
            if !batch.is_empty() || was_called {
                return Ok(batch);
            }
            queues[reader].await_item();
            if feed.appended[reader].wait_until(&mut queues, until).timed_out() {
                return queues[reader].take(feed.position(), has_write_error());
            }
        }
    }

    /// Rests for `at_most`, or until a [call](Feed::call); then the next [`wait`](Self::wait) returns at once. Items
    /// appended meanwhile wake no thread and come in one batch. Without rests, a busy feed wakes its follower for every
    /// few items.
    pub fn rest(&mut self, at_most: Duration) {
        let until = Instant::now() + at_most;
        let reader = self.reader as usize;
        let mut queues = self.feed.queues.lock();
        // It awaits no item here, so only a call wakes it.
        while !queues[reader].is_called() {
            if self.feed.appended[reader].wait_until(&mut queues, until).timed_out() {
                return;
            }
        }
    }

    /// Drops all pending items after an [`Overrun`], and continues with the changes from now on, with at most
    /// `bytes_max` pending bytes.
    pub fn begin_anew(&mut self, bytes_max: usize) {
        let mut queues = self.feed.queues.lock();
        let queue = &mut queues[self.reader as usize];
        queue.close();
        queue.open(bytes_max);
    }

    /// Returns the feed.
    pub fn feed(&self) -> &Arc<Feed> {
        &self.feed
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        let mut followers = self.feed.followers.lock();
        *followers -= 1;
        if *followers == 0 {
            self.keyspace.end_following();
            self.feed.is_followed.store(false, Ordering::Relaxed);
        }
        self.feed.queues.lock()[self.reader as usize].close();
    }
}

#[cfg(test)]
mod tests;
