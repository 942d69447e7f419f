//! The mode of a call: may it wait for keys, and on which thread does it run.

use std::sync::Arc;

use crate::answer::Destination;
use crate::clients::Client;
use crate::error::CommandError;

/// Mode of a call.
#[derive(Clone, Copy)]
pub enum Mode<'a> {
    /// A client has sent it. It may wait for keys. It runs on the client's worker, so it must not take long.
    Client,
    /// As [`Mode::Client`], but the connection goes on, and `to` gets the reply if that comes later.
    NonBlocking {
        /// Client that gets the result.
        to: &'a Arc<Client>,
        /// Name of the command.
        name: &'static str,
    },
    /// It runs for a client that waits already.
    Served(&'a Served),
    /// It replies at once, as after a timeout: nothing would wake it.
    Never,
    /// It replies at once, and runs on another thread from the beginning if it takes long. A program on a worker
    /// calls it, or it runs on a thread that must stay free for others.
    OfProgram,
    /// It runs on a thread for long commands, and may wait if it has a client. It computes from copies if possible;
    /// see `copies`.
    Long {
        /// Destination of the reply.
        to: Option<&'a Destination>,
    },
}

impl Mode<'_> {
    /// Returns true if the command runs on a worker, and can be offloaded if it takes long.
    pub(super) fn may_leave(self) -> bool {
        match self {
            Self::Client | Self::NonBlocking { .. } | Self::OfProgram => true,
            Self::Served(served) => served.is_on_worker,
            Self::Never | Self::Long { .. } => false,
        }
    }

    /// Returns true if much time may have passed since the command was admitted.
    pub(super) fn comes_late(self) -> bool {
        matches!(self, Self::Long { .. } | Self::Served(_))
    }

    /// Returns true if the client of the result has gone, so that nobody needs it.
    pub(super) fn is_in_vain(self) -> bool {
        let Mode::Long { to: Some(to) } = self else { return false };
        to.deferred().is_some_and(|deferred| deferred.is_over())
    }

    /// Returns true for an attempt to serve a client that has found nothing for it.
    pub(super) fn found_nothing(self) -> bool {
        matches!(self, Mode::Served(served) if served.found_nothing.get())
    }

    /// Returns true if the reply may be deferred for reasons other than keys.
    pub(crate) fn may_wait(self) -> bool {
        matches!(self, Mode::Client)
    }

    /// Returns true if a waiting client ignores this error. The key holds a value of another type, and the client
    /// continues to wait.
    pub(crate) fn passes_over(self, error: &CommandError) -> bool {
        matches!(self, Mode::Served(_)) && *error == CommandError::WRONG_TYPE
    }
}

/// State of an attempt to serve a client that waits.
#[derive(Debug, Default)]
pub struct Served {
    /// True if there was nothing for this client and nothing was replied.
    pub(crate) found_nothing: std::cell::Cell<bool>,
    /// True if the serving thread is a worker, where it must not take long.
    pub(crate) is_on_worker: bool,
}
