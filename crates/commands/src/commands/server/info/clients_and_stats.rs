//! Connections, and counters since the start or `CONFIG RESETSTAT`.

use super::facts::Facts;
use super::field::{Field, always, is, maybe};
use super::value::Value;
use crate::acl::Reason;
use crate::clients::ClientFlags;
use crate::pubsub::Kind;
use crate::stats::{HttpFigures, Stat};

pub(super) const CLIENTS: &[Field] = &[
    is("connected_clients", |f| f.kernel.clients.len().into(), "Connections of all protocols.")
        .gauge("redis_connected_clients"),
    is(
        "http_clients",
        |f| http(f, HttpFigures::connections),
        "Connections to `http-port`, which are not among `connected_clients`.",
    )
    .gauge("tierce_http_connections"),
    always("cluster_connections", "0", "There is no cluster.").gauge("redis_cluster_connections"),
    is(
        "maxclients",
        |f| f.kernel.config.live().maxclients().into(),
        "The directive, lowered if there are too few file descriptors.",
    )
    .gauge("redis_config_maxclients"),
    is(
        "client_recent_max_input_buffer",
        |f| f.kernel.clients.largest_backlogs().0.into(),
        "The largest input that waits at a connection.",
    )
    .gauge("redis_client_recent_max_input_buffer_bytes"),
    is(
        "client_recent_max_output_buffer",
        |f| f.kernel.clients.largest_backlogs().1.into(),
        "The largest output that waits at a connection.",
    )
    .gauge("redis_client_recent_max_output_buffer_bytes"),
    is(
        "blocked_clients",
        |f| f.kernel.clients.count_waiting().into(),
        "Connections that wait for keys, or for the end of a pause.",
    )
    .gauge("redis_blocked_clients"),
    is(
        "pending_results",
        |f| f.kernel.clients.pending.get().into(),
        "Results of NB* commands that are still to come.",
    )
    .gauge("tierce_pending_results"),
    is(
        "tracking_clients",
        |f| f.kernel.pubsub.tracker_count().into(),
        "Connections that track keys (`CLIENT TRACKING`).",
    )
    .gauge("redis_tracking_clients"),
    is(
        "pubsub_clients",
        |f| f.kernel.clients.count(ClientFlags::PUBSUB).into(),
        "Connections with subscriptions.",
    )
    .gauge("redis_pubsub_clients"),
    always("clients_in_timeout_table", "0", "There is no such table: each connection has a timer.")
        .gauge("redis_clients_in_timeout_table"),
    is(
        "watching_clients",
        |f| f.kernel.keyspace.watching().0.into(),
        "Connections that watch keys, none of which has changed.",
    )
    .gauge("redis_watching_clients"),
    is("total_watched_keys", |f| f.kernel.keyspace.watching().1.into(), "Keys that are watched.")
        .gauge("redis_total_watched_keys"),
    is(
        "total_blocking_keys",
        |f| f.kernel.keyspace.awaited_keys().0.into(),
        "Keys that connections wait for.",
    )
    .gauge("redis_total_blocking_keys"),
    is(
        "total_blocking_keys_on_nokey",
        |f| f.kernel.keyspace.awaited_keys().1.into(),
        "Keys that connections wait for, and whose removal also ends the wait (`XREADGROUP`).",
    )
    .gauge("redis_total_blocking_keys_on_nokey"),
    maybe("paused_reason", |f| paused(f).map(|_| "client_pause".into()), "Why clients are paused."),
    maybe(
        "paused_actions",
        |f| paused(f).map(|(mode, _)| mode.into()),
        "Paused commands: `all` or `write`.",
    ),
    maybe(
        "paused_timeout_milliseconds",
        |f| paused(f).map(|(_, left)| left.into()),
        "For how much longer.",
    ),
];

pub(super) const STATS: &[Field] = &[
    is(
        "total_connections_received",
        |f| f.kernel.traffic().connections.into(),
        "Connections that were accepted.",
    )
        .counter("redis_connections_received_total"),
    is(
        "total_commands_processed",
        |f| f.count(Stat::Commands),
        "Commands that were executed, failed ones included.",
    )
        .counter("redis_commands_processed_total"),
    is(
        "instantaneous_ops_per_sec",
        |f| (f.rates()[0] as u64).into(),
        "Commands a second, recently.",
    ),
    is("total_net_input_bytes", |f| f.kernel.traffic().bytes_in.into(), "Bytes received.")
        .counter("redis_net_input_bytes_total"),
    is("total_net_output_bytes", |f| f.kernel.traffic().bytes_out.into(), "Bytes sent.")
        .counter("redis_net_output_bytes_total"),
    is(
        "total_net_repl_input_bytes",
        |f| f.kernel.role.received_bytes().into(),
        "Bytes received from the primary.",
    )
        .counter("redis_net_repl_input_bytes_total"),
    is(
        "total_net_repl_output_bytes",
        |f| f.kernel.primary.sent_bytes().into(),
        "Bytes passed to the connections of replicas.",
    )
        .counter("redis_net_repl_output_bytes_total"),
    is(
        "instantaneous_input_kbps",
        |f| Value::Real(f.rates()[1] / 1024.0, 2),
        "KiB a second received recently.",
    ),
    is(
        "instantaneous_output_kbps",
        |f| Value::Real(f.rates()[2] / 1024.0, 2),
        "KiB a second sent recently.",
    ),
    is(
        "rejected_connections",
        rejected,
        "Connections that were not let in, for one of the following reasons.",
    )
    .counter("redis_rejected_connections_total"),
    is(
        "rejected_connections_maxclients",
        |f| f.count(Stat::RejectedConnections),
        "Connections beyond `maxclients`.",
    )
    .counter("tierce_rejected_connections_maxclients_total"),
    is(
        "rejected_connections_per_address",
        |f| f.kernel.traffic().too_fast.into(),
        "Connections beyond `max-new-connections-per-address`.",
    )
    .counter("tierce_rejected_connections_per_address_total"),
    is(
        "rejected_connections_protected_mode",
        |f| f.count(Stat::ProtectedModeRejections),
        "Connections from other machines without a password set (`protected-mode`).",
    )
    .counter("tierce_rejected_connections_protected_mode_total"),
    is(
        "rejected_connections_descriptors",
        |f| f.kernel.traffic().dropped.into(),
        "Connections beyond the file descriptors.",
    )
    .counter("tierce_rejected_connections_descriptors_total"),
    is(
        "idle_timeout_disconnections",
        |f| f.count(Stat::IdleDisconnections),
        "Connections closed for `timeout`.",
    )
    .counter("tierce_idle_timeout_disconnections_total"),
    is(
        "http_connections_received",
        |f| http(f, HttpFigures::accepted),
        "Connections to `http-port` that were accepted.",
    )
    .counter("tierce_http_connections_received_total"),
    is(
        "http_connections_rejected",
        |f| http(f, HttpFigures::refused),
        "Connections to `http-port` beyond `http-maxclients`, and those whose TLS handshake failed.",
    )
    .counter("tierce_http_connections_rejected_total"),
    is("http_requests", |f| http(f, HttpFigures::requests), "Requests to `http-port`.")
        .counter("tierce_http_requests_total"),
    is(
        "tls_handshakes",
        |f| f.kernel.traffic().handshakes.completed.into(),
        "TLS handshakes that were completed.",
    )
        .counter("tierce_tls_handshakes_total"),
    is(
        "tls_handshakes_resumed",
        |f| f.kernel.traffic().handshakes.resumed.into(),
        "TLS handshakes that resumed a session with a ticket.",
    )
        .counter("tierce_tls_handshakes_resumed_total"),
    is(
        "tls_handshakes_under_way",
        |f| f.kernel.traffic().handshakes.under_way.into(),
        "TLS handshakes that are not complete.",
    )
        .gauge("tierce_tls_handshakes_under_way"),
    is(
        "tls_handshakes_refused",
        |f| f.kernel.traffic().handshakes.refused.into(),
        "Connections beyond `tls-handshakes-max`.",
    )
        .counter("tierce_tls_handshakes_refused_total"),
    is(
        "tls_handshakes_timed_out",
        |f| f.kernel.traffic().handshakes.timed_out.into(),
        "Connections closed for `tls-handshake-timeout`.",
    )
    .counter("tierce_tls_handshakes_timed_out_total"),
    is(
        "tls_errors",
        |f| f.kernel.traffic().handshakes.failed.into(),
        "Encrypted connections that failed, in the handshake or later.",
    )
        .counter("tierce_tls_errors_total"),
    is("sync_full", |f| f.kernel.primary.syncs().full.into(), "Full copies that replicas needed.")
        .gauge("redis_replica_resyncs_full"),
    is(
        "sync_partial_ok",
        |f| f.kernel.primary.syncs().rest.into(),
        "Replicas that reconnected and continued in the stream.",
    )
        .gauge("redis_replica_partial_resync_accepted"),
    is(
        "sync_partial_err",
        |f| f.kernel.primary.syncs().rest_refused.into(),
        "Replicas that reconnected and needed a full copy.",
    )
        .gauge("redis_replica_partial_resync_denied"),
    is(
        "expired_keys",
        |f| f.keys().expired.into(),
        "Keys that were removed at their deadline.",
    )
        .counter("redis_expired_keys_total"),
    always(
        "expired_time_cap_reached_count",
        "0",
        "Expiry goes by deadlines, in small steps without a cap.",
    )
        .gauge("redis_expired_time_cap_reached_total"),
    always(
        "expired_stale_perc",
        "0.00",
        "Keys are removed in the order of their deadlines; none is looked for by sampling.",
    )
        .gauge("redis_expired_stale_percentage"),
    is(
        "expire_cycle_cpu_milliseconds",
        |f| Value::Millis((f.keys().expiry_nanos / 1_000_000) as i64),
        "Time spent on removing expired keys and fields in the background.",
    )
        .counter("tierce_expire_seconds_total"),
    is("evicted_keys", |f| f.keys().evicted.into(), "Keys that were evicted.")
        .counter("redis_evicted_keys_total"),
    is(
        "evicted_clients",
        |f| f.count(Stat::EvictedClients),
        "Connections closed for `maxmemory-clients`.",
    )
        .counter("redis_evicted_clients_total"),
    is(
        "evicted_scripts",
        |f| f.kernel.scripts.evicted().into(),
        "Scripts of `EVAL` that were forgotten, because others were called after them.",
    )
        .counter("redis_evicted_scripts_total"),
    is(
        "total_eviction_exceeded_time",
        |f| {
            check_excess(f);
            Value::Millis(f.kernel.excess.total_ms(f.now_ms))
        },
        "Time above `maxmemory` (in INFO, milliseconds).",
    )
        .counter("tierce_eviction_exceeded_seconds_total"),
    is(
        "current_eviction_exceeded_time",
        |f| {
            check_excess(f);
            Value::Millis(f.kernel.excess.current_ms(f.now_ms))
        },
        "Milliseconds above `maxmemory` by now, 0 below it.",
    ),
    is("keyspace_hits", |f| f.keys().hits.into(), "Reads of a key that existed.")
        .counter("redis_keyspace_hits_total"),
    is("keyspace_misses", |f| f.keys().misses.into(), "Reads of a key that did not exist.")
        .counter("redis_keyspace_misses_total"),
    is(
        "pubsub_channels",
        |f| f.kernel.pubsub.count(Kind::Channel).into(),
        "Channels that have subscribers.",
    )
        .gauge("redis_pubsub_channels"),
    is(
        "pubsub_patterns",
        |f| f.kernel.pubsub.count(Kind::Pattern).into(),
        "Patterns that have subscribers.",
    )
        .gauge("redis_pubsub_patterns"),
    is(
        "pubsubshard_channels",
        |f| f.kernel.pubsub.count(Kind::ShardChannel).into(),
        "Shard channels that have subscribers.",
    )
        .gauge("redis_pubsubshard_channels"),
    is(
        "latest_fork_usec",
        |f| Value::Micros(f.kernel.persistence.report().last_pause.as_micros() as u64),
        "Time for which the start of the last snapshot locked all shards (in INFO, microseconds). Nothing forks.",
    )
        .gauge("redis_latest_fork_seconds"),
    always("total_forks", "0", "Nothing forks."),
    always("migrate_cached_sockets", "0", "`MIGRATE` keeps no connection.")
        .gauge("redis_migrate_cached_sockets_total"),
    always("slave_expires_tracked_keys", "0", "Replicas are never writable.")
        .gauge("redis_slave_expires_tracked_keys"),
    always("active_defrag_hits", "0", "Nothing is defragmented.")
        .gauge("redis_defrag_hits"),
    always("active_defrag_misses", "0", "Nothing is defragmented.")
        .gauge("redis_defrag_misses"),
    always("active_defrag_key_hits", "0", "Nothing is defragmented.")
        .gauge("redis_defrag_key_hits"),
    always("active_defrag_key_misses", "0", "Nothing is defragmented.")
        .gauge("redis_defrag_key_misses"),
    always("total_active_defrag_time", "0", "Nothing is defragmented."),
    always("current_active_defrag_time", "0", "Nothing is defragmented."),
    is(
        "tracking_total_keys",
        |f| f.kernel.keyspace.cached_keys().0.into(),
        "Keys that clients have read and may have cached (`tracking-table-max-keys`).",
    )
        .gauge("redis_tracking_total_keys"),
    is(
        "tracking_total_items",
        |f| f.kernel.keyspace.cached_keys().1.into(),
        "As `tracking_total_keys`, each key counted once for each client.",
    )
        .gauge("redis_tracking_total_items"),
    is(
        "tracking_total_prefixes",
        |f| f.kernel.pubsub.count(Kind::Prefix).into(),
        "Prefixes of keys of which clients are told (`CLIENT TRACKING ON BCAST`).",
    )
        .gauge("redis_tracking_total_prefixes"),
    is(
        "unexpected_error_replies",
        |f| f.kernel.role.failed_commands().into(),
        "Commands of the primary that failed here, so that the data may differ.",
    )
        .counter("redis_unexpected_error_replies"),
    is("total_error_replies", |f| f.count(Stat::Errors), "Replies that were errors.")
        .counter("redis_total_error_replies"),
    is(
        "dump_payload_sanitizations",
        restored,
        "Payloads of `RESTORE`, each of which is checked completely.",
    )
        .counter("redis_dump_payload_sanitizations"),
    is(
        "total_reads_processed",
        |f| f.count(Stat::Reads),
        "Times that input arrived and was served.",
    )
        .counter("redis_total_reads_processed"),
    is("total_writes_processed", |f| f.count(Stat::Reads), "As `total_reads_processed`: each ends with one send.")
        .counter("redis_total_writes_processed"),
    is(
        "io_threaded_reads_processed",
        threaded,
        "`total_reads_processed` if several threads serve connections, otherwise 0.",
    )
        .counter("redis_io_threaded_reads_processed"),
    is("io_threaded_writes_processed", threaded, "As `io_threaded_reads_processed`.")
        .counter("redis_io_threaded_writes_processed"),
    always(
        "reply_buffer_shrinks",
        "0",
        "A connection has no buffer for replies: a worker builds all of them in one.",
    ),
    always("reply_buffer_expands", "0", "A connection has no buffer for replies."),
    is(
        "client_query_buffer_limit_disconnections",
        |f| f.count(Stat::QueryLimitDisconnections),
        "Connections closed for a request that outgrew `client-query-buffer-limit`.",
    )
        .counter("redis_client_query_buffer_limit_disconnections_total"),
    is(
        "client_output_buffer_limit_disconnections",
        |f| f.count(Stat::OutputLimitDisconnections),
        "Connections closed for replies that they did not read.",
    )
    .counter("redis_client_output_buffer_limit_disconnections_total"),
    is(
        "request_size_limit_errors",
        |f| f.count(Stat::RequestSizeErrors),
        "Requests refused for the length of an argument (`proto-max-bulk-len`), a line or an item (`item-size-max`).",
    )
    .counter("tierce_request_size_limit_errors_total"),
    is(
        "request_arguments_limit_errors",
        |f| f.count(Stat::RequestArgumentsErrors),
        "Requests refused for the number of their arguments.",
    )
    .counter("tierce_request_arguments_limit_errors_total"),
    is(
        "nesting_limit_errors",
        |f| f.count(Stat::NestingLimitErrors),
        "Scripts and functions whose reply was nested too deep. Requests are not nested.",
    )
    .counter("tierce_nesting_limit_errors_total"),
    is("acl_access_denied_auth", |f| denied(f, Reason::Auth), "Failed authentications.")
        .counter("redis_acl_access_denied_auth_total"),
    is(
        "acl_access_denied_cmd",
        |f| denied(f, Reason::Command),
        "Calls of commands that their user may not use.",
    )
        .counter("redis_acl_access_denied_cmd_total"),
    is("acl_access_denied_key", |f| denied(f, Reason::Key), "Calls with keys that their user may not use.")
        .counter("redis_acl_access_denied_key_total"),
    is("acl_access_denied_channel", |f| denied(f, Reason::Channel), "Calls with channels that their user may not use.")
        .counter("redis_acl_access_denied_channel_total"),
    is("eventloop_cycles", |f| f.count(Stat::Turns), "Times that a thread was awake.")
        .counter("redis_eventloop_cycles_total"),
];

fn rejected(facts: &Facts<'_>) -> Value {
    let traffic = facts.kernel.traffic();
    let by_workers = [Stat::RejectedConnections, Stat::ProtectedModeRejections];
    let by_workers: u64 = by_workers.into_iter().map(|stat| facts.kernel.stat(stat)).sum();
    (traffic.dropped + traffic.too_fast + by_workers).into()
}

fn http(facts: &Facts<'_>, figure: fn(&HttpFigures) -> u64) -> Value {
    facts.kernel.http.get().map_or(0, |figures| figure(figures)).into()
}

fn denied(facts: &Facts<'_>, reason: Reason) -> Value {
    facts.kernel.acl.log.count(reason).into()
}

fn restored(facts: &Facts<'_>) -> Value {
    let restore = facts.kernel.commands.find_original(b"restore");
    restore.map_or(0, |command| facts.totals().command(command.id).calls).into()
}

fn paused(facts: &Facts<'_>) -> Option<(String, i64)> {
    let (mode, left) = facts.kernel.pause.remaining(facts.now_ms)?;
    Some((format!("{mode:?}").to_ascii_lowercase(), left))
}

fn check_excess(facts: &Facts<'_>) {
    facts.kernel.excess.check(&facts.kernel.keyspace, facts.now_ms);
}

fn threaded(facts: &Facts<'_>) -> Value {
    if facts.kernel.workers() > 1 { facts.count(Stat::Reads) } else { Value::Int(0) }
}
