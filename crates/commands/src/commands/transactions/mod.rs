//! Commands about transactions.

mod exec;
mod watch;

use crate::pipeline::Defined;

pub(super) const COMMANDS: &[&[Defined]] = &[exec::COMMANDS, watch::COMMANDS];
