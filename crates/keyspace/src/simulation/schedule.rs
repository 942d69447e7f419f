//! The thread that has the turn, and the simulated time.

use std::collections::VecDeque;
use std::thread::Thread;
use std::time::Duration;

use super::{Course, IsDue};

/// Number of events to show after a failure.
const REMEMBERED: usize = 160;

/// Number of consecutive passes of one point after which a thread may be in an endless loop.
const ENDLESS_MIN: u32 = 40;

/// Steps of such threads, and no others, before simulated time may advance to the first timeout.
const BEFORE_HASTE: u32 = 3;

/// Maximum advance of simulated time in this case, in nanoseconds.
const HASTE_MAX: u64 = 60_000_000_000;

/// State of a thread that does not have the turn.
pub(super) enum Standing {
    /// It can go on.
    Ready,
    /// It waits until it is woken by this name, or until a time.
    Asleep { on: usize, until: Option<u64> },
    /// It waits until this condition holds, or until a time.
    Looks { is_due: IsDue, until: Option<u64> },
    /// It has ended.
    Ended,
}

impl Standing {
    fn until(&self) -> Option<u64> {
        match self {
            Self::Asleep { until, .. } | Self::Looks { until, .. } => *until,
            Self::Ready | Self::Ended => None,
        }
    }
}

struct Actor {
    name: String,
    thread: Thread,
    standing: Standing,
    /// True if it was woken before its timeout.
    was_woken: bool,
    /// Last point that it passed, and how often in a row.
    place: &'static str,
    passed: u32,
}

impl Actor {
    fn is_endless(&self) -> bool {
        matches!(self.standing, Standing::Ready) && self.passed > ENDLESS_MIN
    }
}

/// All threads of a simulation.
pub(super) struct Schedule {
    actors: Vec<Actor>,
    random: u64,
    now: u64,
    steps: u64,
    steps_max: u64,
    checksum: u64,
    /// One in this many times, a thread that could continue must pass the turn on.
    stays: u64,
    /// One in this many steps takes long.
    leaps: u64,
    /// Number of steps of possibly endless threads since the last step of another one.
    alone: u32,
    last: VecDeque<(usize, &'static str, u64)>,
    failure: Option<String>,
}

impl Schedule {
    pub(super) fn new(seed: u64, steps_max: u64) -> Self {
        let mut schedule = Self {
            actors: Vec::new(),
            random: seed,
            now: 0,
            steps: 0,
            steps_max,
            checksum: 0,
            stays: 1,
            leaps: 1,
            alone: 0,
            last: VecDeque::new(),
            failure: None,
        };
        // Some runs switch threads at each point, others seldom: faults need different orders.
        schedule.stays = [2, 4, 12][schedule.below(3) as usize];
        schedule.leaps = [16, 64, 256][schedule.below(3) as usize];
        schedule
    }

    pub(super) fn add(&mut self, name: &str, thread: Thread) {
        let name = name.to_owned();
        let (standing, was_woken, place, passed) = (Standing::Ready, false, "", 0);
        self.actors.push(Actor { name, thread, standing, was_woken, place, passed });
    }

    /// Returns the next number of splitmix64.
    fn random(&mut self) -> u64 {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.random;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    pub(super) fn below(&mut self, bound: u64) -> u64 {
        self.random() % bound.max(1)
    }

    pub(super) fn now(&self) -> u64 {
        self.now
    }

    pub(super) fn after(&self, time: Duration) -> u64 {
        self.now.saturating_add(time.as_nanos().try_into().unwrap_or(u64::MAX))
    }

    pub(super) fn steps(&self) -> u64 {
        self.steps
    }

    pub(super) fn name(&self, index: usize) -> &str {
        &self.actors[index].name
    }

    pub(super) fn thread(&self, index: usize) -> &Thread {
        &self.actors[index].thread
    }

    pub(super) fn was_woken(&self, index: usize) -> bool {
        self.actors[index].was_woken
    }

    pub(super) fn fail(&mut self, text: &str) {
        self.failure.get_or_insert_with(|| text.to_owned());
    }

    /// Records that a thread passes a point. Returns true if it keeps the turn.
    pub(super) fn step(&mut self, index: usize, place: &'static str, standing: Standing) -> bool {
        self.steps += 1;
        self.now += 200 + self.below(8_000);
        if self.below(self.leaps) == 0 {
            self.now += self.below(1_500_000);
        }
        self.last.push_back((index, place, self.now));
        if self.last.len() > REMEMBERED {
            self.last.pop_front();
        }
        let seen = (self.checksum ^ index as u64).wrapping_mul(0x0100_0000_01b3);
        self.checksum = place
            .bytes()
            .fold(seen, |sum, byte| (sum ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
        if self.steps > self.steps_max {
            let text = format!("no end after {} steps", self.steps_max);
            self.fail(&text);
        }
        let is_ready = matches!(standing, Standing::Ready);
        let actor = &mut self.actors[index];
        (actor.standing, actor.was_woken) = (standing, false);
        actor.passed = match actor.place == place {
            true => (actor.passed + 1).min(ENDLESS_MIN + 1),
            false => 0,
        };
        self.alone = if actor.passed > ENDLESS_MIN { self.alone + 1 } else { 0 };
        actor.place = place;
        is_ready && !actor.is_endless() && self.failure.is_none() && self.below(self.stays) != 0
    }

    /// Wakes up to `count` random threads that wait for this name.
    pub(super) fn wake(&mut self, name: usize, count: usize) {
        let waits =
            |actor: &Actor| matches!(actor.standing, Standing::Asleep { on, .. } if on == name);
        let mut waiting: Vec<usize> =
            (0..self.actors.len()).filter(|index| waits(&self.actors[*index])).collect();
        for _ in 0..count.min(waiting.len()) {
            let chosen = self.below(waiting.len() as u64) as usize;
            let actor = &mut self.actors[waiting.swap_remove(chosen)];
            (actor.standing, actor.was_woken) = (Standing::Ready, true);
        }
    }

    pub(super) fn has_ended(&self) -> bool {
        self.failure.is_some()
            || self.actors.iter().all(|actor| matches!(actor.standing, Standing::Ended))
    }

    /// Returns the thread that gets the turn; `None` if there is none.
    pub(super) fn choose(&mut self) -> Option<usize> {
        while !self.has_ended() {
            let (endless, may): (Vec<usize>, Vec<usize>) = (0..self.actors.len())
                .filter(|index| self.may_go_on(*index))
                .partition(|index| self.actors[*index].is_endless());
            // Possibly endless threads seldom delay others.
            let (first, then) = match self.below(16) {
                0 => (endless.clone(), may),
                _ => (may, Vec::new()),
            };
            let chosen = self.choose_of(first).or_else(|| self.choose_of(then));
            let chosen = match (chosen, self.earliest()) {
                (None, Some(at))
                    if endless.is_empty()
                        || self.alone >= BEFORE_HASTE && at <= self.now + HASTE_MAX =>
                {
                    self.now = self.now.max(at);
                    self.alone = 0;
                    continue;
                }
                (None, _) => self.choose_of(endless),
                (chosen, _) => chosen,
            };
            match chosen {
                Some(index) => {
                    self.actors[index].standing = Standing::Ready;
                    return Some(index);
                }
                None => self.fail("all threads wait, and none of them for a time"),
            }
        }
        None
    }

    fn may_go_on(&self, index: usize) -> bool {
        match &self.actors[index].standing {
            Standing::Ready | Standing::Looks { .. } => true,
            Standing::Ended => false,
            Standing::Asleep { until, .. } => until.is_some_and(|until| until <= self.now),
        }
    }

    /// Returns one of these that need not wait, if there is one.
    fn choose_of(&mut self, mut all: Vec<usize>) -> Option<usize> {
        while !all.is_empty() {
            let chosen = self.below(all.len() as u64) as usize;
            let index = all.swap_remove(chosen);
            match &self.actors[index].standing {
                Standing::Looks { is_due, until }
                    if until.is_none_or(|until| until > self.now) && !is_due() => {}
                _ => return Some(index),
            }
        }
        None
    }

    fn earliest(&self) -> Option<u64> {
        self.actors.iter().filter_map(|actor| actor.standing.until()).min()
    }

    pub(super) fn course(&self) -> Result<Course, String> {
        let Self { steps, checksum, now, .. } = *self;
        match &self.failure {
            None => Ok(Course { steps, checksum, nanos: now }),
            Some(failure) => Err(format!("{failure}\n{}", self.describe())),
        }
    }

    /// Describes the states of the threads and the last events: points that a thread passed in a row are on one line.
    fn describe(&self) -> String {
        let mut text = String::new();
        for actor in &self.actors {
            let standing = match &actor.standing {
                Standing::Ready => "can go on".to_owned(),
                Standing::Asleep { until, .. } => format!("waits until {until:?}"),
                Standing::Looks { until, .. } => format!("looks until {until:?}"),
                Standing::Ended => "has ended".to_owned(),
            };
            text += &format!("  {} {standing}\n", actor.name);
        }
        let mut before = None;
        for (index, place, nanos) in &self.last {
            match before == Some(*index) {
                true => text += &format!(", {place}"),
                false => text += &format!("\n  {nanos:>12} {}: {place}", self.actors[*index].name),
            }
            before = Some(*index);
        }
        text
    }
}
