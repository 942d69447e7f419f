//! One attempt to run a request on a thread that is no worker.

use std::sync::Arc;
use std::time::Duration;

use tierce_keyspace::ShardLocks;
use tierce_output::Output;
use tierce_wire::resp::Args;

use crate::caller::Caller;
use crate::clock::{self, STOPPED_MS};
use crate::command::Command;
use crate::error::Interrupt;
use crate::pipeline::meter::{Meter, Timing, Words};
use crate::pipeline::{Context, Mode, Request, Turn, serve, serve_at_once};
use crate::reply::Reply;
use crate::slowlog;

/// Much time may have passed, or not, since the gates let the request through.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Late {
    /// None has.
    No,
    /// It is judged again when its keys are locked, and does not wait for what a program has held for so long.
    Yes(Duration),
}

/// The thread that serves clients which wait for keys that the request has changed.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Ready {
    /// This thread.
    Serve,
    /// This thread, as far as it need not wait for a shard, and else one that may.
    ServeAtOnce,
}

/// One attempt to run a request, and the account of it. It has neither run nor replied if it is interrupted.
pub struct Attempt<'a, 'k> {
    /// The turn of this thread.
    pub turn: Turn<'k>,
    /// The command.
    pub command: &'k Command,
    /// The arguments, with the name.
    pub args: Args<'a>,
    /// The mode says if it may wait for keys.
    pub mode: Mode<'a>,
    /// Late or not.
    pub late: Late,
    /// The thread that serves those that wait.
    pub ready: Ready,
}

impl<'k> Attempt<'_, 'k> {
    /// Runs the request with these locks, which keep what it has locked.
    ///
    /// # Errors
    /// When it is to be tried again.
    pub fn run(
        &self,
        caller: &mut Caller,
        locks: &mut ShardLocks<'k>,
        output: &mut Output,
    ) -> Result<(), Interrupt> {
        let Self { turn, command, args, .. } = *self;
        let kernel = turn.kernel;
        locks.set_touch(caller.touch());
        let client = Arc::clone(&caller.client);
        let mut meter = Meter::start(kernel, turn.counters);
        let timing = meter.begin(command, &client, Words::new);
        if let Some(interrupt) = self.enter(caller, locks, output) {
            meter.take_back(timing);
            return Err(interrupt);
        }
        if locks.has_ready() {
            self.serve_ready(locks, &mut meter);
        }
        meter.look_again();
        let words = || slowlog::shorten(&kernel.commands, args);
        match timing == Timing::Alone && caller.waits.is_for_keys() {
            true => meter.end_blocked(command, &client),
            false => meter.end(timing, command, &client, words),
        }
        meter.finish(&client, words);
        Ok(())
    }

    fn enter(
        &self,
        caller: &mut Caller,
        locks: &mut ShardLocks<'k>,
        output: &mut Output,
    ) -> Option<Interrupt> {
        let reply = Reply::new(output, caller.proto);
        let request = Request::new(caller, self.command, self.args, self.mode);
        let mut context = Context::new(self.turn, request, locks, reply);
        match self.late {
            Late::No => context.run(),
            Late::Yes(patience) => match context.held_by_program(patience) {
                Some(busy) => Some(Interrupt::Busy(busy)),
                None => context.run_late(),
            },
        }
    }

    fn serve_ready(&self, locks: &mut ShardLocks<'k>, meter: &mut Meter<'k>) {
        let Turn { kernel, counters, now_ms, .. } = self.turn;
        // Those who wait read as all clients do, also where the changes are made at a time that stands still.
        let now_ms = if now_ms == STOPPED_MS { clock::unix_ms() } else { now_ms };
        let serving = match self.ready {
            Ready::ServeAtOnce => serve_at_once(kernel, locks, counters, now_ms),
            Ready::Serve => serve(kernel, locks, counters, &mut Output::new(), now_ms),
        };
        meter.leave_out(serving);
    }
}
