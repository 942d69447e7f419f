//! A keyspace with its log and WAL manager, without a server; and the expected contents after a crash.

use std::collections::BTreeMap;
use std::fmt;
use std::num::NonZeroUsize;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use parking_lot::Mutex;
use tierce_collections::List;
use tierce_engine::durability::{
    CompactionSettings, DurableLog, Host, LogDirectory, LogOptions, Next, Operator, RecoveryError,
    Severity, Switched, WalManager, recover,
};
use tierce_engine::loading::Loading;
use tierce_keyspace::log::LogSink;
use tierce_keyspace::{DbIndex, Error, Expiry, Keyspace, Missing, Options, for_each_entry};
use tierce_storage::WalOptions;
use tierce_storage::disk::{Disk, SimDisk};

pub const DIR: &str = "/data";
const NOW_MS: i64 = 1_000_000;

/// Number of elements of a list that is written in parts.
const LARGE_LIST: usize = 130;

/// Elements of lists; a string is a list of one.
pub type State = BTreeMap<Vec<u8>, Vec<Vec<u8>>>;

/// Records the messages that it gets.
#[derive(Default)]
pub struct Program {
    pub told: Mutex<Vec<String>>,
    pub switched: Mutex<Vec<Switched>>,
}

impl Operator for Program {
    fn tell(&self, severity: Severity, line: fmt::Arguments<'_>) {
        self.told.lock().push(format!("{severity:?} {line}"));
    }
}

impl Host for Program {
    fn settings(&self) -> CompactionSettings {
        CompactionSettings::default()
    }

    fn device_reached(&self) {}

    fn writers_go_on(&self) {}

    fn take_back(&self) {}

    fn switched(&self, switched: &Switched) {
        self.switched.lock().push(switched.clone());
    }
}

pub fn log_directory(disk: Arc<dyn Disk>) -> LogDirectory {
    let wal = WalOptions {
        segment_size_bytes: 60_000,
        tail_bytes: 16 << 10,
        background_threads: false,
        ..WalOptions::default()
    };
    let loaders = Some(NonZeroUsize::MIN);
    LogDirectory::new(disk, Path::new(DIR), LogOptions { wal, loaders, ..LogOptions::default() })
}

/// Creates a keyspace whose changes go to the durable log once a log is open.
pub fn keyspace(durable_log: &Arc<DurableLog>) -> Arc<Keyspace> {
    let log = Some(Arc::clone(durable_log) as Arc<dyn LogSink>);
    let options = Options { shards: 2, databases: 1, log, ..Options::default() };
    Arc::new(Keyspace::new(options).expect("sound options"))
}

/// Starts from the data on a disk.
pub fn start(disk: Arc<dyn Disk>) -> Result<(Arc<Keyspace>, Arc<DurableLog>), RecoveryError> {
    let durable_log = Arc::<DurableLog>::default();
    let keyspace = keyspace(&durable_log);
    let (program, loading) = (Program::default(), Loading::default());
    recover(&durable_log, &keyspace, &log_directory(disk), &program, false, &loading)?;
    Ok((keyspace, durable_log))
}

pub fn contents(keyspace: &Keyspace) -> State {
    let mut names = Vec::new();
    let add = |entry: &tierce_keyspace::Entry| names.push(entry.key().to_vec());
    for_each_entry(&mut keyspace.locks(), DbIndex::ZERO, NOW_MS, add);
    let elements = |name: &Vec<u8>| {
        let (key, mut locks) = (keyspace.key(name), keyspace.locks());
        let mut db = locks.db(DbIndex::ZERO, key.hash(), NOW_MS);
        match db.collection::<List>(key) {
            Ok(list) => list.expect("it is there").iter().map(|element| element.to_vec()).collect(),
            Err(_) => vec![db.string(key).expect("a string").expect("it is there").to_vec()],
        }
    };
    names.iter().map(|name| (name.clone(), elements(name))).collect()
}

/// Returns the contents that a start finds.
pub fn found(image: &SimDisk) -> State {
    let (keyspace, _) = start(Arc::new(image.clone())).unwrap_or_else(|error| panic!("{error}"));
    contents(&keyspace)
}

/// The running parts, and the acknowledged contents.
pub struct World<'k> {
    keyspace: &'k Keyspace,
    pub durable_log: Arc<DurableLog>,
    pub program: Arc<Program>,
    pub wal_manager: WalManager<'k>,
    pub now: Instant,
    /// Contents of the authoritative log.
    pub kept: State,
    /// Contents of memory. A start may find these instead if a log is about to become authoritative, or a change
    /// was not acknowledged.
    pub memory: State,
    /// True if each write is synced before it is acknowledged.
    syncs: bool,
    writes: u64,
}

impl<'k> World<'k> {
    pub fn new(
        keyspace: &'k Keyspace,
        durable_log: Arc<DurableLog>,
        disk: Arc<dyn Disk>,
        syncs: bool,
    ) -> Self {
        let program = Arc::<Program>::default();
        let host = Arc::clone(&program) as Arc<dyn Host>;
        let wal_manager =
            WalManager::new(keyspace, Arc::clone(&durable_log), log_directory(disk), host);
        let memory = contents(keyspace);
        let kept = memory.clone();
        let now = Instant::now();
        Self { keyspace, durable_log, program, wal_manager, now, kept, memory, syncs, writes: 0 }
    }

    fn list(&self, name: &[u8], elements: &[Vec<u8>]) {
        let (key, mut locks) = (self.keyspace.key(name), self.keyspace.locks());
        let mut db = locks.db(DbIndex::ZERO, key.hash(), NOW_MS);
        let push = |list: &mut tierce_keyspace::Editor<'_, List>| {
            list.push_back(elements.iter().map(Vec::as_slice));
            Ok::<_, Error>(())
        };
        db.edit(key, Missing::Create, push).expect("a list");
    }

    /// Returns true if there is an authoritative log that has everything acknowledged.
    fn is_kept(&self) -> bool {
        let durable_log = &self.durable_log;
        durable_log.is_on()
            && !durable_log.has_write_error()
            && !durable_log.compaction_figures().is_incomplete
    }

    /// Executes the next write, unless writes are refused. Returns true if it was acknowledged.
    pub fn write(&mut self) -> bool {
        if self.durable_log.has_write_error() {
            return false;
        }
        self.writes += 1;
        let element = format!("{:0600}", self.writes).into_bytes();
        if self.writes.is_multiple_of(3) {
            let name = [b'k', (self.writes % 7) as u8];
            let key = self.keyspace.key(&name);
            let mut locks = self.keyspace.locks();
            let mut db = locks.db(DbIndex::ZERO, key.hash(), NOW_MS);
            db.set(key, &element, Expiry::Never).expect("short");
            self.memory.insert(name.to_vec(), vec![element]);
        } else {
            self.list(b"list", std::slice::from_ref(&element));
            self.memory.entry(b"list".to_vec()).or_default().push(element);
        }
        // An error becomes a write error of the durable log.
        let _ = if self.syncs { self.durable_log.sync() } else { Ok(()) };
        if self.is_kept() {
            self.kept.clone_from(&self.memory);
        }
        !self.durable_log.has_write_error()
    }

    /// Rewrites one of a few keys, so that the amount of live data stays constant. Returns true if the write was
    /// acknowledged, or waits.
    pub fn overwrite(&mut self) -> bool {
        if self.durable_log.keeps_room() {
            return true;
        }
        self.writes += 1;
        let name = [b'o', (self.writes % 200) as u8];
        let value = format!("{:04000}", self.writes).into_bytes();
        let key = self.keyspace.key(&name);
        let mut locks = self.keyspace.locks();
        let mut db = locks.db(DbIndex::ZERO, key.hash(), NOW_MS);
        db.set(key, &value, Expiry::Never).expect("short");
        drop(locks);
        self.memory.insert(name.to_vec(), vec![value]);
        if self.is_kept() {
            self.kept.clone_from(&self.memory);
        }
        !self.durable_log.has_write_error()
    }

    /// Creates a list that a pass writes in parts.
    pub fn fill(&mut self) {
        let elements: Vec<_> = (0..LARGE_LIST).map(|n| format!("{n:0600}").into_bytes()).collect();
        self.list(b"list", &elements);
        self.memory.insert(b"list".to_vec(), elements);
        self.durable_log.sync().expect("the disk works");
        if self.is_kept() {
            self.kept.clone_from(&self.memory);
        }
    }

    /// Does one step of the WAL manager. Waiting only advances the clock. Returns `false` when nothing is left
    /// to do without a request, except for regular checks of the log.
    pub fn step(&mut self) -> bool {
        let next = self.wal_manager.step(self.now);
        if self.is_kept() {
            self.kept.clone_from(&self.memory);
        }
        let is_settled = self.is_kept() && self.durable_log.compaction_figures().running.is_none();
        match next {
            Next::Now => true,
            Next::After(time) => {
                self.now += time;
                !is_settled
            }
            Next::Asked | Next::End => false,
        }
    }

    /// Alternates steps and writes until nothing is left to do, or for `steps_max`. Returns true if nothing is
    /// left.
    pub fn run(&mut self, steps_max: usize) -> bool {
        for _ in 0..steps_max {
            if !self.step() {
                return true;
            }
            self.write();
        }
        false
    }

    /// Returns the last answer to a switch.
    pub fn answer(&self) -> Option<Switched> {
        self.program.switched.lock().last().cloned()
    }

    /// Checks that a crash now leaves everything acknowledged, perhaps with unacknowledged changes.
    pub fn check(&self, disk: &SimDisk, seed: u64, context: &str) {
        let kill = disk.now().after_kill(seed);
        let cut = self.syncs.then(|| disk.now().after_power_cut(seed));
        for image in [Some(kill), cut].into_iter().flatten() {
            let found = found(&image);
            if found == self.kept || found == self.memory {
                continue;
            }
            let sizes = |state: &State| {
                state
                    .iter()
                    .map(|(name, list)| (name.escape_ascii().to_string(), list.len()))
                    .collect::<Vec<_>>()
            };
            panic!(
                "{context}: found {:?}, was acknowledged {:?}, in memory {:?}\n{:#?}",
                sizes(&found),
                sizes(&self.kept),
                sizes(&self.memory),
                self.program.told.lock(),
            );
        }
    }
}
