//! What `stats` reports. There are no slabs here; where memcached reports them, there is one, so that
//! tools that read the figures find some.

use std::sync::atomic::Ordering::Relaxed;

use super::MEMCACHED_VERSION;
use super::counters::{COUNTS, Count};
use crate::config::DirectiveId;
use crate::server::Server;
use crate::stats::Stat;

/// The answer to a `stats`.
pub enum Report {
    /// Names and values.
    Figures(Vec<(String, String)>),
    /// Statistics are to be reset.
    Reset,
    /// Nobody knows what that is.
    Unknown,
}

/// The figures of `what`; all general ones if that is empty.
pub fn report(server: &Server, what: &[u8]) -> Report {
    Report::Figures(match what {
        b"" => general(server),
        b"settings" => settings(server),
        b"items" => items(server),
        b"slabs" => slabs(server),
        b"sizes" => vec![figure("sizes_status", "disabled")],
        b"conns" => conns(server),
        b"reset" => return Report::Reset,
        _ => return Report::Unknown,
    })
}

fn figure(name: &str, value: impl ToString) -> (String, String) {
    (name.to_owned(), value.to_string())
}

fn general(server: &Server) -> Vec<(String, String)> {
    let (totals, traffic) = (server.totals(), server.traffic());
    let keys = server.keyspace.db_stats(server.memcached.db, crate::clock::unix_ms());
    let mine = server.memcached_totals();
    let mut figures = vec![
        figure("pid", std::process::id()),
        figure("uptime", server.started.elapsed().as_secs()),
        figure("time", crate::clock::unix_ms() / 1000),
        figure("version", MEMCACHED_VERSION),
        figure("tierce_version", crate::VERSION),
        figure("pointer_size", usize::BITS),
        figure("max_connections", server.config.live().maxclients()),
        figure("curr_connections", server.clients.len()),
        figure("total_connections", traffic.connections),
        figure("rejected_connections", totals.get(Stat::RejectedConnections)),
    ];
    figures.extend(COUNTS.iter().map(|&(count, name)| figure(name, mine.get(count))));
    let expired = server.key_stats().expired;
    figures.extend([
        figure("bytes_read", traffic.bytes_in),
        figure("bytes_written", traffic.bytes_out),
        figure("limit_maxbytes", server.config.live().maxmemory()),
        figure("accepting_conns", 1),
        figure("threads", server.workers()),
        figure("bytes", server.keyspace.memory().total()),
        figure("curr_items", keys.keys),
        figure("total_items", mine.get(Count::Set)),
        figure("expired_unfetched", expired),
        figure("evictions", server.key_stats().evicted),
    ]);
    figures
}

fn settings(server: &Server) -> Vec<(String, String)> {
    let live = server.config.live();
    let port = server.config.settings().count(const { DirectiveId::of("memcached-port") });
    vec![
        figure("maxbytes", live.maxmemory()),
        figure("maxconns", live.maxclients()),
        figure("tcpport", port),
        figure("udpport", 0),
        figure("verbosity", 0),
        figure("num_threads", server.workers()),
        figure("item_size_max", live.item_size_max()),
        figure("cas_enabled", "yes"),
        figure("auth_enabled_sasl", if live.has_password() { "yes" } else { "no" }),
        figure("binding_protocol", "auto-negotiate"),
        figure("database", server.memcached.db.get()),
    ]
}

fn items(server: &Server) -> Vec<(String, String)> {
    let keys = server.keyspace.db_stats(server.memcached.db, crate::clock::unix_ms());
    vec![
        figure("items:1:number", keys.keys),
        figure("items:1:evicted", server.key_stats().evicted),
        figure("items:1:expired_unfetched", server.key_stats().expired),
    ]
}

fn slabs(server: &Server) -> Vec<(String, String)> {
    let keys = server.keyspace.db_stats(server.memcached.db, crate::clock::unix_ms());
    vec![
        figure("1:used_chunks", keys.keys),
        figure("1:mem_requested", server.keyspace.memory().entries),
        figure("active_slabs", 1),
        figure("total_malloced", server.keyspace.memory().total()),
    ]
}

fn conns(server: &Server) -> Vec<(String, String)> {
    let now_ms = crate::clock::unix_ms();
    let mut figures = Vec::new();
    for client in server.clients.all() {
        let idle = (now_ms - client.active_ms.load(Relaxed)).max(0) / 1000;
        let name = |what: &str| format!("{}:{what}", client.id);
        figures.push((name("addr"), client.addr.clone()));
        figures.push((name("listen_addr"), client.laddr.clone()));
        figures.push((name("secs_since_last_cmd"), idle.to_string()));
    }
    figures
}
