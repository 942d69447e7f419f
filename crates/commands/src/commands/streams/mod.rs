//! Streams: entries that are only added at the end, and groups of consumers that share them.

mod add;
mod claim;
mod common;
mod delete;
mod group;
mod id;
mod info;
mod messages;
mod nack;
mod pending;
mod range;
mod read;
mod read_group;
mod reply;
mod room;

use crate::pipeline::Defined;

pub(super) static COMMANDS: &[&[Defined]] = &[
    add::COMMANDS,
    range::COMMANDS,
    delete::COMMANDS,
    read::COMMANDS,
    group::COMMANDS,
    pending::COMMANDS,
    claim::COMMANDS,
    nack::COMMANDS,
    info::COMMANDS,
    messages::COMMANDS,
];
