//! STUB
use crate::disk::{Disk, DiskFile, OpenMode};
use crate::error::{Error, Result};
use parking_lot::Mutex;
use std::io::IoSlice;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// How to open a [`Wal`].
#[derive(Clone, Debug)]
pub struct WalOptions {
    /// A segment is finished when it has reached this length.
    pub segment_size_bytes: u64,
}

impl Default for WalOptions {
    fn default() -> Self {
        WalOptions { segment_size_bytes: 128 << 20 }
    }
}

/// A place between two records from which on a [`Wal`] can be kept, see [`Wal::rotate`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct WalMark(u32);

/// A log of records that mean something to the caller only.
pub struct Wal {
    disk: Arc<dyn Disk>,
    dir: PathBuf,
    options: WalOptions,
    state: Mutex<State>,
    appended: AtomicU64,
    durable: AtomicU64,
    bytes: AtomicU64,
}

struct State {
    first: u32,
    current: u32,
    file: Arc<dyn DiskFile>,
    len: u64,
}

/// What opening found.
#[derive(Clone, Debug, Default)]
pub struct WalRecovery {
    /// Records read.
    pub records: u64,
    /// Bytes of the log.
    pub bytes: u64,
    /// Bytes of an unfinished end that were cut off.
    pub torn_bytes: u64,
}

fn path(dir: &Path, n: u32) -> PathBuf {
    dir.join(format!("wal-{n:08}"))
}

impl Wal {
    /// Opens the log.
    pub fn open_on(
        disk: Arc<dyn Disk>,
        dir: impl AsRef<Path>,
        options: WalOptions,
        mut replay: impl FnMut(&[u8]) -> std::result::Result<(), String>,
    ) -> Result<(Self, WalRecovery)> {
        let dir = dir.as_ref().to_path_buf();
        disk.create_dir_all(&dir).map_err(|e| Error::io("create", &dir, e))?;
        let mut ids: Vec<u32> = disk
            .list(&dir)
            .map_err(|e| Error::io("list", &dir, e))?
            .iter()
            .filter_map(|p| p.file_name()?.to_str()?.strip_prefix("wal-")?.parse().ok())
            .collect();
        ids.sort_unstable();
        let mut recovery = WalRecovery::default();
        for id in &ids {
            let p = path(&dir, *id);
            let file = disk.open(&p, OpenMode::ReadOnly).map_err(|e| Error::io("open", &p, e))?;
            let size = file.size().unwrap() as usize;
            let mut bytes = vec![0; size];
            file.read_at(&mut bytes, 0).map_err(|e| Error::io("read", &p, e))?;
            let mut at = 0;
            while at + 4 <= size {
                let len = u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap()) as usize;
                if at + 4 + len > size {
                    break;
                }
                replay(&bytes[at + 4..at + 4 + len]).unwrap();
                recovery.records += 1;
                at += 4 + len;
            }
            recovery.bytes += at as u64;
        }
        let current = ids.last().map_or(1, |n| n + 1);
        let p = path(&dir, current);
        let file = disk.open(&p, OpenMode::Truncate).map_err(|e| Error::io("create", &p, e))?;
        let first = ids.first().copied().unwrap_or(current);
        let bytes = AtomicU64::new(recovery.bytes);
        let state = Mutex::new(State { first, current, file, len: 0 });
        let wal = Wal {
            disk,
            dir,
            options,
            state,
            appended: AtomicU64::new(0),
            durable: AtomicU64::new(0),
            bytes,
        };
        Ok((wal, recovery))
    }

    /// Appends a record; it survives the death of the process when this returns.
    pub fn append(&self, record: &[u8]) -> Result<()> {
        let mut state = self.state.lock();
        if state.len > self.options.segment_size_bytes {
            self.next(&mut state)?;
        }
        let len = (record.len() as u32).to_le_bytes();
        state
            .file
            .write_all_at(&[IoSlice::new(&len), IoSlice::new(record)], state.len)
            .map_err(|e| Error::io("write", &self.dir, e))?;
        state.len += 4 + record.len() as u64;
        self.bytes.fetch_add(4 + record.len() as u64, Ordering::Relaxed);
        self.appended.fetch_add(1, Ordering::Release);
        Ok(())
    }

    /// Records appended since the log was opened.
    pub fn appended(&self) -> u64 {
        self.appended.load(Ordering::Acquire)
    }

    /// Of these, how many from the first on survive a power cut.
    pub fn durable(&self) -> u64 {
        self.durable.load(Ordering::Acquire)
    }

    /// Bytes of the log on disk.
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Makes everything appended so far durable.
    pub fn sync(&self) -> Result<u64> {
        let (file, appended) = {
            let state = self.state.lock();
            (state.file.clone(), self.appended())
        };
        file.sync_data().map_err(|e| Error::io("sync", &self.dir, e))?;
        self.durable.fetch_max(appended, Ordering::AcqRel);
        Ok(self.durable())
    }

    /// Begins a new segment: what is appended from now on can be kept without what came before.
    pub fn rotate(&self) -> Result<WalMark> {
        let mut state = self.state.lock();
        self.next(&mut state)?;
        Ok(WalMark(state.current))
    }

    fn next(&self, state: &mut State) -> Result<()> {
        state.file.sync_data().map_err(|e| Error::io("sync", &self.dir, e))?;
        let p = path(&self.dir, state.current + 1);
        state.file =
            self.disk.open(&p, OpenMode::Truncate).map_err(|e| Error::io("create", &p, e))?;
        state.current += 1;
        state.len = 0;
        Ok(())
    }

    /// Removes what came before a mark. Returns the bytes that were freed.
    pub fn drop_before(&self, mark: WalMark) -> Result<u64> {
        self.sync()?;
        let mut state = self.state.lock();
        let mut freed = 0;
        while state.first < mark.0 {
            let p = path(&self.dir, state.first);
            if let Ok(file) = self.disk.open(&p, OpenMode::ReadOnly) {
                freed += file.size().unwrap_or(0);
            }
            self.disk.remove(&p).map_err(|e| Error::io("remove", &p, e))?;
            state.first += 1;
        }
        self.bytes.fetch_sub(freed.min(self.bytes()), Ordering::Relaxed);
        Ok(freed)
    }

    /// Makes everything durable and closes the log.
    pub fn close(&self) -> Result<()> {
        self.sync().map(|_| ())
    }
}
