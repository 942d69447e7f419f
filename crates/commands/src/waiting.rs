//! What a client waits for, and how it is answered later.
//!
//! A connection executes its requests in order, so it waits for one thing at a time:
//!
//! * *A retry.* The request cannot run yet ([`Deferral`]). It stays in the input, and is executed from its
//!   beginning when the obstacle is, or may be, gone.
//! * *A reply.* The request is taken, and its reply comes later ([`Awaited`]): from a thread that has it
//!   ready, in an [`Answer`](crate::answer::Answer); for all clients that wait for the same event, by
//!   [`outcome_of`]; or when the client's timeout ends.
//!
//! Nothing here knows connections: their loops suspend and resume them, set the one timer that
//! [`Waits::patience`] asks for, and post answers to the thread that owns them.
//!
//! **Invariant:** each awaited reply has its own number, which its answer carries. So an answer that
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

/// A request that has waited so often for values on disk is executed all the same, and reads them itself.
const FETCH_ROUNDS_MAX: u8 = 3;

/// What the client of one connection waits for, and the positions of its writes in the log.
#[derive(Debug, Default)]
pub struct Waits {
    wait: Wait,
    /// Replies that were waited for so far.
    replies: u32,
    /// How often the next request has waited for values on disk.
    fetch_rounds: u8,
    /// What the client has written to the log.
    pub logged: Logged,
    /// Its replies, while they wait for replicas.
    held: Option<Box<HeldReplies>>,
    /// Counts it while a pause holds its next request.
    pub paused: Option<Counted>,
}

/// One of those that are counted, as long as it exists.
#[derive(Debug)]
pub struct Counted(Arc<AtomicUsize>);

impl Counted {
    /// One more.
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

/// Why a request cannot run yet.
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
    /// The client has to read what it got already.
    Reader,
    /// Values are being read from disk.
    Values,
    /// Messages wait for their receivers.
    Delivery,
    /// Another thread holds this shard for long.
    Shard(usize),
    /// Another thread holds the role still for long.
    Role,
    /// Earlier requests are under way that the gates let pass.
    EarlierRequests,
}

/// A request does not run now: why, and what has it tried again from its beginning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Deferral {
    /// The end of the obstacle, which is announced to the threads whose clients wait for it.
    On(Obstacle),
    /// A moment, as Unix milliseconds: nobody is told when the obstacle ends.
    At(Obstacle, i64),
}

impl Deferral {
    /// Why it does not run.
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

/// A reply that is waited for.
#[derive(Debug)]
pub struct Pending {
    id: WaitId,
    /// What the client waits for.
    pub awaited: Awaited,
    /// Whether the client gets the reply: CLIENT REPLY may have it off.
    pub is_heard: bool,
}

/// Which one of the replies that a connection waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WaitId(u32);

/// What a client gets its reply for.
#[derive(Clone, Debug)]
pub enum Awaited {
    /// The end of a save.
    Save(SaveId),
    /// The end of a switch of the log.
    LogSwitch {
        /// Which one.
        switch_id: u64,
        /// Whether a log is wanted.
        on: bool,
    },
    /// The end of the server, or that there is none.
    Shutdown,
    /// That the log is on the device up to a position.
    Device {
        /// The position.
        position: u64,
        /// How long.
        patience_ms: u64,
    },
    /// That replicas have what the client has written.
    Confirmations {
        /// This reply.
        to: ReplyTo,
        /// How long.
        patience: Patience,
    },
    /// The end of a command that runs away from the worker.
    LongCommand,
    /// A change of one of some keys.
    Keys {
        /// The client's place in their queues.
        waiter: Arc<Waiter>,
        /// How long.
        patience: Patience,
    },
}

/// How long a client waits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Patience {
    /// As long as it takes.
    Forever,
    /// At most this many milliseconds.
    Ms(u64),
}

/// The address of a connection, for the thread that carries answers. It is never used again for another one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct ConnAddress {
    /// The worker that owns the connection.
    pub worker: u16,
    /// Where it has it.
    pub slot: u32,
    /// Counts connections.
    pub id: u64,
}

/// Where an answer goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReplyTo {
    /// The connection.
    pub conn: ConnAddress,
    /// Which of the replies that it waits for.
    pub wait: WaitId,
}

/// What is known of a client's writes.
#[derive(Debug, Default)]
pub struct Logged {
    /// The log ended here after the last of them, or after what the client wants to be sure of.
    pub at: u64,
    /// The barrier of replies that were written since the output was cut last. Replies that wait for replicas are
    /// kept apart ([`Waits::hold`]).
    pub barrier: ReplyBarrier,
    /// The replies since then tell of no data.
    pub tells_of_server: bool,
    /// The connection is among those of its worker that wait.
    pub is_listed: bool,
}

impl Logged {
    /// The log ended at `at` after a write of this client, or after what it wants to be sure of, and its reply waits for
    /// `barrier`.
    #[inline]
    pub fn note(&mut self, at: u64, barrier: ReplyBarrier) {
        self.at = at;
        self.barrier = self.barrier.and(ReplyBarrier { replicas: None, ..barrier });
    }
}

impl Patience {
    /// From an argument in seconds, which may have a fraction.
    ///
    /// # Errors
    /// When it is no such number.
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

    /// From an argument in milliseconds.
    ///
    /// # Errors
    /// When it is no such number.
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
            Self::Save(_) | Self::LogSwitch { .. } | Self::Shutdown | Self::LongCommand => {
                Patience::Forever
            }
        }
    }
}

impl Waits {
    /// Whether requests are executed as they come.
    #[inline]
    pub fn is_idle(&self) -> bool {
        matches!(self.wait, Wait::Nothing)
    }

    /// `true` if requests are executed as they come, and replies sent as they are written.
    #[inline]
    pub fn is_quiet(&self) -> bool {
        self.is_idle() && !self.logged.barrier.device
    }

    /// Has the next request tried again when `obstacle` is gone, or after so long.
    pub fn retry_after(&mut self, obstacle: Obstacle, patience: Patience) {
        debug_assert!(self.is_idle(), "one thing at a time");
        if obstacle == Obstacle::Values {
            self.fetch_rounds += 1;
        }
        self.wait = Wait::Retry { obstacle, patience };
    }

    /// What keeps the next request from being executed.
    pub fn obstacle(&self) -> Option<Obstacle> {
        match self.wait {
            Wait::Retry { obstacle, .. } => Some(obstacle),
            _ => None,
        }
    }

    /// The connection goes on with its requests.
    #[inline]
    pub fn go_on(&mut self) {
        debug_assert!(!self.is_for_reply(), "a reply is still to come");
        if !self.is_idle() {
            self.wait = Wait::Nothing;
            self.paused = None;
        }
    }

    /// Whether the next request may wait for values on disk once more.
    pub fn may_fetch(&self) -> bool {
        self.fetch_rounds < FETCH_ROUNDS_MAX
    }

    /// The next request does not wait for values any more.
    pub fn give_up_fetching(&mut self) {
        self.fetch_rounds = FETCH_ROUNDS_MAX;
    }

    /// A request was executed.
    pub fn has_run(&mut self) {
        self.fetch_rounds = 0;
    }

    /// Which one the next reply is that is waited for.
    pub fn next_reply(&self) -> WaitId {
        WaitId(self.replies)
    }

    /// Leaves the reply to the current request to others.
    pub fn wait_for(&mut self, awaited: Awaited, is_heard: bool) {
        debug_assert!(self.is_idle(), "one thing at a time");
        let id = self.next_reply();
        self.replies = self.replies.wrapping_add(1);
        self.wait = Wait::Reply(Pending { id, awaited, is_heard });
    }

    /// Keeps the replies that were written until replicas have confirmed the writes.
    pub fn hold(&mut self, awaited: Awaited, held: HeldReplies) {
        self.wait_for(awaited, true);
        self.held = Some(Box::new(held));
    }

    /// Whether replies wait for replicas.
    #[inline]
    pub fn has_held(&self) -> bool {
        self.held.is_some()
    }

    /// The replies that have waited for replicas. The connection goes on.
    pub fn end_held(&mut self) -> Option<HeldReplies> {
        let held = self.held.take()?;
        self.end();
        Some(*held)
    }

    /// The reply that is waited for comes for something else than was thought.
    pub fn wait_instead_for(&mut self, awaited: Awaited) {
        if let Wait::Reply(pending) = &mut self.wait {
            pending.awaited = awaited;
        }
    }

    /// What the client gets its reply for, if it waits for one.
    #[inline]
    pub fn awaited(&self) -> Option<&Awaited> {
        match &self.wait {
            Wait::Reply(pending) => Some(&pending.awaited),
            _ => None,
        }
    }

    /// Whether the reply to the last request comes later.
    #[inline]
    pub fn is_for_reply(&self) -> bool {
        self.awaited().is_some()
    }

    /// `true` if the client waits for keys.
    pub fn is_for_keys(&self) -> bool {
        matches!(self.awaited(), Some(Awaited::Keys { .. }))
    }

    /// Whether it is this reply that is waited for.
    pub fn is_for(&self, id: WaitId) -> bool {
        matches!(&self.wait, Wait::Reply(pending) if pending.id == id)
    }

    /// The position in the log that the client's last request waits for.
    #[inline]
    pub fn awaited_position(&self) -> Option<u64> {
        match self.awaited() {
            Some(Awaited::Device { position, .. }) => Some(*position),
            _ => None,
        }
    }

    /// The reply comes now; the connection goes on.
    pub fn end(&mut self) -> Option<Pending> {
        match std::mem::take(&mut self.wait) {
            Wait::Reply(pending) => Some(pending),
            other => {
                self.wait = other;
                None
            }
        }
    }

    /// How long the connection is suspended at most.
    pub fn patience(&self) -> Patience {
        match &self.wait {
            Wait::Nothing => Patience::Forever,
            Wait::Retry { patience, .. } => *patience,
            Wait::Reply(pending) => pending.awaited.patience(),
        }
    }

    /// Whether what it waits for is certain to come, so that requests which a client has left behind are
    /// still executed. Keys may never come, and their elements would be lost; nor may replicas. And during a pause the
    /// operator may be changing the data: what clients wanted that have gone is not done then, as in Redis. Nor is a
    /// password looked at when its client has gone.
    pub fn outlives_client(&self) -> bool {
        !matches!(
            self.wait,
            Wait::Retry { obstacle: Obstacle::Pause | Obstacle::Guesses, .. }
                | Wait::Reply(Pending {
                    awaited: Awaited::Keys { .. } | Awaited::Confirmations { .. },
                    ..
                })
        )
    }
}

/// The reply that `notice` brings to a client that waits for `awaited`, OK or an error, if it brings one.
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

/// The reply to WAITAOF: on how many devices the log is, here and at replicas.
pub fn reply_synced(here: i64, reply: &mut Reply<'_>) {
    reply.array(2);
    reply.int(here);
    reply.int(0);
}

/// The reply to a save that has failed.
pub(crate) fn not_saved(reason: &str) -> CommandError {
    CommandError::text(format!("ERR {reason}"))
}

/// The reply to a CONFIG SET that could not switch the log.
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
