//! The commands, by chapter; each file holds the facts and the code of one command or family.

mod connection;
mod keys;
mod options;
mod server;
mod strings;

use crate::command::{Spec, Table};

pub(crate) use self::server::monitor_line;

/// All commands, in the order in which they are listed.
#[must_use]
pub fn table() -> Table {
    let chapters: [&[&'static [Spec]]; 4] =
        [connection::COMMANDS, keys::COMMANDS, strings::COMMANDS, server::COMMANDS];
    Table::new(chapters.into_iter().flatten().copied().flatten())
}
