//! Access of calls to the data, if it depends on the programs that they run. A program that declares its flags is
//! treated like a command with these flags: it is deferred or refused as a whole.

use tierce_lua::{Flags, Sha1};
use tierce_wire::resp::Args;

use crate::caller::Caller;
use crate::command::{self, Access, Command};
use crate::kernel::Kernel;
use crate::pipeline::resolve;
use crate::transaction::Transaction;

/// Returns the access of a call of `command`. EXEC has the access of all queued requests.
pub(crate) fn access_of(
    kernel: &Kernel,
    caller: &Caller,
    command: &Command,
    args: Args<'_>,
) -> Access {
    match &caller.transaction {
        Some(queued) if command.is_exec() => queued_access(kernel, queued),
        _ => of_call(kernel, caller.access_of(command, args), command, args),
    }
}

/// Returns the access of EXEC.
pub(crate) fn queued_access(kernel: &Kernel, queued: &Transaction) -> Access {
    let mut access = queued.access();
    if queued.runs_programs && !queued.is_doomed {
        (access.may_write, access.may_grow) = (false, false);
        for args in queued.requests().iter() {
            let Ok(command) = resolve(kernel, args) else { continue };
            let one = of_call(kernel, Access::of(command.spec), command, args);
            access.writes |= one.writes;
            access.may_write |= one.may_write;
            access.may_grow |= one.may_grow;
            access.grows |= one.grows;
        }
    }
    access
}

/// Returns the access of a call whose command has `access`.
fn of_call(kernel: &Kernel, access: Access, command: &Command, args: Args<'_>) -> Access {
    let Some(flags) = stated_flags(kernel, command, args) else { return access };
    let writes = !flags.contains(Flags::NO_WRITES);
    let grows = access.grows || writes && !flags.contains(Flags::ALLOW_OOM);
    Access { writes, may_write: false, may_grow: false, grows, ..access }
}

/// Returns the declared flags of the program of a call, if it is known and has any.
pub(crate) fn stated_flags(kernel: &Kernel, command: &Command, args: Args<'_>) -> Option<Flags> {
    if !command.spec.flags.contains(command::Flags::PROGRAM) {
        return None;
    }
    let (scripts, program) = (&kernel.scripts, args.get(1)?);
    let script = match command.spec.name {
        "eval" | "eval_ro" => return Flags::of_script(program),
        "fcall" | "fcall_ro" => {
            return Some(scripts.libraries.function(kernel, program)?.function.flags);
        }
        "evalsha" | "evalsha_ro" => scripts.get(&Sha1::from_hex(program)?)?,
        "evalname" => scripts.names.get(kernel.keyspace.code(), program)?,
        _ => return None,
    };
    script.script.has_shebang().then(|| script.script.flags())
}
