//! The world of a history: a keyspace with its log, its values on disk and a snapshot, on a simulated
//! disk, and what all that has to hold.

use std::rc::Rc;
use std::sync::Arc;

use parking_lot::Mutex;
use tierce_cask::Durable;
use tierce_cask::disk::{Moment, SimDisk};
use tierce_collections::Hash;
use tierce_keyspace::{
    Change, Cleaning, Event, Eviction, Keyspace, LargeHead, Observer, Piece, Policy, Removal,
    Snapshot, SpillBatch,
};

use crate::claims::{Claims, Past};
use crate::commands::{self, name};
use crate::contents::{self, difference};
use crate::durable::{Durability, Kept};
use crate::history::{Crash, Fault, Place, Random, Step, Write};
use crate::model::{Contents, Entry};

/// The time at the beginning.
const BEGIN_MS: i64 = 1_000_000;

/// Why a history fails.
pub type Failure = String;

/// Keys that were evicted.
#[derive(Default)]
pub struct Evictions(Mutex<Vec<Place>>);

impl Observer for Evictions {
    fn event(&self, event: &Event<'_>) {
        if let Event::Key { db, entry, change: Change::Removed(Removal::Evicted) } = event {
            self.0.lock().push((db.get(), entry.key()[1] - b'0'));
        }
    }
}

/// A snapshot underway, what it has to hold, and what it has given so far.
struct Saving {
    snapshot: Snapshot,
    begun_ms: i64,
    expected: Contents,
    found: Contents,
}

pub struct World {
    random: Random,
    disk: SimDisk,
    keyspace: Arc<Keyspace>,
    durability: Durability,
    evictions: Arc<Evictions>,
    now_ms: i64,
    past: Past,
    batch: SpillBatch,
    saving: Option<Saving>,
    /// How the process ends when the disk gets to the moment that was asked for.
    doom: Option<Crash>,
    /// Bytes that the disk may have at most.
    capacity: Option<u64>,
}

impl World {
    pub fn new(seed: u64) -> Result<Self, Failure> {
        let disk = SimDisk::new(seed);
        if std::env::var("TRACE").is_ok() {
            disk.record_trace();
        }
        let mut random = Random::new(!seed);
        let evictions = Arc::<Evictions>::default();
        let sizes = random.below(u64::MAX);
        let (keyspace, durability) = Durability::open(&disk, &evictions, BEGIN_MS, sizes)?;
        Ok(Self {
            random,
            disk,
            keyspace,
            durability,
            evictions,
            now_ms: BEGIN_MS,
            past: Past::new(),
            batch: SpillBatch::default(),
            saving: None,
            doom: None,
            capacity: None,
        })
    }

    pub fn step(&mut self, step: &Step) -> Result<(), Failure> {
        let before = self.past.claims;
        self.act(step)?;
        if self.durability.is_open() && !self.durability.is_wounded() {
            self.past.note_written();
        }
        if let Some(moment) = self.disk.take_moment() {
            let crash = self.doom.take().expect("the moment was asked for");
            if std::env::var("TRACE").is_ok() {
                println!("{crash:?} at {}: {}", moment.calls, self.disk.take_trace().join("\n"));
            }
            if std::env::var("TRACE").is_ok() {
                for salt in 0..30 {
                    let image = image(&moment, Crash::Kill, salt);
                    image.record_trace();
                    let tail = image.content(std::path::Path::new("/data/wal/0000.tail")).unwrap();
                    let (k, _d) =
                        Durability::open(&image, &self.evictions, self.now_ms, 0).unwrap();
                    let found = contents::read(&k, self.now_ms)?;
                    println!(
                        "salt {salt}: {} keys, {} {:?}",
                        found.0.len(),
                        difference(self.past.latest(), &found).len(),
                        &tail[1136..1152]
                    );
                }
            }
            self.crash(&moment, crash, &before)?;
        }
        Ok(())
    }

    /// What has to hold at the end.
    pub fn finish(mut self) -> Result<(), Failure> {
        self.disk.set_capacity(None);
        self.capacity = None;
        self.disk.clear_faults();
        self.check_memory()?;
        let before = self.past.claims;
        let moment = self.disk.now();
        self.crash(&moment, Crash::Kill, &before)?;
        self.check_memory()
    }

    fn act(&mut self, step: &Step) -> Result<(), Failure> {
        match step {
            Step::Write(write) => self.write(write),
            Step::Read(place) => self.check_key(*place)?,
            Step::Wait(ms) => self.now_ms += ms,
            Step::Expire => self.keyspace.locker().expire_due(self.now_ms),
            Step::Evict => self.evict(),
            Step::Sync => {
                if self.durability.sync() && !self.durability.is_wounded() {
                    self.past.note_synced();
                }
            }
            Step::Compact => self.durability.compact(),
            Step::SwitchLog(on) => self.durability.switch(*on),
            Step::Keep(times) => (0..*times).for_each(|_| self.keep()),
            Step::Gather(rounds) => {
                let mut locker = self.keyspace.locker();
                for _ in 0..*rounds {
                    locker.gather_cold(&mut self.batch, self.now_ms);
                }
            }
            Step::Spill => _ = self.spill(),
            Step::Clean => self.clean(),
            Step::RemoveDead => self.durability.remove_dead(&self.keyspace),
            Step::BeginSnapshot { slices } => self.begin_snapshot(*slices),
            Step::Save { pieces, between } => self.save(*pieces, between)?,
            Step::Fault(fault, skip) => self.disk.inject(of_disk(*fault), u64::from(*skip)),
            Step::Space(left) => {
                self.capacity = left.map(|left| self.disk.used() + u64::from(left));
                self.disk.set_capacity(self.capacity);
            }
            Step::Crash(crash, calls) => {
                self.doom = Some(*crash);
                self.disk.keep_moment(self.disk.calls() + u64::from(*calls));
            }
            Step::Restart => self.restart()?,
        }
        Ok(())
    }

    fn write(&mut self, write: &Write) {
        if self.durability.refuses_writes() {
            return;
        }
        let now_ms = self.now_ms;
        write.places().into_iter().for_each(|place| self.reap_emptied(place));
        let done = commands::run(&self.keyspace, &mut self.keyspace.locker(), write, now_ms);
        if done.is_ok() {
            self.past.change(|contents| contents.apply(write, now_ms));
        }
    }

    /// A hash whose last field is due is still there for some commands until the reaper comes. Here it
    /// comes before them.
    fn reap_emptied(&self, (db, key): Place) {
        let name = name((db, key));
        let (key, mut locker) = (self.keyspace.key(&name), self.keyspace.locker());
        let db = self.keyspace.db_index(db).expect("a database");
        let mut db = locker.db(db, key.hash(), self.now_ms);
        // What is on disk has no fields with deadlines.
        let is_in_memory = db.peek(key).is_some_and(|entry| !entry.is_spilled());
        let is_emptied = is_in_memory
            && matches!(db.collection::<Hash>(key), Ok(Some(hash)) if hash.live_len(self.now_ms) == 0);
        drop(locker);
        if is_emptied {
            self.keyspace.locker().expire_due(self.now_ms);
        }
    }

    fn evict(&mut self) {
        // Nobody evicts to make room for writes that are refused.
        if self.durability.refuses_writes() {
            return;
        }
        let eviction =
            Eviction { limit_bytes: 1, policy: Policy::AllkeysRandom, ..Eviction::default() };
        self.keyspace.set_eviction(&eviction);
        self.keyspace.locker().evict(self.now_ms, 1);
        self.keyspace.set_eviction(&Eviction::default());
        for place in std::mem::take(&mut *self.evictions.0.lock()) {
            self.past.change(|contents| contents.remove(&place));
        }
    }

    fn keep(&mut self) {
        match self.durability.keep(&self.keyspace) {
            Kept::Nothing => {}
            Kept::Begun => self.past.note_begun(),
            Kept::Compacted => self.past.note_synced(),
            Kept::Complete => self.past.note_complete(),
            Kept::Closed => self.past.note_closed(),
        }
    }

    /// As the server does. Whether it succeeded.
    fn spill(&mut self) -> bool {
        let store = self.keyspace.cold_store().expect("a store");
        let written = store.write(self.batch.values(), Durable::Yes);
        if let Ok(places) = &written {
            self.keyspace.locker().spill(&self.batch, places, self.now_ms);
        }
        self.batch.clear(0);
        written.is_ok()
    }

    fn clean(&mut self) {
        let store = Arc::clone(self.keyspace.cold_store().expect("a store"));
        self.spill();
        let mut cleaning = Cleaning::begin(store.sparse(0.6));
        while let Ok(is_underway) = cleaning.step(&self.keyspace, &mut self.batch, 2000)
            && self.spill()
            && is_underway
        {}
        self.batch.clear(0);
    }

    fn begin_snapshot(&mut self, slices: bool) {
        if self.saving.is_some() {
            return;
        }
        let large_bytes_min = if slices { 200 } else { 1 << 20 };
        let mut locker = self.keyspace.locker();
        let begun = Snapshot::begin_with(&self.keyspace, &mut locker, self.now_ms, large_bytes_min);
        let snapshot = begun.expect("there is one at a time");
        let mut expected = self.past.latest().at(self.now_ms);
        // The file has no place for that.
        expected.forget_attributes();
        let found = Contents::default();
        self.saving = Some(Saving { snapshot, begun_ms: self.now_ms, expected, found });
    }

    /// Takes pieces of the snapshot; between slices of a large one others write.
    fn save(&mut self, pieces: u8, between: &[Write]) -> Result<(), Failure> {
        let mut between = between.iter().cycle();
        for _ in 0..pieces {
            let Some(mut saving) = self.saving.take() else { return Ok(()) };
            match saving.snapshot.next() {
                Ok(None) => {
                    saving.found.purge(saving.begun_ms);
                    return check_saved(&saving.expected, &saving.found);
                }
                // A value on disk cannot be read, so there is no snapshot.
                Err(_) => return Ok(()),
                Ok(Some(Piece::Batch(batch))) => {
                    for entry in &batch {
                        let value = contents::value_of(&entry.value);
                        let place = (entry.db.get(), entry.key[1] - b'0');
                        let entry = Entry::new(value, entry.deadline_ms);
                        add(&mut saving.found, place, entry)?;
                    }
                }
                Ok(Some(Piece::Large(mut large))) => {
                    let LargeHead { db, key, kind, deadline_ms, .. } = large.head().clone();
                    let mut value = contents::empty(kind);
                    while let Some(slice) = large.next_slice().map_err(|e| e.to_string())? {
                        contents::add_parts(&mut value, &slice);
                        between.next().into_iter().for_each(|write| self.write(write));
                    }
                    let entry = Entry::new(value, deadline_ms);
                    add(&mut saving.found, (db.get(), key[1] - b'0'), entry)?;
                }
            }
            self.saving = Some(saving);
        }
        Ok(())
    }

    /// The process ends in the middle of what it does, or has ended, and is started again.
    fn crash(&mut self, moment: &Moment, crash: Crash, before: &Claims) -> Result<(), Failure> {
        let salt = self.random.below(u64::MAX);
        let mut image = image(moment, crash, salt);
        let mut crash = crash;
        self.saving = None;
        self.batch.clear(0);
        // Now and then it ends while it starts.
        while self.random.below(5) == 0 {
            image.keep_moment(image.calls() + self.random.below(30));
            if std::env::var("TRACE").is_ok() {
                image.record_trace();
            }
            drop(self.open(&image)?);
            if std::env::var("TRACE").is_ok() {
                println!("start trace:\n{}", image.take_trace().join("\n"));
            }
            let Some(moment) = image.take_moment() else {
                image.keep_moment(u64::MAX);
                continue;
            };
            let second = if self.random.below(2) == 0 { Crash::Kill } else { Crash::PowerCut };
            if std::env::var("TRACE").is_ok() {
                println!("second {second:?} at {}", moment.calls);
            }
            if second == Crash::PowerCut {
                crash = second;
            }
            image = self::image(&moment, second, salt);
        }
        if self.capacity.is_some() && self.random.below(2) == 0 {
            image = self.start_on_a_full_disk(image)?;
        }
        self.capacity = None;
        // Looking brings values into memory, so most times somebody else does.
        let looked_at =
            if self.random.below(3) == 0 { image.clone() } else { image.now().after_kill(salt) };
        let (keyspace, durability) = self.open(&looked_at)?;
        let found = contents::read(&keyspace, self.now_ms)?;
        drop((keyspace, durability));
        let may_count = self.durability.may_count();
        (self.keyspace, self.durability) = self.open(&image)?;
        self.disk = image;
        self.doom = None;
        if self.past.goes_on_with(&found, crash, before, may_count, self.now_ms) {
            return Ok(());
        }
        let expected = self.past.latest().at(self.now_ms);
        Err(format!(
            "after a {crash:?} this is no state that may come back:\n{}  (of {} states; certain \
             were {before:?}, then {:?})",
            difference(&expected, &found),
            self.past.states.len(),
            self.past.claims
        ))
    }

    fn open(&mut self, image: &SimDisk) -> Result<(Arc<Keyspace>, Durability), Failure> {
        let sizes = self.random.below(u64::MAX);
        Durability::open(image, &self.evictions, self.now_ms, sizes)
            .map_err(|error| format!("the server does not start: {error}"))
    }

    /// It may start or not, and has lost nothing when there is space again.
    fn start_on_a_full_disk(&mut self, image: SimDisk) -> Result<SimDisk, Failure> {
        image.set_capacity(Some(image.used() + self.random.below(600)));
        let sizes = self.random.below(u64::MAX);
        drop(Durability::open(&image, &self.evictions, self.now_ms, sizes));
        image.set_capacity(None);
        Ok(image)
    }

    fn restart(&mut self) -> Result<(), Failure> {
        self.check_memory()?;
        let before = self.past.claims;
        self.durability.close();
        let moment = self.disk.now();
        self.crash(&moment, Crash::Kill, &before)
    }

    /// Whatever happened to the log, readers see everything that was done.
    fn check_memory(&mut self) -> Result<(), Failure> {
        let found = contents::read(&self.keyspace, self.now_ms)?;
        let expected = self.past.latest().at(self.now_ms);
        if found == expected {
            return Ok(());
        }
        Err(format!("memory differs:\n{}", difference(&expected, &found)))
    }

    fn check_key(&mut self, place: Place) -> Result<(), Failure> {
        let db = self.keyspace.db_index(place.0).expect("a database");
        let Ok(entry) = contents::read_key(&self.keyspace, db, &name(place), self.now_ms) else {
            // The disk failed.
            return Ok(());
        };
        let mut found = Contents::default();
        found.0.extend(entry.map(|entry| (place, Rc::new(entry))));
        found.purge(self.now_ms);
        let mut expected = self.past.latest().at(self.now_ms);
        expected.0.retain(|of, _| *of == place);
        if found == expected {
            return Ok(());
        }
        Err(format!("a reader sees something else:\n{}", difference(&expected, &found)))
    }
}

fn check_saved(expected: &Contents, found: &Contents) -> Result<(), Failure> {
    if found == expected {
        return Ok(());
    }
    let difference = difference(expected, found);
    Err(format!("the snapshot is not what was there when it began:\n{difference}"))
}

fn add(found: &mut Contents, place: Place, entry: Entry) -> Result<(), Failure> {
    match found.0.insert(place, Rc::new(entry)) {
        None => Ok(()),
        Some(_) => Err(format!("{place:?} is twice in the snapshot")),
    }
}

fn image(moment: &Moment, crash: Crash, salt: u64) -> SimDisk {
    match crash {
        Crash::Kill => moment.after_kill(salt),
        Crash::PowerCut => moment.after_power_cut(salt),
    }
}

fn of_disk(fault: Fault) -> tierce_cask::disk::Fault {
    use tierce_cask::disk::Fault as Of;
    match fault {
        Fault::Write => Of::Write,
        Fault::Sync => Of::Sync,
        Fault::SyncDir => Of::SyncDir,
        Fault::Open => Of::Open,
        Fault::Rename => Of::Rename,
        Fault::Remove => Of::Remove,
        Fault::Read => Of::Read,
    }
}
