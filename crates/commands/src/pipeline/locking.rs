//! Locks what a command has declared, and then runs it. [`Bodies`] has the functions of the commands of a table, by
//! their identities, since the facts about a command do not include them.
//!
//! [`way_in`] chooses the locking once, when the table is made. A command with a single key needs none: a worker has
//! already locked its shard, and keeps it locked for later requests there. On other threads, opening the key locks
//! it.
//!
//! **Invariant:** much time may pass between the admission and the locks: on a thread for long commands, and when a
//! waiting client is served. A command that writes is then checked again with its keys locked, before it changes
//! anything.

use std::sync::OnceLock;
use std::time::Duration;

use parking_lot::MutexGuard;

use super::weigh::weigh_values;
use super::{Context, Done, Handler, Mode, Request, renewed};
use crate::caller::Caller;
use crate::command::{ADDED_MAX, Access, Command, Scope, Spec, Table, Weight};
use crate::error::{CommandError, Interrupt};
use crate::kernel::Kernel;
use crate::monitors;
use crate::transaction::Needs;
use tierce_keyspace::{Busy, KeyHash, MultiShardGuard, ShardLocks};
use tierce_wire::resp::Args;

/// Functions of all commands of a table.
pub struct Bodies {
    built_in: Box<[Ways]>,
    /// Of added commands, in the order of their identities.
    added: Box<[OnceLock<Ways>]>,
}

/// Functions that run a command.
#[derive(Clone, Copy)]
pub(super) struct Ways {
    /// Locks the shards of its scope and runs it.
    pub(super) enter: Handler,
    /// Runs the body alone.
    pub(super) run: Handler,
}

impl Ways {
    fn of((spec, run): (&Spec, Handler)) -> Self {
        Self { enter: way_in(spec, run), run }
    }
}

impl Bodies {
    /// Creates those of these commands and subcommands, in the order of their identities.
    pub(super) fn new<'s>(all: impl Iterator<Item = (&'s Spec, Handler)>) -> Self {
        let added = (0..ADDED_MAX).map(|_| OnceLock::new()).collect();
        Self { built_in: all.map(Ways::of).collect(), added }
    }

    /// Returns those of a table, which must be made by this crate.
    #[inline]
    #[must_use]
    pub fn of(table: &Table) -> &Self {
        table.bodies.downcast_ref().expect("the table was made here")
    }

    /// Binds an added command or subcommand to its body.
    pub(super) fn bind(&self, command: &Command, run: Handler) {
        self.added[self.added_at(command)].get_or_init(|| Ways::of((command.spec, run)));
    }

    #[inline]
    pub(super) fn ways(&self, command: &Command) -> &Ways {
        match self.built_in.get(usize::from(command.id.0)) {
            Some(ways) => ways,
            None => self.ways_of_added(command),
        }
    }

    #[cold]
    fn ways_of_added(&self, command: &Command) -> &Ways {
        self.added[self.added_at(command)].get().expect("it has its body before it is found")
    }

    fn added_at(&self, command: &Command) -> usize {
        usize::from(command.id.0) - self.built_in.len()
    }
}

/// Returns the function that locks for a body and enters it.
fn way_in(spec: &Spec, run: Handler) -> Handler {
    match spec.scope() {
        // The guard takes one shard after the other, or finds all of them locked.
        Scope::Nothing | Scope::Stepwise => run,
        Scope::Program => program,
        Scope::InTurns => in_turns,
        Scope::Keys if spec.has_one_key() && spec.weight == Weight::Light => run,
        Scope::Keys if spec.has_one_key() => body,
        Scope::Keys => with_keys,
        Scope::Unlocked => unlocked,
        Scope::All => with_all,
        Scope::AllInTurns => all_in_turns,
        Scope::OfCall(_) => as_the_call_says,
    }
}

/// Runs a program. Its call is shown to monitors before its own calls, once it is certain that it has run. A program
/// that failed to run is shown as well.
fn program(ctx: &mut Context<'_, '_>) -> Done {
    let done = ctx.run_body();
    if let Err(error) = &done
        && error.interrupt().is_none()
        && ctx.kernel.clients.has_monitors()
    {
        monitors::show_program(ctx.kernel, ctx.caller, ctx.call.args());
    }
    done
}

/// Runs the body after weighing its values.
fn body(ctx: &mut Context<'_, '_>) -> Done {
    weigh_values(ctx)?;
    ctx.check_again()()?;
    ctx.run_body()
}

/// Locks the shards of all keys at once.
fn with_keys(ctx: &mut Context<'_, '_>) -> Done {
    let (spec, keyspace) = (ctx.command.spec, &ctx.kernel.keyspace);
    let args = ctx.call.args();
    let mut hashed = Vec::with_capacity(args.len());
    spec.key_indexes(args).for_each(|index| {
        let key = args.at(index);
        hashed.push((key, keyspace.hash(key)));
    });
    let hashes: Vec<KeyHash> = hashed.iter().map(|(_, hash)| *hash).collect();
    ctx.within(&hashed, |locks| locks.try_lock_many(&hashes), body)?
}

fn with_all(ctx: &mut Context<'_, '_>) -> Done {
    ctx.within(ctx.hashed, ShardLocks::try_lock_all, body)?
}

/// Lets the body lock the keys, or locks them first: see `copies`.
fn in_turns(ctx: &mut Context<'_, '_>) -> Done {
    match ctx.command.spec {
        _ if ctx.locks_in_turns() => ctx.run_body(),
        spec if spec.has_one_key() => body(ctx),
        _ => with_keys(ctx),
    }
}

/// Does the same for a command that may need all keys.
fn all_in_turns(ctx: &mut Context<'_, '_>) -> Done {
    if ctx.locks_in_turns() { ctx.run_body() } else { with_all(ctx) }
}

/// Runs the body with its previous shard unlocked. Shards of an enclosing guard stay locked.
fn unlocked(ctx: &mut Context<'_, '_>) -> Done {
    if let Some(locks) = ctx.unlocked() {
        locks.release();
    }
    ctx.run_body()
}

fn as_the_call_says(ctx: &mut Context<'_, '_>) -> Done {
    match ctx.command.spec.scope_of(ctx.call.args()) {
        Scope::Nothing | Scope::Stepwise | Scope::Program | Scope::OfCall(_) => ctx.run_body(),
        Scope::InTurns => in_turns(ctx),
        Scope::Unlocked => unlocked(ctx),
        Scope::Keys => with_keys(ctx),
        Scope::All => with_all(ctx),
        Scope::AllInTurns => all_in_turns(ctx),
    }
}

impl<'k> Context<'_, 'k> {
    /// Returns the unlocked shards, for the few commands on all data instead of keys, such as SAVE. `None` inside a
    /// guard that holds shards for several commands.
    pub fn unlocked(&mut self) -> Option<&mut ShardLocks<'k>> {
        self.guard.unlocked()
    }

    /// Returns true if a call of the command may be entered: always outside a guard for several commands; inside one,
    /// if the declared shards are locked. Callers inside a guard must check this first, since entering a call that is
    /// not covered panics.
    #[must_use]
    pub fn covers(&self) -> bool {
        let (args, locks) = (self.call.args(), &*self.guard.locks);
        let covers = |index| locks.covers(self.kernel.keyspace.hash(args.at(index)));
        let keys = self.command.spec.needed_keys(args);
        keys.map_or_else(|| locks.covers_all(), |mut keys| keys.all(covers))
    }

    /// Returns true if the command runs inside a guard for several commands.
    #[must_use]
    pub fn is_within(&self) -> bool {
        self.guard.locks.is_within()
    }

    /// Freezes the role while the result lives, to change it; see
    /// [`Role::hold_still`](crate::replication::role::Role::hold_still). `None` inside a transaction, which has
    /// frozen it before it locked its shards.
    ///
    /// # Errors
    /// An interrupt if another thread has frozen it for long.
    pub(crate) fn hold_role_still(&mut self) -> Result<Option<MutexGuard<'k, ()>>, CommandError> {
        let Some(locks) = self.unlocked() else { return Ok(None) };
        // The thread that has frozen the role may wait for the shard of the previous request.
        locks.release();
        let role = &self.kernel.role;
        let still = match self.mode {
            // For a program that embeds the kernel, on a thread of its own.
            Mode::Never => Some(role.hold_still()),
            _ => role.try_hold_still(),
        };
        still.map(Some).ok_or(Interrupt::Role.into())
    }

    /// Returns a second admission check, for a command that was admitted long ago. Call it with the keys locked,
    /// before anything is changed or replied. It fails with an interrupt if the command is no longer admitted, or its
    /// client has gone.
    #[inline]
    pub(crate) fn check_again(&self) -> impl FnOnce() -> Done + use<'k> {
        self.check_again_as(Access::of(self.command.spec))
    }

    /// Does the same for another access than that of the command.
    #[inline]
    pub(crate) fn check_again_as(&self, access: Access) -> impl FnOnce() -> Done + use<'k> {
        let (kernel, comes_late) = (self.kernel, self.mode.comes_late());
        let is_in_vain = self.mode.is_in_vain();
        let level = if comes_late { self.caller.replica_level(kernel) } else { None };
        move || match comes_late && (is_in_vain || kernel.has_closed(access, level)) {
            true => Err(Interrupt::Admission.into()),
            false => Ok(()),
        }
    }

    /// Locks the key of a late command whose body would lock it, and checks the command again.
    pub(super) fn lock_late(&mut self) -> Done {
        let spec = self.command.spec;
        if matches!(spec.scope_of(self.call.args()), Scope::Keys) && spec.has_one_key() {
            spec.key_indexes(self.call.args())
                .try_for_each(|index| self.reach(self.call.args().at(index)))?;
            self.now_ms = renewed(self.now_ms);
            self.check_again()()?;
        }
        Ok(())
    }

    pub(super) fn declared_keys(&self) -> Vec<KeyHash> {
        declared_keys(self.kernel, self.command, self.call.args())
    }

    /// Locks the shard of a key that the command could not declare.
    ///
    /// # Errors
    /// Fails if another thread holds the shard for long.
    pub fn reach(&mut self, key: &[u8]) -> Result<(), CommandError> {
        Ok(self.guard.locks.reach(self.kernel.keyspace.hash(key))?)
    }

    /// Calls `body` with the shards locked by `lock`, and these keys hashed.
    pub(super) fn within<R>(
        &mut self,
        hashed: &[(&[u8], KeyHash)],
        lock: impl for<'l> FnOnce(&'l mut ShardLocks<'k>) -> Result<MultiShardGuard<'l, 'k>, Busy>,
        body: impl FnOnce(&mut Context<'_, 'k>) -> R,
    ) -> Result<R, CommandError> {
        let mut turn = self.turn();
        let Self { caller, call, guard, reply, command, mode, large, .. } = self;
        let (command, args, mode, large) = (*command, call.args(), *mode, *large);
        let mut locked = lock(guard.locks)?;
        if mode.comes_late() {
            turn.renew();
        }
        let request = Request { caller, command, args, mode, large, hashed };
        let mut ctx = Context::new(turn, request, locked.locks(), reply.reborrow());
        #[cfg(debug_assertions)]
        ctx.guard.declared.clone_from(&guard.declared);
        Ok(body(&mut ctx))
    }
}

fn declared_keys(kernel: &Kernel, command: &Command, args: Args<'_>) -> Vec<KeyHash> {
    let keys = command.spec.key_indexes(args);
    keys.map(|index| kernel.keyspace.hash(&args[index])).collect()
}

/// Returns a declared shard of the call that a program has held for at least this time. Waiting for it might never
/// end.
#[must_use]
pub(super) fn held_by_program(
    kernel: &Kernel,
    caller: &Caller,
    command: &Command,
    args: Args<'_>,
    for_long: Duration,
) -> Option<Busy> {
    let running = &kernel.scripts.running;
    let any = || running.any_held(for_long);
    let one_of = |hashes: &[KeyHash]| {
        let mut shards = hashes.iter().map(|hash| kernel.keyspace.shard_of(*hash));
        shards.find(|shard| running.refusal(*shard, for_long).is_some())
    };
    any()?;
    let shard = match (&caller.transaction, command.spec.scope_of(args)) {
        (Some(queued), _) if command.is_exec() => match queued.needs() {
            Needs::All => any(),
            Needs::Keys(keys) => one_of(keys),
        },
        (_, Scope::Nothing | Scope::Unlocked) => None,
        (_, Scope::Keys | Scope::InTurns | Scope::Program) => {
            one_of(&declared_keys(kernel, command, args))
        }
        (_, Scope::Stepwise | Scope::All | Scope::AllInTurns | Scope::OfCall(_)) => any(),
    };
    shard.map(|shard| Busy { shard })
}
