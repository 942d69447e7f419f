//! Plan of a batch: facts about its requests, collected before the first of them runs.
//!
//! One pass over the batch finds the command of each request and hashes its first key. Prefetching and execution need
//! both.
//!
//! Invariants:
//! * A plan belongs to the batch it was made from. It contains nothing that a request of the batch can change: the
//!   table of commands and the seed of the hash are constant, while databases, rights and settings are read when a
//!   request runs.
//! * A request that is not simple (unknown, with a wrong number of arguments, or with subcommands) has no command in
//!   the plan; it is resolved when it runs.

use tierce_collections::same_bytes;
use tierce_keyspace::KeyHash;
use tierce_wire::resp::{Args, Batch};

use crate::command::Command;
use crate::kernel::Kernel;

/// Maximum length of cached command names. Longer ones are searched each time.
const SPELLING_LEN_MAX: usize = 16;

/// Number of cached spellings.
const SPELLINGS: usize = 8;

/// Plan of one batch; its memory is reused for the next one.
#[derive(Default)]
pub struct Plan {
    requests: Vec<Planned>,
    /// Spelling of the last call, which is tried first.
    last: Spelling,
    of_classes: [Spelling; SPELLINGS],
}

/// Facts about one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Planned {
    command: CommandSlot,
    /// Hash of the first key.
    pub hash: Option<KeyHash>,
}

/// Index of a command in the table plus one, or zero for a request that is not simple.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct CommandSlot(u16);

/// Spelling of a command. Clients repeat themselves, so the next request often needs no search.
#[derive(Clone, Copy, Default)]
struct Spelling {
    name: [u8; SPELLING_LEN_MAX],
    len: usize,
    /// Number of arguments.
    argc: usize,
    /// The command, or none if it does not accept this number of arguments.
    command: CommandSlot,
    /// Index of its first key; 0 without one.
    first_key: usize,
}

impl CommandSlot {
    #[inline]
    fn command(self, kernel: &Kernel) -> Option<&Command> {
        kernel.commands.commands().get(usize::from(self.0).wrapping_sub(1))
    }
}

impl Planned {
    /// Returns its command, if known.
    #[inline]
    pub fn command(self, kernel: &Kernel) -> Option<&Command> {
        self.command.command(kernel)
    }
}

impl Plan {
    /// Plans `batch`, the requests of `input`.
    pub fn make(&mut self, kernel: &Kernel, batch: &Batch, input: &[u8]) {
        self.requests.clear();
        self.requests.reserve(batch.len());
        for args in batch.iter(input) {
            let planned = self.plan_one(kernel, args);
            self.requests.push(planned);
        }
    }

    /// Returns the facts about the request with this index.
    #[inline]
    pub fn get(&self, index: usize) -> Planned {
        self.requests[index]
    }

    /// Returns the hashes of all first keys.
    #[inline]
    pub fn hashes(&self) -> impl Iterator<Item = KeyHash> + Clone {
        self.requests.iter().filter_map(|request| request.hash)
    }

    /// Returns the facts about a single request.
    #[inline]
    pub fn plan_one(&mut self, kernel: &Kernel, args: Args<'_>) -> Planned {
        let name = args.at(0);
        if !self.last.is_of(name, args.len()) {
            self.change_to(kernel, name, args.len());
        }
        let Spelling { command, first_key, .. } = self.last;
        let key = if first_key > 0 { args.get(first_key) } else { None };
        Planned { command, hash: key.map(|key| kernel.keyspace.hash(key)) }
    }

    #[inline(never)]
    fn change_to(&mut self, kernel: &Kernel, name: &[u8], argc: usize) {
        let of_class = &mut self.of_classes[class(name, argc)];
        if !of_class.is_of(name, argc) {
            of_class.search(kernel, name, argc);
        }
        self.last = *of_class;
    }
}

/// Returns the cache index of the spelling of a call. Commands that clients mix usually differ in the number of
/// arguments or in two letters; this factor separates most of them.
fn class(name: &[u8], argc: usize) -> usize {
    let Some(letters) = name.first_chunk() else { return 0 };
    let letters = u16::from_le_bytes(*letters).wrapping_mul(819) >> 13;
    (usize::from(letters) ^ argc) % SPELLINGS
}

/// Compares two names. Most are short, or those of GET and SET.
#[inline]
fn is_same_name(a: &[u8], b: &[u8]) -> bool {
    match (a, b) {
        ([a, b, c], [x, y, z]) => (a == x) & (b == y) & (c == z),
        _ => same_bytes(a, b),
    }
}

impl Spelling {
    #[inline]
    fn is_of(&self, name: &[u8], argc: usize) -> bool {
        argc == self.argc && is_same_name(&self.name[..self.len], name)
    }

    /// Becomes the simple command called `name` with `argc` arguments.
    fn search(&mut self, kernel: &Kernel, name: &[u8], argc: usize) {
        let command = kernel.commands.find(name).filter(|command| command.is_plain);
        let call = command.filter(|command| command.spec.accepts(argc));
        self.command =
            call.map_or(CommandSlot::default(), |command| CommandSlot(command.index + 1));
        self.first_key = call.map_or(0, |command| command.first_key);
        // No request has zero arguments, so a name that is too long never matches and is searched again.
        self.argc = 0;
        if let Some(room) = self.name.get_mut(..name.len()) {
            room.copy_from_slice(name);
            (self.len, self.argc) = (name.len(), argc);
        }
    }
}
