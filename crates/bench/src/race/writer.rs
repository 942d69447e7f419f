//! Writes until killed, and records the acknowledged writes.
//!
//! Each thread overwrites a few keys of its own in turn. So write number `n` of a thread is of its key `n %
//! KEYS_PER_THREAD` in version `n / KEYS_PER_THREAD`. After each completed write the thread stores its number of
//! writes in its slot of a shared file: 8 bytes in one call into the page cache, which survives the kill. So one
//! number for each thread is sufficient, and at most one write of a thread can be done but not recorded.
//! number per thread is all there is to know, and at most one write per thread can be done but not recorded.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::Path;

use super::dataset::VALUE_LEN;
use super::engine::Store;
use super::error::RaceError;
use super::plan::Plan;
use super::worker_pool;

/// Few, so that most writes replace something and compaction has work. Not so few that the store would fit one
/// segment.
pub(super) const KEYS_PER_THREAD: u64 = 32;

/// Number of acknowledged writes of each thread.
#[derive(Debug)]
pub(super) struct Notes {
    file: File,
    path: std::path::PathBuf,
    threads: usize,
}

impl Notes {
    /// Opens the file, or creates it if there is none.
    pub(super) fn open(path: &Path, threads: u32) -> Result<Self, RaceError> {
        let mut options = OpenOptions::new();
        let file = options.read(true).write(true).create(true).truncate(false).open(path);
        let file = file.map_err(RaceError::io("open", path))?;
        let threads = threads as usize;
        file.set_len(threads as u64 * 8).map_err(RaceError::io("extend", path))?;
        Ok(Self { file, path: path.to_owned(), threads })
    }

    pub(super) fn read(&self) -> Result<Vec<u64>, RaceError> {
        let mut bytes = vec![0; self.threads * 8];
        self.file.read_exact_at(&mut bytes, 0).map_err(RaceError::io("read", &self.path))?;
        let slots = bytes.chunks_exact(8);
        Ok(slots.map(|slot| u64::from_le_bytes(slot.try_into().expect("8 bytes"))).collect())
    }

    fn note(&self, thread: usize, writes: u64) -> Result<(), RaceError> {
        self.file
            .write_all_at(&writes.to_le_bytes(), thread as u64 * 8)
            .map_err(RaceError::io("write", &self.path))
    }
}

/// Continues after the recorded writes, and only returns if something fails.
pub(super) fn write_on(plan: &Plan) -> Result<(), RaceError> {
    let notes = Notes::open(&plan.acknowledged(), plan.threads)?;
    let done = notes.read()?;
    let store = Store::open(&plan.killed_store(), &plan.tuning.restless())?;
    let dataset = plan.dataset();
    let work = |worker: &worker_pool::PoolWorker<'_>| {
        let mut value = [0; VALUE_LEN];
        for write in done[worker.number].. {
            if worker.is_over() {
                break;
            }
            let number = worker.number as u64 * KEYS_PER_THREAD + write % KEYS_PER_THREAD;
            let key = dataset.key(number);
            dataset.fill(&mut value, key, write / KEYS_PER_THREAD);
            store.put(key, &value)?;
            notes.note(worker.number, write + 1)?;
        }
        Ok(())
    };
    worker_pool::run(plan.threads as usize, work, |_, _| ()).map(|_| ())
}
