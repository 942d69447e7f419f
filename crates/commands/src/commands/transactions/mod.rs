//! Commands about transactions.

mod exec;
mod watch;

use crate::command::Spec;

pub(super) const COMMANDS: &[&[Spec]] = &[exec::COMMANDS, watch::COMMANDS];
