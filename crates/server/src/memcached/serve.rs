//! The requests that arrived together on one connection: parsed, prefetched, executed in order.

use tierce_keyspace::{Key, Locker};
use tierce_net::{Flow, Io, OnHangup};
use tierce_wire::memcached::text::Command;
use tierce_wire::memcached::{BINARY_MAGIC, LINE_LEN_MAX, Limits, binary, meta, text};

use super::counters::Count;
use super::dump::Progress;
use super::run::Run;
use super::session::{Language, Session};
use crate::clients::output_class;
use crate::fetch::Fetcher;
use crate::foreign::{prefetch, recycle};
use crate::server::Server;
use crate::stats::Stat;

/// Requests parsed before the first of them is executed. Enough for the prefetches of a pipeline to
/// overlap, and few enough for what is parsed to stay in the first-level cache.
pub const REQUESTS_MAX: usize = 64;

/// No more requests are parsed once a batch has so many keys.
const KEYS_MAX: usize = 256;

/// How long a dump waits for a client that does not read, before it looks again.
const DUMP_PAUSE_MS: u64 = 10;

/// The longest value of somebody who has not said the password, which is the password.
const UNAUTHENTICATED_VALUE_LEN_MAX: usize = 1024;

/// Memory that the batches of one worker use one after the other.
#[derive(Default)]
pub struct BatchMemory {
    lines: Vec<Line<'static>>,
    frames: Vec<Frame<'static>>,
    keys: Vec<Key<'static>>,
}

/// A line and its part of the batch's keys.
#[derive(Clone, Copy)]
struct Line<'a> {
    step: text::Step<'a>,
    keys_end: usize,
}

/// A frame and its key, which is empty if it has none.
#[derive(Clone, Copy)]
struct Frame<'a> {
    step: binary::Step<'a>,
    key: Key<'a>,
}

/// What ended the parsing of a batch.
enum End {
    /// There is more.
    Full,
    /// What follows has to wait until what was parsed has run.
    OfBatch,
    /// The rest is the beginning of a request, which lacks at least so many bytes.
    NeedMore(usize),
}

/// Executes all complete requests of the input.
pub fn serve(
    server: &Server,
    worker: usize,
    memory: &mut BatchMemory,
    fetcher: &mut Fetcher,
    session: &mut Session,
    io: &mut Io<'_>,
) -> Flow {
    session.waits.fetches.underway = false;
    if let Some(flow) = session.waits.for_pause(server, io) {
        return flow;
    }
    if let Some(flow) = session.waits.for_device(server, io) {
        return flow;
    }
    if let Some(flow) = session.waits.for_room(server, io) {
        return flow;
    }
    let now_ms = io.now().unix_ms as i64;
    if let Language::Unknown = session.language {
        session.language = match io.input().first() {
            None => return Flow::Continue,
            Some(&BINARY_MAGIC) => Language::Binary(binary::Parser::default()),
            Some(_) => Language::Text(text::Parser::default()),
        };
    }
    let mut locker = server.keyspace.locker();
    loop {
        if session.dump.is_some()
            && let Some(flow) = dump(server, session, &mut locker, io)
        {
            return flow;
        }
        let limits = limits(server, session);
        if server.keyspace.has_spilled()
            && let Some(flow) = fetch(server, fetcher, session, &mut locker, &limits, io)
        {
            return flow;
        }
        let (input, output) = io.split();
        let replied_before = output.mark();
        let mut run = Run {
            server,
            session: &mut *session,
            locker: &mut locker,
            output,
            counters: server.memcached.counters(worker),
            db: server.memcached.db,
            now_ms,
            refuses_writes: server.durability.refuses_writes(),
            is_limited: server.keyspace.has_memory_limit(),
            detailed: server.memcached.prefixes.is_on(),
            closing: false,
        };
        let (end, consumed, requests) = match run.session.language {
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
        server.counters(worker).add(Stat::Commands, requests as u64);
        io.consume(consumed);
        // Nobody else shall wait for this shard while replies are sent.
        locker.release();
        if locker.take_logged() && !session.waits.note_logged(server) {
            io.output().truncate(replied_before);
            return Flow::Close;
        }
        match end {
            _ if closing => return Flow::Close,
            End::Full => server.memcached.counters(worker).add(Count::Yields, 1),
            End::OfBatch => {}
            End::NeedMore(hint) => {
                if hint > 0 {
                    io.expect(io.input().len() + hint);
                }
                return Flow::Continue;
            }
        }
        // One of these may have been the password.
        if session.authenticated {
            io.set_output_class(output_class(true));
        }
        if io.output().exceeds_limit() {
            return Flow::Close;
        }
    }
}

/// Goes on with the reply that is being written; until it is complete the session is to come back this
/// way.
#[cold]
fn dump(
    server: &Server,
    session: &mut Session,
    locker: &mut Locker<'_>,
    io: &mut Io<'_>,
) -> Option<Flow> {
    let now_ms = io.now().unix_ms as i64;
    let progress = session.dump.as_mut()?.advance(locker, server.memcached.db, now_ms, io.output());
    locker.release();
    match progress {
        Progress::Done => {
            session.dump = None;
            None
        }
        Progress::NextTurn => Some(Flow::Yield),
        Progress::WhenRead => {
            session.waits.held = true;
            io.set_timer(io.now().monotonic_ms + DUMP_PAUSE_MS);
            Some(Flow::Suspend(OnHangup::Wait))
        }
    }
}

/// Whether the session has to wait for values on disk: then it is to be suspended this way, and the
/// requests are parsed again afterwards.
#[cold]
fn fetch(
    server: &Server,
    fetcher: &mut Fetcher,
    session: &mut Session,
    locker: &mut Locker<'_>,
    limits: &Limits,
    io: &Io<'_>,
) -> Option<Flow> {
    let keys = match &session.language {
        Language::Text(parser) => text_keys(parser.clone(), io.input(), limits),
        Language::Binary(parser) => binary_keys(parser.clone(), io.input(), limits),
        Language::Unknown => return None,
    };
    session.waits.for_values(server, fetcher, locker, server.memcached.db, keys.into_iter(), io)
}

/// The keys of the next batch of lines whose values are needed.
fn text_keys<'a>(mut parser: text::Parser, input: &'a [u8], limits: &Limits) -> Vec<&'a [u8]> {
    let (mut keys, mut consumed) = (Vec::new(), 0);
    for _ in 0..REQUESTS_MAX {
        let (step, len) = parser.next(&input[consumed..], limits);
        consumed += len;
        match step {
            text::Step::NeedMore { .. } => break,
            text::Step::Command(Command::Get { keys: all, .. }) => keys.extend(all.iter()),
            text::Step::Command(Command::Store(store))
                if matches!(store.mode, text::Mode::Append | text::Mode::Prepend) =>
            {
                keys.push(store.key);
            }
            text::Step::Command(Command::Adjust { key, .. }) => keys.push(key),
            text::Step::Command(Command::Meta(request)) if !request.options.base64 => {
                let reads = match request.verb {
                    // In all modes but two it overwrites what is there.
                    meta::Verb::Set(_) => request.flags.contains(&b'M'),
                    verb => verb != meta::Verb::Delete,
                };
                keys.extend(reads.then_some(request.key_text));
            }
            text::Step::Command(_) | text::Step::Refused(_) => {}
        }
        if keys.len() >= KEYS_MAX {
            break;
        }
    }
    keys
}

/// Whether a request with this code looks at the value there is.
fn reads_value(code: u8) -> bool {
    use binary::opcode::{
        ADD, ADDQ, DELETE, DELETEQ, REPLACE, REPLACEQ, SASL_AUTH, SASL_STEP, SET, SETQ, STAT, TOUCH,
    };
    let overwrites = [SET, SETQ, ADD, ADDQ, REPLACE, REPLACEQ, DELETE, DELETEQ, TOUCH];
    !overwrites.contains(&code) && ![STAT, SASL_AUTH, SASL_STEP].contains(&code)
}

/// The same for frames.
fn binary_keys<'a>(mut parser: binary::Parser, input: &'a [u8], limits: &Limits) -> Vec<&'a [u8]> {
    let (mut keys, mut consumed) = (Vec::new(), 0);
    for _ in 0..REQUESTS_MAX {
        let (step, len) = parser.next(&input[consumed..], limits);
        consumed += len;
        match step {
            binary::Step::NeedMore { .. }
            | binary::Step::Broken { .. }
            | binary::Step::NoRequest => break,
            binary::Step::Request(request) if reads_value(request.opcode) => keys.push(request.key),
            binary::Step::Request(_) | binary::Step::TooLarge(_) => {}
        }
    }
    keys
}

fn limits(server: &Server, session: &Session) -> Limits {
    if !session.authenticated && !server.is_open() {
        return Limits {
            value_len_max: UNAUTHENTICATED_VALUE_LEN_MAX,
            keys_line_len_max: LINE_LEN_MAX,
        };
    }
    let value_len_max = server.config.live().item_size_max() as usize;
    Limits { value_len_max, ..Limits::default() }
}

/// What a batch came to: why it ended, bytes done with, requests.
type Served = (End, usize, usize);

fn serve_lines<'a>(
    run: &mut Run<'_, '_>,
    memory: &mut BatchMemory,
    parser: &mut text::Parser,
    input: &'a [u8],
    limits: &Limits,
) -> Served {
    // An empty vector of a shorter life is as good as one of a longer life.
    let mut lines: Vec<Line<'a>> = std::mem::take(&mut memory.lines);
    let mut keys: Vec<Key<'a>> = std::mem::take(&mut memory.keys);
    let mut consumed = 0;
    // The first line may be the one that says the password.
    let (requests_max, mut end) =
        if run.may() { (REQUESTS_MAX, End::Full) } else { (1, End::OfBatch) };
    while lines.len() < requests_max && keys.len() < KEYS_MAX {
        let (step, len) = parser.next(&input[consumed..], limits);
        consumed += len;
        match &step {
            text::Step::NeedMore { hint } => {
                end = End::NeedMore(*hint);
                break;
            }
            text::Step::Command(command) => add_keys(run.server, command, &mut keys),
            text::Step::Refused(_) => {}
        }
        let may_take_turns = matches!(step, text::Step::Command(Command::Admin { .. }));
        lines.push(Line { step, keys_end: keys.len() });
        if may_take_turns {
            end = End::OfBatch;
            break;
        }
    }
    prefetch(run.locker, run.db, keys.iter().copied());
    let mut keys_start = 0;
    for line in &lines {
        let line_keys = &keys[keys_start..line.keys_end];
        keys_start = line.keys_end;
        match &line.step {
            text::Step::Command(command) => run.command(command, line_keys),
            text::Step::Refused(refused) => run.refuse(refused),
            text::Step::NeedMore { .. } => {}
        }
        if run.closing {
            break;
        }
    }
    let requests = lines.len();
    (memory.lines, memory.keys) = (recycle(lines), recycle(keys));
    (end, consumed, requests)
}

/// The keys of a command with their hashes; a meta command with a key in base64 has none here.
fn add_keys<'a>(server: &Server, command: &Command<'a>, keys: &mut Vec<Key<'a>>) {
    let key = match command {
        Command::Get { keys: all, .. } => {
            keys.extend(all.iter().map(|key| server.keyspace.key(key)));
            return;
        }
        Command::Store(store) => store.key,
        Command::Delete { key, .. } | Command::Adjust { key, .. } | Command::Touch { key, .. } => {
            key
        }
        Command::Meta(request) if !request.options.base64 => request.key_text,
        _ => return,
    };
    keys.push(server.keyspace.key(key));
}

fn serve_frames<'a>(
    run: &mut Run<'_, '_>,
    memory: &mut BatchMemory,
    parser: &mut binary::Parser,
    input: &'a [u8],
    limits: &Limits,
) -> Served {
    let mut frames: Vec<Frame<'a>> = std::mem::take(&mut memory.frames);
    let mut keys: Vec<Key<'a>> = std::mem::take(&mut memory.keys);
    let mut consumed = 0;
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
        keys.push(key);
        frames.push(Frame { step, key });
        if matches!(step, binary::Step::Broken { .. } | binary::Step::NoRequest) {
            break;
        }
    }
    prefetch(run.locker, run.db, keys.iter().copied());
    keys.clear();
    for frame in &frames {
        match &frame.step {
            binary::Step::Request(request) => run.frame(request, frame.key),
            binary::Step::TooLarge(request) => run.too_large(request),
            &binary::Step::Broken { opaque, opcode } => run.broken(opaque, opcode),
            binary::Step::NoRequest => run.closing = true,
            binary::Step::NeedMore { .. } => {}
        }
        if run.closing {
            break;
        }
    }
    let requests = frames.len();
    (memory.frames, memory.keys) = (recycle(frames), recycle(keys));
    (end, consumed, requests)
}
