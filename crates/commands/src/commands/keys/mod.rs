//! Commands on keys of any type.

mod basic;
mod dump;
mod expire;
mod migrate;
mod object;
mod rename;
mod scan;

use crate::pipeline::Defined;

pub(super) const COMMANDS: &[&[Defined]] = &[
    basic::COMMANDS,
    dump::COMMANDS,
    expire::COMMANDS,
    migrate::COMMANDS,
    object::COMMANDS,
    rename::COMMANDS,
    scan::COMMANDS,
];
