//! Commands about the connection itself.

mod auth;
mod basic;
mod client;
mod tracking;

use crate::execute::Defined;

pub(super) const COMMANDS: &[&[Defined]] = &[basic::COMMANDS, auth::COMMANDS, client::COMMANDS];
