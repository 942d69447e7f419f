//! A disk in memory on which the syncs of the log wait at a gate, as on a device that hangs.

use std::io::{self, IoSlice};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use tierce_storage::disk::{Disk, DiskFile, DiskLock, DiskMap, OpenMode, SimDisk};

/// Longer than any step of a working server takes, on a busy machine.
const PATIENCE: Duration = Duration::from_secs(30);

/// Gate at which the thread that syncs the log waits.
#[derive(Default)]
pub struct Gate {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    is_closed: bool,
    /// Number of syncs that may pass although it is closed.
    passes: usize,
    /// True if a sync is waiting.
    is_waiting: bool,
}

impl Gate {
    /// Makes syncs wait from now on.
    pub fn close(&self) {
        self.state.lock().is_closed = true;
    }

    pub fn open(&self) {
        *self.state.lock() = State::default();
        self.changed.notify_all();
    }

    /// Lets one sync pass.
    pub fn let_one_pass(&self) {
        self.state.lock().passes += 1;
        self.changed.notify_all();
    }

    /// Returns when a sync has begun that does not end.
    pub fn await_sync(&self) {
        let mut state = self.state.lock();
        while !state.is_waiting {
            let timeout = self.changed.wait_for(&mut state, PATIENCE);
            assert!(!timeout.timed_out(), "there is no sync");
        }
    }

    fn pass(&self) {
        if std::thread::current().name() != Some("log-sync") {
            return;
        }
        let mut state = self.state.lock();
        while state.is_closed && state.passes == 0 {
            state.is_waiting = true;
            self.changed.notify_all();
            self.changed.wait(&mut state);
        }
        state.is_waiting = false;
        state.passes = state.passes.saturating_sub(1);
    }
}

/// Disk with a gate for its syncs.
pub struct GatedDisk {
    pub disk: SimDisk,
    pub gate: Arc<Gate>,
}

impl GatedDisk {
    pub fn new(seed: u64) -> Self {
        Self { disk: SimDisk::new(seed), gate: Arc::default() }
    }
}

struct GatedFile {
    file: Arc<dyn DiskFile>,
    gate: Arc<Gate>,
}

impl Disk for GatedDisk {
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn DiskFile>> {
        let file = self.disk.open(path, mode)?;
        Ok(Arc::new(GatedFile { file, gate: Arc::clone(&self.gate) }))
    }

    fn map(&self, path: &Path, len: usize) -> io::Result<Arc<dyn DiskMap>> {
        self.disk.map(path, len)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.disk.rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.disk.remove(path)
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<PathBuf>> {
        self.disk.list(dir)
    }

    fn create_dir_all(&self, dir: &Path) -> io::Result<()> {
        self.disk.create_dir_all(dir)
    }

    fn remove_dir(&self, dir: &Path) -> io::Result<()> {
        self.disk.remove_dir(dir)
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        self.disk.sync_dir(dir)
    }

    fn lock(&self, path: &Path) -> io::Result<Box<dyn DiskLock>> {
        self.disk.lock(path)
    }

    fn entropy(&self) -> u64 {
        self.disk.entropy()
    }
}

impl DiskFile for GatedFile {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        self.file.read_at(buf, offset)
    }

    fn write_all_at(&self, bufs: &[IoSlice<'_>], offset: u64) -> io::Result<()> {
        self.file.write_all_at(bufs, offset)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.gate.pass();
        self.file.sync_data()
    }

    fn truncate(&self, len: u64) -> io::Result<()> {
        self.file.truncate(len)
    }

    fn reserve(&self, len: u64) -> io::Result<()> {
        self.file.reserve(len)
    }

    fn size(&self) -> io::Result<u64> {
        self.file.size()
    }
}
