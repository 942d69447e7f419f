//! Limits of clients.

use super::super::directive::{Directive, row};
use super::super::kind::{Kind, LONG};

/// Lower bound of the limits of requests and query buffers.
const REQUEST_LIMIT_MIN: u64 = 1 << 20;

#[rustfmt::skip]
pub(super) const ROWS: &[Directive] = &[
    row("maxclients", Kind::Int(1, u32::MAX as i64), "10000",
        "Maximum number of connections. Further ones get an error and are closed."),
    row("max-new-connections-per-address", Kind::Int(0, 10_000), "0",
        "Connections a second that one address may open, of all protocols but HTTP; a silent address may open as many at \
         once. Further ones get an error and are closed, before TLS. IPv6 counts by network of 64 bits. 0: no limit.")
        .own("0.1.0"),
    // The hard limit must allow one reply of the largest value (512 MiB), or it could not be read.
    row("client-output-buffer-limit", Kind::OutputLimits,
        "normal 1gb 256mb 60 replica 256mb 64mb 60 pubsub 32mb 8mb 60",
        "Bytes of unread replies per client: hard limit, soft limit, and the seconds for which the soft limit may be \
         exceeded. 0: no limit.")
        .redis("normal 0 0 0 replica 256mb 64mb 60 pubsub 32mb 8mb 60"),
    row("client-query-buffer-limit", Kind::Memory(REQUEST_LIMIT_MIN, i64::MAX as u64), "1gb",
        "Maximum bytes of one request. A client that sends more is disconnected."),
    row("client-pending-results", Kind::Int(0, 1_000_000), "1024",
        "Results of NB* commands that one client may wait for. 0: none, so that these commands wait for nothing.")
        .own("0.1.0"),
    row("proto-max-bulk-len", Kind::Memory(REQUEST_LIMIT_MIN, tierce_keyspace::VALUE_LEN_MAX as u64), "512mb",
        "Maximum bytes of one argument of a request, and so of one value."),
    row("maxmemory-clients", Kind::MemoryOrPercent, "0",
        "Memory of all clients together, of all protocols, in bytes or percent of maxmemory. Beyond that, the client \
         that occupies most is closed, unless it has set `CLIENT NO-EVICT on`. At least 128 KiB. 0: no limit."),
    row("tracking-table-max-keys", LONG, "1000000",
        "Keys remembered for client-side caching. Beyond that, clients are told to invalidate some. \
         0: no limit."),
];
