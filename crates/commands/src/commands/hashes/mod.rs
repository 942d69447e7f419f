//! Commands on hashes.

mod counter;
mod deadline;
mod get;
mod random;
mod scan;
mod set;

use crate::command::Spec;

pub(super) const COMMANDS: &[&[Spec]] = &[
    get::COMMANDS,
    set::COMMANDS,
    counter::COMMANDS,
    random::COMMANDS,
    scan::COMMANDS,
    deadline::COMMANDS,
];
