//! Replies leave when others have confirmed what they tell of. This file decides who: for the batches of all protocols,
//! for EXEC and scripts, and for calls beside workers.
//!
//! A connection waits by cutting its output where it stands (`awaiting` of the server). A call that has a thread of
//! its own waits here. The lease of the bucket is part of no barrier: it is asked when a reply leaves, behind it.

use std::time::{Duration, Instant};

use crate::barrier::ReplyBarrier;
use crate::durability::SyncPolicy;
use crate::error::CommandError;
use crate::kernel::Kernel;
use crate::lease::Holding;
use crate::replica_level::ReplicaLevel;
use crate::waiting::Logged;

/// A call that came over no connection waits so long for the bucket; its writes may get there later.
const BUCKET_PATIENCE: Duration = Duration::from_secs(10);

/// A call that waits for the bucket looks this often whether it gives up.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// The reply to a call that has run while another process may have owned the log.
pub const LEASE_OVER: CommandError = CommandError::new(
    "MISCONF the lease of the bucket is over: it is not known whether this has been done",
);

impl Kernel {
    /// The barrier for replies to writes that have gone to the log; `None` if it could not take them, so that they must
    /// not be acknowledged. Their client has `asked` for a level in place of `appendfsync`.
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
            durable_log.promise();
        }
        if durable_log.has_write_error() {
            return None;
        }
        let policy = asked.unwrap_or_else(|| self.config.live().appendfsync());
        let (device, bucket) = (policy == SyncPolicy::Always, policy == SyncPolicy::Bucket);
        Some(ReplyBarrier { device, replicas, bucket })
    }

    /// Notes the barrier for writes that a connection has just made, and where the log ends behind them.
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

    /// Waits on this thread until all is confirmed, or until `gives_up` says so.
    ///
    /// # Errors
    /// When it is not in time, or cannot be. The writes are done, and may be lost.
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
    /// When it is not in time, or cannot be. It is not known then whether what the replies tell of counts.
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

    /// Says when the bucket is waited for no longer.
    fn patience(&self, gives_up: &dyn Fn() -> bool) -> impl Fn() -> bool {
        let until = Instant::now() + BUCKET_PATIENCE;
        move || {
            let is_deposed = self.bucket.lease.holding() == Holding::Deposed;
            is_deposed || Instant::now() >= until || gives_up()
        }
    }

    /// The reply to writes that the log does not have, or the bucket.
    pub(super) fn not_in_log(&self) -> CommandError {
        let cause = self.durability.write_failure();
        CommandError::not_logged(cause.or_else(|| Some("the bucket does not answer".to_owned())))
    }
}
