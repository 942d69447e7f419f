//! Commands that wait for keys: BLPOP and its relatives, XREAD BLOCK.
//!
//! Such a command checks its keys with all of their shards locked. If it finds something, it replies like any other
//! command. If not, it ends with `wait`, which registers the client under the same locks. Its connection is
//! suspended, and the worker serves others.
//!
//! A thread that changes such a key serves the waiting clients after its own command ([`serve`](super::serve)): it
//! runs the command of the waiting client again, on behalf of that client, and sends the reply as an [`Answer`]. So
//! waiting clients get pushed elements before the next command of the pushing connection runs, as users of Redis
//! expect.
//!
//! Three events can end the wait: a thread serves the client, its timeout ends (or CLIENT UNBLOCK ends it), or its
//! connection closes. The waiter's [`WaiterState`](tierce_keyspace::WaiterState) lets exactly one of them do so.

mod confirmations;
mod in_vain;
mod nonblocking;

use std::time::Duration;

use parking_lot::Mutex;
use tierce_keyspace::{Db, Key, Waiter, Wakes};
use tierce_wire::resp::{Args, OwnedArgs, Proto};

use crate::answer::{Answer, Answered, Destination};
use crate::caller::Caller;
use crate::clients::{Client, Listener};
use crate::error::CommandError;
use crate::kernel::Kernel;
use crate::pipeline::Mode;
use crate::pipeline::{self, Context};
use crate::reply::Reply;
pub use crate::waiting::Patience;
use crate::waiting::{Awaited, ReplyTo};

pub(super) use in_vain::answer_in_vain;
pub(crate) use in_vain::{ENDED_BY_ROLE, unblock, unblock_all, unblock_moved};
pub use in_vain::{connection_ends, nobody_waits, reply_late, time_is_up};
pub(crate) use nonblocking::{accept_results, cancel, cancel_all, client_leaves, listener};
pub use nonblocking::{result_is_due, send_away};

/// Wait of a command.
pub(crate) struct Wait<'a> {
    /// Keys, all of which are locked.
    pub(crate) keys: &'a [Key<'a>],
    /// Call to run when one of them has changed.
    pub(crate) command: OwnedArgs,
    /// Maximum duration.
    pub(crate) patience: Patience,
    /// Consumer group that it reads for, if any. The wait ends if the group or its stream is deleted.
    pub(crate) group: Option<&'a [u8]>,
    /// Changes of the keys that may end the wait.
    pub(crate) wakes: Wakes,
    /// Pending entries of the group that it claims, too.
    pub(crate) claims: Option<Claims>,
}

/// Pending entries that a waiting client claims, although no key changes.
#[derive(Clone, Copy)]
pub(crate) struct Claims {
    /// Time that they have been pending.
    pub(crate) idle_ms: u64,
    /// Time until there may be one.
    pub(crate) after: Duration,
}

/// A waiting client, as seen by the threads that serve it.
pub(super) struct Blocked {
    pub(super) to: Destination,
    pub(super) proto: Proto,
    /// Caller for its command. Only the thread that holds the claim locks this.
    pub(super) caller: Mutex<Caller>,
    pub(super) command: OwnedArgs,
    pub(super) group: Option<Box<[u8]>>,
    /// Time that entries of its group have been pending which it claims, too.
    pub(super) claims_idle_ms: Option<u64>,
    /// Shards of all keys of its command, including keys that it does not wait for.
    pub(super) shards: Box<[usize]>,
}

impl Blocked {
    /// Returns true if its command needs one of these shards.
    pub(super) fn needs_any(&self, shards: &[usize]) -> bool {
        self.shards.iter().any(|shard| shards.contains(shard))
    }

    /// Records the size of the reply to a client that was not served.
    pub(super) fn note_reply(&self, kernel: &Kernel, client: &Client, bytes: usize) {
        let args = self.command.as_args();
        if let Ok(command) = pipeline::resolve(kernel, args) {
            kernel.hot_keys.note_reply(command, args, client.conn.worker, bytes);
        }
    }

    /// Returns true if its command needs only the shard of the key that it waits for.
    pub(super) fn is_in_one_shard(&self) -> bool {
        self.shards.iter().all(|shard| *shard == self.shards[0])
    }
}

/// Returns the shards of the keys of a call.
fn shards_of(kernel: &Kernel, call: Args<'_>) -> Box<[usize]> {
    let Ok(command) = pipeline::resolve(kernel, call) else { return Box::default() };
    let keyspace = &kernel.keyspace;
    let shard_of = |index| keyspace.shard_of(keyspace.hash(call.at(index)));
    command.spec.key_indexes(call).map(shard_of).collect()
}

/// Offers each key to `serve`, which replies if it finds something there. If no key has anything, the client waits
/// for `patience`, or a command without `patience` gets an empty reply. All shards are locked throughout.
pub(crate) fn first_of<'b>(
    ctx: &mut Context<'_, '_>,
    keys: impl Iterator<Item = &'b [u8]>,
    patience: Option<Patience>,
    mut serve: impl FnMut(&mut Db<'_>, Key<'_>, &mut Reply<'_>) -> Result<bool, CommandError>,
) -> Result<(), CommandError> {
    let keys = ctx.keys(keys);
    let Context { guard, caller, reply, now_ms, mode, .. } = ctx;
    for key in &keys {
        match serve(&mut guard.db(caller.db, key.hash(), *now_ms), *key, reply) {
            Ok(true) => return Ok(()),
            Ok(false) => {}
            Err(error) if mode.passes_over(&error) => {}
            Err(error) => return Err(error),
        }
    }
    match patience {
        Some(patience) => {
            let command = ctx.call.to_owned();
            let (keys, wakes) = (&keys[..], Wakes::Creation);
            let (group, claims) = (None, None);
            wait(ctx, Wait { keys, command, patience, group, wakes, claims });
        }
        None => reply.null_array(),
    }
    Ok(())
}

/// Ends a command that has found nothing: its client waits, if it may.
pub(crate) fn wait(ctx: &mut Context<'_, '_>, wait: Wait<'_>) {
    let Context { kernel, guard, caller, reply, mode, .. } = ctx;
    let (kernel, mode) = (*kernel, *mode);
    let to = match mode {
        Mode::Served(served) => {
            serve_later(kernel, caller, &wait, mode);
            return served.found_nothing.set(true);
        }
        Mode::Never | Mode::OfProgram | Mode::Long { to: None } => return reply.null_array(),
        Mode::Long { to: Some(to) } => to.clone(),
        Mode::Client => Destination::Reply(caller.reply_to()),
        Mode::NonBlocking { to, name } => {
            match nonblocking::begin(kernel, caller, to, name, wait.command.as_args()) {
                Ok(deferred) => Destination::Result(deferred),
                Err(error) => {
                    kernel.count_error(&error, None);
                    return reply.error(&error);
                }
            }
        }
    };
    serve_later(kernel, caller, &wait, mode);
    let Wait { keys, command, patience, group, wakes, claims } = wait;
    let about = Blocked {
        to: to.clone(),
        proto: caller.proto,
        caller: Mutex::new(caller.stand_in()),
        shards: shards_of(kernel, command.as_args()),
        command,
        group: group.map(Box::from),
        claims_idle_ms: claims.map(|claims| claims.idle_ms),
    };
    let register = || guard.wait(caller.db, keys, wakes, about);
    match &to {
        Destination::Reply(to) => {
            let awaited = Awaited::Keys { waiter: register(), patience };
            match mode {
                Mode::Long { .. } => wait_elsewhere(kernel, caller, *to, awaited),
                _ => caller.wait_for(awaited),
            }
        }
        Destination::Result(deferred) => {
            if deferred.wait(register) == Listener::There {
                kernel.set_deadline(deferred, patience);
            }
            if let Mode::Long { .. } = mode {
                // Tells the thread of the command that there is no reply.
                caller.waits.wait_for(Awaited::LongCommand, true);
            }
        }
    }
}

/// Runs the command again after a time, if the client still waits then. While one is served, others count on it that
/// claim entries of the same stream later; see `FoundNothing`.
fn serve_later(kernel: &Kernel, caller: &Caller, wait: &Wait<'_>, mode: Mode<'_>) {
    let Some(Claims { after, .. }) = wait.claims else { return };
    let is_in_time = match wait.patience {
        Patience::Ms(ms) if !matches!(mode, Mode::Served(_)) => after <= Duration::from_millis(ms),
        _ => true,
    };
    // A command checks all of its keys.
    if let Some(key) = wait.keys.first().filter(|_| is_in_time) {
        kernel.offload.serve_after((caller.db, key.bytes().into()), after);
    }
}

/// Makes the connection of an offloaded command wait. The message is posted while the keys are locked, so it reaches
/// the worker before the reply to a client that changes one of them.
fn wait_elsewhere(kernel: &Kernel, away: &mut Caller, to: ReplyTo, awaited: Awaited) {
    let caller = Some(Box::new(away.away()));
    // Tells the thread of the command that there is no reply.
    away.waits.wait_for(awaited.clone(), true);
    let (to, reply) = (Destination::Reply(to), Answered::Later(awaited));
    kernel.answer(Answer { to, reply, logged_at: None, invalidation: None, caller });
}

pub(super) fn blocked_of(waiter: &Waiter) -> &Blocked {
    waiter.about::<Blocked>().expect("only this module makes waiters")
}
