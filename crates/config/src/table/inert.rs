//! Directives of Redis that have no effect here, each with a reason.

use super::super::directive::{Directive, row};
use super::super::kind::{COUNT_OR_SIZE, INT_MAX, Invalid, Kind};
use super::super::value::Value;

const FACILITIES: Kind = Kind::Word(&[
    "user", "local0", "local1", "local2", "local3", "local4", "local5", "local6", "local7",
]);

const fn inert(
    name: &'static str,
    kind: Kind,
    default: &'static str,
    reason: &'static str,
) -> Directive {
    row(name, kind, default, "Has nothing to act on here.").accepted(reason)
}

#[rustfmt::skip]
pub(super) const ROWS: &[Directive] = &[
    inert("list-compress-depth", COUNT_OR_SIZE, "0", "Lists are not compressed in memory."),
    inert("lazyfree-lazy-eviction", Kind::Bool, "no", "Large values are always freed in the background."),
    inert("lazyfree-lazy-expire", Kind::Bool, "no", "Large values are always freed in the background."),
    inert("lazyfree-lazy-server-del", Kind::Bool, "no", "Large values are always freed in the background."),
    inert("lazyfree-lazy-user-del", Kind::Bool, "no", "DEL and UNLINK do the same."),
    inert("active-expire-effort", Kind::Int(1, 10), "1",
        "Every key is removed at its deadline, without looking for it."),
    inert("activerehashing", Kind::Bool, "yes", "The index never rehashes as a whole."),
    inert("active-defrag-ignore-bytes", Kind::Memory(1, i64::MAX as u64), "100mb",
        "Only `activedefrag` would use it."),
    inert("active-defrag-threshold-lower", Kind::Int(0, 1000), "10", "Only `activedefrag` would use it."),
    inert("active-defrag-threshold-upper", Kind::Int(0, 1000), "100", "Only `activedefrag` would use it."),
    inert("active-defrag-cycle-min", Kind::Int(1, 99), "1", "Only `activedefrag` would use it."),
    inert("active-defrag-cycle-max", Kind::Int(1, 99), "25", "Only `activedefrag` would use it."),
    inert("active-defrag-max-scan-fields", Kind::Int(1, i64::MAX), "1000", "Only `activedefrag` would use it."),
    inert("jemalloc-bg-thread", Kind::Bool, "yes", "The allocator is not jemalloc."),
    inert("max-new-connections-per-cycle", Kind::Int(1, 1000), "10",
        "A separate thread accepts connections, and needs no limit."),
    inert("max-new-tls-connections-per-cycle", Kind::Int(1, INT_MAX), "1",
        "Handshakes are bounded by their share of a worker's time."),
    inert("no-appendfsync-on-rewrite", Kind::Bool, "no",
        "Compaction does not delay syncs of the log."),
    inert("aof-use-rdb-preamble", Kind::Bool, "yes", "The log has its own format."),
    inert("aof-rewrite-incremental-fsync", Kind::Bool, "yes", "The log is synced while it is compacted."),
    inert("sanitize-dump-payload", Kind::Word(&["no", "yes", "clients"]), "no",
        "Payloads and snapshots are always checked."),
    inert("loading-process-events-interval-bytes", Kind::Int(1024, i32::MAX as i64), "2097152",
        "For tests of Redis.").hidden(),
    inert("hz", Kind::Clamped(1, 500), "10", "Background tasks follow deadlines instead of a clock."),
    inert("dynamic-hz", Kind::Bool, "yes", "Background tasks follow deadlines instead of a clock."),
    inert("io-threads", Kind::Int(1, 128), "1",
        "`threads` says how many threads serve clients; they read and write, too.").before_start(),
    inert("io-threads-do-reads", Kind::Bool, "no",
        "The `threads` that serve clients read and write, too.").before_start(),
    inert("server-cpulist", Kind::Text, "",
        "The scheduler places threads; a service manager can bind the process (CPUAffinity=).").alias("server_cpulist").before_start(),
    inert("bio-cpulist", Kind::Text, "",
        "The scheduler places threads; a service manager can bind the process (CPUAffinity=).").alias("bio_cpulist").before_start(),
    inert("aof-rewrite-cpulist", Kind::Text, "",
        "The scheduler places threads; a service manager can bind the process (CPUAffinity=).").alias("aof_rewrite_cpulist").before_start(),
    inert("bgsave-cpulist", Kind::Text, "",
        "The scheduler places threads; a service manager can bind the process (CPUAffinity=).").alias("bgsave_cpulist").before_start(),
    inert("oom-score-adj-values", Kind::OomScores, "0 200 800", "Only `oom-score-adj` would use them."),
    inert("disable-thp", Kind::Bool, "yes",
        "Huge pages hurt servers that fork, which this one does not.").before_start(),
    inert("syslog-ident", Kind::Text, "tierce", "Only `syslog-enabled` would use it.").redis("redis").before_start(),
    inert("syslog-facility", FACILITIES, "local0", "Only `syslog-enabled` would use it.").before_start(),
    inert("crash-log-enabled", Kind::Bool, "yes", "A crash is reported on the standard error in any case."),
    inert("crash-memcheck-enabled", Kind::Bool, "yes", "A crash does not check the memory."),
    inert("use-exit-on-panic", Kind::Bool, "no", "For tests of Redis.").hidden(),
    inert("watchdog-period", COUNT_OR_SIZE, "0", "No watchdog looks after the server.").hidden(),
    inert("always-show-logo", Kind::Bool, "no", "There is no logo.").before_start(),
    inert("set-proc-title", Kind::Bool, "yes", "The title stays the command line.").before_start(),
    inert("proc-title-template", Kind::Text, "{title} {listen-addr} {server-mode}",
        "The title stays the command line.").checked(title_template),
    inert("hide-user-data-from-log", Kind::Bool, "no", "Keys and values are never logged."),
    inert("ignore-warnings", Kind::Text, "", "No warning stops a start."),
];

fn title_template(value: &Value) -> Result<(), Invalid> {
    const NAMES: [&[u8]; 7] = [
        b"title",
        b"listen-addr",
        b"server-mode",
        b"port",
        b"tls-port",
        b"unixsocket",
        b"config-file",
    ];
    let Value::Text(template) = value else { return Ok(()) };
    // Every part after an opening brace starts with a known name and a closing brace.
    let known = !template.is_empty()
        && template.split(|&byte| byte == b'{').skip(1).all(|part| {
            let name = part.split(|&byte| byte == b'}').next();
            part.contains(&b'}') && name.is_some_and(|name| NAMES.contains(&name))
        });
    match known {
        true => Ok(()),
        false => Err(Invalid::new("template format is invalid or contains unknown variables")),
    }
}
