//! The statistics of `stats`: the rows of memcached 1.6.18, in its order. Tierce has no slabs; it reports a single one,
//! so that tools find the figures that they read. A row without a counterpart in Tierce is 0 or `no`.

use std::sync::atomic::Ordering::Relaxed;

use tierce_keyspace::Policy;

use super::Host;
use super::MEMCACHED_VERSION;
use super::counters::{COUNTS, Count};
use super::dump::cachedump;
use super::run::{REQUESTS_MAX, Run};
use crate::config::DirectiveId;
use crate::process::cpu_times;
use crate::stats::Stat;

/// Number of the only slab class that tools see.
pub const SLAB_CLASS: u32 = 1;

/// Upper bound (exclusive) of the classes that `stats cachedump` accepts.
const CLASSES_MAX: u32 = 64;

/// Size of a page, as memcached counts it.
const PAGE_BYTES: u64 = 1 << 20;

const BAD_FORMAT: &str = "CLIENT_ERROR bad command line format";

type Figures = Vec<(String, String)>;

/// Answer to a `stats`.
pub enum Report {
    /// Names and values.
    Figures(Figures),
    /// Text in a format of its own, with its end.
    Dump(Vec<u8>),
    /// The command is done; the line reports it.
    Done(&'static str),
    /// The command is refused; the line has the reason.
    Refused(&'static str),
    /// Unknown command.
    Unknown,
}

/// Answers a `stats` with these arguments.
pub fn report(run: &mut Run<'_, '_>, what: &[u8]) -> Report {
    let what = String::from_utf8_lossy(what);
    let words: Vec<&str> = what.split(' ').filter(|word| !word.is_empty()).collect();
    let server = run.server;
    let figures = match words.first().copied().unwrap_or_default() {
        "" => general(server),
        "settings" => settings(server),
        "items" => items(server),
        "slabs" => slabs(server),
        "conns" => conns(server, run.session.client.id),
        "extstore" => Figures::new(),
        "sizes" => vec![figure("sizes_status", "disabled")],
        // It would need a scan of all keys.
        "sizes_enable" => {
            vec![figure("sizes_status", "error"), figure("sizes_error", "not_supported")]
        }
        "sizes_disable" => return Report::Done("STAT sizes_status disabled"),
        "detail" => return detail(run, &words[1..]),
        "cachedump" => return dump_of_class(run, &words[1..]),
        "reset" => {
            run.reset_stats();
            return Report::Done("RESET");
        }
        _ => return Report::Unknown,
    };
    Report::Figures(figures)
}

fn detail(run: &mut Run<'_, '_>, words: &[&str]) -> Report {
    let prefixes = &run.server.memcached.prefixes;
    match words.first() {
        Some(&"on") => run.detailed = true,
        Some(&"off") => run.detailed = false,
        Some(&"dump") => return Report::Dump(prefixes.report().into_bytes()),
        _ => return Report::Refused("CLIENT_ERROR usage: stats detail on|off|dump"),
    }
    prefixes.switch(run.detailed);
    Report::Done("OK")
}

fn dump_of_class(run: &mut Run<'_, '_>, words: &[&str]) -> Report {
    let (Some(class), Some(limit)) = (words.first(), words.get(1)) else {
        return Report::Refused("CLIENT_ERROR bad command line");
    };
    let (Ok(class), Ok(limit)) = (class.parse::<u32>(), limit.parse::<u32>()) else {
        return Report::Refused(BAD_FORMAT);
    };
    let limit = match class {
        CLASSES_MAX.. => return Report::Refused("CLIENT_ERROR Illegal slab id"),
        SLAB_CLASS if limit == 0 => usize::MAX,
        SLAB_CLASS => limit as usize,
        // Such a class is empty.
        _ => 0,
    };
    Report::Dump(cachedump(&mut run.guard, run.stages.db, limit, run.stages.now_ms))
}

fn figure(name: &str, value: impl ToString) -> (String, String) {
    (name.to_owned(), value.to_string())
}

fn zeros<'a>(names: &'a [&'a str]) -> impl Iterator<Item = (String, String)> + 'a {
    names.iter().map(|name| figure(name, 0))
}

fn yes_or_no(yes: bool) -> &'static str {
    if yes { "yes" } else { "no" }
}

fn general(server: Host<'_>) -> Figures {
    let traffic = server.traffic();
    let mine = server.memcached.totals();
    let cpu = cpu_times();
    let mut figures = vec![
        figure("pid", std::process::id()),
        figure("uptime", server.started.elapsed().as_secs()),
        figure("time", crate::clock::unix_ms() / 1000),
        figure("version", MEMCACHED_VERSION),
        figure("tierce_version", crate::VERSION),
        figure("pointer_size", usize::BITS),
        figure("rusage_user", format!("{:.6}", cpu.user)),
        figure("rusage_system", format!("{:.6}", cpu.system)),
        figure("max_connections", server.config.live().maxclients()),
        figure("curr_connections", server.clients.len()),
        figure("total_connections", traffic.connections),
        figure("rejected_connections", server.stat(Stat::RejectedConnections)),
        figure("connection_structures", server.clients.len()),
    ];
    figures.extend(zeros(&[
        "response_obj_oom",
        "response_obj_count",
        "response_obj_bytes",
        "read_buf_count",
        "read_buf_bytes",
        "read_buf_bytes_free",
        "read_buf_oom",
        "reserved_fds",
    ]));
    figures.push(figure("cmd_get", mine.gets()));
    let own_row =
        |count: &Count| !matches!(count, Count::Unstored | Count::Created | Count::Yields);
    figures.extend(
        COUNTS
            .iter()
            .filter(|(count, _)| own_row(count))
            .map(|&(count, name)| figure(name, mine.get(count))),
    );
    figures.extend([
        figure("bytes_read", traffic.bytes_in),
        figure("bytes_written", traffic.bytes_out),
        figure("limit_maxbytes", server.config.live().maxmemory()),
        figure("accepting_conns", 1),
        figure("listen_disabled_num", 0),
        figure("time_in_listen_disabled_us", 0),
        figure("threads", server.workers()),
        figure("conn_yields", mine.get(Count::Yields)),
        figure("hash_power_level", 0),
        figure("hash_bytes", server.keyspace.memory().index),
    ]);
    figures.extend(zeros(&[
        "hash_is_expanding",
        "slab_reassign_rescues",
        "slab_reassign_chunk_rescues",
        "slab_reassign_evictions_nomem",
        "slab_reassign_inline_reclaim",
        "slab_reassign_busy_items",
        "slab_reassign_busy_deletes",
        "slab_reassign_running",
        "slabs_moved",
        "lru_crawler_running",
        "lru_crawler_starts",
        "lru_maintainer_juggles",
        "malloc_fails",
        "log_worker_dropped",
        "log_worker_written",
        "log_watcher_skipped",
        "log_watcher_sent",
        "log_watchers",
        "unexpected_napi_ids",
        "round_robin_fallback",
    ]));
    figures.extend([
        figure("bytes", server.keyspace.memory().total()),
        figure("curr_items", keys(server)),
        figure("total_items", mine.stored()),
    ]);
    figures.extend(zeros(&[
        "slab_global_page_pool",
        "expired_unfetched",
        "evicted_unfetched",
        "evicted_active",
    ]));
    figures.extend([
        figure("evictions", server.key_stats().evicted),
        figure("reclaimed", server.key_stats().expired),
    ]);
    figures.extend(zeros(&[
        "crawler_reclaimed",
        "crawler_items_checked",
        "lrutail_reflocked",
        "moves_to_cold",
        "moves_to_warm",
        "moves_within_lru",
        "direct_reclaims",
        "lru_bumps_dropped",
    ]));
    figures
}

/// Returns the number of keys in the database that these clients see.
fn keys(server: Host<'_>) -> u64 {
    server.keyspace.db_stats(server.memcached.db, crate::clock::unix_ms()).keys
}

fn settings(server: Host<'_>) -> Figures {
    const fn id(name: &str) -> DirectiveId {
        DirectiveId::of(name)
    }
    let live = server.config.live();
    let settings = server.config.settings();
    let unix_path = match server.memcached.unix_path.as_str() {
        "" => "NULL",
        path => path,
    };
    let text =
        |name: DirectiveId| String::from_utf8_lossy(&settings.value(name).text()).into_owned();
    let evicts = server.keyspace.has_memory_limit()
        && !matches!(server.keyspace.eviction().policy, Policy::Noeviction | Policy::Spill);
    let has_password = yes_or_no(live.has_password());
    vec![
        figure("maxbytes", live.maxmemory()),
        figure("maxconns", live.maxclients()),
        figure("tcpport", settings.count(const { id("memcached-port") })),
        figure("udpport", 0),
        figure("inter", text(const { id("bind") })),
        figure("verbosity", 0),
        figure("oldest", 0),
        figure("evictions", if evicts { "on" } else { "off" }),
        figure("domain_socket", unix_path),
        figure("umask", text(const { id("unixsocketperm") })),
        figure("shutdown_command", "no"),
        figure("growth_factor", "1.00"),
        figure("chunk_size", 0),
        figure("num_threads", server.workers()),
        figure("num_threads_per_udp", 0),
        figure("stat_key_prefix", ":"),
        figure("detail_enabled", yes_or_no(server.memcached.prefixes.is_on())),
        figure("reqs_per_event", REQUESTS_MAX),
        figure("cas_enabled", "yes"),
        figure("tcp_backlog", settings.count(const { id("tcp-backlog") })),
        figure("binding_protocol", "auto-negotiate"),
        figure("auth_enabled_sasl", has_password),
        figure("auth_enabled_ascii", has_password),
        figure("item_size_max", live.item_size_max()),
        figure("maxconns_fast", "yes"),
        figure("hashpower_init", 0),
        figure("slab_reassign", "no"),
        figure("slab_automove", 0),
        figure("slab_automove_ratio", "0.00"),
        figure("slab_automove_window", 0),
        figure("slab_chunk_max", live.item_size_max()),
        figure("lru_crawler", yes_or_no(server.memcached.has_crawler())),
        figure("lru_crawler_sleep", 0),
        figure("lru_crawler_tocrawl", 0),
        figure("tail_repair_time", 0),
        figure("flush_enabled", yes_or_no(live.memcached_flush_all())),
        figure("dump_enabled", "yes"),
        figure("hash_algorithm", "rapidhash"),
        figure("lru_maintainer_thread", "no"),
        figure("lru_segmented", "no"),
        figure("hot_lru_pct", 0),
        figure("warm_lru_pct", 0),
        figure("hot_max_factor", "0.00"),
        figure("warm_max_factor", "0.00"),
        figure("temp_lru", "no"),
        figure("temporary_ttl", 0),
        figure("idle_timeout", live.timeout_seconds()),
        figure("watcher_logbuf_size", 0),
        figure("worker_logbuf_size", 0),
        figure("read_buf_mem_limit", 0),
        figure("track_sizes", "no"),
        figure("inline_ascii_response", "no"),
        figure("ssl_enabled", "no"),
        figure("memory_file", "(null)"),
        figure("database", server.memcached.db.get()),
    ]
}

/// Returns the items; empty without keys, as in memcached.
fn items(server: Host<'_>) -> Figures {
    let number = keys(server);
    if number == 0 {
        return Figures::new();
    }
    let mine = server.memcached.totals();
    let rows: &[(&str, u64)] = &[
        ("number", number),
        ("number_hot", 0),
        ("number_warm", 0),
        ("number_cold", number),
        ("age_hot", 0),
        ("age_warm", 0),
        ("age", 0),
        ("mem_requested", server.keyspace.memory().entries),
        ("evicted", server.key_stats().evicted),
        ("evicted_nonzero", 0),
        ("evicted_time", 0),
        ("outofmemory", mine.get(Count::NoMemory)),
        ("tailrepairs", 0),
        ("reclaimed", server.key_stats().expired),
        ("expired_unfetched", 0),
        ("evicted_unfetched", 0),
        ("evicted_active", 0),
        ("crawler_reclaimed", 0),
        ("crawler_items_checked", 0),
        ("lrutail_reflocked", 0),
        ("moves_to_cold", 0),
        ("moves_to_warm", 0),
        ("moves_within_lru", 0),
        ("direct_reclaims", 0),
        ("hits_to_hot", 0),
        ("hits_to_warm", 0),
        ("hits_to_cold", mine.get(Count::GetHits)),
        ("hits_to_temp", 0),
    ];
    rows.iter().map(|(name, value)| figure(&format!("items:{SLAB_CLASS}:{name}"), value)).collect()
}

/// Returns one class, whose chunk size is the average cost of a key.
fn slabs(server: Host<'_>) -> Figures {
    let (used, memory) = (keys(server), server.keyspace.memory());
    let mine = server.memcached.totals();
    let chunk_size = memory.entries.checked_div(used).unwrap_or(0);
    let rows: &[(&str, u64)] = &[
        ("chunk_size", chunk_size),
        ("chunks_per_page", PAGE_BYTES.checked_div(chunk_size).unwrap_or(0)),
        ("total_pages", memory.total().div_ceil(PAGE_BYTES)),
        ("total_chunks", used),
        ("used_chunks", used),
        ("free_chunks", 0),
        ("free_chunks_end", 0),
        ("mem_requested", memory.entries),
        ("get_hits", mine.get(Count::GetHits)),
        ("cmd_set", mine.get(Count::Set)),
        ("delete_hits", mine.get(Count::DeleteHits)),
        ("incr_hits", mine.get(Count::IncrHits)),
        ("decr_hits", mine.get(Count::DecrHits)),
        ("cas_hits", mine.get(Count::CasHits)),
        ("cas_badval", mine.get(Count::CasBadval)),
        ("touch_hits", mine.get(Count::TouchHits)),
    ];
    let mut figures: Figures =
        rows.iter().map(|(name, value)| figure(&format!("{SLAB_CLASS}:{name}"), value)).collect();
    figures.push(figure("active_slabs", 1));
    figures.push(figure("total_malloced", memory.total()));
    figures
}

/// Returns all clients, of any protocol, by the numbers of their descriptors.
fn conns(server: Host<'_>, asking: u64) -> Figures {
    let now_ms = crate::clock::unix_ms();
    let mut figures = Figures::new();
    for client in server.clients.all() {
        let name = |what: &str| format!("{}:{what}", client.fd);
        let net = if client.unix { "unix" } else { "tcp" };
        let idle = (now_ms - client.active_ms.load(Relaxed)).max(0) / 1000;
        let state = if client.id == asking { "conn_parse_cmd" } else { "conn_read" };
        figures.push((name("addr"), format!("{net}:{}", client.addr)));
        figures.push((name("listen_addr"), format!("{net}:{}", client.laddr)));
        figures.push((name("state"), state.to_owned()));
        figures.push((name("secs_since_last_cmd"), idle.to_string()));
    }
    figures
}
