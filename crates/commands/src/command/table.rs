//! Finds commands by name.

use std::any::Any;
use std::collections::BTreeSet;

use super::added::{ADDED_MAX, Added};
use super::renamed::Names;
use super::{Flags, Scope, Spec};

/// A small number that identifies a command or subcommand within one [`Table`]; counters are
/// arrays indexed by it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub struct CommandId(pub u16);

/// The facts about a command and its subcommands.
pub(crate) type Described = (&'static Spec, Vec<&'static Spec>);

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
    /// True if it is so short that it is timed together with its neighbours.
    pub is_brief: bool,
    /// True if it works briefly on one element for all arguments, and causes nothing else that takes long.
    pub is_one_element: bool,
    /// True if it neither has subcommands nor is one, so that its first word alone names it.
    pub is_plain: bool,
    /// True if it works on keys, or does next to nothing. It then changes no decision that is made once for a whole
    /// batch: rights, pauses, limits, monitors.
    pub is_data_only: bool,
    /// Likely index of the first key; 0 without keys.
    pub first_key: usize,
    /// True if it needs the shard of that key and no other. This shard is locked before it runs.
    pub has_one_key: bool,
    /// Its index in [`Table::commands`]; a subcommand has the index of its container.
    pub index: u16,
}

impl Command {
    /// Creates a command with its subcommands; `next_id` returns their identities.
    pub(super) fn new(
        (spec, subcommands): Described,
        next_id: &mut impl FnMut() -> CommandId,
        index: u16,
    ) -> Self {
        assert_eq!(spec.words, 1, "{} is called by one word", spec.name);
        let id = next_id();
        let sub = |sub: &'static Spec| {
            assert_eq!(sub.words, 2, "{}|{} is called by two words", spec.name, sub.name);
            let full_name = format!("{}|{}", spec.name, sub.name);
            Self::of(sub, next_id(), full_name, Vec::new(), index)
        };
        let subcommands: Vec<_> = subcommands.into_iter().map(sub).collect();
        let is_plain = subcommands.is_empty();
        Self {
            is_plain,
            is_data_only: is_data_only(spec) && is_plain,
            ..Self::of(spec, id, spec.name.to_owned(), subcommands, index)
        }
    }

    fn of(
        spec: &'static Spec,
        id: CommandId,
        full_name: String,
        subcommands: Vec<Self>,
        index: u16,
    ) -> Self {
        Self {
            spec,
            id,
            full_name,
            subcommands,
            is_brief: is_brief(spec),
            is_one_element: is_one_element(spec),
            is_plain: false,
            is_data_only: false,
            first_key: first_key(spec),
            has_one_key: has_one_key(spec),
            index,
        }
    }

    /// Returns true if it is queued for EXEC inside of a transaction.
    pub fn is_queued(&self) -> bool {
        !self.spec.flags.contains(Flags::NOT_QUEUED)
    }

    /// Returns true if it is EXEC.
    pub fn is_exec(&self) -> bool {
        self.spec.name == "exec"
    }

    /// Returns true if it is a part of a container.
    pub fn is_subcommand(&self) -> bool {
        self.spec.words > 1
    }

    /// Returns true if unauthenticated clients may use it, so that no user is denied it.
    pub fn may_precede_auth(&self) -> bool {
        self.spec.flags.contains(Flags::NO_AUTH)
    }

    /// Returns true if it runs the code of libraries, which may take long.
    pub fn loads_libraries(&self) -> bool {
        matches!(self.full_name.as_str(), "function|load" | "function|restore")
    }

    /// Returns the subcommand called `name` in any case.
    pub fn subcommand(&self, name: &[u8]) -> Option<&Self> {
        self.subcommands.iter().find(|sub| sub.spec.name.as_bytes().eq_ignore_ascii_case(name))
    }
}

fn is_brief(spec: &Spec) -> bool {
    spec.flags.intersects(Flags::FAST.with(Flags::BRIEF))
}

/// `transaction::Share` checks each call of all other commands, and SET with options.
fn is_one_element(spec: &Spec) -> bool {
    let may_be_more = matches!(
        spec.name,
        "xadd" | "xtrim" | "xautoclaim" | "renamenx" | "move" | "swapdb" | "publish" | "digest"
    );
    let may_count = has_one_key(spec) && spec.arity == -2;
    is_brief(spec) && !may_be_more && !may_count
}

fn is_data_only(spec: &Spec) -> bool {
    let reaches_further = Flags::BLOCKING
        .with(Flags::NONBLOCKING)
        .with(Flags::ADMIN)
        .with(Flags::PUBSUB)
        .with(Flags::NOSCRIPT)
        .with(Flags::NO_AUTH);
    // The calls of a program cannot change such a decision, either.
    spec.flags.contains(Flags::PROGRAM)
        || (!spec.keys.is_empty() || spec.flags.contains(Flags::FAST))
            && !spec.flags.intersects(reaches_further)
}

fn has_one_key(spec: &Spec) -> bool {
    matches!(spec.scope(), Scope::Keys | Scope::InTurns) && spec.has_one_key()
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
    pub(super) added: Added,
    /// Commands that cannot be found by their original names.
    unnamed: BTreeSet<u16>,
    /// Renamed commands.
    pub(super) renamed: Names,
    /// A secret name for AUTH, known only to the server.
    pub(super) secret_auth: Option<String>,
    /// The bodies of the commands. The code that runs commands knows their type.
    pub(crate) bodies: Box<dyn Any + Send + Sync>,
    /// The names of requests of other protocols. They have the last identities.
    pub(super) operations: Vec<&'static str>,
}

#[derive(Clone, Copy, Default)]
struct Slot {
    name: PackedName,
    /// Index into `commands` plus one; zero is an empty slot.
    command: u16,
}

/// A name of up to [`PackedName::LEN_MAX`] bytes in lower case, padded with zeros. The length distinguishes padding
/// from zeros that a client sent.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
struct PackedName {
    words: [u64; 3],
    len: usize,
}

impl Table {
    /// Builds the table; `specs` and `bodies` are in the order in which commands are listed.
    ///
    /// # Panics
    /// If two commands have equal names, which is a bug that a test finds.
    pub(crate) fn new(
        specs: impl IntoIterator<Item = Described>,
        bodies: impl Any + Send + Sync,
    ) -> Self {
        let mut ids = 0;
        let mut next_id = || {
            ids += 1;
            CommandId(ids - 1)
        };
        let specs = specs.into_iter().zip(0..);
        let commands: Vec<_> =
            specs.map(|(spec, index)| Command::new(spec, &mut next_id, index)).collect();
        let mut table = Self {
            slots: vec![Slot::default(); (commands.len() * 4).next_power_of_two()].into(),
            commands,
            ids,
            added: Added::new(),
            unnamed: BTreeSet::new(),
            renamed: Names::new(),
            secret_auth: None,
            bodies: Box::new(bodies),
            operations: Vec::new(),
        };
        for index in 0..table.commands.len() {
            table.enter(index);
        }
        table
    }

    fn enter(&mut self, index: usize) {
        let name = self.commands[index].spec.name;
        let packed = PackedName::of(name.as_bytes()).expect("a name that can be packed");
        assert!(self.find_built_in(name.as_bytes()).is_none(), "two commands named {name}");
        let mut at = self.home(packed);
        while self.slots[at].command != 0 {
            at = (at + 1) & (self.slots.len() - 1);
        }
        self.slots[at] = Slot { name: packed, command: index as u16 + 1 };
    }

    /// Removes a command's original name from the lookup.
    pub(super) fn forget_name(&mut self, index: u16) {
        self.slots.fill(Slot::default());
        self.unnamed.insert(index);
        for other in 0..self.commands.len() {
            if !self.unnamed.contains(&(other as u16)) {
                self.enter(other);
            }
        }
    }

    /// Returns the command called `name` in any case.
    #[inline]
    pub fn find(&self, name: &[u8]) -> Option<&Command> {
        match self.find_built_in(name) {
            Some(command) => Some(command),
            None => self.find_renamed(name).or_else(|| self.added.find(name)),
        }
    }

    /// Returns the command or subcommand called `get` or `client|list`, in any case.
    pub fn find_full(&self, name: &[u8]) -> Option<&Command> {
        let mut words = name.splitn(2, |byte| *byte == b'|');
        let command = self.find(words.next()?)?;
        match words.next() {
            Some(sub) => command.subcommand(sub),
            None => Some(command),
        }
    }

    /// Returns the built-in command with this name, in any case.
    #[inline]
    pub(super) fn find_built_in(&self, name: &[u8]) -> Option<&Command> {
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

    /// Returns the built-in commands in the order given.
    pub fn commands(&self) -> &[Command] {
        &self.commands
    }

    /// Returns all commands: first the built-in ones, then the added ones.
    pub fn listed(&self) -> Vec<&Command> {
        self.commands.iter().chain(self.added.all()).collect()
    }

    /// Returns commands and subcommands; the built-in ones in the order of their identities.
    pub fn all(&self) -> impl Iterator<Item = &Command> {
        let commands = self.listed().into_iter();
        commands.flat_map(|command| std::iter::once(command).chain(&command.subcommands))
    }

    /// Returns the number of identities of built-in commands.
    pub(super) fn built_in_ids(&self) -> usize {
        self.ids.into()
    }

    /// Returns the maximum number of identities.
    pub fn id_count(&self) -> usize {
        self.built_in_ids() + ADDED_MAX + self.operations.len()
    }
}

impl PackedName {
    const LEN_MAX: usize = 24;

    /// Packs `name`; returns `None` if it is too long for any command, or empty.
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

/// Loads up to eight bytes as a word, padded with zeros.
///
/// Uses two loads that may overlap instead of a loop: their common bytes agree, so they can be joined by `|`.
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

/// Sets bit 5 of the bytes from `A` to `Z`, all eight at once, and leaves all others unchanged.
#[inline]
fn to_lower(word: u64) -> u64 {
    const ONES: u64 = 0x0101_0101_0101_0101;
    const HIGH: u64 = 0x80 * ONES;
    // With the high bits cleared, no addition below carries into the next byte.
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
    fn what_changes_no_gate_says_so() {
        let table = commands::table();
        let is_data_only = |name: &str| table.find(name.as_bytes()).unwrap().is_data_only;
        for name in ["get", "set", "mget", "hgetall", "smembers", "sort", "ping", "echo"] {
            assert!(is_data_only(name), "{name}");
        }
        for name in ["multi", "exec", "watch", "auth", "hello", "reset", "config", "blpop"] {
            assert!(!is_data_only(name), "{name}");
        }
        for name in ["monitor", "subscribe", "publish", "debug", "flushall", "save", "shutdown"] {
            assert!(!is_data_only(name), "{name}");
        }
    }

    #[test]
    fn identities_are_dense() {
        let table = commands::table();
        let ids: Vec<_> = table.all().map(|command| usize::from(command.id.0)).collect();
        assert_eq!(ids, (0..table.built_in_ids()).collect::<Vec<_>>());
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
