//! Commands between a primary and its replicas.

mod psync;
mod replconf;
mod replicaof;
mod wait;

use crate::command::Spec;

pub(super) const COMMANDS: &[&[Spec]] =
    &[psync::COMMANDS, replconf::COMMANDS, replicaof::COMMANDS, wait::COMMANDS];
