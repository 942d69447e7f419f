//! Loads an RDB file into a keyspace: this thread stores the values that another one reads ([`batches`]).

use std::collections::HashSet;
use std::fmt::Display;
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;
use std::time::Instant;

use tierce_keyspace::Error::ValueTooLong;
use tierce_keyspace::{
    CodeKind, DbIndex, ItemNote, Keyspace, Options, STREAM_NAME_LEN, ShardLocks,
};
use tierce_rdb::{Entry, Error, Event, Kind, Reader, ValuePart};

use super::batches::{self, KeyFacts, Outgoing, Progress, Storer};
use super::code::{self, NamedScript};
use super::error::LoadError;
use super::member_deadlines::MemberDeadlines;
use super::unfit::{Unfit, lacking, too_long};
use super::values::{self, Assembly, Flaw, Remark};
use crate::loading::Loading;
use crate::log::Log;
use tierce_config::LogLevel;

/// Result of a load.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LoadReport {
    /// Number of loaded keys.
    pub keys: u64,
    /// Keys that were left out because they had expired.
    pub expired: u64,
    /// Keys that were left out because their collection has no elements.
    pub empty: u64,
    /// Database that the replication stream after a full copy has selected.
    pub stream_db: usize,
    /// Replication id and offset of the data, if the file has both. `None` if anything was left out, because it had
    /// expired or is not supported.
    pub stream: Option<([u8; STREAM_NAME_LEN], u64)>,
}

/// Names of the items in a file.
#[derive(Default)]
pub(crate) struct Names {
    /// Keys, with their databases.
    pub(crate) keys: HashSet<(DbIndex, Vec<u8>)>,
    /// Libraries of functions and scripts.
    pub(crate) code: HashSet<(CodeKind, Vec<u8>)>,
}

/// Treatment of the values that are read.
pub(crate) enum Purpose<'n> {
    /// They are stored at the start of a server, which follows the progress.
    LoadAtStart(&'n Loading),
    /// They are stored.
    Load,
    /// They are stored, and their names are recorded.
    LoadAndNote(&'n mut Names),
    /// They are only checked: a caller that must not stop halfway checks the whole file first.
    Verify,
}

/// Source of a load: a file or a byte stream.
pub struct Source<'s> {
    /// Name in errors.
    pub name: &'s Path,
    /// The bytes, in order.
    pub bytes: Box<dyn Read + Send + 's>,
    /// Number of bytes, including related data after them, as the base of progress reports.
    pub len: u64,
    /// Latest plausible time of writing, in Unix milliseconds; a later one in the source is not believed.
    written_ms_max: i64,
}

impl<'s> Source<'s> {
    /// Creates a source from a byte stream of another engine. The time of writing does not matter, because expired keys
    /// are loaded too.
    pub fn arriving(name: &'s Path, bytes: impl Read + Send + 's, len: u64) -> Self {
        Self { name, bytes: Box::new(bytes), len, written_ms_max: i64::MIN }
    }

    /// Opens a file. Returns `None` if it does not exist.
    fn file(path: &'s Path) -> Result<Option<Self>, LoadError> {
        let failed = |source| LoadError::Io { path: path.to_owned(), source };
        let file = match File::open(path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(failed(error)),
        };
        let metadata = file.metadata().map_err(failed)?;
        let (len, written_ms_max) = (metadata.len(), values::written_ms_max(&metadata));
        Ok(Some(Self { name: path, bytes: Box::new(file), len, written_ms_max }))
    }
}

/// Loads the file at `path` into `keyspace`. Returns `None` if the file does not exist. An existing key is replaced.
///
/// `verifies` makes a wrong checksum an error, and `unfit` is the policy for unsupported items. `loading` gets the
/// progress.
///
/// # Errors
/// When the file is damaged, or has something unsupported, or the load was aborted. Earlier parts of the file are
/// loaded then.
pub fn load(
    path: &Path,
    keyspace: &Keyspace,
    log: &Log,
    verifies: bool,
    unfit: Unfit,
    loading: &Loading,
) -> Result<Option<LoadReport>, LoadError> {
    let purpose = Purpose::LoadAtStart(loading);
    read(path, &mut keyspace.locks(), log, verifies, purpose, unfit)
}

/// Reads the file at `path` as [`load`] does without storing anything. Returns the number of keys.
///
/// # Errors
/// Those of [`load`], and when the file does not exist.
pub(crate) fn verify(path: &Path, databases: usize) -> Result<u64, LoadError> {
    let failed = |source| LoadError::Io { path: path.to_owned(), source };
    let options = Options { databases, shards: 1, ..Options::default() };
    let keyspace = Keyspace::new(options).map_err(|error| failed(io::Error::other(error)))?;
    let log = Log::open(None, LogLevel::Nothing).expect("nothing is opened");
    let read = read(path, &mut keyspace.locks(), &log, true, Purpose::Verify, Unfit::Refuse)?;
    read.map(|report| report.keys).ok_or_else(|| failed(io::ErrorKind::NotFound.into()))
}

/// Loads a file as [`load`] does with given shard locks, which may cover all shards.
pub(crate) fn read(
    path: &Path,
    locks: &mut ShardLocks<'_>,
    log: &Log,
    verifies: bool,
    purpose: Purpose<'_>,
    unfit: Unfit,
) -> Result<Option<LoadReport>, LoadError> {
    let Some(source) = Source::file(path)? else { return Ok(None) };
    let now_ms = crate::clock::unix_ms();
    read_source(source, locks, log, verifies, purpose, unfit, now_ms).map(Some)
}

/// Loads a file with its expired keys, for a server that leaves all expiry decisions to another one.
pub(crate) fn read_all(
    path: &Path,
    locks: &mut ShardLocks<'_>,
    log: &Log,
    purpose: Purpose<'_>,
    unfit: Unfit,
) -> Result<Option<LoadReport>, LoadError> {
    let Some(source) = Source::file(path)? else { return Ok(None) };
    read_source(source, locks, log, true, purpose, unfit, i64::MIN).map(Some)
}

/// Loads a byte stream with its expired keys.
pub(crate) fn load_arriving(
    source: Source<'_>,
    locks: &mut ShardLocks<'_>,
    log: &Log,
    loading: &Loading,
) -> Result<LoadReport, LoadError> {
    let purpose = Purpose::LoadAtStart(loading);
    read_source(source, locks, log, true, purpose, Unfit::Refuse, i64::MIN)
}

fn read_source(
    source: Source<'_>,
    locks: &mut ShardLocks<'_>,
    log: &Log,
    verifies: bool,
    purpose: Purpose<'_>,
    unfit: Unfit,
    now_ms: i64,
) -> Result<LoadReport, LoadError> {
    let Source { name: path, bytes, len: total_bytes, written_ms_max } = source;
    log.notice(format_args!("Loading {} ({total_bytes} bytes)", path.display()));
    if let Purpose::LoadAtStart(loading) = &purpose {
        loading.expect(total_bytes);
    }
    let begun = Instant::now();
    let reader = Reader::new(bytes).map_err(|source| format_error(path, source))?;
    let keyspace = locks.keyspace();
    let (stores, loading, names) = match purpose {
        Purpose::LoadAtStart(loading) => (true, Some(loading), None),
        Purpose::Load => (true, None, None),
        Purpose::LoadAndNote(names) => (true, None, Some(names)),
        Purpose::Verify => (false, None, None),
    };
    let mut parser = Parser {
        path,
        reader,
        keyspace,
        log,
        is_at_start: loading.is_some(),
        is_copy: loading.is_none() && now_ms == i64::MIN,
        names,
        outgoing: None,
        unfit,
        now_ms,
        // If the clock is ignored, so is the time of writing.
        written_ms_max: if now_ms == i64::MIN { i64::MIN } else { written_ms_max },
        note: ItemNote::NONE,
        messages: Vec::new(),
        stream_name: None,
        stream_offset: None,
        left_out: 0,
        report: LoadReport::default(),
    };
    if stores {
        let progress = Progress::new(log, loading, total_bytes);
        parser = batches::pass(
            |outgoing| {
                parser.outgoing = Some(outgoing);
                let read = parser.run(verifies);
                // Also after an error. Dropping `outgoing` ends the other thread.
                let passed = parser.outgoing.take().map_or(Ok(()), |mut last| last.pass_on());
                read.and(passed).map(|()| parser)
            },
            Storer { path, locks, progress },
        )?;
    } else {
        parser.run(verifies)?;
    }
    parser.end_position();
    let LoadReport { keys, expired, empty, .. } = parser.report;
    log.notice(format_args!(
        "DB loaded from disk: {:.3} seconds, {}, {expired} expired before, {empty} left \
         out as empty",
        begun.elapsed().as_secs_f64(),
        crate::count(keys, "key")
    ));
    Ok(parser.report)
}

fn format_error(path: &Path, source: Error) -> LoadError {
    LoadError::Format { path: path.to_owned(), source }
}

/// Reads the file, and passes the values to the storing thread.
struct Parser<'a> {
    path: &'a Path,
    reader: Reader<Box<dyn Read + Send + 'a>>,
    keyspace: &'a Keyspace,
    log: &'a Log,
    is_at_start: bool,
    /// The file is a full copy, followed by a replication stream.
    is_copy: bool,
    /// Collection of the names, if they are wanted.
    names: Option<&'a mut Names>,
    /// Receiver of the values; `None` if the file is only checked.
    outgoing: Option<Outgoing>,
    unfit: Unfit,
    /// Time for expiry decisions, never before the time of writing: a key that had expired by then stays expired,
    /// whatever the clock says.
    now_ms: i64,
    /// Latest plausible time of writing; a later one in the file is not believed.
    written_ms_max: i64,
    /// Replication id of the data, from the file.
    stream_name: Option<[u8; STREAM_NAME_LEN]>,
    stream_offset: Option<u64>,
    /// Metadata of the next key, from the file.
    note: ItemNote,
    /// Messages of the next key, from the file.
    messages: Vec<u8>,
    /// Number of unsupported values, libraries and other data.
    left_out: u64,
    report: LoadReport,
}

impl Parser<'_> {
    fn run(&mut self, verifies: bool) -> Result<(), LoadError> {
        loop {
            let event = match self.reader.next_event() {
                Err(Error::Checksum { .. }) if !verifies => return Ok(()),
                Err(source) => return Err(format_error(self.path, source)),
                Ok(None) => return Ok(()),
                Ok(Some(event)) => event,
            };
            match event {
                Event::Entry(entry) => {
                    self.entry(&entry)?;
                    self.note_read()?;
                }
                Event::SelectDb(number) => _ = self.db(number)?,
                Event::Aux { name, value } => self.remark(&name, &value)?,
                Event::Function(source) => self.library(&source)?,
                Event::ModuleAux { name } => {
                    self.leave_out(&format!("data of the module {name}"))?;
                }
                // Sizes are not needed here.
                _ => {}
            }
        }
    }

    fn remark(&mut self, name: &[u8], text: &[u8]) -> Result<(), LoadError> {
        match Remark::read(name, text).map_err(|what| self.unsupported(what))? {
            Remark::Item(note) => self.note = note,
            Remark::Messages(messages) => self.messages = messages.to_vec(),
            Remark::MemberDeadlines(MemberDeadlines { db, key, pairs }) => {
                let (db, hash) = (self.db(db)?, self.keyspace.hash(key));
                let facts = KeyFacts { db, hash, deadline_ms: None, note: ItemNote::NONE };
                if let Some(outgoing) = &mut self.outgoing {
                    outgoing.member_deadlines(key, pairs, facts);
                }
                self.note_read()?;
            }
            Remark::Script(NamedScript { name, source }) => {
                self.put_code(CodeKind::Script, name, source);
            }
            Remark::Written { ms } => self.now_ms = self.now_ms.max(ms.min(self.written_ms_max)),
            Remark::StreamDb(db) if self.is_copy && self.keyspace.db_index(db).is_none() => {
                return Err(self.unsupported(format_args!(
                    "a stream that has selected database {db}: `databases` has to be larger"
                )));
            }
            Remark::StreamDb(db) => self.report.stream_db = db,
            Remark::StreamName(name) => {
                self.stream_name = Some(name);
                self.begin_position();
            }
            Remark::StreamOffset(offset) => {
                self.stream_offset = Some(offset);
                self.begin_position();
            }
            Remark::Other => {}
        }
        Ok(())
    }

    /// Disables expiry if the file has a replication offset. A primary that starts with such data deletes expired keys
    /// in its stream, and a replica waits for its primary to do so. Either way these keys are loaded, also those that
    /// had expired before the file was written.
    fn begin_position(&mut self) {
        let has_position = self.stream_name.is_some() && self.stream_offset.is_some();
        if has_position && self.is_at_start {
            self.now_ms = i64::MIN;
        }
    }

    /// Reports the replication offset of the data, unless some of it was left out.
    fn end_position(&mut self) {
        let position = self.stream_name.zip(self.stream_offset);
        self.report.stream = position.filter(|_| self.report.expired == 0 && self.left_out == 0);
    }

    fn library(&mut self, source: &[u8]) -> Result<(), LoadError> {
        match code::library_name(source) {
            Ok(name) => self.put_code(CodeKind::Library, &name, source),
            Err(what) => self.leave_out(&what)?,
        }
        Ok(())
    }

    fn put_code(&mut self, kind: CodeKind, name: &[u8], source: &[u8]) {
        if let Some(names) = &mut self.names {
            names.code.insert((kind, name.to_vec()));
        }
        if let Some(outgoing) = &mut self.outgoing {
            outgoing.code(kind, name, source);
        }
    }

    fn note_read(&mut self) -> Result<(), LoadError> {
        let offset = self.reader.offset();
        self.outgoing.as_mut().map_or(Ok(()), |outgoing| outgoing.note_read(offset))
    }

    fn db(&self, number: u64) -> Result<DbIndex, LoadError> {
        let db = usize::try_from(number).ok().and_then(|number| self.keyspace.db_index(number));
        db.ok_or_else(|| {
            self.unsupported(format_args!(
                "keys of database {number}: `databases` has to be larger"
            ))
        })
    }

    fn entry(&mut self, entry: &Entry) -> Result<(), LoadError> {
        let note = std::mem::take(&mut self.note);
        let messages = std::mem::take(&mut self.messages);
        if entry.kind() == Kind::Module {
            // The reader skips the value by itself.
            let (key, kind) = (entry.key.escape_ascii(), entry.kind());
            return self.leave_out(&format!("the value of type {kind:?} of the key {key}"));
        }
        let db = self.db(entry.db)?;
        let deadline_ms =
            entry.attributes.expiry_ms.map(|ms| i64::try_from(ms).unwrap_or(i64::MAX));
        if deadline_ms.is_some_and(|deadline_ms| deadline_ms <= self.now_ms) {
            // The reader skips the value by itself.
            self.report.expired += 1;
            return Ok(());
        }
        if let Some(what) = too_long(&entry.key) {
            return self.leave_out(&what);
        }
        let position = KeyFacts { db, hash: self.keyspace.hash(&entry.key), deadline_ms, note };
        let Self { reader, outgoing, .. } = self;
        let mut loading = Assembly::begin(entry.kind(), self.keyspace.limits());
        let mut outgoing = outgoing.as_mut();
        let len_max = self.keyspace.value_len_max();
        let mut too_long = None;
        let visited = reader.visit_value(|part| {
            match (&mut loading, part, &mut outgoing) {
                (Some(loading), part, _) => loading.add(part)?,
                (None, ValuePart::String(bytes), _) if bytes.len() > len_max => {
                    too_long = Some(bytes.len() as u64);
                }
                (None, ValuePart::String(bytes), Some(outgoing)) => {
                    outgoing.string(&entry.key, bytes, position);
                }
                (None, ..) => {}
            }
            Ok::<_, Flaw>(())
        });
        loading.iter_mut().for_each(|loading| loading.add_messages(&messages));
        let whole = visited.and_then(|()| loading.map(Assembly::finish).transpose());
        match (whole, outgoing) {
            (Ok(Some(collection)), Some(outgoing)) => {
                outgoing.collection(&entry.key, collection, position);
            }
            (Ok(_), _) => {}
            (Err(Flaw::Empty), _) => {
                self.leave_out_empty(entry);
                return Ok(());
            }
            (Err(flaw), _) => {
                let (path, offset) = (self.path.to_owned(), self.reader.offset());
                let key = entry.key.escape_ascii().to_string();
                return Err(LoadError::Value { path, key, offset, flaw: flaw.to_string() });
            }
        }
        // Check this before the file replaces anything.
        if let Some(len) = too_long {
            let (key, error) = (entry.key.escape_ascii(), ValueTooLong { len, max: len_max });
            return Err(self.unsupported(format_args!("the key {key}: {error}")));
        }
        if let Some(names) = &mut self.names {
            names.keys.insert((db, entry.key.clone()));
        }
        self.report.keys += 1;
        Ok(())
    }

    /// Skips a collection without elements. Bugs in Redis have left such keys in files, and Redis skips them too.
    fn leave_out_empty(&mut self, entry: &Entry) {
        const TOLD_MAX: u64 = 10;
        self.report.empty += 1;
        if self.report.empty <= TOLD_MAX {
            self.log.warning(format_args!(
                "{}: the key {} before offset {} was skipped: its {:?} has no elements",
                self.path.display(),
                entry.key.escape_ascii(),
                self.reader.offset(),
                entry.kind()
            ));
        }
    }

    /// Skips an unsupported item with a log line, or aborts the load.
    fn leave_out(&mut self, what: &str) -> Result<(), LoadError> {
        if self.unfit == Unfit::Refuse {
            return Err(self.unsupported(lacking(what)));
        }
        self.left_out += 1;
        let path = self.path.display();
        self.log
            .warning(format_args!("{path}: left out {what}, which this version does not support"));
        Ok(())
    }

    fn unsupported(&self, what: impl Display) -> LoadError {
        let (path, offset) = (self.path.to_owned(), self.reader.offset());
        LoadError::Unsupported { path, offset, what: what.to_string() }
    }
}
