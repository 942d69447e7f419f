//! From a command's name to the command.

use super::{Flags, Handler, Spec};
use crate::execute;

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
    /// Locks what its scope says and runs it.
    pub enter: Handler,
    /// Takes so little time that it is timed together with its neighbours.
    pub is_brief: bool,
    /// Neither has subcommands nor is one, so that its first word alone names it.
    pub is_plain: bool,
    /// Does nothing but work on keys, at once and briefly: whatever is decided for a whole batch (rights,
    /// pauses, limits, who watches) is the same after it.
    pub is_data_only: bool,
    /// Which argument is likely to be the first key; 0 if there are no keys.
    pub first_key: usize,
    /// Its place in [`Table::commands`]; a subcommand has that of its container.
    pub index: u16,
}

impl Command {
    /// The subcommand called `name` in any case.
    #[must_use]
    pub fn subcommand(&self, name: &[u8]) -> Option<&Self> {
        self.subcommands.iter().find(|sub| sub.spec.name.as_bytes().eq_ignore_ascii_case(name))
    }
}

fn is_brief(spec: &Spec) -> bool {
    spec.flags.intersects(Flags::FAST.with(Flags::BRIEF))
}

fn is_data_only(spec: &Spec) -> bool {
    let reaches_further =
        Flags::BLOCKING.with(Flags::ADMIN).with(Flags::NOSCRIPT).with(Flags::NO_AUTH);
    is_brief(spec) && !spec.keys.is_empty() && !spec.flags.intersects(reaches_further)
}

fn first_key(spec: &Spec) -> usize {
    spec.keys.first().map_or(0, |keys| keys.first_guess())
}

/// All commands, found by name in any case.
///
/// Open addressing over a power of two at least four times the number of commands. A slot holds
/// the name itself, folded to lower case and packed into words, so that a lookup is a few
/// shifts, one multiplication and, nearly always, one comparison.
pub struct Table {
    commands: Vec<Command>,
    slots: Box<[Slot]>,
    ids: u16,
}

#[derive(Clone, Copy, Default)]
struct Slot {
    name: PackedName,
    /// Index into `commands` plus one; zero is an empty slot.
    command: u16,
}

/// A name of up to [`PackedName::LEN_MAX`] bytes in lower case, padded with zeros. The length tells
/// padding from zeros that a client sent.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
struct PackedName {
    words: [u64; 3],
    len: usize,
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
            .zip(0..)
            .map(|(spec, index)| Command {
                spec,
                id: next_id(),
                full_name: spec.name.to_owned(),
                enter: execute::entry(spec),
                is_brief: is_brief(spec),
                is_plain: spec.subcommands.is_empty(),
                is_data_only: is_data_only(spec) && spec.subcommands.is_empty(),
                first_key: first_key(spec),
                index,
                subcommands: spec
                    .subcommands
                    .iter()
                    .map(|sub| Command {
                        spec: sub,
                        id: next_id(),
                        full_name: format!("{}|{}", spec.name, sub.name),
                        subcommands: Vec::new(),
                        enter: execute::entry(sub),
                        is_brief: is_brief(sub),
                        is_plain: false,
                        is_data_only: false,
                        first_key: first_key(sub),
                        index,
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
        let name = self.commands[index].spec.name;
        let packed = PackedName::of(name.as_bytes()).expect("a name that can be packed");
        assert!(self.find(name.as_bytes()).is_none(), "two commands named {name}");
        let mut at = self.home(packed);
        while self.slots[at].command != 0 {
            at = (at + 1) & (self.slots.len() - 1);
        }
        self.slots[at] = Slot { name: packed, command: index as u16 + 1 };
    }

    /// The command called `name` in any case.
    #[must_use]
    #[inline]
    pub fn find(&self, name: &[u8]) -> Option<&Command> {
        let name = PackedName::of(name)?;
        let mut at = self.home(name);
        loop {
            let slot = &self.slots[at];
            if slot.name == name {
                return self.commands.get(usize::from(slot.command).wrapping_sub(1));
            }
            if slot.command == 0 {
                return None;
            }
            at = (at + 1) & (self.slots.len() - 1);
        }
    }

    #[inline]
    fn home(&self, name: PackedName) -> usize {
        // The multiplier is 2^64 divided by the golden ratio (Fibonacci hashing, Knuth volume 3).
        let mixed =
            (name.words[0] ^ name.words[1].rotate_left(32)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
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

impl PackedName {
    const LEN_MAX: usize = 24;

    /// `name` packed, or `None` if it is too long for any command, or empty.
    #[inline]
    fn of(name: &[u8]) -> Option<Self> {
        let len = name.len();
        let mut words = [0; 3];
        match len {
            1..=8 => words[0] = to_lower(load_padded(name)),
            9..=Self::LEN_MAX => {
                for (word, bytes) in words.iter_mut().zip(name.chunks(8)) {
                    *word = to_lower(load_padded(bytes));
                }
            }
            _ => return None,
        }
        Some(Self { words, len })
    }
}

/// Up to eight bytes as a word, the missing ones zero.
///
/// Two loads that may overlap instead of a loop: their common bytes agree, so they can be joined
/// by `|`.
#[inline]
fn load_padded(bytes: &[u8]) -> u64 {
    let len = bytes.len();
    if len >= 4 {
        let (Some(first), Some(last)) = (bytes.first_chunk::<4>(), bytes.last_chunk::<4>()) else {
            return 0;
        };
        let last = u64::from(u32::from_le_bytes(*last));
        u64::from(u32::from_le_bytes(*first)) | last << (8 * (len - 4))
    } else {
        // One to three bytes: the first, the middle and the last cover them all.
        let byte = |at: usize| u64::from(bytes[at]) << (8 * at);
        byte(0) | byte(len / 2) | byte(len - 1)
    }
}

/// Sets bit 5 of the bytes from `A` to `Z`, all eight at once, and leaves all others alone.
#[inline]
fn to_lower(word: u64) -> u64 {
    const ONES: u64 = 0x0101_0101_0101_0101;
    const HIGH: u64 = 0x80 * ONES;
    // Without their high bits no addition below carries into the next byte.
    let low_bits = word & !HIGH;
    let from_a = low_bits + (0x80 - b'A' as u64) * ONES;
    let beyond_z = low_bits + (0x7f - b'Z' as u64) * ONES;
    let is_upper = from_a & !beyond_z & !word & HIGH;
    word | is_upper >> 2
}

#[cfg(test)]
mod tests {
    use super::PackedName;
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
        for name in ["", "ge", "gett", "get\0", "\x07et", "setrang", "setrangee", "setrange\0get"] {
            assert!(table.find(name.as_bytes()).is_none(), "{name:?}");
        }
        assert!(table.find(&[b'x'; 1000]).is_none());
    }

    #[test]
    fn packing_folds_letters_and_nothing_else() {
        for byte in 0..=u8::MAX {
            for len in 1..=PackedName::LEN_MAX {
                let name = vec![byte; len];
                let packed = PackedName::of(&name).unwrap();
                let mut bytes = [0; PackedName::LEN_MAX];
                bytes[..len].copy_from_slice(&name.to_ascii_lowercase());
                let words = packed.words.map(u64::to_le_bytes);
                assert_eq!(words.as_flattened(), bytes);
            }
        }
    }
}
