//! Confirmations that a reply waits for. This file determines them: for the batches of all protocols, for EXEC and
//! scripts, and for calls on threads that are no workers.
//!
//! A connection waits by splitting its output at the current end (`awaiting` of the server). A call with its own
//! thread waits here. No barrier includes the lease of the bucket: it is checked afterwards, when a reply is sent.

use std::time::{Duration, Instant};

use crate::barrier::ReplyBarrier;
use crate::durability::SyncPolicy;
use crate::error::CommandError;
use crate::kernel::Kernel;
use crate::lease::Holding;
use crate::replica_level::ReplicaLevel;
use crate::waiting::Logged;

/// Time that a call without a connection waits for the bucket. Its writes may get there later.
const BUCKET_PATIENCE: Duration = Duration::from_secs(10);

/// Interval at which a call that waits for the bucket checks if it gives up.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// Reply to a call that ran while another process may have owned the log.
pub const LEASE_OVER: CommandError = CommandError::new(
    "MISCONF the lease of the bucket is over: it is not known whether this has been done",
);

impl Kernel {
    /// Returns the barrier for replies to logged writes; `None` if the log could not take them, so that they must not
    /// be acknowledged. `asked` is the client's choice instead of `appendfsync`.
    #[inline]
    pub fn barrier_of_writes(
        &self,
        asked: Option<SyncPolicy>,
        replicas: Option<ReplicaLevel>,
    ) -> Option<ReplyBarrier> {
        let Some(durable_log) = self.durability.durable_log() else {
            return Some(ReplyBarrier { replicas, ..ReplyBarrier::default() });
        };
        if asked == Some(SyncPolicy::EverySecond) {
            durable_log.note_guarantee();
        }
        if durable_log.has_write_error() {
            return None;
        }
        let policy = asked.unwrap_or_else(|| self.config.live().appendfsync());
        let (device, bucket) = (policy == SyncPolicy::Always, policy == SyncPolicy::Bucket);
        Some(ReplyBarrier { device, replicas, bucket })
    }

    /// Records the barrier for writes that a connection has just made, and the end of the log after them.
    #[inline]
    pub fn note_writes(
        &self,
        logged: &mut Logged,
        asked: Option<SyncPolicy>,
        replicas: Option<ReplicaLevel>,
    ) -> Option<ReplyBarrier> {
        let barrier = self.barrier_of_writes(asked, replicas)?;
        if let Some(durable_log) = self.durability.durable_log() {
            logged.note(durable_log.appended(), barrier);
        }
        Some(barrier)
    }

    /// Waits on this thread until all is confirmed, or until `gives_up` returns true.
    ///
    /// # Errors
    /// Fails if the confirmation is late or impossible. The writes are done, and may be lost.
    pub(super) fn await_barrier(
        &self,
        barrier: ReplyBarrier,
        gives_up: &dyn Fn() -> bool,
    ) -> Result<(), CommandError> {
        self.await_confirmed(barrier, gives_up, &self.patience(gives_up))
    }

    /// Waits for the barrier, and then until the lease of the bucket allows replies to be shown.
    ///
    /// # Errors
    /// Fails if the confirmation is late or impossible. The effects of the calls are then uncertain.
    pub fn await_replies(
        &self,
        barrier: ReplyBarrier,
        gives_up: &dyn Fn() -> bool,
    ) -> Result<(), CommandError> {
        let is_over = self.patience(gives_up);
        self.await_confirmed(barrier, gives_up, &is_over)?;
        let may_show = self.bucket.wait_for_lease(LOOK_EVERY, &is_over);
        if may_show { Ok(()) } else { Err(LEASE_OVER) }
    }

    fn await_confirmed(
        &self,
        barrier: ReplyBarrier,
        gives_up: &dyn Fn() -> bool,
        is_over: &dyn Fn() -> bool,
    ) -> Result<(), CommandError> {
        if barrier.device
            && let Some(durable_log) = self.durability.durable_log()
            && durable_log.sync().is_err()
        {
            return Err(self.not_in_log());
        }
        // Later changes of others are not waited for.
        let position = if barrier.bucket { self.feed.position() } else { 0 };
        while self.bucket.committed() < position {
            if is_over() {
                return Err(self.not_in_log());
            }
            self.bucket.hasten(&self.feed);
            self.bucket.wait_for(position, LOOK_EVERY);
        }
        match barrier.replicas {
            Some(level) if !self.are_replicas_level(level, gives_up) => Err(level.error()),
            _ => Ok(()),
        }
    }

    /// Returns a check that ends the wait for the bucket.
    fn patience(&self, gives_up: &dyn Fn() -> bool) -> impl Fn() -> bool {
        let until = Instant::now() + BUCKET_PATIENCE;
        move || {
            let is_deposed = self.bucket.lease.holding() == Holding::Deposed;
            is_deposed || Instant::now() >= until || gives_up()
        }
    }

    /// Returns the error for writes that are not in the log, or not in the bucket.
    pub(super) fn not_in_log(&self) -> CommandError {
        let cause = self.durability.write_failure();
        CommandError::not_logged(cause.or_else(|| Some("the bucket does not answer".to_owned())))
    }
}
