//! Commands on sets.

mod algebra;
mod change;
mod random;
mod read;

use crate::command::Spec;

pub(super) const COMMANDS: &[&[Spec]] =
    &[change::COMMANDS, read::COMMANDS, random::COMMANDS, algebra::COMMANDS];
