//! Commands between a primary and its replicas.

mod failover;
mod psync;
mod replconf;
mod replicaof;
mod wait;

use crate::pipeline::Defined;

pub(super) const COMMANDS: &[&[Defined]] =
    &[failover::COMMANDS, psync::COMMANDS, replconf::COMMANDS, replicaof::COMMANDS, wait::COMMANDS];
