//! The requests that arrived together on one connection: parsed, prefetched, executed in order.

use std::sync::Arc;

use tierce_collections::same_bytes;
use tierce_keyspace::Locker;
use tierce_net::{Flow, Io, Mark, OnHangup, Output};
use tierce_wire::resp::{
    Args, AuthState, Batch, Limits, Parsed, ProtocolError, Status, parse_apart,
};

use crate::blocking::{self, Mode};
use crate::clients::output_class;
use crate::command::Command;
use crate::durability::SyncPolicy;
use crate::error::CommandError;
use crate::execute::{self, Context, Guard, Refused};
use crate::fetch::{self, Fetcher, Wanted};
use crate::gates::{Cause, Gates, Verdict};
use crate::meter::{Meter, Timing};
use crate::plan::{Plan, Planned};
use crate::reply::Reply;
use crate::server::Server;
use crate::session::{ReplyMode, Session};
use crate::stats::{Counters, Stat};
use crate::transaction;

/// Requests parsed before the first of them is executed. Enough for the prefetches of a deep
/// pipeline to overlap, and few enough for the spans to stay in the first-level cache.
const REQUESTS_MAX: usize = 128;

/// Arguments of which so much has yet to arrive are received into a vector of their own, which a command
/// that stores them keeps.
const LARGE_ARG_BYTES_MIN: usize = 256 * 1024;

/// Most bytes of a request with a large argument that stand around it. They are parsed anew with each piece
/// that arrives of them; a request with more is put together again.
const AROUND_LARGE_BYTES_MAX: usize = 64 * 1024;

/// Requests from which on it pays to announce the elements that they look for.
const ELEMENTS_MIN: usize = 4;

/// Memory that the batches of one worker use one after the other.
#[derive(Default)]
pub struct BatchMemory {
    batch: Batch,
    plan: Plan,
}

/// Serves one connection for one turn.
pub struct BatchRunner<'k, 'w> {
    server: &'k Server,
    counters: &'k Counters,
    batch: &'w mut Batch,
    plan: &'w mut Plan,
    fetcher: &'w mut Fetcher,
    /// The large argument of the only request that is in a vector of its own.
    large: Option<Arc<Vec<u8>>>,
}

/// Whether the replies to writes may be sent.
#[derive(PartialEq, Eq)]
enum Acknowledge {
    /// They are in the log; the session remembers if they have to be on the device first.
    Now,
    /// The log could not take them.
    Never,
}

/// How far the execution of a batch got.
enum Progress {
    /// All requests were executed.
    Through,
    /// The request with this index is held back.
    Held { index: usize, cause: Cause },
    /// The request with this index gets its reply later.
    Waiting { index: usize },
    /// The request with this index, and perhaps some behind it, need values that are on disk.
    Fetching { index: usize, wanted: Vec<Wanted> },
    /// The connection ends here.
    Closing,
}

impl<'k, 'w> BatchRunner<'k, 'w> {
    /// For a worker that counts in `counters`.
    pub fn new(
        server: &'k Server,
        counters: &'k Counters,
        memory: &'w mut BatchMemory,
        fetcher: &'w mut Fetcher,
    ) -> Self {
        let BatchMemory { batch, plan } = memory;
        Self { server, counters, batch, plan, fetcher, large: None }
    }

    /// Executes all complete requests of the input.
    pub fn serve(&mut self, session: &mut Session, io: &mut Io<'_>) -> Flow {
        session.fetches.underway = false;
        if io.is_receiving_apart() {
            return Flow::Continue;
        }
        if let Some((at, len)) = io.apart()
            && let Some(flow) = self.serve_apart(session, io, at, len)
        {
            return flow;
        }
        let now_ms = io.now().unix_ms as i64;
        let mut locker = self.server.keyspace.locker();
        loop {
            let (limits, requests_max) = self.limits(session);
            let (input, output) = io.split();
            let replied_before = output.mark();
            let parsed = session.parser.parse(input, &limits, requests_max, self.batch);
            let progress = self.execute(session, &mut locker, input, output, now_ms);
            if locker.take_logged() && self.note_logged(session) == Acknowledge::Never {
                io.output().truncate(replied_before);
                return Flow::Close;
            }
            match progress {
                Progress::Through => io.consume(parsed.consumed),
                Progress::Held { index, cause } => return self.hold(session, io, index, cause),
                Progress::Waiting { index } => {
                    io.consume(self.batch.end(index));
                    session.parser.rewind();
                    return suspend(session, io);
                }
                Progress::Fetching { index, wanted } => {
                    self.leave(session, io, index);
                    let (server, conn) = (self.server, io.info().key);
                    return self.fetcher.fetch(server, &mut session.fetches, conn, wanted);
                }
                Progress::Closing => return Flow::Close,
            }
            match parsed.status {
                Status::Full => {
                    // One of these may have been the password.
                    if session.authenticated {
                        io.set_output_class(output_class(true));
                    }
                    if io.output().exceeds_limit() {
                        return Flow::Close;
                    }
                }
                Status::NeedMore { hint } => {
                    return self.await_more(session, io, hint);
                }
                Status::Error(error) => return self.refuse_input(session, io, &error),
            }
        }
    }

    /// Executes the one request at the front of the input whose argument of `len` bytes at `at` was
    /// received apart. Returns nothing when it is through and requests may follow.
    #[cold]
    fn serve_apart(
        &mut self,
        session: &mut Session,
        io: &mut Io<'_>,
        at: usize,
        len: usize,
    ) -> Option<Flow> {
        let now_ms = io.now().unix_ms as i64;
        let (limits, _) = self.limits(session);
        let Parsed { consumed, status } = parse_apart(io.input(), at, len, &limits, self.batch);
        match status {
            Status::Full => {}
            Status::NeedMore { .. } if io.input().len() > at + AROUND_LARGE_BYTES_MAX => {
                io.join_apart();
                return Some(Flow::Yield);
            }
            Status::NeedMore { hint } => return Some(self.await_more(session, io, hint)),
            Status::Error(error) => return Some(self.refuse_input(session, io, &error)),
        }
        let value = Arc::new(io.take_apart()?);
        self.large = Some(Arc::clone(&value));
        let mut locker = self.server.keyspace.locker();
        let (_, output) = io.split();
        let replied_before = output.mark();
        let progress = self.execute(session, &mut locker, &value, output, now_ms);
        self.large = None;
        if locker.take_logged() && self.note_logged(session) == Acknowledge::Never {
            io.output().truncate(replied_before);
            return Some(Flow::Close);
        }
        if let Progress::Held { .. } | Progress::Fetching { .. } = progress {
            let value = Arc::try_unwrap(value).expect("a request that has not run keeps nothing");
            io.put_back_apart(at, value);
        }
        match progress {
            Progress::Through => {
                io.consume(consumed);
                session.parser.rewind();
                None
            }
            Progress::Held { index, cause } => Some(self.hold(session, io, index, cause)),
            Progress::Waiting { .. } => {
                io.consume(consumed);
                session.parser.rewind();
                Some(suspend(session, io))
            }
            Progress::Fetching { index, wanted } => {
                self.leave(session, io, index);
                let (server, conn) = (self.server, io.info().key);
                Some(self.fetcher.fetch(server, &mut session.fetches, conn, wanted))
            }
            Progress::Closing => Some(Flow::Close),
        }
    }

    /// Answers what is no request.
    #[cold]
    fn refuse_input(&self, session: &Session, io: &mut Io<'_>, error: &ProtocolError) -> Flow {
        let error = CommandError::text(format!("ERR {error}"));
        let (_, output) = io.split();
        self.counters.add(Stat::Errors, 1);
        self.server.errors.count(error.kind());
        Reply::new(output, session.proto).error(&error);
        Flow::Close
    }

    /// Notes where the log ended after writes of this session, for those who want to wait for the
    /// device.
    fn note_logged(&self, session: &mut Session) -> Acknowledge {
        let Some(journal) = self.server.durability.journal() else { return Acknowledge::Now };
        if journal.is_wounded() {
            return Acknowledge::Never;
        }
        if session.durability == Some(SyncPolicy::EverySecond) {
            journal.exposure.promise();
        }
        session.acknowledgements.note(journal.appended(), session.sync_policy(self.server));
        Acknowledge::Now
    }

    /// What a request may look like. Before authentication requests are small, and parsed one at
    /// a time, because the first may be the one that changes that.
    fn limits(&self, session: &Session) -> (Limits, usize) {
        if session.authenticated {
            (self.server.request_limits(AuthState::Granted), REQUESTS_MAX)
        } else {
            (self.server.request_limits(AuthState::Required), 1)
        }
    }

    /// Executes the requests of the batch in order: for each the gates, what it needs from disk, its run
    /// and its account.
    fn execute(
        &mut self,
        session: &mut Session,
        locker: &mut Locker<'k>,
        input: &[u8],
        output: &mut Output,
        now_ms: i64,
    ) -> Progress {
        if self.batch.is_empty() {
            return Progress::Through;
        }
        self.look_ahead(session, locker, input, now_ms);
        locker.set_touch(session.touch());
        let mut meter = Meter::start(self.server, self.counters);
        let mut gates = Gates::look(self.server, session, now_ms);
        let mut progress = Progress::Through;
        for (index, args) in self.batch.iter(input).enumerate() {
            let planned = match self.batch.len() {
                1 => self.plan.look_at(self.server, args),
                _ => self.plan.get(index),
            };
            let Some(command) = self.resolve(session, output, args, planned) else {
                if session.closing {
                    progress = Progress::Closing;
                    break;
                }
                continue;
            };
            let passes_unseen = gates.are_open(command);
            if !passes_unseen {
                match gates.judge(self.server, session, locker, command) {
                    Verdict::Passes => {}
                    Verdict::Refused(refused) => {
                        self.refuse(session, output, &refused);
                        continue;
                    }
                    Verdict::Held(cause) => {
                        progress = Progress::Held { index, cause };
                        break;
                    }
                }
                if gates.has_spilled && session.fetches.may_wait() {
                    let wanted = self.wanted(session, locker, command, input, index, now_ms);
                    if !wanted.is_empty() {
                        progress = Progress::Fetching { index, wanted };
                        break;
                    }
                }
            }
            let timing = if meter.continues(command) {
                Timing::Run
            } else {
                if meter.must_end_run(command) {
                    meter.end_run(session, || self.batch.get(index.saturating_sub(1), input));
                }
                meter.enter(command)
            };
            self.run(session, locker, output, command, args, planned, now_ms);
            if timing == Timing::Alone {
                meter.leave(command, session, args);
            }
            if passes_unseen {
                debug_assert!(self.stops(session, index).is_none(), "{} did", command.full_name);
                continue;
            }
            if gates.has_spilled {
                session.fetches.has_run();
            }
            if !command.is_data_only {
                gates.look_again(self.server, session);
            }
            if gates.watched {
                // Afterwards, so that SELECT is shown with the database it has led to, as by Redis.
                self.server.show_to_monitors(command, session, args);
            }
            if let Some(stops) = self.stops(session, index) {
                progress = stops;
                break;
            }
        }
        meter.finish(session, || self.batch.get(self.batch.len() - 1, input));
        // Nobody else shall wait for this shard while replies are sent.
        locker.release();
        progress
    }

    /// Looks through the batch, and has the processor load what it will need.
    #[inline]
    fn look_ahead(
        &mut self,
        session: &Session,
        locker: &mut Locker<'k>,
        input: &[u8],
        now_ms: i64,
    ) {
        if self.batch.len() < 2 {
            return;
        }
        self.plan.make(self.server, self.batch, input);
        let db = session.db;
        if self.server.keyspace.gains_from_prefetch(db) {
            locker.prefetch(self.plan.hashes().map(|hash| (db, hash)));
        }
        self.prefetch_elements(session, locker, input, now_ms);
    }

    /// The command of a request; `None` if it has been answered.
    #[inline]
    fn resolve(
        &self,
        session: &mut Session,
        output: &mut Output,
        args: Args<'_>,
        planned: Planned,
    ) -> Option<&'k Command> {
        if session.transaction_fails
            && let Some(answer) = transaction::answer(session, args)
        {
            self.answer(session, output, answer);
            return None;
        }
        if let Some(command) = planned.command(self.server) {
            return Some(command);
        }
        match execute::resolve(self.server, args) {
            Ok(command) => Some(command),
            Err(_) if self.is_of_browser(session, args) => {
                session.closing = true;
                None
            }
            Err(refused) => {
                transaction::note_unknown(session, args);
                self.refuse(session, output, &refused);
                None
            }
        }
    }

    /// How the batch ends behind this request, if it does.
    #[inline]
    fn stops(&self, session: &Session, index: usize) -> Option<Progress> {
        if session.closing {
            return Some(Progress::Closing);
        }
        let waits = session.waiting.is_some() || session.blocked.is_some();
        waits.then_some(Progress::Waiting { index })
    }

    #[inline(always)]
    #[expect(clippy::too_many_arguments, reason = "all that a request has been found out of")]
    fn run(
        &self,
        session: &mut Session,
        locker: &mut Locker<'k>,
        output: &mut Output,
        command: &'k Command,
        args: Args<'_>,
        planned: Planned,
        now_ms: i64,
    ) {
        let muted_from = (session.reply_mode != ReplyMode::On).then(|| output.mark());
        let reply = Reply::new(output, session.proto);
        let (server, counters) = (self.server, self.counters);
        let mode = Mode::Client;
        let large = self.large.as_ref();
        let hashed = planned.hash.map(|hash| (args.at(command.first_key), hash));
        let guard = Guard::new(locker);
        Context { server, session, guard, reply, command, counters, now_ms, mode, large, hashed }
            .run(args);
        if locker.has_ready() {
            blocking::serve(server, locker, counters, now_ms);
        }
        if session.reply_mode != ReplyMode::On {
            mute(session, output, muted_from);
        }
    }

    /// Whether something that is no command is a part of a request of HTTP. A page that somebody looks at
    /// can have the browser send one here, with commands in its body: they must not run.
    #[cold]
    fn is_of_browser(&self, session: &Session, args: Args<'_>) -> bool {
        let of_browser =
            args[0].eq_ignore_ascii_case(b"post") || args[0].eq_ignore_ascii_case(b"host:");
        if of_browser {
            let addr = &session.client.addr;
            self.server.log.warning(format_args!(
                "Possible SECURITY ATTACK: somebody sends POST or Host: as commands, as a browser does that is \
                 made to talk to this server (cross protocol scripting). Closed {addr}"
            ));
        }
        of_browser
    }

    /// Replies to a request that does not come to run.
    #[cold]
    fn refuse(&self, session: &mut Session, output: &mut Output, refused: &Refused<'_>) {
        self.reply(session, output, |reply| {
            execute::refuse(self.server, self.counters, reply, refused);
        });
    }

    /// Replies to a request of a transaction that fails.
    #[cold]
    fn answer(&self, session: &mut Session, output: &mut Output, answer: Result<(), CommandError>) {
        match answer {
            Ok(()) => self.reply(session, output, |reply| reply.ok()),
            Err(error) => self.refuse(session, output, &Refused { command: None, error }),
        }
    }

    fn reply(
        &self,
        session: &mut Session,
        output: &mut Output,
        write: impl FnOnce(&mut Reply<'_>),
    ) {
        let mark = output.mark();
        write(&mut Reply::new(output, session.proto));
        if session.reply_mode != ReplyMode::On {
            mute(session, output, Some(mark));
        }
    }

    /// Has fields or members loaded that the batch looks for, as far as it begins with calls of one
    /// command for one key. That shard stays locked for the first of them.
    fn prefetch_elements(
        &self,
        session: &Session,
        locker: &mut Locker<'k>,
        input: &[u8],
        now_ms: i64,
    ) {
        if self.batch.len() < ELEMENTS_MIN {
            return;
        }
        let first = self.batch.get(0, input);
        let at = match self.plan.get(0).command(self.server) {
            Some(command) if command.spec.element_at > 0 => command.spec.element_at,
            _ => return,
        };
        let is_alike = |args: &Args<'_>| {
            args.len() > at
                && same_bytes(&args[0], &first[0])
                && same_bytes(&args[at - 1], &first[at - 1])
        };
        if !is_alike(&first) {
            return;
        }
        let elements = self.batch.iter(input).take_while(is_alike).map(|args| args.at(at));
        let key = self.server.keyspace.key(&first[at - 1]);
        locker.db(session.db, key.hash(), now_ms).prefetch_elements(key, elements);
    }

    /// The values on disk that the request with this index needs, which is a call of `command`. If there
    /// are any, then also those of requests behind it, so that the disk gets all of them at once.
    fn wanted(
        &self,
        session: &Session,
        locker: &mut Locker<'k>,
        command: &Command,
        input: &[u8],
        index: usize,
        now_ms: i64,
    ) -> Vec<Wanted> {
        let mut wanted = Vec::new();
        let args = self.batch.get(index, input);
        fetch::add_wanted(locker, session.db, command, args, now_ms, &mut wanted);
        if wanted.is_empty() {
            return wanted;
        }
        for index in index + 1..self.batch.len() {
            if fetch::is_enough(&wanted) {
                break;
            }
            let args = self.batch.get(index, input);
            if let Ok(command) = execute::resolve(self.server, args) {
                // Should another command select another database before, nothing worse happens than that
                // values are fetched in vain.
                fetch::add_wanted(locker, session.db, command, args, now_ms, &mut wanted);
            }
        }
        wanted
    }

    /// Leaves the requests from `index` on in the input.
    fn leave(&self, session: &mut Session, io: &mut Io<'_>, index: usize) {
        let executed = if index == 0 { 0 } else { self.batch.end(index - 1) };
        io.consume(executed);
        session.parser.rewind();
    }

    /// Leaves the requests from `index` on in the input until they may be executed.
    #[cold]
    fn hold(&self, session: &mut Session, io: &mut Io<'_>, index: usize, cause: Cause) -> Flow {
        self.leave(session, io, index);
        session.held = true;
        let now = io.now();
        match cause {
            Cause::Pause { until_ms } | Cause::Memory { until_ms } => {
                let wait = (until_ms - now.unix_ms as i64).max(1) as u64;
                io.set_timer(now.monotonic_ms + wait);
            }
            Cause::Device => {
                io.set_timer(now.monotonic_ms + self.server.durability.hold_back());
            }
        }
        Flow::Suspend(match cause {
            // Whoever paused may be changing the data meanwhile: what clients wanted that have gone is not
            // done behind its back. As in Redis.
            Cause::Pause { .. } => OnHangup::Close,
            Cause::Memory { .. } | Cause::Device => OnHangup::Wait,
        })
    }

    /// The rest of the input is the beginning of a request.
    fn await_more(&self, session: &Session, io: &mut Io<'_>, hint: usize) -> Flow {
        let waiting = io.input().len();
        let max = self.server.config.live().client_query_buffer_limit();
        if waiting as u64 > max {
            self.counters.add(Stat::QueryLimitDisconnections, 1);
            return Flow::Close;
        }
        if hint >= LARGE_ARG_BYTES_MIN
            && (waiting + hint) as u64 <= max
            && io.apart().is_none()
            && let Some((at, len)) = session.parser.announced(io.input())
            && at <= AROUND_LARGE_BYTES_MAX
        {
            io.set_apart(at, len);
        } else if hint > 0 {
            io.expect(waiting + hint);
        }
        Flow::Continue
    }
}

/// Lets the session wait for what it waits for.
#[cold]
fn suspend(session: &Session, io: &mut Io<'_>) -> Flow {
    let now_ms = io.now().monotonic_ms;
    let Some(waiting) = &session.blocked else {
        if let Some(until_ms) = session.waiting.and_then(|waiting| waiting.until_ms(now_ms)) {
            io.set_timer(until_ms);
        }
        return Flow::Suspend(OnHangup::Wait);
    };
    match waiting.until_ms(now_ms) {
        Some(until_ms) => io.set_timer(until_ms),
        None => io.clear_timer(),
    }
    // The keys may never be there, and nobody would get what is.
    Flow::Suspend(OnHangup::Close)
}

/// Takes back what was written since `from`, for a client that wants no replies.
#[cold]
fn mute(session: &mut Session, output: &mut Output, from: Option<Mark>) {
    if let Some(mark) = from
        && session.reply_mode != ReplyMode::SkipNext
    {
        output.truncate(mark);
    }
    session.reply_mode = match session.reply_mode {
        ReplyMode::SkipNext => ReplyMode::SkipThis,
        ReplyMode::SkipThis => ReplyMode::On,
        mode => mode,
    };
}
