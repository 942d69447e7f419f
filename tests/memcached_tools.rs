//! Requests of memcached's tools besides values: statistics, dumps of all keys, settings at run time.
//! The expected answers are those of memcached 1.6.18, except for the differences in `docs/differences.md`.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};

use tierce_harness::{Both, wait_until};

use crate::launch;
use crate::memcached::{answer, check_frames, frame, start, talk, with};

fn text(both: &Both, request: &str) -> String {
    String::from_utf8(talk(both, request.as_bytes())).expect("UTF-8")
}

/// Returns the figures of a `stats`.
fn stats(both: &Both, what: &str) -> BTreeMap<String, String> {
    let text = text(both, &format!("stats {what}\r\n"));
    let body = text.strip_suffix("END\r\n").unwrap_or_else(|| panic!("no end: {text}"));
    body.lines()
        .map(|line| {
            let mut words = line.splitn(3, ' ');
            assert_eq!(words.next(), Some("STAT"), "{line}");
            let mut next = || words.next().unwrap_or_default().to_owned();
            (next(), next())
        })
        .collect()
}

/// Runs requests and expects changes of these counters, and of no others in `ALL`.
#[track_caller]
fn check_counts(both: &Both, request: &[u8], expected: &[(&str, u64)]) {
    const ALL: [&str; 22] = [
        "cmd_get",
        "cmd_set",
        "cmd_flush",
        "cmd_touch",
        "cmd_meta",
        "get_hits",
        "get_misses",
        "get_expired",
        "delete_misses",
        "delete_hits",
        "incr_misses",
        "incr_hits",
        "decr_misses",
        "decr_hits",
        "cas_misses",
        "cas_hits",
        "cas_badval",
        "touch_hits",
        "touch_misses",
        "store_too_large",
        "conn_yields",
        "total_items",
    ];
    let count = |figures: &BTreeMap<String, String>, name: &str| {
        figures[name].parse::<u64>().expect("a number")
    };
    let before = stats(both, "");
    talk(both, request);
    let after = stats(both, "");
    let moved: Vec<(&str, u64)> = ALL
        .iter()
        .map(|&name| (name, count(&after, name) - count(&before, name)))
        .filter(|(_, by)| *by > 0)
        .collect();
    let mut expected = expected.to_vec();
    expected.sort_by_key(|(name, _)| ALL.iter().position(|other| other == name));
    assert_eq!(moved, expected, "{}", request.escape_ascii());
}

#[test]
fn counters_count_what_memcached_counts() {
    let both = start();
    for name in ["cmd_get", "cmd_set", "get_misses", "total_items", "evictions", "reclaimed"] {
        assert_eq!(stats(&both, "")[name], "0", "{name} at the start");
    }
    check_counts(&both, b"get a b\r\n", &[("cmd_get", 2), ("get_misses", 2)]);
    check_counts(&both, b"add k 0 0 1\r\n5\r\n", &[("cmd_set", 1), ("total_items", 1)]);
    check_counts(&both, b"add k 0 0 1\r\n5\r\n", &[("cmd_set", 1)]);
    check_counts(&both, b"replace z 0 0 1\r\n5\r\n", &[("cmd_set", 1)]);
    check_counts(&both, b"append z 0 0 1\r\n5\r\n", &[("cmd_set", 1)]);
    check_counts(&both, b"set z 0 0 1\r\n555\r\n", &[("cmd_set", 1)]);
    check_counts(&both, b"get k k z\r\n", &[("cmd_get", 3), ("get_hits", 2), ("get_misses", 1)]);
    check_counts(&both, b"cas z 0 0 1 1\r\nx\r\n", &[("cmd_set", 1), ("cas_misses", 1)]);
    check_counts(&both, b"cas k 0 0 1 1\r\nx\r\n", &[("cmd_set", 1), ("cas_badval", 1)]);
    check_counts(&both, b"incr k 1\r\n", &[("incr_hits", 1)]);
    check_counts(&both, b"decr k 1\r\n", &[("decr_hits", 1)]);
    check_counts(&both, b"incr z 1\r\ndecr z 1\r\n", &[("incr_misses", 1), ("decr_misses", 1)]);
    let touched = [("cmd_touch", 2), ("touch_hits", 1), ("touch_misses", 1)];
    check_counts(&both, b"touch k 0\r\ntouch z 0\r\n", &touched);
    // A read that touches is counted as a touch.
    check_counts(&both, b"gat 0 k z\r\n", &touched);
    let gats = [frame(0x1d, &[0; 4], b"k", b""), frame(0x1d, &[0; 4], b"z", b"")];
    check_counts(&both, &gats.concat(), &touched);
    check_counts(&both, b"mg k v\r\n", &[("cmd_get", 1), ("get_hits", 1)]);
    check_counts(&both, b"mg k T0\r\n", &[("cmd_touch", 1), ("touch_hits", 1)]);
    check_counts(&both, b"mg z T0\r\n", &[("cmd_get", 1), ("get_misses", 1)]);
    check_counts(&both, b"me k\r\n", &[("cmd_meta", 1)]);
    // An item that a read or an arithmetic command creates does not count as stored.
    let made = [("cmd_get", 1), ("get_hits", 1), ("total_items", 1)];
    check_counts(&both, b"mg new N30\r\n", &made);
    check_counts(&both, b"ma n N0\r\n", &[("total_items", 1)]);
    check_counts(&both, &frame(0x05, &[0; 20], b"m", b""), &[("total_items", 1)]);
    check_counts(&both, b"ma z\r\n", &[("incr_misses", 1)]);
    let stale = [("cmd_set", 1), ("cas_hits", 1), ("total_items", 1)];
    check_counts(&both, b"ms k 1 I C1\r\nx\r\n", &stale);
    check_counts(&both, b"md k C1\r\nmd z I\r\n", &[("delete_misses", 2)]);
    check_counts(&both, b"md k I\r\n", &[]);
    check_counts(&both, b"delete k\r\ndelete k\r\n", &[("delete_hits", 1), ("delete_misses", 1)]);
    let yields = [("cmd_get", 100), ("get_misses", 100), ("conn_yields", 1)];
    check_counts(&both, &b"get k\r\n".repeat(100), &yields);
    check_counts(&both, b"set k 0 0 2000000\r\n", &[("store_too_large", 1)]);
    check_counts(&both, b"flush_all\r\n", &[("cmd_flush", 1)]);
}

#[test]
fn a_read_that_comes_too_late_is_counted() {
    let both = with(launch().with("enable-debug-command", "yes"));
    // Otherwise the key would be removed before a client asks for it.
    let mut redis = both.server.connect();
    redis.check("DEBUG SET-ACTIVE-EXPIRE 0", "+OK");
    redis.check("SET k x PX 1", "+OK");
    wait_until("the key is over", || text(&both, "get k\r\n") == "END\r\n");
    let figures = stats(&both, "");
    assert_eq!((&*figures["get_expired"], &*figures["reclaimed"]), ("1", "1"));
    both.check(b"stats reset\r\n", b"RESET\r\n");
    let figures = stats(&both, "");
    assert_eq!((&*figures["get_expired"], &*figures["reclaimed"]), ("0", "0"));
}

#[test]
fn rows_that_tools_read() {
    let both = start();
    both.check(b"stats items\r\n", b"END\r\n");
    both.check(b"set k 0 0 1\r\nx\r\nget k\r\n", b"STORED\r\nVALUE k 0 1\r\nx\r\nEND\r\n");
    let general = stats(&both, "");
    for name in [
        "rusage_user",
        "rusage_system",
        "curr_connections",
        "total_connections",
        "rejected_connections",
        "limit_maxbytes",
        "threads",
        "bytes",
        "listen_disabled_num",
        "hash_bytes",
        "slabs_moved",
        "lru_crawler_starts",
        "get_flushed",
        "store_no_memory",
        "evicted_unfetched",
        "direct_reclaims",
    ] {
        assert!(general[name].parse::<f64>().is_ok(), "{name}: {}", general[name]);
    }
    let settings = stats(&both, "settings");
    assert_eq!(settings["tcpport"], both.port.to_string());
    for (name, value) in [
        ("item_size_max", "1048576"),
        ("udpport", "0"),
        ("cas_enabled", "yes"),
        ("auth_enabled_sasl", "no"),
        ("flush_enabled", "yes"),
        ("detail_enabled", "no"),
        ("lru_crawler", "yes"),
        ("evictions", "off"),
        ("maxconns", "10000"),
        ("maxbytes", "0"),
    ] {
        assert_eq!(settings[name], value, "{name}");
    }
    let items = stats(&both, "items");
    assert_eq!((&*items["items:1:number"], &*items["items:1:outofmemory"]), ("1", "0"));
    assert_eq!(items["items:1:mem_requested"], stats(&both, "slabs")["1:chunk_size"]);
    let slabs = stats(&both, "slabs");
    assert_eq!(
        (&*slabs["1:used_chunks"], &*slabs["1:get_hits"], &*slabs["active_slabs"]),
        ("1", "1", "1")
    );
    both.check(b"stats sizes\r\n", b"STAT sizes_status disabled\r\nEND\r\n");
    both.check(b"stats nonsense\r\nstats extstore\r\n", b"ERROR\r\nEND\r\n");
    let conns = text(&both, "stats conns\r\n");
    let own = conns.lines().any(|line| line.ends_with(":state conn_parse_cmd"));
    assert!(
        own && conns.contains(&format!(":listen_addr tcp:127.0.0.1:{}\r\n", both.port)),
        "{conns}"
    );
}

#[test]
fn details_by_prefix() {
    let both = start();
    both.check(b"set a:1 0 0 1\r\nx\r\nstats detail dump\r\n", b"STORED\r\nEND\r\n");
    // It applies to later requests in the same pipeline.
    both.check(b"stats detail on\r\nget a:3\r\n", b"OK\r\nEND\r\n");
    assert_eq!(stats(&both, "settings")["detail_enabled"], "yes");
    talk(&both, b"get a:1 a:2 b\r\nset a:1 0 0 1\r\nx\r\ndelete a:1\r\ndelete a:1\r\nmg a:1\r\nincr a:1 1\r\n");
    let dump = "PREFIX a get 3 hit 1 set 1 del 2\r\nEND\r\n";
    both.check(b"stats detail off\r\n", b"OK\r\n");
    both.check(b"get a:1\r\nstats detail dump\r\n", format!("END\r\n{dump}").as_bytes());
    let frames = [frame(0x10, b"", b"detail dump", b""), frame(0x10, b"", b"detail on", b"")];
    let expected = [
        answer(0x10, 0, b"", b"detailed", dump.as_bytes()),
        answer(0x10, 0, b"", b"", b""),
        answer(0x10, 0, b"", b"", b""),
    ];
    check_frames(&both, &frames.concat(), &expected.concat());
    both.check(b"stats reset\r\nstats detail dump\r\n", b"RESET\r\nEND\r\n");
    let usage = "CLIENT_ERROR usage: stats detail on|off|dump\r\n";
    both.check(b"stats detail\r\nstats detail x\r\n", usage.repeat(2).as_bytes());
}

#[test]
fn all_keys_are_dumped() {
    let both = start();
    both.check(b"lru_crawler metadump all\r\nlru_crawler mgdump all\r\n", b"END\r\nEN\r\n");
    both.check(b"set a:%1 5 0 3\r\nabc\r\n", b"STORED\r\n");
    let mut redis = both.server.connect();
    // Not accessible for clients of memcached.
    redis.check("RPUSH list a", ":1");
    redis.check(&format!("SET {} x", "k".repeat(251)), "+OK");
    let dump = text(&both, "lru_crawler metadump all\r\nmn\r\n");
    let (line, rest) = dump.split_once('\n').expect("a line");
    assert!(line.starts_with("key=a%3A%251 exp=-1 la="), "{line}");
    assert!(line.contains(" cas=") && line.contains(" fetch=no cls=1 size="), "{line}");
    assert_eq!(rest, "END\r\nMN\r\n");
    both.check(b"lru_crawler mgdump hash\r\nmn\r\n", b"mg a:%1\r\nEN\r\nMN\r\n");
    both.check(b"stats cachedump 1 0\r\n", b"ITEM a:%1 [3 b; 0 s]\r\nEND\r\n");
    both.check(b"stats cachedump 2 0\r\nlru_crawler metadump 2\r\n", b"END\r\nEND\r\n");
    both.check(
        b"lru_crawler metadump x\r\nlru_crawler mgdump 64\r\n",
        &b"BADCLASS invalid class id\r\n".repeat(2),
    );
    both.check(
        b"stats cachedump\r\nstats cachedump 64 0\r\n",
        b"CLIENT_ERROR bad command line\r\nCLIENT_ERROR Illegal slab id\r\n",
    );
    both.check(b"flush_all\r\nset k 0 2000000000 1\r\nx\r\n", b"OK\r\nSTORED\r\n");
    // A key of two words is only accessible in base64.
    let set = frame(0x01, &[0; 8], b"two words", b"x");
    check_frames(&both, &set, &answer(0x01, 0, b"", b"", b""));
    let dump = text(&both, "lru_crawler mgdump all\r\n");
    let mut lines: Vec<&str> = dump.lines().collect();
    lines.sort_unstable();
    assert_eq!(lines[0], "EN");
    assert!(lines.contains(&"mg k") && lines.contains(&"mg dHdvIHdvcmRz b"), "{dump}");
    both.check(b"mg dHdvIHdvcmRz b v\r\n", b"VA 1\r\nx\r\n");
}

/// Number of keys with long names. Their dump does not fit in the sockets of both sides.
const KEYS: usize = 60_000;

fn populate() -> String {
    format!("DEBUG POPULATE {KEYS} {}", "long".repeat(50))
}

#[test]
fn a_dump_of_many_keys_waits_for_its_reader() {
    let both = with(launch().with("enable-debug-command", "yes"));
    let mut redis = both.server.connect();
    redis.check(&populate(), "+OK");
    let mut stream = both.connect();
    stream
        .write_all(b"lru_crawler metadump all\r\nmn\r\nlru_crawler mgdump all\r\n")
        .expect("sent");
    // The server keeps no unread part of the dump in memory, and serves other clients meanwhile.
    wait_until("the dump has begun", || {
        redis.ask("CLIENT LIST").text().lines().any(|line| !line.contains(" omem=0 "))
    });
    let list = redis.ask("CLIENT LIST").text().to_owned();
    let most = list.split_ascii_whitespace().filter_map(|word| word.strip_prefix("omem="));
    let most = most.map(|bytes| bytes.parse::<usize>().expect("a number")).max().expect("a client");
    assert!(most < 1 << 20, "{list}");
    both.check(b"mn\r\n", b"MN\r\n");
    let mut lines = BufReader::new(stream).lines().map(|line| line.expect("a line"));
    let dumped = lines.by_ref().take_while(|line| line != "END").count();
    assert_eq!((dumped, lines.next().as_deref()), (KEYS, Some("MN")));
    assert_eq!(lines.take_while(|line| line != "EN").count(), KEYS);
}

/// The primary may have changed the data since.
#[test]
fn a_dump_ends_with_an_error_when_the_data_are_stale() {
    let launch = launch().with("enable-debug-command", "yes");
    let both = with(launch.with("replica-serve-stale-data", "no"));
    let mut redis = both.server.connect();
    redis.check(&populate(), "+OK");
    let mut stream = both.connect();
    stream.write_all(b"lru_crawler metadump all\r\n").expect("sent");
    wait_until("the dump has begun", || {
        redis.ask("CLIENT LIST").text().lines().any(|line| !line.contains(" omem=0 "))
    });
    redis.check("REPLICAOF 127.0.0.1 1", "+OK");
    let mut lines = BufReader::new(stream).lines().map(|line| line.expect("a line"));
    let last = lines.find(|line| !line.starts_with("key="));
    assert_eq!(last.as_deref(), Some("SERVER_ERROR the link with the primary is down"));
}

#[test]
fn commands_for_operators() {
    let both = start();
    let bad = "CLIENT_ERROR bad command line format\r\n";
    for (request, expected) in [
        ("slabs reassign 1 2\r\n", "NOSPARE source class has no spare pages\r\n"),
        ("slabs reassign 1 1\r\n", "SAME src and dst class are identical\r\n"),
        ("slabs reassign 99 1\r\n", "BADCLASS invalid src or dst class id\r\n"),
        ("slabs reassign x 1\r\n", bad),
        ("slabs automove 1\r\nslabs automove 2 noreply\r\nslabs x\r\n", "OK\r\nERROR\r\n"),
        ("slabs\r\nlru\r\nlru_crawler\r\n", "ERROR\r\nERROR\r\nERROR\r\n"),
        ("lru mode flat\r\nlru tune 10 25 0.1 2.0\r\nlru temp_ttl 60\r\n", "OK\r\nOK\r\nOK\r\n"),
        ("lru tune 90 90 0.1 2\r\n", "ERROR hot and warm pcts must not exceed 80\r\n"),
        ("lru tune 10 25 0 0\r\n", "ERROR hot/warm age factors must be greater than 0\r\n"),
        (
            "lru_crawler sleep 100\r\nlru_crawler tocrawl 0\r\nlru_crawler crawl all\r\n",
            "OK\r\nOK\r\nOK\r\n",
        ),
        ("lru_crawler sleep 1000001\r\n", "CLIENT_ERROR sleep must be one second or less\r\n"),
        (
            "lru_crawler disable\r\nlru_crawler metadump all\r\n",
            "OK\r\nCLIENT_ERROR lru crawler disabled\r\n",
        ),
        ("lru_crawler enable\r\nlru_crawler metadump all\r\n", "OK\r\nEND\r\n"),
        (
            "watch fetchers\r\nwatch\r\n",
            "CLIENT_ERROR watch commands not allowed\r\nCLIENT_ERROR watch commands not allowed\r\n",
        ),
        (
            "shutdown\r\ndebugtime 1\r\nmisbehave\r\n",
            "SERVER_ERROR: shutdown not enabled\r\nERROR\r\nERROR\r\n",
        ),
        ("cache_memlimit\r\ncache_memlimit x\r\n", "ERROR\r\nERROR\r\n"),
        ("cache_memlimit 7\r\n", "MEMLIMIT_TOO_SMALL cannot set maxbytes to less than 8m\r\n"),
        (
            "cache_memlimit 1000000001\r\n",
            "MEMLIMIT_ADJUST_FAILED input value is megabytes not bytes\r\n",
        ),
    ] {
        both.check(request.as_bytes(), expected.as_bytes());
    }
    both.check(b"cache_memlimit 64\r\n", b"OK\r\n");
    assert_eq!(stats(&both, "")["limit_maxbytes"], "67108864");
    both.server.connect().check("CONFIG GET maxmemory", "[\"maxmemory\", \"67108864\"]");
}

#[test]
fn a_store_without_room_is_counted() {
    let both = with(launch().with("maxmemory", "1mb"));
    let value = "v".repeat(100_000);
    talk(&both, format!("set k 0 0 100000\r\n{value}\r\n").as_bytes());
    let sets: String = (0..20).map(|n| format!("set k:{n} 0 0 100000\r\n{value}\r\n")).collect();
    let refused = text(&both, &sets).matches("out of memory storing object").count();
    assert!(refused > 0);
    assert_eq!(stats(&both, "")["store_no_memory"], refused.to_string());
}
