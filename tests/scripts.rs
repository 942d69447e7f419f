//! EVAL and related commands: the permissions of scripts, and their effects for others.

use tierce_harness::{Connection, Server, TempDir, encode, wait_until};

use crate::{launch, server};

/// Runs EVAL of a script with keys and arguments.
#[track_caller]
fn eval(c: &mut Connection, script: &str, keys: &[&str], args: &[&str]) -> String {
    let count = keys.len().to_string();
    let mut call = vec!["EVAL", script, &count];
    call.extend(keys.iter().chain(args));
    c.call(&call).to_string()
}

#[track_caller]
fn check_all(c: &mut Connection, exchanges: &[(&str, &str)]) {
    for (line, expected) in exchanges {
        c.check(line, expected);
    }
}

/// Returns a field of INFO.
fn info(c: &mut Connection, section: &str, name: &str) -> String {
    let text = c.ask(&format!("INFO {section}")).text().to_owned();
    let prefix = format!("{name}:");
    let found = text.lines().find_map(|line| line.strip_prefix(&prefix));
    found.unwrap_or_else(|| panic!("{name} in {text}")).trim().to_owned()
}

#[test]
fn scripts_get_keys_and_arguments_and_call_commands() {
    let server = server();
    let mut c = server.connect();
    assert_eq!(
        eval(&mut c, "return {KEYS[1], KEYS[2], ARGV[1]}", &["a", "b"], &["c"]),
        r#"["a", "b", "c"]"#
    );
    assert_eq!(eval(&mut c, "return redis.call('set', KEYS[1], ARGV[1])", &["k"], &["v"]), "+OK");
    assert_eq!(eval(&mut c, "return redis.call('get', KEYS[1])", &["k"], &[]), "\"v\"");
    assert_eq!(eval(&mut c, "return redis.call('get', KEYS[1])", &["none"], &[]), "nil");
    let large = "x".repeat(100_000);
    c.call(&["SET", "large", &large]);
    assert_eq!(eval(&mut c, "return #redis.call('get', KEYS[1])", &["large"], &[]), ":100000");
    assert_eq!(c.call(&["EVAL", "return redis.call('get', KEYS[1])", "1", "large"]).text(), large);
}

#[test]
fn wrong_calls_are_refused_as_by_redis() {
    let server = server();
    let mut c = server.connect();
    check_all(
        &mut c,
        &[
            ("EVAL 'return 1'", "-ERR wrong number of arguments for 'eval' command"),
            ("EVAL 'return 1' x", "-ERR value is not an integer or out of range"),
            ("EVAL 'return 1' -1", "-ERR Number of keys can't be negative"),
            ("EVAL 'return 1' 1", "-ERR Number of keys can't be greater than number of args"),
            ("EVALSHA abc 0", "-NOSCRIPT No matching script. Please use EVAL."),
            (
                "EVALSHA ffffffffffffffffffffffffffffffffffffffff 0",
                "-NOSCRIPT No matching script. Please use EVAL.",
            ),
            ("SCRIPT DEBUG maybe", "-ERR Use SCRIPT DEBUG YES/SYNC/NO"),
            ("SCRIPT DEBUG NO", "+OK"),
            ("SCRIPT FLUSH NOW", "-ERR SCRIPT FLUSH only support SYNC|ASYNC option"),
            ("SCRIPT KILL", "-NOTBUSY No scripts in execution right now."),
        ],
    );
    let broken = c.ask("SCRIPT LOAD 'return +'").to_string();
    assert!(broken.starts_with("-ERR Error compiling script"), "{broken}");
    assert_eq!(info(&mut c, "memory", "number_of_cached_scripts"), "0");
}

#[test]
fn calls_that_scripts_may_not_make_are_errors_that_they_can_catch() {
    let server = server();
    let mut c = server.connect();
    let mut caught = |call: &str| {
        eval(&mut c, &format!("local e = redis.pcall({call}) return e.err"), &["k"], &[])
    };
    assert_eq!(caught("'nosuch'"), "\"ERR Unknown Redis command called from script\"");
    assert_eq!(caught("'script', 'nosuch'"), "\"ERR Unknown Redis command called from script\"");
    assert_eq!(caught("'get'"), "\"ERR Wrong number of args calling Redis command from script\"");
    for refused in [
        "'eval', 'return 1', '0'",
        "'multi'",
        "'subscribe', 'c'",
        "'config', 'get', 'port'",
        "'script', 'flush'",
        "'client', 'id'",
        "'nblpop', KEYS[1], '0', '0'",
        "'shutdown'",
    ] {
        let text = "\"ERR This Redis command is not allowed from script\"";
        assert_eq!(caught(refused), text, "{refused}");
    }
    c.ask("LPUSH list a");
    let wrong_type = eval(&mut c, "return redis.pcall('get', KEYS[1])", &["list"], &[]);
    assert!(wrong_type.starts_with("-WRONGTYPE "), "{wrong_type}");
    assert!(info(&mut c, "errorstats", "errorstat_WRONGTYPE").starts_with("count="));
}

#[test]
fn scripts_for_reading_do_not_write() {
    let server = server();
    let mut c = server.connect();
    let refusal = "ERR Write commands are not allowed from read-only scripts.";
    for (script, command) in [
        ("return redis.pcall('set', KEYS[1], 'x')", "EVAL_RO"),
        ("return redis.pcall('publish', KEYS[1], 'x')", "EVAL_RO"),
        ("#!lua flags=no-writes\nreturn redis.pcall('set', KEYS[1], 'x')", "EVAL"),
    ] {
        let reply = c.call(&[command, script, "1", "k"]).to_string();
        assert!(reply.starts_with(&format!("-{refusal}")), "{command} {script}: {reply}");
    }
    let reply = c.call(&["EVAL_RO", "#!lua\nreturn 1", "0"]).to_string();
    assert_eq!(reply, "-ERR Can not execute a script with write flag using *_ro command.");
    check_all(
        &mut c,
        &[
            ("SET k v", "+OK"),
            (
                "SCRIPT LOAD 'return redis.call(\"get\", KEYS[1])'",
                "\"a5260dd66ce02462c5b5231c727b3f7772c0bcc5\"",
            ),
        ],
    );
    c.check("EVALSHA_RO a5260dd66ce02462c5b5231c727b3f7772c0bcc5 1 k", "\"v\"");
    assert_eq!(
        c.call(&["EVAL_RO", "return redis.call('get', KEYS[1])", "1", "k"]).to_string(),
        "\"v\""
    );
}

#[test]
fn a_script_that_fails_keeps_what_it_has_written_unless_it_is_atomic() {
    let server = server();
    let mut c = server.connect();
    let script = "redis.call('incr', KEYS[1]) redis.call('lpush', KEYS[1], 'x')";
    assert!(eval(&mut c, script, &["a"], &[]).starts_with("-WRONGTYPE "));
    c.check("GET a", "\"1\"");
    assert!(
        eval(&mut c, &format!("#!lua flags=atomic\n{script}"), &["a"], &[])
            .starts_with("-WRONGTYPE ")
    );
    c.check("GET a", "\"1\"");
    let reply = eval(
        &mut c,
        "#!lua flags=atomic\nredis.call('incr', KEYS[1]) return redis.error_reply('no')",
        &["a"],
        &[],
    );
    assert!(reply.starts_with("-"), "{reply}");
    c.check("GET a", "\"1\"");
    c.check("CONFIG SET script-atomic yes", "+OK");
    assert!(eval(&mut c, script, &["a"], &[]).starts_with("-WRONGTYPE "));
    c.check("GET a", "\"1\"");
    assert_eq!(eval(&mut c, "return redis.call('incr', KEYS[1])", &["a"], &[]), ":2");
}

#[test]
fn undeclared_keys_are_reached() {
    let server = server();
    let mut c = server.connect();
    let script = "redis.call('incr', KEYS[1]) \
                  for i = 1, 50 do redis.call('incr', ARGV[1] .. i) end return redis.call('get', KEYS[1])";
    for round in 1..=4 {
        // Commands before the first undeclared key count once.
        assert_eq!(eval(&mut c, script, &["declared"], &["other"]), format!("\"{round}\""));
        c.check("GET other50", &format!("\"{round}\""));
    }
    assert_eq!(eval(&mut c, "return #redis.call('keys', '*')", &[], &[]), ":51");
    assert_eq!(eval(&mut c, "redis.call('flushall') return redis.call('dbsize')", &[], &[]), ":0");
}

#[test]
fn databases_and_protocols_of_scripts_are_their_own() {
    let server = server();
    let mut c = server.connect_resp3();
    assert_eq!(
        eval(&mut c, "redis.call('select', 3) redis.call('set', KEYS[1], 'x')", &["k"], &[]),
        "null"
    );
    check_all(
        &mut c,
        &[("GET k", "null"), ("SELECT 3", "+OK"), ("GET k", "\"x\""), ("HSET h f v", ":1")],
    );
    assert_eq!(eval(&mut c, "return redis.call('hgetall', KEYS[1])", &["h"], &[]), r#"["f", "v"]"#);
    let script = "redis.setresp(3) return redis.call('hgetall', KEYS[1])";
    assert_eq!(eval(&mut c, script, &["h"], &[]), r#"{"f": "v"}"#);
    assert_eq!(eval(&mut server.connect(), script, &["h"], &[]), "[]");
}

#[test]
fn blocking_commands_do_not_wait_in_scripts() {
    let server = server();
    let mut c = server.connect();
    assert_eq!(
        eval(
            &mut c,
            "return redis.call('blmove', KEYS[1], KEYS[2], 'LEFT', 'LEFT', 0)",
            &["a", "b"],
            &[]
        ),
        "nil"
    );
    assert_eq!(
        eval(
            &mut c,
            "return redis.call('xread', 'BLOCK', 0, 'STREAMS', KEYS[1], '$')",
            &["s"],
            &[]
        ),
        "nil"
    );
}

#[test]
fn what_a_script_does_beyond_keys_happens_at_its_end() {
    let server = server();
    let (mut subscriber, mut c) = (server.connect(), server.connect());
    subscriber.check("SUBSCRIBE news", "[\"subscribe\", \"news\", :1]");
    let script = "local n = redis.call('publish', 'news', ARGV[1]) redis.log(redis.LOG_WARNING, 'line ' .. ARGV[1])";
    // Once, although it runs twice, because it reaches an undeclared key.
    assert_eq!(
        eval(&mut c, &format!("{script} redis.call('incr', 'other') return n"), &["k"], &["first"]),
        ":1"
    );
    // Never, because it is rolled back.
    eval(&mut c, &format!("#!lua flags=atomic\n{script} error('no')"), &["k"], &["undone"]);
    assert_eq!(eval(&mut c, &format!("{script} return n"), &["k"], &["second"]), ":1");
    subscriber.expect("[\"message\", \"news\", \"first\"]");
    subscriber.expect("[\"message\", \"news\", \"second\"]");
    let output = server.output();
    assert_eq!(output.matches("line first").count(), 1, "{output}");
    assert!(!output.contains("line undone") && output.contains("line second"), "{output}");
}

#[test]
fn keys_that_scripts_change_wake_and_tell_others() {
    let server = server();
    let mut c = server.connect();
    let (mut waiter, mut watcher, mut listener) =
        (server.connect(), server.connect(), server.connect());
    let mut tracker = server.connect_resp3();
    waiter.request(&["BLPOP", "list", "0"]);
    wait_until("it waits", || info(&mut c, "clients", "blocked_clients") == "1");
    check_all(&mut watcher, &[("WATCH w", "+OK"), ("MULTI", "+OK"), ("PING", "+QUEUED")]);
    c.check("CONFIG SET notify-keyspace-events KEA", "+OK");
    listener.check("PSUBSCRIBE __keyevent@0__:*", "[\"psubscribe\", \"__keyevent@0__:*\", :1]");
    tracker.check("CLIENT TRACKING ON", "+OK");
    assert_eq!(eval(&mut tracker, "return redis.call('get', KEYS[1])", &["w"], &[]), "null");
    // A script that is rolled back does none of this.
    let script = "redis.call('rpush', KEYS[1], 'a', 'b') redis.call('set', KEYS[2], 'x')";
    eval(&mut c, &format!("#!lua flags=atomic\n{script} error('no')"), &["list", "w"], &[]);
    assert_eq!(info(&mut c, "clients", "blocked_clients"), "1");
    eval(&mut c, script, &["list", "w"], &[]);
    waiter.expect("[\"list\", \"a\"]");
    watcher.check("EXEC", "nil-array");
    for (event, key) in [("rpush", "list"), ("set", "w"), ("lpop", "list")] {
        listener.expect(&format!(
            "[\"pmessage\", \"__keyevent@0__:*\", \"__keyevent@0__:{event}\", \"{key}\"]"
        ));
    }
    tracker.expect(">[\"invalidate\", [\"w\"]]");
}

#[test]
fn scripts_in_transactions() {
    let server = server();
    let mut c = server.connect();
    check_all(&mut c, &[("MULTI", "+OK"), ("INCR a", "+QUEUED")]);
    assert_eq!(
        eval(
            &mut c,
            "return redis.call('incr', KEYS[1]) + redis.call('incr', 'undeclared')",
            &["a"],
            &[]
        ),
        "+QUEUED"
    );
    assert_eq!(eval(&mut c, "redis.call('incr', KEYS[1]) error('no')", &["a"], &[]), "+QUEUED");
    c.check("GET a", "+QUEUED");
    let replies = c.ask("EXEC");
    let replies: Vec<String> = replies.items().iter().map(ToString::to_string).collect();
    assert_eq!((&*replies[0], &*replies[1], &*replies[3]), (":1", ":3", "\"3\""), "{replies:?}");
    assert!(replies[2].starts_with("-"), "{replies:?}");
    check_all(
        &mut c,
        &[("MULTI", "+OK"), ("EVAL 'return 1' 0", "+QUEUED"), ("SUBSCRIBE c", "+QUEUED")],
    );
    let refused = c.ask("EXEC").to_string();
    assert!(refused.contains("cannot change subscriptions"), "{refused}");
}

#[test]
fn what_monitors_and_statistics_see_of_calls() {
    let server = server();
    let (mut monitor, mut c) = (server.connect(), server.connect());
    check_all(
        &mut c,
        &[("CONFIG RESETSTAT", "+OK"), ("CONFIG SET slowlog-log-slower-than 0", "+OK")],
    );
    monitor.check("MONITOR", "+OK");
    eval(&mut c, "redis.call('set', KEYS[1], 'x') return redis.call('get', KEYS[1])", &["k"], &[]);
    let lines: Vec<String> = (0..3).map(|_| monitor.reply().text().to_owned()).collect();
    assert!(lines[0].contains("\"EVAL\"") && lines[0].contains(&c.local_address()), "{lines:?}");
    assert!(lines[1].contains("[0 lua] \"set\" \"k\" \"x\""), "{lines:?}");
    assert!(lines[2].contains("[0 lua] \"get\" \"k\""), "{lines:?}");
    for name in ["cmdstat_eval", "cmdstat_set", "cmdstat_get"] {
        assert!(info(&mut c, "commandstats", name).starts_with("calls=1,"), "{name}");
    }
    let slow = c.ask("SLOWLOG GET 10").to_string();
    assert!(slow.contains("\"EVAL\"") && slow.contains("\"set\", \"k\", \"x\""), "{slow}");
}

#[test]
fn scripts_of_eval_are_kept_within_bounds_and_loaded_ones_for_good() {
    let server = server();
    let mut c = server.connect();
    let sha = c.ask("SCRIPT LOAD 'return 1'").text().to_owned();
    let scripts: Vec<u8> =
        (0..2_000).flat_map(|n| encode(&["EVAL", &format!("return {n} + 1"), "0"])).collect();
    c.send(scripts);
    (0..2_000).for_each(|n| c.expect(&format!(":{}", n + 1)));
    assert_eq!(info(&mut c, "memory", "number_of_cached_scripts"), "501");
    assert_eq!(info(&mut c, "stats", "evicted_scripts"), "1500");
    assert_ne!(info(&mut c, "memory", "used_memory_scripts_eval"), "0");
    assert_ne!(info(&mut c, "memory", "used_memory_vm_eval"), "0");
    c.check(&format!("SCRIPT EXISTS {sha} abc"), "[:1, :0]");
    c.check("SCRIPT FLUSH", "+OK");
    c.check(&format!("SCRIPT EXISTS {sha}"), "[:0]");
    assert_eq!(info(&mut c, "memory", "number_of_cached_scripts"), "0");
}

#[test]
fn memory_for_data_is_judged_at_the_first_write() {
    let server = server();
    let mut c = server.connect();
    c.call(&["SET", "large", &"x".repeat(1 << 20)]);
    c.check("CONFIG SET maxmemory 100kb", "+OK");
    let refusal = "-OOM command not allowed when used memory > 'maxmemory'.";
    let write = "return redis.pcall('set', KEYS[1], 'x')";
    c.check("SET a 1", refusal);
    assert!(eval(&mut c, write, &["k"], &[]).starts_with(refusal));
    assert_eq!(eval(&mut c, "return redis.call('get', KEYS[1])", &["k"], &[]), "nil");
    let flagged = eval(&mut c, &format!("#!lua\n{write}"), &["k"], &[]);
    assert!(flagged.starts_with(refusal), "{flagged}");
    assert_eq!(eval(&mut c, &format!("#!lua flags=allow-oom\n{write}"), &["k"], &[]), "+OK");
}

#[test]
fn replies_may_be_off() {
    let server = server();
    let mut c = server.connect();
    c.send(encode(&["CLIENT", "REPLY", "SKIP"]));
    c.send(encode(&["EVAL", "return redis.call('set', KEYS[1], 'x')", "1", "k"]));
    c.check("GET k", "\"x\"");
}

#[test]
fn writes_wait_for_the_end_of_a_pause() {
    let server = server();
    let (mut operator, mut c) = (server.connect(), server.connect());
    operator.check("CLIENT PAUSE 100000 WRITE", "+OK");
    assert_eq!(c.call(&["EVAL_RO", "return 1", "0"]).to_string(), ":1");
    c.request(&["EVAL", "return redis.call('incr', KEYS[1])", "1", "k"]);
    wait_until("it waits", || operator.ask("CLIENT LIST").text().contains("cmd=eval"));
    operator.check("GET k", "nil");
    operator.check("CLIENT UNPAUSE", "+OK");
    c.expect(":1");
}

/// The server is killed after the last reply. The writes of scripts are there.
#[test]
fn effects_are_logged() {
    let start = |server: &Server| server.connect();
    let dir = tierce_harness::TempDir::new();
    let launched =
        || launch().with("dir", dir.path().to_str().unwrap()).with("appendonly", "yes").start();
    let mut server = launched();
    let mut c = start(&server);
    for _ in 0..20 {
        eval(
            &mut c,
            "for i = 1, 100 do redis.call('rpush', KEYS[1], i) redis.call('incr', KEYS[2]) end",
            &["list", "n"],
            &[],
        );
    }
    eval(&mut c, "#!lua flags=atomic\nredis.call('del', KEYS[1]) error('no')", &["list"], &[]);
    server.signal(rustix::process::Signal::KILL);
    server.wait_for_end();
    let server = launched();
    check_all(&mut start(&server), &[("LLEN list", ":2000"), ("GET n", "\"2000\"")]);
}

#[test]
fn what_a_script_logs_is_bounded() {
    let server = server();
    let mut c = server.connect();
    let lines = "for i = 1, tonumber(ARGV[2]) do redis.log(redis[ARGV[1]], string.rep('x', 1000000)) end return 1";
    // More than it may have collected at its end, although it makes no calls.
    let refused = eval(&mut c, lines, &[], &["LOG_WARNING", "100"]);
    assert!(refused.contains("script-memory-limit"), "{refused}");
    let endless = eval(&mut c, lines, &[], &["LOG_WARNING", "1000000"]);
    assert!(endless.contains("script-memory-limit"), "{endless}");
    // Lines that are not written are not collected.
    assert_eq!(eval(&mut c, lines, &[], &["LOG_DEBUG", "100"]), ":1");
    c.check("CONFIG SET script-memory-limit 5mb", "+OK");
    let limited = eval(&mut c, lines, &[], &["LOG_WARNING", "10"]);
    assert!(limited.contains("script-memory-limit"), "{limited}");
    assert!(!server.output().contains("xxxx"));
}

/// The arguments of a call are copied for it. Regression: a copy of 300 MB stayed with the thread for good.
#[test]
fn words_of_calls_count_towards_the_limit_and_are_given_back() {
    let server = server();
    let (mut c, mut alice) = (server.connect(), server.connect());
    let call = |tail: &str| {
        format!("local s, t = string.rep('x', 1000000), {{}} for i = 1, 120 do t[i] = s end {tail}")
    };
    let before = server.resident_bytes();
    c.check("ACL SETUSER alice on >pw ~* +eval", "+OK");
    alice.check("AUTH alice pw", "+OK");
    let denied = eval(&mut alice, &call("return redis.call('del', unpack(t))"), &[], &[]);
    assert!(denied.contains("NOPERM"), "{denied}");
    assert_eq!(eval(&mut c, &call("return redis.call('del', unpack(t))"), &[], &[]), ":0");
    wait_until("it is given back", || server.resident_bytes() < before + (40 << 20));
    c.check("CONFIG SET script-memory-limit 20mb", "+OK");
    let limited = eval(&mut c, &call("return redis.pcall('del', unpack(t))"), &[], &[]);
    assert!(limited.contains("script-memory-limit"), "{limited}");
    c.check("CONFIG SET script-memory-limit 0 client-query-buffer-limit 50mb", "+OK");
    let large = eval(&mut c, &call("return redis.pcall('del', unpack(t))"), &[], &[]);
    assert!(large.contains("arguments of a command called from script are too large"), "{large}");
}

#[test]
fn what_is_kept_to_undo_and_log_writes_is_bounded() {
    let dir = TempDir::new();
    let server =
        launch().with("dir", dir.path().to_str().unwrap()).with("appendonly", "yes").start();
    let mut c = server.connect();
    c.check("CONFIG SET maxmemory 10mb", "+OK");
    c.check("SET k before", "+OK");
    let write =
        "for i = 1, tonumber(ARGV[1]) do redis.call('set', KEYS[1], string.rep('x', 1000000)) end";
    assert_eq!(eval(&mut c, write, &["k"], &["30"]), "nil");
    c.check("SET k before", "+OK");
    assert_eq!(
        eval(&mut c, write, &["k"], &["100"]),
        "-ERR Script has written more than is kept to undo and log its writes. Its writes were undone"
    );
    c.check("GET k", "\"before\"");
}

#[test]
fn what_can_be_evicted_makes_room_for_scripts() {
    let server = server();
    let mut c = server.connect();
    let fill = "for i = 1, 6000 do redis.call('set', ARGV[1] .. i, string.rep('y', 1000)) end";
    eval(&mut c, fill, &[], &["first"]);
    c.check("CONFIG SET maxmemory-policy allkeys-lru maxmemory 4mb", "+OK");
    for round in 0..5 {
        // It exceeds the limit, and the next script sees that.
        assert_eq!(eval(&mut c, fill, &[], &["second"]), "nil", "{round}");
        for flags in ["", "#!lua\n"] {
            let script = format!("{flags}return redis.call('set', KEYS[1], 'y')");
            assert_eq!(eval(&mut c, &script, &["z"], &[]), "+OK", "{round} {flags}");
        }
        check_all(&mut c, &[("MULTI", "+OK"), ("SET z 1", "+QUEUED")]);
        eval(&mut c, "return redis.call('set', KEYS[1], 'y')", &["z"], &[]);
        c.check("EXEC", "[+OK, +OK]");
    }
}

#[test]
fn command_getkeys_finds_no_keys_where_a_script_has_none() {
    let server = server();
    let mut client = server.connect();
    let calls = [
        "EVAL x 0",
        "EVAL_RO x 0 argument",
        "EVALSHA x 3 few",
        "FCALL f -1 a",
        "FCALL_RO f none a",
    ];
    for call in calls {
        assert_eq!(client.ask(&format!("COMMAND GETKEYS {call}")).to_string(), "[]", "{call}");
    }
    assert_eq!(client.ask("COMMAND GETKEYS EVAL x 2 a b c").to_string(), r#"["a", "b"]"#);
    client.check("COMMAND GETKEYS ZUNION 0 a", "-ERR Invalid arguments specified for command");
}

/// As in Redis, its flags apply to the call, which is refused before it runs, and aborts a transaction. A script
/// without declared flags fails by its own call.
#[test]
fn a_script_that_is_refused_as_a_whole_counts_as_rejected() {
    let server = server();
    let mut c = server.connect();
    let library = "#!lua name=l\nredis.register_function('f', function() return 1 end)";
    assert_eq!(c.call(&["FUNCTION", "LOAD", library]).text(), "l");
    let (stated, plain) = ("#!lua\nreturn 1", "return redis.call('SET', 'k', 'v')");
    let reads = "#!lua flags=no-writes\nreturn 1";
    let sha = c.call(&["SCRIPT", "LOAD", stated]).text().to_owned();
    let counted: [(&[&str], bool); 6] = [
        (&["EVAL", stated, "0"], true),
        (&["EVALSHA", &sha, "0"], true),
        (&["FCALL", "f", "0"], true),
        (&["EVAL_RO", stated, "0"], true),
        (&["FCALL_RO", "f", "0"], true),
        (&["EVAL", plain, "0"], false),
    ];
    let obstacles = [
        ("CONFIG SET maxmemory 1", "-OOM", "CONFIG SET maxmemory 0"),
        ("CONFIG SET min-replicas-to-write 1", "-NOREPLICAS", "CONFIG SET min-replicas-to-write 0"),
        ("REPLICAOF 127.0.0.1 1", "-READONLY", "REPLICAOF NO ONE"),
    ];
    for (begin, error, end) in obstacles {
        c.check(begin, "+OK");
        assert_eq!(c.call(&["EVAL", reads, "0"]).int(), 1, "{begin}");
        for (call, is_rejected) in counted {
            c.check("CONFIG RESETSTAT", "+OK");
            let reply = c.call(call).to_string();
            assert!(reply.starts_with(error), "{call:?}: {reply}");
            let stats = c.ask("INFO commandstats").text().to_owned();
            let name = format!("cmdstat_{}:", call[0].to_ascii_lowercase());
            let line = stats.lines().find(|line| line.starts_with(&name)).expect("a line");
            let counts = match is_rejected {
                true => (":calls=0,", ",rejected_calls=1,failed_calls=0"),
                false => (":calls=1,", ",rejected_calls=0,failed_calls=1"),
            };
            assert!(line.contains(counts.0) && line.ends_with(counts.1), "{begin} {line}");
            if is_rejected {
                c.check("MULTI", "+OK");
                assert!(c.call(call).to_string().starts_with(error), "{begin} {call:?}");
                assert!(c.ask("EXEC").to_string().starts_with("-EXECABORT"), "{begin} {call:?}");
            }
        }
        c.check(end, "+OK");
    }
    // The flags at the time of the execution count, not those at the time of queueing.
    c.check("MULTI", "+OK");
    assert_eq!(c.call(&["EVAL", stated, "0"]).text(), "QUEUED");
    let mut other = server.connect();
    other.check("REPLICAOF 127.0.0.1 1", "+OK");
    let refused = c.ask("EXEC").to_string();
    assert!(refused.starts_with("-EXECABORT") && refused.contains("READONLY"), "{refused}");
}
