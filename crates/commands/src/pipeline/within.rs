//! Calls within a guard: the requests of a transaction, and the calls of a program.
//!
//! The guard has locked its shards before the first call, and unlocks them after the last one. So no call waits: each
//! one has a reply, which may be an error, or everything in the guard starts over ([`StartOver`]).

use tierce_keyspace::{KeyHash, ShardLocks};
use tierce_lua::Stop;
use tierce_wire::resp::Args;

use super::{Context, Done, Mode, Request, Turn, reply_error};
use crate::caller::Caller;
use crate::command::Command;
use crate::command_log;
use crate::pipeline::meter::Meter;
use crate::reply::Reply;
use crate::stats::{Counters, ErrorCounts};

/// Runs the calls within one guard, and accounts for them.
pub(super) struct Within<'m, 'k> {
    /// Turn of the guard.
    pub(super) turn: Turn<'k>,
    /// Mode of each call, which never waits.
    pub(super) mode: Mode<'m>,
    pub(super) meter: Meter<'m>,
    /// Counters of failed calls and their errors.
    pub(super) counters: &'m Counters,
    pub(super) errors: &'m ErrorCounts,
}

/// Reason that a call cannot run in its guard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StartOver {
    /// It needs a shard that is not locked.
    WithMoreLocked,
    /// It takes too long for this thread.
    Elsewhere,
}

impl From<StartOver> for Stop {
    fn from(start_over: StartOver) -> Self {
        match start_over {
            StartOver::WithMoreLocked => Self::Undeclared,
            StartOver::Elsewhere => Self::Long,
        }
    }
}

impl<'k> Within<'_, 'k> {
    /// Runs a call and writes its reply. `enter` enters its context; the key may have been hashed before. `last` are
    /// the words of the call before.
    pub(super) fn run(
        &mut self,
        (command, args, hash): (&'k Command, Args<'_>, Option<KeyHash>),
        last: Args<'_>,
        caller: &mut Caller,
        locks: &mut ShardLocks<'k>,
        reply: Reply<'_>,
        enter: impl FnOnce(&mut Context<'_, 'k>) -> Result<Done, StartOver>,
    ) -> Result<(), StartOver> {
        let Self { turn, mode, meter, counters, errors } = self;
        let kernel = turn.kernel;
        let shorten = |args| command_log::shorten(&kernel.commands, args);
        let timing = meter.begin(command, &caller.client, || shorten(last));
        let hashed = command.has_one_key.then(|| {
            let key = args.at(command.first_key);
            (key, hash.unwrap_or_else(|| kernel.keyspace.hash(key)))
        });
        let request = Request::new(caller, command, args, *mode);
        let request = Request { hashed: hashed.as_slice(), ..request };
        let mut ctx = Context::new(turn.inside(command), request, locks, reply);
        let outcome = enter(&mut ctx).and_then(|done| match done {
            Err(error) if error.interrupt().is_some() => Err(StartOver::Elsewhere),
            done => Ok(done),
        });
        match outcome {
            Ok(Ok(())) => {}
            Ok(Err(error)) => {
                counters.failed(command.id);
                reply_error(errors, counters, &mut ctx.reply, &error);
            }
            Err(start_over) => {
                meter.take_back(timing);
                return Err(start_over);
            }
        }
        if !command.is_data_only {
            meter.look_again();
            ctx.guard.locks.look_for_event_classes();
        }
        meter.end(timing, command, &ctx.caller.client, || shorten(args));
        Ok(())
    }
}
