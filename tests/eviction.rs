//! At `maxmemory`, writes fail or keys are evicted, depending on the policy.

use std::collections::BTreeMap;

use tierce_harness::{Connection, encode, takes_up_to_seconds, wait_until};

use crate::{launch, server};

const OOM: &str = "-OOM command not allowed when used memory > 'maxmemory'.";

/// Returns a number in INFO.
fn info(c: &mut Connection, name: &str) -> i64 {
    let text = c.ask("INFO everything").text().to_owned();
    let fields: BTreeMap<_, _> = text.lines().filter_map(|line| line.split_once(':')).collect();
    fields[name].parse().unwrap_or_else(|_| panic!("{name}:{}", fields[name]))
}

/// Returns the memory that counts against the limit.
fn counted(c: &mut Connection) -> i64 {
    info(c, "used_memory") - info(c, "mem_not_counted_for_evict")
}

/// Sets keys with values of `len` bytes in one pipeline. Returns the number of refused commands.
fn fill(c: &mut Connection, prefix: &str, count: usize, len: usize, options: &[&str]) -> usize {
    let value = "v".repeat(len);
    let requests = (0..count).map(|number| {
        let key = format!("{prefix}:{number}");
        encode(&[&["SET", &key, &value], options].concat())
    });
    c.send(requests.collect::<Vec<_>>().concat());
    let replies: Vec<String> = (0..count).map(|_| c.reply().to_string()).collect();
    let refused = replies.iter().filter(|reply| *reply == OOM).count();
    assert!(replies.iter().all(|reply| reply == "+OK" || reply == OOM));
    refused
}

#[test]
fn noeviction_refuses_what_may_add_data() {
    let server = launch().with("maxmemory", "1mb").start();
    let mut c = server.connect();
    let refused = fill(&mut c, "k", 2000, 1000, &[]);
    assert!((1000..1400).contains(&refused), "{refused}");
    let writes = "SET x y;SETNX x y;SETEX x 9 y;GETSET x y;APPEND k:0 y;SETRANGE k:0 0 y;INCR n;\
        MSET x y;MSETNX x y;COPY k:0 x";
    writes.split(';').for_each(|line| c.check(line, OOM));
    // Reading, deleting and setting deadlines still work.
    c.check("STRLEN k:0", ":1000");
    c.check("EXPIRE k:0 1000", ":1");
    c.check("RENAME k:0 k:00", "+OK");
    c.check("GETDEL nothing", "nil");
    let stats = c.ask("INFO errorstats").text().to_owned();
    assert!(stats.contains("errorstat_OOM:count="), "{stats}");
    assert!(info(&mut c, "current_eviction_exceeded_time") >= 0);
    assert_eq!(info(&mut c, "evicted_keys"), 0);
    for number in 1..100 {
        c.check(&format!("DEL k:{number}"), ":1");
    }
    c.check("SET x y", "+OK");
    assert_eq!(info(&mut c, "current_eviction_exceeded_time"), 0);
    // Invalid calls get their own error first.
    fill(&mut c, "k", 2000, 1000, &[]);
    c.check("SET x", "-ERR wrong number of arguments for 'set' command");
    c.check("CONFIG SET maxmemory 0", "+OK");
    c.check("SET x y", "+OK");
}

/// Nothing is evicted while a transaction runs, so room for its data is made before.
#[test]
fn a_transaction_does_not_take_memory_beyond_the_limit() {
    const LIMIT: i64 = 20 << 20;
    // Allocator overhead for ten values. The transaction adds twice as much.
    const SLACK: i64 = 2 << 20;
    let server = launch()
        .with("maxmemory", "20mb")
        .with("maxmemory-policy", "allkeys-lru")
        .with("maxmemory-eviction-tenacity", "100")
        .start();
    let mut c = server.connect();
    let (short, long) = ("s".repeat(1000), "l".repeat(400_000));
    for round in 0..10 {
        c.check("MULTI", "+OK");
        for number in 0..10 {
            let key = format!("{round}:{number}");
            c.call(&["SET", &key, &short]);
            c.call(&["APPEND", &key, &long]);
        }
        c.check("INFO memory", "+QUEUED");
        let replies = c.ask("EXEC");
        let info = replies.items().last().expect("the last reply").text().to_owned();
        let of = |name: &str| -> i64 {
            let value = info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
            value.expect("a row").parse().expect("a number")
        };
        let counted = of("used_memory") - of("mem_not_counted_for_evict");
        assert!(counted <= LIMIT + SLACK, "{counted} in round {round}");
    }
    assert!(info(&mut c, "evicted_keys") > 0);
    // A value larger than the limit would not fit after all evictions, so nothing is evicted for it.
    let keys = c.ask("DBSIZE");
    c.check("MULTI", "+OK");
    (0..60).for_each(|n| drop(c.call(&["SET", &format!("large:{n}"), &long])));
    let refused = c.ask("EXEC").to_string();
    assert!(refused.contains("OOM command not allowed"), "{refused}");
    assert_eq!(c.ask("DBSIZE"), keys);
}

#[test]
fn a_transaction_that_does_not_fit_is_refused_where_nothing_is_evicted() {
    let server = launch().with("maxmemory", "20mb").with("maxmemory-policy", "noeviction").start();
    let mut c = server.connect();
    let value = "v".repeat(400_000);
    for (count, fits) in [(30, true), (30, false)] {
        c.check("MULTI", "+OK");
        (0..count).for_each(|n| drop(c.call(&["SET", &format!("{fits}:{n}"), &value])));
        let reply = c.ask("EXEC").to_string();
        assert_eq!(!reply.contains("OOM command not allowed"), fits, "{reply:.100}");
    }
    c.check("DBSIZE", ":30");
}

/// The evictable keys are smaller than its data.
#[test]
fn a_transaction_that_does_not_fit_beside_what_stays_is_refused() {
    let server = launch()
        .with("maxmemory", "60mb")
        .with("maxmemory-policy", "volatile-lru")
        .with("maxmemory-eviction-tenacity", "100")
        .start();
    let mut c = server.connect();
    let value = "v".repeat(1 << 20);
    (0..40).for_each(|n| drop(c.call(&["SET", &format!("stays:{n}"), &value])));
    (0..10).for_each(|n| drop(c.call(&["SET", &format!("goes:{n}"), &value, "EX", "1000"])));
    let large = "v".repeat(30 << 20);
    for (len, fits) in [(large.len(), false), (15 << 20, true)] {
        c.check("MULTI", "+OK");
        c.call(&["SET", "large", &large[..len]]);
        let reply = c.ask("EXEC").to_string();
        assert_eq!(!reply.contains("OOM command not allowed"), fits, "{reply:.100}");
    }
}

#[test]
fn a_transaction_that_is_discarded_evicts_nothing() {
    let server = launch()
        .with("maxmemory", "20mb")
        .with("maxmemory-policy", "allkeys-lru")
        .with("maxmemory-eviction-tenacity", "100")
        .start();
    let mut c = server.connect();
    assert_eq!(fill(&mut c, "full", 15_000, 1000, &[]), 0);
    c.check("MULTI", "+OK");
    c.call(&["SET", "large", &"v".repeat(15 << 20)]);
    c.ask("NOSUCH");
    let reply = c.ask("EXEC").to_string();
    assert!(reply.starts_with("-EXECABORT"), "{reply}");
    c.check("DBSIZE", ":15000");
}

/// No later command evicts.
#[test]
fn what_a_transaction_has_taken_too_much_is_evicted_behind_it() {
    let server = launch()
        .with("maxmemory", "20mb")
        .with("maxmemory-policy", "allkeys-lru")
        .with("maxmemory-eviction-tenacity", "0")
        .start();
    let mut c = server.connect();
    assert_eq!(fill(&mut c, "full", 30_000, 1000, &[]), 0);
    c.check("MULTI", "+OK");
    let value = "v".repeat(40_000);
    (0..100).for_each(|n| drop(c.call(&["SET", &format!("new:{n}"), &value])));
    c.ask("EXEC");
    wait_until("it is evicted", || counted(&mut c) <= (20 << 20) + 32_000);
}

#[test]
fn allkeys_policies_keep_memory_within_the_limit() {
    takes_up_to_seconds(180);
    for policy in ["allkeys-lru", "allkeys-lfu", "allkeys-lrm", "allkeys-random"] {
        let server = launch().with("maxmemory", "2mb").with("maxmemory-policy", policy).start();
        let mut c = server.connect();
        for (round, len) in [10, 100, 1000, 20_000].into_iter().enumerate() {
            assert_eq!(fill(&mut c, &format!("{round}"), 2000, len, &[]), 0, "{policy}");
            let counted = counted(&mut c);
            assert!(counted <= (2 << 20) + 32_000, "{policy}: {counted} after values of {len}");
        }
        let (evicted, left) = (info(&mut c, "evicted_keys"), c.ask("DBSIZE").int());
        assert_eq!(evicted + left, 8000, "{policy}");
        c.check("CONFIG RESETSTAT", "+OK");
        assert_eq!(info(&mut c, "evicted_keys"), 0);
    }
}

#[test]
fn volatile_policies_evict_only_keys_with_a_deadline() {
    takes_up_to_seconds(180);
    for policy in ["volatile-lru", "volatile-lfu", "volatile-random", "volatile-ttl"] {
        let server = launch().with("maxmemory", "1mb").with("maxmemory-policy", policy).start();
        let mut c = server.connect();
        assert_eq!(fill(&mut c, "stays", 500, 500, &[]), 0);
        assert_eq!(fill(&mut c, "goes", 2000, 500, &["EX", "10000"]), 0, "{policy}");
        let limit = (1 << 20) + 32_000;
        assert!(counted(&mut c) <= limit, "{policy}");
        let evicted = info(&mut c, "evicted_keys");
        assert!(evicted > 500, "{policy}: {evicted}");
        for number in [0, 1, 277, 499] {
            c.check(&format!("EXISTS stays:{number}"), ":1");
        }
        // Keys without a deadline replace those with one, until none is left.
        let refused = fill(&mut c, "more", 3000, 500, &[]);
        assert!(refused > 500, "{policy}: {refused}");
        let keys = c.ask("DBSIZE").int();
        assert_eq!(keys, 3500 - refused as i64, "{policy}: none with a deadline is left");
        c.check("SET x y EX 100", OOM);
    }
}

#[test]
fn volatile_ttl_evicts_the_nearest_deadline() {
    let server = launch().with("maxmemory-policy", "volatile-ttl").start();
    let mut c = server.connect();
    for number in 0..50 {
        let seconds = 1000 + number * 37 % 50 * 100;
        c.check(&format!("SET k:{number} {} EX {seconds}", "v".repeat(1000)), "+OK");
    }
    let limit = counted(&mut c) - 9000;
    c.check(&format!("CONFIG SET maxmemory {limit}"), "+OK");
    wait_until("some are evicted", || counted(&mut c) <= limit);
    let evicted = info(&mut c, "evicted_keys");
    assert!((5..20).contains(&evicted), "{evicted}");
    for number in 0..50 {
        let place = number * 37 % 50;
        c.check(&format!("EXISTS k:{number}"), if place < evicted { ":0" } else { ":1" });
    }
}

#[test]
fn a_lower_limit_is_reached_by_and_by_without_any_write() {
    let server = launch().with("maxmemory-policy", "allkeys-lru").start();
    let mut c = server.connect();
    fill(&mut c, "k", 20_000, 100, &[]);
    assert_eq!(info(&mut c, "evicted_keys"), 0);
    c.check("CONFIG SET maxmemory 1mb", "+OK");
    c.check("PING", "+PONG");
    let limit = (1 << 20) + 8192;
    wait_until("memory is within the limit", || counted(&mut c) <= limit);
    assert!(info(&mut c, "evicted_keys") > 5000);
    assert!(c.ask("DBSIZE").int() > 3000);
    c.check("CONFIG GET maxmemory", "[\"maxmemory\", \"1048576\"]");
}

#[test]
fn a_pipeline_can_change_its_own_limit() {
    let server = server();
    let mut c = server.connect();
    c.send("SET a b\r\nCONFIG SET maxmemory 1\r\nSET c d\r\nCONFIG SET maxmemory 0\r\nSET e f\r\n");
    for reply in ["+OK", "+OK", OOM, "+OK", "+OK"] {
        c.expect(reply);
    }
    // A command whose eviction time is limited leaves the rest to another thread.
    c.check("CONFIG SET maxmemory-eviction-tenacity 100", "+OK");
    c.check("CONFIG SET maxmemory 1 maxmemory-policy allkeys-lru", "+OK");
    // All keys are evicted, and the rest still exceeds the limit, as even an empty server does.
    c.check("SET c d", OOM);
    c.check("DBSIZE", ":0");
    for policy in ["noeviction", "allkeys-lru", "spill"] {
        let empty = launch().with("maxmemory", "1").with("maxmemory-policy", policy).start();
        let mut c = empty.connect();
        c.check("SET a b", OOM);
        let script = ["EVAL", "return redis.call('SET', 'a', 'b')", "1", "a"];
        let script = c.call(&script).to_string();
        assert!(script.starts_with(OOM), "{script}");
        c.check("DBSIZE", ":0");
    }
}

#[test]
fn object_freq_and_idletime_depend_on_the_policy() {
    let not_lfu = "-ERR An LFU maxmemory policy is not selected, access frequency not tracked. \
        Please note that when switching between policies at runtime LRU and LFU data will take \
        some time to adjust.";
    let lfu = "-ERR An LFU maxmemory policy is selected, idle time not tracked. Please note that \
        when switching between policies at runtime LRU and LFU data will take some time to adjust.";
    let server = server();
    let mut c = server.connect();
    c.check("SET k v", "+OK");
    c.check("OBJECT FREQ k", not_lfu);
    c.check("OBJECT FREQ nothing", "nil");
    // No counter falls because a minute is over.
    c.check("CONFIG SET lfu-decay-time 0", "+OK");
    c.check("CONFIG SET maxmemory-policy volatile-lfu", "+OK");
    c.check("SET foo a", "+OK");
    c.check("OBJECT FREQ foo", ":5");
    c.check("OBJECT FREQ nothing", "nil");
    c.check("OBJECT IDLETIME foo", lfu);
    c.check("GET foo", "\"a\"");
    c.check("OBJECT FREQ foo", ":6");
    c.check("CONFIG SET lfu-log-factor 0", "+OK");
    (0..50).for_each(|_| c.check("TOUCH foo", ":1"));
    c.check("OBJECT FREQ foo", ":56");
    c.check("CONFIG SET maxmemory-policy allkeys-lru", "+OK");
    c.check("SET foo b", "+OK");
    c.check("OBJECT FREQ foo", not_lfu);
    let idle = c.ask("OBJECT IDLETIME foo").int();
    assert!((0..5).contains(&idle), "{idle}");
}

/// Connection buffers are no reason to evict data.
#[test]
fn a_slow_reader_costs_nobody_a_key() {
    let server = launch().with("maxmemory", "4mb").with("maxmemory-policy", "allkeys-lru").start();
    let (mut c, mut slow) = (server.connect(), server.connect());
    fill(&mut c, "k", 1000, 1000, &[]);
    let request = encode(&["MGET", "k:1", "k:2", "k:3", "k:4", "k:5", "k:6", "k:7", "k:8"]);
    slow.send(request.repeat(2000));
    wait_until("replies wait", || info(&mut c, "mem_clients_normal") > 4 << 20);
    fill(&mut c, "more", 100, 1000, &[]);
    assert_eq!(info(&mut c, "evicted_keys"), 0);
    c.check("DBSIZE", ":1100");
}
