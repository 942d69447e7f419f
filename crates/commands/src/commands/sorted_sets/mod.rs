//! Commands on sorted sets.

/// ZADD, which is also the base of GEOADD.
pub(super) mod add;
mod blocking;
mod bounds;
mod combine;
mod pop;
mod random;
mod range;
mod read;
mod remove;
mod scan;

/// Replies with members and scores, also used by geospatial commands.
pub(super) mod scored;

use crate::pipeline::Defined;

pub(super) static COMMANDS: &[&[Defined]] = &[
    add::COMMANDS,
    read::COMMANDS,
    range::COMMANDS,
    remove::COMMANDS,
    pop::COMMANDS,
    blocking::COMMANDS,
    combine::COMMANDS,
    random::COMMANDS,
    scan::COMMANDS,
];
