//! Timing of commands: counters, histograms, slow log and latency monitor. Requests of all protocols are accounted
//! for here, and the calls of a program that embeds the kernel.
//!
//! Reading the clock costs about as much as a small command. So short commands of one batch are timed together as a
//! run, and each is counted with its share. Other commands are timed one by one. All commands are timed one by one
//! when the slow log or the latency monitor needs more exact times.

use parking_lot::Mutex;

use crate::clients::Client;
use crate::clock;
use crate::command::{Command, CommandId, Flags, Operation};
use crate::command_log::{CommandLog, LogKind};
use crate::kernel::Kernel;
use crate::latency::LatencyMonitor;
use crate::stats::{Counters, Stat};

/// Maximum number of different commands in a run.
const KINDS_MAX: usize = 4;
/// Maximum number of calls in a run. A run longer than `slowlog-log-slower-than` is logged as a whole.
const CALLS_MAX: u16 = 64;

/// Facts about a call for the statistics: of a command, or of a request of another protocol.
pub trait Accounted {
    /// Identity for the counters.
    fn id(&self) -> CommandId;
    /// Returns true if the call is so short that it is timed in a run.
    fn is_brief(&self) -> bool;
    /// Returns true for a `fast-command` of the latency monitor, false for a `command`.
    fn is_fast(&self) -> bool;
    /// Returns true if the call may appear in the slow log.
    fn is_logged(&self) -> bool;
}

impl Accounted for Command {
    #[inline]
    fn id(&self) -> CommandId {
        self.id
    }

    #[inline]
    fn is_brief(&self) -> bool {
        self.is_brief
    }

    #[inline]
    fn is_fast(&self) -> bool {
        self.spec.flags.contains(Flags::FAST)
    }

    #[inline]
    fn is_logged(&self) -> bool {
        !self.spec.flags.contains(Flags::SKIP_SLOWLOG)
    }
}

impl Accounted for Operation {
    #[inline]
    fn id(&self) -> CommandId {
        self.id
    }

    #[inline]
    fn is_brief(&self) -> bool {
        self.is_brief
    }

    #[inline]
    fn is_fast(&self) -> bool {
        self.is_brief
    }

    #[inline]
    fn is_logged(&self) -> bool {
        true
    }
}

/// Words of a call as the slow log keeps them; see [`command_log::shorten`](crate::command_log::shorten).
pub type Words = Vec<Vec<u8>>;

/// Timing of one batch.
pub struct Meter<'k> {
    kernel: &'k Kernel,
    counters: &'k Counters,
    /// Receives slow calls and spikes instead of the kernel.
    aside: Option<&'k Noted>,
    /// Start of the run, or of the command that is timed alone.
    since_nanos: u64,
    /// True after the start of a run.
    runs: bool,
    /// Kind of the last call of the run.
    latest: CommandId,
    /// Earlier kinds of the run with their numbers of calls; most runs have none. Calls of the latest kind are added
    /// when the next kind comes.
    kinds: [(CommandId, u16); KINDS_MAX],
    kinds_len: u16,
    /// Calls that may still join the run; 0 if none has begun.
    room: u16,
    /// Value of `room` when the latest kind began.
    room_before: u16,
    commands: u64,
    thresholds: Thresholds,
}

/// Slow calls and spikes of a program that may start again.
#[derive(Default)]
pub struct Noted {
    /// Slow calls.
    pub slowlog: Mutex<CommandLog>,
    /// Spikes.
    pub latency: Mutex<LatencyMonitor>,
}

/// Configured thresholds of durations to record.
#[derive(Clone, Copy)]
struct Thresholds {
    /// Negative to disable.
    slow_micros: i64,
    /// 0 to disable.
    spike_ms: u64,
    /// True if every command is timed alone.
    exact: bool,
}

impl Thresholds {
    /// A run of fast commands does not take this long unless something is wrong. For a lower threshold of the slow
    /// log, commands are timed alone.
    const RUN_MICROS: i64 = 1000;

    #[inline]
    fn of(kernel: &Kernel) -> Self {
        let slow_micros = kernel.config.live().slowlog_log_slower_than();
        Self {
            slow_micros,
            spike_ms: kernel.config.live().latency_monitor_threshold(),
            exact: (0..Self::RUN_MICROS).contains(&slow_micros),
        }
    }
}

/// Timing of a command.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Timing {
    /// Together with its neighbours.
    Run,
    /// Alone.
    Alone,
}

impl<'k> Meter<'k> {
    /// Starts a meter that records slow calls and spikes in `noted`.
    pub fn start_aside(kernel: &'k Kernel, counters: &'k Counters, noted: &'k Noted) -> Self {
        Self { aside: Some(noted), ..Self::start(kernel, counters) }
    }

    /// Starts the clock.
    #[inline]
    pub fn start(kernel: &'k Kernel, counters: &'k Counters) -> Self {
        Self {
            kernel,
            counters,
            aside: None,
            since_nanos: (kernel.nanos)(),
            runs: false,
            latest: CommandId(0),
            kinds: [(CommandId(0), 0); KINDS_MAX],
            kinds_len: 0,
            room: 0,
            room_before: 0,
            commands: 0,
            thresholds: Thresholds::of(kernel),
        }
    }

    /// Reads the thresholds again, which the running command may have changed.
    pub fn look_again(&mut self) {
        self.thresholds = Thresholds::of(self.kernel);
    }

    /// Begins a call. If this ends a run, `last` returns the words of the call before.
    #[inline]
    pub fn begin(
        &mut self,
        call: &impl Accounted,
        client: &Client,
        last: impl FnOnce() -> Words,
    ) -> Timing {
        if let Some(timing) = self.begin_within(call) {
            return timing;
        }
        self.end_run(client, last);
        self.enter(call)
    }

    /// Begins a call in the current run; `None` if the call would end it.
    #[inline]
    pub fn begin_within(&mut self, call: &impl Accounted) -> Option<Timing> {
        // Most calls are of the same kind as the one before.
        if call.id() == self.latest && self.room > 0 {
            self.room -= 1;
            return Some(Timing::Run);
        }
        if self.must_end_run(call) { None } else { Some(self.enter(call)) }
    }

    /// Returns true if the run must be booked before this call.
    #[inline]
    fn must_end_run(&self, call: &impl Accounted) -> bool {
        self.runs && (self.room == 0 || self.is_alone(call) || !self.has_room_for(call.id()))
    }

    #[inline]
    fn is_alone(&self, call: &impl Accounted) -> bool {
        self.thresholds.exact || !call.is_brief()
    }

    /// Returns true if there is room for this kind in addition to the others.
    fn has_room_for(&self, id: CommandId) -> bool {
        let places_for_latest = usize::from(self.index_of(self.latest).is_none());
        usize::from(self.kinds_len) + places_for_latest < KINDS_MAX || self.index_of(id).is_some()
    }

    /// Returns the recorded kinds, each with its calls.
    #[inline]
    fn kinds(&self) -> &[(CommandId, u16)] {
        &self.kinds[..usize::from(self.kinds_len)]
    }

    #[inline]
    fn index_of(&self, id: CommandId) -> Option<u16> {
        self.kinds().iter().position(|(kind, _)| *kind == id).map(|place| place as u16)
    }

    /// Records a call of another kind, for which there is room, or the first call of a run.
    #[inline]
    fn enter(&mut self, call: &impl Accounted) -> Timing {
        if self.is_alone(call) {
            return Timing::Alone;
        }
        if self.runs {
            self.note_latest();
        } else {
            (self.runs, self.room, self.room_before) = (true, CALLS_MAX, CALLS_MAX);
        }
        self.latest = call.id();
        self.room -= 1;
        Timing::Run
    }

    /// Adds the calls of the latest kind to its entry.
    #[inline(never)]
    fn note_latest(&mut self) {
        let place = self.index_of(self.latest).unwrap_or_else(|| {
            self.kinds[usize::from(self.kinds_len)] = (self.latest, 0);
            self.kinds_len += 1;
            self.kinds_len - 1
        });
        self.kinds[usize::from(place)].1 += self.room_before - self.room;
        self.room_before = self.room;
    }

    /// Replaces [`Meter::end`] for a call that is to run again, or was refused.
    pub fn take_back(&mut self, timing: Timing) {
        if timing == Timing::Run {
            self.room += 1;
            if self.room == CALLS_MAX {
                self.begin_run();
            }
        }
    }

    /// Starts empty, with no unbooked call.
    fn begin_run(&mut self) {
        (self.runs, self.kinds_len, self.room, self.room_before) = (false, 0, 0, 0);
    }

    /// Ends a call. `words` returns its words.
    #[inline]
    pub fn end(
        &mut self,
        timing: Timing,
        call: &impl Accounted,
        client: &Client,
        words: impl FnOnce() -> Words,
    ) {
        if timing == Timing::Alone {
            self.leave(call, client, words);
        }
    }

    #[inline(never)]
    fn leave(&mut self, call: &impl Accounted, client: &Client, words: impl FnOnce() -> Words) {
        let nanos = self.book(call, client);
        if call.is_logged() {
            self.note(nanos, 1, call.is_fast(), client, words);
        }
    }

    /// Replaces [`Meter::end`] for a call that was timed alone and whose client now waits for keys. It enters the
    /// slow log when it is served.
    pub fn end_blocked(&mut self, call: &impl Accounted, client: &Client) {
        self.book(call, client);
    }

    /// Books a call that was timed alone.
    fn book(&mut self, call: &impl Accounted, client: &Client) -> u64 {
        let nanos = self.lap();
        self.commands += 1;
        self.counters.ran(call.id(), 1, nanos);
        client.note_command(call.id());
        nanos
    }

    /// Leaves out time that is booked elsewhere.
    pub fn leave_out(&mut self, nanos: u64) {
        self.since_nanos += nanos;
    }

    /// Books the service of a client that has waited for keys. The call itself was counted when it began.
    pub fn served(&self, call: &Command, client: &Client, words: impl FnOnce() -> Words) {
        let nanos = (self.kernel.nanos)().saturating_sub(self.since_nanos);
        self.counters.ran(call.id, 0, nanos);
        self.note_as("command-unblocking", nanos, 1, client, words);
    }

    /// Returns the last reading of the clock: at the end of the last run or single command, or at the begin of the
    /// batch.
    #[must_use]
    #[inline]
    pub fn read_nanos(&self) -> u64 {
        self.since_nanos
    }

    /// Returns the nanoseconds since the last lap.
    #[inline]
    fn lap(&mut self) -> u64 {
        let now_nanos = (self.kernel.nanos)();
        let nanos = now_nanos.saturating_sub(self.since_nanos);
        self.since_nanos = now_nanos;
        nanos
    }

    /// Books the run, if there is one. `last` returns the words of its last call.
    fn end_run(&mut self, client: &Client, last: impl FnOnce() -> Words) {
        if !self.runs {
            return;
        }
        let calls = u64::from(CALLS_MAX - self.room);
        self.commands += calls;
        let nanos = self.lap();
        if self.kinds_len == 0 {
            self.counters.ran(self.latest, calls, nanos);
        } else {
            self.note_latest();
            for &(id, count) in self.kinds() {
                let count = u64::from(count);
                self.counters.ran(id, count, nanos * count / calls);
            }
        }
        self.begin_run();
        self.note(nanos, calls, true, client, last);
    }

    /// Ends the batch. `last` returns the words of its last call.
    #[inline]
    pub fn finish(&mut self, client: &Client, last: impl FnOnce() -> Words) {
        if self.runs {
            client.note_command(self.latest);
        }
        self.end_run(client, last);
        self.counters.add(Stat::Commands, self.commands);
    }

    /// Records a call that took too long.
    #[inline]
    fn note(
        &self,
        nanos: u64,
        calls: u64,
        fast: bool,
        client: &Client,
        words: impl FnOnce() -> Words,
    ) {
        self.note_as(if fast { "fast-command" } else { "command" }, nanos, calls, client, words);
    }

    #[inline]
    fn note_as(
        &self,
        event: &'static str,
        nanos: u64,
        calls: u64,
        client: &Client,
        words: impl FnOnce() -> Words,
    ) {
        let Thresholds { slow_micros, spike_ms, .. } = self.thresholds;
        if slow_micros >= 0 && nanos / 1000 >= slow_micros as u64 {
            self.log_slow(nanos, calls, client, words());
        }
        if spike_ms > 0 && nanos / 1_000_000 >= spike_ms {
            let seconds = clock::unix_ms() / 1000;
            let latency = self.aside.map_or(&self.kernel.latency, |aside| &aside.latency);
            latency.lock().record(event, seconds, nanos / 1_000_000);
        }
    }

    #[cold]
    fn log_slow(&self, nanos: u64, calls: u64, client: &Client, mut args: Words) {
        if calls > 1 {
            args.push(format!("... (one of {calls} pipelined commands)").into_bytes());
        }
        let entry = client.log_entry(nanos / 1000, args);
        let logs = &self.kernel.command_logs;
        let slowlog = self.aside.map_or(logs.of(LogKind::Slow), |aside| &aside.slowlog);
        slowlog.lock().push(entry, self.kernel.log_max_len(LogKind::Slow));
    }
}
