//! The requests that arrived together on one connection: parsed, prefetched, executed.
//!
//! They are executed in order, except for batches of many Puts and nothing else, as in a bulk load. Those are executed
//! shard by shard, so that several share a lock and a log record. Puts of one key keep their order, and responses come
//! in the order of the requests. A client that needs an order between two keys waits for the first response.

use std::marker::PhantomData;

use tierce_keyspace::{Keyspace, Origin, Source};
use tierce_net::{Flow, Io};
use tierce_wire::pedrokv::{Kind, Request, Step, is_http};

use super::Shared;
use super::run::{Keyed, Puts, Run};
use super::session::Session;
use crate::fetcher::Fetcher;
use crate::front_ends::{self, Stages, Stop, lead, prefetch, recycle};
use crate::kernel::Kernel;
use crate::pipeline::Guard;
use crate::stats::Counters;
use crate::suspend::{hold, suspend};
use crate::turn::Turn;

/// Maximum number of requests parsed before the first of them is executed. Enough for the prefetches of a pipeline to
/// overlap, and few enough for the parsed requests to stay in the L1 cache.
const REQUESTS_MAX: usize = 128;

/// This maximum while all of them are Puts: the more there are, the more share a shard.
const PUTS_MAX: usize = 1 << INDEX_BITS;

/// Number of Puts from which on sorting by shard pays.
const PUTS_MIN: usize = 64;

/// Number of bits of a Put's index in its batch.
const INDEX_BITS: u32 = 10;

/// Memory that the batches of one worker reuse.
#[derive(Default)]
pub struct BatchMemory {
    requests: Vec<Keyed<'static>>,
    order: Vec<u64>,
}

/// Result of parsing the beginning of the input.
struct Parsed {
    end: End,
    /// Number of consumed bytes.
    consumed: usize,
    /// True if every request is a Put.
    only_puts: bool,
}

/// Reason why the parsing of a batch ended.
enum End {
    /// The batch is full.
    Full,
    /// The rest is the beginning of a request, which lacks at least this many bytes.
    NeedMore(usize),
    /// The start of the next request is unknown.
    Broken,
    /// A request has to wait, with all requests behind it.
    Stopped(Stop),
}

/// Executes all complete requests of the input.
pub fn serve(
    kernel: &Kernel,
    shared: &Shared,
    counters: &Counters,
    memory: &mut BatchMemory,
    fetcher: &mut Fetcher,
    session: &mut Session,
    io: &mut Io<'_>,
) -> Flow {
    if session.waits.is_for_reply() {
        return suspend(&session.waits, io);
    }
    session.waits.go_on();
    let now_ms = io.now().unix_ms as i64;
    session.look_whether_it_may(kernel);
    let mut locks = kernel.keyspace.worker_locks(session.client.conn.worker);
    locks.set_origin(Origin { source: Source::PedroKv, client: session.client.id });
    let mut turn = Turn::default();
    loop {
        let (input, output) = io.split();
        let replied_before = output.mark();
        let mut requests = recycle(std::mem::take(&mut memory.requests));
        let puts_max = if session.puts.count > 0 { session.puts.count } else { PUTS_MAX };
        let Parsed { mut end, mut consumed, only_puts } =
            parse(&kernel.keyspace, input, puts_max, &mut requests);
        let goes_by_shard =
            session.puts.count > 0 || only_puts && session.may && requests.len() >= PUTS_MIN;
        let guard = Guard::new(&mut locks);
        let stages = Stages::new(kernel, counters, shared.operations, shared.db, now_ms);
        turn.until(stages.read_nanos());
        let mut run = Run { guard, session, output, stages, requests: PhantomData };
        let stop = if goes_by_shard {
            let order = &mut memory.order;
            order_by_shard(&requests, order);
            put_by_shard(&mut run, &requests, order).map(|stop| (0, stop))
        } else {
            prefetch(&mut run.guard, shared.db, requests.iter().map(|request| request.key));
            let (through, stop) = lead(&mut run, &requests, 0..requests.len());
            stop.map(|stop| (len_of(input, through), stop))
        };
        if let Some((through, stop)) = stop {
            (end, consumed) = (End::Stopped(stop), through);
        }
        memory.requests = recycle(requests);
        io.consume(consumed);
        let Some(barrier) = front_ends::commit(&mut session.waits, kernel, &mut locks) else {
            io.output().truncate(replied_before);
            return Flow::Close;
        };
        let (waits, client) = (&mut session.waits, &session.client);
        if let Some(flow) = front_ends::confirm(waits, kernel, client, io, barrier, false) {
            return flow;
        }
        match end {
            End::Full if io.output().exceeds_limit() => return Flow::Close,
            End::Full if turn.is_over(kernel) && !io.input().is_empty() => return Flow::Yield,
            End::Full => {}
            End::Stopped(Stop::Held(deferral)) => {
                return hold(&mut session.waits, kernel, deferral, io);
            }
            End::Stopped(Stop::Values(wanted)) => {
                return fetcher.fetch(kernel, &mut session.waits, io, wanted);
            }
            End::NeedMore(hint) => {
                if hint > 0 {
                    io.expect(io.input().len() + hint);
                }
                return Flow::Continue;
            }
            End::Broken => {
                if is_http(io.input()) {
                    kernel.log.warning(format_args!(
                        "Closed {}: a request of HTTP on the port for clients of PedroKV",
                        session.client.addr
                    ));
                }
                return Flow::Close;
            }
        }
    }
}

/// Runs the Puts that have not run yet, in the order of their shards, and responds when all have. Returns why they have
/// to wait, if they have to.
fn put_by_shard<'q>(
    run: &mut Run<'_, '_, 'q>,
    requests: &[Keyed<'q>],
    order: &[u64],
) -> Option<Stop> {
    let rest = &order[run.session.puts.done..];
    let db = run.stages.db;
    prefetch(&mut run.guard, db, rest.iter().map(|at| requests[place(*at)].key));
    let (_, stop) = lead(&mut Puts(run), requests, rest.iter().map(|at| place(*at)));
    match stop {
        Some(_) => run.session.puts.count = requests.len(),
        None => run.respond_to_puts(requests, order),
    }
    stop
}

/// Parses the requests of one batch: up to `puts_max`, if all of them are Puts.
fn parse<'a>(
    keyspace: &Keyspace,
    input: &'a [u8],
    puts_max: usize,
    requests: &mut Vec<Keyed<'a>>,
) -> Parsed {
    let (mut consumed, mut only_puts) = (0, true);
    let end = loop {
        if requests.len() == if only_puts { puts_max } else { REQUESTS_MAX } {
            break End::Full;
        }
        match Request::read(&input[consumed..]) {
            // A Put after so many others may be followed by more; any other request begins a new batch.
            Step::Frame { frame, .. }
                if requests.len() >= REQUESTS_MAX && frame.kind != Kind::Put =>
            {
                break End::Full;
            }
            Step::Frame { frame, len } => {
                consumed += len;
                only_puts &= frame.kind == Kind::Put;
                let Request { kind, id, key, value } = frame;
                requests.push(Keyed { kind, id, key: keyspace.key(key), value });
            }
            Step::NeedMore { hint } => break End::NeedMore(hint),
            Step::Broken => break End::Broken,
        }
    };
    Parsed { end, consumed, only_puts }
}

/// Returns the length of the first this many requests of an input, which has them all.
#[cold]
fn len_of(input: &[u8], requests: usize) -> usize {
    (0..requests).fold(0, |at, _| match Request::read(&input[at..]) {
        Step::Frame { len, .. } => at + len,
        Step::NeedMore { .. } | Step::Broken => unreachable!("it was parsed before"),
    })
}

/// Computes the order of the requests by their hashes, whose upper bits are the shard. The index takes the lowest bits,
/// so that requests of one key stay in order.
fn order_by_shard(requests: &[Keyed<'_>], order: &mut Vec<u64>) {
    order.clear();
    order.extend(requests.iter().enumerate().map(|(index, request)| {
        request.key.hash().ascending() >> INDEX_BITS << INDEX_BITS | index as u64
    }));
    order.sort_unstable();
}

pub(super) fn place(at: u64) -> usize {
    (at & (PUTS_MAX as u64 - 1)) as usize
}
