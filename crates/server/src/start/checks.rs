//! What a start refuses before it touches anything.

use crate::acl::{self, ChannelDefault, Terms, Users};
use crate::command::Table;
use crate::config::{Settings, Startup};
use crate::persistence::OwnFiles;

use super::error::StartError;

/// No two directives may name one file, or one that is a place of the server's data.
pub(super) fn check_own_files(settings: &Settings) -> Result<(), StartError> {
    let own = OwnFiles::of(settings, &settings.dir()).with_snapshot(settings);
    own.conflict().map_or(Ok(()), |conflict| Err(StartError::Files(conflict)))
}

/// The commands by the names that the configuration gives them, if these and its users make sense.
///
/// # Errors
/// If a line that renames a command or makes a user is wrong.
pub fn check_access(settings: &Settings) -> Result<Table, StartError> {
    users_of(settings).map(|(table, _)| table)
}

/// Whether clients need no password: the default user is on and has none.
///
/// # Errors
/// As for [`check_access`].
pub fn is_open(settings: &Settings) -> Result<bool, StartError> {
    let (_, users) = users_of(settings)?;
    Ok(users.is_open() && settings.password().is_none())
}

fn users_of(settings: &Settings) -> Result<(Table, Users), StartError> {
    let table = crate::command_table_for(settings).map_err(StartError::Commands)?;
    let terms = Terms { table: &table, channels: ChannelDefault::None };
    let users = Users::new(terms);
    acl::load_configured(settings, &users, terms)?;
    Ok((table, users))
}

pub(super) fn check_databases(startup: &Startup) -> Result<(), StartError> {
    let there = startup.databases;
    for (directive, wanted) in [
        ("memcached-database", startup.memcached_database),
        ("pedrokv-database", startup.pedrokv_database),
    ] {
        if wanted >= there {
            return Err(StartError::NoSuchDatabase { directive, wanted, there });
        }
    }
    Ok(())
}
