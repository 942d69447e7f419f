//! The log as the keyspace and the sessions see it.
//!
//! A change is appended while its shard is locked, after the request has been executed. So it cannot be undone
//! when the log fails: the durable log then has a *write error*. From that moment writes are refused, and
//! connections whose replies have not been sent are closed without them: nothing is acknowledged that is not
//! in the log. Memory is ahead of the log by unacknowledged changes, which readers see.
//!
//! **A log that has failed takes nothing more**, because later records would be edits of a state that it does
//! not have. It is latched before the shard of the failed change is unlocked, so it keeps exactly what was
//! acknowledged. The write error keeps its first cause until there is another log with all keys in it
//! (`wal_manager.rs`).
//!
//! **Positions** grow all the time, from one log to the next, so that a session can compare one that it got
//! from a log before. While there is a write error, what is durable stays as it was when it came: that a new log
//! has reached the device says nothing about the log before.

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
    /// Whether there is a log, or is to be one again after a write error.
    is_on: AtomicBool,
    /// Whether there was a log and it was switched off. It is still on disk, and may count at the next
    /// start.
    was_on: AtomicBool,
    /// Where changes go. There once the keyspace has been loaded, unless it is switched off or has a write error.
    log: ArcSwapOption<OpenLog>,
    /// Where the last log ended.
    top: AtomicU64,
    /// What a log that could not be closed had not on the device; empty as a rule.
    lost: Mutex<Range<u64>>,
    has_write_error: AtomicBool,
    write_error: Mutex<Option<WriteError>>,
    demand: Mutex<Demand>,
    demanded: Condvar,
    pub(super) compaction: Compaction,
    syncs: AtomicU64,
    /// How old what is not on the device is.
    pub(super) exposure: Exposure,
}

/// The log that is written to.
pub(super) struct OpenLog {
    pub(super) wal: Wal,
    /// What its positions are counted from.
    base: u64,
    /// It has failed, and takes nothing any more.
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
    /// What was durable when it came.
    durable: u64,
}

/// What the syncer is asked for.
#[derive(Default)]
pub(super) struct Demand {
    /// Records up to here shall be durable soon.
    pub(super) position: u64,
    pub(super) ends: bool,
}

/// Figures for INFO.
#[derive(Clone, Debug, Default)]
pub struct WalFigures {
    /// Bytes of the log on disk.
    pub bytes: u64,
    /// Where the log ends: a number that grows with every record.
    pub appended: u64,
    /// Up to where it is on the device.
    pub durable: u64,
    /// Times the log was synced.
    pub syncs: u64,
    /// Why writes are refused, if they are.
    pub write_error: Option<String>,
}

impl LogSink for DurableLog {
    #[inline]
    fn append(&self, record: &[u8], _: RecordKind) {
        self.keep(record);
    }
}

impl DurableLog {
    /// Appends a record to the log, if there is one. `false` if the log should have it, and has not.
    #[inline]
    pub(crate) fn keep(&self, record: &[u8]) -> bool {
        // There is none then: it is opened before this says so, and closed after. Followers of the feed have records
        // without a log, and looking for one costs more than this.
        if !self.is_on() {
            return !self.has_write_error();
        }
        // A writer that does not know yet that the log was switched off, or while there is a write error.
        let log = self.log.load();
        let Some(log) = &*log else { return !self.has_write_error() };
        if log.is_latched() {
            return false;
        }
        let appended = log.wal.append(record);
        if let Err(error) = &appended {
            self.hurt(log, error);
        }
        appended.is_ok()
    }

    /// A client is to have its writes on the device within a second.
    #[inline]
    pub fn promise(&self) {
        self.exposure.promise();
    }

    /// Whether changes go to a log, or would if it had not failed.
    #[inline]
    pub fn is_on(&self) -> bool {
        self.is_on.load(Ordering::Acquire)
    }

    /// Whether the log that was switched off is on disk.
    pub(super) fn was_on(&self) -> bool {
        self.was_on.load(Ordering::Acquire)
    }

    /// The log, while there is one.
    pub(super) fn log(&self) -> Option<Arc<OpenLog>> {
        self.log.load_full()
    }

    /// Has changes go to `wal`. The caller is the only one that opens and closes, and has closed the one
    /// before.
    pub(crate) fn open(&self, wal: Wal) {
        debug_assert!(self.log.load().is_none());
        // Beyond every position that anybody has got.
        let base = self.top.load(Ordering::Acquire).max(self.demand.lock().position);
        self.compaction.set_base(wal.bytes());
        self.log.store(Some(Arc::new(OpenLog { wal, base, is_latched: AtomicBool::new(false) })));
        self.is_on.store(true, Ordering::Release);
    }

    /// The log has all keys, and no other records.
    pub(super) fn note_filled(&self) {
        if let Some(log) = self.log() {
            self.compaction.set_base(log.wal.bytes());
        }
    }

    /// Switches the log off: everything is on the device when this returns, nothing is appended any more,
    /// and no thread waits for it.
    pub(crate) fn close(&self) -> Result<(), Error> {
        let closed = self.suspend();
        if self.is_on.swap(false, Ordering::AcqRel) {
            self.was_on.store(true, Ordering::Release);
        }
        self.heal();
        closed
    }

    /// Closes the log without switching it off: one that has failed, while another is not there yet.
    pub(super) fn suspend(&self) -> Result<(), Error> {
        let Some(log) = self.log.load_full() else { return Ok(()) };
        log.is_latched.store(true, Ordering::Release);
        // In place until it is on the device, for those who wait for that.
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

    /// The position of what was appended last.
    #[inline]
    pub fn appended(&self) -> u64 {
        let log = self.log.load();
        log.as_ref().map_or_else(|| self.top.load(Ordering::Acquire), |log| log.appended())
    }

    /// Everything up to this position survives a power cut, or nothing is to be waited for any more
    /// because the log was switched off.
    pub fn durable(&self) -> u64 {
        // In this order: a write error comes before the log that is opened because of it.
        let log = self.log.load();
        if let Some(write_error) = self.latest_error() {
            return write_error.durable;
        }
        log.as_ref().map_or_else(|| self.top.load(Ordering::Acquire), |log| log.durable())
    }

    /// Whether the log has all keys, so that it counts at the next start. Without a log there is nothing to complete.
    pub fn is_complete(&self) -> bool {
        !self.compaction.is_incomplete()
    }

    /// Positions in a log that could not be closed: behind the first, up to the last, nothing was on the
    /// device. That a later log is beyond them says nothing of them.
    pub fn lost(&self) -> Option<Range<u64>> {
        let lost = self.lost.lock();
        (!lost.is_empty()).then(|| lost.clone())
    }

    /// Whether writes have to be refused.
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

    /// Why writes are refused.
    pub fn write_error(&self) -> Option<String> {
        self.latest_error().map(|write_error| write_error.cause)
    }

    /// Whether there is a write error that a new log heals without being asked for.
    pub(super) fn may_heal(&self) -> bool {
        self.latest_error().is_some_and(|write_error| write_error.heals)
    }

    /// Accepts writes again: a log holds all keys, or there is to be none. A log that has failed while it was
    /// being completed keeps the write error: it takes nothing more.
    pub(super) fn heal(&self) {
        let mut write_error = self.write_error.lock();
        if self.log.load().as_ref().is_some_and(|log| log.is_latched()) {
            return;
        }
        *write_error = None;
        self.has_write_error.store(false, Ordering::Release);
    }

    /// Has the log synced soon, at least up to `position`.
    pub fn demand(&self, position: u64) {
        let mut demand = self.demand.lock();
        demand.position = demand.position.max(position);
        self.demanded.notify_one();
    }

    /// The longest wait of a writer for the log, since this was called last.
    pub fn take_longest_wait(&self) -> Duration {
        self.log().map_or(Duration::ZERO, |log| log.wal.take_longest_wait())
    }

    /// Figures for INFO.
    pub fn figures(&self) -> WalFigures {
        WalFigures {
            bytes: self.log().map_or(0, |log| log.wal.bytes()),
            appended: self.appended(),
            durable: self.durable(),
            syncs: self.syncs.load(Ordering::Relaxed),
            write_error: self.write_error(),
        }
    }

    /// Has everything appended so far reach the device.
    ///
    /// # Errors
    /// What the disk says, or that the log has failed before.
    pub fn sync(&self) -> Result<(), Error> {
        let Some(log) = self.log() else { return self.check() };
        if log.is_latched() {
            return self.check();
        }
        self.syncs.fetch_add(1, Ordering::Relaxed);
        log.wal.sync().map(drop).inspect_err(|error| self.hurt(&log, error))
    }

    fn check(&self) -> Result<(), Error> {
        self.write_error().map_or(Ok(()), |cause| Err(Error::ReadOnly { cause }))
    }

    /// Waits until a place beyond `announced` is demanded, for `at_most`; `None` at the end.
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
    fn hurt(&self, log: &Arc<OpenLog>, error: &Error) {
        {
            let mut write_error = self.write_error.lock();
            // A writer so late that the log was closed already: its change is in memory, and will be in
            // the log that is opened next.
            if !self.log.load().as_ref().is_some_and(|current| Arc::ptr_eq(current, log)) {
                return;
            }
            write_error.get_or_insert_with(|| WriteError {
                cause: error.to_string(),
                // Nothing of the log before is needed for a new one.
                heals: error.may_pass(),
                durable: log.durable(),
            });
            self.has_write_error.store(true, Ordering::Release);
            // Last, so that no writer finds the log latched and no write error, and takes its write for logged; and
            // with the change's shard still locked, so that nothing that builds on it is appended.
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

    /// A cause that looks at the durable log while it is told.
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

    /// A writer whose write a latched log has not taken has to find a write error, or it acknowledges it.
    #[test]
    fn a_log_is_not_latched_before_there_is_a_write_error() {
        let durable_log = durable_log();
        let cause = Cause::default();
        assert!(cause.0.0.set((Arc::clone(&durable_log), OnceLock::new())).is_ok());
        let source = Arc::new(io::Error::other(cause.clone()));
        let error = Error::Io { action: "sync", path: Path::new("/wal").to_owned(), source };
        let log = durable_log.log().expect("it was opened");
        durable_log.hurt(&log, &error);
        let (_, was_latched) = cause.0.0.get().expect("set above");
        assert_eq!(was_latched.get(), Some(&false), "while the write error was noted");
        assert!(log.is_latched() && durable_log.has_write_error());
        assert!(durable_log.write_error().is_some_and(|cause| cause.contains("a failed device")));
    }
}
