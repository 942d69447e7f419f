//! The operations of one record or batch.

use tierce_keyspace::log::{Edit, Edits, Effect, Malformed, Op, Spilled, Stored};
use tierce_keyspace::planted::{self, Fault};
use tierce_keyspace::{CodeKind, ItemNote, Marks};

use super::commands::{Arg, Commands, push, push_newer};
use super::stream::StreamCommands;
use super::{Dialect, hash, list, set, sorted_set};
use crate::note;

/// Translation of a record, with the commands deferred until after the next operations.
pub(super) struct Translation<'r, 'c, 'o> {
    dialect: Dialect,
    commands: &'c mut Commands<'o>,
    /// Key that the last operation created anew; the next operation may continue it.
    begun: Option<Begun<'r>>,
    /// Removed keys whose values are on disk, until an operation stores these values under another key.
    taken: Vec<Taken<'r>>,
}

struct Begun<'r> {
    db: u64,
    key: &'r [u8],
    stream: Option<StreamCommands<'r>>,
    deadline_ms: Option<i64>,
}

struct Taken<'r> {
    db: u64,
    key: &'r [u8],
    spilled: Spilled,
}

impl<'r, 'c, 'o> Translation<'r, 'c, 'o> {
    pub(super) fn new(dialect: Dialect, commands: &'c mut Commands<'o>) -> Self {
        Self { dialect, commands, begun: None, taken: Vec::new() }
    }

    pub(super) fn operation(&mut self, op: &Op<'r>) -> Result<(), Malformed> {
        match *op {
            Op::Key { db, key, ref effect } => {
                let goes_on = matches!(effect, Effect::Edit { is_whole: false, .. });
                let begun = self.begun.as_ref();
                if !goes_on || begun.is_none_or(|begun| (begun.db, begun.key) != (db, key)) {
                    self.end_begun();
                }
                self.key(db, key, effect)?;
            }
            Op::Flush { db } => {
                self.end_begun();
                if !planted::is(Fault::TranslationOfFlushes) {
                    self.commands.select(db);
                }
                push!(self.commands, "FLUSHDB");
            }
            Op::Swap { a, b } => {
                self.end_begun();
                push!(self.commands, "SWAPDB", a, b);
            }
            Op::Code { kind, name, source } => {
                self.end_begun();
                self.code(kind, name, source);
            }
            // A position in the stream of another primary, which this stream does not carry.
            Op::Position(_) | Op::Restatement | Op::Cut(_) => {}
        }
        Ok(())
    }

    /// Appends the deferred commands.
    pub(super) fn finish(mut self) {
        self.end_begun();
        for Taken { db, key, .. } in std::mem::take(&mut self.taken) {
            self.commands.select(db);
            push!(self.commands, "DEL", key);
        }
    }

    #[inline]
    fn end_begun(&mut self) {
        // The common case is none. The value is large, so taking it out is slow.
        if self.begun.is_some() {
            self.end_key();
        }
    }

    fn end_key(&mut self) {
        let Some(Begun { db, key, stream, deadline_ms }) = self.begun.take() else { return };
        self.commands.select(db);
        if let Some(mut stream) = stream {
            stream.finish(self.commands);
        }
        if let Some(at_ms) = deadline_ms.filter(|_| !planted::is(Fault::TranslationOfDeadlines)) {
            push!(self.commands, "PEXPIREAT", key, at_ms);
        }
    }

    fn key(&mut self, db: u64, key: &'r [u8], effect: &Effect<'r>) -> Result<(), Malformed> {
        match *effect {
            Effect::Mark { marks, flags } => {
                self.note(db, key, flags, marks);
                return Ok(());
            }
            Effect::Taken(spilled) => {
                self.taken.push(Taken { db, key, spilled });
                return Ok(());
            }
            Effect::Spilled { spilled, .. } => return self.put_elsewhere(db, key, spilled),
            _ => {}
        }
        self.commands.select(db);
        match effect {
            Effect::Put { value, deadline_ms, attributes } => {
                self.put(key, value, *deadline_ms);
                let note = attributes.note();
                if note != ItemNote::NONE && !planted::is(Fault::TranslationOfNotes) {
                    self.note(db, key, Some(note.flags), note.marks);
                }
            }
            Effect::Remove => push!(self.commands, "DEL", key),
            Effect::Deadline(None) => push!(self.commands, "PERSIST", key),
            Effect::Deadline(Some(at_ms)) => push!(self.commands, "PEXPIREAT", key, *at_ms),
            Effect::Write { offset, bytes } => {
                push!(self.commands, "SETRANGE", key, *offset, *bytes);
            }
            Effect::Edit { is_whole, deadline_ms, edits } => {
                if *is_whole {
                    self.begin(db, key, *deadline_ms);
                }
                self.edit(key, edits, *is_whole)?;
                if let Some(at_ms) = deadline_ms.filter(|_| !is_whole) {
                    push!(self.commands, "PEXPIREAT", key, at_ms);
                }
            }
            Effect::Mark { .. } | Effect::Taken(_) | Effect::Spilled { .. } => {}
        }
        Ok(())
    }

    fn put(&mut self, key: &[u8], value: &Stored<'_>, deadline_ms: Option<i64>) {
        let value = match *value {
            Stored::Embedded(bytes) | Stored::Raw(bytes) => Arg::Bytes(bytes),
            Stored::Int(number) => Arg::Signed(number),
        };
        let (set, key) = (Arg::from("SET"), Arg::from(key));
        match deadline_ms {
            None => self.commands.push(&[set, key, value]),
            // SET accepts no time before 1970; all past times are equivalent.
            Some(at_ms) => {
                let at_ms = Arg::from(at_ms.max(1));
                self.commands.push(&[set, key, value, Arg::from("PXAT"), at_ms]);
            }
        }
    }

    /// Appends an item's flags and marks, behind its value: a replica clears them with each value.
    #[cold]
    fn note(&mut self, db: u64, key: &[u8], flags: Option<u32>, marks: Marks) {
        if self.dialect >= Dialect::Tierce {
            self.commands.select(db);
            push!(self.commands, "SETRANGE", key, note::encode(flags, marks), "");
        }
    }

    /// Stores the value of a key that was removed before.
    fn put_elsewhere(&mut self, db: u64, key: &[u8], spilled: Spilled) -> Result<(), Malformed> {
        let found = self.taken.iter().position(|taken| taken.spilled == spilled);
        let from = found
            .map(|found| self.taken.swap_remove(found))
            .ok_or(Malformed { offset: 0, what: "a value on disk that was not a key's before" })?;
        self.commands.select(from.db);
        if from.db == db {
            push!(self.commands, "RENAME", from.key, key);
        } else {
            push!(self.commands, "MOVE", from.key, db);
        }
        Ok(())
    }

    fn begin(&mut self, db: u64, key: &'r [u8], deadline_ms: Option<i64>) {
        push!(self.commands, "DEL", key);
        self.begun = Some(Begun { db, key, stream: None, deadline_ms });
    }

    fn edit(&mut self, key: &'r [u8], edits: &'r [u8], is_whole: bool) -> Result<(), Malformed> {
        let mut others = Edits::new(edits);
        match others.next() {
            Some(Ok(Edit::Stream(_))) => return self.edit_stream(key, edits, is_whole),
            Some(Ok(Edit::List(first))) => {
                if let Some([from, to]) = list::rotation(&first, others) {
                    push!(self.commands, "LMOVE", key, key, from, to);
                    return Ok(());
                }
            }
            _ => {}
        }
        let mut is_new = is_whole;
        for edit in Edits::new(edits) {
            match edit? {
                Edit::List(edit) => list::edit(key, &edit, is_new, self.commands)?,
                Edit::Set(edit) => set::edit(key, &edit, self.dialect, self.commands),
                Edit::SortedSet(edit) => sorted_set::edit(key, &edit, self.commands),
                Edit::Hash(edit) => hash::edit(key, &edit, self.dialect, self.commands),
                Edit::Stream(_) => return Err(OTHER_TYPE),
            }
            is_new = false;
        }
        Ok(())
    }

    fn edit_stream(
        &mut self,
        key: &'r [u8],
        edits: &'r [u8],
        is_whole: bool,
    ) -> Result<(), Malformed> {
        let new = || StreamCommands::new(key, is_whole, self.dialect);
        let edits = Edits::new(edits).map(|edit| match edit? {
            Edit::Stream(edit) => Ok(edit),
            _ => Err(OTHER_TYPE),
        });
        match &mut self.begun {
            Some(begun) => {
                begun.stream.get_or_insert_with(new).edits(edits, is_whole, self.commands)
            }
            None => new().edits(edits, is_whole, self.commands),
        }
    }

    fn code(&mut self, kind: CodeKind, name: &[u8], source: Option<&[u8]>) {
        match (kind, source) {
            (CodeKind::Library, _) if self.dialect < Dialect::Redis7_0 => {}
            (CodeKind::Library, Some(source)) => {
                push_newer!(self.commands, "FUNCTION", "LOAD", "REPLACE", source);
            }
            (CodeKind::Library, None) => push_newer!(self.commands, "FUNCTION", "DELETE", name),
            (CodeKind::Script, _) if self.dialect < Dialect::Tierce => {}
            (CodeKind::Script, Some(source)) => {
                push_newer!(self.commands, "SCRIPT", "REGISTER", name, source);
            }
            (CodeKind::Script, None) => push_newer!(self.commands, "SCRIPT", "UNREGISTER", name),
        }
    }
}

const OTHER_TYPE: Malformed = Malformed { offset: 0, what: "edits of several types" };
