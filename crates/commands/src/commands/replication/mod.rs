//! Commands between a primary and its replicas.

mod psync;
mod replconf;

use crate::command::Spec;

pub(super) const COMMANDS: &[&[Spec]] = &[psync::COMMANDS, replconf::COMMANDS];
