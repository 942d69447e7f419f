//! Waiting connections, and their later replies.
//!
//! A connection executes its requests in order, so it waits for one thing at a time:
//!
//! * *A retry.* The request cannot run yet ([`Deferral`]). It stays in the input, and is executed from its beginning
//!   when the obstacle has gone, or may have gone.
//! * *A reply.* The request was accepted, and its reply comes later ([`Awaited`]): from a thread, in an
//!   [`Answer`](crate::answer::Answer); from [`outcome_of`], for all clients that wait for the same event; or at the
//!   client's timeout.
//!
//! This module does not know connections. Their loops suspend and resume them, set the one timer that
//! [`Waits::patience`] requests, and send answers to the thread that owns them.
//!
//! **Invariant:** each awaited reply has its own number, and its answer has this number as well. So an answer that
//! comes too late, after the client got another one, is dropped.

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;

use tierce_keyspace::{Busy, Waiter};
use tierce_wire::number;

use crate::barrier::ReplyBarrier;
use crate::durability::SWITCHED_BY_ANOTHER;
use crate::error::CommandError;
use crate::message::Notice;
use crate::persistence::SaveId;
use crate::replica_level::HeldReplies;
use crate::reply::Reply;

/// Maximum of waits of a request for values on disk. After that it runs anyway, and reads them itself.
const FETCH_ROUNDS_MAX: u8 = 3;

/// Wait state of one connection, and the state of its writes in the log.
#[derive(Debug, Default)]
pub struct Waits {
    wait: Wait,
    /// Number of awaited replies so far.
    replies: u32,
    /// Number of waits of the next request for values on disk.
    fetch_rounds: u8,
    /// State of the client's writes in the log.
    pub logged: Logged,
    /// Its replies while they wait for replicas.
    held: Option<Box<HeldReplies>>,
    /// Counts the connection while a pause defers its next request.
    pub paused: Option<Counted>,
}

/// Increments a counter as long as it exists.
#[derive(Debug)]
pub struct Counted(Arc<AtomicUsize>);

impl Counted {
    /// Increments the counter.
    #[must_use]
    pub fn new(count: &Arc<AtomicUsize>) -> Self {
        count.fetch_add(1, Relaxed);
        Self(Arc::clone(count))
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Relaxed);
    }
}

#[derive(Debug, Default)]
enum Wait {
    #[default]
    Nothing,
    Retry {
        obstacle: Obstacle,
        patience: Patience,
    },
    Reply(Pending),
}

/// Reason why a request cannot run yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Obstacle {
    /// `CLIENT PAUSE`.
    Pause,
    /// Many wrong passwords came from the same address or for the same user.
    Guesses,
    /// Memory is short, and room is being made.
    Memory,
    /// A sync of the log takes too long.
    SlowSync,
    /// The client has to read its pending replies.
    Reader,
    /// Values are being read from disk.
    Values,
    /// Messages have to be delivered first.
    Delivery,
    /// Another thread keeps this shard locked for long.
    Shard(usize),
    /// Another thread keeps the role locked for long.
    Role,
    /// Earlier requests that passed admission are still running.
    EarlierRequests,
}

/// A request is deferred: the reason, and the event after which it is tried again from its beginning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Deferral {
    /// The end of the obstacle. Threads with clients that wait for it are notified.
    On(Obstacle),
    /// A time in Unix milliseconds: no thread is notified of the end of the obstacle.
    At(Obstacle, i64),
}

impl Deferral {
    /// Returns the reason.
    #[must_use]
    pub fn obstacle(self) -> Obstacle {
        match self {
            Self::On(obstacle) | Self::At(obstacle, _) => obstacle,
        }
    }
}

impl From<Busy> for Deferral {
    fn from(busy: Busy) -> Self {
        Self::On(Obstacle::Shard(busy.shard))
    }
}

/// An awaited reply.
#[derive(Debug)]
pub struct Pending {
    id: WaitId,
    /// The event that the client waits for.
    pub awaited: Awaited,
    /// False if the client gets no reply, because CLIENT REPLY is off.
    pub is_heard: bool,
}

/// Number of an awaited reply of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WaitId(u32);

/// The event after which a client gets its reply.
#[derive(Clone, Debug)]
pub enum Awaited {
    /// The end of a save.
    Save(SaveId),
    /// The end of a switch of the log.
    LogSwitch {
        /// Number of the switch.
        switch_id: u64,
        /// True if a log is wanted.
        on: bool,
    },
    /// The end of the server, or the cancellation of the shutdown.
    Shutdown,
    /// The log is synced up to a position.
    Device {
        /// The position.
        position: u64,
        /// Maximum waiting time.
        patience_ms: u64,
    },
    /// Replicas have the client's writes.
    Confirmations {
        /// Address of the reply.
        to: ReplyTo,
        /// Maximum waiting time.
        patience: Patience,
    },
    /// The end of a command on another thread.
    LongCommand,
    /// The end of MIGRATE, for which another server may let it wait.
    Migration,
    /// A change of one of some keys.
    Keys {
        /// Entry of the client in the queues of the keys.
        waiter: Arc<Waiter>,
        /// Maximum waiting time.
        patience: Patience,
    },
}

/// Maximum waiting time of a client.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Patience {
    /// No limit.
    Forever,
    /// At most this many milliseconds.
    Ms(u64),
}

/// The address of a connection, for the thread that sends answers. It is never reused.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct ConnAddress {
    /// The worker that owns the connection.
    pub worker: u16,
    /// Index of the connection at its worker.
    pub slot: u32,
    /// Sequence number of the connection.
    pub id: u64,
}

/// Destination of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReplyTo {
    /// The connection.
    pub conn: ConnAddress,
    /// Number of the reply that the connection waits for.
    pub wait: WaitId,
}

/// State of a client's writes, for its replies.
#[derive(Debug, Default)]
pub struct Logged {
    /// End of the log after the last write, or after the position that the client waits for.
    pub at: u64,
    /// Barrier of the replies since the output was last split. Replies that wait for replicas are kept separately
    /// ([`Waits::hold`]).
    pub barrier: ReplyBarrier,
    /// True if the replies since then show no data.
    pub tells_of_server: bool,
    /// True if the connection is in its worker's list of waiting ones.
    pub is_listed: bool,
}

impl Logged {
    /// Notes that the log ended at `at` after a write of this client, or after the position that it waits for. The
    /// reply waits for `barrier`.
    #[inline]
    pub fn note(&mut self, at: u64, barrier: ReplyBarrier) {
        self.at = at;
        self.barrier = self.barrier.and(ReplyBarrier { replicas: None, ..barrier });
    }
}

impl Patience {
    /// Parses an argument in seconds, which may have a fraction.
    ///
    /// # Errors
    /// If it is not a valid timeout.
    pub fn from_seconds(arg: &[u8]) -> Result<Self, CommandError> {
        const NOT_A_FLOAT: CommandError =
            CommandError::new("ERR timeout is not a float or out of range");
        const OUT_OF_RANGE: CommandError = CommandError::new("ERR timeout is out of range");
        let seconds = number::parse_f64(arg).ok_or(NOT_A_FLOAT)?;
        let ms = (seconds * 1000.0).ceil();
        if ms > i64::MAX as f64 {
            return Err(OUT_OF_RANGE);
        }
        Self::from_signed_ms(ms as i64)
    }

    /// Parses an argument in milliseconds.
    ///
    /// # Errors
    /// If it is not a valid timeout.
    pub fn from_ms(arg: &[u8]) -> Result<Self, CommandError> {
        const NOT_AN_INTEGER: CommandError =
            CommandError::new("ERR timeout is not an integer or out of range");
        Self::from_signed_ms(number::parse_i64(arg).ok_or(NOT_AN_INTEGER)?)
    }

    fn from_signed_ms(ms: i64) -> Result<Self, CommandError> {
        match ms {
            ..0 => Err(CommandError::new("ERR timeout is negative")),
            0 => Ok(Patience::Forever),
            _ => Ok(Patience::Ms(ms as u64)),
        }
    }
}

impl Awaited {
    fn patience(&self) -> Patience {
        match self {
            Self::Device { patience_ms, .. } => Patience::Ms(*patience_ms),
            Self::Keys { patience, .. } | Self::Confirmations { patience, .. } => *patience,
            Self::Save(_)
            | Self::LogSwitch { .. }
            | Self::Shutdown
            | Self::LongCommand
            | Self::Migration => Patience::Forever,
        }
    }
}

impl Waits {
    /// Returns true if requests are executed when they arrive.
    #[inline]
    pub fn is_idle(&self) -> bool {
        matches!(self.wait, Wait::Nothing)
    }

    /// Returns true if requests are executed when they arrive, and replies are sent when they are written.
    #[inline]
    pub fn is_quiet(&self) -> bool {
        self.is_idle() && !self.logged.barrier.device
    }

    /// Defers the next request until `obstacle` is gone, at most for `patience`.
    pub fn retry_after(&mut self, obstacle: Obstacle, patience: Patience) {
        debug_assert!(self.is_idle(), "one thing at a time");
        if obstacle == Obstacle::Values {
            self.fetch_rounds += 1;
        }
        self.wait = Wait::Retry { obstacle, patience };
    }

    /// Returns the obstacle that defers the next request.
    pub fn obstacle(&self) -> Option<Obstacle> {
        match self.wait {
            Wait::Retry { obstacle, .. } => Some(obstacle),
            _ => None,
        }
    }

    /// Continues with the requests of the connection.
    #[inline]
    pub fn go_on(&mut self) {
        debug_assert!(!self.is_for_reply(), "a reply is still to come");
        if !self.is_idle() {
            self.wait = Wait::Nothing;
            self.paused = None;
        }
    }

    /// Returns true if the next request may wait for values on disk once more.
    pub fn may_fetch(&self) -> bool {
        self.fetch_rounds < FETCH_ROUNDS_MAX
    }

    /// Notes that the next request no longer waits for values on disk.
    pub fn give_up_fetching(&mut self) {
        self.fetch_rounds = FETCH_ROUNDS_MAX;
    }

    /// Notes that a request was executed.
    pub fn has_run(&mut self) {
        self.fetch_rounds = 0;
    }

    /// Returns the number of the next awaited reply.
    pub fn next_reply(&self) -> WaitId {
        WaitId(self.replies)
    }

    /// Starts to wait for a reply to the current request by another thread.
    pub fn wait_for(&mut self, awaited: Awaited, is_heard: bool) {
        debug_assert!(self.is_idle(), "one thing at a time");
        let id = self.next_reply();
        self.replies = self.replies.wrapping_add(1);
        self.wait = Wait::Reply(Pending { id, awaited, is_heard });
    }

    /// Keeps the written replies until replicas have confirmed the writes.
    pub fn hold(&mut self, awaited: Awaited, held: HeldReplies) {
        self.wait_for(awaited, true);
        self.held = Some(Box::new(held));
    }

    /// Returns true if replies wait for replicas.
    #[inline]
    pub fn has_held(&self) -> bool {
        self.held.is_some()
    }

    /// Removes and returns the replies that have waited for replicas. The connection continues.
    pub fn end_held(&mut self) -> Option<HeldReplies> {
        let held = self.held.take()?;
        self.end();
        Some(*held)
    }

    /// Changes the event that the client waits for.
    pub fn wait_instead_for(&mut self, awaited: Awaited) {
        if let Wait::Reply(pending) = &mut self.wait {
            pending.awaited = awaited;
        }
    }

    /// Returns the event that the client waits for, if any.
    #[inline]
    pub fn awaited(&self) -> Option<&Awaited> {
        match &self.wait {
            Wait::Reply(pending) => Some(&pending.awaited),
            _ => None,
        }
    }

    /// Returns true if the reply to the last request comes later.
    #[inline]
    pub fn is_for_reply(&self) -> bool {
        self.awaited().is_some()
    }

    /// Returns true if the client is blocked on keys.
    pub fn is_for_keys(&self) -> bool {
        matches!(self.awaited(), Some(Awaited::Keys { .. }))
    }

    /// Returns true if the client waits for this reply.
    pub fn is_for(&self, id: WaitId) -> bool {
        matches!(&self.wait, Wait::Reply(pending) if pending.id == id)
    }

    /// Returns the position in the log that the client's last request waits for.
    #[inline]
    pub fn awaited_position(&self) -> Option<u64> {
        match self.awaited() {
            Some(Awaited::Device { position, .. }) => Some(*position),
            _ => None,
        }
    }

    /// Ends the wait for a reply, which is written now. The connection continues.
    pub fn end(&mut self) -> Option<Pending> {
        match std::mem::take(&mut self.wait) {
            Wait::Reply(pending) => Some(pending),
            other => {
                self.wait = other;
                None
            }
        }
    }

    /// Returns the maximum time for which the connection is suspended.
    pub fn patience(&self) -> Patience {
        match &self.wait {
            Wait::Nothing => Patience::Forever,
            Wait::Retry { patience, .. } => *patience,
            Wait::Reply(pending) => pending.awaited.patience(),
        }
    }

    /// Returns true if the event is certain to occur. Then the remaining requests of a client that has disconnected are
    /// still executed. Keys may never get elements, which would then be lost; replicas and other servers may never
    /// confirm. During a pause the operator may be changing the data; as in Redis, requests of disconnected clients are
    /// then dropped. Passwords of disconnected clients are not checked.
    pub fn outlives_client(&self) -> bool {
        !matches!(
            self.wait,
            Wait::Retry { obstacle: Obstacle::Pause | Obstacle::Guesses, .. }
                | Wait::Reply(Pending {
                    awaited: Awaited::Keys { .. }
                        | Awaited::Confirmations { .. }
                        | Awaited::Migration,
                    ..
                })
        )
    }
}

/// Returns the reply, OK or an error, for a client that waits for `awaited`, if `notice` ends its wait.
#[must_use]
pub fn outcome_of(awaited: &Awaited, notice: &Notice) -> Option<Result<(), CommandError>> {
    const FAILED: CommandError = CommandError::new("ERR Errors trying to SHUTDOWN. Check logs.");
    match (awaited, notice) {
        (Awaited::Save(awaited), Notice::Saved { save_id, outcome }) if awaited == save_id => {
            Some(outcome.as_ref().copied().map_err(|reason| not_saved(reason)))
        }
        (Awaited::LogSwitch { switch_id, on }, Notice::LogSwitched(switched))
            if *switch_id <= switched.switch_id =>
        {
            let cause = switched.failure.as_deref().unwrap_or(SWITCHED_BY_ANOTHER);
            Some(if *on == switched.is_on { Ok(()) } else { Err(not_switched(cause)) })
        }
        (Awaited::Shutdown, Notice::StaysUp) => Some(Err(FAILED)),
        _ => None,
    }
}

/// Writes the reply to WAITAOF: the number of synced logs, here and at replicas.
pub fn reply_synced(here: i64, reply: &mut Reply<'_>) {
    reply.array(2);
    reply.int(here);
    reply.int(0);
}

/// Returns the error for a save that has failed.
pub(crate) fn not_saved(reason: &str) -> CommandError {
    CommandError::text(format!("ERR {reason}"))
}

/// Returns the error for a CONFIG SET that could not switch the log.
pub fn not_switched(cause: &str) -> CommandError {
    CommandError::text(format!(
        "ERR CONFIG SET failed (possibly related to argument 'appendonly') - {cause}"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_for_one_reply() {
        let mut waits = Waits::default();
        let first = waits.next_reply();
        waits.wait_for(Awaited::Shutdown, true);
        assert!(waits.is_for(first) && waits.is_for_reply());
        assert!(waits.end().is_some_and(|pending| pending.is_heard));
        assert!(waits.is_idle() && !waits.is_for(first));
        waits.wait_for(Awaited::Shutdown, false);
        assert!(!waits.is_for(first), "it comes too late");
    }

    #[test]
    fn a_request_that_is_tried_again_waits_for_no_reply() {
        let mut waits = Waits::default();
        for _ in 0..FETCH_ROUNDS_MAX {
            assert!(waits.may_fetch());
            waits.retry_after(Obstacle::Values, Patience::Forever);
            assert_eq!(waits.obstacle(), Some(Obstacle::Values));
            assert!(waits.end().is_none() && !waits.is_idle());
            waits.go_on();
        }
        assert!(!waits.may_fetch());
        waits.has_run();
        assert!(waits.is_idle() && waits.may_fetch());
    }

    #[test]
    fn only_what_is_certain_to_come_is_waited_for_without_a_client() {
        let mut waits = Waits::default();
        waits.retry_after(Obstacle::Pause, Patience::Ms(5));
        assert_eq!((waits.outlives_client(), waits.patience()), (false, Patience::Ms(5)));
        waits.go_on();
        waits.retry_after(Obstacle::Memory, Patience::Ms(1));
        assert!(waits.outlives_client());
        waits.go_on();
        waits.wait_for(Awaited::Device { position: 7, patience_ms: 9 }, true);
        assert!(waits.outlives_client());
        assert_eq!((waits.awaited_position(), waits.patience()), (Some(7), Patience::Ms(9)));
    }
}
