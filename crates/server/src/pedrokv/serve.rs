//! The requests that arrived together on one connection: parsed, prefetched, executed.
//!
//! They are executed in order, but for many Puts and nothing else, which is how a store is filled: those
//! go shard by shard, so that a lock and a record of the log serve several. Nobody can tell, since
//! the order of Puts of one key stays, and who cares for the order of two keys waits for the response to
//! the first. The responses come in the order of the requests.

use tierce_keyspace::{Keyspace, Locker};
use tierce_net::{Flow, Io};
use tierce_wire::pedrokv::{Kind, Request, Step, is_http};

use super::run::{Keyed, Run};
use super::session::Session;
use crate::fetch::Fetcher;
use crate::foreign::{prefetch, recycle};
use crate::server::Server;
use crate::stats::{Counters, Stat};

/// Requests parsed before the first of them is executed. Enough for the prefetches of a pipeline to
/// overlap, and few enough for what is parsed to stay in the first-level cache.
const REQUESTS_MAX: usize = 128;

/// The same as long as all of them are Puts: the more there are, the more go to the same shard.
const PUTS_MAX: usize = 1 << PLACE_BITS;

/// So many Puts are worth being put in order.
const PUTS_MIN: usize = 64;

/// Bits of a place among the Puts of a batch.
const PLACE_BITS: u32 = 10;

/// Memory that the batches of one worker use one after the other.
#[derive(Default)]
pub struct BatchMemory {
    requests: Vec<Keyed<'static>>,
    order: Vec<u64>,
}

/// What was found at the beginning of the input.
struct Parsed {
    end: End,
    /// Bytes that are done with.
    consumed: usize,
    /// Every request is a Put.
    only_puts: bool,
}

/// What ended the parsing of a batch.
enum End {
    /// There is more.
    Full,
    /// The rest is the beginning of a request, which lacks at least so many bytes.
    NeedMore(usize),
    /// Nobody knows where the next request begins.
    Broken,
}

/// Executes all complete requests of the input.
pub fn serve(
    server: &Server,
    counters: &Counters,
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
    let db = server.pedrokv_db;
    let may = session.may(server);
    let mut locker = server.keyspace.locker();
    loop {
        if server.keyspace.has_spilled()
            && let Some(flow) = fetch(server, fetcher, session, &mut locker, io)
        {
            return flow;
        }
        let (input, output) = io.split();
        let replied_before = output.mark();
        let mut requests = recycle(std::mem::take(&mut memory.requests));
        let Parsed { end, consumed, only_puts } = parse(&server.keyspace, input, &mut requests);
        let goes_by_shard = only_puts && may && requests.len() >= PUTS_MIN;
        if goes_by_shard {
            order_by_shard(&requests, &mut memory.order);
            let keys = memory.order.iter().map(|at| requests[place(*at)].key);
            prefetch(&mut locker, db, keys);
        } else {
            let keys = requests.iter().map(|request| request.key);
            prefetch(&mut locker, db, keys);
        }
        let mut run = Run {
            server,
            locker: &mut locker,
            output,
            db,
            now_ms,
            may,
            refuses_writes: server.durability.refuses_writes(),
            is_limited: server.keyspace.has_memory_limit(),
        };
        if goes_by_shard {
            run.puts(&requests, memory.order.iter().map(|at| place(*at)));
        } else {
            requests.iter().for_each(|request| run.request(request));
        }
        counters.add(Stat::Commands, requests.len() as u64);
        memory.requests = recycle(requests);
        io.consume(consumed);
        // Nobody else shall wait for this shard while responses are sent.
        locker.release();
        if locker.take_logged() && !session.waits.note_logged(server) {
            io.output().truncate(replied_before);
            return Flow::Close;
        }
        match end {
            End::Full if io.output().exceeds_limit() => return Flow::Close,
            End::Full => {}
            End::NeedMore(hint) => {
                if hint > 0 {
                    io.expect(io.input().len() + hint);
                }
                return Flow::Continue;
            }
            End::Broken => {
                if is_http(io.input()) {
                    server.log.warning(format_args!(
                        "Closed {}: a request of HTTP on the port for clients of PedroKV",
                        session.client.addr
                    ));
                }
                return Flow::Close;
            }
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
    io: &Io<'_>,
) -> Option<Flow> {
    let mut requests = Vec::new();
    parse(&server.keyspace, io.input(), &mut requests);
    let reads = requests.iter().filter(|request| request.kind == Kind::Get);
    let keys = reads.map(|request| request.key.bytes());
    session.waits.for_values(server, fetcher, locker, server.pedrokv_db, keys, io)
}

/// Finds the requests of one batch.
fn parse<'a>(keyspace: &Keyspace, input: &'a [u8], requests: &mut Vec<Keyed<'a>>) -> Parsed {
    let (mut consumed, mut only_puts) = (0, true);
    let end = loop {
        if requests.len() == if only_puts { PUTS_MAX } else { REQUESTS_MAX } {
            break End::Full;
        }
        match Request::read(&input[consumed..]) {
            // A Put after so many others may have company behind it; anything else begins a new batch.
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

/// The places of the requests by their hashes, of which the upper bits are the shard. A place takes the
/// lowest bits, so that requests of one key stay in order.
fn order_by_shard(requests: &[Keyed<'_>], order: &mut Vec<u64>) {
    order.clear();
    order.extend(requests.iter().enumerate().map(|(place, request)| {
        request.key.hash().ascending() >> PLACE_BITS << PLACE_BITS | place as u64
    }));
    order.sort_unstable();
}

fn place(at: u64) -> usize {
    (at & (PUTS_MAX as u64 - 1)) as usize
}
