//! The commands, one folder for each group. Each file holds the facts and the code of one command
//! or family.

mod bitmaps;
mod connection;
mod cursor;
mod distinct;
mod geo;
mod hashes;
mod help;
mod hyperloglog;
mod keys;
mod lists;
mod many_pop;
mod nonblocking;
mod options;
mod pubsub;
mod replication;
mod scripting;
pub(crate) mod server;
mod sets;
mod sort;
mod sorted_sets;
mod store;
mod streams;
mod strings;
mod sweep;
mod transactions;

use crate::command::Table;
use crate::config::Settings;
use crate::pipeline::Defined;

/// Returns the table of all commands, in their listing order.
pub fn table() -> Table {
    let groups: [&[&'static [Defined]]; 18] = [
        connection::COMMANDS,
        pubsub::COMMANDS,
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
        nonblocking::COMMANDS,
        hyperloglog::COMMANDS,
        transactions::COMMANDS,
        scripting::COMMANDS,
        server::COMMANDS,
        replication::COMMANDS,
    ];
    Defined::table(groups.into_iter().flatten().copied().flatten())
}

/// Returns the table with the commands renamed by a configuration.
///
/// # Errors
/// Fails if a line is invalid. The message contains its position.
pub fn table_for(settings: &Settings) -> Result<Table, String> {
    let mut table = table();
    for renamed in settings.renamed_commands() {
        table
            .rename(&renamed.command, &renamed.name)
            .map_err(|error| format!("{}: {error}", renamed.place))?;
    }
    Ok(table)
}
