//! Connections, and what was counted since the start or `CONFIG RESETSTAT`.

use super::facts::Facts;
use super::field::{Field, always, is, maybe};
use crate::acl::Reason;
use crate::clients::ClientFlags;
use crate::pubsub::Kind;
use crate::stats::Stat;

pub(super) const CLIENTS: &[Field] = &[
    is(
        "connected_clients",
        |f| f.kernel.clients.len().to_string(),
        "Connections of all protocols.",
    ),
    always("cluster_connections", "0", "There is no cluster."),
    is(
        "maxclients",
        |f| f.kernel.config.live().maxclients().to_string(),
        "The directive, lowered if there are too few file descriptors.",
    ),
    is(
        "client_recent_max_input_buffer",
        |f| f.kernel.clients.largest_backlogs().0.to_string(),
        "The largest input that waits at a connection.",
    ),
    is(
        "client_recent_max_output_buffer",
        |f| f.kernel.clients.largest_backlogs().1.to_string(),
        "The largest output that waits at a connection.",
    ),
    is(
        "blocked_clients",
        |f| f.kernel.clients.count(ClientFlags::BLOCKED).to_string(),
        "Connections that wait for keys.",
    ),
    is(
        "pending_results",
        |f| f.kernel.clients.pending.get().to_string(),
        "Results of NB* commands that are still to come.",
    ),
    is(
        "tracking_clients",
        |f| f.kernel.pubsub.tracker_count().to_string(),
        "Connections that track keys (`CLIENT TRACKING`).",
    ),
    is(
        "pubsub_clients",
        |f| f.kernel.clients.count(ClientFlags::PUBSUB).to_string(),
        "Connections with subscriptions.",
    ),
    always("clients_in_timeout_table", "0", "There is no such table: each connection has a timer."),
    is(
        "watching_clients",
        |f| f.kernel.keyspace.watching().0.to_string(),
        "Connections that watch keys, none of which has changed.",
    ),
    is(
        "total_watched_keys",
        |f| f.kernel.keyspace.watching().1.to_string(),
        "Keys that are watched.",
    ),
    is(
        "total_blocking_keys",
        |f| f.kernel.keyspace.awaited_keys().0.to_string(),
        "Keys that connections wait for.",
    ),
    is(
        "total_blocking_keys_on_nokey",
        |f| f.kernel.keyspace.awaited_keys().1.to_string(),
        "Those of them whose removal also ends the wait (`XREADGROUP`).",
    ),
    maybe(
        "paused_reason",
        |f| paused(f).map(|_| "client_pause".to_owned()),
        "Why clients are paused.",
    ),
    maybe(
        "paused_actions",
        |f| paused(f).map(|(mode, _)| mode),
        "What is paused: `all` or `write`.",
    ),
    maybe(
        "paused_timeout_milliseconds",
        |f| paused(f).map(|(_, left)| left),
        "For how much longer.",
    ),
];

pub(super) const STATS: &[Field] = &[
    is(
        "total_connections_received",
        |f| f.kernel.traffic().connections.to_string(),
        "Connections that were accepted.",
    ),
    is(
        "total_commands_processed",
        |f| f.count(Stat::Commands),
        "Commands that were executed, failed ones included.",
    ),
    is(
        "instantaneous_ops_per_sec",
        |f| (f.rates()[0] as u64).to_string(),
        "Commands a second, recently.",
    ),
    is("total_net_input_bytes", |f| f.kernel.traffic().bytes_in.to_string(), "Bytes received."),
    is("total_net_output_bytes", |f| f.kernel.traffic().bytes_out.to_string(), "Bytes sent."),
    always("total_net_repl_input_bytes", "0", "There are no replicas."),
    always("total_net_repl_output_bytes", "0", "The same."),
    is(
        "instantaneous_input_kbps",
        |f| format!("{:.2}", f.rates()[1] / 1024.0),
        "KiB a second received recently.",
    ),
    is(
        "instantaneous_output_kbps",
        |f| format!("{:.2}", f.rates()[2] / 1024.0),
        "KiB a second sent recently.",
    ),
    always("instantaneous_input_repl_kbps", "0.00", "There are no replicas."),
    always("instantaneous_output_repl_kbps", "0.00", "The same."),
    is(
        "rejected_connections",
        |f| (f.kernel.traffic().dropped + f.totals.get(Stat::RejectedConnections)).to_string(),
        "Connections beyond `maxclients` or the file descriptors.",
    ),
    is(
        "tls_handshakes",
        |f| f.kernel.traffic().handshakes.completed.to_string(),
        "TLS handshakes that were completed.",
    ),
    is(
        "tls_handshakes_resumed",
        |f| f.kernel.traffic().handshakes.resumed.to_string(),
        "Those of them by which clients came back with a ticket.",
    ),
    is(
        "tls_handshakes_under_way",
        |f| f.kernel.traffic().handshakes.under_way.to_string(),
        "TLS handshakes that are not complete.",
    ),
    is(
        "tls_handshakes_refused",
        |f| f.kernel.traffic().handshakes.refused.to_string(),
        "Connections beyond `tls-handshakes-max`.",
    ),
    is(
        "tls_errors",
        |f| f.kernel.traffic().handshakes.failed.to_string(),
        "Encrypted connections that failed, in the handshake or later.",
    ),
    is(
        "sync_full",
        |f| f.kernel.primary.syncs().full.to_string(),
        "Replicas that were to get a full copy.",
    ),
    is(
        "sync_partial_ok",
        |f| f.kernel.primary.syncs().rest.to_string(),
        "Replicas that came back and got the rest of the stream.",
    ),
    is(
        "sync_partial_err",
        |f| f.kernel.primary.syncs().rest_refused.to_string(),
        "Replicas that came back and needed a full copy.",
    ),
    is(
        "expired_keys",
        |f| f.keys().expired.to_string(),
        "Keys that were removed at their deadline.",
    ),
    always(
        "expired_time_cap_reached_count",
        "0",
        "Expiry goes by deadlines, in small steps without a cap.",
    ),
    always(
        "expired_stale_perc",
        "0.00",
        "Keys are removed in the order of their deadlines; none is looked for by sampling.",
    ),
    is(
        "expire_cycle_cpu_milliseconds",
        |f| (f.keys().expiry_nanos / 1_000_000).to_string(),
        "How long keys and fields were removed in the background at their deadline.",
    ),
    is("evicted_keys", |f| f.keys().evicted.to_string(), "Keys that were evicted."),
    is(
        "evicted_clients",
        |f| f.count(Stat::EvictedClients),
        "Connections closed for `maxmemory-clients`.",
    ),
    is(
        "evicted_scripts",
        |f| f.kernel.scripts.evicted().to_string(),
        "Scripts of `EVAL` that were forgotten, because others were called after them.",
    ),
    is(
        "total_eviction_exceeded_time",
        |f| {
            check_excess(f);
            f.kernel.excess.total_ms(f.now_ms).to_string()
        },
        "Milliseconds above `maxmemory`.",
    ),
    is(
        "current_eviction_exceeded_time",
        |f| {
            check_excess(f);
            f.kernel.excess.current_ms(f.now_ms).to_string()
        },
        "Milliseconds above `maxmemory` by now, 0 below it.",
    ),
    is("keyspace_hits", |f| f.keys().hits.to_string(), "Reads of a key that was there."),
    is("keyspace_misses", |f| f.keys().misses.to_string(), "Reads of a key that was not."),
    is(
        "pubsub_channels",
        |f| f.kernel.pubsub.count(Kind::Channel).to_string(),
        "Channels that have subscribers.",
    ),
    is(
        "pubsub_patterns",
        |f| f.kernel.pubsub.count(Kind::Pattern).to_string(),
        "Patterns that have subscribers.",
    ),
    is(
        "pubsubshard_channels",
        |f| f.kernel.pubsub.count(Kind::ShardChannel).to_string(),
        "Shard channels that have subscribers.",
    ),
    is(
        "latest_fork_usec",
        |f| f.kernel.persistence.report().last_pause.as_micros().to_string(),
        "Microseconds for which the beginning of the last snapshot locked all shards. Nothing forks.",
    ),
    always("total_forks", "0", "Nothing forks."),
    always("migrate_cached_sockets", "0", "`MIGRATE` keeps no connection."),
    always("slave_expires_tracked_keys", "0", "There are no replicas."),
    always("active_defrag_hits", "0", "Nothing is defragmented."),
    always("active_defrag_misses", "0", "The same."),
    always("active_defrag_key_hits", "0", "The same."),
    always("active_defrag_key_misses", "0", "The same."),
    always("total_active_defrag_time", "0", "The same."),
    always("current_active_defrag_time", "0", "The same."),
    is(
        "tracking_total_keys",
        |f| f.kernel.keyspace.cached_keys().0.to_string(),
        "Keys that clients have read and may have cached (`tracking-table-max-keys`).",
    ),
    is(
        "tracking_total_items",
        |f| f.kernel.keyspace.cached_keys().1.to_string(),
        "The same, each key counted once for each client.",
    ),
    is(
        "tracking_total_prefixes",
        |f| f.kernel.pubsub.count(Kind::Prefix).to_string(),
        "Prefixes of keys of which clients are told (`CLIENT TRACKING ON BCAST`).",
    ),
    always("unexpected_error_replies", "0", "Counts errors in what a primary sends."),
    is("total_error_replies", |f| f.count(Stat::Errors), "Replies that were errors."),
    is(
        "dump_payload_sanitizations",
        restored,
        "Payloads of `RESTORE`, each of which is checked completely.",
    ),
    is(
        "total_reads_processed",
        |f| f.count(Stat::Reads),
        "Times that input arrived and was served.",
    ),
    is("total_writes_processed", |f| f.count(Stat::Reads), "The same, as each ends with one send."),
    is(
        "io_threaded_reads_processed",
        threaded,
        "Those of `total_reads_processed` that one of several threads served: all or none.",
    ),
    is("io_threaded_writes_processed", threaded, "The same for `total_writes_processed`."),
    always(
        "reply_buffer_shrinks",
        "0",
        "A connection has no buffer for replies: a worker builds all of them in one.",
    ),
    always("reply_buffer_expands", "0", "The same."),
    is(
        "client_query_buffer_limit_disconnections",
        |f| f.count(Stat::QueryLimitDisconnections),
        "Connections closed for a request that outgrew `client-query-buffer-limit`.",
    ),
    is(
        "client_output_buffer_limit_disconnections",
        |f| f.count(Stat::OutputLimitDisconnections),
        "Connections closed for replies that they did not read.",
    ),
    is("acl_access_denied_auth", |f| denied(f, Reason::Auth), "Failed authentications."),
    is(
        "acl_access_denied_cmd",
        |f| denied(f, Reason::Command),
        "Calls of commands that their user may not use.",
    ),
    is("acl_access_denied_key", |f| denied(f, Reason::Key), "The same with keys."),
    is("acl_access_denied_channel", |f| denied(f, Reason::Channel), "The same with channels."),
    is("eventloop_cycles", |f| f.count(Stat::Turns), "Times that a thread was awake."),
];

fn denied(facts: &Facts<'_>, reason: Reason) -> String {
    facts.kernel.acl.log.count(reason).to_string()
}

fn restored(facts: &Facts<'_>) -> String {
    let restore = facts.kernel.commands.find_original(b"restore");
    restore.map_or(0, |command| facts.totals.command(command.id).calls).to_string()
}

fn paused(facts: &Facts<'_>) -> Option<(String, String)> {
    let (mode, left) = facts.kernel.pause.remaining(facts.now_ms)?;
    Some((format!("{mode:?}").to_ascii_lowercase(), left.to_string()))
}

fn check_excess(facts: &Facts<'_>) {
    facts.kernel.excess.check(&facts.kernel.keyspace, facts.now_ms);
}

fn threaded(facts: &Facts<'_>) -> String {
    if facts.kernel.workers() > 1 { facts.count(Stat::Reads) } else { "0".to_owned() }
}
