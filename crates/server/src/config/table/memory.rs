//! What is kept in memory, and for how long.

use super::super::directive::{Directive, row};
use super::super::kind::Kind;
use super::{COUNT_OR_SIZE, INT_MAX};

const POLICIES: Kind = Kind::Word(&[
    "volatile-lru",
    "volatile-lfu",
    "volatile-random",
    "volatile-ttl",
    "allkeys-lru",
    "allkeys-lfu",
    "allkeys-random",
    "noeviction",
    "spill",
]);

#[rustfmt::skip]
pub(super) const ROWS: &[Directive] = &[
    row("maxmemory", Kind::Memory(0, u64::MAX), "0",
        "Memory for the data; 0 is no limit. What happens at the limit says `maxmemory-policy`. \
         Buffers of connections do not count, nor does the program itself."),
    row("maxmemory-policy", POLICIES, "noeviction",
        "What to give up at the limit: nothing (writes fail), or keys by age, frequency, expiry \
         or chance. `spill` gives up nothing: values that were not used for long go to disk."),
    row("spill-reads", Kind::Word(&["auto", "io_uring", "threads"]), "auto",
        "Who reads values from disk that clients wait for: the kernel by io_uring, or threads. `auto` \
         takes io_uring where it works.")
        .before_start(),
    row("spill-lost-values", Kind::Word(&["refuse", "accept"]), "refuse",
        "What to do at the start if files of spilled values are missing or too short that the log refers \
         to: refuse to start, or start and answer errors for the keys concerned.")
        .before_start(),
    row("maxmemory-samples", Kind::Int(1, INT_MAX), "5",
        "Keys to look at in order to evict one, in units of eight. More is more exact and slower."),
    row("maxmemory-eviction-tenacity", Kind::Int(0, 100), "10",
        "How much latency eviction may cost a command, from 0 (little) to 100 (any)."),
    row("lfu-log-factor", COUNT_OR_SIZE, "10",
        "How many hits it takes to count a key as more frequent."),
    row("lfu-decay-time", COUNT_OR_SIZE, "1",
        "Minutes after which a key counts as less frequent. 0: never."),
    row("lazyfree-lazy-eviction", Kind::Bool, "no",
        "Free evicted values in the background.")
        .accepted("Large values are always freed in the background."),
    row("lazyfree-lazy-expire", Kind::Bool, "no",
        "Free expired values in the background.")
        .accepted("Large values are always freed in the background."),
    row("lazyfree-lazy-server-del", Kind::Bool, "no",
        "Free values that a command replaces (RENAME, SET) in the background.")
        .accepted("Large values are always freed in the background."),
    row("lazyfree-lazy-user-del", Kind::Bool, "no",
        "Let DEL free values in the background, as UNLINK does.")
        .accepted("DEL and UNLINK do the same."),
    row("lazyfree-lazy-user-flush", Kind::Bool, "no",
        "Let FLUSHALL and FLUSHDB work in the background unless they say SYNC."),
    row("active-expire-effort", Kind::Int(1, 10), "1",
        "How hard Redis looks for expired keys.")
        .accepted("Every key is removed at its deadline, without looking for it."),
    row("activerehashing", Kind::Bool, "yes",
        "Rehash idle tables bit by bit.")
        .accepted("The index never rehashes as a whole."),
    row("activedefrag", Kind::Bool, "no",
        "Move values to give fragmented memory back.")
        .refused(&[],
            "values are not moved; MEMORY PURGE gives back what is free"),
    row("active-defrag-ignore-bytes", Kind::Memory(1, i64::MAX as u64), "100mb",
        "Fragmented memory that is not worth the work.")
        .accepted("Only `activedefrag` would use it."),
    row("active-defrag-threshold-lower", Kind::Int(0, 1000), "10",
        "Percentage of fragmentation at which the work starts.")
        .accepted("Only `activedefrag` would use it."),
    row("active-defrag-threshold-upper", Kind::Int(0, 1000), "100",
        "Percentage of fragmentation at which the work is done at full speed.")
        .accepted("Only `activedefrag` would use it."),
    row("active-defrag-cycle-min", Kind::Int(1, 99), "1",
        "Percentage of a core for the work at the lower threshold.")
        .accepted("Only `activedefrag` would use it."),
    row("active-defrag-cycle-max", Kind::Int(1, 99), "25",
        "Percentage of a core for the work at the upper threshold.")
        .accepted("Only `activedefrag` would use it."),
    row("active-defrag-max-scan-fields", Kind::Int(1, i64::MAX), "1000",
        "Elements of a collection that are moved in one go.")
        .accepted("Only `activedefrag` would use it."),
    row("jemalloc-bg-thread", Kind::Bool, "yes",
        "Let the allocator return memory from a thread of its own.")
        .accepted("The allocator is another one."),
];
