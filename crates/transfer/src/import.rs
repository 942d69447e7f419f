//! Imports Redis' files, or lines of JSON, into a data directory.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::BufReader;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tierce_keyspace::{
    CodeEditor, CodeKind, Expiry, Freeing, ItemNote, Keyspace, ShardLocks, expire_due, flush_dbs,
};
use tierce_rdb::aof::{Item, Reader};
use tierce_rdb::{Entry, Error, Event, Kind, ValuePart};
use tierce_storage::disk::OverlayDisk;

use super::commands::{Executor, Refusal};
use super::error::TransferError;
use super::progress::{Progress, Stage};
use super::store::{Made, Store, log_dir};
use super::{aof, jsonl, store};
use crate::persistence::values::{self, Assembly, Flaw};
use crate::persistence::{MemberDeadlines, NamedScript, Unfit, lacking, library_name, too_long};

/// Number of items of a file between two reports of progress.
const TELL_EVERY: u64 = 1024;

/// Size of one read of lines from a file.
const READ_BYTES: usize = 256 * 1024;

/// Treatment of existing keys.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ImportMode {
    /// Imports nothing if there are any keys.
    IntoEmpty,
    /// Keeps them, unless an imported key has the same name.
    Merge,
    /// Removes them.
    Replace,
}

/// Source, target and mode of an import.
#[derive(Clone, Debug)]
pub struct ImportOptions {
    /// An RDB file, an append-only file, an append-only directory, or a file of lines of JSON.
    pub source: PathBuf,
    /// The data directory.
    pub dir: PathBuf,
    /// The server's directive `databases`.
    pub databases: usize,
    /// Treatment of existing keys.
    pub mode: ImportMode,
    /// True if unknown and failing commands are skipped.
    pub skip_unknown: bool,
    /// Treatment of data that this version does not support.
    pub unfit: Unfit,
    /// True if the last file may end in the middle of a command. That command is left out.
    pub accepts_cut_off: bool,
}

/// Result of an import.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Imported {
    /// Number of keys after the import.
    pub keys: u64,
    /// Number of keys read from snapshots or lines.
    pub keys_read: u64,
    /// Number of executed commands.
    pub commands: u64,
    /// Number of keys left out because they had expired.
    pub expired: u64,
    /// Bytes read.
    pub bytes: u64,
    /// Number of keys left out because their collection has no elements.
    pub empty: u64,
    /// Unsupported data by kind: keys of other types, function libraries for another engine, module data.
    pub unsupported: BTreeMap<&'static str, u64>,
    /// Skipped commands, by name.
    pub commands_skipped: BTreeMap<String, u64>,
    /// Path and offset of the incomplete command or transaction at the end of the last file, if one was left out.
    pub cut_off: Option<(PathBuf, u64)>,
}

/// Imports the source. The data directory stays as it was unless this succeeds.
///
/// # Errors
/// Fails if a server uses the directory, if there are keys and `mode` is [`ImportMode::IntoEmpty`], if a file is
/// damaged, or if a command is unknown.
pub fn import(
    options: &ImportOptions,
    mut progress: impl FnMut(Progress),
) -> Result<Imported, TransferError> {
    // Check the source before the directory is created, in case its name was mistyped.
    let files = aof::files(&options.source)?;
    let made = Made::before(&options.dir)?;
    let store = Store::open(&options.dir, options.databases, &mut progress)?;
    let keys = store.keys();
    match options.mode {
        ImportMode::IntoEmpty if keys > 0 => {
            return Err(TransferError::HasData { dir: options.dir.clone(), keys });
        }
        ImportMode::Replace => {
            let mut locks = store.keyspace.locks();
            flush_dbs(&mut locks, store.keyspace.db_indices(), Freeing::Now);
            for kind in CodeKind::ALL {
                for (name, _) in store.keyspace.code().all().of(kind) {
                    CodeEditor::lock(&mut locks).remove(kind, name);
                }
            }
        }
        ImportMode::IntoEmpty | ImportMode::Merge => {}
    }
    // The commands of a file assume an empty keyspace, and must not edit existing keys.
    let keyspace = match options.mode {
        ImportMode::Merge => store.another(),
        ImportMode::IntoEmpty | ImportMode::Replace => Arc::clone(&store.keyspace),
    };
    let executor = Executor::new(Arc::clone(&keyspace))?;
    let former_code = store.keyspace.code().all();
    let read = read_files(options, &files, &keyspace, executor, &mut progress)?;
    let Import { mut report, written_ms, executor, total, .. } = read;
    if options.mode == ImportMode::Merge {
        let unsupported = |error: tierce_keyspace::Error| TransferError::Unsupported {
            path: options.source.clone(),
            offset: 0,
            what: error.to_string(),
        };
        store.merge(&keyspace).map_err(unsupported)?;
    }
    if let Some(what) = executor.collision(&former_code, &store.keyspace.code().all()) {
        return Err(TransferError::Functions { path: options.source.clone(), what });
    }
    let before = store.keys();
    // Keys that had expired when the file was written stay expired, whatever the clock says.
    expire_due(&mut store.keyspace.locks(), crate::clock::unix_ms().max(written_ms));
    report.keys = store.keys();
    report.expired = before - report.keys;
    store.replace(total, &mut progress)?;
    made.stays();
    Ok(report)
}

/// Reads the source as an import into an empty directory does, and changes nothing. Returns the number of keys.
///
/// # Errors
/// Those of [`import`].
pub(super) fn try_import(options: &ImportOptions) -> Result<u64, TransferError> {
    let ImportOptions { source, dir, databases, .. } = options;
    let (files, disk) = (aof::files(source)?, Arc::new(OverlayDisk::new()));
    let log_dir = log_dir(dir)?;
    let mut progress = |_| {};
    let keyspace = store::load(&log_dir, *databases, disk, None, &mut progress)?;
    let executor = Executor::new(Arc::clone(&keyspace))?;
    let read = read_files(options, &files, &keyspace, executor, &mut progress)?;
    expire_due(&mut keyspace.locks(), crate::clock::unix_ms().max(read.written_ms));
    Ok(keyspace.total_len())
}

fn read_files<'a>(
    options: &'a ImportOptions,
    files: &[PathBuf],
    keyspace: &'a Keyspace,
    executor: Executor,
    progress: &'a mut dyn FnMut(Progress),
) -> Result<Import<'a>, TransferError> {
    let total = files.iter().map(|file| fs::metadata(file).map_or(0, |file| file.len())).sum();
    let mut import = Import {
        options,
        keyspace,
        executor,
        transaction: None,
        remarks: KeyRemarks::default(),
        too_long: None,
        written_ms: 0,
        written_ms_max: 0,
        report: Imported::default(),
        total,
        progress,
    };
    for (at, file) in files.iter().enumerate() {
        import.file(file, at + 1 == files.len())?;
    }
    import.report.bytes = total;
    Ok(import)
}

/// Remarks of a snapshot on a key.
#[derive(Default)]
struct KeyRemarks {
    note: ItemNote,
    /// Messages of a stream.
    messages: Vec<u8>,
}

struct Import<'a> {
    options: &'a ImportOptions,
    /// Keyspace that receives the imported keys.
    keyspace: &'a Keyspace,
    executor: Executor,
    /// The commands since MULTI, with their offsets.
    transaction: Option<Vec<(u64, Vec<Vec<u8>>)>>,
    /// Remarks of a snapshot on the next key.
    remarks: KeyRemarks,
    /// Offset and message of the first key that is too long, and the number of such keys.
    too_long: Option<(u64, String, u64)>,
    /// Latest write time that the files state.
    written_ms: i64,
    /// Upper bound for the write time that the present file states.
    written_ms_max: i64,
    report: Imported,
    total: u64,
    progress: &'a mut dyn FnMut(Progress),
}

impl Import<'_> {
    fn file(&mut self, path: &Path, is_last: bool) -> Result<(), TransferError> {
        let format = |source| TransferError::Format { path: path.to_owned(), source };
        let file = File::open(path).map_err(TransferError::io("open", path))?;
        let before = self.report.bytes;
        self.executor.begin_file();
        self.transaction = None;
        let metadata = file.metadata().map_err(TransferError::io("read", path))?;
        self.written_ms_max = values::written_ms_max(&metadata);
        if metadata.len() == 0 {
            // A file of a directory that was just created. Other empty files were refused before.
            return Ok(());
        }
        if begins_with_lines(&file) {
            return self.lines(path, file);
        }
        let mut in_snapshot = begins_with_snapshot(&file);
        let mut reader = Reader::new(file).map_err(format)?;
        let mut locks = Some(self.keyspace.locks());
        for count in 1.. {
            let offset = reader.offset();
            let item = match reader.next_item() {
                Ok(Some(item)) => item,
                Ok(None) => break,
                // The partial last command that a crash leaves was never acknowledged.
                Err(Error::Truncated { .. }) if is_last && !in_snapshot && offset > 0 => {
                    let (path, offset) = (path.to_owned(), reader.complete_up_to());
                    if !self.options.accepts_cut_off {
                        return Err(TransferError::CutOff { path, offset });
                    }
                    self.report.cut_off = Some((path, offset));
                    break;
                }
                Err(_) if self.too_long.is_some() => break,
                Err(error) => return Err(format(error)),
            };
            match item {
                Item::Rdb(Event::End { .. }) => in_snapshot = false,
                Item::Rdb(event) => {
                    let locks = locks.get_or_insert_with(|| self.keyspace.locks());
                    self.event(path, offset, event, &mut reader, locks)?;
                }
                Item::Command(_) if self.too_long.is_some() => break,
                Item::Command(args) => {
                    locks = None;
                    self.command(path, offset, args)?;
                }
                _ => {}
            }
            if count % TELL_EVERY == 0 {
                let (done, total) = (before + reader.offset(), self.total);
                (self.progress)(Progress { stage: Stage::Reading, done: done.min(total), total });
            }
        }
        self.report.bytes = before + reader.offset();
        self.refuse_too_long(path)
    }

    /// Imports the next event of a snapshot.
    fn event(
        &mut self,
        path: &Path,
        offset: u64,
        event: Event,
        reader: &mut Reader<File>,
        locks: &mut ShardLocks<'_>,
    ) -> Result<(), TransferError> {
        match event {
            Event::Entry(entry) if too_long(&entry.key).is_some() => {
                self.too_long_key(offset, &entry.key);
            }
            _ if self.too_long.is_some() => {}
            Event::Entry(entry) if entry.kind() == Kind::Module => {
                // The reader skips the value itself.
                let what = format!("module value {}", entry.key.escape_ascii());
                self.leave_out(path, offset, "module value", &what)?;
            }
            Event::Entry(entry) => {
                entry_of(
                    &mut self.report,
                    locks,
                    self.keyspace,
                    path,
                    reader,
                    &entry,
                    std::mem::take(&mut self.remarks),
                )?;
            }
            Event::Aux { name, value } => {
                self.remark(locks, path, offset, &name, &value)?;
            }
            Event::Function(source) => match library_name(&source) {
                Ok(name) => CodeEditor::lock(locks).put(CodeKind::Library, &name, source),
                Err(what) => self.leave_out(path, offset, "function library", &what)?,
            },
            Event::ModuleAux { name } => {
                let what = format!("data of the module {name}");
                self.leave_out(path, offset, "data of a module", &what)?;
            }
            _ => {}
        }
        Ok(())
    }

    /// Counts a key that exceeds the length limit. In [`Unfit::Refuse`] mode nothing is imported from then on, and
    /// the rest of the file is read only to count such keys.
    fn too_long_key(&mut self, offset: u64, key: &[u8]) {
        match self.options.unfit {
            Unfit::LeaveOut => {
                *self.report.unsupported.entry("too long key").or_default() += 1;
            }
            Unfit::Refuse => {
                let first = || (offset, too_long(key).unwrap_or_default(), 0);
                self.too_long.get_or_insert_with(first).2 += 1;
            }
        }
    }

    /// # Errors
    /// Fails if the file has keys that are too long.
    fn refuse_too_long(&mut self, path: &Path) -> Result<(), TransferError> {
        let Some((offset, first, count)) = self.too_long.take() else { return Ok(()) };
        let keys = if count == 1 { "key" } else { "keys" };
        let what = lacking(&format!("{first} ({count} such {keys} in the file)"));
        Err(TransferError::Unsupported { path: path.to_owned(), offset, what })
    }

    /// Reads a file of lines of JSON.
    fn lines(&mut self, path: &Path, file: File) -> Result<(), TransferError> {
        let before = self.report.bytes;
        let mut locks = self.keyspace.locks();
        let input = BufReader::with_capacity(READ_BYTES, file);
        let mut reader = jsonl::Reader::new(input, self.keyspace);
        for count in 1_u64.. {
            let line = reader.next_line(&mut locks).map_err(|failure| match failure {
                jsonl::Failure::Io(error) => TransferError::io("read", path)(error),
                jsonl::Failure::Line { number, reason } => {
                    TransferError::Line { path: path.to_owned(), line: number, reason }
                }
            })?;
            if line.is_none() {
                break;
            }
            if count.is_multiple_of(TELL_EVERY) {
                let (done, total) = (before + reader.offset(), self.total);
                (self.progress)(Progress { stage: Stage::Reading, done: done.min(total), total });
            }
        }
        self.report.bytes = before + reader.offset();
        let jsonl::Read { keys, empty, written_ms, code } = reader.into_read();
        drop(locks);
        code.iter().try_for_each(|line| self.check_code(path, line))?;
        self.report.keys_read += keys;
        self.report.empty += empty;
        let written_ms = written_ms.unwrap_or_default().min(self.written_ms_max);
        self.written_ms = self.written_ms.max(written_ms);
        Ok(())
    }

    /// Loads a library, or compiles a script, that a line has stored. Clients would see a fault in it much later.
    fn check_code(&mut self, path: &Path, line: &jsonl::CodeLine) -> Result<(), TransferError> {
        let jsonl::CodeLine { number, kind, name } = line;
        let all = self.keyspace.code().all();
        let source = all.of(*kind).find(|(there, _)| *there == name.as_slice());
        // A later line may have replaced it. That version is checked as well.
        let Some(source) = source.map(|(_, source)| source.to_vec()) else { return Ok(()) };
        let words: [&[u8]; 4] = match kind {
            CodeKind::Library => [b"FUNCTION", b"LOAD", b"REPLACE", &source],
            CodeKind::Script => [b"SCRIPT", b"REGISTER", name, &source],
        };
        match self.executor.execute(&words.map(<[u8]>::to_vec)) {
            Ok(()) => Ok(()),
            Err(refusal) => {
                let reason = match refusal {
                    Refusal::Failed(reason) => reason,
                    Refusal::Unknown => "this version has no such code".to_owned(),
                };
                Err(TransferError::Line { path: path.to_owned(), line: *number, reason })
            }
        }
    }

    fn remark(
        &mut self,
        locks: &mut ShardLocks<'_>,
        path: &Path,
        offset: u64,
        name: &[u8],
        text: &[u8],
    ) -> Result<(), TransferError> {
        match values::Remark::read(name, text) {
            Ok(values::Remark::Item(note)) => self.remarks.note = note,
            Ok(values::Remark::Messages(messages)) => self.remarks.messages = messages.to_vec(),
            Ok(values::Remark::MemberDeadlines(MemberDeadlines { db, key, pairs })) => {
                let db = usize::try_from(db).ok().and_then(|db| self.keyspace.db_index(db));
                let key = self.keyspace.key(key);
                if let Some(db) = db {
                    let mut db = locks.db(db, key.hash(), crate::clock::STOPPED_MS);
                    // The key may have been left out.
                    _ = MemberDeadlines::store(pairs, &mut db, key);
                }
            }
            Ok(values::Remark::Script(NamedScript { name, source })) => {
                CodeEditor::lock(locks).put(CodeKind::Script, name, source);
            }
            Ok(values::Remark::Written { ms }) => {
                self.written_ms = self.written_ms.max(ms.min(self.written_ms_max));
            }
            Ok(
                values::Remark::StreamDb(_)
                | values::Remark::StreamName(_)
                | values::Remark::StreamOffset(_)
                | values::Remark::Other,
            ) => {}
            Err(what) => {
                let path = path.to_owned();
                return Err(TransferError::Unsupported { path, offset, what });
            }
        }
        Ok(())
    }

    /// Counts data that this version does not support, or fails, as the options say.
    fn leave_out(
        &mut self,
        path: &Path,
        offset: u64,
        kind: &'static str,
        what: &str,
    ) -> Result<(), TransferError> {
        if self.options.unfit == Unfit::Refuse {
            let (path, what) = (path.to_owned(), lacking(what));
            return Err(TransferError::Unsupported { path, offset, what });
        }
        *self.report.unsupported.entry(kind).or_default() += 1;
        Ok(())
    }

    /// Queues a command until its transaction ends, or executes it.
    fn command(
        &mut self,
        path: &Path,
        offset: u64,
        args: Vec<Vec<u8>>,
    ) -> Result<(), TransferError> {
        match args[0].to_ascii_lowercase().as_slice() {
            b"multi" => self.transaction = Some(Vec::new()),
            b"exec" => {
                for (offset, args) in self.transaction.take().unwrap_or_default() {
                    self.execute(path, offset, &args)?;
                }
            }
            _ => match &mut self.transaction {
                Some(commands) => commands.push((offset, args)),
                None => self.execute(path, offset, &args)?,
            },
        }
        Ok(())
    }

    fn execute(&mut self, path: &Path, offset: u64, args: &[Vec<u8>]) -> Result<(), TransferError> {
        let Err(refusal) = self.executor.execute(args) else {
            self.report.commands += 1;
            return Ok(());
        };
        let name = args[0].escape_ascii().to_string().to_ascii_uppercase();
        if self.options.skip_unknown {
            *self.report.commands_skipped.entry(name).or_default() += 1;
            return Ok(());
        }
        let path = path.to_owned();
        Err(match refusal {
            Refusal::Unknown => TransferError::UnknownCommand { path, offset, name },
            Refusal::Failed(reason) => TransferError::FailedCommand { path, offset, name, reason },
        })
    }
}

/// Returns true if a file has lines of JSON.
fn begins_with_lines(file: &File) -> bool {
    let mut byte = [0];
    file.read_exact_at(&mut byte, 0).is_ok() && jsonl::begins_so(byte[0])
}

/// Returns true if a file begins with a snapshot, which must be complete.
fn begins_with_snapshot(file: &File) -> bool {
    const MAGIC: &[u8; 5] = b"REDIS";
    let mut bytes = [0; MAGIC.len()];
    file.read_exact_at(&mut bytes, 0).is_ok() && bytes == *MAGIC
}

/// Stores the next key of a snapshot.
fn entry_of(
    report: &mut Imported,
    locks: &mut ShardLocks<'_>,
    keyspace: &Keyspace,
    path: &Path,
    reader: &mut Reader<File>,
    entry: &Entry,
    remarks: KeyRemarks,
) -> Result<(), TransferError> {
    let offset = reader.offset();
    let unsupported =
        |what: String| TransferError::Unsupported { path: path.to_owned(), offset, what };
    let mut loading = Assembly::begin(entry.kind(), keyspace.limits());
    let number = entry.db;
    let db = usize::try_from(number).ok().and_then(|number| keyspace.db_index(number));
    let db = db.ok_or_else(|| {
        unsupported(format!("keys of database {number}: --databases has to be larger"))
    })?;
    let deadline_ms = entry.attributes.expiry_ms.map(|ms| i64::try_from(ms).unwrap_or(i64::MAX));
    let key = keyspace.key(&entry.key);
    let (mut db, mut stored) = (locks.db(db, key.hash(), crate::clock::STOPPED_MS), Ok(()));
    let visited = reader.visit_value(|part| {
        match (&mut loading, part) {
            (Some(loading), part) => loading.add(part)?,
            (None, ValuePart::String(bytes)) => {
                let expiry = deadline_ms.map_or(Expiry::Never, Expiry::At);
                stored = db.restore_item(key, bytes, expiry, remarks.note);
            }
            (None, _) => {}
        }
        Ok::<_, Flaw>(())
    });
    loading.iter_mut().for_each(|loading| loading.add_messages(&remarks.messages));
    match visited.and_then(|()| loading.map(Assembly::finish).transpose()) {
        Ok(None) => {}
        Ok(Some(collection)) => {
            stored = db.put_collection(key, collection, deadline_ms).map(drop);
        }
        // Redis leaves such keys out as well.
        Err(Flaw::Empty) => {
            report.empty += 1;
            return Ok(());
        }
        Err(flaw) => {
            let (path, offset) = (path.to_owned(), reader.offset());
            let key = entry.key.escape_ascii().to_string();
            return Err(TransferError::Value { path, key, offset, flaw: flaw.to_string() });
        }
    }
    stored
        .map_err(|error| unsupported(format!("the key {}: {error}", entry.key.escape_ascii())))?;
    report.keys_read += 1;
    Ok(())
}
