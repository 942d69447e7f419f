//! What calls do to the data, where that depends on the programs that they run: one that states `no-writes` does not
//! wait where writes wait, as in Redis.

use tierce_lua::{Flags, Sha1};
use tierce_wire::resp::Args;

use crate::caller::Caller;
use crate::command::{Access, Command};
use crate::pipeline::resolve;
use crate::kernel::Kernel;
use crate::transaction::Transaction;

/// What a call of `command` does to the data. EXEC does what all queued requests do.
pub(crate) fn access_of(
    kernel: &Kernel,
    caller: &Caller,
    command: &Command,
    args: Args<'_>,
) -> Access {
    match &caller.transaction {
        Some(queued) if command.is_exec() => queued_access(kernel, queued),
        _ => {
            let access = caller.access_of(command);
            Access { may_write: access.may_write && may_write(kernel, command, args), ..access }
        }
    }
}

/// What EXEC does to the data.
pub(crate) fn queued_access(kernel: &Kernel, queued: &Transaction) -> Access {
    let access = queued.access();
    let writes = |args| resolve(kernel, args).is_ok_and(|command| may_write(kernel, command, args));
    Access { may_write: access.may_write && queued.requests().iter().any(writes), ..access }
}

fn may_write(kernel: &Kernel, command: &Command, args: Args<'_>) -> bool {
    let flags = || stated_flags(kernel, command.spec.name, args.get(1)?);
    Access::of(command.spec).may_write
        && !flags().is_some_and(|flags| flags.contains(Flags::NO_WRITES))
}

/// The flags that a program states which is called by this command, if it is known.
fn stated_flags(kernel: &Kernel, command: &str, program: &[u8]) -> Option<Flags> {
    let scripts = &kernel.scripts;
    let known = match command {
        "eval" => return Flags::of_script(program),
        "fcall" => return Some(scripts.libraries.function(kernel, program)?.function.flags),
        "evalsha" => scripts.get(&Sha1::from_hex(program)?)?,
        "evalname" => scripts.names.get(kernel.keyspace.code(), program)?,
        _ => return None,
    };
    Some(known.script.flags())
}
