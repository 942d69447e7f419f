//! Commands on lists.

mod blocking;
mod edit;
mod lmove;
mod move_many;
mod pop;
mod push;
mod read;
mod side;

use crate::pipeline::Defined;

pub(super) const COMMANDS: &[&[Defined]] = &[
    push::COMMANDS,
    pop::COMMANDS,
    read::COMMANDS,
    edit::COMMANDS,
    lmove::COMMANDS,
    blocking::COMMANDS,
    move_many::COMMANDS,
];
