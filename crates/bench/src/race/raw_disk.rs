//! The raw limits of the disk, measured without the page cache on a new file.
//!
//! Sequential work uses blocks of 1 MiB with [`SEQUENTIAL_DEPTH`] requests in flight, because a single request leaves
//! most disks idle in between. Random reads are of 4 KiB at a depth of [`RANDOM_DEPTH`]. The file is new and full of
//! random bytes, as the store's files will be.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use serde::Serialize;

use super::dataset::Shuffle;
use super::direct::{Buffer, DirectFile};
use super::error::RaceError;
use super::plan::Plan;
use super::worker_pool::{self, PoolWorker};
use crate::random::Random;

/// Length of a block of sequential work.
const BLOCK_LEN: usize = 1 << 20;
/// Length of a random read.
const PAGE_LEN: usize = 4096;
const SEQUENTIAL_DEPTH: usize = 4;
const RANDOM_DEPTH: usize = 64;
/// The file is as long as the data of the race, within these limits. Shorter files give no useful figures, and longer
/// ones no better figures.
const BLOCKS_MIN: u64 = 16;
const BLOCKS_MAX: u64 = 4096;
/// Time limit of random reads. They end earlier if all pages were read.
const RANDOM_TIME_MAX: Duration = Duration::from_secs(4);

/// Maximum performance of the disk.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct RawDisk {
    pub(super) file_bytes: u64,
    /// Includes the sync at the end.
    pub(super) write_bytes_per_second: f64,
    pub(super) read_bytes_per_second: f64,
    pub(super) random_reads_per_second: f64,
}

/// The three measurements, for progress reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RawDiskTest {
    Write,
    RandomRead,
    Read,
}

/// Measures, and removes the file. Returns `None` if the file system has no direct I/O.
pub(super) fn measure(
    plan: &Plan,
    mut tell: impl FnMut(RawDiskTest),
) -> Result<Option<RawDisk>, RaceError> {
    let path = plan.raw_disk();
    let blocks = (plan.bytes() / BLOCK_LEN as u64).clamp(BLOCKS_MIN, BLOCKS_MAX);
    let file_bytes = blocks * BLOCK_LEN as u64;
    let Some(file) = DirectFile::create(&path, file_bytes)? else { return Ok(None) };
    let measured = (|| {
        tell(RawDiskTest::Write);
        let write = write(&file, blocks, plan.seed)?;
        tell(RawDiskTest::RandomRead);
        let random = random_reads(&file, file_bytes / PAGE_LEN as u64, plan.seed)?;
        tell(RawDiskTest::Read);
        let read = read(&file, blocks)?;
        Ok(RawDisk {
            file_bytes,
            write_bytes_per_second: file_bytes as f64 / write.as_secs_f64(),
            read_bytes_per_second: file_bytes as f64 / read.as_secs_f64(),
            random_reads_per_second: random,
        })
    })();
    drop(file);
    std::fs::remove_file(&path).map_err(RaceError::io("remove", &path))?;
    measured.map(Some)
}

fn write(file: &DirectFile, blocks: u64, seed: u64) -> Result<Duration, RaceError> {
    let mut random = Random::new(seed);
    let mut buffer = Buffer::new(BLOCK_LEN);
    for word in buffer.bytes_mut().chunks_exact_mut(8) {
        word.copy_from_slice(&random.bits().to_le_bytes());
    }
    let start = Instant::now();
    each_block(blocks, SEQUENTIAL_DEPTH, || |block| file.write(&buffer, block * BLOCK_LEN as u64))?;
    file.sync()?;
    Ok(start.elapsed())
}

fn read(file: &DirectFile, blocks: u64) -> Result<Duration, RaceError> {
    each_block(blocks, SEQUENTIAL_DEPTH, || {
        let mut buffer = Buffer::new(BLOCK_LEN);
        move |block| file.read(&mut buffer, block * BLOCK_LEN as u64)
    })
}

/// Hands out the numbers of blocks in order to threads, each of which handles one at a time.
fn each_block<W>(
    blocks: u64,
    depth: usize,
    new_work: impl Fn() -> W + Sync,
) -> Result<Duration, RaceError>
where
    W: FnMut(u64) -> Result<(), RaceError>,
{
    let next = AtomicU64::new(0);
    let work = |worker: &PoolWorker<'_>| {
        let mut work = new_work();
        while !worker.is_over() {
            let block = next.fetch_add(1, Ordering::Relaxed);
            if block >= blocks {
                break;
            }
            work(block)?;
        }
        Ok(())
    };
    worker_pool::run(depth, work, |_, _| ())
}

/// Reads pages in random order, each at most once, until all are read or time is up.
fn random_reads(file: &DirectFile, pages: u64, seed: u64) -> Result<f64, RaceError> {
    let order = Shuffle::new(pages, seed);
    let (next, done) = (AtomicU64::new(0), AtomicU64::new(0));
    let start = Instant::now();
    let work = |worker: &PoolWorker<'_>| {
        let mut buffer = Buffer::new(PAGE_LEN);
        let mut count = 0;
        while !worker.is_over() && start.elapsed() < RANDOM_TIME_MAX {
            let position = next.fetch_add(1, Ordering::Relaxed);
            if position >= pages {
                break;
            }
            file.read(&mut buffer, order.at(position) * PAGE_LEN as u64)?;
            count += 1;
        }
        done.fetch_add(count, Ordering::Relaxed);
        Ok(())
    };
    let time = worker_pool::run(RANDOM_DEPTH, work, |_, _| ())?;
    Ok(done.into_inner() as f64 / time.as_secs_f64())
}
