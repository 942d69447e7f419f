//! INFO and its counters, and the other reports for operators.

use std::collections::BTreeMap;

use crate::operations::support::{Client, TestServer};

/// Returns the fields of an INFO reply.
fn fields(client: &mut Client, sections: &str) -> BTreeMap<String, String> {
    let text = client.call(&format!("INFO {sections}"));
    let pairs = text.lines().filter_map(|line| line.split_once(':'));
    pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
}

fn titles(client: &mut Client, sections: &str) -> String {
    let text = client.call(&format!("INFO {sections}"));
    let titles: Vec<_> = text.lines().filter_map(|line| line.strip_prefix("# ")).collect();
    titles.join(" ")
}

#[test]
fn sections_are_chosen_as_in_redis() {
    let server = TestServer::start();
    let mut client = server.client();
    // `Bucket` exists only in Tierce, `TLS` in Valkey 9.1.
    let default = "Server Clients Memory Persistence Stats Replication Bucket TLS CPU Modules Errorstats \
                   Cluster Keyspace";
    let all = "Server Clients Memory Persistence Stats Replication Bucket TLS CPU Modules Commandstats \
               Errorstats Latencystats Cluster Keyspace";
    for (sections, expected) in [
        ("", default),
        ("default", default),
        ("all", all),
        ("everything", all),
        ("nosuch", ""),
        ("SERVER nosuch", "Server"),
        ("keyspace cpu cpu", "CPU Keyspace"),
        ("default commandstats", &default.replace("Errorstats", "Commandstats Errorstats")),
    ] {
        assert_eq!(titles(&mut client, sections), expected, "{sections}");
    }
}

/// Checks the fields that redis_exporter, RedisInsight, Datadog's check and redis-py's `info()`
/// read of a standalone server without replicas.
#[test]
fn monitoring_tools_find_numbers() {
    let server = TestServer::start();
    let mut client = server.client();
    client.check(&[("SET k v", "OK")]);
    let fields = fields(&mut client, "everything");
    for name in "\
        uptime_in_seconds uptime_in_days process_id tcp_port hz configured_hz lru_clock \
        server_time_usec io_threads_active connected_clients cluster_connections maxclients \
        client_recent_max_input_buffer client_recent_max_output_buffer blocked_clients \
        tracking_clients pubsub_clients watching_clients clients_in_timeout_table \
        total_watched_keys total_blocking_keys total_blocking_keys_on_nokey used_memory \
        used_memory_rss used_memory_peak used_memory_overhead used_memory_startup \
        used_memory_dataset used_memory_lua used_memory_vm_eval used_memory_vm_functions \
        used_memory_vm_total used_memory_functions used_memory_scripts used_memory_scripts_eval \
        number_of_cached_scripts number_of_functions number_of_libraries total_system_memory \
        maxmemory allocator_allocated allocator_active allocator_resident allocator_frag_ratio \
        allocator_frag_bytes allocator_rss_ratio allocator_rss_bytes rss_overhead_ratio \
        rss_overhead_bytes mem_fragmentation_ratio mem_fragmentation_bytes \
        mem_not_counted_for_evict mem_replication_backlog mem_total_replication_buffers \
        mem_clients_slaves mem_clients_normal mem_cluster_links active_defrag_running \
        lazyfree_pending_objects loading async_loading current_cow_peak current_cow_size \
        current_cow_size_age current_fork_perc current_save_keys_processed \
        current_save_keys_total rdb_changes_since_last_save rdb_bgsave_in_progress \
        rdb_last_save_time rdb_last_bgsave_time_sec rdb_current_bgsave_time_sec rdb_saves \
        rdb_last_cow_size rdb_last_load_keys_expired rdb_last_load_keys_loaded aof_enabled \
        aof_rewrite_in_progress aof_rewrite_scheduled aof_last_rewrite_time_sec \
        aof_current_rewrite_time_sec aof_last_cow_size aof_rewrites module_fork_in_progress \
        module_fork_last_cow_size total_connections_received total_commands_processed \
        instantaneous_ops_per_sec total_net_input_bytes total_net_output_bytes \
        total_net_repl_input_bytes total_net_repl_output_bytes instantaneous_input_kbps \
        instantaneous_output_kbps \
        rejected_connections sync_full sync_partial_ok sync_partial_err expired_keys \
        expired_stale_perc expired_time_cap_reached_count evicted_keys evicted_clients \
        total_eviction_exceeded_time current_eviction_exceeded_time keyspace_hits \
        keyspace_misses pubsub_channels pubsub_patterns pubsubshard_channels latest_fork_usec \
        total_forks migrate_cached_sockets slave_expires_tracked_keys active_defrag_hits \
        active_defrag_misses active_defrag_key_hits active_defrag_key_misses \
        total_active_defrag_time current_active_defrag_time tracking_total_keys \
        tracking_total_items tracking_total_prefixes unexpected_error_replies \
        total_error_replies dump_payload_sanitizations total_reads_processed \
        total_writes_processed io_threaded_reads_processed io_threaded_writes_processed \
        eventloop_cycles acl_access_denied_auth acl_access_denied_cmd acl_access_denied_key \
        acl_access_denied_channel connected_slaves master_repl_offset second_repl_offset \
        repl_backlog_active repl_backlog_size repl_backlog_first_byte_offset \
        repl_backlog_histlen used_cpu_sys used_cpu_user used_cpu_sys_children \
        used_cpu_user_children used_cpu_sys_main_thread used_cpu_user_main_thread \
        cluster_enabled"
        .split_whitespace()
    {
        let value = fields.get(name).unwrap_or_else(|| panic!("{name} is missing"));
        assert!(value.parse::<f64>().is_ok(), "{name}:{value}");
    }
    for (name, expected) in [
        ("redis_mode", "standalone"),
        ("role", "master"),
        ("maxmemory_policy", "noeviction"),
        ("rdb_last_bgsave_status", "ok"),
        ("aof_last_write_status", "ok"),
        ("aof_last_bgrewrite_status", "ok"),
        ("master_failover_state", "no-failover"),
        ("db0", "keys=1,expires=0,avg_ttl=0"),
    ] {
        assert_eq!(fields[name], expected, "{name}");
    }
    for (name, value) in &fields {
        if let Some(base) = name.strip_suffix("_human") {
            assert!(fields.contains_key(base), "{name}");
            assert!(value.ends_with(['B', 'K', 'M', 'G', 'T']), "{name}:{value}");
        }
    }
}

#[test]
fn errors_and_refused_calls_are_counted() {
    let server = TestServer::with("--requirepass secret");
    let mut client = server.client();
    client.call("GET k");
    client.call("AUTH wrong");
    client.check(&[("AUTH secret", "OK"), ("SET k v", "OK")]);
    for line in ["NOSUCH", "GET", "INCR k", "CLIENT nosuch", "CONFIG SET x"] {
        assert!(client.value(line).is_error(), "{line}");
    }
    let mut broken = server.client();
    broken.send_raw(b"*1\r\n:1\r\n");
    assert!(broken.next().starts_with("-ERR Protocol error"));
    let stats = fields(&mut client, "errorstats commandstats stats");
    for (name, expected) in [
        ("errorstat_NOAUTH", "count=1"),
        ("errorstat_WRONGPASS", "count=1"),
        ("errorstat_ERR", "count=6"),
        ("total_error_replies", "8"),
        ("acl_access_denied_auth", "1"),
    ] {
        assert_eq!(stats[name], expected, "{name}");
    }
    let calls = |stats: &BTreeMap<String, String>, name: &str| {
        let values = stats[&format!("cmdstat_{name}")].clone();
        let number = |field: &str| -> u64 {
            let field = values.split(',').find_map(|f| f.strip_prefix(&format!("{field}=")));
            field.unwrap().parse().unwrap()
        };
        (number("calls"), number("rejected_calls"), number("failed_calls"))
    };
    assert_eq!(calls(&stats, "get"), (0, 2, 0));
    assert_eq!(calls(&stats, "auth"), (2, 0, 1));
    assert_eq!(calls(&stats, "incr"), (1, 0, 1));
    assert_eq!(calls(&stats, "config|set"), (0, 1, 0));

    client.check(&[("CONFIG RESETSTAT", "OK")]);
    let stats = fields(&mut client, "errorstats commandstats latencystats stats");
    assert!(!stats.keys().any(|name| name.starts_with("errorstat_")), "{stats:?}");
    assert!(!stats.contains_key("cmdstat_incr"), "{stats:?}");
    assert!(!stats.contains_key("latency_percentiles_usec_incr"), "{stats:?}");
    for name in [
        "total_error_replies",
        "keyspace_hits",
        "total_connections_received",
        "rejected_connections",
    ] {
        assert_eq!(stats[name], "0", "{name}");
    }
}

#[test]
fn latency_tracking_shows_the_percentiles_asked_for() {
    let server = TestServer::start();
    let mut client = server.client();
    let percentiles = |client: &mut Client| {
        let stats = fields(client, "latencystats");
        stats.get("latency_percentiles_usec_echo").map(|text| {
            let names: Vec<_> = text.split(',').filter_map(|f| f.split('=').next()).collect();
            names.join(" ")
        })
    };
    client.check(&[("ECHO x", "x")]);
    assert_eq!(percentiles(&mut client).as_deref(), Some("p50 p99 p99.9"));
    client.check(&[("CONFIG SET latency-tracking-info-percentiles \"0 25 100\"", "OK")]);
    assert_eq!(percentiles(&mut client).as_deref(), Some("p0 p25 p100"));
    assert!(client.call("LATENCY HISTOGRAM echo").starts_with("[echo, [calls, :1, histogram_usec"));
    client.check(&[("CONFIG SET latency-tracking no", "OK"), ("LATENCY HISTOGRAM", "[]")]);
    assert_eq!(percentiles(&mut client), None);
}

#[test]
fn slow_commands_and_spikes_are_reported() {
    let server = TestServer::with("--enable-debug-command yes --slowlog-log-slower-than 1000");
    let mut client = server.client();
    client.check(&[
        ("LATENCY LATEST", "[]"),
        ("LATENCY HISTORY nosuch", "[]"),
        ("LATENCY GRAPH nosuch", "-ERR No samples available for event 'nosuch'"),
        ("LATENCY RESET nosuch", ":0"),
        ("SLOWLOG GET -2", "-ERR count should be greater than or equal to -1"),
        (
            "SLOWLOG GET 1 2",
            "-ERR unknown subcommand or wrong number of arguments for 'GET'. Try SLOWLOG HELP.",
        ),
    ]);
    assert!(client.call("LATENCY DOCTOR").contains("latency-monitor-threshold"));
    client.check(&[("CONFIG SET latency-monitor-threshold 1", "OK"), ("DEBUG SLEEP 0.002", "OK")]);
    let latest = client.call("LATENCY LATEST");
    assert!(latest.contains("[command, :"), "{latest}");
    assert!(client.call("LATENCY GRAPH command").starts_with("command - "));
    // On a busy machine, other commands may be slow as well.
    assert!(client.call("LATENCY DOCTOR").contains("command: "));
    let slow = client.call("SLOWLOG GET -1");
    assert!(slow.contains("[DEBUG, SLEEP, 0.002]"), "{slow}");
    client.check(&[
        ("CONFIG SET latency-monitor-threshold 0 slowlog-log-slower-than -1", "OK"),
        ("LATENCY RESET command", ":1"),
        ("SLOWLOG RESET", "OK"),
        ("SLOWLOG LEN", ":0"),
    ]);
}

#[test]
fn memory_reports() {
    let server = TestServer::start();
    let mut client = server.client();
    client.check(&[
        ("MEMORY USAGE k", "(nil)"),
        ("SET k v", "OK"),
        ("MEMORY USAGE k SAMPLES x", "-ERR value is not an integer or out of range"),
        ("MEMORY USAGE k SAMPLES -1", "-ERR syntax error"),
        ("MEMORY USAGE k SAMPLES", "-ERR syntax error"),
        ("MEMORY USAGE k foo 1", "-ERR syntax error"),
        ("MEMORY PURGE", "OK"),
    ]);
    assert!(client.value("MEMORY USAGE k SAMPLES 0 SAMPLES 5").as_int().unwrap() > 0);
    let stats = client.call("MEMORY STATS");
    for name in
        ["peak.allocated", "dataset.percentage", "allocator-rss.bytes", "fragmentation.bytes"]
    {
        assert!(stats.contains(&format!("{name}, ")), "{name}: {stats}");
    }
    assert!(stats.contains("keys.count, :1,"), "{stats}");
    assert!(!client.call("MEMORY DOCTOR").is_empty());
}
