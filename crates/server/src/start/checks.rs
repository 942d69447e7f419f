//! The checks of a start before it touches anything.

use crate::acl::{self, ChannelDefault, Terms, Users};
use crate::command::Table;
use crate::config::{Settings, Startup};
use crate::persistence::OwnFiles;

use super::error::StartError;

/// Checks that no two directives name one file, or one of the server's data files.
pub(super) fn check_own_files(settings: &Settings) -> Result<(), StartError> {
    let own = OwnFiles::of(settings, &settings.dir()).with_snapshot(settings);
    own.conflict().map_or(Ok(()), |conflict| Err(StartError::Files(conflict)))
}

/// Returns the commands under their configured names, if these and the configured users are valid.
///
/// # Errors
/// If a line that renames a command or defines a user is wrong.
pub fn check_access(settings: &Settings) -> Result<Table, StartError> {
    users_of(settings).map(|(table, _)| table)
}

/// Returns true if clients need no password: the default user is on and has none.
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
