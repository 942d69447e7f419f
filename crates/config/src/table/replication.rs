//! Replication.

use super::super::directive::{Directive, row};
use super::super::kind::{COUNT_OR_SIZE, INT_MAX, Kind, LONG, PORT};

/// Directives of a replica.
#[rustfmt::skip]
pub(super) const FOLLOWING: &[Directive] = &[
    row("replicaof", Kind::Primary, "",
        "Host and port of the primary. Empty: this server is a primary.")
        .alias("slaveof").before_start(),
    row("masterauth", Kind::Text, "",
        "Password for the primary.")
        .secret(),
    row("masteruser", Kind::Text, "",
        "User name for the primary. Empty: the default user.")
        .secret(),
    row("replica-read-only", Kind::Bool, "yes",
        "Refuse writes from clients of a replica.")
        .alias("slave-read-only")
        .refused(&[],
            "a writable replica would differ from its primary, and nothing would correct that"),
    row("replica-serve-stale-data", Kind::Bool, "yes",
        "Answer clients of a replica even while it has lost its primary.")
        .alias("slave-serve-stale-data"),
    row("replica-priority", COUNT_OR_SIZE, "100",
        "Rank for promotion; the lowest wins. 0: never promote.")
        .alias("slave-priority"),
    row("replica-announce-ip", Kind::Text, "",
        "Address that this replica reports.")
        .alias("slave-announce-ip"),
    row("replica-announce-port", PORT, "0",
        "Port that this replica reports.")
        .alias("slave-announce-port"),
    row("replica-announced", Kind::Bool, "yes",
        "Let sentinels tell clients about this replica."),
    row("replica-ignore-maxmemory", Kind::Bool, "yes",
        "Let a replica evict only what its primary evicts.")
        .alias("slave-ignore-maxmemory")
        .refused(&[],
            "a replica that evicts on its own would differ from its primary"),
    row("repl-timeout", Kind::Int(1, INT_MAX), "60",
        "Seconds of silence after which a replication link is considered broken."),
];

/// Directives of a primary.
#[rustfmt::skip]
pub(super) const LEADING: &[Directive] = &[
    row("min-replicas-to-write", COUNT_OR_SIZE, "0",
        "Refuse writes with fewer replicas than this. 0: never.")
        .alias("min-slaves-to-write"),
    row("min-replicas-max-lag", COUNT_OR_SIZE, "10",
        "Seconds that a replica may be silent and still count for `min-replicas-to-write`.")
        .alias("min-slaves-max-lag"),
    row("durability-replicas", COUNT_OR_SIZE, "0",
        "Replicas that have received a write before it is acknowledged. `CLIENT DURABILITY` has priority.")
        .own("0.1.0"),
    row("durability-replicas-logged", Kind::Bool, "no",
        "These replicas must have the write on disk.")
        .own("0.1.0"),
    row("durability-replicas-timeout", Kind::Int(1, INT_MAX), "5000",
        "Milliseconds after which a write that too few replicas have confirmed is answered with an error.")
        .own("0.1.0"),
    row("repl-ping-replica-period", Kind::Int(1, INT_MAX), "10",
        "Seconds between `PING`s to replicas.")
        .alias("repl-ping-slave-period"),
    row("repl-backlog-size", Kind::Memory(1, i64::MAX as u64), "64mb",
        "Bytes of the stream kept for replicas that reconnect.")
        .redis("1mb"),
    row("repl-backlog-ttl", LONG, "3600",
        "Seconds without replicas after which the backlog is freed. 0: never."),
    row("repl-diskless-sync-delay", COUNT_OR_SIZE, "5",
        "Seconds to wait for more replicas before a full copy."),
    row("repl-diskless-sync-max-replicas", COUNT_OR_SIZE, "0",
        "Replicas that end this delay early. 0: none."),
    row("replica-dialect", Kind::Word(&["tierce", "redis-7.4", "redis-7.0", "redis-6.2"]), "tierce",
        "The oldest server among the replicas. What it does not know is not sent to them: deadlines of hash fields \
         before 7.4, functions before 7.0. With `tierce` everything is sent, and what a replica does not know fails there.")
        .own("0.1.0"),
];

#[rustfmt::skip]
pub(super) const ROWS: &[Directive] = &[
    row("replica-lazy-flush", Kind::Bool, "no",
        "Free the old data in the background before a full copy.")
        .alias("slave-lazy-flush")
        .accepted("The old data is kept until the copy is complete."),
    row("replica-ignore-disk-write-errors", Kind::Bool, "no",
        "Let a replica go on when its disk fails.")
        .accepted("A replica whose log fails applies nothing until the log works again."),
    row("propagation-error-behavior", Kind::Word(&["ignore", "panic", "panic-on-replicas"]), "ignore",
        "Action when a replicated command fails.")
        .accepted("It is logged; after a transaction that fails, the replica asks for a full copy."),
    row("repl-disable-tcp-nodelay", Kind::Bool, "no",
        "Save bandwidth to replicas at the cost of latency.")
        .accepted("Changes are sent at once, all that are pending together."),
    row("repl-diskless-sync", Kind::Bool, "yes",
        "Send full copies without writing them to disk first.")
        .accepted("They always are."),
    row("repl-diskless-load", Kind::Word(&["disabled", "on-empty-db", "swapdb"]), "disabled",
        "Load a full copy without writing it to disk first: never, if there is no data, or beside \
         the old data.")
        .accepted("It is always written to disk and checked first, and replaces the old data at once."),
];
