//! Commands on keys of any type.

mod basic;
mod dump;
mod expire;
mod object;
mod rename;
mod scan;

use crate::command::Spec;

pub(super) const COMMANDS: &[&[Spec]] = &[
    basic::COMMANDS,
    dump::COMMANDS,
    expire::COMMANDS,
    object::COMMANDS,
    rename::COMMANDS,
    scan::COMMANDS,
];
