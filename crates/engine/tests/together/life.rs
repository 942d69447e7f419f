//! One life of the server, from its start to its end: executes each step as the threads of the server
//! would, and checks the invariants of a running server.

use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tierce_collections::Hash;
use tierce_engine::durability::{Next, WalManager};
use tierce_keyspace::{
    Cleaning, Eviction, Keyspace, Policy, SpillBatch, evict, expire_due, gather_cold, leave_to_disk,
};
use tierce_storage::{ColdStore, Durable, Origin};

use crate::together::commands::{self, name};
use crate::together::contents::{self, difference};
use crate::together::guarantees::Guarantees;
use crate::together::history::{Crash, DbKey, Fault, Step, Write};
use crate::together::model::Contents;
use crate::together::saving::Saving;
use crate::together::start::Started;
use crate::together::world::{Death, Failure, World};

pub struct Life<'k, 'w> {
    pub world: &'w mut World,
    pub keyspace: &'k Arc<Keyspace>,
    started: &'k Started,
    wal_manager: WalManager<'k>,
    /// Time zero of the WAL manager.
    dawn: Instant,
    /// Values copied for the disk.
    batch: SpillBatch,
    saving: Option<Saving>,
    /// Extra time that passed for the WAL manager alone.
    patience: Duration,
    /// Last request: true for a log.
    wants_log: bool,
    /// Kind of the crash when the disk reaches the requested moment.
    doom: Option<Crash>,
}

/// Number of steps, more than a pass and two attempts to heal take.
const REST_STEPS: usize = 400;

/// Externally visible state of the log.
struct Sight {
    is_on: bool,
    is_incomplete: bool,
    passes: u64,
}

impl<'k, 'w> Life<'k, 'w> {
    pub fn begin(world: &'w mut World, started: &'k Started) -> Self {
        let Started { keyspace, durable_log, log_directory, host, .. } = started;
        let wal_manager =
            WalManager::new(keyspace, Arc::clone(durable_log), log_directory.clone(), host.clone());
        Self {
            world,
            keyspace,
            started,
            wal_manager,
            dawn: Instant::now(),
            batch: SpillBatch::default(),
            saving: None,
            patience: Duration::ZERO,
            wants_log: true,
            doom: None,
        }
    }

    /// Continues the history until the process ends. Returns `None` at the end of the history.
    pub fn run<'s>(
        mut self,
        steps: &mut impl Iterator<Item = (usize, &'s Step)>,
    ) -> Result<Option<Death>, Failure> {
        for (number, step) in steps {
            let before = self.world.past.guarantees;
            self.act(step).map_err(|failure| format!("step {number}, {step:?}: {failure}"))?;
            self.note_written();
            if matches!(step, Step::Restart) {
                return self.end(before).map(Some);
            }
            if let Some(moment) = self.world.disk.take_moment() {
                let crash = self.doom.take().expect("the moment was asked for");
                return Ok(Some(Death { moment, crash, before, at: format!("step {number}") }));
            }
        }
        self.world.disk.set_capacity(None);
        self.world.disk.clear_faults();
        self.check_memory()?;
        self.come_to_rest()?;
        Ok(None)
    }

    /// Checks that on a working disk the log is complete, or is off, after some time.
    fn come_to_rest(&mut self) -> Result<(), Failure> {
        for _ in 0..REST_STEPS {
            let Next::After(_) = self.keep()? else { continue };
            self.patience += Duration::from_secs(60);
        }
        let durable_log = &self.started.durable_log;
        let (write_error, is_incomplete) = (durable_log.write_error(), self.sight().is_incomplete);
        match write_error {
            Some(cause) if is_passing(&cause) => Err(format!("this does not heal: {cause}")),
            None if is_incomplete => Err("the log does not become complete".to_owned()),
            _ => Ok(()),
        }
    }

    fn act(&mut self, step: &Step) -> Result<(), Failure> {
        let now_ms = self.world.now_ms;
        match step {
            Step::Write(write) => self.write(write),
            Step::Read(place) => self.check_key(*place)?,
            Step::Wait(ms) => self.world.now_ms += ms,
            Step::Expire => expire_due(&mut self.keyspace.locks(), now_ms),
            Step::Evict => self.evict(),
            Step::Sync => {
                if self.started.durable_log.sync().is_ok() && self.is_sound() {
                    self.world.past.note_synced();
                }
            }
            Step::Compact => _ = self.started.durable_log.compact(),
            Step::SwitchLog(on) => {
                self.wants_log = *on;
                self.started.durable_log.switch(*on);
            }
            Step::Keep(times) => {
                for _ in 0..*times {
                    self.keep()?;
                }
            }
            Step::Gather(rounds) => {
                let mut locks = self.keyspace.locks();
                for _ in 0..*rounds {
                    gather_cold(&mut locks, &mut self.batch, now_ms);
                }
            }
            Step::Spill => _ = self.spill(),
            Step::Clean => self.clean(),
            Step::RemoveDead => self.remove_dead(),
            Step::BeginSnapshot { slices } => {
                if self.saving.is_none() {
                    self.saving = Some(Saving::begin(self, *slices));
                }
            }
            Step::Save { pieces, between } => self.save(*pieces, between)?,
            Step::Fault(fault, skip) => fail(&self.world.disk, *fault, u64::from(*skip)),
            Step::Space(left) => {
                let capacity = left.map(|left| self.world.disk.used() + u64::from(left));
                self.world.is_full = capacity.is_some();
                self.world.disk.set_capacity(capacity);
            }
            Step::Crash(crash, calls) => {
                self.doom = Some(*crash);
                self.world.disk.keep_moment(self.world.disk.calls() + u64::from(*calls));
            }
            Step::Restart => {
                self.world.disk.clear_faults();
                self.check_memory()?;
            }
        }
        Ok(())
    }

    /// Returns true if changes go to a working log.
    fn is_sound(&self) -> bool {
        self.started.durable_log.is_on() && !self.started.durable_log.has_write_error()
    }

    /// Returns true if the server refuses writes; it checks this before each write.
    fn refuses_writes(&self) -> bool {
        self.started.durable_log.is_on() && self.started.durable_log.has_write_error()
    }

    /// Notes that everything before a failure of the log was acknowledged.
    fn note_written(&mut self) {
        if self.is_sound() {
            self.world.past.note_written();
        }
    }

    fn write(&mut self, write: &Write) {
        if self.refuses_writes() {
            return;
        }
        let now_ms = self.world.now_ms;
        write.places().into_iter().for_each(|place| self.reap_emptied(place));
        let done = commands::run(self.keyspace, &mut self.keyspace.locks(), write, now_ms);
        if done.is_ok() {
            self.world.past.change(|contents| contents.apply(write, now_ms));
        }
        self.note_written();
    }

    /// Removes a hash whose last field is due. In the server it still exists for some commands until the
    /// reaper runs; here the reaper runs first.
    fn reap_emptied(&self, (db, key): DbKey) {
        let (name, now_ms) = (name((db, key)), self.world.now_ms);
        let (key, mut locks) = (self.keyspace.key(&name), self.keyspace.locks());
        let db = self.keyspace.db_index(db).expect("a database");
        let mut db = locks.db(db, key.hash(), now_ms);
        // Values on disk have no fields with deadlines.
        let is_in_memory = db.peek(key).is_some_and(|entry| !entry.is_spilled());
        let is_emptied = is_in_memory
            && matches!(db.collection::<Hash>(key), Ok(Some(hash)) if hash.live_len(now_ms) == 0);
        drop(locks);
        if is_emptied {
            expire_due(&mut self.keyspace.locks(), now_ms);
        }
    }

    fn evict(&mut self) {
        // Nothing is evicted for writes that are refused.
        if self.refuses_writes() {
            return;
        }
        let eviction =
            Eviction { limit_bytes: 1, policy: Policy::AllkeysRandom, ..Eviction::default() };
        self.keyspace.set_eviction(&eviction);
        evict(&mut self.keyspace.locks(), self.world.now_ms, 1);
        self.keyspace.set_eviction(&Eviction::default());
        for place in self.started.evictions.take() {
            self.world.past.change(|contents| contents.remove(&place));
        }
    }

    fn sight(&self) -> Sight {
        let figures = self.started.durable_log.compaction_figures();
        let is_on = self.started.durable_log.is_on();
        Sight { is_on, is_incomplete: figures.is_incomplete, passes: figures.passes }
    }

    /// Executes a step of the WAL manager, and records the resulting guarantees.
    fn keep(&mut self) -> Result<Next, Failure> {
        let before = self.sight();
        // Its clock runs faster, so that a history covers many seconds.
        let since = Duration::from_millis(100 * self.world.age_ms());
        let next = self.wal_manager.step(self.dawn + since + self.patience);
        let after = self.sight();
        let past = &mut self.world.past;
        match (before.is_incomplete, after.is_incomplete) {
            (false, true) => {
                self.world.may_count = false;
                past.note_begun();
            }
            (true, false) if after.is_on => {
                self.world.may_count = false;
                past.note_complete();
            }
            _ if before.is_on && !after.is_on => past.note_closed(),
            (false, false) if after.passes > before.passes => past.note_synced(),
            _ => {}
        }
        // A log that was marked complete without a sync of the mark may be authoritative.
        self.world.may_count |= after.is_incomplete && self.world.has_newer_mark();
        self.note_written();
        let durable_log = &self.started.durable_log;
        let is_settled =
            durable_log.switching().is_none() && durable_log.switch_failure().is_none();
        if is_settled && self.wants_log != durable_log.is_on() {
            return Err(format!("the log was switched, and on is {}", durable_log.is_on()));
        }
        Ok(next)
    }

    fn store(&self) -> &'k Arc<ColdStore> {
        self.keyspace.cold_store().expect("a store")
    }

    /// Writes the batch as the server does. Returns true on success.
    fn spill(&mut self) -> bool {
        let durable = if self.started.durable_log.may_refer() { Durable::Yes } else { Durable::No };
        let written = self.store().write(self.batch.values(), durable, Origin::Memory);
        if let Ok(places) = &written {
            leave_to_disk(&mut self.keyspace.locks(), &self.batch, places, self.world.now_ms);
        }
        self.batch.clear(0);
        written.is_ok()
    }

    fn clean(&mut self) {
        self.spill();
        let mut cleaning = Cleaning::begin(self.store().sparse(0.6));
        while let Ok(is_underway) = cleaning.step(self.keyspace, &mut self.batch, 2000)
            && self.spill()
            && is_underway
        {}
        self.batch.clear(0);
    }

    fn remove_dead(&mut self) {
        let dead = self.store().dead();
        if dead.is_empty() || self.keyspace.snapshot_memory().is_some() {
            return;
        }
        self.keyspace.locks().pass_all_shards();
        if self.started.durable_log.sync_if_complete().is_ok_and(|is_complete| is_complete) {
            // The next start removes the segments that could not be removed.
            let _ = self.store().remove(&dead);
            let _ = self.store().restore_reserve();
        }
    }

    /// Takes pieces of the snapshot. Other writes come between the slices of a large one.
    fn save(&mut self, pieces: u8, between: &[Write]) -> Result<(), Failure> {
        let mut between = between.iter();
        for _ in 0..pieces {
            let Some(mut saving) = self.saving.take() else { return Ok(()) };
            if saving.step(|| between.next().into_iter().for_each(|write| self.write(write)))? {
                self.saving = Some(saving);
            }
        }
        Ok(())
    }

    /// Shuts the server down.
    fn end(mut self, before: Guarantees) -> Result<Death, Failure> {
        self.saving = None;
        self.started.durable_log.request_end();
        for _ in 0..1000 {
            match self.keep()? {
                Next::End => break,
                Next::After(time) => self.patience += time,
                _ => {}
            }
        }
        self.note_written();
        let moment = self.world.disk.now();
        Ok(Death { moment, crash: Crash::Kill, before, at: "an end".to_owned() })
    }

    /// Checks that readers see every change, whatever happened to the log.
    fn check_memory(&self) -> Result<(), Failure> {
        let found = contents::read(self.keyspace, self.world.now_ms)?;
        let expected = self.world.past.latest().at(self.world.now_ms);
        if found == expected {
            return Ok(());
        }
        Err(format!("memory differs:\n{}", difference(&expected, &found)))
    }

    fn check_key(&self, place: DbKey) -> Result<(), Failure> {
        let (db, now_ms) = (self.keyspace.db_index(place.0), self.world.now_ms);
        let db = db.expect("a database");
        let Ok(entry) = contents::read_key(self.keyspace, db, &name(place), now_ms) else {
            // The disk failed.
            return Ok(());
        };
        let mut found = Contents::default();
        found.0.extend(entry.map(|entry| (place, Rc::new(entry))));
        found.purge(now_ms);
        let mut expected = self.world.past.latest().at(now_ms);
        expected.0.retain(|of, _| *of == place);
        if found == expected {
            return Ok(());
        }
        Err(format!("a reader sees something else:\n{}", difference(&expected, &found)))
    }
}

/// Returns true if the cause of a write error is transient.
fn is_passing(cause: &str) -> bool {
    cause.contains("no space") || cause.contains("file descriptor")
}

fn fail(disk: &tierce_storage::disk::SimDisk, fault: Fault, skip: u64) {
    use tierce_storage::disk::Fault as Of;
    /// Number of EMFILE.
    const NO_DESCRIPTOR: i32 = 24;
    match fault {
        Fault::Write => disk.inject(Of::Write, skip),
        Fault::Sync => disk.inject(Of::Sync, skip),
        Fault::SyncDir => disk.inject(Of::SyncDir, skip),
        Fault::Open => disk.inject(Of::Open, skip),
        Fault::NoDescriptor => disk.inject_os_error(Of::Open, skip, NO_DESCRIPTOR),
        Fault::Rename => disk.inject(Of::Rename, skip),
        Fault::Remove => disk.inject(Of::Remove, skip),
        Fault::Read => disk.inject(Of::Read, skip),
    }
}
