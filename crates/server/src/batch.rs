//! The requests that arrived together on one connection: parsed, prefetched, executed in order.

use std::sync::Arc;

use tierce_collections::same_bytes;
use tierce_keyspace::{Busy, ShardLocks};
use tierce_net::{Flow, Io};
use tierce_output::{Mark, Output};
use tierce_wire::resp::{
    Args, AuthState, Batch, Limits, Parsed, ProtocolError, Status, parse_apart,
};

use crate::answer::Destination;
use crate::blocking;
use crate::caller::{Caller, ReplyMode};
use crate::command::{Command, Flags};
use crate::connection::output_class_of;
use crate::durability::SyncPolicy;
use crate::error::{CommandError, Interrupt};
use crate::execute::{self, Call, Context, Guard, Mode, Refused};
use crate::fetch::{self, PendingRead};
use crate::fetcher::Fetcher;
use crate::gates::{Cause, Gates, Verdict};
use crate::hot_keys::Probe;
use crate::kernel::Kernel;
use crate::meter::{Meter, Timing};
use crate::monitors;
use crate::offload::Job;
use crate::plan::{Plan, Planned};
use crate::reply::Reply;
use crate::session::Session;
use crate::slowlog;
use crate::stats::{Counters, Stat};
use crate::suspend::{hold, suspend};
use crate::turn::Turn;
use crate::waiting::Awaited;

/// Requests parsed before the first of them is executed. Enough for the prefetches of a deep
/// pipeline to overlap, and few enough for the spans to stay in the first-level cache.
const REQUESTS_MAX: usize = 128;

/// Arguments of which so much has yet to arrive are received into a vector of their own, which a command
/// that stores them keeps.
const LARGE_ARG_BYTES_MIN: usize = 256 * 1024;

/// Most bytes of a request with a large argument that stand around it. They are parsed anew with each piece
/// that arrives of them; a request with more is put together again.
const AROUND_LARGE_BYTES_MAX: usize = 64 * 1024;

/// The last reply to a client that has more kept for it than it may: of one request, or behind MULTI.
const TOO_LARGE_TO_KEEP: &str = "ERR request exceeds client-query-buffer-limit";

/// Requests from which on it pays to announce the elements that they look for.
const ELEMENTS_MIN: usize = 4;

/// Memory that the batches of one worker use one after the other.
pub struct BatchMemory {
    batch: Batch,
    plan: Plan,
    /// For replies to clients that wait for keys, which are not those of the batch.
    pub served: Output,
}

impl Default for BatchMemory {
    fn default() -> Self {
        Self { batch: Batch::default(), plan: Plan::default(), served: Output::new() }
    }
}

/// Serves one connection for one turn.
pub struct BatchRunner<'k, 'w> {
    kernel: &'k Kernel,
    counters: &'k Counters,
    batch: &'w mut Batch,
    plan: &'w mut Plan,
    served: &'w mut Output,
    fetcher: &'w mut Fetcher,
    /// The large argument of the only request that is in a vector of its own.
    large: Option<Arc<Vec<u8>>>,
    turn: Turn,
    /// Clients that waited for keys were served; their replies are in the mail of their workers.
    pub has_served: bool,
}

/// Whether the replies to writes may be sent.
#[derive(PartialEq, Eq)]
enum Acknowledge {
    /// They are in the log; the session remembers if they have to be on the device first.
    Now,
    /// The log could not take them.
    Never,
}

/// Whether a request is kept for EXEC.
#[derive(PartialEq, Eq)]
enum Queued {
    /// It is.
    Yes,
    /// The client may not have so much kept.
    IsFull,
}

/// How far the execution of a batch got.
enum Progress {
    /// All requests were executed.
    Through,
    /// So were those up to this index, and the others have to wait until other connections had their turn.
    Yielding { index: usize },
    /// The request with this index is held back.
    Held { index: usize, cause: Cause },
    /// The request with this index gets its reply later.
    Waiting { index: usize },
    /// The request with this index, and perhaps some behind it, need values that are on disk.
    Fetching { index: usize, pending_reads: Vec<PendingRead> },
    /// The connection ends here.
    Closing,
}

impl<'k, 'w> BatchRunner<'k, 'w> {
    /// For a worker that counts in `counters`.
    pub fn new(
        kernel: &'k Kernel,
        counters: &'k Counters,
        memory: &'w mut BatchMemory,
        fetcher: &'w mut Fetcher,
    ) -> Self {
        let BatchMemory { batch, plan, served } = memory;
        Self {
            kernel,
            counters,
            batch,
            plan,
            served,
            fetcher,
            large: None,
            turn: Turn::default(),
            has_served: false,
        }
    }

    /// Executes all complete requests of the input, or as many as one turn allows.
    pub fn serve(&mut self, session: &mut Session, io: &mut Io<'_>) -> Flow {
        if session.caller.waits.is_for_reply() {
            // A command that ran away now waits for keys.
            return suspend(&session.caller.waits, io);
        }
        session.caller.waits.go_on();
        if session.caller.closing {
            // What a transaction has done elsewhere that is through now.
            return Flow::Close;
        }
        if io.is_receiving_apart() {
            return Flow::Continue;
        }
        if let Some((at, len)) = io.apart()
            && let Some(flow) = self.serve_apart(session, io, at, len)
        {
            return flow;
        }
        let now_ms = io.now().unix_ms as i64;
        let mut locks = self.kernel.keyspace.worker_locks(session.caller.client.conn.worker);
        loop {
            let (limits, requests_max) = self.limits(&session.caller);
            let (input, output) = io.split();
            let replied_before = output.mark();
            let parsed = session.parser.parse(input, &limits, requests_max, self.batch);
            if self.batch.follows_empty() {
                skip_empty(&mut session.caller);
            }
            let progress = self.execute(&mut session.caller, &mut locks, input, output, now_ms);
            if locks.take_logged() && self.note_logged(&mut session.caller) == Acknowledge::Never {
                io.output().truncate(replied_before);
                return Flow::Close;
            }
            match progress {
                Progress::Through => io.consume(parsed.consumed),
                Progress::Yielding { index } => {
                    io.consume(self.batch.end(index));
                    session.parser.rewind();
                    return if io.input().is_empty() { Flow::Continue } else { Flow::Yield };
                }
                Progress::Held { index, cause } => return self.hold(session, io, index, cause),
                Progress::Waiting { index } => {
                    io.consume(self.batch.end(index));
                    session.parser.rewind();
                    return suspend(&session.caller.waits, io);
                }
                Progress::Fetching { index, pending_reads } => {
                    self.leave(session, io, index);
                    return self.fetcher.fetch(
                        self.kernel,
                        &mut session.caller.waits,
                        io,
                        pending_reads,
                    );
                }
                Progress::Closing => return Flow::Close,
            }
            match parsed.status {
                Status::Full => {
                    // One of these may have been the password.
                    if session.caller.authenticated {
                        io.set_output_class(output_class_of(&session.caller));
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
        let (limits, _) = self.limits(&session.caller);
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
        let mut locks = self.kernel.keyspace.worker_locks(session.caller.client.conn.worker);
        let (_, output) = io.split();
        let replied_before = output.mark();
        let progress = self.execute(&mut session.caller, &mut locks, &value, output, now_ms);
        self.large = None;
        if locks.take_logged() && self.note_logged(&mut session.caller) == Acknowledge::Never {
            io.output().truncate(replied_before);
            return Some(Flow::Close);
        }
        if let Progress::Held { .. } | Progress::Fetching { .. } = progress {
            let value = Arc::try_unwrap(value).expect("a request that has not run keeps nothing");
            io.put_back_apart(at, value);
        }
        match progress {
            Progress::Through | Progress::Yielding { .. } => {
                io.consume(consumed);
                session.parser.rewind();
                None
            }
            Progress::Held { index, cause } => Some(self.hold(session, io, index, cause)),
            Progress::Waiting { .. } => {
                io.consume(consumed);
                session.parser.rewind();
                Some(suspend(&session.caller.waits, io))
            }
            Progress::Fetching { index, pending_reads } => {
                self.leave(session, io, index);
                Some(self.fetcher.fetch(self.kernel, &mut session.caller.waits, io, pending_reads))
            }
            Progress::Closing => Some(Flow::Close),
        }
    }

    /// Answers what is no request.
    #[cold]
    fn refuse_input(&self, session: &Session, io: &mut Io<'_>, error: &ProtocolError) -> Flow {
        if let Some(limit) = limit_of(error) {
            self.counters.add(limit, 1);
        }
        self.close_with(session, io, &CommandError::text(format!("ERR {error}")))
    }

    /// Closes a connection whose request may not become as large as it is.
    #[cold]
    fn refuse_to_keep(&self, session: &Session, io: &mut Io<'_>) -> Flow {
        self.counters.add(Stat::QueryLimitDisconnections, 1);
        let addr = &session.caller.client.addr;
        self.kernel.log.warning(format_args!(
            "Closed {addr}: its request is larger than client-query-buffer-limit allows"
        ));
        self.close_with(session, io, &CommandError::new(TOO_LARGE_TO_KEEP))
    }

    /// The last reply of a connection.
    fn close_with(&self, session: &Session, io: &mut Io<'_>, error: &CommandError) -> Flow {
        let (_, output) = io.split();
        self.counters.add(Stat::Errors, 1);
        self.kernel.errors.count(error.kind());
        if session.caller.reply_mode == ReplyMode::On {
            Reply::new(output, session.caller.proto).error(error);
        }
        Flow::Close
    }

    /// Notes where the log ended after writes of this session, for clients that wait for the
    /// device.
    fn note_logged(&self, caller: &mut Caller) -> Acknowledge {
        let Some(wal_handle) = self.kernel.durability.wal_handle() else { return Acknowledge::Now };
        if caller.durability() == Some(SyncPolicy::EverySecond) {
            wal_handle.promise();
        }
        let policy = caller.sync_policy(self.kernel);
        match caller.waits.logged.note_writes(wal_handle, policy) {
            true => Acknowledge::Now,
            false => Acknowledge::Never,
        }
    }

    /// What a request may look like. Before authentication requests are small, and parsed one at
    /// a time, because the first may be the one that changes that.
    fn limits(&self, caller: &Caller) -> (Limits, usize) {
        if caller.authenticated {
            (self.kernel.request_limits(AuthState::Granted), REQUESTS_MAX)
        } else {
            (self.kernel.request_limits(AuthState::Required), 1)
        }
    }

    /// Executes the requests of the batch in order: for each the gates, what it needs from disk, its run
    /// and its account.
    fn execute(
        &mut self,
        caller: &mut Caller,
        locks: &mut ShardLocks<'k>,
        input: &[u8],
        output: &mut Output,
        now_ms: i64,
    ) -> Progress {
        if self.batch.is_empty() {
            return Progress::Through;
        }
        self.look_ahead(caller, locks, input, now_ms);
        locks.set_touch(caller.touch());
        locks.set_origin(caller.origin());
        let mut meter = Meter::start(self.kernel, self.counters);
        let until_nanos = self.turn.until(meter.read_nanos());
        // What was published before these requests came precedes their replies.
        let proto = caller.proto;
        caller.catch_up(&self.kernel.pubsub, output, proto);
        let mut gates = Gates::read(self.kernel, caller, now_ms);
        let commands = &self.kernel.commands;
        if caller.closing {
            // Its user is gone.
            locks.release();
            return Progress::Closing;
        }
        let mut progress = Progress::Through;
        for (index, args) in self.batch.iter(input).enumerate() {
            let planned = match self.batch.len() {
                1 => self.plan.plan_one(self.kernel, args),
                _ => self.plan.get(index),
            };
            let Some(command) = self.resolve(caller, output, args, planned) else {
                if caller.closing {
                    progress = Progress::Closing;
                    break;
                }
                continue;
            };
            let passes_unseen = gates.are_open_to(caller, command, args);
            if !passes_unseen && !gates.are_open_to_queue(command) {
                match gates.judge(self.kernel, caller, locks, command, args) {
                    Verdict::Passes => {}
                    Verdict::Refused(refused) => {
                        self.refuse(caller, output, refused);
                        continue;
                    }
                    Verdict::Held(cause) => {
                        progress = Progress::Held { index, cause };
                        break;
                    }
                }
            }
            if !passes_unseen && caller.is_in_transaction() && command.is_queued() {
                if self.queue(caller, output, command, args, planned) == Queued::IsFull {
                    progress = Progress::Closing;
                    break;
                }
                continue;
            }
            if !passes_unseen && gates.has_spilled && caller.waits.may_fetch() {
                match self.pending_reads(caller, locks, command, input, index, now_ms) {
                    Ok(pending_reads) if pending_reads.is_empty() => {}
                    Ok(pending_reads) => {
                        progress = Progress::Fetching { index, pending_reads };
                        break;
                    }
                    Err(busy) => {
                        progress = Progress::Held { index, cause: busy.into() };
                        break;
                    }
                }
            }
            let batch = &*self.batch;
            let last =
                move || slowlog::shorten(commands, batch.get(index.saturating_sub(1), input));
            let timing = meter.begin(command, &caller.client, last);
            let probe = match !passes_unseen && gates.measured {
                true => Probe::begin(&self.kernel.hot_keys, self.kernel.nanos, output),
                false => None,
            };
            if let Some(interrupt) = self.run(caller, locks, output, command, args, planned, now_ms)
            {
                meter.take_back(timing);
                if let Interrupt::Busy(busy) = interrupt
                    && let Some(error) = self.busy_with_program(busy)
                {
                    self.refuse(caller, output, Refused { command: Some(command), error });
                    continue;
                }
                if interrupt == Interrupt::Long && command.spec.flags.contains(Flags::NONBLOCKING) {
                    // Its connection goes on.
                    caller.end_caching(Some(command));
                    if gates.watched {
                        monitors::show(self.kernel, command, caller, args);
                    }
                    continue;
                }
                // EXEC is shown behind what it runs.
                if gates.watched && interrupt == Interrupt::Long && !command.is_exec() {
                    monitors::show(self.kernel, command, caller, args);
                }
                progress = match interrupt {
                    Interrupt::Busy(busy) => Progress::Held { index, cause: busy.into() },
                    Interrupt::Long => Progress::Waiting { index },
                    Interrupt::Gate => unreachable!("a worker judges right before it runs"),
                };
                break;
            }
            if !passes_unseen && let Some(probe) = probe {
                probe.end(&self.kernel.hot_keys, (command, args), &caller.client, output);
            }
            if locks.has_ready() {
                blocking::serve(self.kernel, locks, self.counters, self.served, now_ms);
                self.has_served = true;
            }
            if !passes_unseen && !command.is_data_only {
                meter.look_again();
            }
            meter.end(timing, command, &caller.client, move || slowlog::shorten(commands, args));
            // Only commands that may take long are timed alone.
            let is_over = timing == Timing::Alone && meter.read_nanos() >= until_nanos;
            if passes_unseen {
                debug_assert!(self.stops(caller, index).is_none(), "{} did", command.full_name);
                if is_over {
                    progress = Progress::Yielding { index };
                    break;
                }
                continue;
            }
            if gates.has_spilled {
                caller.waits.has_run();
            }
            // Messages that the command has led to follow its reply.
            caller.end_caching(Some(command));
            locks.tell_invalidated();
            let proto = caller.proto;
            caller.catch_up(&self.kernel.pubsub, output, proto);
            if !command.is_data_only {
                gates.reread(self.kernel, caller);
            }
            if gates.watched {
                // Afterwards, so that SELECT is shown with the database it has led to, as by Redis.
                monitors::show(self.kernel, command, caller, args);
            }
            if let Some(stops) = self.stops(caller, index) {
                progress = stops;
                break;
            }
            if is_over {
                progress = Progress::Yielding { index };
                break;
            }
        }
        let last = || slowlog::shorten(commands, self.batch.get(self.batch.len() - 1, input));
        meter.finish(&caller.client, last);
        if matches!(progress, Progress::Through) && meter.read_nanos() >= until_nanos {
            progress = Progress::Yielding { index: self.batch.len() - 1 };
        }
        // Other threads must not wait for this shard while replies are sent.
        locks.release();
        progress
    }

    /// Looks through the batch, and has the processor load what it will need.
    #[inline]
    fn look_ahead(
        &mut self,
        caller: &Caller,
        locks: &mut ShardLocks<'k>,
        input: &[u8],
        now_ms: i64,
    ) {
        if self.batch.len() < 2 {
            return;
        }
        self.plan.make(self.kernel, self.batch, input);
        let db = caller.db;
        if self.kernel.keyspace.gains_from_prefetch(db) {
            locks.prefetch(self.plan.hashes().map(|hash| (db, hash)));
        }
        self.prefetch_elements(caller, locks, input, now_ms);
    }

    /// The command of a request; `None` if it has been answered.
    #[inline]
    fn resolve(
        &self,
        caller: &mut Caller,
        output: &mut Output,
        args: Args<'_>,
        planned: Planned,
    ) -> Option<&'k Command> {
        if let Some(command) = planned.command(self.kernel) {
            return Some(command);
        }
        match execute::resolve(self.kernel, args) {
            Ok(command) => Some(command),
            Err(_) if self.is_of_browser(caller, args) => {
                caller.closing = true;
                None
            }
            Err(refused) => {
                self.refuse(caller, output, refused);
                None
            }
        }
    }

    /// How the batch ends behind this request, if it does.
    #[inline]
    fn stops(&self, caller: &Caller, index: usize) -> Option<Progress> {
        if caller.closing {
            return Some(Progress::Closing);
        }
        caller.waits.is_for_reply().then_some(Progress::Waiting { index })
    }

    #[inline(always)]
    #[expect(clippy::too_many_arguments, reason = "all that a request has been found out of")]
    fn run(
        &self,
        caller: &mut Caller,
        locks: &mut ShardLocks<'k>,
        output: &mut Output,
        command: &'k Command,
        args: Args<'_>,
        planned: Planned,
        now_ms: i64,
    ) -> Option<Interrupt> {
        if command.has_one_key {
            let hash = match planned.hash {
                Some(hash) => hash,
                None => self.kernel.keyspace.hash(args.at(command.first_key)),
            };
            if let Err(busy) = locks.reach(hash) {
                return Some(Interrupt::Busy(busy));
            }
        }
        let muted_from = (caller.reply_mode != ReplyMode::On).then(|| output.mark());
        let reply = Reply::new(output, caller.proto);
        let (kernel, counters) = (self.kernel, self.counters);
        let mode = Mode::Client;
        let large = self.large.as_ref();
        let hashed = planned.hash.map(|hash| (args.at(command.first_key), hash));
        let hashed = hashed.as_slice();
        let guard = Guard::new(locks);
        let call = Call::new(args);
        let mut context = Context {
            kernel,
            caller,
            call,
            guard,
            reply,
            command,
            counters,
            now_ms,
            mode,
            large,
            hashed,
        };
        let interrupt = context.run();
        match interrupt {
            None => {}
            Some(Interrupt::Busy(_) | Interrupt::Gate) => return interrupt,
            Some(Interrupt::Long) => self.send_away(caller, output, command, args),
        }
        if caller.reply_mode != ReplyMode::On {
            // What tells of subscriptions is no reply to CLIENT REPLY. A transaction that may do so has left out the rest.
            let is_muted = command.is_exec() && caller.holds_messages();
            let is_reply = !command.spec.flags.contains(Flags::SUBSCRIBING) && !is_muted;
            mute(caller, output, muted_from.filter(|_| is_reply));
        }
        interrupt
    }

    /// What a client is told that needs a shard which a program has held for too long.
    #[cold]
    fn busy_with_program(&self, busy: Busy) -> Option<CommandError> {
        self.kernel.scripts.running.refusal(busy.shard, self.kernel.busy_threshold())
    }

    /// Has a request that takes too long here run elsewhere; its reply comes later.
    #[cold]
    fn send_away(
        &self,
        caller: &mut Caller,
        output: &mut Output,
        command: &Command,
        args: Args<'_>,
    ) {
        if command.spec.flags.contains(Flags::NONBLOCKING) {
            let room = output.room();
            let sent = blocking::send_away(self.kernel, caller, command, args, room);
            if let Err(error) = sent {
                let refused = Refused { command: Some(command), error };
                let mut reply = Reply::new(output, caller.proto);
                execute::refuse(self.kernel, self.counters, &mut reply, &refused);
            }
            return;
        }
        let offload = self.kernel.offload_of(command, caller);
        let (to, away, command) = (caller.reply_to(), caller.away(), args.to_owned());
        let is_heard = caller.reply_mode == ReplyMode::On;
        let room = if is_heard { output.room() } else { usize::MAX };
        caller.wait_for(Awaited::LongCommand);
        let to = Destination::Reply(to);
        caller.end_caching(None);
        offload.push(Job { to, caller: away, command, room });
    }

    /// Whether an unknown command is part of an HTTP request. A web page can make a browser send one here, with
    /// commands in its body, which must not run.
    #[cold]
    fn is_of_browser(&self, caller: &Caller, args: Args<'_>) -> bool {
        let of_browser =
            args[0].eq_ignore_ascii_case(b"post") || args[0].eq_ignore_ascii_case(b"host:");
        if of_browser {
            let addr = &caller.client.addr;
            self.kernel.log.warning(format_args!(
                "Possible SECURITY ATTACK: {addr} sent POST or Host: as a command, probably a browser misused for \
                 cross protocol scripting. Connection closed"
            ));
        }
        of_browser
    }

    /// Replies to a request that does not come to run.
    #[cold]
    fn refuse(&self, caller: &mut Caller, output: &mut Output, refused: Refused<'_>) {
        let refused = execute::refused_in_transaction(caller, refused);
        caller.end_caching(refused.command);
        self.reply(caller, output, |reply| {
            execute::refuse(self.kernel, self.counters, reply, &refused);
        });
    }

    /// Keeps a request for EXEC.
    #[inline(never)]
    fn queue(
        &self,
        caller: &mut Caller,
        output: &mut Output,
        command: &Command,
        args: Args<'_>,
        planned: Planned,
    ) -> Queued {
        if caller.queue(self.kernel, command, args, planned.hash).is_err() {
            self.counters.add(Stat::QueryLimitDisconnections, 1);
            let error = CommandError::new(TOO_LARGE_TO_KEEP);
            self.refuse(caller, output, Refused { command: Some(command), error });
            return Queued::IsFull;
        }
        self.reply(caller, output, |reply| reply.queued());
        Queued::Yes
    }

    fn reply(&self, caller: &mut Caller, output: &mut Output, write: impl FnOnce(&mut Reply<'_>)) {
        let mark = output.mark();
        write(&mut Reply::new(output, caller.proto));
        if caller.reply_mode != ReplyMode::On {
            mute(caller, output, Some(mark));
        }
    }

    /// Has fields or members loaded that the batch looks for, as far as it begins with calls of one
    /// command for one key. That shard stays locked for the first of them.
    fn prefetch_elements(
        &self,
        caller: &Caller,
        locks: &mut ShardLocks<'k>,
        input: &[u8],
        now_ms: i64,
    ) {
        if self.batch.len() < ELEMENTS_MIN {
            return;
        }
        let first = self.batch.get(0, input);
        let at = match self.plan.get(0).command(self.kernel) {
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
        let key = self.kernel.keyspace.key(&first[at - 1]);
        if locks.try_reach(key.hash()) {
            locks.db(caller.db, key.hash(), now_ms).prefetch_elements(key, elements);
        }
    }

    /// The values on disk that the request with this index needs, which is a call of `command`. If there
    /// are any, then also those of requests behind it, so that the disk gets all of them at once. [`Busy`] if that is
    /// not known, because another thread holds a shard of this request for long.
    fn pending_reads(
        &self,
        caller: &Caller,
        locks: &mut ShardLocks<'k>,
        command: &Command,
        input: &[u8],
        index: usize,
        now_ms: i64,
    ) -> Result<Vec<PendingRead>, Busy> {
        let mut pending_reads = Vec::new();
        let args = self.batch.get(index, input);
        if command.is_exec() {
            execute::add_pending_reads_of_exec(
                self.kernel,
                locks,
                caller,
                now_ms,
                &mut pending_reads,
            )?;
        } else {
            fetch::add_pending_reads(locks, caller.db, command, args, now_ms, &mut pending_reads)?;
        }
        if pending_reads.is_empty() {
            return Ok(pending_reads);
        }
        for index in index + 1..self.batch.len() {
            if fetch::is_enough(&pending_reads) {
                break;
            }
            let args = self.batch.get(index, input);
            if let Ok(command) = execute::resolve(self.kernel, args)
                && caller.rights().check(command, args).is_ok()
            {
                // Should another command select another database before, nothing worse happens than that
                // values are fetched in vain.
                let db = caller.db;
                let reads = &mut pending_reads;
                if fetch::add_pending_reads(locks, db, command, args, now_ms, reads).is_err() {
                    break;
                }
            }
        }
        Ok(pending_reads)
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
        hold(&mut session.caller.waits, self.kernel, cause, io)
    }

    /// The rest of the input is the beginning of a request.
    fn await_more(&self, session: &Session, io: &mut Io<'_>, hint: usize) -> Flow {
        let waiting = io.input().len();
        let max = self.kernel.config.live().client_query_buffer_limit();
        if waiting as u64 > max {
            return self.refuse_to_keep(session, io);
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

/// What counts inputs that are refused by a limit; nothing counts those that are no requests at all.
fn limit_of(error: &ProtocolError) -> Option<Stat> {
    match error {
        ProtocolError::InvalidMultibulkLength | ProtocolError::UnauthenticatedMultibulkLength => {
            Some(Stat::RequestArgumentsErrors)
        }
        ProtocolError::InvalidBulkLength
        | ProtocolError::UnauthenticatedBulkLength
        | ProtocolError::MultibulkCountTooLong
        | ProtocolError::BulkCountTooLong
        | ProtocolError::InlineTooLong
        | ProtocolError::RequestTooLarge => Some(Stat::RequestSizeErrors),
        _ => None,
    }
}

/// A request without arguments has no reply, so `CLIENT REPLY SKIP` has skipped it: as in Redis.
#[cold]
fn skip_empty(caller: &mut Caller) {
    if caller.reply_mode == ReplyMode::SkipThis {
        caller.reply_mode = ReplyMode::On;
    }
}

/// Takes back what was written since `from`, for a client that wants no replies.
#[cold]
fn mute(caller: &mut Caller, output: &mut Output, from: Option<Mark>) {
    if let Some(mark) = from
        && caller.reply_mode != ReplyMode::SkipNext
    {
        output.truncate(mark);
    }
    caller.reply_mode = caller.reply_mode.after_command();
}
