//! Edits of lists.
//!
//! Edits of other types state the new value. Edits of lists state a change at a position, so each must be applied
//! exactly once, in order, to the list it was made for. So a checkpoint that logs a large list in parts does not
//! apply the parts to the list itself: see [`StagingLists`].
//!
//! | edit | fields | meaning |
//! |---|---|---|
//! | [`INSERT`] | index, count, elements | inserts elements before number index |
//! | [`REMOVE`] | index, count | removes this many elements from number index on |
//! | [`SET`] | index, element | replaces number index by the element |
//! | [`PART`] | index, count, elements | elements of the staging list from number index on |
//! | [`ADOPT`] | | the staging list is complete, and replaces the list |
//! | [`PUSH_BACK`] | count, elements | appends elements |
//! | [`POP_BACK`] | index, count | removes the last elements, this many from number index on |
//! | [`ADJACENT`] | index, side, neighbour, element | inserts before index, next to the first match |
//! | [`EQUAL`] | from, element, count, indexes | removes these in turn: the first or last ones equal to the element |
//!
//! [`INSERT`] and [`REMOVE`] could express [`PUSH_BACK`] to [`EQUAL`], too. But a reader without the list, such as a
//! translator from the log to commands, needs to know the meaning of the numbers.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use tierce_collections::{CollectionKind, Element, IntText, List, ListLimits, SnapshotProgress};

use super::Editor;
use super::edits::{Field, Fields, code};
use super::limits::LimitCells;
use super::part::CollectionPart;
use super::sealed::Sealed;
use crate::codec::{Malformed, Reader, Writer};
use crate::db_index::DbIndex;
use crate::planted::Fault;

const KIND: CollectionKind = CollectionKind::List;

const INSERT: u8 = code(KIND, 0);
const REMOVE: u8 = code(KIND, 1);
const SET: u8 = code(KIND, 2);
const PART: u8 = code(KIND, 3);
const ADOPT: u8 = code(KIND, 4);
const PUSH_BACK: u8 = code(KIND, 5);
const POP_BACK: u8 = code(KIND, 6);
const ADJACENT: u8 = code(KIND, 7);
const EQUAL: u8 = code(KIND, 8);

/// A side of an element, and an end of a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ListSide {
    /// Before the element; the beginning.
    Front = 0,
    /// After the element; the end.
    Back = 1,
}

impl<'a> Field<'a> for ListSide {
    fn read(edit: &mut Reader<'a>) -> Result<Self, Malformed> {
        match edit.byte()? {
            0 => Ok(Self::Front),
            1 => Ok(Self::Back),
            _ => Err(edit.malformed("an unknown side")),
        }
    }
}

/// An edit, decoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ListEdit<'a> {
    /// Inserts elements before number `index`.
    Insert {
        /// Number of an existing element, or the length.
        index: usize,
        /// New elements.
        elements: Fields<'a, &'a [u8]>,
    },
    /// Removes elements.
    Remove {
        /// Number of the first one.
        index: usize,
        /// Number of elements.
        count: usize,
    },
    /// Replaces an element.
    Set {
        /// Number of the element.
        index: usize,
        /// New element.
        element: &'a [u8],
    },
    /// Elements of a list that a checkpoint logs in parts.
    Part {
        /// Number of the first one.
        index: usize,
        /// The elements.
        elements: Fields<'a, &'a [u8]>,
    },
    /// Makes the staging list the list.
    Adopt,
    /// Appends elements.
    PushBack(Fields<'a, &'a [u8]>),
    /// Removes the last elements.
    PopBack {
        /// Number of the first one.
        index: usize,
        /// Number of elements.
        count: usize,
    },
    /// Inserts an element next to the first one that equals `neighbour`.
    Adjacent {
        /// Number before which it is inserted.
        index: usize,
        /// Side of the neighbour.
        side: ListSide,
        /// Element next to it.
        neighbour: &'a [u8],
        /// New element.
        element: &'a [u8],
    },
    /// Removes the first or last elements that equal this one.
    Equal {
        /// End from which they are counted.
        from: ListSide,
        /// Element that they equal.
        element: &'a [u8],
        /// Their numbers, in the descending order of removal.
        indexes: Fields<'a, usize>,
    },
}

impl<'a> ListEdit<'a> {
    /// Reads an edit whose code has been read.
    pub(super) fn read(code: u8, edit: &mut Reader<'a>) -> Result<Self, Malformed> {
        Ok(match code {
            INSERT => Self::Insert { index: Field::read(edit)?, elements: Fields::read(edit)? },
            REMOVE => Self::Remove { index: Field::read(edit)?, count: Field::read(edit)? },
            SET => Self::Set { index: Field::read(edit)?, element: edit.bytes()? },
            PART => Self::Part { index: Field::read(edit)?, elements: Fields::read(edit)? },
            ADOPT => Self::Adopt,
            PUSH_BACK => Self::PushBack(Fields::read(edit)?),
            POP_BACK => Self::PopBack { index: Field::read(edit)?, count: Field::read(edit)? },
            ADJACENT => Self::Adjacent {
                index: Field::read(edit)?,
                side: Field::read(edit)?,
                neighbour: edit.bytes()?,
                element: edit.bytes()?,
            },
            EQUAL => Self::Equal {
                from: Field::read(edit)?,
                element: edit.bytes()?,
                indexes: Fields::read(edit)?,
            },
            _ => return Err(edit.malformed("an unknown edit of a list")),
        })
    }

    /// Returns true if it does not affect the first `len` elements of the list.
    fn is_behind(&self, len: usize) -> bool {
        match *self {
            Self::Insert { index, .. } | Self::Adjacent { index, .. } => index >= len,
            Self::PushBack(_) => true,
            // An absent element cannot be removed.
            _ => false,
        }
    }
}

/// Methods to change a list.
impl Editor<'_, List> {
    /// Inserts elements before number `index`, in this order. In the middle of the list, a translated command cannot
    /// express that: see [`Editor::insert_adjacent`].
    pub fn insert<'a>(
        &mut self,
        index: usize,
        elements: impl ExactSizeIterator<Item = &'a [u8]> + Clone,
    ) {
        if elements.len() == 0 {
            return;
        }
        let len = self.value.len();
        let index = index.min(len);
        let limits = self.make_room(elements.clone());
        for (offset, element) in elements.clone().enumerate() {
            self.value.insert(index + offset, element, limits);
        }
        let count = elements.len();
        self.record(|edits| {
            if index == len {
                edits.begin(PUSH_BACK);
            } else {
                edits.begin(INSERT);
                edits.count(index);
            }
            edits.count(count);
            elements.for_each(|element| edits.bytes(element));
        });
        self.undo_by(|edits| write_removal(edits, index, count));
    }

    /// Inserts an element next to the first one that equals `neighbour`. Returns true if there is one.
    pub fn insert_adjacent(&mut self, side: ListSide, neighbour: &[u8], element: &[u8]) -> bool {
        let equal = Element::compact(neighbour);
        let Some(found) = self.value.iter().position(|other| other == equal) else { return false };
        let index = found + side as usize;
        let limits = self.make_room(std::iter::once(element));
        self.value.insert(index, element, limits);
        self.record(|edits| {
            edits.begin(ADJACENT);
            edits.count(index);
            edits.byte(side as u8);
            edits.bytes(neighbour);
            edits.bytes(element);
        });
        self.undo_by(|edits| write_removal(edits, index, 1));
        true
    }

    /// Prepares the list for these elements, and returns the limits that apply. A single element needs no preparation.
    #[inline]
    fn make_room<'a>(&mut self, elements: impl ExactSizeIterator<Item = &'a [u8]>) -> ListLimits {
        let (limits, count) = (self.limits.list(), elements.len());
        if count > 1 {
            self.value.make_room(count, elements.map(<[u8]>::len).sum(), limits);
        }
        limits
    }

    /// Appends elements, in this order.
    pub fn push_back<'a>(&mut self, elements: impl ExactSizeIterator<Item = &'a [u8]> + Clone) {
        self.insert(self.value.len(), elements);
    }

    /// Prepends elements one after the other, so that the last one becomes the first.
    pub fn push_front<'a, I>(&mut self, elements: I)
    where
        I: DoubleEndedIterator<Item = &'a [u8]> + ExactSizeIterator + Clone,
    {
        if elements.len() == 0 {
            return;
        }
        let limits = self.make_room(elements.clone());
        elements.clone().for_each(|element| self.value.push_front(element, limits));
        let count = elements.len();
        self.record(|edits| {
            edits.begin(INSERT);
            edits.count(0);
            edits.count(count);
            elements.rev().for_each(|element| edits.bytes(element));
        });
        self.undo_by(|edits| write_removal(edits, 0, count));
    }

    /// Removes up to `count` elements from number `index` on. Returns their number. In the middle of the list, a
    /// translated command cannot express that: see [`Editor::remove_equal`].
    pub fn remove(&mut self, index: usize, count: usize) -> usize {
        let removed = self.take_out(index, count);
        if removed > 0 {
            let is_at_end = index > 0 && index == self.value.len();
            self.record(|edits| {
                edits.begin(if is_at_end { POP_BACK } else { REMOVE });
                edits.count(index);
                edits.count(removed);
            });
        }
        removed
    }

    /// Removes the first or last elements that equal `element`, at most `count_max`. Returns their number.
    pub fn remove_equal(&mut self, from: ListSide, element: &[u8], count_max: usize) -> usize {
        let indexes = indexes_of(self.value, from, Element::compact(element), count_max);
        for run in indexes.chunk_by(|later, earlier| *later == earlier + 1) {
            self.take_out(run[run.len() - 1], run.len());
        }
        if !indexes.is_empty() {
            self.record(|edits| {
                edits.begin(EQUAL);
                edits.byte(from as u8);
                edits.bytes(element);
                edits.count(indexes.len());
                indexes.iter().for_each(|index| edits.count(*index));
            });
        }
        indexes.len()
    }

    /// Removes elements without recording an edit.
    fn take_out(&mut self, index: usize, count: usize) -> usize {
        self.before(|list, edits| {
            edits.begin(INSERT);
            edits.count(index);
            let count = count.min(list.len().saturating_sub(index));
            write_elements(edits, count, list.iter_from(index.min(list.len())).take(count));
        });
        self.value.remove(index, count, self.limits.list())
    }

    /// Replaces element number `index`; `false` if there is none.
    pub fn set(&mut self, index: usize, element: &[u8]) -> bool {
        let limits = self.limits.list();
        let (list, mut recorder) = self.split();
        let is_there = list.set_visited(index, element, limits, |old| {
            recorder.undo_by(|edits| {
                edits.begin(SET);
                edits.count(index);
                edits.bytes(old.bytes(&mut IntText::new()));
            });
        });
        if is_there {
            self.record(|edits| {
                edits.begin(SET);
                edits.count(index);
                edits.bytes(element);
            });
        }
        is_there
    }
}

/// Source of identities of passes that log a large list in parts, see [`List::visited_prefix`].
static PASSES: AtomicU64 = AtomicU64::new(1);

impl Sealed for List {
    const FAULT_OF_UNDO: Fault = Fault::UndoOfLists;

    fn noted_prefix(&self) -> Option<(u64, usize)> {
        List::noted_prefix(self)
    }

    fn restore_large(&mut self, noted_prefix: Option<(u64, usize)>) {
        self.become_large();
        if let Some((owner, len)) = noted_prefix {
            self.set_visited_prefix(owner, len);
        }
    }

    fn snapshot_slice(&mut self, bytes_max: usize, edits: &mut Writer<'_>) -> SnapshotProgress {
        List::snapshot_slice(self, bytes_max, |element| {
            edits.measure(|edits| {
                edits.begin(INSERT);
                edits.count(0);
                write_elements(edits, 1, std::iter::once(element));
            })
        })
    }

    fn encode(&self, edits: &mut Writer<'_>) {
        edits.begin(INSERT);
        edits.count(0);
        write_elements(edits, self.len(), self.iter());
    }

    /// The cursor only identifies the pass. The list remembers its progress, because edits before that point move it.
    /// If a list does not know the pass, it is another list, and the pass begins again.
    fn encode_part(&self, cursor: u64, bytes_max: usize, edits: &mut Writer<'_>) -> u64 {
        let (pass, logged) = match self.visited_prefix(cursor) {
            Some(logged) if cursor != 0 => (cursor, logged),
            _ => (PASSES.fetch_add(1, Relaxed), 0),
        };
        let count = count_of(self, logged, bytes_max);
        edits.begin(PART);
        edits.count(logged);
        write_elements(edits, count, self.iter_from(logged).take(count));
        let logged = logged + count;
        // A list of one block cannot remember the progress of a pass; it is logged at once.
        if logged == self.len() || !self.set_visited_prefix(pass, logged) {
            let rest = self.len() - logged;
            if rest > 0 {
                edits.begin(PART);
                edits.count(logged);
                write_elements(edits, rest, self.iter_from(logged));
            }
            edits.begin(ADOPT);
            return 0;
        }
        pass
    }

    /// The cursor is the number of elements before the chunk.
    fn encode_chunk(&self, cursor: u64, bytes_max: usize, edits: &mut Writer<'_>) -> u64 {
        let from = cursor as usize;
        let count = count_of(self, from, bytes_max);
        edits.begin(PUSH_BACK);
        write_elements(edits, count, self.iter_from(from).take(count));
        let next = from + count;
        if next < self.len() { next as u64 } else { 0 }
    }

    fn apply(&mut self, edit: ListEdit<'_>, limits: &LimitCells) {
        apply(self, &edit, limits.list());
    }

    fn part_count(code: u8, edit: &mut Reader<'_>) -> Result<u64, Malformed> {
        if code != INSERT {
            return Err(edit.malformed("an edit that makes no list"));
        }
        edit.varint()?;
        edit.varint()
    }

    fn part<'a>(_code: u8, edit: &mut Reader<'a>) -> Result<CollectionPart<'a>, Malformed> {
        edit.bytes().map(CollectionPart::Element)
    }

    fn check(&self) {
        assert_eq!(self.iter().count(), self.len());
        for (index, element) in self.iter().enumerate() {
            assert_eq!(self.get(index).map(|found| found.to_vec()), Some(element.to_vec()));
        }
        assert_eq!(self.rev_iter_from(self.len()).count(), self.len());
    }
}

/// Applies an edit, as far as the list has the elements that it names.
fn apply(list: &mut List, edit: &ListEdit<'_>, limits: ListLimits) {
    match *edit {
        ListEdit::Insert { index, elements } => {
            let index = index.min(list.len());
            for (offset, element) in elements.enumerate() {
                list.insert(index + offset, element, limits);
            }
        }
        ListEdit::Remove { index, count } | ListEdit::PopBack { index, count } => {
            list.remove(index, count, limits);
        }
        ListEdit::Set { index, element } => _ = list.set(index, element, limits),
        ListEdit::PushBack(elements) => {
            elements.for_each(|element| list.push_back(element, limits));
        }
        ListEdit::Adjacent { index, element, .. } => {
            list.insert(index.min(list.len()), element, limits);
        }
        ListEdit::Equal { indexes, .. } => {
            indexes.for_each(|index| _ = list.remove(index, 1, limits));
        }
        ListEdit::Part { .. } | ListEdit::Adopt => {}
    }
}

/// Returns the positions of the first or last elements that equal `wanted`, at most `count_max`. In descending order,
/// so that removing one does not move the next.
fn indexes_of(list: &List, from: ListSide, wanted: Element<'_>, count_max: usize) -> Vec<usize> {
    let equal = |(at, element): (usize, Element<'_>)| (element == wanted).then_some(at);
    if from == ListSide::Back {
        let last = list.len().saturating_sub(1);
        let found = list.rev_iter_from(list.len()).enumerate().filter_map(equal);
        return found.take(count_max).map(|from_end| last - from_end).collect();
    }
    let mut indexes: Vec<_> = list.iter().enumerate().filter_map(equal).take(count_max).collect();
    indexes.reverse();
    indexes
}

/// Returns the number of elements from this one on that take about this many bytes.
fn count_of(list: &List, from: usize, bytes_max: usize) -> usize {
    let (mut count, mut bytes) = (0, 0);
    for element in list.iter_from(from) {
        count += 1;
        bytes += element.len() + 1;
        if bytes >= bytes_max {
            break;
        }
    }
    count
}

fn write_removal(edits: &mut Writer<'_>, index: usize, count: usize) {
    edits.begin(REMOVE);
    edits.count(index);
    edits.count(count);
}

fn write_elements<'a>(
    edits: &mut Writer<'_>,
    count: usize,
    elements: impl Iterator<Item = Element<'a>>,
) {
    edits.count(count);
    let mut text = IntText::new();
    for element in elements {
        edits.bytes(element.bytes(&mut text));
    }
}

/// Returns true if edits are a part of a large list, and so not for the list itself.
pub(crate) fn is_part(edits: &[u8]) -> bool {
    edits.first() == Some(&PART)
}

/// Lists that the log gives in parts, mixed with edits of these lists, while it is read.
///
/// A staging list has the first elements of a list, from the parts so far. An edit between two parts is applied to it
/// as far as it affects these elements; later elements come with later parts. The writer adjusts the number of logged
/// elements in the same way ([`List::visited_prefix`]), so the next part begins at the end of the staging list.
#[derive(Debug, Default)]
pub(crate) struct StagingLists {
    lists: HashMap<(DbIndex, Vec<u8>), List>,
}

impl StagingLists {
    /// Forgets the staging lists of a database whose lists are gone or were moved to another database.
    pub(crate) fn forget_all_of(&mut self, db: DbIndex) {
        self.lists.retain(|(of, _), _| *of != db);
    }

    /// Forgets the staging list of a key whose list is gone.
    pub(crate) fn forget(&mut self, db: DbIndex, key: &[u8]) {
        if !self.lists.is_empty() {
            self.lists.remove(&(db, key.to_vec()));
        }
    }

    /// Applies edits to the staging list of a key, if there is one or they begin one. Returns the list if it is
    /// complete.
    ///
    /// # Errors
    ///
    /// If they are no edits of a list.
    pub(crate) fn apply(
        &mut self,
        db: DbIndex,
        key: &[u8],
        edits: &[u8],
        limits: &LimitCells,
    ) -> Result<Option<List>, Malformed> {
        if self.lists.is_empty() && !is_part(edits) {
            return Ok(None);
        }
        let key = (db, key.to_vec());
        let mut staged = self.lists.remove(&key);
        if staged.is_none() && !is_part(edits) {
            return Ok(None);
        }
        let (mut edits, mut complete) = (Reader::new(edits), None);
        while !edits.is_at_end() {
            let code = edits.byte()?;
            let edit = ListEdit::read(code, &mut edits)?;
            match edit {
                ListEdit::Part { index, elements } => {
                    apply_part(&mut staged, index, elements, limits.list());
                }
                ListEdit::Adopt => complete = staged.take(),
                _ => {
                    if let Some(prefix) = &mut staged
                        && !edit.is_behind(prefix.len())
                    {
                        apply(prefix, &edit, limits.list());
                    }
                }
            }
        }
        if let Some(staged) = staged {
            self.lists.insert(key, staged);
        }
        Ok(complete)
    }
}

fn apply_part<'a>(
    staged: &mut Option<List>,
    index: usize,
    elements: impl Iterator<Item = &'a [u8]>,
    limits: ListLimits,
) {
    if index == 0 {
        *staged = Some(List::new());
    } else if staged.as_ref().is_some_and(|staged| staged.len() != index) {
        // These are not the rest of the present staging list.
        *staged = None;
    }
    if let Some(staged) = staged {
        elements.for_each(|element| staged.push_back(element, limits));
    }
}
