//! Edits of lists.
//!
//! Edits of other types state the new value. Edits of lists state a change at a position, so each must
//! be applied once, in order, to the list it was made for. A checkpoint that logs a large list in
//! parts therefore does not apply them to the list itself: see [`StagingLists`].
//!
//! | edit | fields | meaning |
//! |---|---|---|
//! | [`INSERT`] | index, count, elements | elements come before number index |
//! | [`REMOVE`] | index, count | this many elements go, from number index on |
//! | [`SET`] | index, element | number index is this element |
//! | [`PART`] | index, count, elements | for the staging list: these are the elements from number index on |
//! | [`ADOPT`] | | the staging list is complete, and takes the place of the list |

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use tierce_collections::{CollectionKind, Element, IntText, List, ListLimits, SnapshotProgress};

use super::access::Editor;
use super::edits::{Malformed, Reader, Writer, code};
use super::limits::LimitCells;
use super::parts::CollectionPart;
use super::sealed::Sealed;
use super::{CollectionType, collection_type, sealed_type};
use crate::db_index::DbIndex;

const KIND: CollectionKind = CollectionKind::List;

const INSERT: u8 = code(KIND, 0);
const REMOVE: u8 = code(KIND, 1);
const SET: u8 = code(KIND, 2);
const PART: u8 = code(KIND, 3);
const ADOPT: u8 = code(KIND, 4);

impl CollectionType for List {
    const KIND: CollectionKind = KIND;

    collection_type!(List);
}

/// Changing a list.
impl Editor<'_, List> {
    /// Puts elements before number `index`, in this order.
    pub fn insert<'a>(
        &mut self,
        index: usize,
        elements: impl ExactSizeIterator<Item = &'a [u8]> + Clone,
    ) {
        if elements.len() == 0 {
            return;
        }
        let index = index.min(self.value.len());
        let limits = self.make_room(elements.clone());
        for (offset, element) in elements.clone().enumerate() {
            self.value.insert(index + offset, element, limits);
        }
        let count = elements.len();
        self.record(|edits| write_insert(edits, index, elements));
        self.undo_by(|edits| write_removal(edits, index, count));
    }

    /// Prepares for these elements, and returns the limits that they are added under.
    #[inline]
    fn make_room<'a>(&mut self, elements: impl ExactSizeIterator<Item = &'a [u8]>) -> ListLimits {
        let limits = self.limits.list();
        let (count, bytes) = (elements.len(), elements.map(<[u8]>::len).sum());
        self.value.make_room(count, bytes, limits);
        limits
    }

    /// Puts elements at the end, in this order.
    pub fn push_back<'a>(&mut self, elements: impl ExactSizeIterator<Item = &'a [u8]> + Clone) {
        self.insert(self.value.len(), elements);
    }

    /// Puts elements at the beginning one after the other, so that the last one is the first then.
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
        self.record(|edits| write_insert(edits, 0, elements.rev()));
        self.undo_by(|edits| write_removal(edits, 0, count));
    }

    /// Removes `count` elements from number `index` on, or those that there are. Returns how many.
    pub fn remove(&mut self, index: usize, count: usize) -> usize {
        self.before(|list, edits| {
            edits.begin(INSERT);
            edits.count(index);
            let count = count.min(list.len().saturating_sub(index));
            write_elements(edits, count, list.iter_from(index.min(list.len())).take(count));
        });
        let removed = self.value.remove(index, count, self.limits.list());
        if removed > 0 {
            self.record(|edits| write_removal(edits, index, removed));
        }
        removed
    }

    /// Puts `element` in the place of number `index`; `false` if there is none.
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

/// Identifies the logging of a large list in parts, see [`List::visited_prefix`].
static PASSES: AtomicU64 = AtomicU64::new(1);

impl Sealed for List {
    sealed_type!(List);
    fn noted_prefix(&self) -> Option<(u64, usize)> {
        List::noted_prefix(self)
    }

    fn set_noted_prefix(&self, owner: u64, len: usize) {
        // A list that has become a single block has nowhere to note it, and no need.
        _ = self.set_visited_prefix(owner, len);
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

    /// The cursor only identifies the pass: how far it is the list remembers, because edits before that
    /// point move it. A list that knows nothing of the pass is another one, and it begins anew.
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
        // A list of one block has nowhere to remember how far the pass is; it is logged at once.
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

    /// The cursor is the number of elements that came before.
    fn encode_chunk(&self, cursor: u64, bytes_max: usize, edits: &mut Writer<'_>) -> u64 {
        let from = cursor as usize;
        let count = count_of(self, from, bytes_max);
        edits.begin(INSERT);
        edits.count(from);
        write_elements(edits, count, self.iter_from(from).take(count));
        let next = from + count;
        if next < self.len() { next as u64 } else { 0 }
    }

    fn apply(
        &mut self,
        code: u8,
        edit: &mut Reader<'_>,
        limits: &LimitCells,
    ) -> Result<(), Malformed> {
        let limits = limits.list();
        match code {
            INSERT => {
                let index = index(edit)?.min(self.len());
                for offset in 0..edit.varint()? {
                    self.insert(index + offset as usize, edit.bytes()?, limits);
                }
            }
            REMOVE => {
                let (index, count) = (index(edit)?, self::index(edit)?);
                self.remove(index, count, limits);
            }
            SET => {
                let index = index(edit)?;
                self.set(index, edit.bytes()?, limits);
            }
            PART => {
                index(edit)?;
                for _ in 0..edit.varint()? {
                    edit.bytes()?;
                }
            }
            ADOPT => {}
            _ => return Err(edit.malformed("an unknown edit of a list")),
        }
        Ok(())
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
}

/// How many elements from this one on take about this many bytes.
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

fn write_insert<'a>(
    edits: &mut Writer<'_>,
    index: usize,
    elements: impl ExactSizeIterator<Item = &'a [u8]>,
) {
    edits.begin(INSERT);
    edits.count(index);
    edits.count(elements.len());
    elements.for_each(|element| edits.bytes(element));
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

/// A number of elements; one that no list reaches becomes the largest there is.
fn index(edit: &mut Reader<'_>) -> Result<usize, Malformed> {
    Ok(usize::try_from(edit.varint()?).unwrap_or(usize::MAX))
}

/// Whether edits are a part of a large list, which is not for the list itself.
pub(crate) fn is_part(edits: &[u8]) -> bool {
    edits.first() == Some(&PART)
}

/// The lists that the log gives in parts, between edits of these lists, while it is read.
///
/// A staging list holds the elements that parts have brought so far, which are the first ones of the list. An
/// edit that was made between two parts is applied to it as far as it concerns those: what lies behind
/// them is in a part to come. The writer moved the number of elements logged in the same way
/// ([`List::visited_prefix`]), so the next part begins where the staging list ends.
#[derive(Debug, Default)]
pub(crate) struct StagingLists {
    lists: HashMap<(DbIndex, Vec<u8>), List>,
}

impl StagingLists {
    /// Forgets those of a database, whose lists are gone, or in another database.
    pub(crate) fn forget_all_of(&mut self, db: DbIndex) {
        self.lists.retain(|(of, _), _| *of != db);
    }

    /// Forgets that of a key whose list is gone.
    pub(crate) fn forget(&mut self, db: DbIndex, key: &[u8]) {
        if !self.lists.is_empty() {
            self.lists.remove(&(db, key.to_vec()));
        }
    }

    /// Applies edits to the staging list of a key, if there is one or they begin one. Returns the list if it
    /// is complete with them.
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
            match edits.byte()? {
                PART => apply_part(&mut staged, &mut edits, limits)?,
                ADOPT => complete = staged.take(),
                code => apply_to_prefix(staged.as_mut(), code, &mut edits, limits)?,
            }
        }
        if let Some(staged) = staged {
            self.lists.insert(key, staged);
        }
        Ok(complete)
    }
}

fn apply_part(
    staged: &mut Option<List>,
    part: &mut Reader<'_>,
    limits: &LimitCells,
) -> Result<(), Malformed> {
    let index = index(part)?;
    if index == 0 {
        *staged = Some(List::new());
    } else if staged.as_ref().is_some_and(|staged| staged.len() != index) {
        // Not the rest of what is there.
        *staged = None;
    }
    for _ in 0..part.varint()? {
        let element = part.bytes()?;
        if let Some(staged) = staged {
            staged.push_back(element, limits.list());
        }
    }
    Ok(())
}

/// Applies an edit of the list to its first elements.
fn apply_to_prefix(
    prefix: Option<&mut List>,
    code: u8,
    edit: &mut Reader<'_>,
    limits: &LimitCells,
) -> Result<(), Malformed> {
    match prefix {
        Some(prefix) if code != INSERT || index(&mut edit.clone())? < prefix.len() => {
            prefix.apply(code, edit, limits)
        }
        // It is read, and changes nothing.
        _ => List::new().apply(code, edit, limits),
    }
}
