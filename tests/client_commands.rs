//! CLIENT: listing connected clients, and changing or closing their connections.

use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::thread;
use std::time::Duration;

use tierce_harness::{Connection, Launch, TempDir, effort, encode, wait_until};

use crate::{launch, server};

/// Returns a field in a line of CLIENT LIST.
fn field<'a>(line: &'a str, name: &str) -> &'a str {
    let prefix = format!("{name}=");
    let found = line.trim_end().split(' ').find_map(|field| field.strip_prefix(&prefix));
    found.unwrap_or_else(|| panic!("no {name} in {line}"))
}

fn list(c: &mut Connection, options: &str) -> Vec<String> {
    let list = c.ask(&format!("CLIENT LIST {options}"));
    list.text().lines().map(str::to_owned).collect()
}

fn id(c: &mut Connection) -> i64 {
    c.ask("CLIENT ID").int()
}

#[test]
fn clients_that_a_pause_holds_count_as_blocked() {
    let server = server();
    let (mut c, mut held) = (server.connect(), server.connect());
    let are_blocked = |c: &mut Connection, count: usize| {
        c.ask("INFO clients").text().contains(&format!("blocked_clients:{count}\r\n"))
    };
    c.check("CLIENT PAUSE 100000 WRITE", "+OK");
    held.send(encode(&["SET", "a", "1"]));
    let mut leaves = server.connect();
    leaves.send(encode(&["SET", "a", "2"]));
    wait_until("both are held", || are_blocked(&mut c, 2));
    drop(leaves);
    wait_until("one is held", || are_blocked(&mut c, 1));
    c.check("CLIENT UNPAUSE", "+OK");
    held.expect("+OK");
    assert!(are_blocked(&mut c, 0));
}

#[test]
fn identities_grow() {
    let server = server();
    let (mut a, mut b) = (server.connect(), server.connect());
    let first = id(&mut a);
    assert!(first > 0 && id(&mut b) > first);
    assert_eq!(id(&mut a), first);
    assert!(id(&mut server.connect()) > id(&mut b));
}

#[test]
fn names() {
    let server = server();
    let mut c = server.connect();
    c.check("CLIENT GETNAME", "nil");
    c.check("CLIENT SETNAME me", "+OK");
    c.check("CLIENT GETNAME", "\"me\"");
    let refused = "-ERR Client names cannot contain spaces, newlines or special characters.";
    c.check("CLIENT SETNAME 'a b'", refused);
    assert_eq!(c.call(&["CLIENT", "SETNAME", "a\nb"]).to_string(), refused);
    c.check("CLIENT GETNAME", "\"me\"");
    assert_eq!(field(&list(&mut c, "")[0], "name"), "me");
    c.check("CLIENT SETNAME ''", "+OK");
    c.check("CLIENT GETNAME", "nil");
}

#[test]
fn libraries_introduce_themselves() {
    let server = server();
    let mut c = server.connect();
    c.check("CLIENT SETINFO LIB-NAME mylib(py3_v1.0)", "+OK");
    c.check("CLIENT SETINFO lib-ver 1.2.3", "+OK");
    let info = c.ask("CLIENT INFO").text().to_owned();
    assert_eq!((field(&info, "lib-name"), field(&info, "lib-ver")), ("mylib(py3_v1.0)", "1.2.3"));
    c.check(
        "CLIENT SETINFO lib-name 'a b'",
        "-ERR lib-name cannot contain spaces, newlines or special characters.",
    );
    c.check("CLIENT SETINFO nosuch x", "-ERR Unrecognized option 'nosuch'");
}

#[test]
fn a_list_tells_what_tools_read() {
    let server = server();
    let mut c = server.connect();
    let mut other = server.connect_resp3();
    other.ask("SELECT 3");
    other.ask("GET a");
    let own = id(&mut c);
    let lines = list(&mut c, "");
    assert_eq!(lines.len(), 2);
    let line = lines.iter().find(|line| field(line, "id") == own.to_string()).expect("myself");
    assert_eq!(field(line, "addr"), c.local_address());
    assert_eq!(field(line, "laddr"), server.address().to_string());
    for (name, value) in [("db", "0"), ("cmd", "client|list"), ("user", "default"), ("resp", "2")] {
        assert_eq!(field(line, name), value);
    }
    for name in [
        "age",
        "idle",
        "sub",
        "psub",
        "ssub",
        "qbuf",
        "qbuf-free",
        "argv-mem",
        "multi",
        "multi-mem",
        "rbs",
        "rbp",
        "obl",
        "oll",
        "omem",
        "tot-mem",
        "redir",
        "fd",
    ] {
        let value = field(line, name);
        assert!(value.parse::<i64>().is_ok(), "{name}={value}");
    }
    assert!(!field(line, "flags").is_empty() && !field(line, "events").is_empty());
    let theirs = lines.iter().find(|line| field(line, "id") != own.to_string()).expect("the other");
    for (name, value) in [("db", "3"), ("cmd", "get"), ("resp", "3"), ("flags", "N")] {
        assert_eq!(field(theirs, name), value);
    }
    assert_eq!(field(c.ask("CLIENT INFO").text(), "cmd"), "client|info");
}

#[test]
fn lists_can_be_narrowed() {
    let server = server();
    let (mut a, mut b) = (server.connect(), server.connect());
    let (a_id, b_id) = (id(&mut a), id(&mut b));
    assert_eq!(list(&mut a, &format!("ID {b_id}")).len(), 1);
    assert_eq!(list(&mut a, &format!("ID {a_id} {b_id} 999999")).len(), 2);
    assert_eq!(list(&mut a, "TYPE normal").len(), 2);
    assert_eq!(list(&mut a, "TYPE pubsub").len(), 0);
    assert_eq!(list(&mut a, "TYPE master").len(), 0);
    b.check("SELECT 3", "+OK");
    b.check("CLIENT SETNAME b", "+OK");
    b.check("CLIENT SETINFO LIB-NAME lib", "+OK");
    b.check("CLIENT SETINFO LIB-VER 1.2", "+OK");
    b.check("CLIENT CAPA redirect", "+OK");
    b.check("CLIENT NO-EVICT ON", "+OK");
    // Conditions that hold for b alone.
    for one in [
        "NAME b",
        "LIB-NAME lib",
        "LIB-VER 1.2",
        "DB 3",
        "CAPA r",
        "FLAGS e",
        "SKIPME yes",
        &format!("ID {b_id}"),
        &format!("ADDR {}", b.local_address()),
        "NOT-DB 0",
        "NOT-FLAGS N",
        &format!("NOT-ID {a_id} 999999 MAXAGE 0"),
        &format!("ID {a_id} ID {b_id} NAME b"),
    ] {
        let found = list(&mut a, one);
        assert_eq!(
            found.iter().map(|line| field(line, "name")).collect::<Vec<_>>(),
            ["b"],
            "{one}"
        );
        if let Some(condition) = one.strip_prefix("NAME ").or(one.strip_prefix("DB ")) {
            let name = one.split(' ').next().expect("a name");
            let others = list(&mut a, &format!("NOT-{name} {condition}"));
            assert_eq!(others.len(), 1, "{one}");
        }
    }
    for both in
        ["USER default", "IP 127.0.0.1", "NOT-IP ::1", "NOT-TYPE pubsub", "IDLE 0", "SKIPME no"]
    {
        assert_eq!(list(&mut a, both).len(), 2, "{both}");
    }
    a.check("CLIENT LIST NOT-IDLE 1", "-ERR syntax error");
    a.check("CLIENT LIST FLAGS z", "-ERR Unknown flags found in the provided filter: z");
    a.check("CLIENT KILL FLAGS ''", "-ERR syntax error");
    a.check("CLIENT KILL IDLE -1", "-ERR syntax error");
    a.check("CLIENT LIST DB x", "-ERR DB is not an integer or out of range");
    a.check("CLIENT LIST ID 1 x", "-ERR Invalid client ID");
    a.check("CLIENT LIST NAME", "-ERR syntax error");
    a.check("CLIENT KILL ID 1 x", "-ERR syntax error");
    a.check("CLIENT KILL NAME nobody", ":0");
    a.check("CLIENT LIST TYPE nosuch", "-ERR Unknown client type 'nosuch'");
    a.check("CLIENT LIST ID x", "-ERR Invalid client ID");
    a.check("CLIENT LIST NOSUCH", "-ERR syntax error");
    let listed = server.connect_resp3().ask("CLIENT LIST").to_string();
    assert!(listed.starts_with("=txt:\"id="), "{listed}");
}

#[test]
fn connections_can_be_ended() {
    let server = server();
    let mut c = server.connect();
    let mut victim = server.connect();
    victim.check("PING", "+PONG");
    let address = victim.local_address();
    c.check(&format!("CLIENT KILL {address}"), "+OK");
    victim.expect_closed();
    c.check(&format!("CLIENT KILL {address}"), "-ERR No such client");

    let mut victim = server.connect();
    let victim_id = id(&mut victim);
    c.check(&format!("CLIENT KILL ID {victim_id}"), ":1");
    victim.expect_closed();
    c.check(&format!("CLIENT KILL ID {victim_id}"), ":0");

    let mut victims = [server.connect(), server.connect()];
    victims.iter_mut().for_each(|victim| victim.check("PING", "+PONG"));
    let own = server.address();
    c.check(&format!("CLIENT KILL LADDR {own} TYPE normal SKIPME yes"), ":2");
    victims.iter_mut().for_each(Connection::expect_closed);

    let mut victim = server.connect();
    victim.check("PING", "+PONG");
    let address = victim.local_address();
    c.check(&format!("CLIENT KILL ADDR {address} USER default"), ":1");
    victim.expect_closed();
    c.check("CLIENT KILL TYPE pubsub", ":0");
    c.check("CLIENT KILL ID x", "-ERR client-id should be greater than 0");
    c.check("CLIENT KILL TYPE nosuch", "-ERR Unknown client type 'nosuch'");
    c.check("CLIENT KILL SKIPME maybe ID 1", "-ERR syntax error");
    c.check("CLIENT KILL ID", "-ERR No such client");
    assert_eq!(list(&mut c, "").len(), 1);
}

#[test]
fn whoever_ends_itself_gets_the_reply_first() {
    let server = server();
    let mut c = server.connect();
    let own = id(&mut c);
    c.send(
        [encode(&["CLIENT", "KILL", "ID", &own.to_string(), "SKIPME", "no"]), encode(&["PING"])]
            .concat(),
    );
    c.expect(":1");
    c.expect_closed();
}

#[test]
fn the_others_see_an_ended_connection_disappear() {
    let server = server();
    let mut c = server.connect();
    let mut other = server.connect();
    other.check("PING", "+PONG");
    drop(other);
    wait_until("the connection is forgotten", || list(&mut c, "").len() == 1);
}

/// A message goes to replicas as well.
#[test]
fn a_pause_holds_back_transactions_that_publish() {
    let server = server();
    let (mut c, mut subscriber, mut publisher) =
        (server.connect(), server.connect(), server.connect());
    subscriber.check("SUBSCRIBE news", "[\"subscribe\", \"news\", :1]");
    publisher.check("MULTI", "+OK");
    publisher.check("PUBLISH news first", "+QUEUED");
    c.check("CLIENT PAUSE 100000 WRITE", "+OK");
    publisher.send("EXEC\r\n");
    assert!(publisher.is_silent_for(Duration::from_millis(50)));
    c.check("CLIENT UNPAUSE", "+OK");
    publisher.expect("[:1]");
    subscriber.expect("[\"message\", \"news\", \"first\"]");
}

#[test]
fn a_pause_holds_writes_back() {
    let server = server();
    let (mut c, mut reader, mut writer) = (server.connect(), server.connect(), server.connect());
    c.check("SET a old", "+OK");
    c.check("CLIENT PAUSE 100000 WRITE", "+OK");
    reader.check("GET a", "\"old\"");
    writer.send(
        [encode(&["GET", "a"]), encode(&["SET", "a", "new"]), encode(&["GET", "a"])].concat(),
    );
    writer.expect("\"old\"");
    assert!(writer.is_silent_for(Duration::from_millis(50)));
    reader.check("GET a", "\"old\"");
    c.check("CLIENT UNPAUSE", "+OK");
    writer.expect("+OK");
    writer.expect("\"new\"");
    reader.check("GET a", "\"new\"");
}

/// As in Redis: PFCOUNT may write its estimate, and a program may write unless it declares that it does not.
#[test]
fn a_pause_of_writes_lets_programs_pass_that_state_no_writes() {
    let server = server();
    let (mut c, mut reader, mut writer) = (server.connect(), server.connect(), server.connect());
    let library = "#!lua name=l\n\
        redis.register_function{function_name='ro', callback=function() return 3 end, flags={'no-writes'}}\n\
        redis.register_function('rw', function() return 4 end)";
    c.call(&["FUNCTION", "LOAD", library]);
    c.check("PFADD counter a", ":1");
    let [brief, long, plain] = [
        "#!lua flags=no-writes\nreturn 1",
        "#!lua flags=no-writes\nlocal n = 0 for i = 1, 1e6 do n = n + 1 end return n",
        "return 5",
    ];
    let sha = c.call(&["SCRIPT", "LOAD", brief]).text().to_owned();
    c.check("CLIENT PAUSE 100000 WRITE", "+OK");
    let passes: [&[&str]; 6] = [
        &["EVAL", brief, "0"],
        &["EVALSHA", &sha, "0"],
        &["FCALL", "ro", "0"],
        &["EVAL_RO", plain, "0"],
        &["FCALL_RO", "ro", "0"],
        // On another thread, which checks for the pause again.
        &["EVAL", long, "0"],
    ];
    let expected = vec![1, 1, 3, 5, 3, 1_000_000];
    for (call, number) in passes.iter().zip(&expected) {
        assert_eq!(reader.call(call).int(), *number, "{call:?}");
    }
    reader.check("MULTI", "+OK");
    for call in passes {
        assert_eq!(reader.call(call).text(), "QUEUED");
    }
    let replies = reader.ask("EXEC");
    assert_eq!(
        replies.items().iter().map(tierce_harness::Reply::int).collect::<Vec<_>>(),
        expected
    );
    reader.check("MULTI", "+OK");
    for (call, number) in [
        (&["EVAL", plain, "0"][..], 5),
        (&["EVAL", "#!lua\nreturn 6", "0"], 6),
        (&["FCALL", "rw", "0"], 4),
        (&["PFCOUNT", "counter"], 1),
        (&["PUBLISH", "news", "x"], 0),
        (&["SPUBLISH", "news", "x"], 0),
    ] {
        writer.request(call);
        assert!(writer.is_silent_for(Duration::from_millis(30)), "{call:?}");
        c.check("CLIENT UNPAUSE", "+OK");
        assert_eq!(writer.reply().int(), number, "{call:?}");
        assert_eq!(reader.call(call).text(), "QUEUED");
        c.check("CLIENT PAUSE 100000 WRITE", "+OK");
    }
    reader.send("EXEC\r\n");
    assert!(reader.is_silent_for(Duration::from_millis(30)));
    c.check("CLIENT UNPAUSE", "+OK");
    reader.expect("[:5, :6, :4, :1, :0, :0]");
}

#[test]
fn a_pause_of_all_holds_everything_back_until_its_time() {
    let server = server();
    let (mut c, mut other) = (server.connect(), server.connect());
    other.check("PING", "+PONG");
    c.check("CLIENT PAUSE 100", "+OK");
    // Longer than any test waits for a reply, unless the pause ends on its own.
    other.check("GET a", "nil");
    c.check("CLIENT PAUSE 100000 ALL", "+OK");
    other.request(&["PING"]);
    assert!(other.is_silent_for(Duration::from_millis(50)));
    c.check("CLIENT UNPAUSE", "+OK");
    other.expect("+PONG");
    c.check("CLIENT PAUSE x", "-ERR timeout is not an integer or out of range");
    c.check("CLIENT PAUSE -1", "-ERR timeout is negative");
    c.check("CLIENT PAUSE 1 NOSUCH", "-ERR CLIENT PAUSE mode must be WRITE or ALL");
}

#[test]
fn a_paused_connection_can_be_left() {
    let server = server();
    let (mut c, mut waiting) = (server.connect(), server.connect());
    waiting.check("PING", "+PONG");
    c.check("CLIENT PAUSE 100000 WRITE", "+OK");
    waiting.request(&["SET", "a", "1"]);
    drop(waiting);
    c.check("CLIENT UNPAUSE", "+OK");
    c.check("PING", "+PONG");
    wait_until("the connection is forgotten", || list(&mut c, "").len() == 1);
}

#[test]
fn replies_can_be_switched_off() {
    let server = server();
    let mut c = server.connect();
    let send = |c: &mut Connection, lines: &[&str]| {
        c.send(
            lines.iter().flat_map(|line| encode(&tierce_harness::words(line))).collect::<Vec<u8>>(),
        );
    };
    send(&mut c, &["CLIENT REPLY SKIP", "SET a 1", "GET a"]);
    c.expect("\"1\"");
    send(
        &mut c,
        &[
            "CLIENT REPLY OFF",
            "SET a 2",
            "NOSUCH",
            "CLIENT REPLY SKIP",
            "GET a",
            "CLIENT REPLY ON",
            "GET a",
        ],
    );
    c.expect("+OK");
    c.expect("\"2\"");
    send(&mut c, &["CLIENT REPLY SKIP", "CLIENT REPLY ON", "PING"]);
    c.expect("+OK");
    c.expect("+PONG");
    c.check("CLIENT REPLY NOSUCH", "-ERR syntax error");
}

#[test]
fn switches_and_what_does_not_apply() {
    let server = server();
    let mut c = server.connect();
    c.check("CLIENT NO-EVICT on", "+OK");
    c.check("CLIENT NO-TOUCH on", "+OK");
    let flags = field(c.ask("CLIENT INFO").text(), "flags").to_owned();
    assert!(flags.contains('e') && flags.contains('T'), "{flags}");
    c.check("CLIENT NO-EVICT off", "+OK");
    c.check("CLIENT NO-TOUCH off", "+OK");
    assert_eq!(field(c.ask("CLIENT INFO").text(), "flags"), "N");
    c.check("CLIENT NO-TOUCH maybe", "-ERR syntax error");
    c.check("CLIENT NO-EVICT maybe", "-ERR syntax error");
    c.check("CLIENT GETREDIR", ":-1");
    c.check("CLIENT TRACKINGINFO", "[\"flags\", [\"off\"], \"redirect\", :-1, \"prefixes\", []]");
    c.check("CLIENT UNBLOCK 999999", ":0");
    c.check("CLIENT UNBLOCK x", "-ERR value is not an integer or out of range");
    let help = c.ask("CLIENT HELP");
    assert!(help.items().iter().any(|line| line.text().starts_with("KILL ")), "{help}");
}

/// A client with CLIENT NO-TOUCH leaves no trace of its reads.
#[test]
fn access_times_are_left_alone() {
    let server = server();
    let (mut c, mut ghost) = (server.connect(), server.connect());
    c.check("SET a 1", "+OK");
    ghost.check("CLIENT NO-TOUCH on", "+OK");
    wait_until("the key looks idle", || {
        ghost.check("GET a", "\"1\"");
        c.ask("OBJECT IDLETIME a").int() >= 1
    });
    wait_until("a read of another client counts", || {
        c.check("GET a", "\"1\"");
        c.ask("OBJECT IDLETIME a").int() == 0
    });
}

/// A manual failover: an operator pauses writes, reads the end of the stream, and promotes a replica that has it.
#[test]
fn nothing_is_written_behind_the_reply_to_a_pause() {
    pause_while_others_write(&launch().with("threads", "4"));
}

/// Replicas only get records that the bucket has.
#[test]
fn nothing_is_streamed_behind_the_reply_to_a_pause_of_the_owner_of_a_bucket() {
    let dir = TempDir::new();
    let owner = launch()
        .with("threads", "4")
        .with("appendonly", "yes")
        .with("bucket", &format!("file://{}", dir.path().display()))
        .with("bucket-takeover", "yes");
    pause_while_others_write(&owner);
}

fn pause_while_others_write(launch: &Launch) {
    let server = launch.clone().with("repl-ping-replica-period", "3600").start();
    let replica = crate::server();
    let mut c = server.connect();
    replica.connect().check(&format!("REPLICAOF 127.0.0.1 {}", server.port()), "+OK");
    let state = |c: &mut Connection| {
        let info = c.ask("INFO").text().to_owned();
        let is_one = |line: &&str| {
            ["rdb_changes_since_last_save:", "master_repl_offset:", "slave0:"]
                .iter()
                .any(|name| line.starts_with(name))
        };
        info.lines().filter(is_one).collect::<Vec<_>>().join(" ")
    };
    wait_until("the replica is online", || state(&mut c).contains("state=online"));
    let requests: Vec<u8> = (0..200)
        .flat_map(|n| match n % 8 {
            0 => encode(&["EVAL", "return redis.call('incr', KEYS[1])", "1", "script"]),
            1 => [encode(&["MULTI"]), encode(&["INCR", "exec"]), encode(&["EXEC"])].concat(),
            2 => encode(&[
                "EVAL",
                "for i = 1, 3e5 do end return redis.call('incr', KEYS[1])",
                "1",
                "long",
            ]),
            _ => encode(&["INCR", &format!("key:{n}")]),
        })
        .collect();
    let ends = AtomicBool::new(false);
    thread::scope(|scope| {
        for _ in 0..4 {
            let mut writer = server.connect();
            let (requests, ends) = (&requests, &ends);
            scope.spawn(move || {
                while !ends.load(Relaxed) {
                    writer.send(requests);
                    (0..250).for_each(|_| _ = writer.reply());
                }
            });
        }
        let offset = |state: &str| {
            let (_, rest) = state.split_once("master_repl_offset:").expect("it is told");
            rest.split(' ').next().expect("a number").to_owned()
        };
        for round in 0..effort(40) {
            c.check("CLIENT PAUSE 100000 WRITE", "+OK");
            let first = state(&mut c);
            let changes = |state: &str| {
                let told = state
                    .split(' ')
                    .find_map(|part| part.strip_prefix("rdb_changes_since_last_save:"));
                told.expect("it is told").parse::<u64>().expect("a number")
            };
            for _ in 0..10 {
                let later = state(&mut server.connect());
                // Fewer, if a script is rolled back whose writes were counted.
                assert!(changes(&later) <= changes(&first), "round {round}: {later}, {first}");
                assert_eq!(offset(&later), offset(&first), "round {round}");
            }
            wait_until("the replica has all", || {
                state(&mut c).contains(&format!("offset={},", offset(&first)))
            });
            c.check("CLIENT UNPAUSE", "+OK");
        }
        ends.store(true, Relaxed);
    });
}
