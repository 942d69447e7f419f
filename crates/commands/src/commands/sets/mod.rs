//! Commands on sets.

mod algebra;
mod change;
mod deadline;
mod random;
mod read;

use crate::pipeline::Defined;

pub(super) const COMMANDS: &[&[Defined]] =
    &[change::COMMANDS, read::COMMANDS, random::COMMANDS, algebra::COMMANDS, deadline::COMMANDS];
