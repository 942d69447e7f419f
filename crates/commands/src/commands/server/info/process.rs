//! The program and its processor time, replication and cluster.

use std::num::NonZeroUsize;
use std::path::Path;
use std::sync::Arc;

use tierce_replication::identity::ReplicationId;

use super::facts::Facts;
use super::field::{Field, Row, always, each, gauge, is, maybe};
use super::value::Value;
use crate::certificates::Certificate;
use crate::config::DirectiveId;
use crate::replication::Replica;
use crate::replication::role::{Following, LinkState};

#[rustfmt::skip]
pub(super) const TLS: &[Field] = &[
    maybe("tls_server_cert_serial", |f| Some(f.kernel.certificates.get().to_clients?.serial.into()),
        "Serial number of the certificate in `tls-cert-file`, in hexadecimal digits."),
    maybe("tls_server_cert_expires_in_seconds",
        |f| Some(seconds_left(f, &f.kernel.certificates.get().to_clients?).into()),
        "Seconds until the first certificate in `tls-cert-file` ends; 0 if it has.")
        .gauge("tierce_tls_server_cert_expires_in_seconds"),
    maybe("tls_client_cert_serial", |f| Some(f.kernel.certificates.get().to_primary?.serial.into()),
        "Serial number of the certificate in `tls-client-cert-file`, if replicas use it."),
    maybe("tls_client_cert_expires_in_seconds",
        |f| Some(seconds_left(f, &f.kernel.certificates.get().to_primary?).into()),
        "Seconds until the first certificate in `tls-client-cert-file` ends; 0 if it has.")
        .gauge("tierce_tls_client_cert_expires_in_seconds"),
];

fn seconds_left(facts: &Facts<'_>, certificate: &Certificate) -> i64 {
    (certificate.end_s - facts.now_ms.div_euclid(1000)).max(0)
}

#[rustfmt::skip]
pub(super) const SERVER: &[Field] = &[
    is("redis_version", |_| crate::REDIS_VERSION.into(),
        "The version of Redis whose commands are implemented."),
    is("tierce_version", |_| crate::VERSION.into(), "The version of this program."),
    always("redis_git_sha1", "00000000", "As of a Redis that was not built from a repository."),
    always("redis_git_dirty", "0", "As of a Redis that was not built from a repository."),
    always("redis_build_id", "0", "Builds have no identifier."),
    always("redis_mode", "standalone", "There is neither cluster nor sentinel mode."),
    is("os", |_| os().into(), "System, its version, and processor."),
    is("arch_bits", |_| usize::BITS.into(), "Bits of an address."),
    always("atomicvar_api", "c11-builtin", "Rust's atomics have the memory model of C11."),
    always("gcc_version", "0.0.0", "As of a Redis that was not built with GCC."),
    always("monotonic_clock", "POSIX clock_gettime", "Source of durations."),
    always("multiplexing_api", "epoll", "System call by which workers wait for connections."),
    is("process_id", |_| std::process::id().into(), "The process.")
        .gauge("redis_process_id"),
    is("process_supervised", |f| f.kernel.supervisor.get().copied().unwrap_or("no").into(),
        "The service manager that hears when the server is ready: `systemd` or `no`."),
    is("run_id", |f| f.kernel.run_id.as_str().into(), "Random, another one after each start."),
    is("tcp_port", |f| tcp_port(f).into(),
        "Port for clients of Redis; `tls-port` if there is no `port`."),
    is("server_time_usec", |_| crate::clock::unix_micros().into(),
        "Now, in microseconds since 1970."),
    is("uptime_in_seconds", |f| uptime(f).into(), "Time since the start.")
        .gauge("redis_uptime_in_seconds"),
    is("uptime_in_days", |f| (uptime(f) / 86_400).into(), "Uptime in whole days."),
    maybe("shutdown_in_milliseconds", |f| Some(f.kernel.shutdown().left_ms(f.now_ms)?.into()),
        "Remaining time for which a shutdown waits for replicas."),
    is("hz", |f| hz(f).into(), "The directive, which tunes nothing here."),
    is("configured_hz", |f| hz(f).into(), "The directive `hz`."),
    is("lru_clock", |f| ((f.now_ms / 1000) & 0xff_ffff).into(),
        "Seconds since 1970, 24 bits of them."),
    is("executable", |_| std::env::current_exe().unwrap_or_default().display().to_string().into(),
        "The program's file."),
    is("config_file", |f| f.settings().file().unwrap_or(Path::new("")).display().to_string().into(),
        "The configuration file, empty without one."),
    is("io_threads_active", |f| (f.kernel.workers() > 1).into(),
        "1 if more than one thread serves connections.")
        .gauge("redis_io_threads_active"),
    is("threads", |f| f.kernel.workers().into(), "Threads that serve connections.")
        .gauge("tierce_threads"),
    is("shards", |f| f.kernel.keyspace.shard_count().into(),
        "Shards of the keyspace, each with a lock.")
        .gauge("tierce_shards"),
    each("listener", listeners, "A kind of socket and where it is bound; numbered as in Redis."),
];

#[rustfmt::skip]
pub(super) const REPLICATION: &[Field] = &[
    is("role", |f| if f.following().is_some() { "slave" } else { "master" }.into(),
        "`slave` for a replica."),
    maybe("master_host", |f| Some(f.following()?.primary.host.escape_ascii().to_string().into()),
        "Host of the primary, of a replica."),
    maybe("master_port", |f| Some(f.following()?.primary.port.into()), "Port of the primary, of a replica."),
    maybe("master_link_status", |f| Some(match is_up(f.following()?) {
        true => Value::State("up", 1),
        false => Value::State("down", 0),
    }),
        "`up` while the stream arrives."),
    maybe("master_last_io_seconds_ago", |f| Some(match f.following()? {
        of if is_up(of) => (f.now_ms.saturating_sub(of.last_io_ms) / 1000).max(0).into(),
        _ => Value::Int(-1),
    }), "Seconds since something arrived from the primary."),
    maybe("master_sync_in_progress", |f| {
        Some((f.following()?.link == LinkState::Sync).into())
    }, "1 during a full copy."),
    maybe("slave_read_repl_offset", |f| Some(f.following()?.read_offset.into()),
        "Offset up to which the stream has been received.")
        .gauge("redis_slave_read_repl_offset"),
    maybe("slave_repl_offset", |f| Some(f.following()?.applied_offset().unwrap_or(0).into()),
        "Offset up to which the stream has been applied."),
    maybe("master_sync_total_bytes", |f| in_copy(f).map(|_| Value::Int(-1)),
        "Bytes of the full copy, which are not known."),
    maybe("master_sync_read_bytes", |f| in_copy(f).map(|of| of.copied_bytes.into()),
        "Bytes of it that have arrived."),
    maybe("master_link_down_since_seconds", |f| {
        let of = f.following().filter(|of| !is_up(of))?;
        Some((f.now_ms.saturating_sub(of.down_since_ms) / 1000).max(0).into())
    }, "Seconds without a stream."),
    maybe("slave_priority", |f| {
        f.following()?;
        Some(f.settings().number(const { DirectiveId::of("replica-priority") }).into())
    }, "The directive `replica-priority`.")
        .gauge("redis_slave_priority"),
    maybe("slave_read_only", |f| f.following().map(|_| true.into()), "Always 1 on a replica.")
        .gauge("redis_slave_read_only"),
    maybe("replica_announced", |f| {
        f.following()?;
        Some(f.settings().is_on(const { DirectiveId::of("replica-announced") }).into())
    }, "The directive `replica-announced`."),
    is("connected_slaves", |f| f.kernel.primary.replicas().len().into(), "Replicas of this server.")
        .gauge("redis_connected_slaves"),
    maybe("min_slaves_good_slaves", |f| {
        let is_wanted = f.settings().number(const { DirectiveId::of("min-replicas-to-write") }) > 0;
        is_wanted.then(|| f.kernel.primary.good().into())
    }, "Replicas that count for `min-replicas-to-write`, if that is set.")
        .gauge("redis_min_slaves_good_slaves"),
    each("slave", replicas, "A replica of this server.")
        .columns(&["slave_ip", "slave_port", "slave_state"], &[
            gauge("offset", "redis_connected_slave_offset_bytes", "Offset that the replica has acknowledged."),
            gauge("lag", "redis_connected_slave_lag_seconds", "Seconds since the last acknowledgement of the replica."),
        ]),
    is("master_failover_state", |f| f.kernel.failover.phase().name().into(),
        "`waiting-for-sync` and `failover-in-progress` during FAILOVER."),
    is("master_replid", |f| f.kernel.primary.identity().id.to_string().into(),
        "The name of the stream: of a replica that of its primary."),
    is("master_replid2", |f| {
        let previous = f.kernel.primary.identity().previous;
        previous.map_or(ReplicationId::NONE, |previous| previous.id).to_string().into()
    }, "The name that the stream had before a promotion."),
    is("master_repl_offset", |f| f.kernel.primary.backlog.end().into(), "Bytes of the stream.")
        .gauge("redis_master_repl_offset"),
    is("second_repl_offset", |f| match f.kernel.primary.identity().previous {
        // Counted from 1, as the first missing byte.
        Some(previous) => (previous.until + 1).into(),
        None => (-1_i64).into(),
    }, "Offset from which on the stream has its current replication id.")
        .gauge("redis_second_repl_offset"),
    is("repl_backlog_active", |f| f.kernel.primary.is_active().into(), "1 while changes are kept for replicas.")
        .gauge("redis_repl_backlog_is_active"),
    is("repl_backlog_size", |f| f.settings().bytes(const { DirectiveId::of("repl-backlog-size") }).into(),
        "The directive.")
        .gauge("redis_replication_backlog_bytes"),
    is("repl_backlog_first_byte_offset", |f| match f.kernel.primary.is_active() {
        true => (f.kernel.primary.backlog.offsets().start() + 1).into(),
        false => 0_u64.into(),
    }, "The first byte of the stream that is kept.")
        .gauge("redis_repl_backlog_first_byte_offset"),
    is("repl_backlog_histlen", |f| match f.kernel.primary.is_active() {
        true => {
            let kept = f.kernel.primary.backlog.offsets();
            (kept.end() - kept.start()).into()
        }
        false => 0_u64.into(),
    }, "Bytes of the stream that are kept.")
        .gauge("redis_repl_backlog_history_bytes"),
];

#[rustfmt::skip]
pub(super) const CPU: &[Field] = &[
    is("used_cpu_sys", |f| seconds(f.cpu().system), "Seconds of all threads in the kernel.")
        .counter("redis_cpu_sys_seconds_total"),
    is("used_cpu_user", |f| seconds(f.cpu().user), "Seconds of all threads in the program.")
        .counter("redis_cpu_user_seconds_total"),
    always("used_cpu_sys_children", "0.000000", "There are no child processes.")
        .counter("redis_cpu_sys_children_seconds_total"),
    always("used_cpu_user_children", "0.000000", "There are no child processes.")
        .counter("redis_cpu_user_children_seconds_total"),
    is("used_cpu_sys_main_thread", |f| seconds(f.cpu_of_main().system),
        "Seconds of the process' first thread in the kernel; it serves no connections.")
        .counter("redis_cpu_sys_main_thread_seconds_total"),
    is("used_cpu_user_main_thread", |f| seconds(f.cpu_of_main().user), "Seconds of the process' first thread in the program.")
        .counter("redis_cpu_user_main_thread_seconds_total"),
];

fn is_up(following: &Following) -> bool {
    following.link == LinkState::Connected
}

/// Returns the lines of all replicas.
fn replicas(f: &Facts<'_>) -> Vec<Row> {
    let row = |(n, replica): (usize, &Arc<Replica>)| {
        let lag = if replica.is_online() { replica.silent_seconds(f.now_ms) } else { 0 };
        let (ip, port, state) = (replica.ip(), replica.port(), replica.state());
        let labels = vec![ip.clone(), port.to_string(), state.to_owned()];
        let columns = [
            ("ip", ip.into()),
            ("port", port.into()),
            ("state", state.into()),
            ("offset", replica.acknowledged().into()),
            ("lag", lag.into()),
        ];
        Row::new(format!("slave{n}"), labels, columns)
    };
    f.kernel.primary.replicas().iter().enumerate().map(row).collect()
}

/// Returns the state of a replica during a full copy.
fn in_copy<'f>(f: &'f Facts<'_>) -> Option<&'f Following> {
    f.following().filter(|following| following.link == LinkState::Sync)
}

pub(super) const CLUSTER: &[Field] =
    &[always("cluster_enabled", "0", "There is no cluster.").gauge("redis_cluster_enabled")];

fn seconds(value: f64) -> Value {
    Value::Real(value, 6)
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

/// Returns a row for each kind of socket, with its number among all kinds that Redis knows.
fn listeners(facts: &Facts<'_>) -> Vec<Row> {
    let settings = facts.settings();
    let startup = settings.startup(NonZeroUsize::MIN);
    let bind = settings.list(const { DirectiveId::of("bind") });
    let tcp = |number: u8, name: &'static str, port: u16| {
        let hosts = bind.iter().map(|host| ("bind", String::from_utf8_lossy(host).into()));
        let hosts = hosts.map(|(key, host): (_, String)| (key, Value::from(host)));
        let columns =
            [("name", name.into())].into_iter().chain(hosts).chain([("port", port.into())]);
        (port != 0).then(|| Row::new(format!("listener{number}"), Vec::new(), columns))
    };
    let unix = startup.unixsocket.as_ref().map(|path| {
        let path = path.display().to_string();
        Row::new(
            "listener1".to_owned(),
            Vec::new(),
            [("name", "unix".into()), ("bind", path.into())],
        )
    });
    let rows = [tcp(0, "tcp", startup.port), unix, tcp(2, "tls", startup.tls_port)];
    rows.into_iter().flatten().collect()
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
