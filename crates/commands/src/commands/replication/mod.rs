//! Commands between a primary and its replicas.

mod failover;
mod psync;
mod replconf;
mod replicaof;
mod wait;

use crate::command::Spec;

pub(super) const COMMANDS: &[&[Spec]] =
    &[failover::COMMANDS, psync::COMMANDS, replconf::COMMANDS, replicaof::COMMANDS, wait::COMMANDS];
