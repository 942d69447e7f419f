//! The commands, by chapter; each file holds the facts and the code of one command or family.

mod bitmaps;
mod connection;
mod geo;
mod hashes;
mod hyperloglog;
mod keys;
mod lists;
mod many_pop;
mod options;
mod server;
mod sets;
mod sort;
mod sorted_sets;
mod streams;
mod strings;
mod sweep;

use crate::command::{Spec, Table};

pub(crate) use self::server::monitor_line;

/// All commands, in the order in which they are listed.
#[must_use]
pub fn table() -> Table {
    let chapters: [&[&'static [Spec]]; 13] = [
        connection::COMMANDS,
        keys::COMMANDS,
        strings::COMMANDS,
        lists::COMMANDS,
        hashes::COMMANDS,
        sets::COMMANDS,
        sorted_sets::COMMANDS,
        sort::COMMANDS,
        geo::COMMANDS,
        streams::COMMANDS,
        bitmaps::COMMANDS,
        hyperloglog::COMMANDS,
        server::COMMANDS,
    ];
    Table::new(chapters.into_iter().flatten().copied().flatten())
}
