//! Loads an RDB file into a keyspace: this thread stores what another one reads ([`batches`]).

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

use super::batches::{self, Outgoing, Place, Progress, Storer};
use super::code::{self, NamedScript};
use super::error::LoadError;
use super::unfit::{Unfit, lacking, too_long};
use super::values::{self, Assembly, Flaw, Remark};
use crate::loading::Loading;
use crate::log::Log;
use tierce_config::LogLevel;

/// What was loaded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LoadReport {
    /// Keys that are there now.
    pub keys: u64,
    /// Keys that were left out because their time had come.
    pub expired: u64,
    /// Keys that were left out because their collection has no elements.
    pub empty: u64,
    /// The database that the stream has selected which goes on behind the file, if that is a full copy.
    pub stream_db: usize,
    /// The name of the stream that the data belong to, and how many bytes of it they correspond to, if the file names
    /// both and nothing was left out because its time had come or this version lacks it.
    pub stream: Option<([u8; STREAM_NAME_LEN], u64)>,
}

/// What a file has.
#[derive(Default)]
pub(crate) struct Names {
    /// Keys, with their databases.
    pub(crate) keys: HashSet<(DbIndex, Vec<u8>)>,
    /// Libraries of functions and scripts.
    pub(crate) code: HashSet<(CodeKind, Vec<u8>)>,
}

/// What becomes of the values that are read.
pub(crate) enum Purpose<'n> {
    /// They are stored, at the start of a server, which wants to know how far that is.
    LoadAtStart(&'n Loading),
    /// They are stored.
    Load,
    /// They are stored, and their names noted.
    LoadAndNote(&'n mut Names),
    /// Nothing: a caller that must not stop halfway checks the whole file first.
    Verify,
}

/// What is read: a file, or what arrives as one.
pub struct Source<'s> {
    /// What errors call it.
    pub name: &'s Path,
    /// Its bytes, in order.
    pub bytes: Box<dyn Read + Send + 's>,
    /// How many these are, and what belongs to them of what follows: progress is told in parts of that.
    pub len: u64,
    /// What it says of the time when it was written is believed up to here, in Unix milliseconds.
    written_ms_max: i64,
}

impl<'s> Source<'s> {
    /// What another engine has written, read as it arrives. When that was does not matter, as keys are loaded whether
    /// or not their time has come.
    pub fn arriving(name: &'s Path, bytes: impl Read + Send + 's, len: u64) -> Self {
        Self { name, bytes: Box::new(bytes), len, written_ms_max: i64::MIN }
    }

    /// `None` if there is no such file.
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

/// Loads the file at `path` into `keyspace`; `None` if there is no such file. A key that is there
/// already is replaced.
///
/// `verifies` says whether a wrong checksum is an error, `unfit` what becomes of what this version lacks. How far it
/// is, it tells `loading`.
///
/// # Errors
/// When the file is damaged, or something in it has no place in this server, or the load was given up. What came
/// before that has been loaded then.
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

/// Reads the file at `path` as [`load`] does, and stores nothing: how many keys it has.
///
/// # Errors
/// As there, and when there is no file.
pub(crate) fn verify(path: &Path, databases: usize) -> Result<u64, LoadError> {
    let failed = |source| LoadError::Io { path: path.to_owned(), source };
    let options = Options { databases, shards: 1, ..Options::default() };
    let keyspace = Keyspace::new(options).map_err(|error| failed(io::Error::other(error)))?;
    let log = Log::open(None, LogLevel::Nothing).expect("nothing is opened");
    let read = read(path, &mut keyspace.locks(), &log, true, Purpose::Verify, Unfit::Refuse)?;
    read.map(|report| report.keys).ok_or_else(|| failed(io::ErrorKind::NotFound.into()))
}

/// As [`load`] with shard locks, which may hold all shards.
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

/// The same with keys whose deadline has come, for a server that decides on them as little as on others.
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

/// Loads what arrives, also keys whose deadline has come.
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
        // Without a clock, what the file says of one is of no use.
        written_ms_max: if now_ms == i64::MIN { i64::MIN } else { written_ms_max },
        note: ItemNote::NONE,
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
                // Also before an error. The end of this ends the other thread.
                let passed = parser.outgoing.take().map_or(Ok(()), |mut last| last.pass_on());
                read.and(passed).map(|()| parser)
            },
            Storer { path, locks, progress },
        )?;
    } else {
        parser.run(verifies)?;
    }
    parser.end_place();
    let LoadReport { keys, expired, empty, .. } = parser.report;
    log.notice(format_args!(
        "DB loaded from disk: {:.3} seconds, {keys} keys, {expired} expired before, {empty} left \
         out as empty",
        begun.elapsed().as_secs_f64()
    ));
    Ok(parser.report)
}

fn format_error(path: &Path, source: Error) -> LoadError {
    LoadError::Format { path: path.to_owned(), source }
}

/// Reads the file: what is to be stored goes to another thread.
struct Parser<'a> {
    path: &'a Path,
    reader: Reader<Box<dyn Read + Send + 'a>>,
    keyspace: &'a Keyspace,
    log: &'a Log,
    is_at_start: bool,
    /// The file is a full copy, behind which a stream goes on.
    is_copy: bool,
    /// Where names are noted.
    names: Option<&'a mut Names>,
    /// Where values go; nowhere if the file is only checked.
    outgoing: Option<Outgoing>,
    unfit: Unfit,
    /// Never earlier than when the file was written: a key that had expired by then stays so, whatever the
    /// clock says.
    now_ms: i64,
    /// What the file says of that time is believed up to here.
    written_ms_max: i64,
    /// What the file says of the stream that its data belong to.
    stream_name: Option<[u8; STREAM_NAME_LEN]>,
    stream_offset: Option<u64>,
    /// What the file says of the next key.
    note: ItemNote,
    /// Values, libraries and other data that this version lacks.
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
                // Sizes, which nothing here depends on.
                _ => {}
            }
        }
    }

    fn remark(&mut self, name: &[u8], text: &[u8]) -> Result<(), LoadError> {
        match Remark::read(name, text).map_err(|what| self.unsupported(what))? {
            Remark::Item(note) => self.note = note,
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
                self.begin_place();
            }
            Remark::StreamOffset(offset) => {
                self.stream_offset = Some(offset);
                self.begin_place();
            }
            Remark::Other => {}
        }
        Ok(())
    }

    /// A primary that starts with the data of a place in a stream removes what has expired in that stream, and a replica
    /// waits for its primary to do so. Either way these keys are loaded, also those that had expired before the file was
    /// written and were not deleted yet.
    fn begin_place(&mut self) {
        let has_place = self.stream_name.is_some() && self.stream_offset.is_some();
        if has_place && self.is_at_start {
            self.now_ms = i64::MIN;
        }
    }

    /// Reports the place of the data, unless some of these were left out.
    fn end_place(&mut self) {
        let place = self.stream_name.zip(self.stream_offset);
        self.report.stream = place.filter(|_| self.report.expired == 0 && self.left_out == 0);
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
        if entry.kind() == Kind::Module {
            // The reader passes over the value by itself.
            let (key, kind) = (entry.key.escape_ascii(), entry.kind());
            return self.leave_out(&format!("the value of type {kind:?} of the key {key}"));
        }
        let db = self.db(entry.db)?;
        let deadline_ms =
            entry.attributes.expiry_ms.map(|ms| i64::try_from(ms).unwrap_or(i64::MAX));
        if deadline_ms.is_some_and(|deadline_ms| deadline_ms <= self.now_ms) {
            // The reader passes over the value by itself.
            self.report.expired += 1;
            return Ok(());
        }
        if let Some(what) = too_long(&entry.key) {
            return self.leave_out(&what);
        }
        let place = Place { db, hash: self.keyspace.hash(&entry.key), deadline_ms, note };
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
                    outgoing.string(&entry.key, bytes, place);
                }
                (None, ..) => {}
            }
            Ok::<_, Flaw>(())
        });
        let whole = visited.and_then(|()| loading.map(Assembly::finish).transpose());
        match (whole, outgoing) {
            (Ok(Some(collection)), Some(outgoing)) => {
                outgoing.collection(&entry.key, collection, place);
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
        // Found out before anything is replaced by the file.
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

    /// Faults of Redis have left such keys in files, and Redis leaves them out as well.
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

    /// Tells of something that this version lacks, or gives up.
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
