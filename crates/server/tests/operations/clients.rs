//! CLIENT: listing clients, and commands on them.

use std::time::Instant;

use crate::operations::support::{Client, PATIENCE, TestServer};

fn id_of(client: &mut Client) -> i64 {
    client.value("CLIENT ID").as_int().unwrap()
}

#[test]
fn a_line_of_client_list_has_the_fields_of_7_2_and_watch_of_7_4_in_their_order() {
    let server = TestServer::start();
    let mut client = server.client();
    client.check(&[
        ("CLIENT SETNAME me", "OK"),
        ("CLIENT SETINFO lib-name redis-py", "OK"),
        ("CLIENT SETINFO LIB-VER 1.2.3", "OK"),
        ("CLIENT NO-EVICT on", "OK"),
        ("CLIENT NO-TOUCH ON", "OK"),
        ("SELECT 3", "OK"),
    ]);
    let line = client.call("CLIENT INFO");
    let fields: Vec<_> = line.trim_end().split(' ').map(|f| f.split_once('=').unwrap()).collect();
    let names: Vec<_> = fields.iter().map(|(name, _)| *name).collect();
    assert_eq!(
        names.join(" "),
        "id addr laddr fd name age idle flags db sub psub ssub multi watch qbuf qbuf-free argv-mem \
         multi-mem rbs rbp obl oll omem tot-mem events cmd user redir resp lib-name lib-ver"
    );
    let value = |wanted| fields.iter().find(|(name, _)| *name == wanted).unwrap().1;
    for (name, expected) in [
        ("name", "me"),
        ("flags", "eT"),
        ("db", "3"),
        ("omem", "0"),
        ("cmd", "client|info"),
        ("user", "default"),
        ("resp", "2"),
        ("lib-name", "redis-py"),
        ("lib-ver", "1.2.3"),
    ] {
        assert_eq!(value(name), expected, "{name}");
    }
}

#[test]
fn list_shows_whom_it_is_asked_for() {
    let server = TestServer::start();
    let (mut one, mut two) = (server.client(), server.client());
    let (first, second) = (id_of(&mut one), id_of(&mut two));
    let ids = |text: String| -> Vec<i64> {
        let id = |line: &str| line.split(['=', ' ']).nth(1).unwrap().parse().unwrap();
        text.lines().map(id).collect()
    };
    assert_eq!(ids(one.call("CLIENT LIST")), [first, second]);
    assert_eq!(ids(one.call("CLIENT LIST TYPE normal")), [first, second]);
    assert_eq!(ids(one.call(&format!("CLIENT LIST ID {second} 99 {second}"))), [second]);
    one.check(&[
        ("CLIENT LIST TYPE pubsub", ""),
        ("CLIENT LIST ID 0", ""),
        ("CLIENT LIST ID x", "-ERR Invalid client ID"),
        ("CLIENT LIST TYPE x", "-ERR Unknown client type 'x'"),
        ("CLIENT LIST ID", "-ERR syntax error"),
    ]);
}

#[test]
fn kill_ends_those_who_meet_all_conditions() {
    let server = TestServer::start();
    let (mut one, mut two) = (server.client(), server.client());
    let (own, other) = (id_of(&mut one), id_of(&mut two));
    let address = two.call("CLIENT INFO");
    let address = address.split_once("addr=").unwrap().1.split(' ').next().unwrap();
    one.check(&[
        ("CLIENT KILL 1.2.3.4:5", "-ERR No such client"),
        ("CLIENT KILL ID 0", "-ERR client-id should be greater than 0"),
        ("CLIENT KILL ID x", "-ERR client-id should be greater than 0"),
        ("CLIENT KILL USER nosuch", "-ERR No such user 'nosuch'"),
        ("CLIENT KILL TYPE nosuch", "-ERR Unknown client type 'nosuch'"),
        ("CLIENT KILL SKIPME maybe", "-ERR syntax error"),
        ("CLIENT KILL ID 1 TYPE", "-ERR syntax error"),
        ("CLIENT KILL TYPE replica", ":0"),
        ("CLIENT KILL MAXAGE 1000", ":0"),
        (&format!("CLIENT KILL ID {own}"), ":0"),
        (&format!("CLIENT KILL ADDR {address} ID {own} SKIPME no"), ":0"),
        (&format!("CLIENT KILL ADDR {address} ID {other} USER default TYPE normal"), ":1"),
    ]);
    assert_eq!(two.next(), "(closed)");
    let mut three = server.client();
    three.check(&[("PING", "PONG")]);
    one.check(&[(&format!("CLIENT KILL LADDR 127.0.0.1:{} SKIPME yes", server.port), ":1")]);
    assert_eq!(three.next(), "(closed)");
    // A client that kills itself still gets the reply.
    one.check(&[(&format!("CLIENT KILL ID {own} SKIPME no"), ":1")]);
    assert_eq!(one.next(), "(closed)");
}

#[test]
fn reply_off_and_skip_leave_out_exactly_what_they_say() {
    let server = TestServer::start();
    let mut client = server.client();
    for line in [
        "CLIENT REPLY OFF",
        "ECHO 1",
        "NOSUCH",
        "GET",
        "CLIENT REPLY SKIP",
        "ECHO 2",
        "CLIENT REPLY ON",
        "CLIENT REPLY SKIP",
        "ECHO 3",
        "ECHO 4",
        "CLIENT REPLY SKIP",
        "NOSUCH",
        "ECHO 5",
        "CLIENT REPLY SKIP",
        "CLIENT REPLY ON",
        "CLIENT REPLY OFF",
        "RESET",
        "CLIENT REPLY x",
    ] {
        client.send(line);
    }
    for expected in ["OK", "4", "5", "OK", "RESET", "-ERR syntax error"] {
        assert_eq!(client.next(), expected);
    }
}

/// Behaves like redis-server 7.0.15.
#[test]
fn reply_off_leaves_out_no_confirmation_of_a_subscription_in_a_transaction() {
    let server = TestServer::start();
    for (protocol, sign) in [(2, ""), (3, ">")] {
        let mut client = server.client();
        assert!(client.call(&format!("HELLO {protocol}")).contains("proto"));
        for line in [
            "CLIENT REPLY OFF",
            "MULTI",
            "SUBSCRIBE a b",
            "ECHO 1",
            "PUBLISH a m",
            "UNSUBSCRIBE a",
            "EXEC",
            "UNSUBSCRIBE b",
            "MULTI",
            "GET",
            "SUBSCRIBE c",
            "EXEC",
            "CLIENT REPLY ON",
        ] {
            client.send(line);
        }
        for expected in [
            "[subscribe, a, :1]",
            "[subscribe, b, :2]",
            "[unsubscribe, a, :1]",
            "[message, a, m]",
            "[unsubscribe, b, :0]",
        ] {
            assert_eq!(client.next(), format!("{sign}{expected}"));
        }
        assert_eq!(client.next(), "OK");
    }
}

#[test]
fn an_idle_connection_with_half_a_request_keeps_little_of_the_one_before() {
    const HALF: &[u8] = b"*2\r\n$3\r\nGE";
    let server = TestServer::start();
    let mut operator = server.client();
    let values = format!("$3\r\nkey\r\n$50000\r\n{}\r\n", "v".repeat(50_000)).repeat(64);
    let many = format!("*129\r\n$4\r\nMSET\r\n{values}");
    let large = "v".repeat(3 << 20);
    let one = format!("*3\r\n$3\r\nSET\r\n$3\r\nkey\r\n${}\r\n{large}\r\n", large.len());
    let mut clients: Vec<_> = (0..20).map(|_| server.client()).collect();
    for (number, client) in clients.iter_mut().enumerate() {
        client.send_raw(if number % 2 == 0 { many.as_bytes() } else { one.as_bytes() });
        client.send_raw(HALF);
        assert_eq!(client.next(), "OK");
    }
    // The server records the capacity once a second.
    let little = |list: &str| {
        let lines = list.lines().filter(|line| line.contains(&format!(" qbuf={} ", HALF.len())));
        let is_little = |line: &&str| {
            let field = |name: &str| -> usize {
                let (_, value) = line.split_once(name).unwrap();
                value.split(' ').next().unwrap().parse().unwrap()
            };
            (1..4096).contains(&field(" qbuf-free=")) && field(" tot-mem=") < 8192
        };
        lines.filter(is_little).count()
    };
    let begin = Instant::now();
    while little(&operator.call("CLIENT LIST")) < clients.len() {
        assert!(begin.elapsed() < PATIENCE, "{}", operator.call("CLIENT LIST"));
    }
    for client in &mut clients {
        client.send_raw(b"T\r\n$6\r\nnosuch\r\n");
        assert_eq!(client.next(), "(nil)");
    }
}

#[test]
fn a_pause_holds_back_what_it_says_until_it_ends() {
    let server = TestServer::start();
    let (mut operator, mut client) = (server.client(), server.client());
    operator.check(&[
        ("CLIENT PAUSE x", "-ERR timeout is not an integer or out of range"),
        ("CLIENT PAUSE -1", "-ERR timeout is negative"),
        ("CLIENT PAUSE 1 foo", "-ERR CLIENT PAUSE mode must be WRITE or ALL"),
        ("CLIENT PAUSE 100000 WRITE", "OK"),
    ]);
    client.check(&[("GET k", "(nil)")]);
    client.send("SET k 1");
    client.send("GET k");
    operator.check(&[("GET k", "(nil)")]);
    let info = operator.call("INFO clients");
    assert!(info.contains("paused_actions:write\r\n"), "{info}");
    operator.check(&[("CLIENT UNPAUSE", "OK")]);
    assert_eq!((client.next(), client.next()), ("OK".into(), "1".into()));

    operator.check(&[("CLIENT PAUSE 100000", "OK")]);
    client.send("PING");
    operator.check(&[("CLIENT UNPAUSE", "OK")]);
    assert_eq!(client.next(), "PONG");
    // A pause that is not ended expires by itself.
    operator.check(&[("CLIENT PAUSE 20 ALL", "OK")]);
    client.check(&[("PING", "PONG")]);
}

#[test]
fn a_long_command_that_runs_when_a_pause_begins_writes_after_it() {
    let server = TestServer::start();
    let (mut operator, mut client) = (server.client(), server.client());
    for base in (0..30_000).step_by(1000) {
        let members = |from| -> String { (from..from + 1000).map(|n| format!(" {n}")).collect() };
        operator.check(&[
            (&format!("SADD a{}", members(base)), ":1000"),
            (&format!("SADD b{}", members(base + 30_000)), ":1000"),
        ]);
    }
    client.send("SUNIONSTORE union a b");
    while !operator.call("CLIENT LIST").contains("cmd=sunionstore") {}
    operator.check(&[("CLIENT PAUSE 100000 WRITE", "OK")]);
    let exists = operator.call("EXISTS union");
    // Longer than its computation: these access as many elements.
    for _ in 0..3 {
        operator.check(&[("SINTERCARD 2 a b", ":0"), ("EXISTS union", &exists)]);
    }
    operator.check(&[("CLIENT UNPAUSE", "OK")]);
    assert_eq!(client.next(), ":60000");
}

#[test]
fn unblock_knows_its_words() {
    let server = TestServer::start();
    server.client().check(&[
        ("CLIENT UNBLOCK 1", ":0"),
        ("CLIENT UNBLOCK 1 TIMEOUT", ":0"),
        ("CLIENT UNBLOCK x", "-ERR value is not an integer or out of range"),
        ("CLIENT UNBLOCK 1 foo", "-ERR CLIENT UNBLOCK reason should be TIMEOUT or ERROR"),
        (
            "CLIENT UNBLOCK 1 ERROR x",
            "-ERR unknown subcommand or wrong number of arguments for 'UNBLOCK'. Try CLIENT HELP.",
        ),
    ]);
}

#[test]
fn a_request_without_arguments_is_one_that_client_reply_skips() {
    let server = TestServer::start();
    let mut client = server.client();
    for empty in ["*0\r\n", "*-1\r\n", "\r\n", "  \r\n"] {
        client.send_raw(format!("CLIENT REPLY SKIP\r\n{empty}ECHO {}\r\n", empty.len()).as_bytes());
        assert_eq!(client.next(), empty.len().to_string(), "{empty:?}");
        // It arrives on its own.
        client.send_raw(b"CLIENT REPLY SKIP\r\n");
        client.send_raw(empty.as_bytes());
        client.check(&[("ECHO told", "told")]);
        client.send_raw(format!("{empty}CLIENT REPLY SKIP\r\nECHO skipped\r\n").as_bytes());
    }
}

#[test]
fn a_client_without_replies_gets_no_protocol_error() {
    let server = TestServer::start();
    for mode in ["OFF", "SKIP"] {
        let mut client = server.client();
        client.send_raw(format!("CLIENT REPLY {mode}\r\n*x\r\n").as_bytes());
        assert_eq!(client.next(), "(closed)", "{mode}");
    }
    let mut client = server.client();
    client.send_raw(b"*x\r\n");
    assert_eq!(client.next(), "-ERR Protocol error: invalid multibulk length");
    assert_eq!(client.next(), "(closed)");
}

#[test]
fn a_pipeline_that_lowers_the_threshold_of_the_slow_log_is_judged_by_it() {
    let server = TestServer::start();
    let mut client = server.client();
    let slow = "CONFIG SET slowlog-log-slower-than";
    client.send_raw(format!("SET a 1\r\n{slow} 0\r\nGET a\r\n{slow} -1\r\nGET a\r\n").as_bytes());
    for reply in ["OK", "OK", "1", "OK", "1"] {
        assert_eq!(client.next(), reply);
    }
    client.check(&[("SLOWLOG LEN", ":2")]);
    let log = client.call("SLOWLOG GET");
    assert!(log.contains("[GET, a]") && log.contains("[CONFIG, SET, slowlog-log-slower-than, 0]"));
}
