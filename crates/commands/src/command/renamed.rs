//! Commands with other names for clients: `rename-command`.
//!
//! Only the names that clients send are translated. Everything else uses the name of a command in its
//! [`Spec`](super::Spec): rules of users, statistics, logs.

use std::collections::BTreeMap;

use tierce_engine::random;

use super::table::{Command, Table};

const AUTH: &str = "auth";

/// Reason why a command is not renamed.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum RenameError {
    /// It does not exist, or was renamed or disabled before.
    #[error("there is no command '{0}'")]
    NoSuchCommand(String),
    /// Another command has this name.
    #[error("there is a command '{0}'")]
    NameTaken(String),
}

/// Indexes of renamed commands in the table, by their new names in lower case.
pub(super) type Names = BTreeMap<Vec<u8>, u16>;

impl Table {
    /// Renames a command. With an empty name it cannot be found any more.
    ///
    /// # Errors
    /// If there is no such command, or one with the new name.
    pub fn rename(&mut self, command: &[u8], name: &[u8]) -> Result<(), RenameError> {
        let text = |name: &[u8]| String::from_utf8_lossy(name).into_owned();
        let index =
            self.find(command).ok_or_else(|| RenameError::NoSuchCommand(text(command)))?.index;
        if !name.is_empty() && !name.eq_ignore_ascii_case(command) && self.find(name).is_some() {
            return Err(RenameError::NameTaken(text(name)));
        }
        self.renamed.retain(|_, there| *there != index);
        self.forget_name(index);
        if !name.is_empty() {
            self.renamed.insert(name.to_ascii_lowercase(), index);
        }
        if self.commands()[usize::from(index)].spec.name == AUTH {
            let secret = format!("{AUTH} {:016x}{:016x}", random::word(), random::word());
            self.renamed.insert(secret.clone().into(), index);
            self.secret_auth = Some(secret);
        }
        Ok(())
    }

    /// Returns the name of AUTH for connections that the server makes to itself for clients of another protocol. If
    /// AUTH was renamed or disabled, this is a secret name.
    pub fn name_of_auth(&self) -> &[u8] {
        self.secret_auth.as_deref().unwrap_or(AUTH).as_bytes()
    }

    /// Returns the command that was renamed to this name.
    #[cold]
    pub(super) fn find_renamed(&self, name: &[u8]) -> Option<&Command> {
        if self.renamed.is_empty() {
            return None;
        }
        let index = *self.renamed.get(name.to_ascii_lowercase().as_slice())?;
        self.commands().get(usize::from(index))
    }

    /// Returns the command with this name in its [`Spec`](super::Spec), even if it was renamed; in any case.
    pub fn find_original(&self, name: &[u8]) -> Option<&Command> {
        let is_it = |command: &Command| command.spec.name.as_bytes().eq_ignore_ascii_case(name);
        match self.find(name).filter(|command| is_it(command)) {
            Some(command) => Some(command),
            None => self.commands().iter().find(|command| is_it(command)),
        }
    }

    /// Returns the command or subcommand with the original name `get` or `client|list`, in any case.
    pub fn find_original_full(&self, name: &[u8]) -> Option<&Command> {
        let mut words = name.splitn(2, |byte| *byte == b'|');
        let command = self.find_original(words.next()?)?;
        match words.next() {
            Some(sub) => command.subcommand(sub),
            None => Some(command),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::RenameError;
    use crate::commands;

    #[test]
    fn the_server_can_always_say_auth() {
        let mut table = commands::table();
        assert_eq!(table.name_of_auth(), b"auth");
        for (name, other) in [("AUTH", "login"), ("GET", "auth"), ("login", "")] {
            assert_eq!(table.rename(name.as_bytes(), other.as_bytes()), Ok(()));
            let said = table.find(table.name_of_auth()).map(|command| command.spec.name);
            assert_eq!(said, Some("auth"), "{name} is {other:?}");
        }
        assert!(table.find(b"login").is_none());
        assert_eq!(table.find(b"auth").map(|command| command.spec.name), Some("get"));
    }

    #[test]
    fn names_change_for_clients_only() {
        let mut table = commands::table();
        let name_of = |table: &super::Table, name: &str| {
            table.find(name.as_bytes()).map(|command| command.full_name.clone())
        };
        let long = "a-name-that-is-longer-than-any-that-is-packed";
        for (command, name) in
            [("FLUSHALL", ""), ("config", long), ("GET", "fetch"), ("SET", "get"), ("fetch", "f")]
        {
            assert_eq!(table.rename(command.as_bytes(), name.as_bytes()), Ok(()), "{command}");
        }
        for (name, original) in [
            ("flushall", None),
            ("config", None),
            (&*long.to_uppercase(), Some("config")),
            ("GET", Some("set")),
            ("set", None),
            ("fetch", None),
            ("F", Some("get")),
            ("mget", Some("mget")),
        ] {
            assert_eq!(name_of(&table, name).as_deref(), original, "{name}");
        }
        for name in ["flushall", "config", "get", "set", "mget"] {
            assert_eq!(table.find_original(name.as_bytes()).map(|c| &*c.full_name), Some(name));
        }
        let full = table.find_original_full(b"config|set").map(|command| &*command.full_name);
        assert_eq!(full, Some("config|set"));
        let error = RenameError::NoSuchCommand("FLUSHALL".to_owned());
        assert_eq!(table.rename(b"FLUSHALL", b"x"), Err(error));
        assert_eq!(table.rename(b"mget", b"F"), Err(RenameError::NameTaken("F".to_owned())));
    }

    #[test]
    fn other_names_are_found_after_any_number_of_them() {
        let mut table = commands::table();
        let names: Vec<_> = table.commands().iter().map(|command| command.spec.name).collect();
        for (number, name) in names.iter().enumerate() {
            let other = format!("other-{number}");
            assert_eq!(table.rename(name.as_bytes(), other.as_bytes()), Ok(()));
            assert!(table.find(name.as_bytes()).is_none());
            let found = table.find(other.as_bytes()).map(|command| command.spec.name);
            assert_eq!(found, Some(*name));
            let later = names[number + 1..].iter();
            assert!(later.clone().all(|name| table.find(name.as_bytes()).is_some()));
        }
    }
}
