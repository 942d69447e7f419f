//! Locks what a command has declared, and then runs it: [`Bodies`] has what runs the commands of a table, by their
//! identities, as the facts about a command know nothing of it.
//!
//! [`way_in`] chooses how once, when the table is made. A command with a single key needs nothing: a worker has locked its
//! shard before, which stays locked while the next requests go there as well, and elsewhere opening the key locks it.
//!
//! **Invariant:** where much time may pass between the gates and the locks, on a thread for long commands and when a
//! client is served that has waited, a command that writes passes the gates again with its keys locked, before it
//! changes anything.

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

/// The bodies of all commands of a table.
pub struct Bodies {
    built_in: Box<[Ways]>,
    /// Of commands that are added, in the order of their identities.
    added: Box<[OnceLock<Ways>]>,
}

/// Ways to run a command.
#[derive(Clone, Copy)]
pub(super) struct Ways {
    /// Locks what its scope says and runs it.
    pub(super) enter: Handler,
    /// The body alone.
    pub(super) run: Handler,
}

impl Ways {
    fn of((spec, run): (&Spec, Handler)) -> Self {
        Self { enter: way_in(spec, run), run }
    }
}

impl Bodies {
    /// Those of these commands and subcommands, in the order of their identities.
    pub(super) fn new<'s>(all: impl Iterator<Item = (&'s Spec, Handler)>) -> Self {
        let added = (0..ADDED_MAX).map(|_| OnceLock::new()).collect();
        Self { built_in: all.map(Ways::of).collect(), added }
    }

    /// Those of a table that was made here.
    #[inline]
    #[must_use]
    pub fn of(table: &Table) -> &Self {
        table.bodies.downcast_ref().expect("the table was made here")
    }

    /// Gives an added command or subcommand its body.
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

/// What the body of a command is entered by.
fn way_in(spec: &Spec, run: Handler) -> Handler {
    match spec.scope() {
        // The guard takes one shard after the other, or finds all of them locked.
        Scope::Nothing | Scope::Stepwise => run,
        Scope::Program => program,
        Scope::InTurns => in_turns,
        Scope::Keys if spec.has_one_key() && spec.weight == Weight::Light => run,
        Scope::Keys if spec.has_one_key() => body,
        Scope::Keys => with_keys,
        Scope::Apart => apart,
        Scope::All => with_all,
        Scope::AllInTurns => all_in_turns,
        Scope::OfCall(_) => as_the_call_says,
    }
}

/// A program shows its call to monitors once it is certain that it has run, before its own calls. One that has not run
/// is shown as well.
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

/// The body, behind what its values weigh.
fn body(ctx: &mut Context<'_, '_>) -> Done {
    weigh_values(ctx)?;
    ctx.judge_again()()?;
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

/// The body locks the keys itself, or finds them locked: see `copies`.
fn in_turns(ctx: &mut Context<'_, '_>) -> Done {
    match ctx.command.spec {
        _ if ctx.locks_in_turns() => ctx.run_body(),
        spec if spec.has_one_key() => body(ctx),
        _ => with_keys(ctx),
    }
}

/// The same with all keys that there are.
fn all_in_turns(ctx: &mut Context<'_, '_>) -> Done {
    if ctx.locks_in_turns() { ctx.run_body() } else { with_all(ctx) }
}

/// The shard of the request before is unlocked first; those that a guard around it holds stay locked.
fn apart(ctx: &mut Context<'_, '_>) -> Done {
    if let Some(locks) = ctx.apart() {
        locks.release();
    }
    ctx.run_body()
}

fn as_the_call_says(ctx: &mut Context<'_, '_>) -> Done {
    match ctx.command.spec.scope_of(ctx.call.args()) {
        Scope::Nothing | Scope::Stepwise | Scope::Program | Scope::OfCall(_) => ctx.run_body(),
        Scope::InTurns => in_turns(ctx),
        Scope::Apart => apart(ctx),
        Scope::Keys => with_keys(ctx),
        Scope::All => with_all(ctx),
        Scope::AllInTurns => all_in_turns(ctx),
    }
}

impl<'k> Context<'_, 'k> {
    /// The way to all shards, none of which is held: for the few commands that are not about keys but
    /// about all data, such as SAVE. `None` inside of a guard, where there is no such way.
    pub fn apart(&mut self) -> Option<&mut ShardLocks<'k>> {
        self.guard.apart()
    }

    /// Whether a call of the command may be entered: always outside of a guard that holds shards for
    /// several commands, and inside of one if what it has declared is locked. To be asked by callers that run
    /// commands inside of a guard; to enter one that is not covered panics.
    #[must_use]
    pub fn covers(&self) -> bool {
        let (args, locks) = (self.call.args(), &*self.guard.locks);
        let covers = |index| locks.covers(self.kernel.keyspace.hash(args.at(index)));
        let keys = self.command.spec.needed_keys(args);
        keys.map_or_else(|| locks.covers_all(), |mut keys| keys.all(covers))
    }

    /// Whether the command runs inside of a guard that holds shards for several.
    #[must_use]
    pub fn is_within(&self) -> bool {
        self.guard.locks.is_within()
    }

    /// Holds the role still for as long as the result lives, for what changes it; see
    /// [`Role::hold_still`](crate::replication::role::Role::hold_still). `None` inside of a transaction, which has held
    /// it since before it locked its shards.
    ///
    /// # Errors
    /// An interrupt when another thread has held it for long.
    pub(crate) fn hold_role_still(&mut self) -> Result<Option<MutexGuard<'k, ()>>, CommandError> {
        let Some(locks) = self.apart() else { return Ok(None) };
        // The shard of the request before, for which the one that holds the role may wait.
        locks.release();
        let role = &self.kernel.role;
        let still = match self.mode {
            // Of a program that embeds the kernel, on a thread of its own.
            Mode::Never => Some(role.hold_still()),
            _ => role.try_hold_still(),
        };
        still.map(Some).ok_or(Interrupt::Role.into())
    }

    /// Looks at the gates once more, to be called with the keys locked where much time may have passed since the
    /// command was judged. It has changed nothing yet, and replied nothing. What is called fails with an interrupt when
    /// one has closed, or when its client has gone.
    #[inline]
    pub(crate) fn judge_again(&self) -> impl FnOnce() -> Done + use<'k> {
        self.judge_again_as(Access::of(self.command.spec))
    }

    /// The same for what does not have the access of its command.
    #[inline]
    pub(crate) fn judge_again_as(&self, access: Access) -> impl FnOnce() -> Done + use<'k> {
        let (kernel, comes_late) = (self.kernel, self.mode.comes_late());
        let is_in_vain = self.mode.is_in_vain();
        let level = if comes_late { self.caller.replica_level(kernel) } else { None };
        move || match comes_late && (is_in_vain || kernel.has_closed(access, level)) {
            true => Err(Interrupt::Gate.into()),
            false => Ok(()),
        }
    }

    /// For a command that comes late, and whose body locks the key: it is locked, so that the body finds it so, and the
    /// command is judged again.
    pub(super) fn lock_late(&mut self) -> Done {
        let spec = self.command.spec;
        if matches!(spec.scope_of(self.call.args()), Scope::Keys) && spec.has_one_key() {
            spec.key_indexes(self.call.args())
                .try_for_each(|index| self.reach(self.call.args().at(index)))?;
            self.now_ms = renewed(self.now_ms);
            self.judge_again()()?;
        }
        Ok(())
    }

    pub(super) fn declared_keys(&self) -> Vec<KeyHash> {
        declared_keys(self.kernel, self.command, self.call.args())
    }

    /// Locks the shard of a key, for a command that is not known to need it before it runs.
    ///
    /// # Errors
    /// When another thread holds the shard for long.
    pub fn reach(&mut self, key: &[u8]) -> Result<(), CommandError> {
        Ok(self.guard.locks.reach(self.kernel.keyspace.hash(key))?)
    }

    /// Runs `body` with what `lock` locks, and these keys hashed.
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

/// A shard that the call has declared and a program has held for so long, if there is one: to wait for it may be to wait
/// without end.
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
        (_, Scope::Nothing | Scope::Apart) => None,
        (_, Scope::Keys | Scope::InTurns | Scope::Program) => {
            one_of(&declared_keys(kernel, command, args))
        }
        (_, Scope::Stepwise | Scope::All | Scope::AllInTurns | Scope::OfCall(_)) => any(),
    };
    shard.map(|shard| Busy { shard })
}
