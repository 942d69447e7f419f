//! Commands that run scripts, and those that manage them.

mod eval;
mod fcall;
mod functions;
mod named;
mod script;

use tierce_keyspace::CodeSet;

use crate::error::CommandError;
use crate::kernel::Kernel;
use crate::pipeline::{Defined, Done};

pub(super) const COMMANDS: &[&[Defined]] =
    &[eval::COMMANDS, named::COMMANDS, script::COMMANDS, fcall::COMMANDS, functions::COMMANDS];

/// Refuses a change that grows the code beyond half of `maxmemory`. Eviction does not free code: it would remove all
/// keys instead, and then refuse every write. Changes from the primary are always accepted.
fn check_room(kernel: &Kernel, is_of_primary: bool, change: impl FnOnce(&mut CodeSet)) -> Done {
    let limit_bytes = kernel.keyspace.eviction().limit_bytes;
    if limit_bytes == 0 || is_of_primary {
        return Ok(());
    }
    let present = kernel.keyspace.code().all();
    let mut changed = CodeSet::clone(&present);
    change(&mut changed);
    let bytes = changed.total_bytes();
    match bytes > present.total_bytes() && bytes as u64 > limit_bytes / 2 {
        true => Err(CommandError::OUT_OF_MEMORY),
        false => Ok(()),
    }
}
