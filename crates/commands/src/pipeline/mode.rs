//! Whether a command may wait for keys.

use std::sync::Arc;

use crate::answer::Destination;
use crate::clients::Client;
use crate::error::CommandError;

/// Whether a command may wait.
#[derive(Clone, Copy)]
pub enum Mode<'a> {
    /// It may: a client has sent it, and it runs on the client's worker, where it must not take long.
    Client,
    /// The same, but its connection goes on, and this client gets the reply if that comes later.
    NonBlocking {
        /// The client.
        to: &'a Arc<Client>,
        /// The name of the command.
        name: &'static str,
    },
    /// It is run in the name of a client that waits already.
    Served(&'a Served),
    /// It replies at once as if its time were up: nothing would wake it.
    Never,
    /// The same: a program calls it that runs on a worker, or it runs on another thread that must not be kept from
    /// others; it runs elsewhere from its beginning if this takes long.
    OfProgram,
    /// It is run on a thread for long commands, for a client that may wait, if there is one. It computes from
    /// copies where it can; see `copies`.
    Long {
        /// Where the reply goes.
        to: Option<&'a Destination>,
    },
}

impl Mode<'_> {
    /// Whether the command runs on a worker, and can run elsewhere if it takes long.
    pub(super) fn may_leave(self) -> bool {
        match self {
            Self::Client | Self::NonBlocking { .. } | Self::OfProgram => true,
            Self::Served(served) => served.is_on_worker,
            Self::Never | Self::Long { .. } => false,
        }
    }

    /// Whether much time may have passed since the command was judged.
    pub(super) fn comes_late(self) -> bool {
        matches!(self, Self::Long { .. } | Self::Served(_))
    }

    /// Whether the client that was to get the result has gone: it need not be made.
    pub(super) fn is_in_vain(self) -> bool {
        let Mode::Long { to: Some(to) } = self else { return false };
        to.deferred().is_some_and(|deferred| deferred.is_over())
    }

    /// `true` for an attempt to serve a client that has found nothing for it.
    pub(super) fn found_nothing(self) -> bool {
        matches!(self, Mode::Served(served) if served.found_nothing.get())
    }

    /// Whether the reply may be left to others than those who serve keys.
    pub(crate) fn may_wait(self) -> bool {
        matches!(self, Mode::Client)
    }

    /// Whether an error is none to a client that waits already: the key now holds a value of another type,
    /// and the client goes on waiting for what it wants.
    pub(crate) fn passes_over(self, error: &CommandError) -> bool {
        matches!(self, Mode::Served(_)) && *error == CommandError::WRONG_TYPE
    }
}

/// An attempt to serve a client that waits.
#[derive(Debug, Default)]
pub struct Served {
    /// There was nothing for this client, and nothing was replied.
    pub(crate) found_nothing: std::cell::Cell<bool>,
    /// The thread that serves it is a worker, where it must not take long.
    pub(crate) is_on_worker: bool,
}
