//! Runs threads one at a time, in an order that a seed determines.
//!
//! The threads of a [`Simulation`] are threads of the system. Only one of them has the turn. It passes the turn on at
//! the points where threads interact (`interleaving`): before it takes a lock, when it finds one taken, when it waits
//! for another thread, and at explicit points. A random number generator chooses the next one. Time is simulated as
//! well: it advances a little at each point, and sometimes much. When all threads wait, it advances to the first
//! timeout. So the seed determines the run, and a failed run can be repeated.
//!
//! Other threads of the process are not affected.
//!
//! After a failure of a thread, or a deadlock, the simulation's threads stay suspended forever.

mod schedule;

use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex, MutexGuard};

use self::schedule::{Schedule, Standing};

/// Condition on which a waiting thread may continue.
pub type IsDue = Arc<dyn Fn() -> bool + Send + Sync>;

/// Begin of simulated time, in Unix milliseconds.
pub const BEGINS_UNIX_MS: i64 = 1_700_000_000_000;

/// Maximum real time of a turn without passing a point. Beyond it, the thread waits for something unknown to the
/// simulation.
const SILENCE_MAX: Duration = Duration::from_secs(60);

/// No thread has the turn.
const NOBODY: usize = usize::MAX;

static BEGIN: LazyLock<Instant> = LazyLock::new(Instant::now);

/// A simulation; see the head of this file.
pub struct Simulation {
    stage: Arc<Stage>,
    threads: Vec<JoinHandle<()>>,
}

/// State that the threads share.
struct Stage {
    schedule: Mutex<Schedule>,
    /// The thread that has the turn.
    turn: AtomicUsize,
    /// Signals its end.
    ended: Condvar,
}

/// Handle of a thread in the simulation.
struct Seat {
    stage: Arc<Stage>,
    index: usize,
}

thread_local! {
    static SEAT: RefCell<Option<Seat>> = const { RefCell::new(None) };
}

/// Report of a simulation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Course {
    /// Number of points that were passed.
    pub steps: u64,
    /// Checksum of all decisions: equal in each run with the same seed.
    pub checksum: u64,
    /// Simulated time that has passed.
    pub nanos: u64,
}

impl Simulation {
    /// Returns a simulation without threads. The seed determines its course. It fails if it has not ended after
    /// `steps_max` steps.
    #[must_use]
    pub fn new(seed: u64, steps_max: u64) -> Self {
        let schedule = Mutex::new(Schedule::new(seed, steps_max));
        let stage = Stage { schedule, turn: AtomicUsize::new(NOBODY), ended: Condvar::new() };
        Self { stage: Arc::new(stage), threads: Vec::new() }
    }

    /// Adds a thread.
    ///
    /// # Panics
    ///
    /// If the system has no more threads.
    pub fn spawn(&mut self, name: &str, body: impl FnOnce() + Send + 'static) {
        let index = self.threads.len();
        let stage = Arc::clone(&self.stage);
        let run = move || {
            let seat = Seat { stage: Arc::clone(&stage), index };
            stage.wait_for_turn(index);
            SEAT.set(Some(seat));
            let done = catch_unwind(AssertUnwindSafe(body));
            SEAT.set(None);
            stage.end(index, done.err().map(|panic| text_of(&*panic)));
        };
        let thread = thread::Builder::new().name(name.to_owned()).spawn(run).expect("a thread");
        self.stage.schedule.lock().add(name, thread.thread().clone());
        self.threads.push(thread);
    }

    /// Runs all threads to their ends.
    ///
    /// # Errors
    ///
    /// The failure, and the last events.
    pub fn run(self) -> Result<Course, String> {
        LazyLock::force(&BEGIN);
        let mut schedule = self.stage.schedule.lock();
        self.stage.pass_on(&mut schedule);
        while !schedule.has_ended() {
            let before = schedule.steps();
            let is_silent = self.stage.ended.wait_for(&mut schedule, SILENCE_MAX).timed_out();
            if is_silent && schedule.steps() == before {
                let text =
                    "the thread that has the turn waits for what the simulation does not know";
                schedule.fail(text);
            }
        }
        let course = schedule.course();
        drop(schedule);
        if course.is_ok() {
            for thread in self.threads {
                let _ = thread.join();
            }
        }
        course
    }
}

fn text_of(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().cloned();
    text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned())).unwrap_or_default()
}

impl Stage {
    fn wait_for_turn(&self, index: usize) {
        while self.turn.load(Ordering::Acquire) != index {
            thread::park();
        }
    }

    /// Passes the turn to the chosen thread. No thread has it after the end of the simulation.
    fn pass_on(&self, schedule: &mut Schedule) {
        match schedule.choose() {
            Some(next) => {
                self.turn.store(next, Ordering::Release);
                schedule.thread(next).unpark();
            }
            None => {
                self.turn.store(NOBODY, Ordering::Release);
                self.ended.notify_all();
            }
        }
    }

    /// Sets the state of this thread, until it has the turn again.
    fn stand(&self, index: usize, place: &'static str, standing: Standing) {
        let mut schedule = self.schedule.lock();
        if schedule.step(index, place, standing) {
            return;
        }
        self.pass_on(&mut schedule);
        drop(schedule);
        self.wait_for_turn(index);
    }

    fn end(&self, index: usize, failure: Option<String>) {
        let mut schedule = self.schedule.lock();
        schedule.step(index, "end", Standing::Ended);
        if let Some(failure) = failure {
            let name = schedule.name(index).to_owned();
            schedule.fail(&format!("{name} has failed: {failure}"));
        }
        self.pass_on(&mut schedule);
    }
}

/// Calls `body` if this thread belongs to a simulation, and does not unwind.
fn here<R>(body: impl FnOnce(&Stage, usize) -> R) -> Option<R> {
    if thread::panicking() {
        return None;
    }
    let seat = SEAT.try_with(|seat| {
        let seat = seat.borrow();
        seat.as_ref().map(|seat| (Arc::clone(&seat.stage), seat.index))
    });
    let (stage, index) = seat.ok().flatten()?;
    Some(body(&stage, index))
}

/// Returns true if this thread belongs to a simulation.
#[must_use]
pub fn is_here() -> bool {
    here(|_, _| ()).is_some()
}

/// See `pass` of `interleaving`.
pub fn pass(place: &'static str) {
    here(|stage, index| stage.stand(index, place, Standing::Ready));
}

/// Returns a random number below `bound`, from this thread's simulation.
///
/// # Panics
///
/// If it belongs to none.
#[must_use]
pub fn random_below(bound: u64) -> u64 {
    here(|stage, _| stage.schedule.lock().below(bound)).expect("a thread of a simulation")
}

/// Returns a random word from this thread's simulation.
pub(crate) fn random_word() -> Option<u64> {
    here(|stage, _| {
        let half = || stage.schedule.lock().below(1 << 32);
        half() << 32 | half()
    })
}

/// Returns the nanoseconds since the beginning of this thread's simulation.
#[must_use]
pub fn nanos() -> Option<u64> {
    here(|stage, _| stage.schedule.lock().now())
}

pub(crate) fn instant() -> Option<Instant> {
    Some(*BEGIN + Duration::from_nanos(nanos()?))
}

/// Returns the time of day in this thread's simulation.
#[must_use]
pub fn unix_ms() -> Option<i64> {
    Some(BEGINS_UNIX_MS + (nanos()? / 1_000_000) as i64)
}

fn nanos_at(instant: Instant) -> u64 {
    instant.saturating_duration_since(*BEGIN).as_nanos().try_into().unwrap_or(u64::MAX)
}

/// Sleeps in the simulation of this thread, if it belongs to one.
pub(crate) fn sleep(time: Duration) -> bool {
    here(|stage, index| {
        let until = stage.schedule.lock().after(time);
        let standing = Standing::Asleep { on: 0, until: Some(until) };
        stage.stand(index, "sleep", standing);
    })
    .is_some()
}

/// Waits in the simulation of this thread until something is due, or until a time in nanoseconds.
///
/// # Panics
///
/// If the thread belongs to none.
pub fn wait_until(place: &'static str, until: Option<u64>, is_due: IsDue) {
    let waits = |stage: &Stage, index| stage.stand(index, place, Standing::Looks { is_due, until });
    here(waits).expect("a thread of a simulation");
}

/// Returns the name that identifies the object of a wait.
pub(crate) fn name<T>(of: &T) -> usize {
    std::ptr::from_ref(of).addr()
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> Option<MutexGuard<'_, T>> {
    here(|stage, index| {
        loop {
            if let Some(guard) = mutex.try_lock() {
                return guard;
            }
            stage.stand(index, "locked", Standing::Asleep { on: name(mutex), until: None });
        }
    })
}

pub(crate) fn try_lock_for<T>(mutex: &Mutex<T>, time: Duration) -> Option<MutexGuard<'_, T>> {
    here(|stage, index| {
        let until = stage.schedule.lock().after(time);
        loop {
            let guard = mutex.try_lock();
            if guard.is_some() || stage.schedule.lock().now() >= until {
                return guard;
            }
            let standing = Standing::Asleep { on: name(mutex), until: Some(until) };
            stage.stand(index, "locked", standing);
        }
    })?
}

/// Wakes waiting threads after a shard was unlocked.
pub(crate) fn unlocked(mutex: usize) {
    // Waiting threads continue even if this thread unwinds.
    let _ = SEAT.try_with(|seat| {
        if let Some(seat) = &*seat.borrow() {
            seat.stage.schedule.lock().wake(mutex, usize::MAX);
        }
    });
    pass("unlock");
}

/// Waits; `Some(true)` if notified; `None` if this thread belongs to no simulation.
pub(crate) fn wait<T>(
    on: usize,
    guard: &mut MutexGuard<'_, T>,
    until: Option<Instant>,
) -> Option<bool> {
    here(|stage, index| {
        let until = until.map(nanos_at);
        MutexGuard::unlocked(guard, || {
            stage.stand(index, "wait", Standing::Asleep { on, until });
        });
        stage.schedule.lock().was_woken(index)
    })
}

/// Wakes up to `count` threads that wait for the object of this name.
pub(crate) fn notify(on: usize, count: usize) {
    here(|stage, _| stage.schedule.lock().wake(on, count));
}

#[cfg(test)]
mod tests;
