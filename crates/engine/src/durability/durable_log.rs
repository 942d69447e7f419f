//! The durable log, as the keyspace and the sessions see it.
//!
//! A change is appended while its shard is locked, after the request has been executed. So it cannot be undone when
//! the log fails: the durable log then has a *write error*. From that moment writes are refused, and connections with
//! unsent replies are closed without them. So every acknowledged change is in the log. Memory is ahead of the log by
//! unacknowledged changes, which readers see.
//!
//! **A failed log accepts no more records**, because they would edit a state that it does not have. The log is
//! latched before the shard of the failed change is unlocked, so it holds exactly the acknowledged changes. The write
//! error keeps its first cause until a new log has all keys (`wal_manager.rs`).
//!
//! **Positions** always grow, also from one log to the next, so that a session can compare positions of different
//! logs. While there is a write error, the durable position stays where it was when the error occurred: a sync of a
//! new log says nothing about the old one.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use arc_swap::ArcSwapOption;
use parking_lot::{Condvar, Mutex};
use tierce_keyspace::log::{LogSink, RecordKind};
use tierce_storage::{Error, Wal};

use super::compactor::Compaction;
use super::exposure::Exposure;

/// The log of the keyspace.
#[derive(Default)]
pub struct DurableLog {
    /// True if there is a log, or a new one shall follow a write error.
    is_on: AtomicBool,
    /// True if a log was switched off. It is still on disk, and the next start may load it.
    was_on: AtomicBool,
    /// The log that takes changes. `Some` once the keyspace is loaded, unless the log is switched off or has failed.
    log: ArcSwapOption<OpenLog>,
    /// Position of the end of the last log.
    top: AtomicU64,
    /// Positions of a log that could not be closed which never became durable; usually empty.
    lost: Mutex<Range<u64>>,
    has_write_error: AtomicBool,
    write_error: Mutex<Option<WriteError>>,
    demand: Mutex<Demand>,
    demanded: Condvar,
    pub(super) compaction: Compaction,
    syncs: AtomicU64,
    /// Age of the oldest write that is not durable.
    pub(super) exposure: Exposure,
}

/// The open log.
pub(super) struct OpenLog {
    pub(super) wal: Wal,
    /// Offset of its positions.
    base: u64,
    /// The log has failed and accepts no more records.
    is_latched: AtomicBool,
}

impl OpenLog {
    fn appended(&self) -> u64 {
        self.base + self.wal.appended()
    }

    fn durable(&self) -> u64 {
        self.base + self.wal.durable()
    }

    pub(super) fn is_latched(&self) -> bool {
        self.is_latched.load(Ordering::Acquire)
    }
}

#[derive(Clone, Debug)]
struct WriteError {
    cause: String,
    heals: bool,
    /// Durable position when the error occurred.
    durable: u64,
}

/// Requests to the syncer.
#[derive(Default)]
pub(super) struct Demand {
    /// Records up to this position shall be durable soon.
    pub(super) position: u64,
    pub(super) ends: bool,
}

/// Figures for INFO.
#[derive(Clone, Debug, Default)]
pub struct WalFigures {
    /// Bytes of the log on disk.
    pub bytes: u64,
    /// Position of the end of the log.
    pub appended: u64,
    /// Position up to which the log is durable.
    pub durable: u64,
    /// Number of syncs.
    pub syncs: u64,
    /// Reason why writes are refused, if they are.
    pub write_error: Option<String>,
}

impl LogSink for DurableLog {
    #[inline]
    fn append(&self, record: &[u8], _: RecordKind) {
        self.keep(record);
    }
}

impl DurableLog {
    /// Appends a record if there is a log. Returns `false` if the log should have it but does not.
    #[inline]
    pub(crate) fn keep(&self, record: &[u8]) -> bool {
        // `is_on` is set after the log is opened and cleared after it is closed. Followers of the feed get records
        // without a log, and loading `self.log` costs more than this check.
        if !self.is_on() {
            return !self.has_write_error();
        }
        // The log has failed, or was switched off and this writer does not know yet.
        let log = self.log.load();
        let Some(log) = &*log else { return !self.has_write_error() };
        if log.is_latched() {
            return false;
        }
        let appended = log.wal.append(record);
        if let Err(error) = &appended {
            self.note_failed_log(log, error);
        }
        appended.is_ok()
    }

    /// Notes that a client relies on its writes becoming durable within a second.
    #[inline]
    pub fn note_guarantee(&self) {
        self.exposure.note_guarantee();
    }

    /// Returns true if changes go to a log, or would if it had not failed.
    #[inline]
    pub fn is_on(&self) -> bool {
        self.is_on.load(Ordering::Acquire)
    }

    /// Returns true if the log was switched off and is still on disk.
    pub(super) fn was_on(&self) -> bool {
        self.was_on.load(Ordering::Acquire)
    }

    /// Returns the open log, if there is one.
    pub(super) fn log(&self) -> Option<Arc<OpenLog>> {
        self.log.load_full()
    }

    /// Makes changes go to `wal`. Only one thread opens and closes logs, and it must have closed the log before.
    pub(crate) fn open(&self, wal: Wal) {
        debug_assert!(self.log.load().is_none());
        // The base is beyond every position that was given out.
        let base = self.top.load(Ordering::Acquire).max(self.demand.lock().position);
        self.compaction.set_base(wal.bytes());
        self.log.store(Some(Arc::new(OpenLog { wal, base, is_latched: AtomicBool::new(false) })));
        self.is_on.store(true, Ordering::Release);
    }

    /// Notes that the log has all keys and no other records.
    pub(super) fn note_filled(&self) {
        if let Some(log) = self.log() {
            self.compaction.set_base(log.wal.bytes());
        }
    }

    /// Switches the log off. When this returns, everything is durable, nothing is appended any more, and no thread
    /// waits for it.
    pub(crate) fn close(&self) -> Result<(), Error> {
        let closed = self.suspend();
        if self.is_on.swap(false, Ordering::AcqRel) {
            self.was_on.store(true, Ordering::Release);
        }
        self.heal();
        closed
    }

    /// Closes a failed log before its replacement is open, without switching the log off.
    pub(super) fn suspend(&self) -> Result<(), Error> {
        let Some(log) = self.log.load_full() else { return Ok(()) };
        log.is_latched.store(true, Ordering::Release);
        // `self.log` stays set until the sync has ended, for threads that wait for it.
        let synced = log.wal.sync().map(drop);
        let closed = synced.and(log.wal.close());
        self.top.fetch_max(log.appended(), Ordering::AcqRel);
        if closed.is_err() {
            let durable = self
                .latest_error()
                .map_or_else(|| log.durable(), |write_error| write_error.durable);
            *self.lost.lock() = durable..log.appended();
        }
        self.log.store(None);
        closed
    }

    /// Returns the position of the last appended record.
    #[inline]
    pub fn appended(&self) -> u64 {
        let log = self.log.load();
        log.as_ref().map_or_else(|| self.top.load(Ordering::Acquire), |log| log.appended())
    }

    /// Returns the position up to which everything survives a power cut. Without a log it returns the end, so that
    /// nobody waits.
    pub fn durable(&self) -> u64 {
        // The order matters: a write error is set before its replacement log is opened.
        let log = self.log.load();
        if let Some(write_error) = self.latest_error() {
            return write_error.durable;
        }
        log.as_ref().map_or_else(|| self.top.load(Ordering::Acquire), |log| log.durable())
    }

    /// Returns true if the log has all keys, so that the next start loads it. Always true without a log.
    pub fn is_complete(&self) -> bool {
        !self.compaction.is_incomplete()
    }

    /// Returns the positions of a log that could not be closed which never became durable: after the first, up to the
    /// last. A later log has higher positions, which says nothing about these.
    pub fn lost(&self) -> Option<Range<u64>> {
        let lost = self.lost.lock();
        (!lost.is_empty()).then(|| lost.clone())
    }

    /// Returns true if writes must be refused.
    #[inline]
    pub fn has_write_error(&self) -> bool {
        self.has_write_error.load(Ordering::Acquire)
    }

    fn latest_error(&self) -> Option<WriteError> {
        if !self.has_write_error() {
            return None;
        }
        self.write_error.lock().clone()
    }

    /// Returns the reason why writes are refused.
    pub fn write_error(&self) -> Option<String> {
        self.latest_error().map(|write_error| write_error.cause)
    }

    /// Returns true if there is a write error that a new log heals without a request.
    pub(super) fn may_heal(&self) -> bool {
        self.latest_error().is_some_and(|write_error| write_error.heals)
    }

    /// Accepts writes again, because a log has all keys or none is wanted. If the new log failed meanwhile, the write
    /// error stays.
    pub(super) fn heal(&self) {
        let mut write_error = self.write_error.lock();
        if self.log.load().as_ref().is_some_and(|log| log.is_latched()) {
            return;
        }
        *write_error = None;
        self.has_write_error.store(false, Ordering::Release);
    }

    /// Requests a sync soon, at least up to `position`.
    pub fn demand(&self, position: u64) {
        let mut demand = self.demand.lock();
        demand.position = demand.position.max(position);
        self.demanded.notify_one();
    }

    /// Returns the longest wait of a writer for the log since the last call.
    pub fn take_longest_wait(&self) -> Duration {
        self.log().map_or(Duration::ZERO, |log| log.wal.take_longest_wait())
    }

    /// Returns the figures for INFO.
    pub fn figures(&self) -> WalFigures {
        WalFigures {
            bytes: self.log().map_or(0, |log| log.wal.bytes()),
            appended: self.appended(),
            durable: self.durable(),
            syncs: self.syncs.load(Ordering::Relaxed),
            write_error: self.write_error(),
        }
    }

    /// Makes everything appended so far durable.
    ///
    /// # Errors
    /// The error of the disk, or the earlier failure of the log.
    pub fn sync(&self) -> Result<(), Error> {
        let Some(log) = self.log() else { return self.check() };
        if log.is_latched() {
            return self.check();
        }
        self.syncs.fetch_add(1, Ordering::Relaxed);
        log.wal.sync().map(drop).inspect_err(|error| self.note_failed_log(&log, error))
    }

    fn check(&self) -> Result<(), Error> {
        self.write_error().map_or(Ok(()), |cause| Err(Error::ReadOnly { cause }))
    }

    /// Waits for at most `at_most` until a position beyond `announced` is requested. Returns `None` at the end.
    pub(super) fn await_demand(&self, announced: u64, at_most: Duration) -> Option<u64> {
        let mut demand = self.demand.lock();
        if demand.position <= announced && !demand.ends {
            self.demanded.wait_for(&mut demand, at_most);
        }
        if demand.ends { None } else { Some(demand.position) }
    }

    pub(super) fn begin_syncing(&self) {
        self.demand.lock().ends = false;
    }

    pub(super) fn end_syncing(&self) {
        self.demand.lock().ends = true;
        self.demanded.notify_all();
    }

    #[cold]
    fn note_failed_log(&self, log: &Arc<OpenLog>, error: &Error) {
        {
            let mut write_error = self.write_error.lock();
            // The log was already closed when this late writer failed. Its change is in memory and will be in the
            // next log.
            if !self.log.load().as_ref().is_some_and(|current| Arc::ptr_eq(current, log)) {
                return;
            }
            write_error.get_or_insert_with(|| WriteError {
                cause: error.to_string(),
                // A new log needs nothing of the old one.
                heals: error.may_pass(),
                durable: log.durable(),
            });
            self.has_write_error.store(true, Ordering::Release);
            // The latch is set last: a writer that finds the log latched must also find the write error, or it takes
            // its write for logged. The change's shard is still locked, so no dependent change is appended.
            log.is_latched.store(true, Ordering::Release);
        }
        self.compaction.ask(|_| {});
    }
}

#[cfg(test)]
mod tests {
    use std::fmt;
    use std::io;
    use std::path::Path;
    use std::sync::OnceLock;

    use tierce_storage::WalOptions;
    use tierce_storage::disk::SimDisk;

    use super::*;

    /// An error cause that inspects the durable log while it is formatted.
    #[derive(Default)]
    struct Witness(OnceLock<(Arc<DurableLog>, OnceLock<bool>)>);

    impl fmt::Display for Witness {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            let (durable_log, was_latched) = self.0.get().expect("set before it fails");
            was_latched.get_or_init(|| durable_log.log().is_some_and(|log| log.is_latched()));
            f.write_str("a failed device")
        }
    }

    #[derive(Clone, Default)]
    struct Cause(Arc<Witness>);

    impl fmt::Debug for Cause {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            fmt::Display::fmt(self, f)
        }
    }

    impl fmt::Display for Cause {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            fmt::Display::fmt(&*self.0, f)
        }
    }

    impl std::error::Error for Cause {}

    fn durable_log() -> Arc<DurableLog> {
        let options = WalOptions { background_threads: false, ..WalOptions::default() };
        let disk = Arc::new(SimDisk::new(1));
        let (wal, _) = Wal::open_on(disk, "/wal", options, |_| Ok(())).expect("an empty disk");
        let durable_log = Arc::<DurableLog>::default();
        durable_log.open(wal);
        durable_log
    }

    /// A writer whose record a latched log refused must find a write error, or it acknowledges the write.
    #[test]
    fn a_log_is_not_latched_before_there_is_a_write_error() {
        let durable_log = durable_log();
        let cause = Cause::default();
        assert!(cause.0.0.set((Arc::clone(&durable_log), OnceLock::new())).is_ok());
        let source = Arc::new(io::Error::other(cause.clone()));
        let error = Error::Io { action: "sync", path: Path::new("/wal").to_owned(), source };
        let log = durable_log.log().expect("it was opened");
        durable_log.note_failed_log(&log, &error);
        let (_, was_latched) = cause.0.0.get().expect("set above");
        assert_eq!(was_latched.get(), Some(&false), "while the write error was noted");
        assert!(log.is_latched() && durable_log.has_write_error());
        assert!(durable_log.write_error().is_some_and(|cause| cause.contains("a failed device")));
    }
}
