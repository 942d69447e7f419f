//! Facts of which a context is made: a turn of a thread, and a request in it.

use std::sync::Arc;

use tierce_keyspace::KeyHash;
use tierce_wire::resp::Args;

use super::{Bodies, Mode, time_of_effect};
use crate::caller::Caller;
use crate::clock::{self, STOPPED_MS};
use crate::command::Command;
use crate::kernel::Kernel;
use crate::stats::Counters;

/// The facts that all requests of one turn of a thread share.
#[derive(Clone, Copy)]
pub struct Turn<'k> {
    /// The kernel that executes commands.
    pub kernel: &'k Kernel,
    /// What runs the commands of its table.
    pub bodies: &'k Bodies,
    /// The counters of this thread.
    pub counters: &'k Counters,
    /// In Unix milliseconds.
    pub now_ms: i64,
}

impl<'k> Turn<'k> {
    /// One at this time, in Unix milliseconds.
    #[inline]
    #[must_use]
    pub fn new(kernel: &'k Kernel, counters: &'k Counters, now_ms: i64) -> Self {
        Self { kernel, bodies: Bodies::of(&kernel.commands), counters, now_ms }
    }

    /// Goes on after a wait: what is done from now on is done now.
    pub(super) fn renew(&mut self) {
        self.now_ms = renewed(self.now_ms);
    }

    /// The turn for a command inside of another one. Where time stands still, some commands need the present.
    pub(super) fn inside(self, command: &Command) -> Self {
        match self.now_ms {
            STOPPED_MS => Self { now_ms: time_of_effect(command.spec.name), ..self },
            _ => self,
        }
    }
}

/// The time now, for what began at `now_ms` and had to wait. Where time stands still, it is that one.
#[must_use]
pub fn renewed(now_ms: i64) -> i64 {
    if now_ms == STOPPED_MS { STOPPED_MS } else { clock::unix_ms().max(now_ms) }
}

/// A call, and by whom it is made.
pub struct Request<'a, 'k> {
    /// The caller who makes it.
    pub caller: &'a mut Caller,
    /// The command; for a subcommand, that one.
    pub command: &'k Command,
    /// The arguments, with the name.
    pub args: Args<'a>,
    /// The mode says if it may wait for keys.
    pub mode: Mode<'a>,
    /// An argument that has a vector of its own.
    pub large: Option<&'a Arc<Vec<u8>>>,
    /// Arguments that have been hashed already, from the first key on.
    pub hashed: &'a [(&'a [u8], KeyHash)],
}

impl<'a, 'k> Request<'a, 'k> {
    /// One of which no more is known.
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
