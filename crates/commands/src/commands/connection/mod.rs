//! Commands about the connection itself.

mod auth;
mod basic;
mod client;
mod tracking;

use crate::command::Spec;

pub(super) const COMMANDS: &[&[Spec]] = &[basic::COMMANDS, auth::COMMANDS, client::COMMANDS];
