//! Commands on keys of any type.

mod basic;
mod expire;
mod object;
mod rename;
mod scan;

use crate::command::Spec;

pub(super) const COMMANDS: &[&[Spec]] =
    &[basic::COMMANDS, expire::COMMANDS, object::COMMANDS, rename::COMMANDS, scan::COMMANDS];
