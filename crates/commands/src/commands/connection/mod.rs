//! Commands about the connection itself.

mod auth;
mod basic;
mod client;
mod tracking;

use crate::pipeline::Defined;

pub(super) const COMMANDS: &[&[Defined]] = &[basic::COMMANDS, auth::COMMANDS, client::COMMANDS];
