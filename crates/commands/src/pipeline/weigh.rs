//! Limit of the work of a command on a worker.
//!
//! A worker serves many connections, and all of them wait for its current command. So a command whose work depends on
//! the size of the data weighs it first, before it changes or replies anything. If the work would take longer than
//! about a millisecond, the command is interrupted and runs again on a thread for long commands ([`crate::offload`]),
//! where nothing is too heavy.

use tierce_keyspace::{Db, Entry, Key};

use super::Context;
use crate::command::{Flags, Weight};
use crate::error::{CommandError, Interrupt};

/// Maximum work of one command on a worker, in elements that are visited, copied or replied: about a millisecond at
/// 100 ns each.
pub const WEIGHT_MAX: usize = 10_000;

/// Bytes that are processed in the time of one element.
const BYTES_PER_ELEMENT: usize = 64;

/// Converts bytes to elements.
pub(super) const fn elements_in(bytes: usize) -> usize {
    bytes / BYTES_PER_ELEMENT
}

/// Limit of the work before a command must be interrupted, for a body that has its key open.
#[derive(Clone, Copy)]
pub struct Scale {
    elements_max: usize,
}

impl Scale {
    /// Creates the limit of a worker, or of a thread on which nothing is too heavy.
    pub(super) fn of(is_on_worker: bool) -> Self {
        Self { elements_max: if is_on_worker { WEIGHT_MAX } else { usize::MAX } }
    }

    /// Checks as [`Context::weigh`].
    ///
    /// # Errors
    /// As [`Context::weigh`].
    #[inline]
    pub fn weigh(self, elements: usize) -> Result<(), CommandError> {
        if elements > self.elements_max { Err(Interrupt::Long.into()) } else { Ok(()) }
    }

    /// Must be called before work on this many elements of a value, or on all of them.
    ///
    /// # Errors
    /// As [`Context::weigh`].
    #[inline]
    pub fn weigh_some(
        self,
        elements: usize,
        db: &mut Db<'_>,
        key: Key<'_>,
    ) -> Result<(), CommandError> {
        if elements <= WEIGHT_MAX {
            return Ok(());
        }
        self.weigh(elements.min(db.peek(key).map_or(0, Entry::element_count)))
    }

    /// Must be called before work on the items of `elements`. They are counted only if their upper bound may be too
    /// much.
    ///
    /// # Errors
    /// As [`Context::weigh`].
    #[inline]
    pub fn weigh_each<T>(
        self,
        at_most: usize,
        elements: impl Iterator<Item = T>,
    ) -> Result<(), CommandError> {
        if at_most <= self.elements_max {
            return Ok(());
        }
        self.weigh(elements.take(self.elements_max + 1).count())
    }

    /// Must be called before work on this many bytes.
    ///
    /// # Errors
    /// As [`Context::weigh`].
    #[inline]
    pub fn weigh_bytes(self, bytes: usize) -> Result<(), CommandError> {
        self.weigh(elements_in(bytes))
    }
}

/// Weighs the values of the keys of a command that visits them as a whole. They are locked.
pub(super) fn weigh_values(ctx: &mut Context<'_, '_>) -> Result<(), CommandError> {
    let (spec, args) = (ctx.command.spec, ctx.call.args());
    if !ctx.mode.may_leave() || matches!(spec.weight, Weight::Light | Weight::Pairs) {
        return Ok(());
    }
    let mut sizes = Sizes::default();
    for (number, index) in spec.key_indexes(args).enumerate() {
        let key = ctx.key(number, args.at(index));
        let mut db = ctx.guard.db(ctx.caller.db, key.hash(), ctx.now_ms);
        let is_target = index == 1 && spec.flags.contains(Flags::WRITE);
        if is_target {
            sizes.add_target(&mut db, key);
        } else {
            sizes.add(&mut db, key);
        }
    }
    ctx.weigh(sizes.work(spec.weight))
}

/// Returns the weight of a value in elements.
pub(super) fn weight_of(db: &mut Db<'_>, key: Key<'_>) -> usize {
    Sizes::default().add_target(db, key)
}

/// Returns the length of a string. In a command with [`Weight::Pairs`], the weight is the product of both lengths.
pub(super) fn string_len_of(db: &mut Db<'_>, key: Key<'_>) -> usize {
    db.peek(key).map_or(0, Entry::string_len)
}

/// Amount of data under the keys of a command.
#[derive(Clone, Copy)]
pub(super) struct Sizes {
    keys: usize,
    /// Sum over all values. A string has one for each [`BYTES_PER_ELEMENT`].
    pub(super) elements: usize,
    /// Elements of the smallest source.
    smallest: usize,
}

impl Default for Sizes {
    fn default() -> Self {
        Self { keys: 0, elements: 0, smallest: usize::MAX }
    }
}

impl Sizes {
    /// Adds a source.
    pub(super) fn add(&mut self, db: &mut Db<'_>, key: Key<'_>) {
        let elements = self.add_target(db, key);
        self.smallest = self.smallest.min(elements);
    }

    /// Adds a value that is overwritten. Returns its number of elements.
    fn add_target(&mut self, db: &mut Db<'_>, key: Key<'_>) -> usize {
        let of = |entry: &Entry| entry.element_count() + elements_in(entry.string_len());
        let elements = db.peek(key).map_or(0, of);
        self.elements = self.elements.saturating_add(elements);
        self.keys += 1;
        elements
    }

    /// Returns the work of a command on these values, in elements.
    pub(super) fn work(self, weight: Weight) -> usize {
        match weight {
            Weight::Smallest => self.smallest.saturating_mul(self.keys).min(self.elements),
            Weight::Pairs => usize::MAX,
            Weight::Light | Weight::All => self.elements,
        }
    }
}
