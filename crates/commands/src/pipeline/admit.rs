//! Finds the command of a request, and checks that its client may call it.

use tierce_wire::resp::{Args, Rest};

use crate::acl;
use crate::caller::Caller;
use crate::clock;
use crate::command::{Command, Flags};
use crate::error::CommandError;
use crate::kernel::Kernel;
use crate::reply::Reply;
use crate::stats::{Counters, ErrorCounts, Stat};

/// Finds the command of a request.
///
/// # Errors
/// Fails for an unknown command or subcommand, or a wrong number of arguments.
#[inline]
pub fn resolve<'k>(kernel: &'k Kernel, args: Args<'_>) -> Result<&'k Command, Refused<'k>> {
    let Some(command) = kernel.commands.find(&args[0]) else {
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

/// Checks that the client may run the command, or queue it.
///
/// # Errors
/// Fails if the client must authenticate first, if the command may not run inside a transaction, if its user may not
/// make the call, and for PING while the data cannot be saved.
#[inline]
pub fn admit<'k>(
    kernel: &Kernel,
    caller: &mut Caller,
    command: &'k Command,
    args: Args<'_>,
) -> Result<(), Refused<'k>> {
    if !caller.authenticated && !command.spec.flags.contains(Flags::NO_AUTH) {
        // The password may have been removed since the client connected.
        caller.authenticated = kernel.is_open();
        if !caller.authenticated {
            return Err(Refused { command: Some(command), error: CommandError::NO_AUTH });
        }
    }
    if caller.replica().is_some() && !OF_REPLICAS.contains(&command.spec.name) {
        caller.closing = true;
        return Err(Refused { command: Some(command), error: CommandError::OF_REPLICA });
    }
    if caller.is_in_transaction() && command.spec.flags.contains(Flags::NO_MULTI) {
        return Err(Refused { command: Some(command), error: CommandError::NOT_WITHIN });
    }
    let origin = match caller.is_in_transaction() {
        true => acl::Origin::Multi,
        false => acl::Origin::TopLevel,
    };
    kernel
        .check_rights(caller, command, args, origin)
        .map_err(|error| Refused { command: Some(command), error })?;
    if command.spec.name == "ping" && kernel.persistence.refuses_writes() {
        // This alerts the monitoring of the server.
        return Err(Refused { command: Some(command), error: CommandError::CANNOT_SAVE });
    }
    Ok(())
}

/// Commands that a replica may send after PSYNC. Its connection carries the stream, and no replies.
const OF_REPLICAS: [&str; 5] = ["replconf", "psync", "sync", "ping", "quit"];

/// Returns the time for a command that another server has executed before. It stands still before any deadline,
/// except for commands that read the remaining time, since scripts decide by it. Commands that change keys must get
/// the stopped time: otherwise they would not see an expired key, which a replica keeps, and store a second one.
#[must_use]
pub fn time_of_effect(name: &str) -> i64 {
    match name {
        "ttl" | "pttl" | "httl" | "hpttl" | "sttl" | "spttl" => clock::unix_ms(),
        _ => clock::STOPPED_MS,
    }
}

/// Returns the user name that a client claims in a call, whose name is included.
#[must_use]
pub fn named_user<'a>(command: &Command, args: Args<'a>) -> Option<&'a [u8]> {
    match command.spec.name {
        "auth" if args.len() == 2 => Some(acl::DEFAULT),
        "auth" => args.get(1),
        "hello" => {
            let (mut user, mut options) = (None, Rest::new(args.from(2)).iter());
            while let (Some(option), Some(value)) = (options.next(), options.next()) {
                if option.eq_ignore_ascii_case(b"auth") {
                    (user, _) = (Some(value), options.next());
                }
            }
            user
        }
        _ => None,
    }
}

/// A request that was refused before it ran.
pub struct Refused<'k> {
    /// Its command, if known.
    pub command: Option<&'k Command>,
    /// Its reply.
    pub error: CommandError,
}

/// Replies to a refused request.
#[cold]
pub fn refuse(kernel: &Kernel, counters: &Counters, reply: &mut Reply<'_>, refused: &Refused<'_>) {
    refuse_counting(&kernel.errors, counters, reply, refused);
}

/// Does what [`refuse`] does, and counts the error in `errors`.
pub(super) fn refuse_counting(
    errors: &ErrorCounts,
    counters: &Counters,
    reply: &mut Reply<'_>,
    refused: &Refused<'_>,
) {
    if let Some(command) = refused.command {
        counters.refused(command.id);
    }
    reply_error(errors, counters, reply, &refused.error);
}

pub(super) fn reply_error(
    errors: &ErrorCounts,
    counters: &Counters,
    reply: &mut Reply<'_>,
    error: &CommandError,
) {
    counters.add(Stat::Errors, 1);
    errors.count(error.kind());
    reply.error(error);
}
