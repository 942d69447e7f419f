//! COMMANDLOG records slow commands, large requests and large replies.

use tierce_harness::{Connection, Reply, Server, encode, wait_until};

use crate::launch;

const NOTHING: i64 = -1;

/// Starts a server that logs requests and replies of at least so many bytes.
fn start(request_bytes: i64, reply_bytes: i64) -> Server {
    launch()
        .with("commandlog-request-larger-than", &request_bytes.to_string())
        .with("commandlog-reply-larger-than", &reply_bytes.to_string())
        .with("enable-debug-command", "yes")
        .start()
}

/// Returns bytes and words of the entries of a log, the oldest first.
fn entries(c: &mut Connection, kind: &str) -> Vec<(i64, String)> {
    let log = c.ask(&format!("COMMANDLOG GET -1 {kind}"));
    let shown = |entry: &Reply| {
        let fields = entry.items();
        assert_eq!(fields.len(), 6);
        let words: Vec<_> = fields[3].items().iter().map(Reply::text).collect();
        (fields[2].int(), words.join(" "))
    };
    log.items().iter().rev().map(shown).collect()
}

fn entry(bytes: i64, words: &str) -> (i64, String) {
    (bytes, words.to_owned())
}

#[test]
fn large_requests_and_replies_are_logged_with_both_versions_of_the_protocol() {
    let server = start(1024, 1024);
    for mut c in [server.connect(), server.connect_resp3()] {
        c.check("COMMANDLOG RESET large-request", "+OK");
        c.check("COMMANDLOG RESET large-reply", "+OK");
        c.check("CLIENT SETNAME me", "+OK");
        let value = "v".repeat(1000);
        let request = encode(&["SET", "k", &value]);
        c.send(&request);
        c.expect("+OK");
        c.ask("GET k");
        c.check("SET small 1", "+OK");
        c.check("GET small", "\"1\"");
        c.check("COMMANDLOG LEN large-request", ":1");
        // The value alone is below the limit, its frame is not.
        let log = c.ask("COMMANDLOG GET 10 large-request");
        let fields = log.items()[0].items();
        assert!(fields[1].int() > 1_700_000_000, "Unix seconds");
        assert_eq!(fields[2].int(), request.len() as i64);
        assert!(fields[3].items()[2].text().ends_with("... (872 more bytes)"));
        assert_eq!((fields[4].text(), fields[5].text()), (&*c.local_address(), "me"));
        c.check("COMMANDLOG LEN large-reply", ":0");
        c.call(&["APPEND", "k", &"v".repeat(500)]);
        c.ask("GET k");
        assert_eq!(entries(&mut c, "large-reply"), [entry(1 + 4 + 2 + 1500 + 2, "GET k")]);
    }
}

#[test]
fn the_large_one_of_a_pipeline_is_found() {
    let server = start(5000, 5000);
    let mut c = server.connect();
    let (large, small) = ("L".repeat(100_000), "s".repeat(400));
    let mut pipeline = encode(&["SET", "large", &large]);
    pipeline.extend(encode(&["SET", "small", &small]));
    for _ in 0..40 {
        pipeline.extend(encode(&["GET", "small"]));
    }
    pipeline.extend(encode(&["GET", "large"]));
    pipeline.extend(encode(&["NOSUCH", &large]));
    pipeline.extend(encode(&["RPUSH", "list", &small, &small, &large]));
    pipeline.extend(encode(&["LRANGE", "list", "0", "-1"]));
    pipeline.extend(encode(&["GET", "small"]));
    c.send(&pipeline);
    (0..47).for_each(|_| drop(c.reply()));
    let replies = entries(&mut c, "large-reply");
    let list = 4 + 2 * (6 + 400 + 2) + 9 + 100_000 + 2;
    assert_eq!(replies, [entry(9 + 100_000 + 2, "GET large"), entry(list, "LRANGE list 0 -1")]);
    let requests = entries(&mut c, "large-request");
    let names: Vec<_> = requests.iter().map(|(_, words)| &words[..words.len().min(9)]).collect();
    assert_eq!(names, ["SET large", "RPUSH lis"]);
}

#[test]
fn zero_logs_all_and_a_negative_limit_nothing() {
    let server = start(0, 0);
    let mut c = server.connect();
    c.check("PING", "+PONG");
    // A request is noted after it has run.
    assert_eq!(entries(&mut c, "large-request"), [entry(14, "PING")]);
    assert_eq!(entries(&mut c, "large-reply")[0], entry(7, "PING"));
    c.check("CONFIG SET commandlog-request-larger-than -1", "+OK");
    c.check("CONFIG SET commandlog-reply-larger-than -1", "+OK");
    for kind in ["large-request", "large-reply"] {
        c.check(&format!("COMMANDLOG RESET {kind}"), "+OK");
        c.check("PING", "+PONG");
        c.check(&format!("COMMANDLOG LEN {kind}"), ":0");
    }
}

#[test]
fn the_slow_log_has_two_names() {
    let server = launch()
        .with("commandlog-execution-slower-than", "0")
        .with("commandlog-slow-execution-max-len", "20")
        .start();
    let mut c = server.connect();
    c.check("CONFIG GET slowlog-log-slower-than", "[\"slowlog-log-slower-than\", \"0\"]");
    c.check("COMMANDLOG RESET slow", "+OK");
    c.check("SLOWLOG LEN", ":1");
    c.check("SET a 1", "+OK");
    assert_eq!(entries(&mut c, "slow")[2].1, "SET a 1");
    (0..50).for_each(|_| drop(c.ask("PING")));
    c.check("COMMANDLOG LEN SLOW", ":20");
    c.check("SLOWLOG LEN", ":20");
    c.check("CONFIG SET slowlog-max-len 5", "+OK");
    c.check("PING", "+PONG");
    c.check("COMMANDLOG LEN slow", ":5");
    c.check("COMMANDLOG LEN large-request", ":0");
}

#[test]
fn the_logs_are_bounded_and_wrong_calls_refused() {
    let server = start(0, 0);
    let mut c = server.connect();
    c.check(
        "CONFIG SET commandlog-large-request-max-len 3 commandlog-large-reply-max-len 4",
        "+OK",
    );
    (0..20).for_each(|_| drop(c.ask("PING")));
    c.check("COMMANDLOG LEN large-request", ":3");
    c.check("COMMANDLOG LEN large-reply", ":4");
    assert_eq!(c.ask("COMMANDLOG GET 2 large-reply").items().len(), 2);
    assert_eq!(c.ask("COMMANDLOG GET 0 large-reply").items().len(), 0);
    assert_eq!(c.ask("COMMANDLOG GET -1 large-reply").items().len(), 4);
    let types = "-ERR type should be one of the following: slow, large-request, large-reply";
    let wrong = "-ERR wrong number of arguments for 'commandlog|";
    for (call, reply) in [
        ("COMMANDLOG GET -2 slow", "-ERR count should be greater than or equal to -1"),
        ("COMMANDLOG GET x nosuch", "-ERR count should be greater than or equal to -1"),
        ("COMMANDLOG GET 1 nosuch", types),
        ("COMMANDLOG LEN nosuch", types),
        ("COMMANDLOG RESET nosuch", types),
        ("COMMANDLOG GET 1", &format!("{wrong}get' command")),
        ("COMMANDLOG LEN", &format!("{wrong}len' command")),
        ("COMMANDLOG RESET", &format!("{wrong}reset' command")),
    ] {
        c.check(call, reply);
    }
    assert!(c.ask("COMMANDLOG HELP").items().len() > 6);
}

#[test]
fn secrets_are_not_shown() {
    let server = start(0, 0);
    let mut c = server.connect();
    c.ask("AUTH secret");
    c.check("CONFIG SET requirepass secret", "+OK");
    c.check("AUTH secret", "+OK");
    c.check("ACL SETUSER ada >secret", "+OK");
    for kind in ["large-request", "large-reply"] {
        let log = entries(&mut c, kind);
        assert!(log.iter().any(|(_, words)| words.starts_with("ACL SETUSER")), "{log:?}");
        assert!(log.iter().all(|(_, words)| !words.contains("secret")), "{log:?}");
    }
}

#[test]
fn requests_of_a_transaction_are_logged_one_by_one_when_they_run() {
    let server = start(600, 600);
    let mut c = server.connect();
    let value = "v".repeat(600);
    c.check("MULTI", "+OK");
    c.call(&["SET", "k", &value]);
    c.ask("GET k");
    c.check("COMMANDLOG LEN large-request", "+QUEUED");
    c.call(&["SET", "denied", &value, "WRONG"]);
    let replies = c.ask("EXEC");
    assert_eq!(replies.items()[2].int(), 1, "the queued SET has run before");
    let requests = entries(&mut c, "large-request");
    assert_eq!(requests.len(), 2, "{requests:?}");
    assert_eq!(requests[0].0, encode(&["SET", "k", &value]).len() as i64);
    assert_eq!(entries(&mut c, "large-reply"), [entry(608, "GET k")], "EXEC itself is left out");
    c.check("COMMANDLOG RESET large-request", "+OK");
    c.check("MULTI", "+OK");
    c.call(&["SET", "k", &value]);
    c.check("DISCARD", "+OK");
    c.check("COMMANDLOG LEN large-request", ":0");
}

#[test]
fn a_script_is_logged_as_a_whole() {
    let server = start(NOTHING, 600);
    let mut c = server.connect();
    c.call(&["SET", "k", &"v".repeat(600)]);
    let script = "redis.call('GET', KEYS[1]) return 1";
    assert_eq!(c.call(&["EVAL", script, "1", "k"]).int(), 1);
    let script = "return redis.call('GET', KEYS[1])";
    c.call(&["EVAL", script, "1", "k"]);
    assert_eq!(entries(&mut c, "large-reply"), [entry(608, &format!("EVAL {script} 1 k"))]);
}

#[test]
fn a_client_that_has_waited_gets_a_large_reply() {
    let server = start(NOTHING, 600);
    let (mut c, mut waiting) = (server.connect(), server.connect());
    waiting.send(encode(&["BLPOP", "k", "0"]));
    wait_until("it waits", || c.ask("INFO clients").text().contains("blocked_clients:1\r\n"));
    c.check("COMMANDLOG LEN large-reply", ":0");
    c.call(&["RPUSH", "k", &"v".repeat(600)]);
    waiting.reply();
    // The entry comes before the reply.
    assert_eq!(entries(&mut c, "large-reply"), [entry(4 + 7 + 608, "BLPOP k 0")]);
}

/// So many elements are left to a thread for long commands.
#[test]
fn a_long_command_has_a_large_reply() {
    let server = start(NOTHING, 100_000);
    let mut c = server.connect();
    let members: Vec<_> = (0..50_000).map(|n| format!("m{n:07}")).collect();
    let mut call = vec!["SADD".to_owned(), "set".to_owned()];
    call.extend(members);
    assert_eq!(c.call(&call).int(), 50_000);
    assert_eq!(c.ask("SMEMBERS set").items().len(), 50_000);
    assert_eq!(entries(&mut c, "large-reply"), [entry(8 + 50_000 * 14, "SMEMBERS set")]);
}

/// The value of a large request is received apart from the rest.
#[test]
fn defaults_are_a_mebibyte() {
    let server = launch().start();
    let mut c = server.connect();
    let value = "v".repeat(1 << 20);
    let request = encode(&["SET", "k", &value]);
    c.send(&request);
    c.expect("+OK");
    c.ask("GET k");
    let log = entries(&mut c, "large-request");
    assert_eq!(log.iter().map(|(bytes, _)| *bytes).collect::<Vec<_>>(), [request.len() as i64]);
    let reply = 1 + 7 + 2 + (1 << 20) + 2;
    assert_eq!(entries(&mut c, "large-reply"), [entry(reply, "GET k")]);
    let half = "v".repeat(1 << 19);
    c.call(&["SET", "half", &half]);
    c.ask("GET half");
    c.check("COMMANDLOG LEN large-request", ":1");
    c.check("COMMANDLOG LEN large-reply", ":1");
}
