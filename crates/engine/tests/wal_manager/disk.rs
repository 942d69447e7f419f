//! A simulated disk on which any single operation can fail, including those that change nothing.

use std::io::{self, IoSlice};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;
use tierce_storage::disk::{Disk, DiskFile, DiskLock, DiskMap, OpenMode, SimDisk, Space};

/// Failure of an operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mishap {
    NoSpace,
    NoDescriptor,
    Broken,
    /// This operation and all later ones fail.
    Death,
}

#[derive(Default)]
struct Plan {
    operations: u64,
    fail_at: Option<(u64, Mishap)>,
    at_completion: Option<Box<dyn FnOnce() + Send>>,
}

/// Clones share it.
#[derive(Clone)]
pub struct FaultyDisk {
    pub inner: SimDisk,
    plan: Arc<Mutex<Plan>>,
}

impl FaultyDisk {
    pub fn new(inner: SimDisk) -> Self {
        Self { inner, plan: Arc::default() }
    }

    /// Returns the number of operations so far.
    pub fn operations(&self) -> u64 {
        self.plan.lock().operations
    }

    /// Makes the operation with this number fail, counted from one.
    pub fn fail_at(&self, operation: u64, mishap: Mishap) {
        self.plan.lock().fail_at = Some((operation, mishap));
    }

    /// Sets an action that runs while a log is being made authoritative, which takes the disk some
    /// time.
    pub fn at_completion(&self, act: impl FnOnce() + Send + 'static) {
        self.plan.lock().at_completion = Some(Box::new(act));
    }

    /// Returns true if the failure has not happened yet.
    pub fn is_unharmed(&self) -> bool {
        let plan = self.plan.lock();
        plan.fail_at.is_some_and(|(at, _)| plan.operations < at)
    }

    fn begin(&self) -> io::Result<()> {
        let mut plan = self.plan.lock();
        plan.operations += 1;
        let Some((at, mishap)) = plan.fail_at else { return Ok(()) };
        if plan.operations != at {
            return Ok(());
        }
        Err(match mishap {
            Mishap::NoSpace => io::ErrorKind::StorageFull.into(),
            Mishap::NoDescriptor => io::Error::from_raw_os_error(24),
            Mishap::Broken => io::Error::from_raw_os_error(5),
            Mishap::Death => {
                self.inner.halt_at(self.inner.calls());
                io::Error::other("the process is dead")
            }
        })
    }
}

impl Disk for FaultyDisk {
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn DiskFile>> {
        self.begin()?;
        if path.extension().is_some_and(|kind| kind == "complete") {
            let act = self.plan.lock().at_completion.take();
            act.into_iter().for_each(|act| act());
        }
        let file = self.inner.open(path, mode)?;
        Ok(Arc::new(FaultyFile { file, disk: self.clone() }))
    }

    fn map(&self, path: &Path, len: usize) -> io::Result<Arc<dyn DiskMap>> {
        self.begin()?;
        self.inner.map(path, len)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.begin()?;
        self.inner.rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.begin()?;
        self.inner.remove(path)
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<PathBuf>> {
        self.begin()?;
        self.inner.list(dir)
    }

    fn create_dir_all(&self, dir: &Path) -> io::Result<()> {
        self.begin()?;
        self.inner.create_dir_all(dir)
    }

    fn remove_dir(&self, dir: &Path) -> io::Result<()> {
        self.begin()?;
        self.inner.remove_dir(dir)
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        self.begin()?;
        self.inner.sync_dir(dir)
    }

    fn lock(&self, path: &Path) -> io::Result<Box<dyn DiskLock>> {
        self.begin()?;
        self.inner.lock(path)
    }

    fn space(&self, dir: &Path) -> Option<Space> {
        self.inner.space(dir)
    }

    fn entropy(&self) -> u64 {
        self.inner.entropy()
    }
}

struct FaultyFile {
    file: Arc<dyn DiskFile>,
    disk: FaultyDisk,
}

impl DiskFile for FaultyFile {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        self.disk.begin()?;
        self.file.read_at(buf, offset)
    }

    fn write_all_at(&self, bufs: &[IoSlice<'_>], offset: u64) -> io::Result<()> {
        if let Err(error) = self.disk.begin() {
            // A part of it is still written.
            let bytes: Vec<u8> = bufs.iter().flat_map(|buf| buf.iter().copied()).collect();
            let _ = self.file.write_all_at(&[IoSlice::new(&bytes[..bytes.len() / 2])], offset);
            return Err(error);
        }
        self.file.write_all_at(bufs, offset)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.disk.begin()?;
        self.file.sync_data()
    }

    fn truncate(&self, len: u64) -> io::Result<()> {
        self.disk.begin()?;
        self.file.truncate(len)
    }

    fn reserve(&self, len: u64) -> io::Result<()> {
        self.disk.begin()?;
        self.file.reserve(len)
    }

    fn size(&self) -> io::Result<u64> {
        self.disk.begin()?;
        self.file.size()
    }
}
