//! Precomputed rights of a user for each command, so that most calls are allowed in a few instructions.
//!
//! This only allows calls that the root selector allows, and that have no key or exactly one. It never denies: all
//! other calls are left to [`User::check`](super::User::check).

use tierce_wire::resp::Args;

use super::pattern::{HEAD_LEN, KeyPattern, Permission};
use super::selector::{Patterns, Selector};
use crate::command::{Command, Table};

/// See the module.
#[derive(Clone, Debug)]
pub struct Shortcuts {
    /// By the identity of the command: [`LOOK`], [`ALLOWED`], or the permission that its only key needs.
    commands: Box<[u8]>,
    /// First bytes and mask of a pattern with all permissions. A key of [`HEAD_LEN`] bytes or more matches it if it has
    /// these bytes. They are [`NO_HEAD`], which no key has, if there is no such pattern.
    head: u64,
    mask: u64,
    /// All patterns of the root selector.
    keys: Vec<KeyPattern>,
}

/// Calls of the command need the full check.
const LOOK: u8 = 0;
/// All calls are allowed.
const ALLOWED: u8 = 1;
/// Calls are allowed if their key is. The [`Permission`] that it needs is added to this number.
const ONE_KEY: u8 = 2;

/// No key has these bytes under an empty mask.
const NO_HEAD: (u64, u64) = (1, 0);

impl Shortcuts {
    /// Shortcuts that allow nothing.
    pub fn none() -> Self {
        let (head, mask) = NO_HEAD;
        Self { commands: Box::default(), head, mask, keys: Vec::new() }
    }

    /// Computes the shortcuts for a user with this root selector.
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
        // If the use of the key depends on the arguments, all permissions are required.
        (_, [key]) if command.has_one_key && key.flags.is_variable() => {
            ONE_KEY + Permission::ALL.code()
        }
        (_, [key]) if command.has_one_key => ONE_KEY + Permission::for_use(key.flags).code(),
        _ => LOOK,
    }
}
