//! Shutdown: the requests for it, and the decision to save first.

use std::time::Duration;

use parking_lot::{Condvar, Mutex, MutexGuard};

use crate::config::{Config, DirectiveId, Settings};

/// Reason for a shutdown.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Shutdown {
    /// A client sent SHUTDOWN.
    Command {
        /// Policy for the snapshot.
        saving: Saving,
        /// True if the server ends even without a possible snapshot.
        force: bool,
        /// True if it ends without waiting for replicas.
        now: bool,
    },
    /// SIGTERM or SIGINT; `shutdown-on-sigterm` and `shutdown-on-sigint` define its meaning.
    Signal {
        /// Policy for the snapshot.
        saving: Saving,
        /// True if the server ends even without a possible snapshot.
        force: bool,
        /// True if it ends without waiting for replicas.
        now: bool,
    },
    /// The program that embeds the server.
    Owner,
    /// Another server owns the log in the bucket. This server may send no replies any more.
    Deposed,
    /// The log in the bucket has everything, and is released for another server (`FAILOVER`).
    HandsOver,
}

/// Policy for a snapshot before the end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Saving {
    /// Only with save points, as in Redis.
    IfConfigured,
    /// Always.
    Always,
    /// Never.
    Never,
}

impl Shutdown {
    /// Returns the shutdown for a signal, as configured by its directive.
    pub fn on_signal(settings: &Settings, directive: DirectiveId) -> Self {
        let words = settings.words(directive);
        let saving = match (words.contains(&"save"), words.contains(&"nosave")) {
            (true, _) => Saving::Always,
            (_, true) => Saving::Never,
            _ => Saving::IfConfigured,
        };
        Self::Signal { saving, force: words.contains(&"force"), now: words.contains(&"now") }
    }

    /// Returns true if a snapshot is taken before the end.
    pub fn saves(self, config: &Config) -> bool {
        match self {
            Self::Command { saving: Saving::Always, .. }
            | Self::Signal { saving: Saving::Always, .. } => true,
            Self::Command { saving: Saving::Never, .. }
            | Self::Signal { saving: Saving::Never, .. }
            | Self::Deposed
            | Self::HandsOver => false,
            _ => !config.settings().save_points().is_empty(),
        }
    }

    /// Returns true if the server ends without waiting for replicas.
    #[must_use]
    pub fn is_now(self) -> bool {
        matches!(self, Self::Command { now: true, .. } | Self::Signal { now: true, .. })
            || self.leaves_bucket()
    }

    /// Returns true if another server owns the log in the bucket from now on.
    #[must_use]
    pub fn leaves_bucket(self) -> bool {
        matches!(self, Self::Deposed | Self::HandsOver)
    }

    /// Returns true if the server ends even if the snapshot fails.
    pub fn is_forced(self) -> bool {
        matches!(self, Self::Command { force: true, .. } | Self::Signal { force: true, .. })
    }
}

/// The pending request for a shutdown, with threads that wait for it.
#[derive(Default)]
pub struct ShutdownRequest {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    reason: Option<Shutdown>,
    /// Time until which the end waits for replicas to get the rest, in Unix milliseconds.
    waits_until_ms: Option<i64>,
    /// True if nothing changes any more, unless the shutdown is cancelled.
    holds_changes: bool,
    /// True if the server no longer waits for replicas.
    is_now: bool,
    is_aborted: bool,
}

/// State of a shutdown that waits for replicas.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Course {
    /// It continues to wait.
    Waits,
    /// A client or signal requests the end at once.
    Ends,
    /// A client has cancelled the shutdown.
    Aborted,
}

impl ShutdownRequest {
    /// Requests a shutdown. The first reason is kept, but a later one may be more urgent. A reason by which another
    /// server owns the log in the bucket always replaces it, because this server cannot continue.
    pub fn ask(&self, reason: Shutdown) {
        let mut state = self.state.lock();
        match reason.leaves_bucket() {
            true => _ = state.reason.replace(reason),
            false => _ = state.reason.get_or_insert(reason),
        }
        state.is_now |= reason.is_now();
        drop(state);
        self.changed.notify_all();
    }

    /// Cancels the shutdown, unless another server owns the log in the bucket.
    pub fn cancel(&self) {
        let mut state = self.state.lock();
        let reason = state.reason.filter(|reason| reason.leaves_bucket());
        *state = State { reason, is_now: reason.is_some(), ..State::default() };
    }

    /// Returns the reason, if a shutdown was requested.
    #[must_use]
    pub fn reason(&self) -> Option<Shutdown> {
        self.state.lock().reason
    }

    /// Returns true if a shutdown was requested.
    #[must_use]
    pub fn is_asked(&self) -> bool {
        self.state.lock().reason.is_some()
    }

    /// Waits until a shutdown is requested, and calls `meanwhile` after each period of `every`.
    pub fn wait(&self, every: Duration, meanwhile: impl Fn()) -> Shutdown {
        let mut state = self.state.lock();
        loop {
            if let Some(reason) = state.reason {
                return reason;
            }
            if self.changed.wait_for(&mut state, every).timed_out() {
                MutexGuard::unlocked(&mut state, &meanwhile);
            }
        }
    }

    /// Notes the time until which the end waits for replicas, in Unix milliseconds; `None` if they have everything.
    pub fn await_replicas(&self, until_ms: Option<i64>) {
        let mut state = self.state.lock();
        state.waits_until_ms = until_ms;
        state.holds_changes = true;
    }

    /// Returns true if the server waits, or has waited, for replicas: nothing changes any more.
    #[must_use]
    pub fn holds_changes(&self) -> bool {
        self.state.lock().holds_changes
    }

    /// Returns the milliseconds for which the server may still wait for replicas, while it does.
    #[must_use]
    pub fn left_ms(&self, now_ms: i64) -> Option<i64> {
        let until_ms = self.state.lock().waits_until_ms?;
        Some(until_ms.saturating_sub(now_ms).max(0))
    }

    /// Cancels the shutdown, if it waits for replicas and this server can continue. Returns true in this case.
    #[must_use]
    pub fn abort(&self) -> bool {
        let mut state = self.state.lock();
        let can_go_on = !state.reason.is_some_and(Shutdown::leaves_bucket);
        let waits = can_go_on && state.waits_until_ms.is_some();
        state.is_aborted |= waits;
        drop(state);
        self.changed.notify_all();
        waits
    }

    /// Waits for a decision of others, at most for `at_most`.
    #[must_use]
    pub fn course(&self, at_most: Duration) -> Course {
        let mut state = self.state.lock();
        if !state.is_now && !state.is_aborted {
            let _ = self.changed.wait_for(&mut state, at_most);
        }
        match &*state {
            State { is_aborted: true, .. } => Course::Aborted,
            State { is_now: true, .. } => Course::Ends,
            _ => Course::Waits,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const COMMAND: Shutdown =
        Shutdown::Command { saving: Saving::Always, force: false, now: false };

    #[test]
    fn a_server_that_another_one_succeeds_ends_in_any_case() {
        for last in [Shutdown::Deposed, Shutdown::HandsOver] {
            // It was cancelled, or could not save, before or after another server took over.
            for is_aborted_before in [true, false] {
                let request = ShutdownRequest::default();
                request.ask(COMMAND);
                request.await_replicas(Some(1000));
                assert!(!is_aborted_before || request.abort());
                request.ask(last);
                assert!(!request.abort());
                assert_ne!(request.course(Duration::ZERO), Course::Waits);
                request.cancel();
                assert_eq!(request.wait(Duration::ZERO, || ()), last);
                assert_eq!(request.course(Duration::ZERO), Course::Ends);
            }
        }
    }

    #[test]
    fn the_first_of_other_reasons_counts_until_it_is_called_off() {
        let request = ShutdownRequest::default();
        request.ask(COMMAND);
        request.ask(Shutdown::Owner);
        assert_eq!(request.reason(), Some(COMMAND));
        request.cancel();
        assert_eq!(request.reason(), None);
    }
}
