//! What is known beforehand of each command for a user, so that most calls are allowed in a few instructions.
//!
//! Only calls that the root selector allows are decided here, and only if they have no keys or exactly one. All others,
//! and all that might be denied, are left to [`User::check`](super::User::check).

use tierce_wire::resp::Args;

use super::pattern::{HEAD_LEN, KeyPattern, Permission};
use super::selector::{Patterns, Selector};
use crate::command::{Command, KeyFlags, Table};

/// See the module.
#[derive(Clone, Debug)]
pub struct Shortcuts {
    /// By the identity of the command: [`LOOK`], [`ALLOWED`], or what is needed for its only key.
    commands: Box<[u8]>,
    /// A pattern that permits everything, and that a key of [`HEAD_LEN`] bytes or more matches if these of its first
    /// bytes are the same. No key has them if there is no such pattern.
    head: u64,
    mask: u64,
    /// All patterns of the root selector.
    keys: Vec<KeyPattern>,
}

/// Nothing is known of calls of the command.
const LOOK: u8 = 0;
/// All calls are allowed.
const ALLOWED: u8 = 1;
/// Calls are allowed if their key is; the [`Permission`] that it needs is added.
const ONE_KEY: u8 = 2;

/// No key has these bytes under an empty mask.
const NO_HEAD: (u64, u64) = (1, 0);

impl Shortcuts {
    /// Those of a user of whom nothing is known.
    pub fn none() -> Self {
        let (head, mask) = NO_HEAD;
        Self { commands: Box::default(), head, mask, keys: Vec::new() }
    }

    /// For a user with this root selector.
    pub fn of(root: &Selector, table: &Table) -> Self {
        let mut commands = vec![LOOK; table.id_count()].into_boxed_slice();
        for command in table.all() {
            if let Some(known) = commands.get_mut(usize::from(command.id.0)) {
                *known = class_of(root, command);
            }
        }
        let keys = match root.keys() {
            Patterns::All => Vec::new(),
            Patterns::Some(patterns) => patterns.clone(),
        };
        let mut short = keys.iter().filter(|pattern| pattern.permission == Permission::ALL);
        let (head, mask) = short.find_map(KeyPattern::head).unwrap_or(NO_HEAD);
        Self { commands, head, mask, keys }
    }

    #[inline(always)]
    pub fn allow(&self, command: &Command, args: Args<'_>) -> bool {
        match self.commands.get(usize::from(command.id.0)) {
            None | Some(&LOOK) => false,
            Some(&ALLOWED) => true,
            Some(class) => {
                let key = args.at(command.first_key);
                let is_headed =
                    |first: &[u8; HEAD_LEN]| u64::from_le_bytes(*first) & self.mask == self.head;
                key.first_chunk().is_some_and(is_headed) || self.allow_key(*class, key)
            }
        }
    }

    #[inline(never)]
    fn allow_key(&self, class: u8, key: &[u8]) -> bool {
        let needed = Permission::from_code(class - ONE_KEY);
        let permits =
            |pattern: &KeyPattern| pattern.permission.includes(needed) && pattern.matches(key);
        self.keys.iter().any(permits)
    }
}

fn class_of(root: &Selector, command: &Command) -> u8 {
    let allows_channels = command.spec.channels.is_none();
    if !root.allows_any_call(command) || !allows_channels {
        return LOOK;
    }
    match (root.keys(), command.spec.keys) {
        (Patterns::All, _) | (_, []) => ALLOWED,
        // What depends on its arguments needs at most everything.
        (_, [key]) if command.has_one_key && key.flags == KeyFlags::VARIABLE => {
            ONE_KEY + Permission::ALL.code()
        }
        (_, [key]) if command.has_one_key => ONE_KEY + Permission::for_use(key.flags).code(),
        _ => LOOK,
    }
}
