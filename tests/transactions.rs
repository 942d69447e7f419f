//! MULTI, EXEC and DISCARD: queued and refused commands, and their execution by EXEC.

use tierce_harness::{Connection, Server, TempDir, encode, wait_until};

use crate::{launch, server};

const ABORTED: &str = "-EXECABORT Transaction discarded because of previous errors.";

fn check_all(c: &mut Connection, exchanges: &[(&str, &str)]) {
    for (line, expected) in exchanges {
        c.check(line, expected);
    }
}

/// Returns the field of a line of CLIENT LIST.
fn field(line: &str, name: &str) -> String {
    let found = line.split_whitespace().find_map(|field| field.strip_prefix(&format!("{name}=")));
    found.unwrap_or_else(|| panic!("{name} in {line}")).to_owned()
}

#[test]
fn queued_commands_run_at_exec() {
    let server = server();
    let (mut c, mut other) = (server.connect(), server.connect());
    check_all(&mut c, &[("MULTI", "+OK"), ("SET a 1", "+QUEUED"), ("INCR a", "+QUEUED")]);
    other.check("GET a", "nil");
    check_all(&mut c, &[("GET a", "+QUEUED"), ("EXEC", "[+OK, :2, \"2\"]"), ("GET a", "\"2\"")]);
    check_all(&mut c, &[("MULTI", "+OK"), ("EXEC", "[]"), ("EXEC", "-ERR EXEC without MULTI")]);
}

#[test]
fn discarded_commands_do_not_run() {
    let server = server();
    let mut c = server.connect();
    c.check("DISCARD", "-ERR DISCARD without MULTI");
    for (end, expected) in [("DISCARD", "+OK"), ("RESET", "+RESET")] {
        check_all(&mut c, &[("MULTI", "+OK"), ("SET a 1", "+QUEUED"), (end, expected)]);
        check_all(&mut c, &[("GET a", "nil"), ("EXEC", "-ERR EXEC without MULTI")]);
    }
    check_all(&mut c, &[("MULTI", "+OK"), ("SET a 1", "+QUEUED"), ("QUIT", "+OK")]);
    c.expect_closed();
    let mut c = server.connect();
    check_all(&mut c, &[("MULTI", "+OK"), ("SET a 1", "+QUEUED")]);
    drop(c);
    let mut c = server.connect();
    check_all(&mut c, &[("GET a", "nil"), ("EXEC", "-ERR EXEC without MULTI")]);
}

#[test]
fn a_refused_command_dooms_the_transaction() {
    let server = server();
    let mut c = server.connect();
    for (line, refusal) in [
        ("NOSUCH", "-ERR unknown command 'NOSUCH', with args beginning with: "),
        ("GET", "-ERR wrong number of arguments for 'get' command"),
        ("CLIENT NOSUCH", "-ERR unknown subcommand 'NOSUCH'. Try CLIENT HELP."),
        ("SAVE", "-ERR Command not allowed inside a transaction"),
        ("SHUTDOWN NOSAVE", "-ERR Command not allowed inside a transaction"),
        ("DISCARD x", "-ERR wrong number of arguments for 'discard' command"),
        ("RESET x", "-ERR wrong number of arguments for 'reset' command"),
    ] {
        check_all(&mut c, &[("MULTI", "+OK"), ("SET a 1", "+QUEUED"), (line, refusal)]);
        check_all(&mut c, &[("SET a 2", "+QUEUED"), ("EXEC", ABORTED), ("GET a", "nil")]);
        check_all(&mut c, &[("MULTI", "+OK"), (line, refusal), ("DISCARD", "+OK")]);
        check_all(&mut c, &[("MULTI", "+OK"), ("PING", "+QUEUED"), ("EXEC", "[+PONG]")]);
    }
}

#[test]
fn errors_that_do_not_doom_it() {
    let server = server();
    let mut c = server.connect();
    check_all(
        &mut c,
        &[
            ("MULTI", "+OK"),
            ("MULTI", "-ERR MULTI calls can not be nested"),
            ("SET a text", "+QUEUED"),
            ("INCR a", "+QUEUED"),
            ("LPUSH a x", "+QUEUED"),
            ("APPEND a s", "+QUEUED"),
        ],
    );
    let reply = c.ask("EXEC");
    let shown: Vec<_> = reply.items().iter().map(ToString::to_string).collect();
    assert_eq!(shown[0], "+OK");
    assert_eq!(shown[1], "-ERR value is not an integer or out of range");
    assert!(shown[2].starts_with("-WRONGTYPE"), "{shown:?}");
    assert_eq!(shown[3], ":5");
}

#[test]
fn the_reply_has_the_length_that_it_states() {
    let server = server();
    let mut c = server.connect();
    let large = "x".repeat(100_000);
    c.check(&format!("SET large {large}"), "+OK");
    for line in ["MULTI", "GET large", "SUBSCRIBE a b", "UNSUBSCRIBE a b", "ECHO end"] {
        c.ask(line);
    }
    let told = r#"["subscribe", "a", :1], ["subscribe", "b", :2], ["unsubscribe", "a", :1], ["unsubscribe", "b", :0]"#;
    c.check("EXEC", &format!(r#"["{large}", {told}, "end"]"#));
    for line in ["MULTI", "ECHO begin", "CLIENT REPLY OFF", "ECHO muted"] {
        c.ask(line);
    }
    c.check("EXEC", r#"["begin"]"#);
    c.check("CLIENT REPLY ON", "+OK");
}

#[test]
fn exec_that_is_refused_itself_ends_the_transaction() {
    let server = server();
    let mut c = server.connect();
    let refused = "-EXECABORT Transaction discarded because of: wrong number of arguments for \
                   'exec' command";
    check_all(&mut c, &[("MULTI", "+OK"), ("SET a 1", "+QUEUED"), ("EXEC x", refused)]);
    check_all(&mut c, &[("PING", "+PONG"), ("EXEC", "-ERR EXEC without MULTI"), ("GET a", "nil")]);
}

#[test]
fn a_pipeline_is_answered_in_order() {
    let server = server();
    let mut c = server.connect();
    let lines = ["SET a 1", "MULTI", "INCR a", "INCR a", "EXEC", "INCR a", "EXEC"];
    let bytes = lines.iter().flat_map(|line| encode(&line.split(' ').collect::<Vec<_>>()));
    c.send(bytes.collect::<Vec<_>>());
    let expected =
        ["+OK", "+OK", "+QUEUED", "+QUEUED", "[:2, :3]", ":4", "-ERR EXEC without MULTI"];
    expected.iter().for_each(|expected| c.expect(expected));
}

#[test]
fn what_commands_change_of_the_connection_holds_for_those_behind_them() {
    let server = server();
    let mut c = server.connect();
    check_all(&mut c, &[("MULTI", "+OK"), ("SELECT 3", "+QUEUED"), ("SET a three", "+QUEUED")]);
    check_all(&mut c, &[("EXEC", "[+OK, +OK]"), ("GET a", "\"three\""), ("SELECT 0", "+OK")]);
    check_all(&mut c, &[("MULTI", "+OK"), ("HGETALL none", "+QUEUED"), ("HELLO 3", "+QUEUED")]);
    c.check("HGETALL none", "+QUEUED");
    let reply = c.ask("EXEC");
    assert_eq!(reply.items()[0].to_string(), "[]");
    assert_eq!(reply.items()[2].to_string(), "{}");
    c.check("GET none", "null");
}

#[test]
fn blocking_commands_do_not_wait() {
    let server = server();
    let mut c = server.connect();
    c.check("MULTI", "+OK");
    for line in [
        "BLPOP none 0",
        "BLMOVE none other LEFT RIGHT 0",
        "BRPOPLPUSH none other 0",
        "BLMPOP 0 1 none LEFT",
        "BZPOPMIN none 0",
        "XREAD BLOCK 0 STREAMS none $",
        "WAIT 1 0",
        "RPUSH list a",
        "BLPOP list 0",
    ] {
        c.check(line, "+QUEUED");
    }
    c.check(
        "EXEC",
        "[nil-array, nil, nil, nil-array, nil-array, nil-array, :0, :1, [\"list\", \"a\"]]",
    );
}

#[test]
fn clients_that_wait_see_only_the_end() {
    let server = server();
    let (mut waiter, mut c) = (server.connect(), server.connect());
    waiter.request(&["BLPOP", "list", "0"]);
    wait_for_blocked(&server);
    check_all(&mut c, &[("MULTI", "+OK"), ("RPUSH list a b", "+QUEUED"), ("LPOP list", "+QUEUED")]);
    check_all(&mut c, &[("LLEN list", "+QUEUED"), ("EXEC", "[:2, \"a\", :1]")]);
    waiter.expect("[\"list\", \"b\"]");
    waiter.request(&["BLPOP", "list", "0"]);
    wait_for_blocked(&server);
    check_all(&mut c, &[("MULTI", "+OK"), ("RPUSH list a", "+QUEUED"), ("DEL list", "+QUEUED")]);
    check_all(&mut c, &[("EXEC", "[:1, :1]"), ("RPUSH list c", ":1")]);
    waiter.expect("[\"list\", \"c\"]");
}

fn wait_for_blocked(server: &Server) {
    let mut observer = server.connect();
    wait_until("a client waits", || {
        observer.ask("INFO clients").text().contains("blocked_clients:1\r")
    });
}

#[test]
fn replies_can_be_switched_off_inside() {
    let server = server();
    let mut c = server.connect();
    let sent = |c: &mut Connection, lines: &[&str]| {
        let words = |line: &&str| line.split(' ').map(str::to_owned).collect::<Vec<_>>();
        let bytes: Vec<u8> = lines.iter().flat_map(|line| encode(&words(line))).collect();
        c.send(bytes);
    };
    // Replies after OFF are left out, and the array's length counts only the rest.
    sent(&mut c, &["MULTI", "PING", "CLIENT REPLY OFF", "PING", "CLIENT REPLY ON", "EXEC", "PING"]);
    c.expect("+OK");
    (0..4).for_each(|_| c.expect("+QUEUED"));
    assert_eq!(c.read_exactly(4 + 7 + 5), b"*2\r\n+PONG\r\n+OK\r\n");
    c.expect("+PONG");
    sent(&mut c, &["CLIENT REPLY OFF", "MULTI", "PING", "EXEC", "CLIENT REPLY ON"]);
    c.expect("+OK");
    sent(&mut c, &["MULTI", "PING", "CLIENT REPLY SKIP", "EXEC", "PING", "ECHO b"]);
    c.expect("+OK");
    (0..2).for_each(|_| c.expect("+QUEUED"));
    assert_eq!(c.read_exactly(4 + 7), b"*1\r\n+PONG\r\n");
    c.expect("\"b\"");
    sent(&mut c, &["MULTI", "PING", "CLIENT REPLY SKIP", "EXEC", "PING", "ECHO b"]);
    sent(&mut c, &["CLIENT REPLY SKIP", "MULTI", "CLIENT REPLY ON", "EXEC"]);
    c.expect("+OK");
}

#[test]
fn the_queue_is_shown_and_bounded() {
    let server = launch().with("client-query-buffer-limit", "1mb").start();
    let (mut c, mut observer) = (server.connect(), server.connect());
    let id = c.ask("CLIENT ID").int();
    let mut line = move || observer.ask(&format!("CLIENT LIST ID {id}")).text().trim().to_owned();
    assert_eq!((field(&line(), "multi"), field(&line(), "flags")), ("-1".into(), "N".into()));
    c.check("MULTI", "+OK");
    assert_eq!((field(&line(), "multi"), field(&line(), "flags")), ("0".into(), "x".into()));
    let value = "v".repeat(300_000);
    let mut memory = 0;
    for queued in 1..=2 {
        assert_eq!(c.call(&["SET", "key", &value]).to_string(), "+QUEUED");
        assert_eq!(field(&line(), "multi"), queued.to_string());
        let grown: usize = field(&line(), "multi-mem").parse().expect("bytes");
        assert!(grown >= memory + value.len(), "{grown}");
        assert!(field(&line(), "tot-mem").parse::<usize>().expect("bytes") > grown);
        memory = grown;
    }
    assert_eq!(field(&line(), "cmd"), "set");
    c.check("EXEC", "[+OK, +OK]");
    assert_eq!((field(&line(), "multi"), field(&line(), "multi-mem")), ("-1".into(), "0".into()));
    assert_eq!(field(&line(), "cmd"), "exec");
    // A client whose queue exceeds the limit is closed.
    c.check("MULTI", "+OK");
    (0..8).for_each(|_| c.request(&["SET", "key", &value]));
    let replies = String::from_utf8(c.rest()).expect("text");
    let (queued, error) = replies.split_once('-').expect("an error");
    assert!(queued.len() <= 3 * "+QUEUED\r\n".len(), "{replies}");
    assert_eq!(error, "ERR request exceeds client-query-buffer-limit\r\n");
    let info = server.connect().ask("INFO stats").text().to_owned();
    assert!(info.contains("client_query_buffer_limit_disconnections:1\r"), "{info}");
    server.connect().check("STRLEN key", ":300000");
}

#[test]
fn gates_are_passed_when_queueing_and_at_exec() {
    let server = launch().with("maxmemory-policy", "noeviction").start();
    let (mut c, mut other) = (server.connect(), server.connect());
    let full = "OOM command not allowed when used memory > 'maxmemory'.";
    c.check("SET a 1", "+OK");
    check_all(&mut c, &[("MULTI", "+OK"), ("SET a 2", "+QUEUED")]);
    let mut reader = server.connect();
    check_all(&mut reader, &[("MULTI", "+OK"), ("GET a", "+QUEUED"), ("DEL b", "+QUEUED")]);
    other.check("CONFIG SET maxmemory 1", "+OK");
    c.check("EXEC", &format!("-EXECABORT Transaction discarded because of: {full}"));
    // Commands that take no memory run.
    reader.check("EXEC", "[\"1\", :0]");
    // Nothing is queued, because any queued command takes memory.
    check_all(&mut c, &[("MULTI", "+OK"), ("GET a", &format!("-{full}")), ("EXEC", ABORTED)]);
    check_all(&mut c, &[("MULTI", "+OK"), ("DISCARD", "+OK"), ("GET a", "\"1\"")]);
}

#[test]
fn a_pause_of_writes_holds_transactions_with_writes() {
    let server = server();
    let (mut writer, mut reader, mut other) =
        (server.connect(), server.connect(), server.connect());
    check_all(&mut writer, &[("MULTI", "+OK"), ("SET a 1", "+QUEUED")]);
    check_all(&mut reader, &[("MULTI", "+OK"), ("GET a", "+QUEUED")]);
    other.check("CLIENT PAUSE 100000 WRITE", "+OK");
    reader.check("EXEC", "[nil]");
    writer.request(&["EXEC"]);
    wait_until("the writer is held back", || {
        let list = other.ask("CLIENT LIST").text().to_owned();
        list.contains("multi=1")
    });
    other.check("GET a", "nil");
    other.check("CLIENT UNPAUSE", "+OK");
    writer.expect("[+OK]");
}

#[test]
fn what_runs_is_counted_shown_and_logged() {
    let server = launch().with("slowlog-log-slower-than", "0").start();
    let (mut watcher, mut c) = (server.connect(), server.connect());
    watcher.check("MONITOR", "+OK");
    c.check("CONFIG RESETSTAT", "+OK");
    c.check("SLOWLOG RESET", "+OK");
    check_all(&mut c, &[("MULTI", "+OK"), ("SET a text", "+QUEUED"), ("INCR a", "+QUEUED")]);
    check_all(&mut c, &[("SELECT 1", "+QUEUED"), ("GET a", "+QUEUED")]);
    assert_eq!(c.ask("EXEC").items().len(), 4);
    let stats = c.ask("INFO commandstats").text().to_owned();
    for (command, calls, failed) in [
        ("multi", 1, 0),
        ("set", 1, 0),
        ("incr", 1, 1),
        ("select", 1, 0),
        ("get", 1, 0),
        ("exec", 1, 0),
    ] {
        let line = stats.lines().find(|line| line.starts_with(&format!("cmdstat_{command}:")));
        let line = line.unwrap_or_else(|| panic!("{command} in {stats}"));
        assert!(line.contains(&format!("calls={calls},")), "{line}");
        assert!(line.ends_with(&format!("rejected_calls=0,failed_calls={failed}")), "{line}");
    }
    let shown: Vec<String> = (0..6)
        .map(|_| watcher.reply().text().split_once("] ").expect("an address").1.to_owned())
        .collect();
    let expected = [
        r#""MULTI""#,
        r#""SET" "a" "text""#,
        r#""INCR" "a""#,
        r#""SELECT" "1""#,
        r#""GET" "a""#,
        r#""EXEC""#,
    ];
    assert_eq!(shown, expected);
    let log = c.ask("SLOWLOG GET");
    let logged: Vec<_> = log.items().iter().map(|entry| entry.items()[3].to_string()).collect();
    for line in
        [r#"["GET", "a"]"#, r#"["SELECT", "1"]"#, r#"["INCR", "a"]"#, r#"["SET", "a", "text"]"#]
    {
        assert!(logged.iter().any(|logged| logged == line), "{line} in {logged:?}");
    }
    assert!(!logged.iter().any(|line| line.contains("EXEC")), "{logged:?}");
}

#[test]
fn every_scope_is_locked_together() {
    let server = server();
    let mut c = server.connect();
    check_all(
        &mut c,
        &[
            ("MSET a 1 b 2 w_2 -1", "+OK"),
            ("RPUSH list 3 1 2", ":3"),
            ("MULTI", "+OK"),
            ("RENAME a c", "+QUEUED"),
            ("DBSIZE", "+QUEUED"),
            ("KEYS [bc]", "+QUEUED"),
            ("SORT list BY w_* GET #", "+QUEUED"),
            ("SWAPDB 0 1", "+QUEUED"),
            ("GET c", "+QUEUED"),
            ("FLUSHALL", "+QUEUED"),
            ("SELECT 1", "+QUEUED"),
            ("DBSIZE", "+QUEUED"),
            ("SET d 4", "+QUEUED"),
        ],
    );
    let reply = c.ask("EXEC");
    let shown: Vec<_> = reply.items().iter().map(ToString::to_string).collect();
    assert_eq!(shown[..2], ["+OK", ":4"]);
    assert_eq!(reply.items()[2].items().len(), 2);
    assert_eq!(shown[3], r#"["2", "1", "3"]"#);
    assert_eq!(shown[4..], ["+OK", "nil", "+OK", "+OK", ":0", "+OK"]);
}

#[test]
fn a_transaction_survives_as_a_whole() {
    let dir = TempDir::new();
    let launch = launch().with("appendonly", "yes").with("dir", &dir.path().display().to_string());
    let server = launch.start();
    let mut c = server.connect();
    check_all(&mut c, &[("MULTI", "+OK"), ("SET a 1", "+QUEUED"), ("RPUSH list x y", "+QUEUED")]);
    check_all(&mut c, &[("INCR list", "+QUEUED"), ("MSET b 2 c 3", "+QUEUED")]);
    assert_eq!(c.ask("EXEC").items().len(), 4);
    // Killed.
    drop(server);
    let server = launch.start();
    let mut c = server.connect();
    check_all(&mut c, &[("MGET a b c", r#"["1", "2", "3"]"#), ("LLEN list", ":2")]);
}

#[test]
fn values_on_disk_are_fetched_before_shards_are_locked() {
    const KEYS: usize = 1200;
    let server = launch().with("maxmemory", "1200kb").with("maxmemory-policy", "spill").start();
    let mut c = server.connect();
    let value = |key: usize| format!("{key}:").repeat(600);
    for key in 0..KEYS {
        assert_eq!(c.call(&["SET", &format!("key:{key}"), &value(key)]).to_string(), "+OK");
    }
    for first in (0..KEYS).step_by(8) {
        c.check("MULTI", "+OK");
        // To another database and back: the meaning of a key depends on the queued commands.
        ["SELECT 1", "GET key:0", "SELECT 0"].iter().for_each(|line| c.check(line, "+QUEUED"));
        for key in first..first + 8 {
            c.check(&format!("GET key:{key}"), "+QUEUED");
        }
        let reply = c.ask("EXEC");
        let replies = &reply.items()[3..];
        for (key, reply) in (first..).zip(replies) {
            assert_eq!(reply.text(), value(key), "{key}");
        }
    }
    let info = c.ask("INFO memory").text().to_owned();
    let figure = |name: &str| {
        let line = info.lines().find_map(|line| line.strip_prefix(name));
        line.and_then(|number| number.parse::<u64>().ok()).unwrap_or_else(|| panic!("{info}"))
    };
    assert!(figure("spilled_reads:") > 0, "{info}");
    // A value may be spilled once more before its shard is locked.
    assert!(figure("spilled_reads_late:") <= figure("spilled_reads:") / 50, "{info}");
}
