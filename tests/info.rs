//! INFO: the fields that monitoring tools read.

use std::collections::BTreeMap;
use std::fs;

use tierce_harness::{Connection, TempDir, wait_until, words};

use crate::{launch, server};

fn info(c: &mut Connection, section: &str) -> BTreeMap<String, String> {
    let text = c.ask(&format!("INFO {section}")).text().to_owned();
    let lines = text.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    lines
        .map(|line| {
            let (name, value) = line.split_once(':').unwrap_or_else(|| panic!("no colon: {line}"));
            (name.to_owned(), value.to_owned())
        })
        .collect()
}

#[test]
fn every_section_that_tools_read() {
    let server = server();
    let mut c = server.connect();
    let text = c.ask("INFO").text().to_owned();
    for section in [
        "Server",
        "Clients",
        "Memory",
        "Persistence",
        "Stats",
        "Replication",
        "CPU",
        "Modules",
        "Errorstats",
        "Cluster",
        "Keyspace",
    ] {
        assert!(text.contains(&format!("# {section}\r\n")), "no {section}: {text}");
    }
    assert!(!text.contains("# Commandstats\r\n"));
    for all in ["all", "everything", "commandstats latencystats"] {
        let text = c.ask(&format!("INFO {all}")).text().to_owned();
        assert!(
            text.contains("# Commandstats\r\n") && text.contains("# Latencystats\r\n"),
            "{text}"
        );
    }
    let text = c.ask("INFO server memory").text().to_owned();
    assert_eq!(text.matches("# ").count(), 2, "{text}");
    c.check("INFO nosuch", "\"\"");
    let resp3 = server.connect_resp3().ask("INFO server").to_string();
    assert!(resp3.starts_with("=txt:\"# Server"), "{resp3}");
}

#[test]
fn fields_that_dashboards_and_exporters_need() {
    let server = server();
    let mut c = server.connect();
    let all = info(&mut c, "everything");
    for name in [
        "redis_version",
        "redis_mode",
        "os",
        "arch_bits",
        "process_id",
        "run_id",
        "tcp_port",
        "uptime_in_seconds",
        "uptime_in_days",
        "hz",
        "executable",
        "config_file",
        "connected_clients",
        "maxclients",
        "blocked_clients",
        "used_memory",
        "used_memory_human",
        "used_memory_rss",
        "used_memory_peak",
        "used_memory_dataset",
        "maxmemory",
        "maxmemory_policy",
        "mem_fragmentation_ratio",
        "mem_allocator",
        "loading",
        "rdb_last_save_time",
        "rdb_bgsave_in_progress",
        "aof_enabled",
        "total_connections_received",
        "total_commands_processed",
        "instantaneous_ops_per_sec",
        "total_net_input_bytes",
        "total_net_output_bytes",
        "rejected_connections",
        "expired_keys",
        "evicted_keys",
        "keyspace_hits",
        "keyspace_misses",
        "total_error_replies",
        "role",
        "connected_slaves",
        "master_replid",
        "master_repl_offset",
        "used_cpu_sys",
        "used_cpu_user",
        "cluster_enabled",
    ] {
        assert!(all.contains_key(name), "no {name}");
    }
    assert_eq!(all["process_id"], server.pid().to_string());
    assert_eq!(all["tcp_port"], server.port().to_string());
    assert_eq!(all["role"], "master");
    assert_eq!(all["redis_mode"], "standalone");
}

#[test]
fn counters_count() {
    let server = server();
    let mut c = server.connect();
    c.check("CONFIG RESETSTAT", "+OK");
    c.check("SET a 1", "+OK");
    (0..5).for_each(|_| c.check("GET a", "\"1\""));
    (0..3).for_each(|_| c.check("GET absent", "nil"));
    c.check("INCR a", ":2");
    c.ask("NOSUCH");
    c.ask("GET");
    c.check("SET b x", "+OK");
    c.ask("INCR b");
    let stats = info(&mut c, "stats");
    assert_eq!((stats["keyspace_hits"].as_str(), stats["keyspace_misses"].as_str()), ("5", "3"));
    assert_eq!(stats["total_error_replies"], "3");
    let commands = info(&mut c, "commandstats");
    assert!(commands["cmdstat_get"].starts_with("calls=8,usec="), "{commands:?}");
    assert!(commands["cmdstat_get"].ends_with(",rejected_calls=1,failed_calls=0"), "{commands:?}");
    assert!(commands["cmdstat_incr"].ends_with(",rejected_calls=0,failed_calls=1"), "{commands:?}");
    assert_eq!(info(&mut c, "errorstats")["errorstat_ERR"], "count=3");
    c.check("CONFIG RESETSTAT", "+OK");
    assert_eq!(info(&mut c, "stats")["keyspace_hits"], "0");
    assert!(!info(&mut c, "commandstats").contains_key("cmdstat_get"));
    assert!(info(&mut c, "errorstats").is_empty());
}

/// As in redis-server 7.0: each key counts once for each mention, up to one of another type. OBJECT counts as well.
#[test]
fn keys_count_as_often_as_they_are_read() {
    let server = server();
    let mut c = server.connect();
    for line in [
        "SADD a x y",
        "SADD b y",
        "ZADD z 1 x",
        "ZADD w 1 y",
        "SET text v",
        "RPUSH list v",
        "SADD popped 1 2 3",
        "XADD s 1-1 f v",
        "XGROUP CREATE s g 0",
    ] {
        c.ask(line);
    }
    for (line, hits, misses) in [
        ("SINTERSTORE d a a", 2, 0),
        ("SINTERSTORE d a a b", 3, 0),
        ("SINTERSTORE d no no", 0, 2),
        ("SINTERSTORE d no a", 1, 1),
        ("SINTERSTORE d list a", 1, 0),
        ("SUNIONSTORE d a list b no", 2, 0),
        ("SUNIONSTORE d no text a", 1, 1),
        ("SUNIONSTORE d a a", 2, 0),
        ("SDIFFSTORE d a list b", 2, 0),
        ("SINTER no no", 0, 2),
        ("SUNION a list b", 2, 0),
        ("SDIFF a a", 2, 0),
        ("SINTERCARD 3 a a b", 3, 0),
        ("SINTERCARD 3 no list a", 1, 1),
        ("SUNIONCARD 3 a a b", 3, 0),
        ("SDIFFCARD 3 a no a", 2, 1),
        ("ZUNIONSTORE d 3 z list w", 2, 0),
        ("ZUNIONSTORE d 3 z a text", 3, 0),
        ("ZINTERSTORE d 2 no no", 0, 2),
        ("ZINTER 2 z z", 2, 0),
        ("ZINTERCARD 2 z z", 2, 0),
        ("ZDIFF 2 z z", 2, 0),
        ("OBJECT ENCODING text", 1, 0),
        ("OBJECT ENCODING no", 0, 1),
        ("OBJECT REFCOUNT text", 1, 0),
        ("OBJECT IDLETIME text", 1, 0),
        ("OBJECT IDLETIME no", 0, 1),
        ("OBJECT FREQ text", 1, 0),
        ("OBJECT FREQ no", 0, 1),
        ("INCRBYFLOAT float 1", 0, 0),
        ("INCRBYFLOAT list 1", 0, 0),
        ("BITOP AND d text no text", 2, 1),
        ("BITOP AND d text list no", 2, 0),
        ("SPOP popped 1", 0, 0),
        ("SPOP popped 9", 1, 0),
        ("SPOP popped 9", 0, 0),
        ("XREAD STREAMS s no $ $", 2, 2),
        ("XREAD STREAMS s 0", 2, 0),
        ("XREADGROUP GROUP g new STREAMS s >", 2, 0),
        ("XREADGROUP GROUP g newer STREAMS s >", 2, 0),
        ("XREADGROUP GROUP g new STREAMS s 0", 2, 0),
        ("XACK list g 1-1", 1, 0),
        ("XACK no g 1-1", 0, 1),
        ("XCLAIM s g new 0 1-1", 1, 0),
        ("XCLAIM list g new 0 1-1", 1, 0),
        ("XCLAIM s no new 0 1-1", 1, 0),
        ("XAUTOCLAIM list g new 0 0", 1, 0),
        ("XAUTOCLAIM no g new 0 0", 0, 1),
    ] {
        c.check("CONFIG RESETSTAT", "+OK");
        c.ask(line);
        let stats = info(&mut c, "stats");
        let counts = (stats["keyspace_hits"].as_str(), stats["keyspace_misses"].as_str());
        assert_eq!(counts, (&*hits.to_string(), &*misses.to_string()), "{line}");
    }
}

#[test]
fn errors_to_clients_that_wait_are_counted() {
    let server = server();
    let (mut c, mut waiting) = (server.connect(), server.connect());
    c.check("XGROUP CREATE s g $ MKSTREAM", "+OK");
    let is_blocked = |c: &mut Connection| info(c, "clients")["blocked_clients"] == "1";
    waiting.send("XREADGROUP GROUP g one BLOCK 0 STREAMS s >\r\n");
    wait_until("it waits", || is_blocked(&mut c));
    c.check("XGROUP DESTROY s g", ":1");
    assert!(waiting.reply().to_string().starts_with("-NOGROUP"));
    let id = waiting.ask("CLIENT ID").int();
    waiting.send("BLPOP list 0\r\n");
    wait_until("it waits", || is_blocked(&mut c));
    c.check(&format!("CLIENT UNBLOCK {id} ERROR"), ":1");
    assert!(waiting.reply().to_string().starts_with("-UNBLOCKED"));
    let errors = info(&mut c, "errorstats");
    assert_eq!(errors["errorstat_NOGROUP"], "count=1");
    assert_eq!(errors["errorstat_UNBLOCKED"], "count=1");
    assert_eq!(info(&mut c, "stats")["total_error_replies"], "2");
    let stats = &info(&mut c, "commandstats")["cmdstat_xreadgroup"];
    assert!(stats.ends_with(",failed_calls=1"), "{stats}");
}

#[test]
fn keys_are_counted_by_database() {
    let server = server();
    let mut c = server.connect();
    assert!(info(&mut c, "keyspace").is_empty());
    c.check("MSET a 1 b 2", "+OK");
    c.check("SET c 3 EX 1000", "+OK");
    c.check("SELECT 7", "+OK");
    c.check("SET d 4", "+OK");
    let keyspace = info(&mut c, "keyspace");
    assert!(keyspace["db0"].starts_with("keys=3,expires=1,avg_ttl="), "{keyspace:?}");
    assert!(keyspace["db7"].starts_with("keys=1,expires=0,"), "{keyspace:?}");
    assert_eq!(keyspace.len(), 2);
}

#[test]
fn memory_follows_the_data() {
    let server = server();
    let mut c = server.connect();
    let used =
        |c: &mut Connection| info(c, "memory")["used_memory"].parse::<usize>().expect("bytes");
    let before = used(&mut c);
    for n in 0..100 {
        c.call(&["SET", &format!("key:{n}"), &"x".repeat(100_000)]);
    }
    let full = used(&mut c);
    assert!((10_000_000..13_000_000).contains(&(full - before)), "{before} {full}");
    assert!((100_000..130_000).contains(&c.ask("MEMORY USAGE key:1").int()));
    c.check("MEMORY USAGE absent", "nil");
    c.check("FLUSHALL SYNC", "+OK");
    // Large values are freed in the background.
    wait_until("memory is free", || used(&mut c) < before + 1_000_000);
    let stats = c.ask("MEMORY STATS");
    assert_eq!(stats.field("keys.count").int(), 0);
    c.check("MEMORY PURGE", "+OK");
    assert!(!c.ask("MEMORY DOCTOR").text().is_empty());
    assert!(!c.ask("MEMORY MALLOC-STATS").text().is_empty());
}

/// Objects freed in the background are counted while they wait, and when they are freed.
#[test]
fn freed_objects_are_counted() {
    let server = server();
    let mut c = server.connect();
    let large = "x".repeat(4 << 20);
    for _ in 0..3 {
        assert_eq!(c.call(&["SET", "large", &large]).to_string(), "+OK");
        c.check("UNLINK large", ":1");
    }
    let figure =
        |c: &mut Connection, name: &str| info(c, "everything")[name].parse::<u64>().unwrap();
    wait_until("all are freed", || figure(&mut c, "lazyfreed_objects") == 3);
    assert_eq!(figure(&mut c, "lazyfree_pending_objects"), 0);
    // A stream with much data besides its entries is freed in the background although it is small.
    for _ in 0..100 {
        c.ask("XADD s * f v");
    }
    c.ask("XGROUP CREATE s g 0");
    c.ask("XREADGROUP GROUP g ann COUNT 100 STREAMS s >");
    c.check("UNLINK s", ":1");
    wait_until("the stream is freed", || figure(&mut c, "lazyfreed_objects") == 4);
    // Values that are freed at once do not count, in any place.
    c.check("SET k v", "+OK");
    c.check("MULTI", "+OK");
    c.check("FLUSHALL SYNC", "+QUEUED");
    c.check("EXEC", "[+OK]");
    wait_until("all is freed", || figure(&mut c, "lazyfree_pending_objects") == 0);
    assert_eq!(figure(&mut c, "lazyfreed_objects"), 4);
    c.check("CONFIG RESETSTAT", "+OK");
    assert_eq!(figure(&mut c, "lazyfreed_objects"), 0);
}

#[test]
fn figures_are_true() {
    let server = server();
    let mut c = server.connect();
    let keys: Vec<String> = (0..2000).map(|at| format!("SET key:{at} v")).collect();
    for set in &keys {
        c.check(set, "+OK");
    }
    let all = info(&mut c, "everything");
    for (name, value) in [
        ("gcc_version", "0.0.0"),
        ("mem_aof_buffer", "0"),
        ("reply_buffer_shrinks", "0"),
        ("aof_rewrites_consecutive_failures", "0"),
    ] {
        assert_eq!(all[name], value, "{name}");
    }
    // The first thread serves no connections, so its CPU time is less than that of all threads.
    let stat = std::fs::read_to_string(format!("/proc/{0}/task/{0}/stat", server.pid())).unwrap();
    let ticks = |at: usize| {
        let fields = stat.rsplit_once(')').unwrap().1.split_whitespace();
        fields.into_iter().nth(at).unwrap().parse::<f64>().unwrap() / 100.0
    };
    for (name, at) in [("used_cpu_user_main_thread", 11), ("used_cpu_sys_main_thread", 12)] {
        let told: f64 = all[name].parse().unwrap();
        assert!(told <= ticks(at), "{name} {told}, the system says {}", ticks(at));
    }
    assert_eq!(
        all["io_threaded_reads_processed"],
        match all["io_threads_active"].as_str() {
            "1" => all["total_reads_processed"].clone(),
            _ => "0".to_owned(),
        }
    );
    c.check("CONFIG SET repl-backlog-size 2mb", "+OK");
    c.check("RESTORE damaged 0 payload", "-ERR DUMP payload version or checksum are wrong");
    let stats = info(&mut c, "everything");
    assert_eq!(stats["repl_backlog_size"], (2 << 20).to_string());
    assert_eq!(stats["dump_payload_sanitizations"], "1");
    // Fields that redis_exporter reads in addition to those above.
    for name in ["clients_in_timeout_table", "expired_stale_perc", "lazyfree_pending_objects"] {
        assert_eq!(stats[name].parse::<f64>().unwrap(), 0.0, "{name}");
    }
}

/// Error replies to a command in a script are counted for the command, and not again with the script.
#[test]
fn errors_of_scripts_are_counted_once() {
    let server = crate::server();
    let mut c = server.connect();
    c.check("SET s x", "+OK");
    for (script, kind) in [
        ("return redis.call('lpush', KEYS[1], 1)", "WRONGTYPE"),
        ("return redis.pcall('lpush', KEYS[1], 1)", "WRONGTYPE"),
        ("redis.pcall('lpush', KEYS[1], 1) return 1", "WRONGTYPE"),
        ("redis.call('nosuch')", "ERR"),
        ("redis.call('get')", "ERR"),
        ("error('x')", "ERR"),
        ("error({err='MY x'})", "MY"),
        ("return redis.error_reply('MY x')", "MY"),
        ("return {err='MY x'}", "MY"),
    ] {
        c.check("CONFIG RESETSTAT", "+OK");
        c.call(&["EVAL", script, "1", "s"]);
        assert_counted(&mut c, &[kind], None);
    }
    // Anywhere in the reply, as in Redis.
    for (script, kinds) in [
        ("return {1, {err='MY x'}}", &["MY"][..]),
        ("return {redis.error_reply('A x'), {{err='B y'}}}", &["A", "B"]),
        ("return {1, redis.pcall('lpush', KEYS[1], 1), {err='MY x'}}", &["MY", "WRONGTYPE"]),
    ] {
        c.check("CONFIG RESETSTAT", "+OK");
        c.call(&["EVAL", script, "1", "s"]);
        assert_counted(&mut c, kinds, None);
        // Redis counts a script with a failed command twice.
        assert!(!info(&mut c, "commandstats")["cmdstat_eval"].ends_with(",failed_calls=0"));
    }
}

/// Checks that there was one error of each of these kinds since the reset, and this command failed once.
#[track_caller]
fn assert_counted(c: &mut Connection, kinds: &[&str], failed: Option<&str>) {
    let counted = |kind: &&str| (format!("errorstat_{kind}"), "count=1".to_owned());
    assert_eq!(info(c, "errorstats"), kinds.iter().map(counted).collect());
    assert_eq!(info(c, "stats")["total_error_replies"], kinds.len().to_string());
    if let Some(command) = failed {
        let stats = &info(c, "commandstats")[&format!("cmdstat_{command}")];
        assert!(stats.starts_with("calls=1,") && stats.ends_with(",failed_calls=1"), "{stats}");
    }
}

#[test]
fn errors_to_clients_that_have_waited_are_counted_with_their_commands() {
    let server = server();
    let (mut waiting, mut other) = (server.connect(), server.connect());
    let id = waiting.ask("CLIENT ID").int();
    for call in ["BLPOP k 0", "XREAD BLOCK 0 STREAMS s $", "WAIT 1 0"] {
        other.check("CONFIG RESETSTAT", "+OK");
        waiting.request(&words(call));
        let end = format!("CLIENT UNBLOCK {id} ERROR");
        wait_until("it is unblocked", || other.ask(&end).int() == 1);
        waiting.expect("-UNBLOCKED client unblocked via CLIENT UNBLOCK");
        let name = call.split(' ').next().expect("a name").to_lowercase();
        assert_counted(&mut other, &["UNBLOCKED"], Some(&name));
    }
}

/// The reply comes from another thread, after the command itself has ended.
#[test]
fn errors_that_come_late_are_counted_with_their_commands() {
    let temp = TempDir::new();
    let (dir, aside) = (temp.path().join("data"), temp.path().join("aside"));
    fs::create_dir(&dir).expect("made");
    let launch = launch().with("dir", &dir.display().to_string()).with("appendonly", "no");
    let server = launch.start();
    let mut c = server.connect();
    // A file is in the place of the folder, which cannot be created then.
    fs::rename(&dir, &aside).expect("moved");
    fs::write(&dir, "").expect("written");
    for (call, name) in [
        ("SAVE", "save"),
        ("SHUTDOWN SAVE", "shutdown"),
        ("CONFIG SET appendonly yes", "config|set"),
    ] {
        c.check("CONFIG RESETSTAT", "+OK");
        let reply = c.ask(call).to_string();
        assert!(reply.starts_with("-ERR "), "{call}: {reply}");
        assert_counted(&mut c, &["ERR"], Some(name));
    }
}
