//! The log as the keyspace and the sessions see it.
//!
//! A change is appended while its shard is locked, when the request has been executed already. So
//! there is no way back when the log cannot take it: the journal is *wounded* then. From that moment
//! writes are refused, and connections whose replies have not been sent are closed without them:
//! nothing is acknowledged that is not in the log. Memory is ahead of the log by what was not
//! acknowledged; readers see it. A wound for lack of space heals: the compactor writes all keys again
//! once there is room, after which the log holds what memory holds. Any other failure stays until the
//! server is started again, or the log is switched off.
//!
//! The log can be switched on and off while the server runs (`keeper.rs`). Positions grow all the
//! time, from one log to the next.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use arc_swap::ArcSwapOption;
use parking_lot::{Condvar, Mutex};
use tierce_cask::Wal;
use tierce_keyspace::log::LogSink;

use super::compactor::Compaction;
use super::exposure::Exposure;

/// The log of the keyspace.
#[derive(Default)]
pub struct Journal {
    /// There while it is switched on, and once the keyspace has been loaded: nothing is appended
    /// before.
    log: ArcSwapOption<OpenLog>,
    is_wounded: AtomicBool,
    wound: Mutex<Option<Wound>>,
    demand: Mutex<Demand>,
    demanded: Condvar,
    pub(super) compaction: Compaction,
    syncs: AtomicU64,
    /// How old what is not on the device is.
    pub(crate) exposure: Exposure,
}

/// The log that is written to.
pub(super) struct OpenLog {
    pub(super) wal: Wal,
    /// What its positions are counted from.
    base: u64,
}

impl OpenLog {
    fn appended(&self) -> u64 {
        self.base + self.wal.appended()
    }

    fn durable(&self) -> u64 {
        self.base + self.wal.durable()
    }
}

#[derive(Clone, Debug)]
struct Wound {
    cause: String,
    heals: bool,
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
pub struct JournalFigures {
    /// Bytes of the log on disk.
    pub bytes: u64,
    /// Where the log ends: a number that grows with every record.
    pub appended: u64,
    /// Up to where it is on the device.
    pub durable: u64,
    /// Times the log was synced.
    pub syncs: u64,
    /// Why writes are refused, if they are.
    pub wound: Option<String>,
}

impl LogSink for Journal {
    #[inline]
    fn append(&self, record: &[u8]) {
        // Somebody who has not heard yet that the log was switched off.
        let Some(log) = &*self.log.load() else { return };
        if let Err(error) = log.wal.append(record)
            && self.is_on()
        {
            self.hurt(&error);
        }
    }
}

impl Journal {
    /// Whether changes go to a log.
    #[must_use]
    #[inline]
    pub fn is_on(&self) -> bool {
        self.log.load().is_some()
    }

    /// The log, while it is switched on.
    pub(super) fn log(&self) -> Option<Arc<OpenLog>> {
        self.log.load_full()
    }

    /// Has changes go to `wal`. The caller is the only one that opens and closes.
    pub(super) fn open(&self, wal: Wal) {
        let base = self.demand.lock().position;
        self.compaction.set_base(wal.bytes());
        // That of a log before.
        *self.wound.lock() = None;
        self.is_wounded.store(false, Ordering::Release);
        self.log.store(Some(Arc::new(OpenLog { wal, base })));
    }

    /// Everything is on the device when this returns, and nothing is appended any more.
    pub(super) fn close(&self) -> Result<(), tierce_cask::Error> {
        let Some(log) = self.log.swap(None) else { return Ok(()) };
        let closed = log.wal.close();
        let mut demand = self.demand.lock();
        demand.position = demand.position.max(log.appended());
        closed
    }

    /// The position of what was appended last.
    #[must_use]
    #[inline]
    pub fn appended(&self) -> u64 {
        self.log.load().as_ref().map_or(0, |log| log.appended())
    }

    /// Everything up to this position survives a power cut, or nothing is to be waited for any more
    /// because the log was switched off.
    #[must_use]
    pub fn durable(&self) -> u64 {
        self.log.load().as_ref().map_or(u64::MAX, |log| log.durable())
    }

    /// Whether writes have to be refused.
    #[must_use]
    #[inline]
    pub fn is_wounded(&self) -> bool {
        self.is_wounded.load(Ordering::Acquire)
    }

    /// Why writes are refused.
    #[must_use]
    pub fn wound(&self) -> Option<String> {
        self.wound.lock().as_ref().map(|wound| wound.cause.clone())
    }

    /// Has the log synced soon, at least up to `position`.
    pub fn demand(&self, position: u64) {
        let mut demand = self.demand.lock();
        demand.position = demand.position.max(position);
        self.demanded.notify_one();
    }

    /// Figures for INFO.
    #[must_use]
    pub fn figures(&self) -> JournalFigures {
        let log = self.log();
        JournalFigures {
            bytes: log.as_ref().map_or(0, |log| log.wal.bytes()),
            appended: log.as_ref().map_or(0, |log| log.appended()),
            durable: log.as_ref().map_or(0, |log| log.durable()),
            syncs: self.syncs.load(Ordering::Relaxed),
            wound: self.wound(),
        }
    }

    /// Has everything appended so far reach the device.
    pub(crate) fn sync(&self) -> Result<(), tierce_cask::Error> {
        let Some(log) = self.log() else { return Ok(()) };
        self.syncs.fetch_add(1, Ordering::Relaxed);
        log.wal.sync().map(drop).inspect_err(|error| self.hurt(error))
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
    fn hurt(&self, error: &tierce_cask::Error) {
        let heals = error.is_no_space();
        let mut wound = self.wound.lock();
        if wound.as_ref().is_none_or(|wound| wound.heals) {
            *wound = Some(Wound { cause: error.to_string(), heals });
        }
        self.is_wounded.store(true, Ordering::Release);
    }

    /// Whether all keys have to be written again, which may heal the log.
    pub(super) fn may_heal(&self) -> bool {
        self.wound.lock().as_ref().is_some_and(|wound| wound.heals)
    }

    /// Forgets a wound before an attempt to heal it; writes stay refused.
    pub(super) fn begin_healing(&self) {
        *self.wound.lock() = None;
    }

    /// Accepts writes again, unless the attempt has hurt anew.
    pub(super) fn end_healing(&self) {
        let wound = self.wound.lock();
        if wound.is_none() {
            self.is_wounded.store(false, Ordering::Release);
        }
    }
}
