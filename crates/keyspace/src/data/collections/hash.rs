//! Edits of hashes.
//!
//! | edit | | |
//! |---|---|---|
//! | 1 | fields | varint count; name and value of each: set to these values, without deadline |
//! | 2 | fields with deadlines | as 1, with 8 bytes of deadline after each value, 0 for none |
//! | 3 | deadline | name, 8 bytes: sets the deadline of the field, if it exists; 0 for none |
//! | 4 | remove | name: removes the field |

use tierce_collections::hash::{FieldRef, Former};
use tierce_collections::{CollectionKind, Element, Hash, IntText, SnapshotProgress};

use super::Editor;
use super::edits::{Field, Fields, code, write_element};
use super::limits::LimitCells;
use super::part::CollectionPart;
use super::sealed::Sealed;
use crate::codec::{Malformed, Reader, Writer};
use crate::planted::Fault;

const FIELDS: u8 = code(CollectionKind::Hash, 1);
const TIMED_FIELDS: u8 = code(CollectionKind::Hash, 2);
const DEADLINE: u8 = code(CollectionKind::Hash, 3);
const REMOVE: u8 = code(CollectionKind::Hash, 4);

/// Encoding of an absent deadline.
const NO_DEADLINE: u64 = 0;

/// An edit, decoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HashEdit<'a> {
    /// These fields have these values and no deadline.
    Fields(Fields<'a, (&'a [u8], &'a [u8])>),
    /// These fields have these values and deadlines.
    TimedFields(Fields<'a, TimedField<'a>>),
    /// If the field exists, it has this deadline.
    Deadline(&'a [u8], FieldDeadline),
    /// There is no such field.
    Remove(&'a [u8]),
}

/// Name and value of a field, and its deadline.
pub type TimedField<'a> = ((&'a [u8], &'a [u8]), FieldDeadline);

/// Expiry time of a field or a member, as Unix time in milliseconds, if it has one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FieldDeadline(pub Option<i64>);

impl<'a> Field<'a> for FieldDeadline {
    fn read(edit: &mut Reader<'a>) -> Result<Self, Malformed> {
        let deadline_ms = edit.fixed()?;
        Ok(Self((deadline_ms != NO_DEADLINE).then_some(deadline_ms as i64)))
    }
}

impl<'a> HashEdit<'a> {
    /// Reads an edit whose code has been read.
    pub(super) fn read(code: u8, edit: &mut Reader<'a>) -> Result<Self, Malformed> {
        Ok(match code {
            FIELDS => Self::Fields(Fields::read(edit)?),
            TIMED_FIELDS => Self::TimedFields(Fields::read(edit)?),
            DEADLINE => Self::Deadline(edit.bytes()?, FieldDeadline::read(edit)?),
            REMOVE => Self::Remove(edit.bytes()?),
            _ => return Err(edit.malformed("an edit that hashes do not have")),
        })
    }
}

impl Editor<'_, Hash> {
    /// Sets a field to a value and a deadline.
    #[inline]
    pub fn put(&mut self, name: &[u8], value: &[u8], deadline_ms: Option<i64>) -> Former {
        let former = if self.is_undoable() {
            self.put_undoable(name, value, deadline_ms)
        } else {
            self.value.put(name, value, deadline_ms, self.limits.hash())
        };
        self.record(|edits| write_field(edits, name, value, deadline_ms));
        former
    }

    /// Sets a field, and records the inverse edit.
    #[cold]
    fn put_undoable(&mut self, name: &[u8], value: &[u8], deadline_ms: Option<i64>) -> Former {
        let limits = self.limits.hash();
        let (hash, mut recorder) = self.split();
        let former = hash.put_visited(name, value, deadline_ms, limits, |old| {
            recorder.undo_by(|edits| write_field_ref(edits, old));
        });
        if former == Former::Absent {
            self.undo_by(|edits| write_removal(edits, Element::Bytes(name)));
        }
        former
    }

    /// Sets or clears the deadline of a field.
    pub fn set_deadline(&mut self, name: &[u8], deadline_ms: Option<i64>) -> Former {
        self.before(|hash, edits| write_field_of(edits, hash, name));
        let former = self.value.set_deadline(name, deadline_ms);
        if former != Former::Absent {
            self.record(|edits| {
                edits.begin(DEADLINE);
                edits.bytes(name);
                write_deadline(edits, deadline_ms);
            });
        }
        former
    }

    /// Removes a field.
    pub fn remove(&mut self, name: &[u8]) -> Former {
        let former = if self.is_undoable() {
            let (hash, mut recorder) = self.split();
            hash.remove_visited(name, |old| {
                recorder.undo_by(|edits| write_field_ref(edits, old));
            })
        } else {
            self.value.remove(name)
        };
        if former != Former::Absent {
            self.record(|edits| write_removal(edits, Element::Bytes(name)));
        }
        former
    }
}

fn write_removal(edits: &mut Writer<'_>, name: Element<'_>) {
    edits.begin(REMOVE);
    write_element(edits, name);
}

/// Appends the edit that restores a field's present state, or its absence.
fn write_field_of(edits: &mut Writer<'_>, hash: &Hash, name: &[u8]) {
    // No field has expired at this time.
    match hash.get(name, i64::MIN) {
        Some(field) => write_field_ref(edits, field),
        None => write_removal(edits, Element::Bytes(name)),
    }
}

fn write_field(edits: &mut Writer<'_>, name: &[u8], value: &[u8], deadline_ms: Option<i64>) {
    edits.begin(if deadline_ms.is_some() { TIMED_FIELDS } else { FIELDS });
    edits.count(1);
    edits.bytes(name);
    edits.bytes(value);
    if deadline_ms.is_some() {
        write_deadline(edits, deadline_ms);
    }
}

fn write_field_ref(edits: &mut Writer<'_>, field: FieldRef<'_>) {
    let (mut name, mut value) = (IntText::new(), IntText::new());
    let (name, value) = (field.name.bytes(&mut name), field.value.bytes(&mut value));
    write_field(edits, name, value, field.deadline_ms);
}

pub(super) fn write_deadline(edits: &mut Writer<'_>, deadline_ms: Option<i64>) {
    edits.fixed(deadline_ms.map_or(NO_DEADLINE, |deadline_ms| deadline_ms as u64));
}

impl Sealed for Hash {
    const FAULT_OF_UNDO: Fault = Fault::UndoOfHashes;

    fn snapshot_slice(&mut self, bytes_max: usize, edits: &mut Writer<'_>) -> SnapshotProgress {
        Hash::snapshot_slice(self, bytes_max, |field| {
            edits.measure(|edits| write_field_ref(edits, field))
        })
    }

    #[inline]
    fn next_deadline_ms(&self) -> Option<i64> {
        Hash::next_deadline_ms(self)
    }

    #[inline]
    fn is_all_due(&self, now_ms: i64) -> bool {
        Hash::is_all_due(self, now_ms)
    }

    fn deadline_after(&mut self, now_ms: i64) -> Option<i64> {
        Hash::deadline_after(self, now_ms)
    }

    fn reap(&mut self, now_ms: i64, steps: usize, mut edits: Option<&mut Vec<u8>>) -> bool {
        let mut has_changed = false;
        Hash::reap(self, now_ms, steps, |field| {
            has_changed = true;
            if let Some(edits) = edits.as_deref_mut() {
                write_removal(&mut Writer::new(edits), field.name);
            }
        });
        has_changed
    }

    fn encode(&self, edits: &mut Writer<'_>) {
        let has_deadlines = self.next_deadline_ms().is_some();
        edits.begin(if has_deadlines { TIMED_FIELDS } else { FIELDS });
        edits.count(self.len());
        for FieldRef { name, value, deadline_ms } in self {
            write_element(edits, name);
            write_element(edits, value);
            if has_deadlines {
                write_deadline(edits, deadline_ms);
            }
        }
    }

    fn encode_part(&self, mut cursor: u64, bytes_max: usize, edits: &mut Writer<'_>) -> u64 {
        let end = edits.len() + bytes_max;
        loop {
            cursor = self.scan(cursor, |field| write_field_ref(edits, field));
            if cursor == 0 || edits.len() >= end {
                return cursor;
            }
        }
    }

    fn apply(&mut self, edit: HashEdit<'_>, limits: &LimitCells) {
        match edit {
            HashEdit::Fields(fields) => {
                fields.for_each(|(name, value)| _ = self.put(name, value, None, limits.hash()));
            }
            HashEdit::TimedFields(fields) => fields.for_each(|((name, value), deadline)| {
                self.put(name, value, deadline.0, limits.hash());
            }),
            HashEdit::Deadline(name, deadline) => _ = self.set_deadline(name, deadline.0),
            HashEdit::Remove(name) => _ = self.remove(name),
        }
    }

    fn part_count(code: u8, edit: &mut Reader<'_>) -> Result<u64, Malformed> {
        match code {
            FIELDS | TIMED_FIELDS => edit.varint(),
            _ => Err(edit.malformed("an edit that is no part of a hash")),
        }
    }

    fn part<'a>(code: u8, edit: &mut Reader<'a>) -> Result<CollectionPart<'a>, Malformed> {
        let (name, value) = Field::read(edit)?;
        let deadline_ms = if code == TIMED_FIELDS { FieldDeadline::read(edit)?.0 } else { None };
        Ok(CollectionPart::Field { name, value, deadline_ms })
    }

    fn check(&self) {
        assert_eq!(self.iter().count(), self.len());
        // No field has expired at this time.
        assert!(self.iter().all(|field| self.get(&field.name.to_vec(), i64::MIN).is_some()));
    }
}
