//! The program and its processor time, replication and cluster.

use std::num::NonZeroUsize;
use std::path::Path;
use std::sync::Arc;

use tierce_replication::identity::ReplicationId;

use super::facts::Facts;
use super::field::{Field, always, each, is, maybe};
use crate::config::DirectiveId;
use crate::replication::Replica;
use crate::replication::role::{Following, LinkState};

#[rustfmt::skip]
pub(super) const SERVER: &[Field] = &[
    is("redis_version", |_| crate::REDIS_VERSION.to_owned(),
        "The version of Redis whose commands are implemented."),
    is("tierce_version", |_| crate::VERSION.to_owned(), "The version of this program."),
    always("redis_git_sha1", "00000000", "As of a Redis that was not built from a repository."),
    always("redis_git_dirty", "0", "The same."),
    always("redis_build_id", "0", "The same."),
    always("redis_mode", "standalone", "There is neither cluster nor sentinel mode."),
    is("os", |_| os(), "System, its version, and processor."),
    is("arch_bits", |_| usize::BITS.to_string(), "Bits of an address."),
    always("atomicvar_api", "c11-builtin", "Rust's atomics have the memory model of C11."),
    always("gcc_version", "0.0.0", "As of a Redis that was not built with GCC."),
    always("monotonic_clock", "POSIX clock_gettime", "Where durations come from."),
    always("multiplexing_api", "epoll", "How workers wait for connections."),
    is("process_id", |_| std::process::id().to_string(), "The process."),
    is("process_supervised", |f| f.kernel.supervisor.get().copied().unwrap_or("no").to_owned(),
        "The service manager that hears when the server is ready: `systemd` or `no`."),
    is("run_id", |f| f.kernel.run_id.clone(), "Random, another one after each start."),
    is("tcp_port", |f| tcp_port(f).to_string(),
        "Where clients of Redis connect; `tls-port` if there is no `port`."),
    is("server_time_usec", |_| crate::clock::unix_micros().to_string(),
        "Now, in microseconds since 1970."),
    is("uptime_in_seconds", |f| uptime(f).to_string(), "Time since the start."),
    is("uptime_in_days", |f| (uptime(f) / 86_400).to_string(), "The same in whole days."),
    is("hz", |f| hz(f).to_string(), "The directive, which tunes nothing here."),
    is("configured_hz", |f| hz(f).to_string(), "The same."),
    is("lru_clock", |f| ((f.now_ms / 1000) & 0xff_ffff).to_string(),
        "Seconds since 1970, 24 bits of them."),
    is("executable", |_| std::env::current_exe().unwrap_or_default().display().to_string(),
        "The program's file."),
    is("config_file", |f| f.settings().file().unwrap_or(Path::new("")).display().to_string(),
        "The configuration file, empty without one."),
    is("io_threads_active", |f| u8::from(f.kernel.workers() > 1).to_string(),
        "1 if more than one thread serves connections."),
    is("threads", |f| f.kernel.workers().to_string(), "Threads that serve connections."),
    is("shards", |f| f.kernel.keyspace.shard_count().to_string(),
        "Shards of the keyspace, each with a lock."),
    each("listener", listeners, "A kind of socket and where it is bound; numbered as in Redis."),
];

#[rustfmt::skip]
pub(super) const REPLICATION: &[Field] = &[
    is("role", |f| if f.following().is_some() { "slave" } else { "master" }.to_owned(),
        "`slave` for a replica."),
    maybe("master_host", |f| Some(f.following()?.primary.host.escape_ascii().to_string()),
        "The primary's, of a replica."),
    maybe("master_port", |f| Some(f.following()?.primary.port.to_string()), "The same."),
    maybe("master_link_status", |f| Some(if is_up(f.following()?) { "up" } else { "down" }.into()),
        "`up` while the stream arrives."),
    maybe("master_last_io_seconds_ago", |f| Some(match f.following()? {
        of if is_up(of) => (f.now_ms.saturating_sub(of.last_io_ms) / 1000).max(0).to_string(),
        _ => "-1".to_owned(),
    }), "Seconds since something arrived from the primary."),
    maybe("master_sync_in_progress", |f| {
        Some(u8::from(f.following()?.link == LinkState::Sync).to_string())
    }, "1 during a full copy."),
    maybe("slave_read_repl_offset", |f| Some(f.following()?.read_offset.to_string()),
        "Bytes of the stream that have arrived."),
    maybe("slave_repl_offset", |f| Some(f.following()?.place.map_or(0, |place| place.offset).to_string()),
        "Bytes of the stream that have been applied."),
    maybe("master_sync_total_bytes", |f| in_copy(f).map(|_| "-1".to_owned()),
        "Bytes of the full copy, which are not known."),
    maybe("master_sync_read_bytes", |f| in_copy(f).map(|of| of.copied_bytes.to_string()),
        "Bytes of it that have arrived."),
    maybe("master_link_down_since_seconds", |f| {
        let of = f.following().filter(|of| !is_up(of))?;
        Some((f.now_ms.saturating_sub(of.down_since_ms) / 1000).max(0).to_string())
    }, "Seconds without a stream."),
    maybe("slave_priority", |f| {
        f.following()?;
        Some(f.settings().number(const { DirectiveId::of("replica-priority") }).to_string())
    }, "The directive `replica-priority`."),
    maybe("slave_read_only", |f| f.following().map(|_| "1".to_owned()), "Replicas are."),
    maybe("replica_announced", |f| {
        f.following()?;
        Some(u8::from(f.settings().is_on(const { DirectiveId::of("replica-announced") })).to_string())
    }, "The directive `replica-announced`."),
    is("connected_slaves", |f| f.kernel.primary.replicas().len().to_string(), "Replicas of this server."),
    maybe("min_slaves_good_slaves", |f| {
        let is_wanted = f.settings().number(const { DirectiveId::of("min-replicas-to-write") }) > 0;
        is_wanted.then(|| f.kernel.primary.good().to_string())
    }, "Replicas that count for `min-replicas-to-write`, if that is set."),
    each("slave", replicas, "A replica of this server."),
    always("master_failover_state", "no-failover", "There is no command FAILOVER."),
    is("master_replid", |f| match f.following().and_then(|of| of.place) {
        Some(place) => place.id.to_string(),
        None => f.kernel.primary.identity().id.to_string(),
    }, "The name of the stream: of a replica that of its primary."),
    is("master_replid2", |f| {
        let previous = f.kernel.primary.identity().previous;
        previous.map_or(ReplicationId::NONE, |previous| previous.id).to_string()
    }, "The name that the stream had before, when this server was a replica."),
    is("master_repl_offset", |f| match f.following() {
        Some(of) => of.place.map_or(0, |place| place.offset).to_string(),
        None => f.kernel.primary.backlog.end().to_string(),
    }, "Bytes of the stream."),
    is("second_repl_offset", |f| match f.kernel.primary.identity().previous {
        // Counted from 1, as the first byte that is missing.
        Some(previous) => (previous.until + 1).to_string(),
        None => "-1".to_owned(),
    }, "The byte of the stream from which on it has not had the name before."),
    is("repl_backlog_active", |f| u8::from(f.kernel.primary.is_active()).to_string(),
        "1 while changes are kept for replicas."),
    is("repl_backlog_size", |f| f.settings().bytes(const { DirectiveId::of("repl-backlog-size") }).to_string(),
        "The directive."),
    is("repl_backlog_first_byte_offset", |f| match f.kernel.primary.is_active() {
        true => (f.kernel.primary.backlog.offsets().start() + 1).to_string(),
        false => "0".to_owned(),
    }, "The first byte of the stream that is kept."),
    is("repl_backlog_histlen", |f| match f.kernel.primary.is_active() {
        true => {
            let kept = f.kernel.primary.backlog.offsets();
            (kept.end() - kept.start()).to_string()
        }
        false => "0".to_owned(),
    }, "Bytes of the stream that are kept."),
];

#[rustfmt::skip]
pub(super) const CPU: &[Field] = &[
    is("used_cpu_sys", |f| seconds(f.cpu().system), "Seconds of all threads in the kernel."),
    is("used_cpu_user", |f| seconds(f.cpu().user), "Seconds of all threads in the program."),
    always("used_cpu_sys_children", "0.000000", "There are no child processes."),
    always("used_cpu_user_children", "0.000000", "The same."),
    is("used_cpu_sys_main_thread", |f| seconds(f.cpu_of_main().system),
        "Of the process' first thread, which serves no connections."),
    is("used_cpu_user_main_thread", |f| seconds(f.cpu_of_main().user), "The same in the program."),
];

fn is_up(following: &Following) -> bool {
    following.link == LinkState::Connected
}

/// The lines of all replicas.
fn replicas(f: &Facts<'_>) -> Vec<(String, String)> {
    let line = |replica: &Arc<Replica>| {
        let lag = if replica.is_online() { replica.silent_seconds(f.now_ms) } else { 0 };
        format!(
            "ip={},port={},state={},offset={},lag={lag}",
            replica.ip(),
            replica.port(),
            replica.state(),
            replica.acknowledged(),
        )
    };
    let replicas = f.kernel.primary.replicas();
    replicas.iter().enumerate().map(|(n, replica)| (format!("slave{n}"), line(replica))).collect()
}

/// Of a replica during a full copy.
fn in_copy<'f>(f: &'f Facts<'_>) -> Option<&'f Following> {
    f.following().filter(|following| following.link == LinkState::Sync)
}

pub(super) const CLUSTER: &[Field] = &[always("cluster_enabled", "0", "There is no cluster.")];

fn seconds(value: f64) -> String {
    format!("{value:.6}")
}

fn uptime(facts: &Facts<'_>) -> u64 {
    facts.kernel.started.elapsed().as_secs()
}

fn hz(facts: &Facts<'_>) -> i64 {
    facts.settings().number(const { DirectiveId::of("hz") })
}

fn tcp_port(facts: &Facts<'_>) -> u16 {
    match facts.settings().port() {
        0 => facts.settings().tls_port(),
        port => port,
    }
}

/// A line for each kind of socket, with its number among all kinds that Redis knows.
fn listeners(facts: &Facts<'_>) -> Vec<(String, String)> {
    let settings = facts.settings();
    let startup = settings.startup(NonZeroUsize::MIN);
    let mut lines = Vec::new();
    let bind = settings.list(const { DirectiveId::of("bind") });
    let bind: String =
        bind.iter().map(|host| format!(",bind={}", String::from_utf8_lossy(host))).collect();
    if startup.port != 0 {
        lines.push(("listener0".to_owned(), format!("name=tcp{bind},port={}", startup.port)));
    }
    if let Some(path) = startup.unixsocket {
        lines.push(("listener1".to_owned(), format!("name=unix,bind={}", path.display())));
    }
    if startup.tls_port != 0 {
        lines.push(("listener2".to_owned(), format!("name=tls{bind},port={}", startup.tls_port)));
    }
    lines
}

fn os() -> String {
    let read = |name| {
        std::fs::read_to_string(format!("/proc/sys/kernel/{name}"))
            .unwrap_or_default()
            .trim()
            .to_owned()
    };
    format!("{} {} {}", read("ostype"), read("osrelease"), std::env::consts::ARCH)
}
