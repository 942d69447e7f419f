//! Commands on hashes.

pub(super) mod combined;
mod counter;
pub(super) mod deadline;
mod get;
mod import;
mod random;
mod scan;
mod set;

use crate::pipeline::Defined;

pub(super) const COMMANDS: &[&[Defined]] = &[
    get::COMMANDS,
    set::COMMANDS,
    counter::COMMANDS,
    random::COMMANDS,
    scan::COMMANDS,
    deadline::COMMANDS,
    combined::COMMANDS,
    import::COMMANDS,
];
