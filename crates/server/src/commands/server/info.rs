//! INFO.

use std::fmt::{Display, Write as _};
use std::num::NonZeroUsize;
use std::path::Path;

use tierce_wire::resp::Args;

use crate::clients::ClientFlags;
use crate::command::{Flags, Group, Scope, Spec};
use crate::config::DirectiveId;
use crate::error::CommandError;
use crate::execute::Context;
use crate::memory::{MemoryReport, human};
use crate::server::Server;
use crate::stats::{Stat, Totals, percentile};

pub(super) static COMMANDS: &[Spec] = &[Spec::new("info", -1, Group::Server, info)
    .tips(&["nondeterministic_output", "request_policy:all_shards", "response_policy:special"])
    .flags(Flags::LOADING.with(Flags::STALE))
    .categories(&["dangerous"])
    .locks(Scope::Apart)
    .doc(
        "1.0.0",
        "O(1)",
        "[section [section ...]]",
        "Returns information and statistics about the server.",
    )];

/// A section: its name, its title, whether it is shown unasked, and what writes it.
struct Section {
    name: &'static str,
    title: &'static str,
    default: bool,
    write: fn(&mut Report<'_>),
}

const SECTIONS: &[Section] = &[
    Section { name: "server", title: "Server", default: true, write: server },
    Section { name: "clients", title: "Clients", default: true, write: clients },
    Section { name: "memory", title: "Memory", default: true, write: memory },
    Section { name: "persistence", title: "Persistence", default: true, write: persistence },
    Section { name: "stats", title: "Stats", default: true, write: stats },
    Section { name: "replication", title: "Replication", default: true, write: replication },
    Section { name: "cpu", title: "CPU", default: true, write: cpu },
    Section { name: "modules", title: "Modules", default: true, write: |_| {} },
    Section { name: "commandstats", title: "Commandstats", default: false, write: command_stats },
    Section { name: "errorstats", title: "Errorstats", default: true, write: error_stats },
    Section { name: "latencystats", title: "Latencystats", default: false, write: latency_stats },
    Section { name: "cluster", title: "Cluster", default: true, write: cluster },
    Section { name: "keyspace", title: "Keyspace", default: true, write: keyspace },
];

fn info(ctx: &mut Context<'_, '_>, args: Args<'_>) -> Result<(), CommandError> {
    let wanted = |section: &&Section| {
        let named = |arg: &[u8]| match arg.to_ascii_lowercase().as_slice() {
            b"all" | b"everything" => true,
            b"default" => section.default,
            name => name == section.name.as_bytes(),
        };
        if args.len() == 1 { section.default } else { args.iter().skip(1).any(named) }
    };
    let mut report = Report {
        server: ctx.server,
        totals: ctx.server.totals(),
        now_ms: ctx.now_ms,
        text: String::with_capacity(4096),
    };
    for section in SECTIONS.iter().filter(wanted) {
        if !report.text.is_empty() {
            report.text.push_str("\r\n");
        }
        let _ = write!(report.text, "# {}\r\n", section.title);
        (section.write)(&mut report);
    }
    ctx.reply.verbatim(&report.text);
    Ok(())
}

/// The text under construction, and what it tells about.
struct Report<'a> {
    server: &'a Server,
    totals: Totals,
    now_ms: i64,
    text: String,
}

impl Report<'_> {
    fn line(&mut self, name: &str, value: impl Display) {
        let _ = write!(self.text, "{name}:{value}\r\n");
    }

    /// A size in bytes, and once more for people.
    fn size(&mut self, name: &str, bytes: usize) {
        self.line(name, bytes);
        self.line(&format!("{name}_human"), human(bytes));
    }

    /// Things that this server does not do, or that are always the same.
    fn constants(&mut self, lines: &[(&str, &str)]) {
        lines.iter().for_each(|(name, value)| self.line(name, value));
    }
}

fn server(report: &mut Report<'_>) {
    let server = report.server;
    let uptime = server.started.elapsed().as_secs();
    report.line("redis_version", crate::REDIS_VERSION);
    report.line("tierce_version", crate::VERSION);
    report.constants(&[
        ("redis_git_sha1", "00000000"),
        ("redis_git_dirty", "0"),
        ("redis_build_id", "0"),
        ("redis_mode", "standalone"),
    ]);
    report.line("os", os());
    report.line("arch_bits", usize::BITS);
    report.constants(&[
        ("monotonic_clock", "POSIX clock_gettime"),
        ("multiplexing_api", "epoll"),
        ("atomicvar_api", "c11-builtin"),
        ("gcc_version", "0.0.0"),
    ]);
    report.line("process_id", std::process::id());
    report.line("process_supervised", "no");
    report.line("run_id", &server.run_id);
    report.line("tcp_port", server.config.settings().port());
    report.line("server_time_usec", crate::clock::unix_micros());
    report.line("uptime_in_seconds", uptime);
    report.line("uptime_in_days", uptime / 86_400);
    report.constants(&[("hz", "10"), ("configured_hz", "10")]);
    report.line("lru_clock", (report.now_ms / 1000) & 0xff_ffff);
    let executable = std::env::current_exe().unwrap_or_default();
    report.line("executable", executable.display());
    let settings = server.config.settings();
    let file = settings.file().unwrap_or(Path::new(""));
    report.line("config_file", file.display());
    report.line("io_threads_active", u8::from(server.workers() > 1));
    report.line("threads", server.workers());
    report.line("shards", server.keyspace.shard_count());
    listeners(report);
}

/// A line for each kind of socket, with its number among all kinds that Redis knows.
fn listeners(report: &mut Report<'_>) {
    let settings = report.server.config.settings();
    let startup = settings.startup(NonZeroUsize::MIN);
    if startup.port != 0 {
        let bind = settings.list(const { DirectiveId::of("bind") });
        let bind: String =
            bind.iter().map(|host| format!(",bind={}", String::from_utf8_lossy(host))).collect();
        report.line("listener0", format_args!("name=tcp{bind},port={}", startup.port));
    }
    if let Some(path) = startup.unixsocket {
        report.line("listener1", format_args!("name=unix,bind={}", path.display()));
    }
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

fn clients(report: &mut Report<'_>) {
    let server = report.server;
    let (input, output) = server.clients.largest_backlogs();
    report.line("connected_clients", server.clients.len());
    report.line("cluster_connections", 0);
    report.line("maxclients", server.config.live().maxclients());
    report.line("client_recent_max_input_buffer", input);
    report.line("client_recent_max_output_buffer", output);
    report.line("blocked_clients", server.clients.count(ClientFlags::BLOCKED));
    report.constants(&[
        ("tracking_clients", "0"),
        ("pubsub_clients", "0"),
        ("watching_clients", "0"),
        ("clients_in_timeout_table", "0"),
        ("total_watched_keys", "0"),
        ("total_blocking_keys", "0"),
        ("total_blocking_keys_on_nokey", "0"),
    ]);
    if let Some((mode, left)) = server.pause.remaining(report.now_ms) {
        report.line("paused_reason", "client_pause");
        report.line("paused_actions", format!("{mode:?}").to_ascii_lowercase());
        report.line("paused_timeout_milliseconds", left);
    }
}

fn memory(report: &mut Report<'_>) {
    let memory = MemoryReport::take(report.server);
    let used = memory.used();
    report.size("used_memory", used);
    report.size("used_memory_rss", memory.resident);
    report.size("used_memory_peak", memory.peak);
    let peak_percent = used as f64 * 100.0 / memory.peak.max(1) as f64;
    report.line("used_memory_peak_perc", format!("{peak_percent:.2}%"));
    report.line("used_memory_overhead", memory.overhead());
    report.line("used_memory_startup", memory.startup);
    report.line("used_memory_dataset", memory.dataset());
    let data_percent = memory.dataset() as f64 * 100.0 / (used - memory.startup).max(1) as f64;
    report.line("used_memory_dataset_perc", format!("{data_percent:.2}%"));
    report.line("allocator_allocated", used);
    report.line("allocator_active", memory.resident);
    report.line("allocator_resident", memory.resident);
    report.size("total_system_memory", memory.total_system);
    report.size("used_memory_lua", 0);
    report.line("used_memory_vm_eval", 0);
    report.line("used_memory_scripts_eval", 0);
    report.line("number_of_functions", 0);
    report.line("number_of_libraries", 0);
    report.line("used_memory_vm_functions", 0);
    report.size("used_memory_vm_total", 0);
    report.line("used_memory_functions", 0);
    report.size("used_memory_scripts", 0);
    report.line("number_of_cached_scripts", 0);
    report.size("maxmemory", memory.limit);
    report.line(
        "maxmemory_policy",
        report.server.config.settings().word(DirectiveId::of("maxmemory-policy")),
    );
    let spilled = report.server.keyspace.spill_stats();
    let on_disk = report.server.keyspace.cold_store().map(|store| store.figures());
    report.line("spilled_keys", spilled.keys);
    report.line("spilled_bytes", spilled.bytes);
    report.line("spilled_disk_bytes", on_disk.map_or(0, |figures| figures.bytes));
    report.line("spilled_disk_live_bytes", on_disk.map_or(0, |figures| figures.live_bytes));
    report.line("spilled_reads", spilled.fetched);
    report.line("spilled_reads_late", spilled.fetched_late);
    let driver = report.server.spill.driver();
    report.line("spilled_reads_driver", driver.map_or("none", |driver| driver.name()));
    // The allocator tells nothing of what it holds beyond use, so all of the difference between
    // what is in use and what is resident is reported as one.
    report.line("allocator_frag_ratio", format!("{:.2}", memory.fragmentation()));
    report.line("allocator_frag_bytes", memory.fragmentation_bytes());
    report.constants(&[
        ("allocator_rss_ratio", "1.00"),
        ("allocator_rss_bytes", "0"),
        ("rss_overhead_ratio", "1.00"),
        ("rss_overhead_bytes", "0"),
    ]);
    report.line("mem_fragmentation_ratio", format!("{:.2}", memory.fragmentation()));
    report.line("mem_fragmentation_bytes", memory.fragmentation_bytes());
    report.line("mem_not_counted_for_evict", memory.not_evictable());
    report.constants(&[
        ("mem_replication_backlog", "0"),
        ("mem_total_replication_buffers", "0"),
        ("mem_clients_slaves", "0"),
    ]);
    report.line("mem_clients_normal", memory.clients);
    report.constants(&[("mem_cluster_links", "0"), ("mem_aof_buffer", "0")]);
    report.line("mem_allocator", crate::memory::ALLOCATOR);
    report.line("active_defrag_running", 0);
    report.line("lazyfree_pending_bytes", report.server.keyspace.memory().garbage);
    report.constants(&[("lazyfree_pending_objects", "0"), ("lazyfreed_objects", "0")]);
}

fn persistence(report: &mut Report<'_>) {
    let server = report.server;
    let saves = server.persistence.report();
    let memory = server.keyspace.snapshot_memory().unwrap_or_default();
    let (keys, keys_total) = saves.running.map_or((0, 0), |save| (save.keys, save.keys_total));
    let percent = keys as f64 * 100.0 / keys_total.max(1) as f64;
    let background = saves.running.filter(|save| save.is_background);
    report.constants(&[("loading", "0"), ("async_loading", "0")]);
    // What Redis says of the copies that a fork makes are here those of the snapshot.
    report.line("current_cow_peak", memory.peak);
    report.line("current_cow_size", memory.now);
    report.line("current_cow_size_age", 0);
    report.line("current_fork_perc", format!("{:.2}", percent.min(100.0)));
    report.line("current_save_keys_processed", keys);
    report.line("current_save_keys_total", keys_total);
    report.line("rdb_changes_since_last_save", server.unsaved_changes());
    report.line("rdb_bgsave_in_progress", u8::from(background.is_some()));
    report.line("rdb_last_save_time", saves.last_save_unix_seconds);
    report.line("rdb_last_bgsave_status", if saves.is_last_ok { "ok" } else { "err" });
    report.line("rdb_last_bgsave_time_sec", saves.last_seconds.map_or(-1, |time| time as i64));
    let current = background.map_or(-1, |save| save.elapsed.as_secs() as i64);
    report.line("rdb_current_bgsave_time_sec", current);
    report.line("rdb_saves", saves.saves);
    report.line("rdb_last_cow_size", saves.last_extra_bytes);
    report.line("rdb_last_load_keys_expired", saves.loaded.expired);
    report.line("rdb_last_load_keys_loaded", saves.loaded.keys);
    report.constants(&[]);
    log_of_writes(report);
    report.constants(&[("module_fork_in_progress", "0"), ("module_fork_last_cow_size", "0")]);
}

fn log_of_writes(report: &mut Report<'_>) {
    let journal = report.server.durability.journal();
    let compaction = report.server.durability.compaction_figures();
    let figures = journal.map(|journal| journal.figures()).unwrap_or_default();
    let status = |failed: bool| if failed { "err" } else { "ok" };
    let is_wanted = report.server.durability.is_wanted();
    report.line("aof_enabled", u8::from(journal.is_some()));
    // A log that is about to be begun is as good as underway.
    let is_coming = is_wanted && (journal.is_none() || compaction.is_incomplete);
    let is_rewritten = compaction.running.is_some() || is_coming;
    report.line("aof_rewrite_in_progress", u8::from(is_rewritten));
    report.constants(&[("aof_rewrite_scheduled", "0")]);
    let last = compaction.last.map_or(-1, |last| last.as_secs() as i64);
    report.line("aof_last_rewrite_time_sec", last);
    let current = compaction.running.map_or(-1, |running| running.as_secs() as i64);
    report.line("aof_current_rewrite_time_sec", current);
    report.line("aof_last_bgrewrite_status", status(compaction.last_failed));
    report.line("aof_last_write_status", status(figures.wound.is_some()));
    report.line("aof_rewrites", compaction.passes);
    report.constants(&[("aof_rewrites_consecutive_failures", "0"), ("aof_last_cow_size", "0")]);
    if journal.is_some() {
        report.line("aof_current_size", figures.bytes);
        report.line("aof_base_size", compaction.base_bytes);
        report.constants(&[("aof_pending_rewrite", "0"), ("aof_buffer_length", "0")]);
        report.line("aof_pending_bio_fsync", u8::from(figures.durable < figures.appended));
        report.line("aof_delayed_fsync", report.server.durability.delays());
        report.line("log_records", figures.appended);
        report.line("log_records_durable", figures.durable);
        report.line("log_syncs", figures.syncs);
        report.line("log_compaction_bytes_written", compaction.bytes_written);
    }
}

fn stats(report: &mut Report<'_>) {
    let server = report.server;
    let traffic = server.traffic();
    let commands = report.totals.get(Stat::Commands);
    let running = server.running_totals();
    let [ops, input, output] = server.rates.per_second(report.now_ms, running);
    server.rates.sample(report.now_ms, running);
    report.line("total_connections_received", traffic.connections);
    report.line("total_commands_processed", commands);
    report.line("instantaneous_ops_per_sec", ops as u64);
    report.line("total_net_input_bytes", traffic.bytes_in);
    report.line("total_net_output_bytes", traffic.bytes_out);
    report.constants(&[("total_net_repl_input_bytes", "0"), ("total_net_repl_output_bytes", "0")]);
    report.line("instantaneous_input_kbps", format!("{:.2}", input / 1024.0));
    report.line("instantaneous_output_kbps", format!("{:.2}", output / 1024.0));
    report.constants(&[
        ("instantaneous_input_repl_kbps", "0.00"),
        ("instantaneous_output_repl_kbps", "0.00"),
    ]);
    report.line(
        "rejected_connections",
        traffic.dropped + report.totals.get(Stat::RejectedConnections),
    );
    let keys = server.key_stats();
    report.constants(&[("sync_full", "0"), ("sync_partial_ok", "0"), ("sync_partial_err", "0")]);
    report.line("expired_keys", keys.expired);
    report.constants(&[
        ("expired_stale_perc", "0.00"),
        ("expired_time_cap_reached_count", "0"),
        ("expire_cycle_cpu_milliseconds", "0"),
    ]);
    server.excess.check(server, report.now_ms);
    report.line("evicted_keys", keys.evicted);
    report.line("evicted_clients", 0);
    report.line("total_eviction_exceeded_time", server.excess.total_ms(report.now_ms));
    report.line("current_eviction_exceeded_time", server.excess.current_ms(report.now_ms));
    report.line("keyspace_hits", keys.hits);
    report.line("keyspace_misses", keys.misses);
    // Nothing forks; it is the time for which the last snapshot stopped everybody in its beginning.
    let pause = server.persistence.report().last_pause;
    report.line("latest_fork_usec", pause.as_micros());
    report.constants(&[
        ("pubsub_channels", "0"),
        ("pubsub_patterns", "0"),
        ("pubsubshard_channels", "0"),
        ("total_forks", "0"),
        ("migrate_cached_sockets", "0"),
        ("slave_expires_tracked_keys", "0"),
        ("active_defrag_hits", "0"),
        ("active_defrag_misses", "0"),
        ("active_defrag_key_hits", "0"),
        ("active_defrag_key_misses", "0"),
        ("total_active_defrag_time", "0"),
        ("current_active_defrag_time", "0"),
        ("tracking_total_keys", "0"),
        ("tracking_total_items", "0"),
        ("tracking_total_prefixes", "0"),
    ]);
    report.line("unexpected_error_replies", 0);
    report.line("total_error_replies", report.totals.get(Stat::Errors));
    report.constants(&[("dump_payload_sanitizations", "0")]);
    let reads = report.totals.get(Stat::Reads);
    report.line("total_reads_processed", reads);
    report.line("total_writes_processed", reads);
    report
        .constants(&[("io_threaded_reads_processed", "0"), ("io_threaded_writes_processed", "0")]);
    report.line("acl_access_denied_auth", report.totals.get(Stat::AuthFailures));
    report.line(
        "client_query_buffer_limit_disconnections",
        report.totals.get(Stat::QueryLimitDisconnections),
    );
    report.line(
        "client_output_buffer_limit_disconnections",
        report.totals.get(Stat::OutputLimitDisconnections),
    );
    report.constants(&[
        ("acl_access_denied_cmd", "0"),
        ("acl_access_denied_key", "0"),
        ("acl_access_denied_channel", "0"),
    ]);
    report.line("reply_buffer_shrinks", 0);
    report.line("reply_buffer_expands", 0);
    report.line("eventloop_cycles", report.totals.get(Stat::Turns));
}

fn replication(report: &mut Report<'_>) {
    report.constants(&[
        ("role", "master"),
        ("connected_slaves", "0"),
        ("master_failover_state", "no-failover"),
    ]);
    report.line("master_replid", &report.server.run_id);
    report.constants(&[
        ("master_replid2", "0000000000000000000000000000000000000000"),
        ("master_repl_offset", "0"),
        ("second_repl_offset", "-1"),
        ("repl_backlog_active", "0"),
        ("repl_backlog_size", "1048576"),
        ("repl_backlog_first_byte_offset", "0"),
        ("repl_backlog_histlen", "0"),
    ]);
}

fn cpu(report: &mut Report<'_>) {
    let usage = crate::process::cpu_times();
    report.line("used_cpu_sys", format!("{:.6}", usage.system));
    report.line("used_cpu_user", format!("{:.6}", usage.user));
    report.constants(&[
        ("used_cpu_sys_children", "0.000000"),
        ("used_cpu_user_children", "0.000000"),
    ]);
    // No thread is the main one: all of them serve.
    report.line("used_cpu_sys_main_thread", format!("{:.6}", usage.system));
    report.line("used_cpu_user_main_thread", format!("{:.6}", usage.user));
}

fn command_stats(report: &mut Report<'_>) {
    for command in report.server.commands.all() {
        let totals = report.totals.command(command.id);
        if totals.calls + totals.refused + totals.failed == 0 {
            continue;
        }
        let micros = totals.nanos / 1000;
        let per_call = totals.nanos as f64 / 1000.0 / totals.calls.max(1) as f64;
        let text = format!(
            "calls={},usec={micros},usec_per_call={per_call:.2},rejected_calls={},failed_calls={}",
            totals.calls, totals.refused, totals.failed
        );
        let name = format!("cmdstat_{}", command.full_name);
        let _ = write!(report.text, "{name}:{text}\r\n");
    }
}

fn error_stats(report: &mut Report<'_>) {
    for (kind, count) in report.server.errors.counts() {
        report.line(&format!("errorstat_{kind}"), format_args!("count={count}"));
    }
}

fn latency_stats(report: &mut Report<'_>) {
    if !report.server.config.live().latency_tracking() {
        return;
    }
    let settings = report.server.config.settings();
    for command in report.server.commands.all() {
        let totals = report.totals.command(command.id);
        if totals.calls == 0 {
            continue;
        }
        let at = |percent: &f64| {
            format!("p{percent}={:.3}", percentile(totals.histogram, *percent) as f64 / 1000.0)
        };
        let text = settings.percentiles().iter().map(at).collect::<Vec<_>>().join(",");
        let name = format!("latency_percentiles_usec_{}", command.full_name);
        let _ = write!(report.text, "{name}:{text}\r\n");
    }
}

fn cluster(report: &mut Report<'_>) {
    report.line("cluster_enabled", 0);
}

fn keyspace(report: &mut Report<'_>) {
    for db in report.server.keyspace.db_indices() {
        let stats = report.server.keyspace.db_stats(db, report.now_ms);
        if stats.keys > 0 {
            let text = format!(
                "keys={},expires={},avg_ttl={}",
                stats.keys, stats.expires, stats.ttl_mean_ms
            );
            report.line(&format!("db{}", db.get()), text);
        }
    }
}
