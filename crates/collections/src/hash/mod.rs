//! A hash: fields with values, each of which may have a deadline.
//!
//! A small hash is one block of bytes: names and values alternating, plus deadlines once a field has had one. A large
//! hash is a table of fields.
//!
//! Fields stay until removed, even after their deadline. Readers pass the time and do not see expired fields; the
//! owner removes them with [`Hash::next_deadline_ms`] and [`Hash::reap`].

mod deadlines;
mod field;
mod small;
mod table;

use std::ptr::NonNull;

pub use field::{FieldRef, Former};
use small::{Pairs, Triples};
use table::FieldTable;

use crate::form::Form;
use crate::incremental_snapshot::{IncrementalSnapshot, SnapshotProgress, snapshotted};
use crate::limits::PackedLimits;
use crate::packed::Element;
use crate::random::{Random, draw_distinct, draw_repeatedly};
use crate::raw_box::RawBox;
use crate::seed::hash_bytes;
use crate::text_int::IntText;

/// A hash: fields with values, each of which may have a deadline.
#[derive(Debug)]
pub struct Hash {
    repr: Repr,
}

#[derive(Debug)]
enum Repr {
    /// Small, and no field has ever had a deadline.
    Pairs(Pairs),
    /// Small, with deadlines.
    Triples(RawBox<Triples>),
    Table(RawBox<FieldTable>),
}

/// Runs `$body` for the current form of a hash.
macro_rules! each {
    ($hash:expr, $form:ident => $body:expr) => {
        match &$hash.repr {
            Repr::Pairs($form) => $body,
            Repr::Triples($form) => $body,
            Repr::Table($form) => $body,
        }
    };
}

snapshotted!(Hash, Repr::Table[table], tag => IncrementalSnapshot::begin(tag));

impl Hash {
    /// Creates an empty hash.
    #[expect(clippy::new_without_default, reason = "no caller needs a default")]
    pub fn new() -> Self {
        Self { repr: Repr::Pairs(Pairs::new()) }
    }

    /// Returns the number of fields, including expired ones that are not removed yet.
    #[inline]
    #[expect(clippy::len_without_is_empty, reason = "empty ones vanish")]
    pub fn len(&self) -> usize {
        each!(self, form => form.len())
    }

    /// Returns the number of live fields at that time. Takes constant time unless some are expired, and then a few
    /// steps for each of these.
    pub fn live_len(&self, now_ms: i64) -> usize {
        match (self.next_deadline_ms(), &self.repr) {
            (Some(at), Repr::Table(table)) if at <= now_ms => table.len() - table.due_len(now_ms),
            (Some(at), _) if at <= now_ms => self.live(now_ms).count(),
            _ => self.len(),
        }
    }

    /// Returns the bytes it owns, as the allocator counts them.
    pub fn allocated_bytes(&self) -> usize {
        each!(self, form => form.allocated_bytes())
    }

    /// Returns the name of its encoding for OBJECT ENCODING.
    pub fn encoding(&self) -> &'static str {
        match self.repr {
            Repr::Pairs(_) => "listpack",
            Repr::Triples(_) => "listpackex",
            Repr::Table(_) => "hashtable",
        }
    }

    /// Returns a copy.
    pub fn duplicate(&self) -> Self {
        let repr = match &self.repr {
            Repr::Pairs(pairs) => Repr::Pairs(pairs.duplicate()),
            Repr::Triples(triples) => Repr::Triples(RawBox::new(triples.duplicate())),
            Repr::Table(table) => Repr::Table(RawBox::new(table.duplicate())),
        };
        Self { repr }
    }

    /// Returns the field with this name.
    #[inline]
    pub fn get(&self, name: &[u8], now_ms: i64) -> Option<FieldRef<'_>> {
        let field = match &self.repr {
            Repr::Pairs(pairs) => return pairs.get(name),
            Repr::Triples(triples) => triples.get(name),
            Repr::Table(table) => table.get(name).map(field::Field::view),
        };
        field.filter(|field| field.is_live(now_ms))
    }

    /// Prefetches the memory that lookups of these names will read, if it exceeds the processor's caches. Call it
    /// before many lookups; it changes nothing.
    pub fn prefetch<'a>(&self, names: impl Iterator<Item = &'a [u8]>) {
        if let Repr::Table(table) = &self.repr {
            table.prefetch(names);
        }
    }

    /// Sets a field to a value and a deadline.
    pub fn put(
        &mut self,
        name: &[u8],
        value: &[u8],
        deadline_ms: Option<i64>,
        limits: PackedLimits,
    ) -> Former {
        if !matches!(self.repr, Repr::Table(_)) {
            self.prepare(&[name, value], deadline_ms, limits);
        }
        let former = match &mut self.repr {
            Repr::Pairs(pairs) => pairs.put(name, value),
            Repr::Triples(triples) => triples.put(name, value, deadline_ms),
            Repr::Table(table) => return table.put(name, value, deadline_ms, |_| ()),
        };
        if self.len() > small::clamp(limits.entries_max) {
            self.enlarge();
        }
        former
    }

    /// As [`Hash::put`]; `visit` sees the field before the change.
    pub fn put_visited(
        &mut self,
        name: &[u8],
        value: &[u8],
        deadline_ms: Option<i64>,
        limits: PackedLimits,
        visit: impl FnOnce(FieldRef<'_>),
    ) -> Former {
        if let Repr::Table(table) = &mut self.repr {
            return table.put(name, value, deadline_ms, visit);
        }
        if let Some(field) = self.get(name, i64::MIN) {
            visit(field);
        }
        self.put(name, value, deadline_ms, limits)
    }

    /// Sets or removes the deadline of a field.
    pub fn set_deadline(&mut self, name: &[u8], deadline_ms: Option<i64>) -> Former {
        if let Repr::Pairs(pairs) = &mut self.repr {
            if deadline_ms.is_none() || pairs.get(name).is_none() {
                return pairs.get(name).map_or(Former::Absent, |_| Former::Field(None));
            }
            self.begin_deadlines();
        }
        match &mut self.repr {
            Repr::Pairs(_) => unreachable!("there are deadlines now"),
            Repr::Triples(triples) => triples.set_deadline(name, deadline_ms),
            Repr::Table(table) => table.set_deadline(name, deadline_ms),
        }
    }

    /// Removes a field.
    pub fn remove(&mut self, name: &[u8]) -> Former {
        match &mut self.repr {
            Repr::Pairs(pairs) => pairs.remove(name),
            Repr::Triples(triples) => triples.remove(name),
            Repr::Table(table) => table.remove(name, |_| ()),
        }
    }

    /// As [`Hash::remove`]; `visit` sees the field.
    pub fn remove_visited(&mut self, name: &[u8], visit: impl FnOnce(FieldRef<'_>)) -> Former {
        if let Repr::Table(table) = &mut self.repr {
            return table.remove(name, visit);
        }
        if let Some(field) = self.get(name, i64::MIN) {
            visit(field);
        }
        self.remove(name)
    }

    /// Returns the next deadline. It may be earlier than the true one, if that field has been removed or got another
    /// deadline, until [`Hash::reap`] is called at that time.
    #[inline]
    pub fn next_deadline_ms(&self) -> Option<i64> {
        match &self.repr {
            Repr::Pairs(_) => None,
            Repr::Triples(triples) => triples.next_deadline_ms(),
            Repr::Table(table) => table.next_deadline_ms(),
        }
    }

    /// Returns true if all fields are expired. Takes constant time unless some are expired and all have a deadline.
    #[inline]
    pub fn is_all_due(&self, now_ms: i64) -> bool {
        self.next_deadline_ms().is_some_and(|at| at <= now_ms)
            && !matches!(&self.repr, Repr::Table(table) if table.has_lasting_fields())
            && self.live(now_ms).next().is_none()
    }

    /// Returns the earliest actual deadline after `now_ms`. Drops outdated hints on the way, so it takes a few steps
    /// for each change, and for each expired field that is not removed yet; at most it reads all fields.
    pub fn deadline_after(&mut self, now_ms: i64) -> Option<i64> {
        match &mut self.repr {
            Repr::Pairs(_) => None,
            Repr::Triples(triples) => triples.deadline_after(now_ms),
            Repr::Table(table) => table.deadline_after(now_ms),
        }
    }

    /// Removes expired fields and passes them to `gone`. Stops after about `steps` of them;
    /// [`Hash::next_deadline_ms`] says if there are more.
    pub fn reap(&mut self, now_ms: i64, steps: usize, gone: impl FnMut(FieldRef<'_>)) {
        match &mut self.repr {
            Repr::Pairs(_) => {}
            Repr::Triples(triples) => triples.reap(now_ms, gone),
            Repr::Table(table) => table.reap(now_ms, steps, gone),
        }
    }

    /// Returns all fields, in no order, including expired ones.
    pub fn iter(&self) -> Iter<'_> {
        Iter(match &self.repr {
            Repr::Pairs(pairs) => Inner::Small(pairs.iter()),
            Repr::Triples(triples) => Inner::Small(triples.iter()),
            Repr::Table(table) => Inner::Table(table.iter()),
        })
    }

    /// Returns the live fields at that time.
    pub fn live(&self, now_ms: i64) -> impl Iterator<Item = FieldRef<'_>> {
        self.iter().filter(move |field| field.is_live(now_ms))
    }

    /// Visits some fields, including expired ones, and returns the cursor for the next call, 0 after the last one. A
    /// scan begins with 0. A field that stays during the whole scan is visited at least once, and only once unless the
    /// hash becomes large meanwhile.
    pub fn scan(&self, cursor: u64, mut visit: impl FnMut(FieldRef<'_>)) -> u64 {
        match &self.repr {
            Repr::Table(table) => table.scan(cursor, |field| visit(field.view())),
            _ => {
                self.iter().for_each(visit);
                0
            }
        }
    }

    /// Returns a random live field, all about equally likely; `None` if there is none.
    #[must_use]
    pub fn sample(&self, random: &mut Random, now_ms: i64) -> Option<FieldRef<'_>> {
        // Expired fields are removed soon, so they are hardly ever the majority.
        self.try_sample(random, now_ms).or_else(|| self.live(now_ms).next())
    }

    /// Draws this many times a random live field, all about equally likely. All draws together take as many steps as
    /// there are fields and draws, however few of the fields are live.
    pub fn sample_repeatedly<'h>(
        &'h self,
        count: usize,
        random: &mut Random,
        now_ms: i64,
        mut visit: impl FnMut(FieldRef<'h>),
    ) {
        let mut left = count;
        if matches!(self.repr, Repr::Table(_)) && count < self.len() {
            while left > 0
                && let Some(field) = self.try_sample(random, now_ms)
            {
                visit(field);
                left -= 1;
            }
        }
        if left > 0 {
            draw_repeatedly(self.live(now_ms), left, random, visit);
        }
    }

    /// Returns a random live field, if most are live.
    fn try_sample(&self, random: &mut Random, now_ms: i64) -> Option<FieldRef<'_>> {
        let is_live = |field: &FieldRef<'_>| field.is_live(now_ms);
        (0..SAMPLE_TRIES).find_map(|_| self.sample_any(random).filter(is_live))
    }

    /// Returns this many distinct live fields, or all if there are fewer, each choice about equally likely.
    #[must_use]
    pub fn sample_distinct(
        &self,
        count: usize,
        random: &mut Random,
        now_ms: i64,
    ) -> Vec<FieldRef<'_>> {
        let hash_of = |field: &FieldRef<'_>| match field.name {
            Element::Bytes(name) => hash_bytes(name),
            Element::Int(value) => hash_bytes(IntText::new().of(value)),
        };
        if self.next_deadline_ms().is_some_and(|at| at <= now_ms) {
            let live: Vec<_> = self.live(now_ms).collect();
            let live = live.into_iter();
            return draw_distinct(live, count, random, hash_of, None::<fn(&mut Random) -> _>);
        }
        let draw = |random: &mut Random| self.sample_any(random);
        let draw = matches!(self.repr, Repr::Table(_)).then_some(draw);
        draw_distinct(self.iter(), count, random, hash_of, draw)
    }

    /// Returns a random field, possibly an expired one.
    fn sample_any(&self, random: &mut Random) -> Option<FieldRef<'_>> {
        match &self.repr {
            Repr::Pairs(pairs) => pairs.at(random.below(pairs.len())),
            Repr::Triples(triples) => triples.at(random.below(triples.len())),
            Repr::Table(table) => table.sample(random.word()).map(field::Field::view),
        }
    }

    /// Converts a small hash to the form needed for another field.
    fn prepare(&mut self, strings: &[&[u8]], deadline_ms: Option<i64>, limits: PackedLimits) {
        let too_long = strings.iter().any(|bytes| bytes.len() > limits.value_len_max);
        let bytes = strings.iter().map(|bytes| bytes.len()).sum();
        let has_room = match &self.repr {
            Repr::Pairs(pairs) => pairs.has_room_for(bytes),
            Repr::Triples(triples) => triples.has_room_for(bytes),
            Repr::Table(_) => true,
        };
        if too_long || !has_room {
            self.enlarge();
        } else if deadline_ms.is_some() && matches!(self.repr, Repr::Pairs(_)) {
            self.begin_deadlines();
        }
    }

    /// Converts pairs to triples with deadlines.
    fn begin_deadlines(&mut self) {
        let mut triples = Triples::new();
        self.iter().for_each(|field| triples.push(field));
        self.repr = Repr::Triples(RawBox::new(triples));
    }

    /// Converts a small hash to a large one.
    #[cold]
    fn enlarge(&mut self) {
        let mut table = FieldTable::default();
        self.iter().for_each(|field| table.add(field));
        self.repr = Repr::Table(RawBox::new(table));
    }

    /// Visits fields as they were when the snapshot began, each in one slice, in no order. `visit` returns the bytes
    /// it produced for one, and a slice ends once these reach `bytes_max`. After the last slice the snapshot is over.
    pub fn snapshot_slice(
        &mut self,
        bytes_max: usize,
        visit: impl FnMut(FieldRef<'_>) -> usize,
    ) -> SnapshotProgress {
        match &mut self.repr {
            Repr::Table(table) => table.snapshot_slice(bytes_max, visit),
            _ => SnapshotProgress::Complete,
        }
    }

    /// See [`Collection::into_raw`](crate::Collection::into_raw).
    #[inline]
    #[must_use]
    pub fn into_raw(self) -> (Form, NonNull<u8>) {
        match self.repr {
            Repr::Pairs(pairs) => (Form::HashPacked, pairs.into_raw()),
            Repr::Triples(triples) => {
                let pointer = triples.into_raw().cast::<u8>();
                (Form::HashPacked, pointer.map_addr(|address| address | HAS_DEADLINES))
            }
            Repr::Table(table) => (Form::HashTable, table.into_raw().cast()),
        }
    }

    /// See [`Collection::from_raw`](crate::Collection::from_raw).
    ///
    /// # Safety
    ///
    /// As there.
    #[inline]
    pub unsafe fn from_raw(form: Form, pointer: NonNull<u8>) -> Self {
        // SAFETY: the caller guarantees that the pointer is from `into_raw`, of the variant that form and tag say.
        let repr = unsafe {
            if form == Form::HashTable {
                Repr::Table(RawBox::from_raw(pointer.cast()))
            } else if pointer.addr().get() & HAS_DEADLINES == 0 {
                Repr::Pairs(Pairs::from_raw(pointer))
            } else {
                let untagged = pointer.as_ptr().map_addr(|address| address & !HAS_DEADLINES);
                Repr::Triples(RawBox::from_raw(NonNull::new_unchecked(untagged).cast()))
            }
        };
        Self { repr }
    }
}

/// Number of draws before the first live field is taken: if half of the fields are expired, that happens once in 2^32
/// times.
const SAMPLE_TRIES: usize = 32;

/// Bit of the pointer that marks a small hash with deadlines; alignment keeps it zero otherwise.
const HAS_DEADLINES: usize = 1;

const _: () = assert!(align_of::<Triples>() > HAS_DEADLINES);

/// The fields of a hash; see [`Hash::iter`].
pub struct Iter<'a>(Inner<'a>);

enum Inner<'a> {
    Small(small::Iter<'a>),
    Table(table::Fields<'a>),
}

impl<'a> Iterator for Iter<'a> {
    type Item = FieldRef<'a>;

    #[inline]
    fn next(&mut self) -> Option<FieldRef<'a>> {
        match &mut self.0 {
            Inner::Small(iter) => iter.next(),
            Inner::Table(iter) => iter.next().map(field::Field::view),
        }
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        match &self.0 {
            Inner::Small(iter) => iter.size_hint(),
            Inner::Table(iter) => iter.size_hint(),
        }
    }
}

impl ExactSizeIterator for Iter<'_> {}

impl<'a> IntoIterator for &'a Hash {
    type Item = FieldRef<'a>;
    type IntoIter = Iter<'a>;

    fn into_iter(self) -> Iter<'a> {
        self.iter()
    }
}

#[cfg(test)]
mod tests;
