//! Logs of commands, latency and events.

use super::super::directive::{Directive, row};
use super::super::kind::{Kind, LONG};

#[rustfmt::skip]
pub(super) const ROWS: &[Directive] = &[
    row("slowlog-log-slower-than", Kind::Int(-1, i64::MAX), "10000",
        "Microseconds from which on a command is in the slow log. -1: none. 0: all.")
        .alias("commandlog-execution-slower-than"),
    row("slowlog-max-len", LONG, "128",
        "Entries that the slow log keeps.")
        .alias("commandlog-slow-execution-max-len"),
    row("commandlog-request-larger-than", Kind::Int(-1, i64::MAX), "1048576",
        "Bytes from which on a request is in the log of large requests. -1: none. 0: all.").own("0.1.0"),
    row("commandlog-large-request-max-len", LONG, "128",
        "Entries that the log of large requests keeps.").own("0.1.0"),
    row("commandlog-reply-larger-than", Kind::Int(-1, i64::MAX), "1048576",
        "Bytes from which on a reply is in the log of large replies. -1: none. 0: all.").own("0.1.0"),
    row("commandlog-large-reply-max-len", LONG, "128",
        "Entries that the log of large replies keeps.").own("0.1.0"),
    row("latency-monitor-threshold", LONG, "0",
        "Milliseconds from which on an event is recorded for LATENCY. 0: none."),
    row("latency-tracking", Kind::Bool, "yes",
        "Show how long commands take, by command: INFO latencystats and LATENCY HISTOGRAM. Recording \
         it costs nothing more than the counters of INFO commandstats."),
    row("latency-tracking-info-percentiles", Kind::Percentiles, "50 99 99.9",
        "Percentiles of those durations that INFO shows."),
    row("notify-keyspace-events", Kind::Events, "",
        "Events of keys to publish: letters for classes, K and E for the channels. Empty: none."),
];
