//! Commands that are added to a table while the server runs.
//!
//! Workers hold references to commands while they run them, and lookups of built-in commands must not become slower. So
//! an added command stays in memory as long as the table, in a slot that is written once. Adding and removing only
//! change the map from names to slots. Lookups use this map for names that the built-in table does not have. A call
//! that has found its command before the removal runs to its end.
//!
//! Counters are arrays indexed by command id, with some entries reserved for added commands. [`ADDED_MAX`] limits all
//! additions during the table's life. A `Spec` that is added again reuses its slot.

use std::collections::BTreeMap;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::RwLock;

use super::Table;
use super::table::{Command, CommandId, Described};

/// Maximum of commands and subcommands that can be added to one table. More are refused.
pub const ADDED_MAX: usize = 64;

/// Reason why a command is not added.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum AddError {
    /// There is a command with this name.
    #[error("there is a command with this name")]
    NameTaken,
    /// The name is empty, or has capital letters.
    #[error("a command's name is not empty and in lower case")]
    BadName,
    /// The table has no free slot.
    #[error("no more than {ADDED_MAX} commands can be added")]
    Full,
}

pub(super) struct Added {
    slots: Box<[OnceLock<Command>]>,
    names: RwLock<Names>,
    /// Number of added commands. While it is 0, lookups do not take the lock.
    len: AtomicUsize,
}

#[derive(Default)]
struct Names {
    slots: BTreeMap<&'static str, usize>,
    slots_used: usize,
    ids_used: usize,
}

impl Added {
    pub(super) fn new() -> Self {
        let slots = (0..ADDED_MAX).map(|_| OnceLock::new()).collect();
        Self { slots, names: RwLock::default(), len: AtomicUsize::new(0) }
    }

    #[cold]
    pub(super) fn find(&self, name: &[u8]) -> Option<&Command> {
        if self.len.load(Ordering::Acquire) == 0 {
            return None;
        }
        let name = name.to_ascii_lowercase();
        let slot = *self.names.read().slots.get(std::str::from_utf8(&name).ok()?)?;
        self.slots.get(slot)?.get()
    }

    pub(super) fn all(&self) -> Vec<&Command> {
        let names = self.names.read();
        names.slots.values().filter_map(|slot| self.slots.get(*slot)?.get()).collect()
    }
}

impl Table {
    /// Adds a command while workers run. From then on it is found, and counted under its name. Before that, `bind`
    /// gives a command in a new slot its body.
    ///
    /// # Errors
    /// If the name is taken or invalid, or the table is full.
    pub(crate) fn add(
        &self,
        described: Described,
        bind: impl FnOnce(&Command),
    ) -> Result<(), AddError> {
        let (spec, _) = described;
        if spec.name.is_empty() || spec.name.bytes().any(|byte| byte.is_ascii_uppercase()) {
            return Err(AddError::BadName);
        }
        let mut names = self.added.names.write();
        if self.find_built_in(spec.name.as_bytes()).is_some() || names.slots.contains_key(spec.name)
        {
            return Err(AddError::NameTaken);
        }
        let is_it = |slot: &OnceLock<Command>| {
            slot.get().is_some_and(|command| std::ptr::eq(command.spec, spec))
        };
        let slot = match self.added.slots.iter().position(is_it) {
            Some(slot) => slot,
            None => self.fill_slot(&mut names, described, bind)?,
        };
        names.slots.insert(spec.name, slot);
        self.added.len.store(names.slots.len(), Ordering::Release);
        Ok(())
    }

    fn fill_slot(
        &self,
        names: &mut Names,
        described: Described,
        bind: impl FnOnce(&Command),
    ) -> Result<usize, AddError> {
        let (slot, ids) = (names.slots_used, 1 + described.1.len());
        if names.ids_used + ids > ADDED_MAX {
            return Err(AddError::Full);
        }
        let mut next_id = self.built_in_ids() + names.ids_used;
        let mut ids_of = || {
            next_id += 1;
            CommandId(next_id as u16 - 1)
        };
        let command = Command { is_plain: false, ..Command::new(described, &mut ids_of, 0) };
        let room = self.added.slots.get(slot).ok_or(AddError::Full)?;
        bind(room.get_or_init(|| command));
        names.slots_used += 1;
        names.ids_used += ids;
        Ok(slot)
    }

    /// Removes an added command. Running calls end as usual. Returns false if there was none.
    pub fn remove(&self, name: &str) -> bool {
        let mut names = self.added.names.write();
        let removed = names.slots.remove(name).is_some();
        self.added.len.store(names.slots.len(), Ordering::Release);
        removed
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::{Flags, Group, Spec};
    use crate::commands;

    const fn spec(name: &'static str) -> Spec {
        Spec { flags: Flags::READONLY, ..Spec::new(name, Group::Generic, 1, 1) }
    }

    static OWN: Spec = spec("own.a-name-longer-than-any-that-is-packed");
    static GET: Spec = spec("get");
    static LOUD: Spec = spec("Loud");
    static NAMELESS: Spec = spec("");

    fn add(table: &Table, spec: &'static Spec) -> Result<(), AddError> {
        table.add((spec, Vec::new()), |_| {})
    }

    fn leaked(name: String) -> &'static Spec {
        Box::leak(Box::new(spec(name.leak())))
    }

    #[test]
    fn what_is_added_is_found_until_it_is_removed() {
        let table = commands::table();
        let before = table.all().count();
        assert!(table.find(OWN.name.as_bytes()).is_none());
        assert_eq!(add(&table, &OWN), Ok(()));
        let upper = OWN.name.to_ascii_uppercase();
        let command = table.find(upper.as_bytes()).expect("it was added");
        assert!(std::ptr::eq(command.spec, &OWN));
        assert!(usize::from(command.id.0) < table.id_count());
        assert!(table.all().all(|other| std::ptr::eq(other, command) || other.id != command.id));
        assert_eq!(
            (table.all().count(), table.listed().len()),
            (before + 1, table.commands().len() + 1)
        );
        assert_eq!(add(&table, &OWN), Err(AddError::NameTaken));
        assert!(table.remove(OWN.name) && !table.remove(OWN.name));
        assert!(table.find(OWN.name.as_bytes()).is_none() && table.all().count() == before);
        // A call that found the command earlier can still use it.
        assert_eq!(command.spec.name, OWN.name);
    }

    #[test]
    fn names_and_numbers_have_limits() {
        let table = commands::table();
        assert_eq!(add(&table, &GET), Err(AddError::NameTaken));
        assert_eq!(add(&table, &LOUD), Err(AddError::BadName));
        assert_eq!(add(&table, &NAMELESS), Err(AddError::BadName));
        assert!(!table.remove("get") && table.find(b"get").is_some());
        for number in 0..ADDED_MAX - 1 {
            assert_eq!(add(&table, leaked(format!("own.{number}"))), Ok(()));
        }
        // An equal command reuses its slot.
        for _ in 0..2 * ADDED_MAX {
            assert_eq!(add(&table, &OWN), Ok(()));
            assert!(table.remove(OWN.name));
        }
        assert_eq!(add(&table, leaked("own.more".to_owned())), Err(AddError::Full));
    }

    #[test]
    fn workers_look_commands_up_while_they_come_and_go() {
        let table = commands::table();
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    for _ in 0..20_000 {
                        if let Some(command) = table.find(OWN.name.as_bytes()) {
                            assert!(std::ptr::eq(command.spec, &OWN));
                        }
                        assert!(table.find(b"get").is_some());
                    }
                });
            }
            for _ in 0..5_000 {
                assert_eq!(add(&table, &OWN), Ok(()));
                assert!(table.remove(OWN.name));
            }
        });
        assert!(table.find(OWN.name.as_bytes()).is_none());
    }
}
