//! Commands on strings.

mod counter;
mod get;
mod lcs;
mod modify;
mod multi;
mod set;

use crate::command::Spec;

pub(super) const COMMANDS: &[&[Spec]] = &[
    get::COMMANDS,
    set::COMMANDS,
    modify::COMMANDS,
    counter::COMMANDS,
    multi::COMMANDS,
    lcs::COMMANDS,
];
