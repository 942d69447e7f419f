//! From a parsed request to its reply: lookup, checks, locks, and the command itself.

#[cfg(debug_assertions)]
mod declared;
mod guard;
mod locking;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use tierce_keyspace::{Db, Key, KeyHash, NewString};
use tierce_wire::resp::Args;

use crate::blocking;
use crate::command::{Command, Flags};
use crate::error::CommandError;
use crate::reply::Reply;
use crate::server::Server;
use crate::session::Session;
use crate::stats::{Counters, Stat};

pub use self::guard::Guard;
pub use self::locking::entry;

/// All that a command may touch while it runs.
pub struct Context<'a, 'k> {
    /// What all workers share.
    pub server: &'k Server,
    /// The connection that sent the command.
    pub session: &'a mut Session,
    /// The data, as far as it is locked for the command.
    pub guard: Guard<'a, 'k>,
    /// Where the reply goes.
    pub reply: Reply<'a>,
    /// The command being run; for a subcommand, that one.
    pub command: &'k Command,
    /// The counters of this worker.
    pub counters: &'k Counters,
    /// The time of this turn, in Unix milliseconds.
    pub now_ms: i64,
    /// Whether the command may wait for keys.
    pub mode: blocking::Mode<'a>,
    /// An argument that has a vector of its own.
    pub large: Option<&'a Arc<Vec<u8>>>,
    /// An argument that has been hashed already.
    pub hashed: Option<(&'a [u8], KeyHash)>,
}

impl<'a, 'k> Context<'a, 'k> {
    /// The selected database, open at the shard of `key`, and the reply.
    #[inline]
    pub fn open<'b>(&mut self, key: &'b [u8]) -> (Db<'_>, Key<'b>, &mut Reply<'a>) {
        let key = self.server.keyspace.key_as(key, self.hashed);
        (self.guard.db(self.session.db, key.hash(), self.now_ms), key, &mut self.reply)
    }

    /// The keys among `args`.
    pub fn keys<'b>(&self, args: impl Iterator<Item = &'b [u8]>) -> Vec<Key<'b>> {
        args.map(|key| self.server.keyspace.key(key)).collect()
    }

    /// An argument as a string to be stored, which is kept as it is if it has a vector of its own.
    #[inline]
    pub fn string_of<'v>(&self, arg: &'v [u8]) -> NewString<'v>
    where
        'a: 'v,
    {
        match self.large {
            Some(large) if std::ptr::eq(large.as_slice(), arg) => NewString::from_arc(large),
            _ => NewString::new(arg),
        }
    }

    /// The name for error texts: `get` or `client|list`.
    #[must_use]
    pub fn name(&self) -> &'k str {
        &self.command.full_name
    }
}

/// Finds the command of a request.
///
/// # Errors
/// An unknown command or subcommand, or a wrong number of arguments.
#[inline]
pub fn resolve<'k>(server: &'k Server, args: Args<'_>) -> Result<&'k Command, Refused<'k>> {
    let Some(command) = server.commands.find(&args[0]) else {
        let error = CommandError::unknown_command(&args[0], args.iter().skip(1));
        return Err(Refused { command: None, error });
    };
    if command.subcommands.is_empty() || args.len() < 2 {
        return check_arity(command, args);
    }
    match command.subcommand(&args[1]) {
        Some(sub) => check_arity(sub, args),
        None => {
            let error = CommandError::unknown_subcommand(&args[1], command.spec.name);
            Err(Refused { command: None, error })
        }
    }
}

#[inline]
fn check_arity<'k>(command: &'k Command, args: Args<'_>) -> Result<&'k Command, Refused<'k>> {
    if command.spec.accepts(args.len()) {
        return Ok(command);
    }
    let error = CommandError::arity(&command.full_name);
    Err(Refused { command: Some(command), error })
}

/// Checks that the client may run the command.
///
/// # Errors
/// When the client has to say AUTH first, or the command writes and writes are refused.
#[inline]
pub fn admit<'k>(
    server: &Server,
    session: &mut Session,
    command: &'k Command,
) -> Result<(), Refused<'k>> {
    if !session.authenticated && !command.spec.flags.contains(Flags::NO_AUTH) {
        // The password may be gone since the client came.
        session.authenticated = server.is_open();
        if !session.authenticated {
            return Err(Refused { command: Some(command), error: CommandError::NO_AUTH });
        }
    }
    if server.persistence.refuses_writes() && shows_faults(command) {
        return Err(Refused { command: Some(command), error: CommandError::CANNOT_SAVE });
    }
    Ok(())
}

/// Whether a command is refused while the data cannot be saved: those that write, and PING, so that
/// whoever looks after the server notices.
#[cold]
fn shows_faults(command: &Command) -> bool {
    command.spec.flags.contains(Flags::WRITE) || command.spec.name == "ping"
}

/// A request that does not come to run.
pub struct Refused<'k> {
    /// The command, if it is known.
    pub command: Option<&'k Command>,
    /// The reply.
    pub error: CommandError,
}

impl Context<'_, '_> {
    /// Runs the command; an error becomes the reply.
    #[inline]
    pub fn run(&mut self, args: Args<'_>) {
        let client = &self.session.client;
        client.last_command.store(self.command.id.0 + 1, Relaxed);
        if let Err(error) = self.enter(args) {
            self.counters.failed(self.command.id);
            self.fail(&error);
        }
    }

    /// Locks what the command has declared, and runs it.
    ///
    /// # Errors
    /// What the client is to be told; nothing has been replied then.
    #[inline]
    pub fn enter(&mut self, args: Args<'_>) -> Result<(), CommandError> {
        #[cfg(debug_assertions)]
        {
            let keyspace = &self.server.keyspace;
            self.guard.declared = declared::Declared::of(self.command.spec, args, keyspace);
        }
        (self.command.enter)(self, args)
    }

    #[cold]
    fn fail(&mut self, error: &CommandError) {
        reply_error(self.server, self.counters, &mut self.reply, error);
    }
}

/// Replies to a request that does not come to run.
#[cold]
pub fn refuse(server: &Server, counters: &Counters, reply: &mut Reply<'_>, refused: &Refused<'_>) {
    if let Some(command) = refused.command {
        counters.refused(command.id);
    }
    reply_error(server, counters, reply, &refused.error);
}

fn reply_error(server: &Server, counters: &Counters, reply: &mut Reply<'_>, error: &CommandError) {
    counters.add(Stat::Errors, 1);
    server.errors.count(error.kind());
    reply.error(error);
}
