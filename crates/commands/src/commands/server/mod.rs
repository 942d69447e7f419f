//! Commands about the server as a whole.

mod acl;
mod admin;
mod cluster;
mod command;
mod command_log;
mod config;
mod debug;
mod doctor;
mod durability;
mod hotkeys;
pub(crate) mod info;
mod latency;
mod memory;
mod module;
mod monitor;
mod persistence;

use crate::pipeline::Defined;

pub(super) const COMMANDS: &[&[Defined]] = &[
    acl::COMMANDS,
    admin::COMMANDS,
    cluster::COMMANDS,
    command::COMMANDS,
    config::COMMANDS,
    debug::COMMANDS,
    durability::COMMANDS,
    hotkeys::COMMANDS,
    info::COMMANDS,
    latency::COMMANDS,
    memory::COMMANDS,
    module::COMMANDS,
    monitor::COMMANDS,
    persistence::COMMANDS,
    command_log::COMMANDS,
];
