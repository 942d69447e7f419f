//! Keeps the saver from taking processor time away from the workers.
//!
//! On a machine with spare cores, or while this server is otherwise almost idle, the saver works without a break. When
//! all cores are busy, it takes time from the workers, so it rests five times as long as it works. When too many
//! copy-on-write copies are pending, it does not rest, because it has to write them.

use std::fs;
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

use super::state::Persistence;
use tierce_config::{DirectiveId, Settings};

/// Working time of the saver between two rests. Meanwhile a worker or a client on the same core waits. Its partner on
/// another core keeps busy if this is shorter than the work that it has at hand. With pieces of half a millisecond
/// both stood still.
const WORK: Duration = Duration::from_micros(100);

/// Ratio of rest to work on a busy machine, so that the saver takes a sixth of a core. The measurements are in
/// `docs/decisions/0011-snapshots-without-fork.md`.
const REST_SHARE: u32 = 5;

/// Interval of the load checks. The kernel counts in hundredths of a second.
const CHECK_EVERY: Duration = Duration::from_millis(100);

/// Idle share of the processors' time below which a machine is busy, while the saver works without a break.
const IDLE_MIN: f64 = 0.3;

/// Idle share above which a resting saver works without a break again; it is higher because the saver takes a core.
const IDLE_MIN_RESTING: f64 = 0.5;

/// Share of a core used by all other threads of this process together, below which there is nothing to take time from.
const OWN_WORK_MIN: f64 = 0.25;

/// Longest single sleep, so that a shutdown need not wait for it.
const SLEEP_MAX: Duration = Duration::from_millis(10);

pub(super) struct Pace {
    working_since: Instant,
    /// Value of `rdb-key-save-delay`, for tests that need a slow save.
    key_delay: Duration,
    checked: Instant,
    times: Option<Times>,
    /// Processor time of the other threads of this process.
    others: Duration,
    is_busy: bool,
}

impl Pace {
    pub(super) fn begin(settings: &Settings) -> Self {
        const KEY_DELAY: DirectiveId = DirectiveId::of("rdb-key-save-delay");
        let micros = u64::try_from(settings.number(KEY_DELAY)).unwrap_or(0);
        let now = Instant::now();
        Self {
            working_since: now,
            key_delay: Duration::from_micros(micros),
            checked: now,
            times: Times::of_machine(),
            others: work_of_others(),
            is_busy: true,
        }
    }

    /// Rests if it is time, after `keys`, or slices of a large one, were written. The saver sleeps with `rest`.
    pub(super) fn after(
        &mut self,
        keys: usize,
        rest: impl FnOnce(Duration),
        persistence: &Persistence,
    ) {
        let mut delay = self.key_delay * keys as u32;
        while !delay.is_zero() && !persistence.is_given_up() {
            let step = delay.min(SLEEP_MAX);
            std::thread::sleep(step);
            delay -= step;
        }
        let worked = self.working_since.elapsed();
        if worked < WORK {
            return;
        }
        if self.checked.elapsed() >= CHECK_EVERY {
            self.check();
        }
        if self.is_busy {
            rest((worked * REST_SHARE).min(SLEEP_MAX));
        }
        self.working_since = Instant::now();
    }

    /// Makes the saver rest as on a busy machine for some time. Called when another thread waits for a shard that the
    /// saver locks again and again. The saver holds that lock most of the time, so if the kernel preempts it, the
    /// other thread waits for both.
    pub(super) fn make_way(&mut self) {
        self.is_busy = true;
        self.checked = Instant::now();
    }

    /// Checks if the machine and this process have been busy since the last check.
    fn check(&mut self) {
        let (now, others) = (Times::of_machine(), work_of_others());
        if let (Some(before), Some(now)) = (self.times, now) {
            let idle_min = if self.is_busy { IDLE_MIN_RESTING } else { IDLE_MIN };
            self.is_busy = now.idle_share_since(before) < idle_min;
        }
        let work = others.saturating_sub(self.others).as_secs_f64();
        self.is_busy &= work >= OWN_WORK_MIN * self.checked.elapsed().as_secs_f64();
        (self.times, self.others) = (now, others);
        self.checked = Instant::now();
    }
}

/// Returns the processor time of all threads of this process except the calling one, including ended threads.
fn work_of_others() -> Duration {
    let [process, thread] = [ClockId::ProcessCPUTime, ClockId::ThreadCPUTime].map(|clock| {
        let time = clock_gettime(clock);
        Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
    });
    process.saturating_sub(thread)
}

/// Processor time of the whole machine since its start, in ticks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Times {
    idle: u64,
    total: u64,
}

impl Times {
    fn of_machine() -> Option<Self> {
        Self::parse(&fs::read_to_string("/proc/stat").ok()?)
    }

    /// Parses the first line of `/proc/stat`: user, nice, system, idle, iowait, irq, softirq, steal. I/O wait does not
    /// count as idle here, because it is the saver itself that waits. The time of guests is contained in the first
    /// two.
    fn parse(stat: &str) -> Option<Self> {
        let fields = stat.strip_prefix("cpu ")?.lines().next()?.split_whitespace().take(8);
        let times: Vec<u64> = fields.map(str::parse).collect::<Result<_, _>>().ok()?;
        let idle = *times.get(3)?;
        Some(Self { idle, total: times.iter().sum() })
    }

    fn idle_share_since(self, before: Self) -> f64 {
        let idle = self.idle.saturating_sub(before.idle);
        let total = self.total.saturating_sub(before.total);
        idle as f64 / total.max(1) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_idle_share_of_the_machine() {
        let stat = |idle| format!("cpu  100 1 50 {idle} 20 0 4 0 7 0\ncpu0 1 2 3 4\nintr 1\n");
        let before = Times::parse(&stat(1000)).unwrap();
        assert_eq!(before, Times { idle: 1000, total: 1175 });
        let after = Times::parse("cpu  130 1 50 1060 30 0 4 0 9 0\n").unwrap();
        assert!((after.idle_share_since(before) - 0.6).abs() < 1e-9);
        assert_eq!(before.idle_share_since(before), 0.0);
        assert_eq!(Times::parse("cpu0 1 2 3"), None);
        assert_eq!(Times::parse("cpu  1 2 x 4"), None);
        assert!(Times::of_machine().is_some());
    }
}
