//! How long commands take: counters, histograms, slow log and latency monitor.
//!
//! Reading the clock costs about as much as a small command, so short commands of one batch are
//! timed as a run and each is booked with its share. Others are timed one by one, and so are all
//! when the slow log or the latency monitor asks for times that a run would blur.

use tierce_net::monotonic_nanos;
use tierce_wire::resp::Args;

use crate::clock;
use crate::command::{Command, CommandId, Flags};
use crate::server::Server;
use crate::session::Session;
use crate::slowlog;
use crate::stats::{Counters, Stat};

/// Different commands in a run; one more ends it.
const KINDS_MAX: usize = 4;
/// Calls in a run. One that took longer than `slowlog-log-slower-than` is logged as a whole.
const CALLS_MAX: u64 = 64;

/// The accounts of one batch.
pub struct Meter<'k> {
    server: &'k Server,
    counters: &'k Counters,
    /// When the run, or the command that is timed alone, began.
    since_nanos: u64,
    kinds: [(CommandId, u64); KINDS_MAX],
    kinds_len: usize,
    /// The kind of the last command, an index into `kinds`.
    latest: usize,
    calls: u64,
    commands: u64,
    thresholds: Thresholds,
}

/// Durations from which on something is noted; `u64::MAX` for never.
#[derive(Clone, Copy)]
struct Thresholds {
    slow_micros: u64,
    spike_millis: u64,
    /// Every command is timed alone.
    exact: bool,
}

impl Thresholds {
    /// A run of fast commands does not take this long unless something is wrong, so a slow log
    /// that asks for less wants single commands timed.
    const RUN_MICROS: i64 = 1000;

    fn of(server: &Server) -> Self {
        let slow = server.config.live().slowlog_log_slower_than();
        let spike = server.config.live().latency_monitor_threshold();
        Self {
            slow_micros: u64::try_from(slow).unwrap_or(u64::MAX),
            spike_millis: if spike == 0 { u64::MAX } else { spike },
            exact: (0..Self::RUN_MICROS).contains(&slow),
        }
    }
}

/// How a command is being timed.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Timing {
    /// Together with its neighbours.
    Run,
    /// Alone.
    Alone,
}

impl<'k> Meter<'k> {
    /// Starts the clock.
    #[inline]
    pub fn start(server: &'k Server, counters: &'k Counters) -> Self {
        Self {
            server,
            counters,
            since_nanos: monotonic_nanos(),
            kinds: [(CommandId(0), 0); KINDS_MAX],
            kinds_len: 0,
            latest: 0,
            calls: 0,
            commands: 0,
            thresholds: Thresholds::of(server),
        }
    }

    /// Enters a command that continues the run with one of the same kind, if it does.
    #[inline]
    pub fn continues(&mut self, command: &Command) -> bool {
        let latest = &mut self.kinds[self.latest];
        let continues = command.id == latest.0 && (1..CALLS_MAX).contains(&self.calls);
        latest.1 += u64::from(continues);
        self.calls += u64::from(continues);
        continues
    }

    /// Whether the run has to be booked before this command is entered.
    #[inline]
    pub fn must_end_run(&self, command: &Command) -> bool {
        if self.calls == 0 {
            return false;
        }
        if command.id == self.kinds[self.latest].0 {
            return self.calls == CALLS_MAX;
        }
        let joins = self.kinds_len < KINDS_MAX || self.position(command.id).is_some();
        self.calls == CALLS_MAX || self.is_alone(command) || !joins
    }

    #[inline]
    fn is_alone(&self, command: &Command) -> bool {
        self.thresholds.exact || !command.is_brief
    }

    fn position(&self, id: CommandId) -> Option<usize> {
        self.kinds[..self.kinds_len].iter().position(|(kind, _)| *kind == id)
    }

    /// Called before a command runs.
    #[inline]
    pub fn enter(&mut self, command: &Command) -> Timing {
        if self.calls == 0 || command.id != self.kinds[self.latest].0 {
            if self.is_alone(command) {
                return Timing::Alone;
            }
            self.enter_kind(command.id);
        }
        self.kinds[self.latest].1 += 1;
        self.calls += 1;
        Timing::Run
    }

    /// Makes `id` the latest kind; there is room for it.
    fn enter_kind(&mut self, id: CommandId) {
        self.latest = self.position(id).unwrap_or_else(|| {
            self.kinds[self.kinds_len] = (id, 0);
            self.kinds_len += 1;
            self.kinds_len - 1
        });
    }

    /// Called after a command that is timed alone.
    pub fn leave(&mut self, command: &Command, session: &Session, args: Args<'_>) {
        let nanos = self.lap();
        self.commands += 1;
        self.counters.ran(command.id, 1, nanos);
        let fast = command.spec.flags.contains(Flags::FAST);
        if !command.spec.flags.contains(Flags::SKIP_SLOWLOG) {
            self.note(nanos, 1, fast, session, || args);
        }
    }

    /// Nanoseconds since the last lap.
    fn lap(&mut self) -> u64 {
        let now_nanos = monotonic_nanos();
        let nanos = now_nanos.saturating_sub(self.since_nanos);
        self.since_nanos = now_nanos;
        nanos
    }

    /// Books the run, whose last request is `last`.
    pub fn end_run<'a>(&mut self, session: &Session, last: impl FnOnce() -> Args<'a>) {
        if self.calls == 0 {
            return;
        }
        let calls = self.calls;
        self.commands += calls;
        let nanos = self.lap();
        for (id, count) in &self.kinds[..self.kinds_len] {
            self.counters.ran(*id, *count, nanos * count / calls);
        }
        self.kinds_len = 0;
        self.latest = 0;
        self.calls = 0;
        self.note(nanos, calls, true, session, last);
    }

    /// Ends the batch, whose last request is `last`.
    #[inline]
    pub fn finish<'a>(&mut self, session: &Session, last: impl FnOnce() -> Args<'a>) {
        if self.kinds_len > 0 {
            session.note_command(self.kinds[self.latest].0);
        }
        self.end_run(session, last);
        self.counters.add(Stat::Commands, self.commands);
    }

    /// Looks whether something took too long.
    #[inline]
    fn note<'a>(
        &self,
        nanos: u64,
        calls: u64,
        fast: bool,
        session: &Session,
        args: impl FnOnce() -> Args<'a>,
    ) {
        if nanos / 1000 >= self.thresholds.slow_micros {
            self.log_slow(nanos, calls, session, args());
        }
        if nanos / 1_000_000 >= self.thresholds.spike_millis {
            let event = if fast { "fast-command" } else { "command" };
            let seconds = clock::unix_ms() / 1000;
            self.server.latency.lock().record(event, seconds, nanos / 1_000_000);
        }
    }

    #[cold]
    fn log_slow(&self, nanos: u64, calls: u64, session: &Session, args: Args<'_>) {
        let mut args = slowlog::shorten(args);
        if calls > 1 {
            args.push(format!("... (one of {calls} pipelined commands)").into_bytes());
        }
        let entry = slowlog::Entry {
            id: 0,
            unix_seconds: clock::unix_ms() / 1000,
            micros: nanos / 1000,
            args,
            client_addr: session.client.addr.clone(),
            client_name: session.client.identity.lock().name.clone(),
        };
        let max_len = self.server.config.live().slowlog_max_len() as usize;
        self.server.slowlog.lock().push(entry, max_len);
    }
}
