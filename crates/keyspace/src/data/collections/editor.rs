//! A collection while it is edited.

use std::ops::Deref;

use super::limits::LimitCells;
use crate::codec::Writer;

/// A collection that is being edited: it offers the reads of the collection, and records changes.
pub struct Editor<'a, T> {
    pub(crate) value: &'a mut T,
    pub(crate) limits: &'a LimitCells,
    /// Buffer for recorded edits, if they must be recorded.
    pub(crate) edits: Option<&'a mut Vec<u8>>,
    /// Buffer for inverse edits, if a rollback may need them.
    pub(crate) inverse: Option<&'a mut Vec<u8>>,
    pub(crate) has_changed: bool,
    /// True if clients that wait for the key may find something now.
    pub(crate) serves_waiters: bool,
}

impl<T> Editor<'_, T> {
    /// Notes that clients waiting for the key may be served after this change. Clients often wait for an existing
    /// stream, and hardly ever for an existing list or sorted set: edits of these serve nobody unless a client waits
    /// for edits.
    #[inline]
    pub fn serve_waiters(&mut self) {
        self.serves_waiters = true;
    }

    /// Returns true if inverse edits are recorded.
    #[inline]
    pub(super) fn is_undoable(&self) -> bool {
        self.inverse.is_some()
    }

    /// Records inverse edits before a change; `write` states them.
    #[inline]
    pub(super) fn before(&mut self, write: impl FnOnce(&T, &mut Writer<'_>)) {
        if let Some(inverse) = &mut self.inverse {
            push_chunk(inverse, |edits| write(self.value, edits));
        }
    }

    /// Records inverse edits after a change.
    #[inline]
    pub(super) fn undo_by(&mut self, write: impl FnOnce(&mut Writer<'_>)) {
        self.split().1.undo_by(write);
    }

    /// Records a change; `write` states it as an edit.
    #[inline]
    pub(super) fn record(&mut self, write: impl FnOnce(&mut Writer<'_>)) {
        self.split().1.record(write);
    }
}

impl<T> Editor<'_, T> {
    /// Returns the value and its recorder separately, to record while the value changes.
    pub(super) fn split(&mut self) -> (&mut T, Recorder<'_>) {
        let recorder = Recorder {
            edits: self.edits.as_deref_mut(),
            inverse: self.inverse.as_deref_mut(),
            has_changed: &mut self.has_changed,
        };
        (self.value, recorder)
    }
}

/// Recorder of an editor.
pub(super) struct Recorder<'a> {
    edits: Option<&'a mut Vec<u8>>,
    inverse: Option<&'a mut Vec<u8>>,
    has_changed: &'a mut bool,
}

impl Recorder<'_> {
    /// See [`Editor::undo_by`].
    #[inline]
    pub(super) fn undo_by(&mut self, write: impl FnOnce(&mut Writer<'_>)) {
        if let Some(inverse) = &mut self.inverse {
            push_chunk(inverse, write);
        }
    }

    /// See [`Editor::record`].
    #[inline]
    pub(super) fn record(&mut self, write: impl FnOnce(&mut Writer<'_>)) {
        *self.has_changed = true;
        if let Some(edits) = &mut self.edits {
            write(&mut Writer::new(edits));
        }
    }
}

impl<T> Deref for Editor<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        self.value
    }
}

/// Appends a chunk of inverse edits.
#[cold]
#[inline(never)]
pub(crate) fn push_chunk(edits: &mut Vec<u8>, write: impl FnOnce(&mut Writer<'_>)) {
    let start = edits.len();
    write(&mut Writer::new(edits));
    let len = (edits.len() - start) as u64;
    edits.extend_from_slice(&len.to_le_bytes());
}
