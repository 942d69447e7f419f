//! A log of records without keys, index or compaction; only the caller knows what they mean.
//!
//! Records come back in the order they were appended. The log keeps a contiguous run of them: the caller can
//! drop a beginning ([`Wal::rotate`], [`Wal::drop_before`]), and a crash can only lose an end.
//!
//! It is one shard of [`log`](crate::log), with nothing on top.

pub(crate) mod recovery;

use crate::WAL_RECORD_LEN_MAX;
use crate::compression::compress;
use crate::disk::{Disk, OpenMode};
use crate::error::{Error, Result};
use crate::location::SegmentId;
use crate::log::appender::Appender;
use crate::log::files::{LogFiles, Owner};
use crate::log::options::WalOptions;
use crate::log::threads::Threads;
use crate::log::write::Write;
use crate::manifest::SegmentState;
use crate::names::{self, FileKind};
use parking_lot::Mutex;
use recovery::{Replay, WalRecovery};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// A position between two records; see [`Wal::rotate`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct WalMark {
    /// Segments with the records before it.
    before: Vec<SegmentId>,
    /// Sequence number of the first record after it.
    first_seq: u64,
}

/// The owner of a plain log.
struct Alone(LogFiles);

impl Owner for Alone {
    fn files(&self) -> &LogFiles {
        &self.0
    }
}

/// An open log. It is closed by [`Wal::close`] or when it is dropped.
pub struct Wal {
    log: Arc<Alone>,
    threads: Mutex<Threads<Alone>>,
}

impl Wal {
    /// Opens the log in a directory, creating it if there is none, and passes its records to `replay` one after
    /// the other.
    ///
    /// # Errors
    /// [`Error::Locked`] when another process has it open; [`Error::Corrupt`] or [`Error::Missing`] with the
    /// file concerned when the files are damaged; [`Error::Rejected`] when `replay` refuses a record.
    pub fn open_on(
        disk: Arc<dyn Disk>,
        dir: impl AsRef<Path>,
        options: WalOptions,
        replay: impl FnMut(&[u8]) -> Result<(), String>,
    ) -> Result<(Self, WalRecovery)> {
        let (wal, recovery) = Self::open_idle_on(disk, dir.as_ref(), options, replay)?;
        wal.start_threads(dir)?;
        Ok((wal, recovery))
    }

    /// Opens the log as [`Wal::open_on`] does without starting its threads; [`Wal::start_threads`] starts them.
    ///
    /// # Errors
    /// As [`Wal::open_on`].
    pub fn open_idle_on(
        disk: Arc<dyn Disk>,
        dir: &Path,
        options: WalOptions,
        replay: impl FnMut(&[u8]) -> Result<(), String>,
    ) -> Result<(Self, WalRecovery)> {
        let (files, recovery) = recovery::open(disk, dir, options, &mut Replay::new(replay))?;
        let log = Arc::new(Alone(files));
        // Done now so that the first writer need not wait for a segment.
        match log.0.prepare_spares(&*log) {
            // The first writer tries again, and reports the failure.
            Err(error) if error.is_transient() => {}
            prepared => prepared?,
        }
        let threads = Mutex::new(Threads::new(&log));
        Ok((Wal { log, threads }, recovery))
    }

    /// Starts the threads that the options ask for, once.
    ///
    /// # Errors
    /// When the system cannot start a thread.
    pub fn start_threads(&self, dir: impl AsRef<Path>) -> Result<()> {
        let started = self.threads.lock().start();
        started.map_err(|e| Error::io("serve", dir.as_ref(), e))
    }

    /// Returns the bytes in the files of the log in `dir`, if there is one. An opening loads these, and the last
    /// records.
    ///
    /// # Errors
    /// When the files cannot be listed.
    pub fn bytes_in(disk: &dyn Disk, dir: &Path) -> std::io::Result<u64> {
        let paths = match disk.list(dir) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(0),
            listed => listed?,
        };
        let is_segment = |path: &&PathBuf| matches!(names::kind_of(path), FileKind::Segment(_));
        let size = |path: &PathBuf| disk.open(path, OpenMode::ReadOnly)?.size();
        paths.iter().filter(is_segment).map(size).sum()
    }

    fn appender(&self) -> &Appender {
        &self.log.0.appenders[0]
    }

    /// Appends a record. When this returns, the record and all earlier ones survive the death of the process.
    ///
    /// Usually takes no system call; waits for the disk only when the tail is full.
    ///
    /// # Errors
    /// [`Error::ValueTooLong`] for a record of more than [`WAL_RECORD_LEN_MAX`] bytes. After [`Error::NoSpace`]
    /// nothing of the record is kept. After another error the log is read-only until it is opened again.
    pub fn append(&self, record: &[u8]) -> Result<()> {
        if record.len() > WAL_RECORD_LEN_MAX {
            return Err(Error::ValueTooLong { len: record.len(), max: WAL_RECORD_LEN_MAX });
        }
        let (appender, mut compressed) = (self.appender(), Vec::new());
        let method = self.log.0.options.compression;
        let (compression, value) = compress(method, record, &mut compressed);
        if appender.append_record(&*self.log, compression, value)? {
            return Ok(());
        }
        let mut write = Write::record(compression, value);
        appender.append(&*self.log, &mut write, |_, _| {}).map(drop)
    }

    /// Returns the longest wait of an append for the disk since the last call: for room in the tail or in a
    /// segment, or for a record that is too long for the tail.
    pub fn take_longest_wait(&self) -> Duration {
        self.appender().take_longest_wait()
    }

    /// Returns true if the log has ever had a record, even if all were dropped since.
    pub fn was_ever_written(&self) -> bool {
        const FIRST_SEQ: u64 = 1;
        self.log.0.next_seq.load(Ordering::Acquire) > FIRST_SEQ
    }

    /// Returns the position of the end of the log, which grows with every record.
    pub fn appended(&self) -> u64 {
        self.appender().end()
    }

    /// Returns the position up to which records survive a power cut; compare it with [`Wal::appended`].
    pub fn durable(&self) -> u64 {
        self.appender().durable()
    }

    /// Makes everything appended so far durable. Returns the durable position.
    pub fn sync(&self) -> Result<u64> {
        self.appender().sync_all(&*self.log)?;
        Ok(self.durable())
    }

    /// Returns the bytes of the log on disk.
    pub fn bytes(&self) -> u64 {
        self.appender().update_len();
        self.log.0.segments.read().values().map(|segment| segment.len()).sum()
    }

    /// Begins a new segment, so that later records can be kept without earlier ones.
    pub fn rotate(&self) -> Result<WalMark> {
        self.log.0.check_writable()?;
        self.log.0.prepare_spares(&*self.log)?;
        let mut head = self.appender().lock(&self.log.0);
        if let Some(full) = head.close_run() {
            self.log.0.add_immutable(0, full);
        }
        // A segment is in use from the moment when a writer takes it, under the shard's lock.
        let before = self.log.0.segments.read().keys().copied().collect();
        Ok(WalMark { before, first_seq: self.log.0.next_seq.load(Ordering::Acquire) })
    }

    /// Removes everything before a mark, after making everything after it durable. Returns the number of bytes
    /// freed.
    pub fn drop_before(&self, mark: &WalMark) -> Result<u64> {
        self.sync()?;
        // The lock keeps the dropped segments from being sealed now or later.
        let _sealing = self.log.0.sealing.lock();
        self.log.0.check_writable()?;
        self.log.0.update_manifest(&*self.log, |manifest| {
            manifest.first_seq = manifest.first_seq.max(mark.first_seq);
            for id in &mark.before {
                if let Some(entry) = manifest.segments.get_mut(id) {
                    entry.state = SegmentState::Obsolete;
                }
            }
        })?;
        self.log.0.immutable.lock().retain(|(_, immutable)| !mark.before.contains(&immutable.id));
        let gone = self.log.0.take_out(mark.before.iter().copied());
        Ok(gone.iter().map(|segment| segment.len()).sum())
    }

    /// Makes everything durable and closes the log.
    pub fn close(&self) -> Result<()> {
        self.threads.lock().stop();
        if self.log.0.check_open().is_err() {
            return Ok(());
        }
        let left = self.log.0.close_to_writers();
        let sealed = self.log.0.seal_all(&*self.log, left);
        self.log.0.unlock();
        sealed
    }
}

impl Drop for Wal {
    fn drop(&mut self) {
        // `close` returns the errors. Nothing that was acknowledged depends on this.
        let _ = self.close();
    }
}

#[cfg(test)]
mod tests {
    mod parallel;

    use super::*;
    use crate::disk::{Fault, SimDisk};
    use crate::segment::header::Origin;

    fn open(disk: &SimDisk, records: &mut Vec<Vec<u8>>) -> Wal {
        let options = WalOptions {
            segment_size_bytes: 1024,
            tail_bytes: 1024,
            background_threads: false,
            ..WalOptions::default()
        };
        records.clear();
        let take = |record: &[u8]| {
            records.push(record.to_vec());
            Ok(())
        };
        Wal::open_on(Arc::new(disk.clone()), "/log", options, take).unwrap().0
    }

    #[test]
    fn a_segment_that_is_being_made_is_not_before_a_mark() {
        let (disk, mut records) = (SimDisk::new(1), Vec::new());
        let wal = open(&disk, &mut records);
        wal.append(b"old").unwrap();
        // The sealing thread has just made a spare segment, and the log rotates before the thread can add it to
        // the list.
        let spare = wal.log.0.create_segment(&*wal.log, Origin::Log).unwrap();
        let mark = wal.rotate().unwrap();
        wal.log.0.spares.lock().push(spare);
        wal.append(b"new").unwrap();
        wal.drop_before(&mark).unwrap();
        wal.close().unwrap();
        drop(wal);
        open(&disk, &mut records);
        assert_eq!(records, [b"new"]);
    }

    #[test]
    fn a_dropped_segment_is_not_listed_again() {
        let (disk, mut records) = (SimDisk::new(1), Vec::new());
        let wal = open(&disk, &mut records);
        wal.append(b"old").unwrap();
        let mark = wal.rotate().unwrap();
        assert_eq!(wal.log.0.immutable.lock().len(), 1, "it is still to be sealed");
        wal.append(b"new").unwrap();
        // There is no space for the next replacement of the manifest.
        disk.inject_os_error(Fault::Open, 0, libc::ENOSPC);
        if let Err(error) = wal.drop_before(&mark) {
            assert!(error.is_no_space(), "{error}");
            wal.drop_before(&mark).unwrap();
        }
        wal.log.0.seal_immutable(&*wal.log).unwrap();
        let listed = wal.log.0.manifest.lock().segments.clone();
        for id in &mark.before {
            assert!(listed.get(id).is_none_or(|entry| entry.state == SegmentState::Obsolete));
        }
        wal.close().unwrap();
        drop(wal);
        open(&disk, &mut records);
        assert_eq!(records, [b"new"]);
    }
}
