//! State that outlives the server: the disk, the time, and the known past. Here lives follow one another,
//! and after each start the contents are compared.

use tierce_storage::disk::{Moment, SimDisk};

use crate::together::contents::{self, difference};
use crate::together::guarantees::{Guarantees, Past};
use crate::together::history::{Crash, Random, Step};
use crate::together::life::Life;
use crate::together::start::{Started, is_traced};

/// Time at the beginning.
const BEGIN_MS: i64 = 1_000_000;

/// Reason why a history fails.
pub type Failure = String;

pub struct World {
    pub disk: SimDisk,
    /// The disk has little space or none.
    pub is_full: bool,
    pub now_ms: i64,
    pub past: Past,
    /// An incomplete log may be authoritative.
    pub may_count: bool,
    random: Random,
}

/// The end of a life.
pub struct Death {
    /// State of the disk.
    pub moment: Moment,
    pub crash: Crash,
    /// Guarantees before the step in which the life ended.
    pub before: Guarantees,
    pub at: String,
}

/// Runs a history.
pub fn run(seed: u64, steps: &[Step]) -> Result<(), Failure> {
    let mut world = World {
        disk: SimDisk::new(seed),
        is_full: false,
        now_ms: BEGIN_MS,
        past: Past::new(),
        may_count: false,
        random: Random::new(!seed),
    };
    let mut steps = steps.iter().enumerate();
    loop {
        let started = world.start()?;
        let Some(death) = Life::begin(&mut world, &started).run(&mut steps)? else { break };
        drop(started);
        world.pass_away(&death).map_err(|failure| format!("{}: {failure}", death.at))?;
    }
    let (moment, before) = (world.disk.now(), world.past.guarantees);
    let death = Death { moment, crash: Crash::Kill, before, at: String::new() };
    world.pass_away(&death).map_err(|failure| format!("at the end: {failure}"))
}

impl World {
    pub fn age_ms(&self) -> u64 {
        (self.now_ms - BEGIN_MS) as u64
    }

    /// Returns true if the newest log has the file that makes it authoritative.
    pub fn has_newer_mark(&self) -> bool {
        let paths = self.disk.paths();
        let number =
            |text: &str| text.strip_prefix("wal-")?.strip_suffix(".incomplete")?.parse().ok();
        let names = paths.iter().filter_map(|path| path.file_name()?.to_str());
        let begun: Option<u64> = names.clone().filter_map(number).max();
        begun.is_some_and(|begun| names.clone().any(|name| name == format!("wal-{begun}.complete")))
    }

    fn start(&mut self) -> Result<Started, Failure> {
        if is_traced() {
            self.disk.record_trace();
        }
        start(&self.disk, &mut self.random)
    }

    /// Ends a life, starts from its disk, and compares the contents.
    fn pass_away(&mut self, death: &Death) -> Result<(), Failure> {
        let mut crash = death.crash;
        if is_traced() {
            let calls = self.disk.take_trace().join("\n");
            println!("{calls}\n{}: {crash:?} at call {}", death.at, death.moment.calls);
        }
        let image = self.image(death, &mut crash)?;
        self.is_full = false;
        // Reading brings values into memory, so it is usually done in a separate life.
        let looked_at = self.copy(&image);
        self.disk = image;
        let started = start(&looked_at, &mut self.random)?;
        let found = contents::read(&started.keyspace, self.now_ms)?;
        if self.random.below(3) == 0 {
            drop(started);
            self.disk = self.copy(&looked_at);
        }
        if is_traced() {
            println!("found: {:?}", found.0.keys());
        }
        let may_count = std::mem::take(&mut self.may_count);
        let (before, after) = (death.before, self.past.guarantees);
        if self.past.goes_on_with(&found, crash, &before, may_count, self.now_ms) {
            return Ok(());
        }
        let expected = self.past.latest().at(self.now_ms);
        Err(format!(
            "after a {crash:?} this is no state that may come back:\n{}  (of {} states; certain \
             were {before:?}, then {after:?}, may count: {may_count})",
            difference(&expected, &found),
            self.past.states.len(),
        ))
    }

    /// Returns the disk after a successful start. Sometimes the server has crashed during starts before,
    /// or was started on a full disk.
    fn image(&mut self, death: &Death, crash: &mut Crash) -> Result<SimDisk, Failure> {
        let mut image = after(&death.moment, death.crash, self.random.below(u64::MAX));
        while self.random.below(5) == 0 {
            image.keep_moment(image.calls() + self.random.below(30));
            drop(start(&image, &mut self.random)?);
            let moment = image.take_moment();
            if let Some(moment) = moment {
                let second = [Crash::Kill, Crash::PowerCut][self.random.below(2) as usize];
                if is_traced() {
                    println!("{second:?} during the start, at call {}", moment.calls);
                }
                if second == Crash::PowerCut {
                    *crash = second;
                }
                image = after(&moment, second, self.random.below(u64::MAX));
            } else {
                image = self.copy(&image);
            }
        }
        if self.is_full && self.random.below(2) == 0 {
            image.set_capacity(Some(image.used() + self.random.below(600)));
            // The start may succeed or fail.
            drop(Started::on(&image, &mut self.random));
            image = self.copy(&image);
        }
        Ok(image)
    }

    /// Copies the files for another process, since a thread of an ended one may still hold the locks for a
    /// moment.
    fn copy(&mut self, disk: &SimDisk) -> SimDisk {
        disk.now().after_kill(self.random.below(u64::MAX))
    }
}

fn start(disk: &SimDisk, random: &mut Random) -> Result<Started, Failure> {
    Started::on(disk, random).map_err(|error| format!("the server does not start: {error}"))
}

fn after(moment: &Moment, crash: Crash, salt: u64) -> SimDisk {
    match crash {
        Crash::Kill => moment.after_kill(salt),
        Crash::PowerCut => moment.after_power_cut(salt),
    }
}
