//! Shutting down: the requests for it, and whether to save first.

use std::time::Duration;

use parking_lot::{Condvar, Mutex};

use crate::config::{Config, DirectiveId, Settings};

/// Why the server shuts down.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Shutdown {
    /// A client said so.
    Command {
        /// Whether it wants a snapshot.
        saving: Saving,
        /// Whether the server ends even if there can be none.
        force: bool,
    },
    /// SIGTERM or SIGINT; `shutdown-on-sigterm` and `shutdown-on-sigint` say what it means.
    Signal {
        /// Whether a snapshot is wanted.
        saving: Saving,
        /// Whether the server ends even if there can be none.
        force: bool,
    },
    /// The program that the server is a part of.
    Owner,
}

/// Whether a snapshot is taken before the end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Saving {
    /// If there are save points, as in Redis.
    IfConfigured,
    /// In any case.
    Always,
    /// In no case.
    Never,
}

impl Shutdown {
    /// What a signal means by one of the directives for them.
    pub fn on_signal(settings: &Settings, directive: DirectiveId) -> Self {
        let words = settings.words(directive);
        let saving = match (words.contains(&"save"), words.contains(&"nosave")) {
            (true, _) => Saving::Always,
            (_, true) => Saving::Never,
            _ => Saving::IfConfigured,
        };
        Self::Signal { saving, force: words.contains(&"force") }
    }

    /// Whether a snapshot is taken before the end.
    pub fn saves(self, config: &Config) -> bool {
        match self {
            Self::Command { saving: Saving::Always, .. }
            | Self::Signal { saving: Saving::Always, .. } => true,
            Self::Command { saving: Saving::Never, .. }
            | Self::Signal { saving: Saving::Never, .. } => false,
            _ => !config.settings().save_points().is_empty(),
        }
    }

    /// Whether the server ends even if the snapshot fails.
    pub fn is_forced(self) -> bool {
        matches!(self, Self::Command { force: true, .. } | Self::Signal { force: true, .. })
    }
}

/// Where the end is asked for, and waited for.
#[derive(Default)]
pub struct ShutdownRequest {
    reason: Mutex<Option<Shutdown>>,
    asked: Condvar,
}

impl ShutdownRequest {
    /// Asks for the end. The first reason counts.
    pub fn ask(&self, reason: Shutdown) {
        self.reason.lock().get_or_insert(reason);
        self.asked.notify_all();
    }

    /// Goes on after all.
    pub fn cancel(&self) {
        *self.reason.lock() = None;
    }

    /// Waits until the end is asked for, and calls `meanwhile` each time that `every` has passed.
    pub fn wait(&self, every: Duration, meanwhile: impl Fn()) -> Shutdown {
        let mut reason = self.reason.lock();
        loop {
            if let Some(reason) = *reason {
                return reason;
            }
            if self.asked.wait_for(&mut reason, every).timed_out() {
                meanwhile();
            }
        }
    }
}
