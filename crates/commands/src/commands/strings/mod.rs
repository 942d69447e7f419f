//! Commands on strings.

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
    modify::COMMANDS,
    counter::COMMANDS,
    multi::COMMANDS,
    lcs::COMMANDS,
];
