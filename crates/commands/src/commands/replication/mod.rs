//! Commands about replicas and their primary.

mod replicaof;

use crate::command::Spec;

pub(super) const COMMANDS: &[&[Spec]] = &[replicaof::COMMANDS];
