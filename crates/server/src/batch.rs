//! The requests that arrived together on one connection: parsed, prefetched, executed in order.

use tierce_keyspace::{DbIndex, KeyHash, Locker};
use tierce_net::{Flow, Io, Mark, OnHangup, Output};
use tierce_wire::resp::{Args, AuthState, Batch, Limits, Status};

use crate::command::{Command, Flags};
use crate::durability::SyncPolicy;
use crate::error::CommandError;
use crate::eviction::{self, Room};
use crate::execute::{self, Context, Refused};
use crate::meter::{Meter, Timing};
use crate::reply::Reply;
use crate::server::Server;
use crate::session::{ReplyMode, Session};
use crate::stats::{Counters, Stat};

/// Requests parsed before the first of them is executed. Enough for the prefetches of a deep
/// pipeline to overlap, and few enough for the spans to stay in the first-level cache.
const REQUESTS_MAX: usize = 128;

/// Memory that the batches of one worker use one after the other.
#[derive(Default)]
pub struct BatchMemory {
    batch: Batch,
    keys: Vec<(DbIndex, KeyHash)>,
}

/// Serves one connection for one turn.
pub struct BatchRunner<'k, 'w> {
    server: &'k Server,
    counters: &'k Counters,
    batch: &'w mut Batch,
    keys: &'w mut Vec<(DbIndex, KeyHash)>,
}

/// A request whose command has been found. Pipelines repeat themselves, so the next one often
/// needs no search.
#[derive(Clone, Copy)]
struct Resolved<'k, 'a> {
    command: &'k Command,
    args: Args<'a>,
}

impl Resolved<'_, '_> {
    /// Whether `args` are a call of the same command that is as acceptable.
    #[inline]
    fn is_repeated_by(&self, args: Args<'_>) -> bool {
        // With as many arguments the arity needs no check, but a subcommand may be another one.
        args.len() == self.args.len() && args[0] == self.args[0] && self.command.is_plain
    }
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
    /// A pause holds back the request with this index, until this time in Unix milliseconds.
    Held { index: usize, until_ms: i64 },
    /// The request with this index gets its reply later.
    Waiting { index: usize },
    /// The connection ends here.
    Closing,
}

impl<'k, 'w> BatchRunner<'k, 'w> {
    /// For a worker that counts in `counters`.
    pub fn new(server: &'k Server, counters: &'k Counters, memory: &'w mut BatchMemory) -> Self {
        Self { server, counters, batch: &mut memory.batch, keys: &mut memory.keys }
    }

    /// Executes all complete requests of the input.
    pub fn serve(&mut self, session: &mut Session, io: &mut Io<'_>) -> Flow {
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
                Progress::Held { index, until_ms } => {
                    return self.hold(session, io, index, until_ms);
                }
                Progress::Waiting { index } => {
                    io.consume(self.batch.end(index));
                    session.parser.rewind();
                    return Flow::Suspend(OnHangup::Wait);
                }
                Progress::Closing => return Flow::Close,
            }
            match parsed.status {
                Status::Full => {}
                Status::NeedMore { hint } => {
                    return self.await_more(io, hint);
                }
                Status::Error(error) => {
                    let error = CommandError::text(format!("ERR {error}"));
                    let (_, output) = io.split();
                    self.counters.add(Stat::Errors, 1);
                    self.server.errors.count(error.kind());
                    Reply::new(output, session.proto).error(&error);
                    return Flow::Close;
                }
            }
        }
    }

    /// Notes where the log ended after writes of this session, for those who want to wait for the
    /// device.
    fn note_logged(&self, session: &mut Session) -> Acknowledge {
        let Some(journal) = self.server.durability.journal() else { return Acknowledge::Now };
        if journal.is_wounded() {
            return Acknowledge::Never;
        }
        session.logged_at = journal.appended();
        let policy = session.durability.unwrap_or_else(|| self.server.config.live().appendfsync());
        session.awaits_device |= policy == SyncPolicy::Always;
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
        self.prefetch(session, locker, input);
        locker.set_touch(session.touch());
        let mut meter = Meter::start(self.server, self.counters);
        // What concerns all connections changes so rarely that a look a batch is enough, and one
        // after each command that may itself be the change.
        let mut paused = self.server.pause.is_on(now_ms);
        let refuses_writes = self.server.durability.refuses_writes();
        let mut watched = self.server.clients.has_monitors();
        let mut limited = self.server.keyspace.has_memory_limit();
        let mut progress = Progress::Through;
        let mut last: Option<Resolved<'k, '_>> = None;
        for index in 0..self.batch.len() {
            let args = self.batch.get(index, input);
            let command = match last {
                Some(last) if last.is_repeated_by(args) => last.command,
                _ => match execute::resolve(self.server, args) {
                    Ok(command) => {
                        last = Some(Resolved { command, args });
                        command
                    }
                    Err(refused) => {
                        self.refuse(session, output, &refused);
                        continue;
                    }
                },
            };
            if let Err(refused) = execute::admit(self.server, session, command) {
                self.refuse(session, output, &refused);
                continue;
            }
            if refuses_writes && command.spec.flags.contains(Flags::WRITE) {
                let error = self.server.durability.misconfigured();
                self.refuse(session, output, &Refused { command: Some(command), error });
                continue;
            }
            if paused && let Some(until_ms) = self.server.pause.holds(command.spec, now_ms) {
                progress = Progress::Held { index, until_ms };
                break;
            }
            if limited
                && command.spec.flags.contains(Flags::DENYOOM)
                && eviction::make_room(self.server, locker, now_ms) == Room::None
            {
                let error = CommandError::OUT_OF_MEMORY;
                self.refuse(session, output, &Refused { command: Some(command), error });
                continue;
            }
            if meter.must_end_run(command) {
                meter.end_run(session, || self.batch.get(index.saturating_sub(1), input));
            }
            let timing = meter.enter(command);
            self.run(session, locker, output, command, args, now_ms);
            if timing == Timing::Alone {
                meter.leave(command, session, args);
                paused = self.server.pause.is_on(now_ms);
                watched = self.server.clients.has_monitors();
                limited = self.server.keyspace.has_memory_limit();
            }
            if watched {
                // Afterwards, so that SELECT is shown with the database it has led to, as by Redis.
                self.server.show_to_monitors(command, session, args);
            }
            if session.closing {
                progress = Progress::Closing;
                break;
            }
            if session.waiting.is_some() {
                progress = Progress::Waiting { index };
                break;
            }
        }
        meter.finish(session, || self.batch.get(self.batch.len() - 1, input));
        // Nobody else shall wait for this shard while replies are sent.
        locker.release();
        progress
    }

    #[inline]
    fn run(
        &self,
        session: &mut Session,
        locker: &mut Locker<'k>,
        output: &mut Output,
        command: &'k Command,
        args: Args<'_>,
        now_ms: i64,
    ) {
        let muted_from = (session.reply_mode != ReplyMode::On).then(|| output.mark());
        let reply = Reply::new(output, session.proto);
        let (server, counters) = (self.server, self.counters);
        Context { server, session, locker, reply, command, counters, now_ms }.run(args);
        if session.reply_mode != ReplyMode::On {
            mute(session, output, muted_from);
        }
    }

    /// Replies to a request that does not come to run.
    #[cold]
    fn refuse(&self, session: &mut Session, output: &mut Output, refused: &Refused<'_>) {
        let mark = output.mark();
        let mut reply = Reply::new(output, session.proto);
        execute::refuse(self.server, self.counters, &mut reply, refused);
        if session.reply_mode != ReplyMode::On {
            mute(session, output, Some(mark));
        }
    }

    /// Starts loading what the batch will look at, so that the waits for memory overlap.
    fn prefetch(&mut self, session: &Session, locker: &mut Locker<'k>, input: &[u8]) {
        if self.batch.len() < 2 || !self.server.keyspace.gains_from_prefetch(session.db) {
            return;
        }
        self.keys.clear();
        for args in self.batch.iter(input) {
            let command = self.server.commands.find(&args[0]);
            let first_key = command.and_then(|command| command.spec.keys.first());
            if let Some(key) = first_key.and_then(|keys| args.get(keys.first as usize)) {
                self.keys.push((session.db, self.server.keyspace.hash(key)));
            }
        }
        locker.prefetch(self.keys);
    }

    /// Leaves the requests from `index` on in the input and waits for the end of the pause.
    #[cold]
    fn hold(&self, session: &mut Session, io: &mut Io<'_>, index: usize, until_ms: i64) -> Flow {
        let executed = if index == 0 { 0 } else { self.batch.end(index - 1) };
        io.consume(executed);
        session.parser.rewind();
        session.held = true;
        let now = io.now();
        let wait = (until_ms - now.unix_ms as i64).max(1) as u64;
        io.set_timer(now.monotonic_ms + wait);
        Flow::Suspend(OnHangup::Wait)
    }

    /// The rest of the input is the beginning of a request.
    fn await_more(&self, io: &mut Io<'_>, hint: usize) -> Flow {
        let waiting = io.input().len();
        let max = self.server.config.live().client_query_buffer_limit();
        if waiting as u64 > max {
            self.counters.add(Stat::QueryLimitDisconnections, 1);
            return Flow::Close;
        }
        if hint > 0 {
            io.expect(waiting + hint);
        }
        Flow::Continue
    }
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
