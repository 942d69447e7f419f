//! The requests that arrived together on one connection: parsed (here), prefetched (`look_ahead`), run in order
//! (`run`), noted if they are large (`sizes`), and confirmed if replies wait for that (`confirm`).

mod confirm;
mod look_ahead;
mod refuse;
mod run;
mod sizes;

use std::sync::Arc;

use tierce_keyspace::ShardLocks;
use tierce_net::{Flow, Io};
use tierce_output::Output;
use tierce_wire::resp::{AuthState, Batch, Parsed, Status, parse_with_side_buffer};

use self::refuse::has_run_before;
use crate::caller::{Caller, ReplyMode};
use crate::commands::replica_level::HeldReplies;
use crate::connection::output_class_of;
use crate::fetch::PendingRead;
use crate::fetcher::Fetcher;
use crate::kernel::Kernel;
use crate::pipeline::{Bodies, handoff};
use crate::plan::Plan;
use crate::session::Session;
use crate::stats::Counters;
use crate::suspend::{hold, suspend};
use crate::turn::Turn;
use crate::waiting::Deferral;

/// Maximum number of requests parsed before the first of them is executed. Enough for the prefetches of a deep pipeline
/// to overlap, and few enough for the spans to stay in the L1 cache.
const REQUESTS_MAX: usize = 128;

/// Number of missing bytes from which on an argument is received into a side buffer, which a command that stores it
/// keeps.
const LARGE_ARG_BYTES_MIN: usize = 256 * 1024;

/// Maximum number of bytes of a request around its large argument. They are parsed again with each piece of them that
/// arrives; a request with more is put back together.
const AROUND_LARGE_BYTES_MAX: usize = 64 * 1024;

/// Last reply to a client that exceeds its limit of kept input: of one request, or after MULTI.
const TOO_LARGE_TO_KEEP: &str = "ERR request exceeds client-query-buffer-limit";

/// Delay before a role-changing command is tried again, while another thread locks the role.
const RETRY_ROLE_AFTER_MS: i64 = 10;

/// Number of requests from which on it pays to prefetch their elements.
const ELEMENTS_MIN: usize = 4;

/// Memory that the batches of one worker reuse.
pub struct BatchMemory {
    batch: Batch,
    plan: Plan,
    /// For replies to clients that wait for keys, which are not those of the batch.
    pub served: Output,
    held: HeldReplies,
}

impl Default for BatchMemory {
    fn default() -> Self {
        let (batch, plan, served) = (Batch::default(), Plan::default(), Output::new());
        Self { batch, plan, served, held: HeldReplies::default() }
    }
}

/// Server of one connection for one turn.
pub struct BatchRunner<'k, 'w> {
    kernel: &'k Kernel,
    bodies: &'k Bodies,
    counters: &'k Counters,
    batch: &'w mut Batch,
    plan: &'w mut Plan,
    served: &'w mut Output,
    fetcher: &'w mut Fetcher,
    /// Large argument of the only request that has a side buffer.
    large: Option<Arc<Vec<u8>>>,
    turn: Turn,
    /// Replies that wait for replicas.
    held: &'w mut HeldReplies,
    /// True if the requests of this turn ask for no data; `None` if there are none, or it does not matter.
    tells_of_server: Option<bool>,
    /// True if clients that waited for keys were served; their replies are in the mail of their workers.
    pub has_served: bool,
}

/// Progress of the execution of a batch.
enum Progress {
    /// All requests were executed.
    Through,
    /// The requests up to this index were executed. The others wait until other connections were served.
    Yielding { index: usize },
    /// The request with this index is deferred.
    Held { index: usize, deferral: Deferral },
    /// The request with this index has to wait until replicas have confirmed the writes before it.
    Unconfirmed { index: usize },
    /// The request with this index gets its reply later.
    Waiting { index: usize },
    /// The request with this index, and perhaps some behind it, need values that are on disk.
    Fetching { index: usize, pending_reads: Vec<PendingRead> },
    /// The connection ends here.
    Closing,
}

impl<'k, 'w> BatchRunner<'k, 'w> {
    /// Creates a runner for a worker that counts in `counters`.
    #[inline]
    pub fn new(
        kernel: &'k Kernel,
        counters: &'k Counters,
        memory: &'w mut BatchMemory,
        fetcher: &'w mut Fetcher,
    ) -> Self {
        let BatchMemory { batch, plan, served, held } = memory;
        held.begin();
        Self {
            kernel,
            bodies: Bodies::of(&kernel.commands),
            counters,
            batch,
            plan,
            served,
            fetcher,
            large: None,
            turn: Turn::default(),
            held,
            tells_of_server: None,
            has_served: false,
        }
    }

    /// Executes all complete requests of the input, or as many as one turn allows.
    pub fn serve(&mut self, session: &mut Session, io: &mut Io<'_>) -> Flow {
        if session.caller.waits.is_for_reply() {
            // A command that was sent to another thread now waits for keys.
            return suspend(&session.caller.waits, io);
        }
        session.caller.waits.go_on();
        if session.caller.closing {
            // A transaction on another thread has closed the connection.
            return Flow::Close;
        }
        if io.is_filling_side_buffer() {
            return Flow::Continue;
        }
        if let Some((at, len)) = io.side_buffer()
            && let Some(flow) = self.serve_side_buffer(session, io, at, len)
        {
            return flow;
        }
        let now_ms = io.now().unix_ms as i64;
        let mut locks = self.kernel.keyspace.worker_locks(session.caller.client.conn.worker);
        loop {
            let (auth, requests_max) = auth_state(&session.caller);
            let (input, output) = io.split();
            let replied_before = output.mark();
            let limits = || self.kernel.request_limits(auth);
            let parsed = session.parser.parse_within(input, limits, requests_max, self.batch);
            if self.batch.follows_empty() {
                skip_empty(&mut session.caller, now_ms);
            }
            self.note_what_is_told(&mut session.caller, input);
            let progress = self.execute(
                &mut session.caller,
                &mut locks,
                input,
                output,
                replied_before,
                now_ms,
            );
            if !self.commit(&mut session.caller, &mut locks) {
                io.output().truncate(replied_before);
                return Flow::Close;
            }
            if self.has_held(io) {
                let executed = self.executed(&progress);
                return self.wait_for_replicas(session, io, executed, &progress);
            }
            match progress {
                Progress::Through => {
                    io.consume(parsed.consumed);
                    // Empty requests may have been left behind those that ran.
                    if !self.batch.is_empty() || io.input().is_empty() {
                        note_rest(&mut session.caller, io);
                    }
                }
                Progress::Yielding { index } => {
                    io.consume(self.batch.end(index));
                    note_rest(&mut session.caller, io);
                    session.parser.rewind();
                    return if io.input().is_empty() { Flow::Continue } else { Flow::Yield };
                }
                Progress::Held { index, deferral } => {
                    return self.hold(session, io, index, deferral);
                }
                Progress::Unconfirmed { .. } => unreachable!("writes before it are held"),
                Progress::Waiting { index } => {
                    io.consume(self.batch.end(index));
                    session.parser.rewind();
                    let has_run = has_run_before(&session.caller, index);
                    handoff::note_wait(&session.caller, has_run);
                    note_rest(&mut session.caller, io);
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
                    // One of these may have been the authentication.
                    if session.caller.authenticated {
                        io.set_output_class(output_class_of(&session.caller));
                    }
                    if io.output().exceeds_limit() {
                        return Flow::Close;
                    }
                }
                Status::NeedMore { hint: 0 } if io.input().is_empty() => return Flow::Continue,
                Status::NeedMore { hint } => {
                    return self.await_more(session, io, hint);
                }
                Status::Error(error) => return self.refuse_input(session, io, &error),
            }
        }
    }

    /// Executes the one request at the front of the input whose argument of `len` bytes at `at` is in the side buffer.
    /// Returns `None` when it is done and requests may follow.
    #[cold]
    fn serve_side_buffer(
        &mut self,
        session: &mut Session,
        io: &mut Io<'_>,
        at: usize,
        len: usize,
    ) -> Option<Flow> {
        let now_ms = io.now().unix_ms as i64;
        let (auth, _) = auth_state(&session.caller);
        let limits = self.kernel.request_limits(auth);
        let Parsed { consumed, status } =
            parse_with_side_buffer(io.input(), at, len, &limits, self.batch);
        match status {
            Status::Full => {}
            Status::NeedMore { .. } if io.input().len() > at + AROUND_LARGE_BYTES_MAX => {
                io.join_side_buffer();
                return Some(Flow::Yield);
            }
            Status::NeedMore { hint } => return Some(self.await_more(session, io, hint)),
            Status::Error(error) => return Some(self.refuse_input(session, io, &error)),
        }
        let value = Arc::new(io.take_side_buffer()?);
        self.large = Some(Arc::clone(&value));
        self.note_what_is_told(&mut session.caller, &value);
        let mut locks = self.kernel.keyspace.worker_locks(session.caller.client.conn.worker);
        let (_, output) = io.split();
        let replied_before = output.mark();
        let progress =
            self.execute(&mut session.caller, &mut locks, &value, output, replied_before, now_ms);
        self.large = None;
        if !self.commit(&mut session.caller, &mut locks) {
            io.output().truncate(replied_before);
            return Some(Flow::Close);
        }
        if self.has_held(io) {
            return Some(self.wait_for_replicas(session, io, consumed, &progress));
        }
        if let Progress::Held { .. } | Progress::Fetching { .. } = progress {
            let value = Arc::try_unwrap(value).expect("a request that has not run keeps nothing");
            io.put_back_side_buffer(at, value);
        }
        match progress {
            Progress::Through | Progress::Yielding { .. } => {
                io.consume(consumed);
                note_rest(&mut session.caller, io);
                session.parser.rewind();
                None
            }
            Progress::Held { index, deferral } => Some(self.hold(session, io, index, deferral)),
            Progress::Unconfirmed { .. } => unreachable!("nothing is before it"),
            Progress::Waiting { .. } => {
                io.consume(consumed);
                session.parser.rewind();
                handoff::note_wait(&session.caller, false);
                note_rest(&mut session.caller, io);
                Some(suspend(&session.caller.waits, io))
            }
            Progress::Fetching { index, pending_reads } => {
                self.leave(session, io, index);
                Some(self.fetcher.fetch(self.kernel, &mut session.caller.waits, io, pending_reads))
            }
            Progress::Closing => Some(Flow::Close),
        }
    }

    /// Notes if the requests of this turn ask for data, whose replies wait at the level `bucket`.
    #[inline]
    fn note_what_is_told(&mut self, caller: &mut Caller, input: &[u8]) {
        if self.kernel.bucket.is_on() && !self.batch.is_empty() {
            self.look_what_is_told(caller, input);
        }
    }

    /// Notes what the replies to the writes of a batch wait for, if it has any. Returns false if the log failed to take
    /// them, so that they must not be acknowledged.
    #[inline]
    fn commit(&self, caller: &mut Caller, locks: &mut ShardLocks<'k>) -> bool {
        if !locks.take_logged() && !self.held.has_writes {
            return true;
        }
        let asked = caller.durability();
        self.kernel.note_writes(&mut caller.waits.logged, asked, self.held.level).is_some()
    }

    /// Returns true if replies wait for replicas; otherwise it sends them.
    #[inline]
    fn has_held(&mut self, io: &mut Io<'_>) -> bool {
        if !self.held.has_writes {
            self.held.give_back(io.output());
        }
        self.held.has_writes
    }

    /// Leaves the requests from `index` on in the input.
    fn leave(&self, session: &mut Session, io: &mut Io<'_>, index: usize) {
        let executed = if index == 0 { 0 } else { self.batch.end(index - 1) };
        io.consume(executed);
        session.parser.rewind();
        session.caller.in_pipeline |= has_run_before(&session.caller, index);
    }

    /// Leaves the requests from `index` on in the input until they may be executed.
    #[cold]
    fn hold(
        &self,
        session: &mut Session,
        io: &mut Io<'_>,
        index: usize,
        deferral: Deferral,
    ) -> Flow {
        self.leave(session, io, index);
        hold(&mut session.caller.waits, self.kernel, deferral, io)
    }

    /// Handles a rest of the input that is the beginning of a request.
    #[cold]
    fn await_more(&self, session: &Session, io: &mut Io<'_>, hint: usize) -> Flow {
        let waiting = io.input().len();
        let max = self.kernel.config.live().client_query_buffer_limit();
        if waiting as u64 > max {
            return self.refuse_to_keep(session, io);
        }
        if hint >= LARGE_ARG_BYTES_MIN
            && (waiting + hint) as u64 <= max
            && io.side_buffer().is_none()
            && let Some((at, len)) = session.parser.announced(io.input())
            && at <= AROUND_LARGE_BYTES_MAX
        {
            io.begin_side_buffer(at, len);
        } else if hint > 0 {
            io.expect(waiting + hint);
        }
        Flow::Continue
    }
}

/// Notes, after requests have run, if more came together with them.
#[inline]
fn note_rest(caller: &mut Caller, io: &Io<'_>) {
    caller.in_pipeline = !io.input().is_empty();
}

/// Returns the limits of the next requests, and the number parsed together. Before authentication, requests are small,
/// and parsed one at a time, because the first may be the authentication.
#[inline]
fn auth_state(caller: &Caller) -> (AuthState, usize) {
    match caller.authenticated {
        true => (AuthState::Granted, REQUESTS_MAX),
        false => (AuthState::Required, 1),
    }
}

/// Handles a request without arguments. It has no reply, so `CLIENT REPLY SKIP` has skipped it, as in Redis. From a
/// replica it is the keepalive while it loads its copy.
#[cold]
fn skip_empty(caller: &mut Caller, now_ms: i64) {
    if let Some(replica) = caller.replica() {
        replica.show_progress(now_ms);
    }
    if caller.reply_mode == ReplyMode::SkipThis {
        caller.reply_mode = ReplyMode::On;
    }
}
