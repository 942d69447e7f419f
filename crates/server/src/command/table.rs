//! From a command's name to the command.

use super::Spec;

/// A small number that identifies a command or subcommand within one [`Table`]; counters are
/// arrays indexed by it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub struct CommandId(pub u16);

/// A command or subcommand in the table.
pub struct Command {
    /// Its facts.
    pub spec: &'static Spec,
    /// Its identity.
    pub id: CommandId,
    /// `get`, or `client|list` for a subcommand.
    pub full_name: String,
    /// Its subcommands.
    pub subcommands: Vec<Command>,
}

impl Command {
    /// The subcommand called `name` in any case.
    #[must_use]
    pub fn subcommand(&self, name: &[u8]) -> Option<&Self> {
        self.subcommands.iter().find(|sub| sub.spec.name.as_bytes().eq_ignore_ascii_case(name))
    }
}

/// All commands, found by name in any case.
///
/// The lookup is open addressing over a power of two at least four times the number of commands,
/// keyed by the first eight bytes of the name folded to lower case and its length: one multiply
/// and, nearly always, one comparison.
pub struct Table {
    commands: Vec<Command>,
    slots: Box<[Slot]>,
    ids: u16,
}

/// `prefix` alone decides for names of up to eight bytes.
#[derive(Clone, Copy, Default)]
struct Slot {
    prefix: u64,
    len: u8,
    /// Index into `commands` plus one; zero is an empty slot.
    command: u16,
}

impl Table {
    /// Builds the table; `specs` in the order in which commands shall be listed.
    ///
    /// # Panics
    /// When two commands have the same name, which is a bug that a test finds.
    #[must_use]
    pub fn new(specs: impl IntoIterator<Item = &'static Spec>) -> Self {
        let mut ids = 0;
        let mut next_id = || {
            ids += 1;
            CommandId(ids - 1)
        };
        let commands: Vec<_> = specs
            .into_iter()
            .map(|spec| Command {
                spec,
                id: next_id(),
                full_name: spec.name.to_owned(),
                subcommands: spec
                    .subcommands
                    .iter()
                    .map(|sub| Command {
                        spec: sub,
                        id: next_id(),
                        full_name: format!("{}|{}", spec.name, sub.name),
                        subcommands: Vec::new(),
                    })
                    .collect(),
            })
            .collect();
        let mut table = Self {
            slots: vec![Slot::default(); (commands.len() * 4).next_power_of_two()].into(),
            commands,
            ids,
        };
        for index in 0..table.commands.len() {
            table.enter(index);
        }
        table
    }

    fn enter(&mut self, index: usize) {
        let name = self.commands[index].spec.name.as_bytes();
        assert!(self.find(name).is_none(), "two commands named {name:?}");
        let prefix = folded_prefix(name);
        let mut at = self.home(prefix, name.len());
        while self.slots[at].command != 0 {
            at = (at + 1) & (self.slots.len() - 1);
        }
        self.slots[at] = Slot { prefix, len: name.len() as u8, command: index as u16 + 1 };
    }

    /// The command called `name` in any case.
    #[must_use]
    #[inline]
    pub fn find(&self, name: &[u8]) -> Option<&Command> {
        let prefix = folded_prefix(name);
        let mut at = self.home(prefix, name.len());
        loop {
            let slot = self.slots[at];
            if slot.command == 0 {
                return None;
            }
            if slot.prefix == prefix && usize::from(slot.len) == name.len() {
                let command = &self.commands[usize::from(slot.command) - 1];
                if command.spec.name.as_bytes().eq_ignore_ascii_case(name) {
                    return Some(command);
                }
            }
            at = (at + 1) & (self.slots.len() - 1);
        }
    }

    #[inline]
    fn home(&self, prefix: u64, len: usize) -> usize {
        // The multiplier is 2^64 divided by the golden ratio (Fibonacci hashing, Knuth volume 3).
        let mixed = (prefix ^ len as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        (mixed >> 40) as usize & (self.slots.len() - 1)
    }

    /// All commands in the order given.
    #[must_use]
    pub fn commands(&self) -> &[Command] {
        &self.commands
    }

    /// Commands and subcommands in the order of their identities.
    pub fn all(&self) -> impl Iterator<Item = &Command> {
        self.commands
            .iter()
            .flat_map(|command| std::iter::once(command).chain(&command.subcommands))
    }

    /// How many identities there are.
    #[must_use]
    pub fn id_count(&self) -> usize {
        self.ids.into()
    }
}

/// The first eight bytes with bit 5 set, which folds letters to lower case.
///
/// Other bytes may collide by it, so a match is always confirmed.
#[inline]
fn folded_prefix(name: &[u8]) -> u64 {
    const LOWER: u64 = 0x2020_2020_2020_2020;
    if let Some(first) = name.first_chunk::<8>() {
        return u64::from_le_bytes(*first) | LOWER;
    }
    let mut bytes = 0;
    for (shift, byte) in name.iter().enumerate() {
        bytes |= u64::from(*byte) << (8 * shift);
    }
    bytes | LOWER
}

#[cfg(test)]
mod tests {
    use crate::commands;

    #[test]
    fn every_command_is_found_in_any_case_and_documented() {
        let table = commands::table();
        for command in table.commands() {
            let upper = command.spec.name.to_ascii_uppercase();
            assert!(std::ptr::eq(table.find(upper.as_bytes()).unwrap(), command));
            assert!(!command.spec.name.bytes().any(|byte| byte.is_ascii_uppercase()));
        }
        for command in table.all() {
            assert!(!command.spec.summary.is_empty(), "{} lacks a summary", command.full_name);
            assert!(command.spec.summary.ends_with('.'), "{}", command.full_name);
            assert_ne!(command.spec.arity, 0, "{}", command.full_name);
        }
    }

    #[test]
    fn identities_are_dense() {
        let table = commands::table();
        let ids: Vec<_> = table.all().map(|command| usize::from(command.id.0)).collect();
        assert_eq!(ids, (0..table.id_count()).collect::<Vec<_>>());
    }

    #[test]
    fn near_misses_are_not_found() {
        let table = commands::table();
        for name in ["", "ge", "gett", "g\x45T\0", "\x07et", "setrang", "setrangee"] {
            assert!(table.find(name.as_bytes()).is_none(), "{name:?}");
        }
    }
}
