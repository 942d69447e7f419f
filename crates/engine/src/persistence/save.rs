//! Writes a snapshot of the keyspace as RDB, to a file or to replicas.

use std::io::Write;
use std::path::{Path, PathBuf};

use tierce_collections::CollectionKind;
use tierce_keyspace::{
    CodeSet, DbIndex, ItemNote, SavedDb, SavedEntry, SavedLarge, SavedValue, Snapshot,
    SnapshotPiece, StreamPosition,
};
use tierce_rdb::{Attributes, Writer, WriterOptions};

use super::backup::Backup;
use super::code;
use super::error::SaveError;
use super::file::{Install, NewFile, Syncing};
use super::host::Host;
use super::member_deadlines::{DEADLINES_REMARK, DeadlineFields};
use super::own_files::{OwnFiles, is_replaceable};
use super::pace::Pace;
use super::snapshot_path;
use super::state::Persistence;
use super::{streams, values};
use tierce_config::{DirectiveId, Settings};

/// Result of a save.
#[derive(Clone, Copy, Debug)]
pub(super) struct Saved {
    pub(super) keys: u64,
    pub(super) bytes: u64,
}

/// Destination of a full copy that is not a file. A write may wait, and may fail to end the copy.
pub trait CopySink: Write + Send {
    /// Returns the newest format version that its readers know, if there is a limit. Newer items are left out.
    fn version_max(&self) -> Option<u16> {
        None
    }

    /// Returns the database that the replication stream after the copy has selected, if the stream does not say so
    /// itself. May wait until it is known.
    fn stream_db(&self) -> Option<DbIndex> {
        None
    }

    /// Ends the copy: all is written, or an error has occurred.
    fn end(self: Box<Self>, outcome: Result<(), &SaveError>);
}

/// Destination of a snapshot.
pub(super) enum Target {
    /// The file of `dbfilename`.
    File,
    /// The file of a backup.
    Backup(Backup),
    /// The replicas.
    Copy(Box<dyn CopySink>),
}

/// Writes `snapshot` to its destination.
pub(super) fn save(
    persistence: &Persistence,
    host: &dyn Host,
    snapshot: &mut Snapshot,
    target: Target,
) -> Result<Saved, SaveError> {
    let settings = host.settings();
    match target {
        Target::File => {
            let path = checked_path(persistence, &settings)?;
            save_file(persistence, host, snapshot, &path, Install::Replace)
        }
        Target::Backup(Backup { path, install, .. }) => {
            save_file(persistence, host, snapshot, &path, install)
        }
        Target::Copy(mut sink) => {
            let stream_db = sink.stream_db();
            let options = options_for(&host.settings(), snapshot, sink.version_max());
            let path = Path::new("full copy");
            let written = write(persistence, host, snapshot, &mut sink, path, options, stream_db);
            let written = written.map(|(_, saved)| saved);
            sink.end(written.as_ref().map(drop));
            written
        }
    }
}

fn save_file(
    persistence: &Persistence,
    host: &dyn Host,
    snapshot: &mut Snapshot,
    target: &Path,
    install: Install,
) -> Result<Saved, SaveError> {
    const INCREMENTAL: DirectiveId = DirectiveId::of("rdb-save-incremental-fsync");
    let is_incremental = host.settings().is_on(INCREMENTAL);
    let syncing = if is_incremental { Syncing::Incremental } else { Syncing::AtTheEnd };
    let file = NewFile::create(target, syncing)?;
    let path = file.path().to_owned();
    let options = options_for(&host.settings(), snapshot, None);
    let (file, saved) = write(persistence, host, snapshot, file, &path, options, None)?;
    file.install(target, install)?;
    Ok(saved)
}

/// Writes a whole snapshot and returns the writer. `path` is its name in errors. `stream_db` is the database that a
/// replication stream after it has selected.
fn write<W: Write>(
    persistence: &Persistence,
    host: &dyn Host,
    snapshot: &mut Snapshot,
    into: W,
    path: &Path,
    options: WriterOptions,
    stream_db: Option<DbIndex>,
) -> Result<(W, Saved), SaveError> {
    let settings = host.settings();
    let explain = |source| SaveError::Write { path: path.to_owned(), source };
    let writer = Writer::new(into, options).map_err(explain)?;
    let mut encoder = Encoder::new(writer, snapshot.dbs());
    encoder.remarks(host.used_memory(), b"0").map_err(explain)?;
    if let Some(position) = persistence.last_position() {
        encoder.position(&position).map_err(explain)?;
    } else if let Some(db) = stream_db {
        encoder.stream_db(db).map_err(explain)?;
    }
    encoder.code(snapshot.code()).map_err(explain)?;
    let mut pace = Pace::begin(&settings);
    let mut keys = 0;
    let is_wanted = || match persistence.is_given_up() {
        true => Err(SaveError::GivenUp),
        false => Ok(()),
    };
    loop {
        let written = match snapshot.next()? {
            None => break,
            Some(SnapshotPiece::Batch(batch)) => {
                is_wanted()?;
                batch.iter().try_for_each(|entry| encoder.entry(&entry)).map_err(explain)?;
                batch.len()
            }
            Some(SnapshotPiece::Large(large)) => {
                encoder.large(large, explain, |large| {
                    if large.is_contended() {
                        pace.make_way();
                    }
                    pace.after(1, |time| large.rest(time), persistence);
                    is_wanted()
                })?;
                1
            }
        };
        keys += written as u64;
        persistence.note_progress(keys);
        pace.after(written, |time| snapshot.rest(time), persistence);
    }
    let (into, bytes) = encoder.finish().map_err(explain)?;
    Ok((into, Saved { keys, bytes }))
}

/// Returns the path for SAVE, unless it must not be replaced.
fn checked_path(persistence: &Persistence, settings: &Settings) -> Result<PathBuf, SaveError> {
    let path = snapshot_path(settings);
    if OwnFiles::of(settings, persistence.start_dir()).has(&path) {
        let reason = "is a place of the server's own files: choose another dir or dbfilename";
        return Err(SaveError::ForbiddenPath { path, reason });
    }
    match is_replaceable(&path) {
        Ok(true) => Ok(path),
        Ok(false) => {
            let reason = "is no snapshot, and nothing else is replaced";
            Err(SaveError::ForbiddenPath { path, reason })
        }
        Err(source) => Err(SaveError::Io { action: "read", path, source }),
    }
}

fn options_for(
    settings: &Settings,
    snapshot: &Snapshot,
    version_max: Option<u16>,
) -> WriterOptions {
    const COMPRESSION: DirectiveId = DirectiveId::of("rdbcompression");
    const CHECKSUM: DirectiveId = DirectiveId::of("rdbchecksum");
    WriterOptions {
        version: version_max.unwrap_or(u16::MAX).min(values::version_for(snapshot.dbs())),
        compression: settings.is_on(COMPRESSION),
        checksum: settings.is_on(CHECKSUM),
        leave_out_unknown: version_max.is_some(),
    }
}

/// Encoder of a file, or of its equivalent for replicas.
pub struct Encoder<W> {
    writer: Writer<W>,
    /// Database of the last key.
    db: Option<DbIndex>,
    /// Databases whose sizes have not been written yet.
    dbs: Vec<SavedDb>,
}

impl<W: Write> Encoder<W> {
    /// Creates an encoder that begins with the size of each database.
    pub fn new(writer: Writer<W>, dbs: &[SavedDb]) -> Self {
        Self { writer, db: None, dbs: dbs.to_vec() }
    }

    /// Writes the auxiliary fields that Redis writes about itself; tools show them.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn remarks(&mut self, used: u64, aof_base: &[u8]) -> tierce_rdb::Result<()> {
        let seconds = crate::clock::unix_ms() / 1000;
        self.writer.aux(b"redis-ver", crate::REDIS_VERSION.as_bytes())?;
        self.writer.aux(b"redis-bits", usize::BITS.to_string().as_bytes())?;
        self.writer.aux(values::TIME_REMARK, seconds.to_string().as_bytes())?;
        self.writer.aux(b"used-mem", used.to_string().as_bytes())?;
        self.writer.aux(b"aof-base", aof_base)?;
        self.writer.aux(values::VERSION_REMARK, crate::VERSION.as_bytes())
    }

    /// Writes the replication id and offset of the data, as Redis does.
    fn position(&mut self, position: &StreamPosition) -> tierce_rdb::Result<()> {
        let StreamPosition { stream, offset, db } = position;
        self.stream_db(*db)?;
        self.writer.aux(values::STREAM_NAME_REMARK, stream)?;
        self.writer.aux(values::STREAM_OFFSET_REMARK, offset.to_string().as_bytes())
    }

    /// Writes the database that the stream after the file has selected.
    fn stream_db(&mut self, db: DbIndex) -> tierce_rdb::Result<()> {
        self.writer.aux(values::STREAM_DB_REMARK, db.get().to_string().as_bytes())
    }

    /// Writes libraries of functions and scripts. They come before all keys, where Redis looks for them.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn code(&mut self, code: &CodeSet) -> tierce_rdb::Result<()> {
        code::write(&mut self.writer, code)
    }

    /// Ends the file. Returns the writer and the length.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn finish(self) -> tierce_rdb::Result<(W, u64)> {
        let bytes = self.writer.offset();
        Ok((self.writer.finish()?, bytes))
    }

    /// Writes a key with its value.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn entry(&mut self, entry: &SavedEntry<'_>) -> tierce_rdb::Result<()> {
        self.turn_to(entry.db)?;
        if entry.item != ItemNote::NONE {
            self.writer.aux(values::ITEM_REMARK, values::item_text(entry.item).as_bytes())?;
        }
        if let SavedValue::Collection(stream) = &entry.value
            && stream.kind() == CollectionKind::Stream
        {
            let messages = streams::saved_messages(stream);
            if !messages.is_empty() {
                self.writer.aux(values::MESSAGES_REMARK, &messages)?;
            }
        }
        let mut deadlines = DeadlineFields::new(entry.db, entry.key);
        let attributes = attributes(entry.deadline_ms);
        let position = self.writer.entry(entry.key, &attributes);
        values::write(position, &entry.value, |member, at_ms| deadlines.add(member, at_ms))?;
        self.deadlines(&deadlines)
    }

    /// Writes the deadlines of the members of the set before.
    fn deadlines(&mut self, deadlines: &DeadlineFields<'_>) -> tierce_rdb::Result<()> {
        deadlines.fields.iter().try_for_each(|field| self.writer.aux(DEADLINES_REMARK, field))
    }

    /// Writes a large collection, slice by slice. `explain` converts a write error, and `after` is called after each
    /// slice.
    ///
    /// # Errors
    /// When a write or `after` fails, or the snapshot has lost the collection.
    pub fn large(
        &mut self,
        mut large: SavedLarge<'_>,
        explain: impl Fn(tierce_rdb::Error) -> SaveError,
        mut after: impl FnMut(&SavedLarge<'_>) -> Result<(), SaveError>,
    ) -> Result<(), SaveError> {
        let head = large.head().clone();
        self.turn_to(head.db).map_err(&explain)?;
        let attributes = attributes(head.deadline_ms);
        let position = self.writer.entry(&head.key, &attributes);
        let fields_ms = head.fields_ms.filter(|_| head.kind == CollectionKind::Hash);
        let mut deadlines = DeadlineFields::new(head.db, &head.key);
        let value = values::begin(position, head.kind, head.len, fields_ms);
        let mut value = value.map_err(&explain)?;
        while let Some(slice) = large.next_slice()? {
            let deadline = |member: &[u8], at_ms| deadlines.add(member, at_ms);
            values::write_elements(&mut value, &slice, deadline).map_err(&explain)?;
            after(&large)?;
        }
        value.finish().map_err(&explain)?;
        self.deadlines(&deadlines).map_err(explain)
    }

    fn turn_to(&mut self, db: DbIndex) -> tierce_rdb::Result<()> {
        if self.db == Some(db) {
            return Ok(());
        }
        self.db = Some(db);
        self.writer.select_db(db.get() as u64)?;
        if let Some(at) = self.dbs.iter().position(|size| size.db == db) {
            let SavedDb { keys, expires, .. } = self.dbs.swap_remove(at);
            self.writer.resize_db(keys, expires)?;
        }
        Ok(())
    }
}

/// Returns the attributes of a key in a file.
fn attributes(deadline_ms: Option<i64>) -> Attributes {
    // Deadlines are positive: a past one deletes its key.
    let expiry_ms = deadline_ms.map(|ms| ms.max(0) as u64);
    Attributes { expiry_ms, ..Attributes::default() }
}
