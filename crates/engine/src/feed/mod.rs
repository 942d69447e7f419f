//! The change feed: all changes, in order, for one reader in this process, the *follower*.
//!
//! The feed is the sink of the keyspace's log, and passes every record on to the log on disk. While it has a follower, it
//! keeps a copy of each change for it. Checkpoints and locations of values on disk are not changes ([`RecordKind`]), and
//! are left out. While `appendonly` is off, changes are recorded for the follower alone.
//!
//! **Order.** A record enters the feed before the shards of its operations are unlocked. So the records of one key are in
//! the order of its changes. A change that is longer than a record is a batch of several, as in the log; records of other
//! threads may be between its pieces.
//!
//! **Beginning.** A follower misses changes in shards that were locked when it began. Everything after a
//! [mark](Feed::mark) is complete: all shards are locked while it is set, so it never divides a batch.
//!
//! **Write errors.** A change that the log has refused is not acknowledged to its client, but it is in memory and will be
//! in the next log. The feed holds it back, with all later changes, until the log is healed or switched off. So a replica
//! never has a change that was refused to a client because of the disk, unless the change survives here as well.
//! Changes that only wait for a sync are not held back.
//!
//! **Limit.** At most [`WAITING_BYTES_MAX`] wait for the follower. Beyond that the feed is [`Overrun`]: it drops everything,
//! and the follower must begin again. Writers never wait for it.

mod queue;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use tierce_keyspace::Keyspace;
use tierce_keyspace::log::{LogSink, RecordKind};

use crate::durability::WalHandle;
use queue::{Kind, Queue};

pub use queue::{Fed, FedBatch};

/// More than this many bytes do not wait for the follower: some of the longest values, or seconds of writes that
/// saturate all processors.
pub const WAITING_BYTES_MAX: usize = 1 << 30;

/// Where changes go: to the log, and to a follower if there is one.
pub struct Feed {
    wal_handle: Arc<WalHandle>,
    /// Whether there is a follower. A hint: the queue knows.
    is_followed: AtomicBool,
    /// Items that were ever appended. Written with the queue locked.
    position: AtomicU64,
    queue: Mutex<Queue>,
    appended: Condvar,
    waiting_bytes_max: usize,
}

/// More bytes waited for the follower than may.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "changes came faster than they were taken, and more than {WAITING_BYTES_MAX} bytes were waiting"
)]
pub struct Overrun;

impl Feed {
    /// A feed in front of this log.
    pub fn new(wal_handle: Arc<WalHandle>) -> Self {
        Self::with_limit(wal_handle, WAITING_BYTES_MAX)
    }

    fn with_limit(wal_handle: Arc<WalHandle>, waiting_bytes_max: usize) -> Self {
        Self {
            wal_handle,
            is_followed: AtomicBool::new(false),
            position: AtomicU64::new(0),
            queue: Mutex::default(),
            appended: Condvar::new(),
            waiting_bytes_max,
        }
    }

    /// Begins to collect the changes of `keyspace`, whose sink this is; `None` if there is a follower already.
    pub fn follow(self: &Arc<Self>, keyspace: &Arc<Keyspace>) -> Option<Follower> {
        if !self.queue.lock().open() {
            return None;
        }
        // Before the keyspace records anything for it, which releases this.
        self.is_followed.store(true, Ordering::Relaxed);
        keyspace.begin_following();
        Some(Follower { feed: Arc::clone(self), keyspace: Arc::clone(keyspace) })
    }

    /// Whether there is a follower.
    #[inline]
    pub fn is_followed(&self) -> bool {
        self.is_followed.load(Ordering::Relaxed)
    }

    /// Puts a mark behind all changes so far and before all others. To be called with all shards locked, by a thread
    /// that has changed nothing since.
    pub fn mark(&self, id: u64) {
        self.push(Kind::Mark, &id.to_le_bytes(), true);
    }

    /// Puts a command into its place in the stream that changes no data, as RESP.
    pub fn pass(&self, command: &[u8]) {
        self.push(Kind::Command, command, true);
    }

    /// Has the follower look up from its waiting or resting, even if there is nothing new for it.
    pub fn call(&self) {
        self.queue.lock().call();
        self.appended.notify_one();
    }

    /// How many items were appended. All that this thread has changed and unlocked is up to here.
    pub fn position(&self) -> u64 {
        self.position.load(Ordering::Acquire)
    }

    /// Bytes that wait for the follower.
    pub fn waiting_bytes(&self) -> usize {
        self.queue.lock().bytes()
    }

    #[cold]
    fn push(&self, kind: Kind, bytes: &[u8], is_in_log: bool) {
        let mut queue = self.queue.lock();
        if !queue.is_open() {
            return;
        }
        self.position.store(self.position.load(Ordering::Relaxed) + 1, Ordering::Release);
        if queue.push(kind, bytes, is_in_log, self.waiting_bytes_max) {
            drop(queue);
            self.appended.notify_one();
        }
    }
}

impl LogSink for Feed {
    #[inline]
    fn append(&self, record: &[u8], kind: RecordKind) {
        let is_in_log = self.wal_handle.keep(record);
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

/// The reader of a feed. Dropping it ends the feed.
#[derive(Debug)]
pub struct Follower {
    feed: Arc<Feed>,
    keyspace: Arc<Keyspace>,
}

impl Follower {
    /// Takes what has been appended since the last time, after waiting for the first item for `at_most`. The batch
    /// is empty if there was none, or if it was [called](Feed::call).
    ///
    /// # Errors
    ///
    /// [`Overrun`], from then on always.
    pub fn wait(&mut self, at_most: Duration) -> Result<FedBatch, Overrun> {
        let until = Instant::now() + at_most;
        let mut queue = self.feed.queue.lock();
        loop {
            let batch = queue.take(self.feed.position(), self.feed.wal_handle.has_write_error())?;
            if !batch.is_empty() || queue.take_call() {
                return Ok(batch);
            }
            queue.await_item();
            if self.feed.appended.wait_until(&mut queue, until).timed_out() {
                return queue.take(self.feed.position(), self.feed.wal_handle.has_write_error());
            }
        }
    }

    /// Rests for `at_most`, or until it is [called](Feed::call), which the next [`wait`](Self::wait) still sees. What is
    /// appended meanwhile wakes no thread and comes in one batch: without rests, a busy feed wakes its follower for every
    /// few items.
    pub fn rest(&mut self, at_most: Duration) {
        let until = Instant::now() + at_most;
        let mut queue = self.feed.queue.lock();
        // It awaits no item here, so only a call wakes it.
        while !queue.is_called() {
            if self.feed.appended.wait_until(&mut queue, until).timed_out() {
                return;
            }
        }
    }

    /// The feed.
    pub fn feed(&self) -> &Arc<Feed> {
        &self.feed
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        self.keyspace.end_following();
        self.feed.is_followed.store(false, Ordering::Relaxed);
        self.feed.queue.lock().close();
    }
}

#[cfg(test)]
mod tests;
