//! Starts the server: loads the log, and opens a store for values on disk.

use std::fmt;
use std::num::NonZeroUsize;
use std::path::Path;
use std::sync::Arc;

use parking_lot::Mutex;
use tierce_collections::{ListLimits, PackedLimits, SetLimits, StreamLimits};
use tierce_engine::durability::{
    CompactionSettings, DurableLog, Host, LogDirectory, LogOptions, Operator, Severity, Switched,
    recover,
};
use tierce_engine::loading::Loading;
use tierce_keyspace::log::{LogSink, Sizes};
use tierce_keyspace::{EventBatch, EventClasses, EventSink, Keyspace, Limits, Options};
use tierce_storage::disk::{Disk, SimDisk};
use tierce_storage::{ColdOptions, ColdStore, WalOptions};

use crate::together::history::{DATABASES, DbKey, Random};

const DIR: &str = "/data";

/// Returns true if disk calls and operator messages are printed, for debugging.
pub fn is_traced() -> bool {
    std::env::var_os("TIERCE_TOGETHER_TRACE").is_some()
}

/// Recorder of evicted keys.
#[derive(Default)]
pub struct Evictions(Mutex<Vec<DbKey>>);

impl Evictions {
    pub fn take(&self) -> Vec<DbKey> {
        std::mem::take(&mut *self.0.lock())
    }
}

impl EventSink for Evictions {
    fn deliver(&self, events: &EventBatch<'_>) {
        let places = events.iter().map(|event| (event.db.get(), event.key[1] - b'0'));
        self.0.lock().extend(places);
    }
}

/// A host of the log that needs nothing from it.
pub struct NoHost(CompactionSettings);

impl Operator for NoHost {
    fn tell(&self, severity: Severity, line: fmt::Arguments<'_>) {
        if is_traced() {
            println!("{severity:?}: {line}");
        }
    }
}

impl Host for NoHost {
    fn settings(&self) -> CompactionSettings {
        self.0
    }

    fn device_reached(&self) {}

    fn writers_go_on(&self) {}

    fn take_back(&self) {}

    fn switched(&self, _: &Switched) {}
}

/// A server that has loaded its log, without its threads.
pub struct Started {
    pub keyspace: Arc<Keyspace>,
    pub durable_log: Arc<DurableLog>,
    pub log_directory: LogDirectory,
    pub host: Arc<NoHost>,
    pub evictions: Arc<Evictions>,
}

impl Started {
    /// Starts with sizes so small that ten elements are a large collection and a few commands fill a file.
    ///
    /// # Errors
    /// The message for the operator.
    pub fn on(disk: &SimDisk, random: &mut Random) -> Result<Self, String> {
        let disk: Arc<dyn Disk> = Arc::new(disk.clone());
        let mut one_of = |sizes: [u64; 3]| sizes[random.below(3) as usize];
        let wal = WalOptions {
            segment_size_bytes: one_of([700, 2000, 6000]),
            tail_bytes: 1024,
            background_threads: false,
            ..WalOptions::default()
        };
        let cold = ColdOptions { segment_size_bytes: 4 * 4096, open_files_max: 3 };
        let log_sizes = Sizes {
            piece_len: one_of([100, 400, 1 << 20]) as usize,
            large_bytes_min: one_of([100, 200, 1000]) as usize,
            part_bytes: one_of([10, 50, 200]) as usize,
        };
        let growth_percentage = one_of([0, 0, 100]);
        let host = CompactionSettings { growth_percentage, bytes_min: 4000, bytes_per_second: 0 };
        let host = Arc::new(NoHost(host));
        let (durable_log, evictions) = (Arc::<DurableLog>::default(), Arc::<Evictions>::default());
        let options = Options {
            shards: 4,
            databases: DATABASES,
            seed: random.below(u64::MAX),
            log: Some(Arc::clone(&durable_log) as Arc<dyn LogSink>),
            log_sizes,
            ..Options::default()
        };
        let keyspace = Arc::new(Keyspace::new(options).expect("sound options"));
        keyspace.set_event_sink(Arc::clone(&evictions));
        keyspace.set_event_classes(EventClasses::EVICTED);
        keyspace.set_limits(&limits());
        let options = LogOptions { wal, cold: cold.clone(), loaders: NonZeroUsize::new(1) };
        let log_directory = LogDirectory::new(Arc::clone(&disk), Path::new(DIR), options);
        recover(&durable_log, &keyspace, &log_directory, &*host, false, &Loading::default())
            .map_err(|error| error.to_string())?;
        if keyspace.cold_store().is_none() {
            let store = ColdStore::open(disk, Path::new(DIR).join("cold"), cold);
            let store = store.map_err(|error| error.to_string())?;
            store.finish_recovery().map_err(|error| error.to_string())?;
            keyspace.set_cold_store(Arc::new(store));
        }
        Ok(Self { keyspace, durable_log, log_directory, host, evictions })
    }
}

/// Returns limits under which collections of a few elements are large.
fn limits() -> Limits {
    let packed = PackedLimits { entries_max: 6, value_len_max: 64 };
    Limits {
        list: ListLimits { entries_max: 4, bytes_max: 200 },
        set: SetLimits { integers_max: 6, packed },
        sorted_set: packed,
        hash: packed,
        stream: StreamLimits { node_bytes_max: 300, node_entries_max: 3 },
    }
}
