//! Commands on strings.

mod bounded;
mod compare;
mod counter;
mod get;
mod lcs;
mod modify;
mod multi;
mod set;

use crate::pipeline::Defined;

pub(super) const COMMANDS: &[&[Defined]] = &[
    get::COMMANDS,
    set::COMMANDS,
    compare::COMMANDS,
    modify::COMMANDS,
    counter::COMMANDS,
    bounded::COMMANDS,
    multi::COMMANDS,
    lcs::COMMANDS,
];
