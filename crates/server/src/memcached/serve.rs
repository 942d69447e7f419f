//! The requests that arrived together on one connection: parsed, prefetched, executed in order.

use std::borrow::Cow;
use std::marker::PhantomData;
use std::ops::Range;

use tierce_keyspace::{Busy, Key, KeyHash, Origin, ShardLocks, Source};
use tierce_net::{Flow, Io};
use tierce_wire::memcached::text::Command;
use tierce_wire::memcached::{BINARY_MAGIC, KEY_LEN_MAX, LINE_LEN_MAX, Limits, binary, meta, text};

use super::Host;
use super::auth::Credentials;
use super::binary::{access_of as access_of_frame, access_of_too_large};
use super::counters::Count;
use super::dump::Progress;
use super::operations::{
    equivalent_of_command, equivalent_of_frame, of_command, of_opcode, words_of_command,
    words_of_frame,
};
use super::run::{REQUESTS_MAX, Run};
use super::session::{Language, Session};
use super::text::{access_of as access_of_line, refusal_text};
use crate::acl::Rights;
use crate::admission::{Admission, Barred};
use crate::clients::{Client, output_class};
use crate::command::{Access, Operation, Operations};
use crate::fault::Fault;
use crate::fetcher::Fetcher;
use crate::front_ends::{self, Equivalent, Runner, Stages, Stop, lead, prefetch, recycle};
use crate::pipeline::Guard;
use crate::suspend::{hold, suspend};
use crate::turn::Turn;
use crate::waiting::{Obstacle, Patience, Waits};

/// Number of keys in a batch after which no more requests are parsed.
const KEYS_MAX: usize = 256;

/// Time that a dump waits for a client that does not read, before it checks again.
const DUMP_PAUSE_MS: u64 = 10;

/// Longest value before authentication, which is the password.
const UNAUTHENTICATED_VALUE_LEN_MAX: usize = 1024;

/// Memory that the batches of one worker reuse.
#[derive(Default)]
pub struct BatchMemory {
    lines: Vec<Line<'static>>,
    frames: Vec<Frame<'static>>,
    keys: Vec<Key<'static>>,
}

/// Line, with the positions of its keys among those of the batch.
struct Line<'a> {
    step: text::Step<'a>,
    keys: Range<u32>,
    /// Hash of its first key, which need not be among those: see [`add_keys`].
    hash: Option<KeyHash>,
}

/// Frame with its key, which is empty if it has none.
#[derive(Clone, Copy)]
struct Frame<'a> {
    step: binary::Step<'a>,
    key: Key<'a>,
}

impl Frame<'_> {
    fn authenticates(&self) -> bool {
        matches!(self.step, binary::Step::Request(request) if request.opcode == binary::opcode::SASL_AUTH)
    }
}

/// Reason why the parsing of a batch ended.
enum End {
    /// The batch is full.
    Full,
    /// The next request has to wait until the parsed ones have run.
    OfBatch,
    /// The rest is the beginning of a request, which lacks at least this many bytes.
    NeedMore(usize),
    /// A request has to wait, with all requests behind it.
    Stopped(Stop),
}

/// Executes all complete requests of the input.
pub fn serve(
    server: Host<'_>,
    worker: usize,
    memory: &mut BatchMemory,
    fetcher: &mut Fetcher,
    session: &mut Session,
    io: &mut Io<'_>,
) -> Flow {
    if session.waits.is_for_reply() {
        return suspend(&session.waits, io);
    }
    session.waits.go_on();
    if session.rights.are_old(&server.acl.users) && !session.rights.renew(&server.acl.users) {
        return Flow::Close;
    }
    let now_ms = io.now().unix_ms as i64;
    if let Language::Unknown = session.language {
        session.language = match io.input().first() {
            None => return Flow::Continue,
            Some(&BINARY_MAGIC) => Language::Binary(binary::Parser::default()),
            Some(_) => Language::Text(text::Parser::default()),
        };
    }
    let mut locks = server.keyspace.worker_locks(worker as u16);
    locks.set_origin(Origin { source: Source::Memcached, client: session.client.id });
    let mut turn = Turn::default();
    loop {
        if session.dump.is_some()
            && let Some(flow) = dump(server, session, &mut locks, io)
        {
            return flow;
        }
        let limits = limits(server, session);
        let (input, output) = io.split();
        let replied_before = output.mark();
        let mut run = Run {
            server,
            session: &mut *session,
            guard: Guard::new(&mut locks),
            output,
            counters: server.memcached.counters(worker),
            stages: server.stages(worker, now_ms),
            detailed: server.memcached.prefixes.is_on(),
            closing: false,
            busy: None,
        };
        turn.until(run.stages.read_nanos());
        let (end, consumed) = match run.session.language {
            Language::Text(ref mut parser) => {
                let mut parser = std::mem::take(parser);
                let result = serve_lines(&mut run, memory, &mut parser, input, &limits);
                run.session.language = Language::Text(parser);
                result
            }
            Language::Binary(ref mut parser) => {
                let mut parser = std::mem::take(parser);
                let result = serve_frames(&mut run, memory, &mut parser, input, &limits);
                run.session.language = Language::Binary(parser);
                result
            }
            Language::Unknown => unreachable!("found out above"),
        };
        let closing = run.closing;
        io.consume(consumed);
        let Some(barrier) = front_ends::commit(&mut session.waits, server.kernel, &mut locks)
        else {
            io.output().truncate(replied_before);
            return Flow::Close;
        };
        let (waits, client) = (&mut session.waits, &session.client);
        if let Some(flow) = front_ends::confirm(waits, server.kernel, client, io, barrier, closing)
        {
            return flow;
        }
        match end {
            _ if closing => return Flow::Close,
            End::Full => server.memcached.counters(worker).add(Count::Yields, 1),
            End::OfBatch => {}
            End::Stopped(Stop::Held(deferral)) => {
                return hold(&mut session.waits, server.kernel, deferral, io);
            }
            End::Stopped(Stop::Values(wanted)) => {
                return fetcher.fetch(server.kernel, &mut session.waits, io, wanted);
            }
            End::NeedMore(hint) => {
                if hint > 0 {
                    io.expect(io.input().len() + hint);
                }
                return Flow::Continue;
            }
        }
        // One of these may have been the authentication.
        if session.authenticated {
            io.set_output_class(output_class(true));
        }
        if io.output().exceeds_limit() {
            return Flow::Close;
        }
        if turn.is_over(server.kernel) && !io.input().is_empty() {
            return Flow::Yield;
        }
    }
}

impl front_ends::Request for Line<'_> {
    fn access(&self) -> Option<Access> {
        match &self.step {
            text::Step::Command(command) => access_of_line(command),
            text::Step::Refused(refused) => refused.outdated.map(|_| Access::CHANGE),
            text::Step::NeedMore { .. } => None,
        }
    }

    fn for_each_key_read(&self, mut each: impl FnMut(&[u8])) {
        match &self.step {
            text::Step::Command(Command::Get { keys, .. }) => keys.iter().for_each(each),
            text::Step::Command(Command::Store(store))
                if matches!(store.mode, text::Mode::Append | text::Mode::Prepend) =>
            {
                each(store.key);
            }
            text::Step::Command(Command::Adjust { key, .. }) => each(key),
            text::Step::Command(Command::Meta(request)) => {
                let reads = match request.verb {
                    // In all modes but two it overwrites the present value.
                    meta::Verb::Set(_) => request.flags.contains(&b'M'),
                    verb => verb != meta::Verb::Delete,
                };
                if reads {
                    each(request.key(&mut [0; KEY_LEN_MAX]));
                }
            }
            _ => {}
        }
    }

    fn equivalent(&self) -> Option<Equivalent> {
        match &self.step {
            text::Step::Command(command) => equivalent_of_command(command),
            text::Step::Refused(refused) => refused.outdated.map(|_| Equivalent::SET),
            text::Step::NeedMore { .. } => None,
        }
    }

    fn for_each_key(&self, mut each: impl FnMut(&[u8])) {
        match &self.step {
            text::Step::Command(Command::Get { keys, .. }) => keys.iter().for_each(each),
            text::Step::Command(Command::Store(store)) => each(store.key),
            text::Step::Command(
                Command::Delete { key, .. }
                | Command::Adjust { key, .. }
                | Command::Touch { key, .. },
            ) => each(key),
            text::Step::Command(Command::Meta(request)) => {
                each(request.key(&mut [0; KEY_LEN_MAX]));
            }
            text::Step::Refused(refused) => refused.outdated.into_iter().for_each(each),
            _ => {}
        }
    }

    #[inline]
    fn operation(&self, operations: Operations) -> Option<Operation> {
        match &self.step {
            text::Step::Command(command) => Some(of_command(command).operation(operations)),
            _ => None,
        }
    }

    fn words(&self) -> Vec<Cow<'_, [u8]>> {
        match &self.step {
            text::Step::Command(command) => words_of_command(command),
            _ => Vec::new(),
        }
    }
}

impl front_ends::Request for Frame<'_> {
    fn access(&self) -> Option<Access> {
        match &self.step {
            binary::Step::Request(request) => access_of_frame(request),
            binary::Step::TooLarge(request) => access_of_too_large(request),
            _ => None,
        }
    }

    fn for_each_key_read(&self, mut each: impl FnMut(&[u8])) {
        if let binary::Step::Request(request) = &self.step
            && reads_value(request.opcode)
        {
            each(request.key);
        }
    }

    fn equivalent(&self) -> Option<Equivalent> {
        match &self.step {
            binary::Step::Request(request) => equivalent_of_frame(request),
            binary::Step::TooLarge(request) => {
                access_of_too_large(request).map(|_| Equivalent::SET)
            }
            _ => None,
        }
    }

    fn for_each_key(&self, mut each: impl FnMut(&[u8])) {
        if let binary::Step::Request(request) | binary::Step::TooLarge(request) = &self.step {
            each(request.key);
        }
    }

    #[inline]
    fn operation(&self, operations: Operations) -> Option<Operation> {
        match &self.step {
            binary::Step::Request(request) => {
                Some(of_opcode(request.opcode)?.operation(operations))
            }
            _ => None,
        }
    }

    fn words(&self) -> Vec<Cow<'_, [u8]>> {
        match &self.step {
            binary::Step::Request(request) => words_of_frame(request),
            _ => Vec::new(),
        }
    }
}

/// Executor of lines with these keys.
struct Lines<'r, 'q, 'a, 'k> {
    run: &'r mut Run<'a, 'k>,
    keys: &'r [Key<'q>],
}

impl<'q, 'a, 'k> Runner<'a, 'k> for Lines<'_, 'q, 'a, 'k> {
    type Request = Line<'q>;

    #[inline]
    fn parts(&mut self) -> (&mut Stages<'k>, &mut Guard<'a, 'k>, &mut Waits, &Client) {
        self.run.parts()
    }

    #[inline]
    fn may(&mut self) -> bool {
        self.run.may()
    }

    #[inline]
    fn rights(&self) -> &Rights {
        &self.run.session.rights
    }

    fn authenticates(&mut self, line: &Line<'q>) -> bool {
        matches!(line.step, text::Step::Command(Command::Store(_))) && !self.run.may()
    }

    fn attempt_waits(&mut self, line: &Line<'q>) -> Option<i64> {
        let text::Step::Command(Command::Store(store)) = &line.step else { return None };
        self.run.attempt_waits(Credentials::of_words(store.data)?)
    }

    #[inline]
    fn first_key(&self, line: &Line<'q>) -> Option<KeyHash> {
        line.hash
    }

    #[inline(always)]
    fn run(&mut self, line: &Line<'q>) -> Result<(), Busy> {
        match &line.step {
            text::Step::Command(command) => {
                let keys = &self.keys[line.keys.start as usize..line.keys.end as usize];
                self.run.command(command, keys);
            }
            text::Step::Refused(refused) => self.run.refuse(refused),
            text::Step::NeedMore { .. } => {}
        }
        self.run.take_busy()
    }

    #[inline]
    fn closing(&self) -> bool {
        self.run.closing
    }
}

/// Executor of frames.
struct Frames<'r, 'q, 'a, 'k> {
    run: &'r mut Run<'a, 'k>,
    frames: PhantomData<Frame<'q>>,
}

impl<'q, 'a, 'k> Runner<'a, 'k> for Frames<'_, 'q, 'a, 'k> {
    type Request = Frame<'q>;

    #[inline]
    fn parts(&mut self) -> (&mut Stages<'k>, &mut Guard<'a, 'k>, &mut Waits, &Client) {
        self.run.parts()
    }

    #[inline]
    fn may(&mut self) -> bool {
        self.run.may()
    }

    #[inline]
    fn rights(&self) -> &Rights {
        &self.run.session.rights
    }

    fn authenticates(&mut self, frame: &Frame<'q>) -> bool {
        frame.authenticates()
    }

    fn attempt_waits(&mut self, frame: &Frame<'q>) -> Option<i64> {
        let binary::Step::Request(request) = &frame.step else { return None };
        self.run.attempt_waits(Credentials::of_plain(request.value)?)
    }

    #[inline]
    fn first_key(&self, frame: &Frame<'q>) -> Option<KeyHash> {
        // The key of an authentication is the name of its mechanism.
        let is_key = !frame.key.bytes().is_empty() && !frame.authenticates();
        is_key.then(|| frame.key.hash())
    }

    #[inline(always)]
    fn run(&mut self, frame: &Frame<'q>) -> Result<(), Busy> {
        match &frame.step {
            binary::Step::Request(request) => self.run.frame(request, frame.key),
            binary::Step::TooLarge(request) => self.run.too_large(request),
            &binary::Step::Broken { opaque, opcode } => self.run.broken(opaque, opcode),
            binary::Step::NoRequest => self.run.closing = true,
            binary::Step::NeedMore { .. } => {}
        }
        self.run.take_busy()
    }

    #[inline]
    fn closing(&self) -> bool {
        self.run.closing
    }
}

/// Continues a reply that is being written. Until it is complete, the session returns here.
#[cold]
fn dump(
    server: Host<'_>,
    session: &mut Session,
    locks: &mut ShardLocks<'_>,
    io: &mut Io<'_>,
) -> Option<Flow> {
    let now_ms = io.now().unix_ms as i64;
    let (admission, mut guard) =
        (Admission::read_for_all(server.kernel, now_ms), Guard::new(locks));
    match front_ends::admit(&admission, server.kernel, &mut guard, Some(Access::READ)) {
        Ok(()) => {}
        Err(Barred::Held(deferral)) => {
            return Some(hold(&mut session.waits, server.kernel, deferral, io));
        }
        Err(Barred::Refused(fault)) => {
            return end_dump(session, fault, io);
        }
    }
    let (dump, db) = (session.dump.as_mut()?, server.memcached.db);
    let progress = dump.advance(&mut guard, db, now_ms, io.output());
    locks.release();
    match progress {
        Progress::Done => {
            session.dump = None;
            None
        }
        Progress::NextTurn => Some(Flow::Yield),
        Progress::WhenFree(busy) if front_ends::is_held_by_program(server.kernel, busy) => {
            end_dump(session, Fault::Busy, io)
        }
        Progress::WhenFree(busy) => Some(hold(&mut session.waits, server.kernel, busy.into(), io)),
        Progress::WhenRead => {
            session.waits.retry_after(Obstacle::Reader, Patience::Ms(DUMP_PAUSE_MS));
            Some(suspend(&session.waits, io))
        }
    }
}

/// Writes an error in place of the end of the reply.
fn end_dump(session: &mut Session, fault: Fault, io: &mut Io<'_>) -> Option<Flow> {
    session.dump = None;
    let line = format!("SERVER_ERROR {}\r\n", refusal_text(fault));
    io.output().buffer().extend_from_slice(line.as_bytes());
    None
}

/// Returns true if a request with this code reads the present value.
fn reads_value(code: u8) -> bool {
    use binary::opcode::{
        ADD, ADDQ, DELETE, DELETEQ, REPLACE, REPLACEQ, SASL_AUTH, SASL_STEP, SET, SETQ, STAT, TOUCH,
    };
    let overwrites = [SET, SETQ, ADD, ADDQ, REPLACE, REPLACEQ, DELETE, DELETEQ, TOUCH];
    !overwrites.contains(&code) && ![STAT, SASL_AUTH, SASL_STEP].contains(&code)
}

fn limits(server: Host<'_>, session: &Session) -> Limits {
    if !session.authenticated && !server.is_open() {
        return Limits {
            value_len_max: UNAUTHENTICATED_VALUE_LEN_MAX,
            keys_line_len_max: LINE_LEN_MAX,
        };
    }
    let value_len_max = server.config.live().item_size_max() as usize;
    Limits { value_len_max, ..Limits::default() }
}

/// Result of a batch: the reason for its end, and the number of consumed bytes.
type Served = (End, usize);

fn serve_lines<'a>(
    run: &mut Run<'_, '_>,
    memory: &mut BatchMemory,
    parser: &mut text::Parser,
    input: &'a [u8],
    limits: &Limits,
) -> Served {
    // An empty vector of a shorter lifetime is as good as one of a longer lifetime.
    let mut lines: Vec<Line<'a>> = std::mem::take(&mut memory.lines);
    let mut keys: Vec<Key<'a>> = std::mem::take(&mut memory.keys);
    let (begin, mut consumed) = (parser.clone(), 0);
    // The first line may be the authentication.
    let (requests_max, mut end) =
        if run.may() { (REQUESTS_MAX, End::Full) } else { (1, End::OfBatch) };
    while lines.len() < requests_max && keys.len() < KEYS_MAX {
        let keys_start = keys.len() as u32;
        // A step is large: it is moved only once.
        let parsed = parser.next(&input[consumed..], limits);
        consumed += parsed.1;
        let hash = match &parsed.0 {
            text::Step::NeedMore { hint } => {
                end = End::NeedMore(*hint);
                break;
            }
            text::Step::Command(command) => add_keys(run.server, command, &mut keys),
            text::Step::Refused(refused) => {
                refused.outdated.map(|key| run.server.keyspace.hash(key))
            }
        };
        let may_take_turns = matches!(parsed.0, text::Step::Command(Command::Admin { .. }));
        lines.push(Line { step: parsed.0, keys: keys_start..keys.len() as u32, hash });
        if may_take_turns {
            end = End::OfBatch;
            break;
        }
    }
    prefetch(&mut run.guard, run.stages.db, keys.iter().copied());
    let (through, stop) = lead(&mut Lines { run, keys: &keys }, &lines, 0..lines.len());
    if let Some(stop) = stop {
        *parser = begin;
        consumed = (0..through).fold(0, |at, _| at + parser.next(&input[at..], limits).1);
        end = End::Stopped(stop);
    }
    (memory.lines, memory.keys) = (recycle(lines), recycle(keys));
    (end, consumed)
}

/// Adds the keys of a command with their hashes, and returns the hash of the first one. A key in base64 is not added,
/// because the input does not contain its decoded bytes.
#[inline]
fn add_keys<'a>(
    server: Host<'_>,
    command: &Command<'a>,
    keys: &mut Vec<Key<'a>>,
) -> Option<KeyHash> {
    let key = match command {
        Command::Get { keys: all, .. } => {
            let first = keys.len();
            keys.extend(all.iter().map(|key| server.keyspace.key(key)));
            return keys.get(first).map(|key| key.hash());
        }
        Command::Store(store) => store.key,
        Command::Delete { key, .. } | Command::Adjust { key, .. } | Command::Touch { key, .. } => {
            key
        }
        Command::Meta(request) if request.options.base64 => {
            return Some(server.keyspace.hash(request.key(&mut [0; KEY_LEN_MAX])));
        }
        Command::Meta(request) => request.key_text,
        _ => return None,
    };
    let key = server.keyspace.key(key);
    keys.push(key);
    Some(key.hash())
}

fn serve_frames<'a>(
    run: &mut Run<'_, '_>,
    memory: &mut BatchMemory,
    parser: &mut binary::Parser,
    input: &'a [u8],
    limits: &Limits,
) -> Served {
    let mut frames: Vec<Frame<'a>> = std::mem::take(&mut memory.frames);
    let (begin, mut consumed) = (parser.clone(), 0);
    let (requests_max, mut end) =
        if run.may() { (REQUESTS_MAX, End::Full) } else { (1, End::OfBatch) };
    while frames.len() < requests_max {
        let (step, len) = parser.next(&input[consumed..], limits);
        consumed += len;
        let key = match step {
            binary::Step::NeedMore { hint } => {
                end = End::NeedMore(hint);
                break;
            }
            binary::Step::Request(request) | binary::Step::TooLarge(request) => {
                run.server.keyspace.key(request.key)
            }
            binary::Step::Broken { .. } | binary::Step::NoRequest => run.server.keyspace.key(b""),
        };
        let frame = Frame { step, key };
        frames.push(frame);
        if frame.authenticates() {
            end = End::OfBatch;
            break;
        }
        if matches!(step, binary::Step::Broken { .. } | binary::Step::NoRequest) {
            break;
        }
    }
    prefetch(&mut run.guard, run.stages.db, frames.iter().map(|frame| frame.key));
    let (through, stop) = lead(&mut Frames { run, frames: PhantomData }, &frames, 0..frames.len());
    if let Some(stop) = stop {
        *parser = begin;
        consumed = (0..through).fold(0, |at, _| at + parser.next(&input[at..], limits).1);
        end = End::Stopped(stop);
    }
    memory.frames = recycle(frames);
    (end, consumed)
}
