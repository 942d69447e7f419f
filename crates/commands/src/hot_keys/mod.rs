//! The keys with the most time and the most bytes, which HOTKEYS collects during a session.
//!
//! - Without a session, the cost is one relaxed load for each batch of requests.
//! - Memory is bounded: a few hundred keys per stripe, each of at most [`KEY_LEN_MAX`] bytes.
//! - A stopped session keeps its figures until it is reset or another one begins.
//!
//! Each worker writes to its own stripe, and a reader adds them up. The totals of all commands are not collected here:
//! they are differences of existing counters of the server.

mod top;

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use arc_swap::ArcSwapOption;
use parking_lot::Mutex;
use tierce_output::Output;
use tierce_wire::resp::Args;

use self::top::Top;
use crate::clients::Client;
use crate::clock;
use crate::command::Command;
use crate::process::CpuTimes;

/// Maximum length of a key. Longer keys are not collected.
pub const KEY_LEN_MAX: usize = 4096;

/// Number of candidates for each requested key. More candidates find lighter keys reliably.
const CANDIDATES_PER_KEY: usize = 16;

/// Number of stripes. Workers with numbers that are equal modulo this share a stripe.
const STRIPES: usize = 16;

/// Parameters of HOTKEYS START.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Wanted {
    /// Keys by the time that their commands take.
    pub cpu: bool,
    /// Keys by the bytes of their requests and replies.
    pub net: bool,
    /// Number of keys, at least 1.
    pub keys: usize,
    /// Time at which the collection ends by itself, in Unix milliseconds.
    pub until_ms: Option<i64>,
    /// Sampling ratio: one command in so many is measured, at random; at least 1.
    pub sample: u32,
}

/// Sums over all commands at one moment.
#[derive(Clone, Copy, Default, Debug)]
pub struct Sums {
    /// Run time of commands in nanoseconds.
    pub nanos: u64,
    /// Bytes received and sent.
    pub bytes: u64,
    /// CPU time of the process.
    pub cpu: CpuTimes,
}

/// The session, if there is one.
#[derive(Default, Debug)]
pub struct HotKeys {
    is_on: AtomicBool,
    session: ArcSwapOption<Session>,
    /// Locked while one of the two changes: the end of a session must not switch off the next one.
    changes: Mutex<()>,
}

/// One collection, from HOTKEYS START on.
#[derive(Debug)]
pub struct Session {
    wanted: Wanted,
    begun_ms: i64,
    at_begin: Sums,
    /// Time of its end, with the sums at that time.
    end: Mutex<Option<(i64, Sums)>>,
    stripes: Box<[Mutex<Stripe>]>,
    /// State of the random number generator that samples commands.
    random: AtomicU64,
}

#[derive(Debug)]
struct Stripe {
    cpu: Top,
    net: Top,
}

/// Cost of a command.
#[derive(Clone, Copy, Debug)]
struct Cost {
    nanos: u64,
    /// Bytes of its request and its reply.
    bytes: usize,
}

/// Measurement of a call, started before it runs.
#[derive(Clone, Copy, Debug)]
pub struct Probe {
    nanos: fn() -> u64,
    begun_nanos: u64,
    written: usize,
}

impl Probe {
    /// Starts a measurement of the next call, if a session is active and the call is sampled.
    #[inline]
    pub fn begin(hot_keys: &HotKeys, nanos: fn() -> u64, output: &Output) -> Option<Self> {
        let picked = hot_keys.is_on() && hot_keys.picks();
        picked.then(|| Self { nanos, begun_nanos: nanos(), written: output.written() })
    }

    /// Returns the bytes written to the output since the start.
    #[must_use]
    pub fn written(&self, output: &Output) -> usize {
        output.written().saturating_sub(self.written)
    }

    /// Notes the cost of the finished call: the time since it began, and this number of bytes.
    #[cold]
    pub fn end(
        self,
        hot_keys: &HotKeys,
        call: (&Command, Args<'_>),
        client: &Client,
        bytes: usize,
    ) {
        let nanos = (self.nanos)().saturating_sub(self.begun_nanos);
        let (command, args) = call;
        let worker = usize::from(client.conn.worker);
        hot_keys.note(command, args, worker, Cost { nanos, bytes }, clock::unix_ms());
    }
}

/// Results of a session.
#[derive(Debug)]
pub struct Report {
    /// True while it is active.
    pub is_active: bool,
    /// Its parameters.
    pub wanted: Wanted,
    /// Time of its start, in Unix milliseconds.
    pub begun_ms: i64,
    /// Duration so far, or until its end.
    pub duration_ms: i64,
    /// Sums over all commands during the session.
    pub sums: Sums,
    /// Keys with nanoseconds, the hottest first.
    pub by_nanos: Vec<(Arc<[u8]>, u64)>,
    /// Keys with bytes, the hottest first.
    pub by_bytes: Vec<(Arc<[u8]>, u64)>,
}

/// A session is active already.
#[derive(PartialEq, Eq, Debug)]
pub struct IsActive;

impl HotKeys {
    /// Returns true if a session is active.
    #[inline]
    #[must_use]
    pub fn is_on(&self) -> bool {
        self.is_on.load(Relaxed)
    }

    /// Begins a session.
    ///
    /// # Errors
    /// If a session is active.
    pub fn start(&self, wanted: Wanted, now_ms: i64, sums: Sums) -> Result<(), IsActive> {
        let _changes = self.changes.lock();
        if self.session.load().as_ref().is_some_and(|session| session.is_active()) {
            return Err(IsActive);
        }
        let candidates = wanted.keys * CANDIDATES_PER_KEY;
        let stripe = || Stripe { cpu: Top::new(candidates), net: Top::new(candidates) };
        let session = Session {
            wanted,
            begun_ms: now_ms,
            at_begin: sums,
            end: Mutex::new(None),
            stripes: (0..STRIPES).map(|_| Mutex::new(stripe())).collect(),
            random: AtomicU64::new(now_ms as u64),
        };
        self.session.store(Some(Arc::new(session)));
        self.is_on.store(true, Relaxed);
        Ok(())
    }

    /// Ends the session, which keeps its figures. Returns false if none was active.
    pub fn stop(&self, now_ms: i64, sums: Sums) -> bool {
        let session = self.session.load_full();
        session.is_some_and(|session| self.end(&session, now_ms, sums))
    }

    /// Ends a session, unless it has ended already. Another one may have replaced it.
    fn end(&self, session: &Arc<Session>, now_ms: i64, sums: Sums) -> bool {
        let _changes = self.changes.lock();
        let mut end = session.end.lock();
        if end.is_some() {
            return false;
        }
        *end = Some((now_ms, sums));
        if self.session.load().as_ref().is_some_and(|present| Arc::ptr_eq(present, session)) {
            self.is_on.store(false, Relaxed);
        }
        true
    }

    /// Removes the session.
    ///
    /// # Errors
    /// If it is active.
    pub fn reset(&self) -> Result<(), IsActive> {
        let _changes = self.changes.lock();
        if self.session.load().as_ref().is_some_and(|session| session.is_active()) {
            return Err(IsActive);
        }
        // A session past its end time may not have been ended.
        self.is_on.store(false, Relaxed);
        self.session.store(None);
        Ok(())
    }

    /// Returns true if the next command is sampled.
    #[cold]
    fn picks(&self) -> bool {
        self.session.load().as_ref().is_some_and(|session| session.picks())
    }

    /// Notes a reply that a call gets later, without running again.
    pub fn note_reply(&self, command: &Command, args: Args<'_>, worker: u16, bytes: usize) {
        if self.is_on() && self.picks() {
            self.note(command, args, worker.into(), Cost { nanos: 0, bytes }, clock::unix_ms());
        }
    }

    /// Notes the cost of a call. It is split equally between the keys of the call.
    #[cold]
    fn note(&self, command: &Command, args: Args<'_>, worker: usize, cost: Cost, now_ms: i64) {
        let session = self.session.load();
        let Some(session) = session.as_ref().filter(|session| !session.is_over(now_ms)) else {
            return;
        };
        let keys = || command.spec.keys.iter().flat_map(|keys| keys.indexes(args));
        let count = keys().count() as u64;
        if count == 0 {
            return;
        }
        let bytes = cost.bytes as u64;
        let Wanted { cpu, net, .. } = session.wanted;
        let mut stripe = session.stripes[worker % STRIPES].lock();
        let keys = keys().filter_map(|index| args.get(index));
        for key in keys.filter(|key| key.len() <= KEY_LEN_MAX) {
            if cpu {
                stripe.cpu.add(key, cost.nanos / count);
            }
            if net {
                stripe.net.add(key, bytes / count);
            }
        }
    }

    /// Returns the results of the session; `None` without one. Ends it if its time is over.
    pub fn report(&self, now_ms: i64, sums: Sums) -> Option<Report> {
        let session = self.session.load_full()?;
        if session.is_over(now_ms) {
            self.end(&session, session.wanted.until_ms.unwrap_or(now_ms), sums);
        }
        Some(session.report(now_ms, sums))
    }

    /// Ends a session whose time is over. Called periodically, so that no requests are measured without need.
    pub fn end_if_over(&self, now_ms: i64, sums: impl FnOnce() -> Sums) {
        if !self.is_on() {
            return;
        }
        if let Some(session) = self.session.load_full().filter(|session| session.is_over(now_ms)) {
            self.end(&session, session.wanted.until_ms.unwrap_or(now_ms), sums());
        }
    }
}

impl Session {
    fn is_active(&self) -> bool {
        self.end.lock().is_none() && !self.is_over(clock::unix_ms())
    }

    fn is_over(&self, now_ms: i64) -> bool {
        self.wanted.until_ms.is_some_and(|until_ms| now_ms >= until_ms)
    }

    fn picks(&self) -> bool {
        let sample = u64::from(self.wanted.sample);
        sample == 1 || mixed(self.random.fetch_add(1, Relaxed)).is_multiple_of(sample)
    }

    fn report(&self, now_ms: i64, sums: Sums) -> Report {
        let end = *self.end.lock();
        let (end_ms, at_end) = end.unwrap_or((now_ms, sums));
        let begin = self.at_begin;
        Report {
            is_active: end.is_none(),
            wanted: self.wanted,
            begun_ms: self.begun_ms,
            duration_ms: (end_ms - self.begun_ms).max(0),
            // Statistics may have been reset since the start.
            sums: Sums {
                nanos: at_end.nanos.saturating_sub(begin.nanos),
                bytes: at_end.bytes.saturating_sub(begin.bytes),
                cpu: CpuTimes {
                    user: (at_end.cpu.user - begin.cpu.user).max(0.0),
                    system: (at_end.cpu.system - begin.cpu.system).max(0.0),
                },
            },
            by_nanos: self.hottest(|stripe| &stripe.cpu),
            by_bytes: self.hottest(|stripe| &stripe.net),
        }
    }

    fn hottest(&self, of: impl Fn(&Stripe) -> &Top) -> Vec<(Arc<[u8]>, u64)> {
        let mut sums: HashMap<Arc<[u8]>, u64> = HashMap::new();
        for stripe in &self.stripes {
            for (key, weight) in of(&stripe.lock()).known().filter(|(_, weight)| *weight > 0) {
                *sums.entry(Arc::clone(key)).or_default() += weight;
            }
        }
        let mut keys: Vec<_> = sums.into_iter().collect();
        keys.sort_unstable_by(|(key, weight), (other, of_other)| {
            of_other.cmp(weight).then_with(|| key.cmp(other))
        });
        keys.truncate(self.wanted.keys);
        keys
    }
}

/// Returns the bytes of a request in RESP.
#[must_use]
pub fn request_bytes(args: Args<'_>) -> usize {
    let digits = |number: usize| number.checked_ilog10().unwrap_or(0) as usize + 1;
    let framed = |len: usize| 1 + digits(len) + 2 + len + 2;
    1 + digits(args.len()) + 2 + args.iter().map(|arg| framed(arg.len())).sum::<usize>()
}

/// Mixes a word so that each bit depends on all bits of the input (the finalizer of SplitMix64).
fn mixed(mut word: u64) -> u64 {
    word = word.wrapping_add(0x9e37_79b9_7f4a_7c15);
    word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands;
    use tierce_wire::resp::OwnedArgs;

    const CPU: Wanted = Wanted { cpu: true, net: true, keys: 2, until_ms: None, sample: 1 };

    fn args(line: &str) -> OwnedArgs {
        let mut args = OwnedArgs::new();
        line.split(' ').for_each(|word| args.push(word.as_bytes()).unwrap());
        args
    }

    fn note(hot_keys: &HotKeys, line: &str, worker: usize, nanos: u64) {
        let (table, args) = (commands::table(), args(line));
        let command = table.find(&args.as_args()[0]).unwrap();
        let cost = Cost { nanos, bytes: request_bytes(args.as_args()) + 5 };
        hot_keys.note(command, args.as_args(), worker, cost, 0);
    }

    fn texts(keys: &[(Arc<[u8]>, u64)]) -> Vec<(String, u64)> {
        keys.iter().map(|(key, weight)| (key.escape_ascii().to_string(), *weight)).collect()
    }

    #[test]
    fn the_late_end_of_a_session_leaves_the_next_one_on() {
        let hot_keys = HotKeys::default();
        let over = Wanted { until_ms: Some(1), ..CPU };
        hot_keys.start(over, 0, Sums::default()).unwrap();
        // A thread sees that the session is over. Before it ends the session, another thread begins the next one.
        let found = hot_keys.session.load_full().unwrap();
        hot_keys.start(CPU, 2, Sums::default()).unwrap();
        assert!(hot_keys.end(&found, 1, Sums::default()));
        assert!(hot_keys.is_on() && hot_keys.picks());
        assert!(hot_keys.stop(3, Sums::default()));
        assert!(!hot_keys.is_on());
        // Without that thread, too, nothing is measured after the reset.
        hot_keys.start(over, 0, Sums::default()).unwrap();
        hot_keys.reset().unwrap();
        assert!(!hot_keys.is_on());
    }

    #[test]
    fn a_session_from_its_start_to_its_reset() {
        let hot_keys = HotKeys::default();
        assert!(!hot_keys.is_on() && hot_keys.report(0, Sums::default()).is_none());
        assert!(!hot_keys.stop(0, Sums::default()));
        let sums = |nanos| Sums { nanos, bytes: 10 * nanos, ..Sums::default() };
        hot_keys.start(CPU, 1_000, sums(100)).unwrap();
        assert_eq!(hot_keys.start(CPU, 1_000, sums(0)), Err(IsActive));
        assert_eq!(hot_keys.reset(), Err(IsActive));
        assert!(hot_keys.is_on() && hot_keys.picks());
        // Calls of two workers, one of them with two keys.
        note(&hot_keys, "SET a 1", 0, 30);
        note(&hot_keys, "GET a", 1, 10);
        note(&hot_keys, "MGET a b", 1, 20);
        note(&hot_keys, "GET c", 1, 1);
        note(&hot_keys, "PING", 1, 1000);
        let report = hot_keys.report(3_000, sums(150)).unwrap();
        assert!(report.is_active);
        assert_eq!((report.begun_ms, report.duration_ms), (1_000, 2_000));
        assert_eq!((report.sums.nanos, report.sums.bytes), (50, 500));
        assert_eq!(texts(&report.by_nanos), [("a".into(), 50), ("b".into(), 10)]);
        // "*2\r\n$3\r\nGET\r\n$1\r\na\r\n" has 20 bytes; SET with its value 27; MGET 28, and half of the reply is odd.
        assert_eq!(texts(&report.by_bytes), [("a".into(), 20 + 5 + 27 + 5 + 16), ("c".into(), 25)]);
        assert!(hot_keys.stop(4_000, sums(160)) && !hot_keys.is_on());
        note(&hot_keys, "GET c", 1, 5);
        let report = hot_keys.report(9_000, sums(900)).unwrap();
        assert_eq!((report.is_active, report.duration_ms, report.sums.nanos), (false, 3_000, 60));
        assert!(!hot_keys.stop(9_000, sums(900)));
        hot_keys.reset().unwrap();
        assert!(hot_keys.report(9_000, sums(900)).is_none());
    }

    #[test]
    fn a_session_ends_when_its_time_has_come() {
        let hot_keys = HotKeys::default();
        let wanted = Wanted { until_ms: Some(i64::MAX), ..CPU };
        hot_keys.start(wanted, 0, Sums::default()).unwrap();
        hot_keys.end_if_over(5, || unreachable!("it goes on"));
        assert!(hot_keys.is_on());
        hot_keys.end_if_over(i64::MAX, Sums::default);
        assert!(!hot_keys.is_on());
        // Another one may begin.
        hot_keys.start(CPU, 0, Sums::default()).unwrap();
    }

    #[test]
    fn long_keys_are_left_out() {
        let hot_keys = HotKeys::default();
        hot_keys.start(CPU, 0, Sums::default()).unwrap();
        note(&hot_keys, &format!("GET {}", "k".repeat(KEY_LEN_MAX)), 0, 1);
        note(&hot_keys, &format!("GET {}", "l".repeat(KEY_LEN_MAX + 1)), 0, 2);
        let report = hot_keys.report(0, Sums::default()).unwrap();
        assert_eq!(report.by_nanos.len(), 1);
    }

    #[test]
    fn one_command_of_so_many_is_looked_at() {
        let hot_keys = HotKeys::default();
        hot_keys.start(Wanted { sample: 10, ..CPU }, 0, Sums::default()).unwrap();
        let picked = (0..10_000).filter(|_| hot_keys.picks()).count();
        // The random numbers follow from the start time, which is 0, so the result is deterministic.
        assert!((900..1100).contains(&picked), "{picked}");
    }
}
