//! The thread that keeps the log from growing without bound.
//!
//! Once the log is so much larger than what a pass over all keys left behind (directive
//! `auto-aof-rewrite-percentage`), or when somebody asks (BGREWRITEAOF), it writes all live keys to
//! the log again, a few at a time and within `compaction-bytes-per-second`, and then drops the part
//! of the log from before. Nothing stops meanwhile.
//!
//! **Bound.** With live data of L bytes as logged and the default of 100 percent, a pass begins at
//! 2 L. It adds L itself, and writers add what they write until it ends. When the log gets to
//! [`HURRY_FACTOR`] times the size at the beginning, the pass no longer keeps to its budget. So the
//! log stays below about 4 L plus what is written in one pass at full speed.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Weak};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use tierce_keyspace::log::{Checkpoint, Pass};

use super::journal::Journal;
use crate::server::Server;

/// How often the size of the log is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// A pass that lets the log grow to this many times its size at the beginning stops sparing others.
const HURRY_FACTOR: u64 = 2;

/// Keys are logged in stretches of about this many bytes between two looks at the clock.
const STRETCH_BYTES: usize = 256 * 1024;

/// What is known about compaction, and asked of it.
#[derive(Default)]
pub(super) struct Compaction {
    wishes: Mutex<Wishes>,
    changed: Condvar,
    is_running: AtomicBool,
    last_failed: AtomicBool,
    passes: AtomicU64,
    /// Milliseconds of the last pass, -1 before the first.
    last_ms: AtomicI64,
    /// Bytes of the log after the last pass, or when it was opened.
    base_bytes: AtomicU64,
    bytes_written: AtomicU64,
}

#[derive(Default)]
struct Wishes {
    pass: bool,
    ends: bool,
}

/// Figures for INFO.
#[derive(Clone, Copy, Debug, Default)]
pub struct CompactionFigures {
    /// A pass is underway.
    pub is_running: bool,
    /// The last pass failed.
    pub last_failed: bool,
    /// Passes completed.
    pub passes: u64,
    /// Duration of the last one.
    pub last: Option<Duration>,
    /// Bytes of the log after the last pass.
    pub base_bytes: u64,
    /// Bytes written by all passes.
    pub bytes_written: u64,
}

impl Journal {
    /// Asks for a pass. `false` if one is underway.
    pub fn compact(&self) -> bool {
        self.compaction.wishes.lock().pass = true;
        self.compaction.changed.notify_all();
        !self.compaction.is_running.load(Relaxed)
    }

    /// Figures for INFO.
    #[must_use]
    pub fn compaction_figures(&self) -> CompactionFigures {
        let compaction = &self.compaction;
        let passes = compaction.passes.load(Relaxed);
        CompactionFigures {
            is_running: compaction.is_running.load(Relaxed),
            last_failed: compaction.last_failed.load(Relaxed),
            passes,
            last: (passes > 0)
                .then(|| Duration::from_millis(compaction.last_ms.load(Relaxed).max(0) as u64)),
            base_bytes: compaction.base_bytes.load(Relaxed),
            bytes_written: compaction.bytes_written.load(Relaxed),
        }
    }
}

impl Compaction {
    pub(super) fn set_base(&self, bytes: u64) {
        self.base_bytes.store(bytes, Relaxed);
    }

    /// Waits a while; whether somebody asked for a pass, `None` at the end.
    fn await_wish(&self) -> Option<bool> {
        let mut wishes = self.wishes.lock();
        if !wishes.pass && !wishes.ends {
            self.changed.wait_for(&mut wishes, LOOK_EVERY);
        }
        if wishes.ends { None } else { Some(std::mem::take(&mut wishes.pass)) }
    }

    /// Waits, unless the end comes first. Whether it has come.
    fn rest(&self, time: Duration) -> bool {
        let mut wishes = self.wishes.lock();
        if !wishes.ends {
            self.changed.wait_for(&mut wishes, time);
        }
        wishes.ends
    }
}

/// The thread; dropping it ends it.
pub(super) struct Compactor {
    journal: Arc<Journal>,
    thread: Option<JoinHandle<()>>,
}

impl Compactor {
    pub(super) fn start(journal: &Arc<Journal>, server: &Arc<Server>) -> io::Result<Self> {
        let (of_thread, weak) = (Arc::clone(journal), Arc::downgrade(server));
        let thread = thread::Builder::new().name("log-compact".into());
        let thread = thread.spawn(move || run(&of_thread, &weak))?;
        Ok(Self { journal: Arc::clone(journal), thread: Some(thread) })
    }
}

impl Drop for Compactor {
    fn drop(&mut self) {
        self.journal.compaction.wishes.lock().ends = true;
        self.journal.compaction.changed.notify_all();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn run(journal: &Journal, server: &Weak<Server>) {
    while let Some(is_asked) = journal.compaction.await_wish() {
        let Some(server) = server.upgrade() else { return };
        let heals = journal.may_heal();
        if heals {
            journal.begin_healing();
        }
        if is_asked || heals || is_grown(journal, &server) {
            journal.compaction.is_running.store(true, Relaxed);
            let result = compact(journal, &server);
            journal.compaction.is_running.store(false, Relaxed);
            report(journal, &server, result);
        }
        if heals {
            journal.end_healing();
        }
    }
}

fn is_grown(journal: &Journal, server: &Server) -> bool {
    let live = server.config.live();
    let (percentage, min_bytes) = (live.log_growth_percentage(), live.log_bytes_min());
    let base = journal.compaction.base_bytes.load(Relaxed);
    let bytes = journal.wal().bytes();
    percentage > 0 && bytes > min_bytes && bytes - base.min(bytes) >= base / 100 * percentage
}

/// What a pass came to.
struct Done {
    written: u64,
    freed: u64,
    took: Duration,
}

/// Why a pass did not complete.
enum Undone {
    /// The server ends.
    Ended,
    Failed(String),
}

fn compact(journal: &Journal, server: &Server) -> Result<Done, Undone> {
    let failed = |error: tierce_cask::Error| Undone::Failed(error.to_string());
    let begun = Instant::now();
    let bytes_at_begin = journal.wal().bytes();
    let mark = journal.wal().rotate().map_err(failed)?;
    let mut checkpoint = Checkpoint::begin(&server.keyspace);
    let (mut written, mut stretch) = (0, 0);
    loop {
        let (bytes, pass) = checkpoint.step();
        written += bytes as u64;
        stretch += bytes;
        if pass == Pass::Complete {
            break;
        }
        if stretch >= STRETCH_BYTES {
            stretch = 0;
            let hurries = journal.wal().bytes() > bytes_at_begin * HURRY_FACTOR;
            let ahead = ahead_of_budget(written, begun, server);
            if journal.compaction.rest(if hurries { Duration::ZERO } else { ahead }) {
                return Err(Undone::Ended);
            }
            if let Some(cause) = journal.wound() {
                return Err(Undone::Failed(cause));
            }
        }
    }
    // What takes the place of the old part has to be on the device before that goes.
    journal.sync().map_err(failed)?;
    if let Some(cause) = journal.wound() {
        return Err(Undone::Failed(cause));
    }
    let freed = journal.wal().drop_before(&mark).map_err(failed)?;
    Ok(Done { written, freed, took: begun.elapsed() })
}

/// How long to wait so that `written` bytes since `begun` are within the budget.
fn ahead_of_budget(written: u64, begun: Instant, server: &Server) -> Duration {
    match server.config.live().compaction_bytes_per_second() {
        0 => Duration::ZERO,
        rate => {
            let time = Duration::from_secs_f64(written as f64 / rate as f64);
            time.saturating_sub(begun.elapsed())
        }
    }
}

fn report(journal: &Journal, server: &Server, result: Result<Done, Undone>) {
    let compaction = &journal.compaction;
    match result {
        Ok(Done { written, freed, took }) => {
            compaction.last_failed.store(false, Relaxed);
            compaction.last_ms.store(took.as_millis() as i64, Relaxed);
            compaction.bytes_written.fetch_add(written, Relaxed);
            compaction.passes.fetch_add(1, Relaxed);
            compaction.set_base(journal.wal().bytes());
            server.log.verbose(format_args!(
                "Compacted the log in {:.1} s: {written} bytes written, {freed} bytes freed",
                took.as_secs_f64()
            ));
        }
        Err(Undone::Ended) => {}
        Err(Undone::Failed(cause)) => {
            if !compaction.last_failed.swap(true, Relaxed) {
                server.log.warning(format_args!("The log could not be compacted: {cause}"));
            }
        }
    }
}
