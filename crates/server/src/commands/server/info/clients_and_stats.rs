//! Connections, and what was counted since the start or `CONFIG RESETSTAT`.

use super::facts::Facts;
use super::field::{Field, always, is, maybe};
use crate::clients::ClientFlags;
use crate::stats::Stat;

pub(super) const CLIENTS: &[Field] = &[
    is(
        "connected_clients",
        |f| f.server.clients.len().to_string(),
        "Connections of all protocols.",
    ),
    always("cluster_connections", "0", "There is no cluster."),
    is(
        "maxclients",
        |f| f.server.config.live().maxclients().to_string(),
        "The directive, lowered if there are too few file descriptors.",
    ),
    is(
        "client_recent_max_input_buffer",
        |f| f.server.clients.largest_backlogs().0.to_string(),
        "The largest input that waits at a connection.",
    ),
    is(
        "client_recent_max_output_buffer",
        |f| f.server.clients.largest_backlogs().1.to_string(),
        "The largest output that waits at a connection.",
    ),
    is(
        "blocked_clients",
        |f| f.server.clients.count(ClientFlags::BLOCKED).to_string(),
        "Connections that wait for keys.",
    ),
    always("tracking_clients", "0", "There is no `CLIENT TRACKING`."),
    always("pubsub_clients", "0", "There is no `SUBSCRIBE`."),
    always("clients_in_timeout_table", "0", "There is no such table: each connection has a timer."),
    always("watching_clients", "0", "There is no `WATCH`."),
    always("total_watched_keys", "0", "The same."),
    is(
        "total_blocking_keys",
        |f| f.server.keyspace.awaited_keys().0.to_string(),
        "Keys that connections wait for.",
    ),
    is(
        "total_blocking_keys_on_nokey",
        |f| f.server.keyspace.awaited_keys().1.to_string(),
        "Those of them whose removal ends a wait, too (`XREADGROUP`).",
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
        "For how long still.",
    ),
];

pub(super) const STATS: &[Field] = &[
    is(
        "total_connections_received",
        |f| f.server.traffic().connections.to_string(),
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
        "Commands a second of late.",
    ),
    is("total_net_input_bytes", |f| f.server.traffic().bytes_in.to_string(), "Bytes received."),
    is("total_net_output_bytes", |f| f.server.traffic().bytes_out.to_string(), "Bytes sent."),
    always("total_net_repl_input_bytes", "0", "There are no replicas."),
    always("total_net_repl_output_bytes", "0", "The same."),
    is(
        "instantaneous_input_kbps",
        |f| format!("{:.2}", f.rates()[1] / 1024.0),
        "KiB a second received of late.",
    ),
    is(
        "instantaneous_output_kbps",
        |f| format!("{:.2}", f.rates()[2] / 1024.0),
        "KiB a second sent of late.",
    ),
    always("instantaneous_input_repl_kbps", "0.00", "There are no replicas."),
    always("instantaneous_output_repl_kbps", "0.00", "The same."),
    is(
        "rejected_connections",
        |f| (f.server.traffic().dropped + f.totals.get(Stat::RejectedConnections)).to_string(),
        "Connections beyond `maxclients` or the file descriptors.",
    ),
    always("sync_full", "0", "There are no replicas."),
    always("sync_partial_ok", "0", "The same."),
    always("sync_partial_err", "0", "The same."),
    is("expired_keys", |f| f.keys().expired.to_string(), "Keys that were removed at their time."),
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
        "evicted_keys",
        |f| f.keys().evicted.to_string(),
        "Keys that were removed for want of memory.",
    ),
    always("evicted_clients", "0", "No connection is closed for `maxmemory-clients`."),
    is(
        "total_eviction_exceeded_time",
        |f| {
            check_excess(f);
            f.server.excess.total_ms(f.now_ms).to_string()
        },
        "Milliseconds above `maxmemory`.",
    ),
    is(
        "current_eviction_exceeded_time",
        |f| {
            check_excess(f);
            f.server.excess.current_ms(f.now_ms).to_string()
        },
        "Milliseconds above `maxmemory` by now, 0 below it.",
    ),
    is("keyspace_hits", |f| f.keys().hits.to_string(), "Reads of a key that was there."),
    is("keyspace_misses", |f| f.keys().misses.to_string(), "Reads of a key that was not."),
    always("pubsub_channels", "0", "There is no `SUBSCRIBE`."),
    always("pubsub_patterns", "0", "The same."),
    always("pubsubshard_channels", "0", "The same."),
    is(
        "latest_fork_usec",
        |f| f.server.persistence.report().last_pause.as_micros().to_string(),
        "Nothing forks: for so long the last snapshot stopped everybody in its beginning.",
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
    always("tracking_total_keys", "0", "There is no `CLIENT TRACKING`."),
    always("tracking_total_items", "0", "The same."),
    always("tracking_total_prefixes", "0", "The same."),
    always("unexpected_error_replies", "0", "Counts errors of scripts, which there are none of."),
    is("total_error_replies", |f| f.count(Stat::Errors), "Replies that were errors."),
    is(
        "dump_payload_sanitizations",
        restored,
        "Payloads that `RESTORE` got; it checks each as a whole.",
    ),
    is(
        "total_reads_processed",
        |f| f.count(Stat::Reads),
        "Times that input arrived and was served.",
    ),
    is(
        "total_writes_processed",
        |f| f.count(Stat::Reads),
        "The same, for each ends with one sending of replies.",
    ),
    is(
        "io_threaded_reads_processed",
        threaded,
        "Those of `total_reads_processed` that one of several threads served: all or none.",
    ),
    is("io_threaded_writes_processed", threaded, "The same for `total_writes_processed`."),
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
    is("acl_access_denied_auth", |f| f.count(Stat::AuthFailures), "Failed authentications."),
    always("acl_access_denied_cmd", "0", "There is one user, who may do everything."),
    always("acl_access_denied_key", "0", "The same."),
    always("acl_access_denied_channel", "0", "The same."),
    is("eventloop_cycles", |f| f.count(Stat::Turns), "Times that a thread was awake."),
];

fn restored(facts: &Facts<'_>) -> String {
    let restore = facts.server.commands.find(b"restore");
    restore.map_or(0, |command| facts.totals.command(command.id).calls).to_string()
}

fn paused(facts: &Facts<'_>) -> Option<(String, String)> {
    let (mode, left) = facts.server.pause.remaining(facts.now_ms)?;
    Some((format!("{mode:?}").to_ascii_lowercase(), left.to_string()))
}

fn check_excess(facts: &Facts<'_>) {
    facts.server.excess.check(&facts.server.keyspace, facts.now_ms);
}

fn threaded(facts: &Facts<'_>) -> String {
    if facts.server.workers() > 1 { facts.count(Stat::Reads) } else { "0".to_owned() }
}
