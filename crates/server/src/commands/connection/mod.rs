//! Commands about the connection itself.

mod auth;
mod basic;
mod client;

use crate::command::Spec;

pub(super) const COMMANDS: &[&[Spec]] = &[basic::COMMANDS, auth::COMMANDS, client::COMMANDS];
