//! Memory limits and eviction.

use super::super::directive::{Directive, row};
use super::super::kind::{COUNT_OR_SIZE, INT_MAX, Kind};

const POLICIES: Kind = Kind::Word(&[
    "volatile-lru",
    "volatile-lfu",
    "volatile-lrm",
    "volatile-random",
    "volatile-ttl",
    "allkeys-lru",
    "allkeys-lfu",
    "allkeys-lrm",
    "allkeys-random",
    "noeviction",
    "spill",
]);

#[rustfmt::skip]
pub(super) const ROWS: &[Directive] = &[
    row("maxmemory", Kind::Memory(0, u64::MAX), "0",
        "Memory for the data. 0: no limit. `maxmemory-policy` says what happens at the limit. Code that clients keep \
         counts, and is refused beyond half of it; connection buffers and the program itself do not."),
    row("maxmemory-policy", POLICIES, "noeviction",
        "Keys to evict at the limit: nothing (writes fail), or keys by last use (`lru`), last change (`lrm`, as in \
         Redis 8.6), frequency, deadline or at random. \
         `spill` evicts nothing: values that have not been used for long move to disk."),
    row("spill-reads", Kind::Word(&["auto", "io_uring", "threads"]), "auto",
        "Driver for reading spilled values: io_uring, or by threads. `auto` takes io_uring where it works.")
        .own("0.1.0")
        .before_start(),
    row("spill-lost-values", Kind::Word(&["refuse", "accept"]), "refuse",
        "Action at the start if files of spilled values that the log refers to are missing or too short: refuse \
         to start, or start and answer errors for the keys concerned.")
        .own("0.1.0")
        .before_start(),
    row("maxmemory-samples", Kind::Int(1, INT_MAX), "5",
        "Keys sampled for each eviction, in units of eight. More is more exact and slower."),
    row("maxmemory-eviction-tenacity", Kind::Int(0, 100), "10",
        "Latency that eviction may cost a command, from 0 (little) to 100 (any)."),
    row("lfu-log-factor", COUNT_OR_SIZE, "10",
        "Number of hits after which a key counts as more frequent."),
    row("lfu-decay-time", COUNT_OR_SIZE, "1",
        "Minutes after which a key counts as less frequent. 0: never."),
    row("lazyfree-lazy-user-flush", Kind::Bool, "no",
        "Let FLUSHALL and FLUSHDB work in the background unless they say SYNC."),
    row("activedefrag", Kind::Bool, "no",
        "Move values to give fragmented memory back.")
        .refused(&[],
            "values are not moved; MEMORY PURGE gives back what is free"),
];
