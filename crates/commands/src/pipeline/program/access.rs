//! The access of calls to the data, where that depends on the programs that they run. A program that states its flags is
//! treated as a command with these flags: it waits, and is refused as a whole, where such a command is.

use tierce_lua::{Flags, Sha1};
use tierce_wire::resp::Args;

use crate::caller::Caller;
use crate::command::{self, Access, Command};
use crate::kernel::Kernel;
use crate::pipeline::resolve;
use crate::transaction::Transaction;

/// The access of a call of `command` to the data. EXEC does what all queued requests do.
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

/// The access of EXEC.
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

/// The access of a call that has this one by its command.
fn of_call(kernel: &Kernel, access: Access, command: &Command, args: Args<'_>) -> Access {
    let Some(flags) = stated_flags(kernel, command, args) else { return access };
    let writes = !flags.contains(Flags::NO_WRITES);
    let grows = access.grows || writes && !flags.contains(Flags::ALLOW_OOM);
    Access { writes, may_write: false, may_grow: false, grows, ..access }
}

/// The flags that the program of a call states, if it is known and states any.
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
