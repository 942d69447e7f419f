//! Locks what a command has declared, and then runs it.
//!
//! [`entry`] chooses how once, when the table is made. A command with a single key needs nothing: opening
//! the key locks its shard, which stays locked while the next requests go there as well.

use tierce_keyspace::{KeyHash, Locker, Many};
use tierce_wire::resp::Args;

use super::{Context, Guard};
use crate::command::{Handler, Scope, Spec};
use crate::error::CommandError;

type Done = Result<(), CommandError>;

/// What the body of a command is entered by.
#[must_use]
pub fn entry(spec: &Spec) -> Handler {
    match spec.scope() {
        // The guard takes one shard after the other, or finds all of them locked.
        Scope::Nothing | Scope::Briefly | Scope::Stepwise => spec.run,
        Scope::Keys if spec.has_one_key() => spec.run,
        Scope::Keys => with_keys,
        Scope::Apart => apart,
        Scope::All => with_all,
        Scope::OfCall(_) => as_the_call_says,
    }
}

/// Locks the shards of all keys at once.
fn with_keys(ctx: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    // One key of a command that may have several, such as DEL, or a mistake that the body finds.
    if args.len() == 2 {
        return (ctx.command.spec.run)(ctx, args);
    }
    let hashes = ctx.declared_keys(args);
    if hashes.len() < 2 {
        return (ctx.command.spec.run)(ctx, args);
    }
    ctx.within(|locker| locker.lock_many(&hashes), |ctx| (ctx.command.spec.run)(ctx, args))
}

fn with_all(ctx: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    ctx.within(Locker::lock_all, |ctx| (ctx.command.spec.run)(ctx, args))
}

/// The shard of the request before is unlocked first; those that a guard around it holds stay locked.
fn apart(ctx: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    if let Some(locker) = ctx.apart() {
        locker.release();
    }
    (ctx.command.spec.run)(ctx, args)
}

fn as_the_call_says(ctx: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    match ctx.command.spec.scope_of(args) {
        Scope::Nothing | Scope::Briefly | Scope::Stepwise | Scope::OfCall(_) => {
            (ctx.command.spec.run)(ctx, args)
        }
        Scope::Apart => apart(ctx, args),
        Scope::Keys => with_keys(ctx, args),
        Scope::All => with_all(ctx, args),
    }
}

impl<'k> Context<'_, 'k> {
    /// What is locked for a command that computes for long on copies: its keys, while `copy` runs. To be
    /// called once. Inside of a guard they stay locked.
    pub fn briefly<R>(
        &mut self,
        args: Args<'_>,
        copy: impl FnOnce(&mut Context<'_, 'k>) -> Result<R, CommandError>,
    ) -> Result<R, CommandError> {
        let hashes = self.declared_keys(args);
        let copied = self.within(|locker| locker.lock_many(&hashes), copy);
        if let Some(locker) = self.apart() {
            // A single shard stays locked otherwise.
            locker.release();
        }
        copied
    }

    /// The way to all shards, none of which is held: for the few commands that are not about keys but
    /// about all data, such as SAVE. `None` inside of a guard, where there is no such way.
    pub fn apart(&mut self) -> Option<&mut Locker<'k>> {
        (!self.guard.locker.is_within()).then_some(&mut *self.guard.locker)
    }

    /// Whether a call of the command may be entered: always outside of a guard that holds shards for
    /// several commands, and inside of one if what it has declared is locked. To be asked by whoever runs
    /// commands inside of a guard; to enter one that is not covered panics.
    #[must_use]
    pub fn covers(&self, args: Args<'_>) -> bool {
        let locker = &*self.guard.locker;
        match self.command.spec.scope_of(args) {
            Scope::Nothing | Scope::Apart => true,
            Scope::Keys | Scope::Briefly => {
                self.declared_keys(args).into_iter().all(|hash| locker.covers(hash))
            }
            Scope::Stepwise | Scope::All | Scope::OfCall(_) => locker.covers_all(),
        }
    }

    /// Whether the command runs inside of a guard that holds shards for several.
    #[must_use]
    pub fn is_within(&self) -> bool {
        self.guard.locker.is_within()
    }

    fn declared_keys(&self, args: Args<'_>) -> Vec<KeyHash> {
        let keys = self.command.spec.key_indexes(args);
        keys.map(|index| self.server.keyspace.hash(&args[index])).collect()
    }

    /// Runs `body` with what `lock` locks.
    fn within<R>(
        &mut self,
        lock: impl for<'l> FnOnce(&'l mut Locker<'k>) -> Many<'l, 'k>,
        body: impl FnOnce(&mut Context<'_, 'k>) -> R,
    ) -> R {
        let Self { server, session, guard, reply, command, counters, now_ms, mode, large, hashed } =
            self;
        let (server, command, counters) = (*server, *command, *counters);
        let mut locked = lock(guard.locker);
        let guard = Guard {
            locker: locked.locker(),
            #[cfg(debug_assertions)]
            declared: std::mem::take(&mut guard.declared),
        };
        let reply = reply.reborrow();
        let (now_ms, mode, large, hashed) = (*now_ms, *mode, *large, *hashed);
        body(&mut Context {
            server,
            session,
            guard,
            reply,
            command,
            counters,
            now_ms,
            mode,
            large,
            hashed,
        })
    }
}
