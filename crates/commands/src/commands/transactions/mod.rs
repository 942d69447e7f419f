//! Commands about transactions.

mod exec;
mod watch;

use crate::execute::Defined;

pub(super) const COMMANDS: &[&[Defined]] = &[exec::COMMANDS, watch::COMMANDS];
