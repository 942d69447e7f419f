//! Inputs of a context: the turn of a thread, and a request in it.

use std::sync::Arc;

use tierce_keyspace::KeyHash;
use tierce_wire::resp::Args;

use super::{Bodies, Mode, time_of_effect};
use crate::caller::Caller;
use crate::clock::{self, STOPPED_MS};
use crate::command::Command;
use crate::kernel::Kernel;
use crate::stats::Counters;

/// Facts that all requests in one turn of a thread share.
#[derive(Clone, Copy)]
pub struct Turn<'k> {
    /// The kernel that executes commands.
    pub kernel: &'k Kernel,
    /// Functions of the commands of its table.
    pub bodies: &'k Bodies,
    /// The counters of this thread.
    pub counters: &'k Counters,
    /// In Unix milliseconds.
    pub now_ms: i64,
}

impl<'k> Turn<'k> {
    /// Creates a turn at this time, in Unix milliseconds.
    #[inline]
    #[must_use]
    pub fn new(kernel: &'k Kernel, counters: &'k Counters, now_ms: i64) -> Self {
        Self { kernel, bodies: Bodies::of(&kernel.commands), counters, now_ms }
    }

    /// Updates the time after a wait.
    pub(super) fn renew(&mut self) {
        self.now_ms = renewed(self.now_ms);
    }

    /// Returns the turn for a command inside another one. If time stands still, some commands need the present.
    pub(super) fn inside(self, command: &Command) -> Self {
        match self.now_ms {
            STOPPED_MS => Self { now_ms: time_of_effect(command.spec.name), ..self },
            _ => self,
        }
    }
}

/// Returns the present for work that began at `now_ms` and had to wait. Stopped time stays stopped.
#[must_use]
pub fn renewed(now_ms: i64) -> i64 {
    if now_ms == STOPPED_MS { STOPPED_MS } else { clock::unix_ms().max(now_ms) }
}

/// A call and its caller.
pub struct Request<'a, 'k> {
    /// Caller of the command.
    pub caller: &'a mut Caller,
    /// Command; for a subcommand, the subcommand.
    pub command: &'k Command,
    /// Arguments, with the name.
    pub args: Args<'a>,
    /// Mode; it says if the command may wait for keys.
    pub mode: Mode<'a>,
    /// Argument that has a vector of its own.
    pub large: Option<&'a Arc<Vec<u8>>>,
    /// Arguments that have been hashed already, from the first key on.
    pub hashed: &'a [(&'a [u8], KeyHash)],
}

impl<'a, 'k> Request<'a, 'k> {
    /// Creates a request without further facts.
    #[inline]
    pub fn new(
        caller: &'a mut Caller,
        command: &'k Command,
        args: Args<'a>,
        mode: Mode<'a>,
    ) -> Self {
        Self { caller, command, args, mode, large: None, hashed: &[] }
    }
}
