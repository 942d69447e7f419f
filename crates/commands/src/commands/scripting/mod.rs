//! Commands that run scripts, and those that manage them.

mod eval;
mod fcall;
mod functions;
mod named;
mod script;

use crate::command::Spec;

pub(super) const COMMANDS: &[&[Spec]] =
    &[eval::COMMANDS, named::COMMANDS, script::COMMANDS, fcall::COMMANDS, functions::COMMANDS];
