//! The log of the keyspace, driven without threads (until the server's own can be).

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::RwLock;
use tierce_cask::disk::SimDisk;
use tierce_cask::{ColdOptions, ColdStore, Wal, WalMark, WalOptions};
use tierce_collections::{ListLimits, PackedLimits, SetLimits, StreamLimits};
use tierce_keyspace::log::{Checkpoint, LogSink, Pass, Replay};
use tierce_keyspace::{Keyspace, Limits, Observer, Options};

use crate::history::DATABASES;
use crate::world::Evictions;

/// What the keeper of the log has done.
pub enum Kept {
    Nothing,
    Begun,
    Compacted,
    Complete,
    Closed,
}

#[derive(Default)]
pub struct Log(RwLock<Option<Wal>>, AtomicBool);

impl LogSink for Log {
    fn append(&self, record: &[u8]) {
        if let Some(wal) = &*self.0.read()
            && wal.append(record).is_err()
        {
            self.1.store(true, Ordering::Relaxed);
        }
    }
}

pub struct Durability {
    log: Arc<Log>,
    wants: bool,
    pass: Option<(WalMark, Checkpoint<'static>)>,
}

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

impl Durability {
    pub fn open(
        disk: &SimDisk,
        evictions: &Arc<Evictions>,
        now_ms: i64,
        sizes: u64,
    ) -> Result<(Arc<Keyspace>, Self), String> {
        let log = Arc::<Log>::default();
        let options = Options {
            shards: 4,
            databases: DATABASES,
            seed: sizes,
            log: Some(Arc::clone(&log) as Arc<dyn LogSink>),
            observer: Some(Arc::clone(evictions) as Arc<dyn Observer>),
            ..Options::default()
        };
        let keyspace = Arc::new(Keyspace::new(options).expect("sound options"));
        keyspace.set_limits(&limits());
        let cold_options = ColdOptions { segment_size_bytes: 4 * 4096, open_files_max: 3 };
        let cold = ColdStore::open(Arc::new(disk.clone()), Path::new("/data/cold"), cold_options);
        let cold = Arc::new(cold.map_err(|e| e.to_string())?);
        keyspace.set_cold_store(Arc::clone(&cold));
        let mut replay = Replay::start(Arc::clone(&keyspace), 1, now_ms).expect("a thread");
        let options = WalOptions {
            segment_size_bytes: [700, 2000, 6000][(sizes % 3) as usize],
            tail_bytes: 1024,
            background_threads: false,
            ..WalOptions::default()
        };
        let take = |record: &[u8]| replay.record(record).map_err(|error| error.to_string());
        let wal = Wal::open_on(Arc::new(disk.clone()), Path::new("/data/wal"), options, take);
        let (wal, found) = wal.map_err(|e| e.to_string())?;
        if std::env::var("TRACE").is_ok() {
            println!("found {found:?}");
        }
        replay.finish().map_err(|e| e.to_string())?;
        cold.settle().map_err(|e| e.to_string())?;
        *log.0.write() = Some(wal);
        keyspace.begin_logging();
        Ok((keyspace, Self { log, wants: false, pass: None }))
    }

    pub fn is_open(&self) -> bool {
        true
    }

    pub fn is_wounded(&self) -> bool {
        self.log.1.load(Ordering::Relaxed)
    }

    pub fn refuses_writes(&self) -> bool {
        self.is_wounded()
    }

    pub fn sync(&self) -> bool {
        self.log.0.read().as_ref().is_some_and(|wal| wal.sync().is_ok())
    }

    pub fn compact(&mut self) {
        self.wants = true;
    }

    pub fn switch(&mut self, _on: bool) {}

    pub fn may_count(&self) -> bool {
        false
    }

    pub fn close(&mut self) {
        self.pass = None;
        drop(self.log.0.write().take());
    }

    pub fn keep(&mut self, keyspace: &Arc<Keyspace>) -> Kept {
        let log = self.log.0.read();
        let wal = log.as_ref().expect("an open log");
        let Some((mark, mut checkpoint)) = self.pass.take() else {
            if std::mem::take(&mut self.wants)
                && let Ok(mark) = wal.rotate()
            {
                let keyspace: &'static Keyspace = Box::leak(Box::new(Arc::clone(keyspace)));
                self.pass = Some((mark, Checkpoint::begin(keyspace)));
            }
            return Kept::Nothing;
        };
        if checkpoint.step().1 == Pass::Underway {
            self.pass = Some((mark, checkpoint));
            return Kept::Nothing;
        }
        match wal.sync().and_then(|_| wal.drop_before(&mark)) {
            Ok(_) => Kept::Compacted,
            Err(_) => Kept::Nothing,
        }
    }

    pub fn remove_dead(&self, keyspace: &Keyspace) {
        let store = keyspace.cold_store().expect("a store");
        let dead = store.dead();
        if dead.is_empty() || keyspace.snapshot_memory().is_some() {
            return;
        }
        keyspace.locker().pass_all_shards();
        if self.sync() && !self.is_wounded() {
            _ = store.remove(&dead);
        }
    }
}
