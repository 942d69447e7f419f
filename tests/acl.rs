//! Users, their rights, and the effect of rights on everything else that a client may do.

use std::fs;
use std::io::{Read, Write};
use std::net::Ipv4Addr;
use std::os::unix::fs::PermissionsExt;
use std::time::{Duration, Instant};

use tierce_harness::{Both, Connection, Server, TempDir, encode, wait_until};

use crate::memcached::{answer, check_frames, frame};
use crate::tracking::{INVALIDATE_ALL, id_of, invalidate, told, tracker};
use crate::{launch, memcached, server};

const KEY_DENIED: &str = "-NOPERM No permissions to access a key";
const CHANNEL_DENIED: &str = "-NOPERM No permissions to access a channel";
const WRONG: &str = "-WRONGPASS invalid username-password pair or user is disabled.";

/// Makes `alice` with these rules.
fn set(admin: &mut Connection, rules: &str) {
    admin.check(&format!("ACL SETUSER alice {rules}"), "+OK");
}

/// Opens a connection of `alice`, whose password is `pw`.
fn alice(server: &Server) -> Connection {
    let mut c = server.connect();
    c.check("AUTH alice pw", "+OK");
    c
}

fn command_denied(command: &str) -> String {
    format!("-NOPERM User alice has no permissions to run the '{command}' command")
}

#[test]
fn rules_are_in_force_for_the_next_command() {
    let server = server();
    let mut admin = server.connect();
    set(&mut admin, "on >pw ~a* +get +set +acl|whoami");
    let mut c = alice(&server);
    c.check("ACL WHOAMI", "\"alice\"");
    c.check("SET a1 x", "+OK");
    c.check("GET b1", KEY_DENIED);
    c.check("DEL a1", &command_denied("del"));
    c.check("CONFIG GET port", &command_denied("config|get"));
    set(&mut admin, "~b* +del -get");
    c.check("GET a1", &command_denied("get"));
    c.check("DEL a1 b1", ":1");
    set(&mut admin, "off");
    // A client that is authenticated stays so.
    c.check("SET b1 x", "+OK");
    server.connect().check("AUTH alice pw", WRONG);
}

#[test]
fn a_deleted_user_loses_its_connections_even_those_that_wait() {
    let server = server();
    let mut admin = server.connect();
    set(&mut admin, "on >pw ~* &* +@all");
    let (mut idle, mut blocked, mut subscribed) = (alice(&server), alice(&server), alice(&server));
    let mut own = alice(&server);
    blocked.send(encode(&["BLPOP", "list", "0"]));
    subscribed.ask("SUBSCRIBE news");
    wait_until("it waits", || admin.ask("CLIENT LIST").text().contains("flags=b"));
    own.check("ACL DELUSER alice nobody", ":1");
    for c in [&mut own, &mut idle, &mut blocked, &mut subscribed] {
        c.expect_closed();
    }
    // The command was refused, so it popped nothing.
    admin.check("RPUSH list x", ":1");
    admin.check("LLEN list", ":1");
    // A user created again under the name is a different one.
    set(&mut admin, "on >pw +ping");
    alice(&server).check("PING", "+PONG");
    admin.check("ACL DELUSER default", "-ERR The 'default' user cannot be removed");
}

#[test]
fn transactions_are_checked_when_queued_and_when_run() {
    let server = server();
    let mut admin = server.connect();
    set(&mut admin, "on >pw ~a* +@all");
    let mut c = alice(&server);
    c.check("MULTI", "+OK");
    c.check("SET a 1", "+QUEUED");
    c.check("SET b 1", KEY_DENIED);
    c.check("EXEC", "-EXECABORT Transaction discarded because of previous errors.");
    c.check("MULTI", "+OK");
    c.check("SET a 1", "+QUEUED");
    c.check("GET a", "+QUEUED");
    set(&mut admin, "-set");
    let mut watcher = server.connect();
    watcher.check("MONITOR", "+OK");
    let reply = c.ask("EXEC").to_string();
    let expected = "NOPERM ACLs rules changed between the moment the transaction was accumulated and the EXEC call. \
                    This command is no longer allowed for the following reason: no permission to execute the command \
                    or subcommand";
    assert!(reply.contains(expected) && reply.ends_with(", nil]"), "{reply}");
    // As in Redis, this does not count as a call.
    let calls = admin.ask("INFO commandstats").text().to_owned();
    assert!(calls.contains("cmdstat_set:calls=0,"), "{calls}");
    let shown = watcher.reply().text().to_owned();
    assert!(shown.ends_with(r#" "GET" "a""#), "{shown}");
    let log = admin.ask("ACL LOG 1");
    let entry = &log.items()[0];
    assert_eq!(entry.items()[5].text(), "multi");
    assert_eq!(entry.items()[7].text(), "set");
}

#[test]
fn a_blocked_command_that_is_not_allowed_any_more_is_refused() {
    let server = server();
    let mut admin = server.connect();
    set(&mut admin, "on >pw ~list* +blpop");
    let mut c = alice(&server);
    c.send(encode(&["BLPOP", "list", "0"]));
    wait_until("it waits", || admin.ask("CLIENT LIST").text().contains("flags=b"));
    set(&mut admin, "resetkeys ~other*");
    admin.check("RPUSH list x", ":1");
    c.expect(KEY_DENIED);
    admin.check("LLEN list", ":1");
}

#[test]
fn commands_that_never_block_need_the_same_rights() {
    let server = server();
    let mut admin = server.connect();
    set(&mut admin, "on >pw ~a* +nblpop");
    let mut c = alice(&server);
    c.check("NBLPOP b 0 0", KEY_DENIED);
    c.check("NBKEYS * 0", &command_denied("nbkeys"));
    admin.check("RPUSH a x", ":1");
    c.check("NBLPOP a 0 0", "[\"a\", \"x\"]");
}

/// A later result needs the rights to the command that was sent, not to its blocking variant.
#[test]
fn results_that_come_later_need_the_same_rights() {
    let server = server();
    let mut admin = server.connect();
    set(&mut admin, "on >pw ~a* +nblpop +nbxread +ping");
    let mut c = alice(&server);
    c.send(encode(&["NBLPOP", "a", "0", "0"]));
    c.check("PING", "+PONG");
    admin.check("RPUSH a x", ":1");
    c.expect("[\"a\", \"x\"]");
    c.send(encode(&["NBXREAD", "BLOCK", "0", "STREAMS", "a1", "$", "0"]));
    c.check("PING", "+PONG");
    admin.check("XADD a1 1-1 k v", "\"1-1\"");
    c.expect("[[\"a1\", [[\"1-1\", [\"k\", \"v\"]]]]]");
    for (rules, denied) in [
        ("+@all -nblpop", command_denied("nblpop")),
        ("+nblpop resetkeys ~b", KEY_DENIED.to_owned()),
    ] {
        set(&mut admin, "resetkeys ~a* +nblpop");
        c.send(encode(&["NBLPOP", "a", "0", "0"]));
        c.check("PING", "+PONG");
        set(&mut admin, rules);
        admin.check("RPUSH a x", ":1");
        c.expect(&denied);
        admin.check("LPOP a", "\"x\"");
    }
}

/// As in Redis, the number of arguments does not matter, and absent keys are not denied.
#[test]
fn scripts_ask_whether_a_call_is_allowed() {
    let server = server();
    set(&mut server.connect(), "on >pw ~a* +eval +get +config|get");
    let mut c = alice(&server);
    let mut allowed = |call: &str, expected: &str| {
        let script = format!("return redis.acl_check_cmd({call})");
        c.send(encode(&["EVAL", &script, "0"]));
        c.expect(expected);
    };
    for (call, expected) in [("'get'", ":1"), ("'get', 'a'", ":1"), ("'get', 'b'", "nil")] {
        allowed(call, expected);
    }
    for (call, expected) in [("'set'", "nil"), ("'config', 'get'", ":1"), ("'config'", "nil")] {
        allowed(call, expected);
    }
}

#[test]
fn sort_needs_all_keys_for_those_that_it_finds() {
    let server = server();
    let mut admin = server.connect();
    admin.check("RPUSH a 2 1", ":2");
    set(&mut admin, "on >pw ~a* +sort +sort_ro");
    let mut c = alice(&server);
    c.check("SORT a", "[\"1\", \"2\"]");
    c.check("SORT a BY nosort", "[\"2\", \"1\"]");
    let by = "-ERR BY option of SORT denied due to insufficient ACL permissions.";
    c.check("SORT a BY w*", by);
    c.check("SORT_RO a BY w* GET x*", by);
    let get = "-ERR GET option of SORT denied due to insufficient ACL permissions.";
    c.check("SORT a GET secret*", get);
    c.check("SORT a STORE b", KEY_DENIED);
    set(&mut admin, "%R~*");
    c.check("SORT a GET secret*", "[nil, nil]");
}

#[test]
fn subscribers_that_lose_a_channel_are_closed() {
    let server = server();
    let mut admin = server.connect();
    set(&mut admin, "on >pw +@all &news* &orders");
    let (mut news, mut orders, mut pattern) = (alice(&server), alice(&server), alice(&server));
    news.check("SUBSCRIBE other", CHANNEL_DENIED);
    news.ask("SUBSCRIBE news1");
    orders.ask("SSUBSCRIBE orders");
    pattern.check("PSUBSCRIBE news1*", CHANNEL_DENIED);
    pattern.ask("PSUBSCRIBE news*");
    set(&mut admin, "resetchannels &news*");
    orders.expect_closed();
    admin.check("PUBLISH news1 hello", ":2");
    news.expect("[\"message\", \"news1\", \"hello\"]");
    pattern.expect("[\"pmessage\", \"news*\", \"news1\", \"hello\"]");
    set(&mut admin, "resetchannels &news1");
    pattern.expect_closed();
    admin.check("PUBLISH news1 hello", ":1");
}

#[test]
fn tracking_ends_with_the_user() {
    let server = server();
    let mut admin = server.connect();
    set(&mut admin, "on >pw ~a* +@all");
    let mut c = server.connect_resp3();
    c.check("AUTH alice pw", "+OK");
    c.check("CLIENT TRACKING ON", "+OK");
    c.check("GET b", KEY_DENIED);
    c.check("GET a", "null");
    admin.check("SET b 1", "+OK");
    admin.check("SET a 1", "+OK");
    // No invalidation is sent for a key that the client was not allowed to read.
    c.expect(">[\"invalidate\", [\"a\"]]");
    admin.check("ACL DELUSER alice", ":1");
    c.expect_closed();
    wait_until("it is gone", || admin.ask("INFO clients").text().contains("tracking_clients:0"));
}

#[test]
fn monitors_and_the_slow_log_see_neither_users_nor_passwords() {
    let server = server();
    let (mut watcher, mut admin) = (server.connect(), server.connect());
    admin.check("CONFIG SET slowlog-log-slower-than 0", "+OK");
    watcher.check("MONITOR", "+OK");
    set(&mut admin, "on >hunter2 +ping");
    admin.ask("ACL GETUSER alice");
    admin.ask("AUTH alice hunter2");
    admin.ask("ACL DELUSER alice");
    admin.ask("HELLO 2 AUTH alice hunter2");
    admin.ask("PING");
    let slow = server.connect().ask("SLOWLOG GET 100").to_string();
    assert!(slow.contains("\"SETUSER\", \"(redacted)\", \"(redacted)\""), "{slow}");
    assert!(!slow.contains("alice") && !slow.contains("hunter2"), "{slow}");
    loop {
        let line = watcher.reply().text().to_owned();
        assert!(!line.contains("alice") && !line.contains("hunter2"), "{line}");
        if line.ends_with("\"PING\"") {
            break;
        }
    }
}

#[test]
fn the_log_tells_what_was_denied_to_whom() {
    let server = server();
    let mut admin = server.connect();
    admin.check("ACL LOG RESET", "+OK");
    set(&mut admin, "on >pw ~a* +get +mget");
    let mut c = alice(&server);
    for call in ["GET b", "GET b", "MGET a b c", "SET a 1", "PUBLISH x y", "AUTH nobody x"] {
        c.ask(call);
    }
    let mut resp3 = server.connect_resp3();
    let log = resp3.ask("ACL LOG");
    let shown: Vec<_> = log
        .items()
        .iter()
        .map(|entry| {
            let field = |name| entry.field(name).to_string();
            [field("count"), field("reason"), field("context"), field("object"), field("username")]
                .join(" ")
        })
        .collect();
    assert_eq!(
        shown,
        [
            ":1 \"auth\" \"toplevel\" \"AUTH\" \"nobody\"",
            ":1 \"command\" \"toplevel\" \"publish\" \"alice\"",
            ":1 \"command\" \"toplevel\" \"set\" \"alice\"",
            ":3 \"key\" \"toplevel\" \"b\" \"alice\"",
        ]
    );
    let entry = &log.items()[3];
    assert!(entry.field("client-info").text().contains(" cmd=mget user=alice "), "{entry}");
    assert_eq!(entry.field("entry-id").int(), 0);
    assert!(entry.field("timestamp-created").int() <= entry.field("timestamp-last-updated").int());
    let stats = admin.ask("INFO stats").text().to_owned();
    for line in ["auth:1", "cmd:2", "key:3", "channel:0"] {
        assert!(stats.contains(&format!("acl_access_denied_{line}\r\n")), "{line}: {stats}");
    }
    let errors = admin.ask("INFO errorstats").text().to_owned();
    assert!(errors.contains("errorstat_NOPERM:count=5"), "{errors}");
    admin.check("CONFIG SET acllog-max-len 2", "+OK");
    c.ask("GET d");
    assert_eq!(admin.ask("ACL LOG").items().len(), 2);
    admin.check("CONFIG RESETSTAT", "+OK");
    assert!(admin.ask("INFO stats").text().contains("acl_access_denied_key:0\r\n"));
    // Without a log, denials are counted as well, also in programs.
    admin.check("CONFIG SET acllog-max-len 0", "+OK");
    set(&mut admin, "+eval");
    c.ask("GET d");
    c.call(&["EVAL", "return redis.pcall('get', 'd')", "0"]);
    let stats = admin.ask("INFO stats").text().to_owned();
    assert!(stats.contains("acl_access_denied_key:2\r\n"), "{stats}");
}

#[test]
fn clients_are_listed_and_killed_by_user() {
    let server = server();
    let mut admin = server.connect();
    set(&mut admin, "on >pw +ping");
    let mut c = alice(&server);
    c.check("PING", "+PONG");
    let list = admin.ask("CLIENT LIST").text().to_owned();
    assert!(list.contains(" user=alice ") && list.contains(" user=default "), "{list}");
    admin.check("CLIENT KILL USER nobody", "-ERR No such user 'nobody'");
    admin.check("CLIENT KILL USER alice", ":1");
    c.expect_closed();
    admin.check("CLIENT KILL USER alice", ":0");
}

#[test]
fn the_default_user_and_requirepass_are_one() {
    let server = server();
    let mut admin = server.connect();
    admin.check("CONFIG SET requirepass secret", "+OK");
    let hash = "2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b";
    let line = format!("[\"user default on sanitize-payload #{hash} ~* &* +@all\"]");
    admin.check("ACL LIST", &line);
    let mut c = server.connect();
    c.check("PING", "-NOAUTH Authentication required.");
    c.check("AUTH secret", "+OK");
    admin.check("ACL SETUSER default >other", "+OK");
    server.connect().check("AUTH other", "+OK");
    admin.check("CONFIG SET requirepass ''", "+OK");
    server.connect().check("PING", "+PONG");
    admin.check("ACL SETUSER default off", "+OK");
    server.connect().check("PING", "-NOAUTH Authentication required.");
    admin.check("ACL SETUSER default on -@all +ping +acl", "+OK");
    server
        .connect()
        .check("GET a", "-NOPERM User default has no permissions to run the 'get' command");
}

#[test]
fn new_users_get_the_channels_that_the_configuration_says() {
    let server = launch().with("acl-pubsub-default", "allchannels").start();
    let mut admin = server.connect();
    set(&mut admin, "(+get)");
    let line = "user alice off sanitize-payload &* -@all (&* -@all +get)";
    assert_eq!(admin.ask("ACL LIST").items()[0].text(), line);
    admin.check("CONFIG SET acl-pubsub-default resetchannels", "+OK");
    set(&mut admin, "reset");
    assert_eq!(
        admin.ask("ACL LIST").items()[0].text(),
        "user alice off sanitize-payload resetchannels -@all"
    );
}

#[test]
fn config_rewrite_keeps_the_users() {
    let dir = TempDir::new();
    let path =
        dir.write("a.conf", "# head\nuser bob on nopass ~b* +@read\nuser carol off\n# tail\n");
    let launch = launch().file(&path);
    let server = launch.start();
    let mut admin = server.connect();
    set(&mut admin, "on >pw ~a* (%R~b* +get)");
    admin.check("ACL DELUSER carol", ":1");
    admin.check("ACL SETUSER bob -hgetall", "+OK");
    admin.check("CONFIG REWRITE", "+OK");
    let list = admin.ask("ACL LIST").to_string();
    let text = fs::read_to_string(&path).expect("there");
    let kept = "# head\nuser bob on nopass sanitize-payload ~b* resetchannels -@all +@read -hgetall\n# tail\n";
    assert!(
        text.starts_with(kept)
            && text.contains("\nuser alice on ")
            && !text.contains("user default"),
        "{text}"
    );
    drop(server);
    let server = launch.start();
    server.connect().check("ACL LIST", &list);
    let mut admin = server.connect();
    admin.check("CONFIG SET requirepass secret", "+OK");
    admin.check("ACL SETUSER default -debug", "+OK");
    admin.check("CONFIG REWRITE", "+OK");
    let list = admin.ask("ACL LIST").to_string();
    drop(server);
    let server = launch.start();
    let mut admin = server.connect();
    admin.check("AUTH secret", "+OK");
    admin.check("ACL LIST", &list);
}

#[test]
fn users_live_in_a_file_of_their_own() {
    let dir = TempDir::new();
    let path = dir.write("users.acl", "# all\nuser alice on nopass ~a* +@all\n");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).expect("own file");
    let launch = launch().with("aclfile", path.to_str().expect("text"));
    let server = launch.start();
    let mut admin = server.connect();
    admin.check("ACL SETUSER bob on >pw +ping", "+OK");
    admin.check("ACL SAVE", "+OK");
    let text = fs::read_to_string(&path).expect("there");
    assert_eq!(text.lines().count(), 3, "{text}");
    assert!(!text.contains("pw ") && text.contains("user bob on sanitize-payload #"), "{text}");
    assert_eq!(fs::metadata(&path).expect("there").permissions().mode() & 0o777, 0o600);
    let mut bob = server.connect();
    bob.check("AUTH bob pw", "+OK");
    let mut a = server.connect();
    a.check("AUTH alice x", "+OK");
    fs::write(&path, "user alice on nopass ~b* +@all\nuser carol +nosuch\n").expect("own file");
    let error = admin.ask("ACL LOAD").text().to_owned();
    assert!(error.contains("users.acl:2: Error in applying operation '+nosuch'"), "{error}");
    a.check("GET a", "nil");
    fs::write(&path, "user alice on nopass ~b* +@all\n").expect("own file");
    admin.check("ACL LOAD", "+OK");
    bob.expect_closed();
    a.check("GET a", KEY_DENIED);
    a.check("GET b", "nil");
    admin.check("ACL USERS", "[\"alice\", \"default\"]");
    admin.check("ACL SETUSER bob on", "+OK");
    admin.check("ACL SAVE", "+OK");
    let list = admin.ask("ACL LIST").to_string();
    drop(server);
    launch.start().connect().check("ACL LIST", &list);
    fs::remove_file(&path).expect("own file");
    let outcome = launch.run();
    assert!(outcome.errors.contains("Error loading ACLs, opening file"), "{}", outcome.errors);
}

/// Each acknowledged save is in the file, also if many run at once.
#[test]
fn saves_at_once_are_all_there() {
    let dir = TempDir::new();
    let path = dir.write("users.acl", "");
    let server =
        launch().with("aclfile", path.to_str().expect("text")).with("threads", "2").start();
    std::thread::scope(|scope| {
        for client in 0..6 {
            let (mut admin, path) = (server.connect(), &path);
            scope.spawn(move || {
                for number in 0..20 {
                    let user = format!("user{client}x{number}");
                    admin.check(&format!("ACL SETUSER {user} on"), "+OK");
                    admin.check("ACL SAVE", "+OK");
                    let text = fs::read_to_string(path).expect("there");
                    assert!(text.contains(&format!("user {user} on")), "{user}");
                }
            });
        }
    });
    let text = fs::read_to_string(&path).expect("there");
    assert_eq!(text.lines().count(), 6 * 20 + 1, "{text}");
}

#[test]
fn a_start_with_wrong_users_fails() {
    let dir = TempDir::new();
    let users = dir.write("users.acl", "user alice on\n");
    for (conf, expected) in [
        (
            "user alice +nosuch\n",
            "a.conf:1: user: Error in applying operation '+nosuch': Unknown command",
        ),
        (
            "user alice on\nuser alice off\n",
            "a.conf:2: user: refused, this user is defined in an earlier line",
        ),
        (
            &format!("aclfile {}\nuser bob on\n", users.display()),
            "define users either there or here",
        ),
    ] {
        let path = dir.write("a.conf", conf);
        let outcome = launch().file(&path).run();
        assert!(outcome.errors.contains(expected), "{conf}: {}", outcome.errors);
    }
}

#[test]
fn commands_may_have_other_names() {
    let dir = TempDir::new();
    let path = dir.write(
        "a.conf",
        "rename-command FLUSHALL \"\"\nrename-command CONFIG a-name-that-is-longer-than-any-command\n\
         rename-command AUTH login\nrename-command BITFIELD bf\n",
    );
    let server = launch().file(&path).start();
    let mut c = server.connect();
    assert!(c.ask("FLUSHALL").text().starts_with("ERR unknown command 'FLUSHALL'"));
    assert!(c.ask("CONFIG GET port").text().starts_with("ERR unknown command 'CONFIG'"));
    assert_eq!(c.ask("A-Name-that-is-longer-than-any-command GET port").items().len(), 2);
    // Rules apply to the current names of commands.
    set(&mut c, "on >pw %R~* +config|get +bitfield");
    let mut watcher = server.connect();
    watcher.check("MONITOR", "+OK");
    let mut a = server.connect();
    a.check("login alice pw", "+OK");
    assert_eq!(a.ask("a-name-that-is-longer-than-any-command GET port").items().len(), 2);
    a.check("bf k GET u8 0", "[:0]");
    a.check("bf k INCRBY u8 0 1", KEY_DENIED);
    c.ask("PING");
    loop {
        let line = watcher.reply().text().to_owned();
        assert!(!line.contains("\"pw\""), "{line}");
        if line.ends_with("\"PING\"") {
            break;
        }
    }
    for (line, expected) in [
        ("rename-command NOSUCH x", "there is no command 'NOSUCH'"),
        ("rename-command GET SET", "there is a command 'SET'"),
    ] {
        let outcome = launch().file(dir.write("b.conf", line)).run();
        assert!(outcome.errors.contains(expected), "{line}: {}", outcome.errors);
    }
}

#[test]
fn a_value_on_disk_is_not_fetched_for_who_may_not_read_it() {
    let server = launch().with("maxmemory", "2mb").with("maxmemory-policy", "spill").start();
    let mut admin = server.connect();
    let value = "x".repeat(4000);
    for key in 0..3_000 {
        admin.send(encode(&["SET", &format!("b{key}"), &value]));
    }
    (0..3_000).for_each(|_| admin.expect("+OK"));
    let fetched = |admin: &mut Connection| {
        let info = admin.ask("INFO").text().to_owned();
        let line = info.lines().find_map(|line| line.strip_prefix("spilled_reads:"));
        line.and_then(|count| count.parse::<u64>().ok()).expect("a number of reads")
    };
    set(&mut admin, "on >pw ~a* +get");
    let mut c = alice(&server);
    let before = fetched(&mut admin);
    for key in 0..3_000 {
        c.send(encode(&["GET", &format!("b{key}")]));
    }
    (0..3_000).for_each(|_| c.expect(KEY_DENIED));
    assert_eq!(fetched(&mut admin), before);
    for key in 0..3_000 {
        assert_eq!(admin.ask(&format!("GET b{key}")).text(), value);
    }
    assert!(fetched(&mut admin) > before, "the values were on disk");
}

#[test]
fn clients_of_memcached_are_users_too() {
    let both = memcached::start();
    let mut admin = both.server.connect();
    admin.check("ACL SETUSER default >secret", "+OK");
    set(&mut admin, "on >pw ~a* +get +set +del");
    let said = b"set x 0 0 8\r\nalice pw\r\nset a 0 0 1\r\n1\r\nget a\r\nget b\r\nget a b\r\nincr a 1\r\nmg b v\r\nms a 1\r\n2\r\nstats\r\ndelete b\r\nversion\r\n";
    let denied = b"SERVER_ERROR the user has no permission for that\r\n";
    let expected = [
        &b"STORED\r\nSTORED\r\nVALUE a 0 1\r\n1\r\nEND\r\n"[..],
        denied,
        denied,
        denied,
        denied,
        b"HD\r\n",
        denied,
        denied,
        b"VERSION 1.6.18\r\n",
    ];
    both.check(said, &expected.concat());
    both.check(b"set x 0 0 11\r\nalice wrong\r\n", b"CLIENT_ERROR authentication failure\r\n");
    let sasl = frame(0x21, b"", b"PLAIN", b"\0alice\0pw");
    let get = frame(0, b"", b"b", b"");
    let refused = b"Auth failure.";
    let expected =
        [answer(0x21, 0, b"", b"", b"Authenticated"), answer(0, 0x20, b"", b"", refused)];
    check_frames(&both, &[sasl, get].concat(), &expected.concat());
    let log = admin.ask("ACL LOG").to_string();
    assert!(log.contains("\"memcached|get\"") || log.contains("\"b\""), "{log}");
    assert!(log.contains("user=alice"), "{log}");
    let list = admin.ask("ACL LOG").items().len();
    assert!(list >= 4, "{log}");
}

#[test]
fn a_client_of_memcached_can_become_a_user_though_the_default_user_is_open() {
    let both = memcached::start();
    let mut admin = both.server.connect();
    let login = |user: &str, password: &str| {
        frame(0x21, b"", b"PLAIN", format!("\0{user}\0{password}").as_bytes())
    };
    let granted = answer(0x21, 0, b"", b"", b"Authenticated");
    let refused = answer(0x21, 0x20, b"", b"", b"Auth failure.");
    check_frames(&both, &login("alice", "pw"), &answer(0x21, 0x81, b"", b"", b"Unknown command"));
    set(&mut admin, "on >pw ~a* +get");
    check_frames(&both, &frame(0x20, b"", b"", b""), &answer(0x20, 0, b"", b"", b"PLAIN"));
    let get = frame(0, b"", b"b", b"");
    let sent = [get.clone(), login("alice", "pw"), get].concat();
    let missing = answer(0, 1, b"", b"", b"Not found");
    let denied = answer(0, 0x20, b"", b"", b"Auth failure.");
    check_frames(&both, &sent, &[missing, granted, denied].concat());
    check_frames(&both, &login("alice", "x"), &refused);
}

/// Guarantee of `docs/acl.md`.
#[test]
fn names_of_keys_are_shown_to_administrators_only() {
    let launch = launch().with("slowlog-log-slower-than", "0");
    let server = launch.with("latency-monitor-threshold", "1").start();
    let mut admin = server.connect();
    set(&mut admin, "on >pw +@all -@dangerous ~a*");
    admin.check("SET secret 1", "+OK");
    admin.ask("INCRBYFLOAT secret x");
    admin.send(encode(&["BLPOP", "hidden-secret", "0"]));
    let mut c = alice(&server);
    for line in ["MONITOR", "SLOWLOG GET", "HOTKEYS GET", "ACL LOG", "SYNC", "KEYS *"] {
        let reply = c.ask(line).to_string();
        assert!(reply.starts_with("-NOPERM"), "{line}: {reply}");
    }
    admin = server.connect();
    set(&mut admin, "+client|list +info +latency");
    for line in [
        "CLIENT LIST",
        "INFO everything",
        "LATENCY LATEST",
        "LATENCY DOCTOR",
        "LATENCY HISTOGRAM",
        "GET secret-too",
        "EVAL 'return redis.call(\"get\", \"s\" .. \"ecret\")' 0",
    ] {
        let reply = c.ask(line).to_string();
        assert!(!reply.contains("secret"), "{line}: {reply}");
    }
}

#[test]
fn a_prefix_does_not_tell_names_that_the_user_may_not_know() {
    let server = server();
    let mut admin = server.connect();
    admin.check("ACL SETUSER ann on >pw +@all ~open:* %W~written:*", "+OK");
    let login = |c: &mut Connection| c.check("AUTH ann pw", "+OK");
    let mut direct = server.connect_resp3();
    login(&mut direct);
    direct.check("CLIENT TRACKING ON BCAST", "+OK");
    // One is the redirection target of other clients, and one becomes the user later.
    let mut target = server.connect_resp3();
    let mut redirecting = server.connect();
    login(&mut redirecting);
    let redirect = format!("CLIENT TRACKING ON BCAST REDIRECT {}", id_of(&mut target));
    redirecting.check(&redirect, "+OK");
    let mut late = tracker(&server, "BCAST");
    login(&mut late);
    let mut all = [direct, target, late];
    let set = "MSET open:a 1 secret:a 1 written:a 1 secret:b 1";
    admin.check(set, "+OK");
    let names = r#">["invalidate", ["open:a", "written:a"]]"#;
    all.iter_mut().for_each(|c| wait_for(c, names));
    admin.check("SET secret:c 1", "+OK");
    // New rights apply to the next message, even if the client sends nothing.
    admin.check("ACL SETUSER ann resetkeys ~secret:b", "+OK");
    admin.check(set, "+OK");
    all.iter_mut().for_each(|c| wait_for(c, &invalidate("secret:b")));
    admin.check("FLUSHALL", "+OK");
    all.iter_mut().for_each(|c| wait_for(c, INVALIDATE_ALL));
}

/// Waits for the next message to a connection.
#[track_caller]
fn wait_for(c: &mut Connection, expected: &str) {
    let mut seen = Vec::new();
    wait_until("it is told", || {
        seen.extend(told(c));
        !seen.is_empty()
    });
    assert_eq!(seen, [expected]);
}

/// Each attempt is delayed, also on a connection that has authenticated.
#[test]
fn a_client_of_memcached_that_is_somebody_guesses_no_faster() {
    let both = memcached::start();
    let mut admin = both.server.connect();
    admin.check("ACL SETUSER root on >right +@all ~*", "+OK");
    set(&mut admin, "on >pw ~a* +get");
    for _ in 0..9 {
        admin.check("AUTH root wrong", WRONG);
    }
    let login = |message: &[u8]| frame(0x21, b"", b"PLAIN", message);
    let mut guesser = both.connect();
    guesser.set_read_timeout(Some(Duration::from_secs(30))).expect("a socket");
    let began = Instant::now();
    let mut answered = |sent: &[u8], expected: &[u8]| {
        guesser.write_all(sent).expect("an open connection");
        let mut answer = vec![0; expected.len()];
        guesser.read_exact(&mut answer).expect("an answer");
        assert_eq!(answer, expected);
    };
    let granted = answer(0x21, 0, b"", b"", b"Authenticated");
    let refused = answer(0x21, 0x20, b"", b"", b"Auth failure.");
    answered(&login(b"\0alice\0pw"), &granted);
    answered(&login(b"\0root\0wrong"), &refused);
    answered(&login(b"\0default\0"), &granted);
    answered(&login(b"\0root\0right"), &granted);
    // There are at least 50 ms between two attempts.
    assert!(began.elapsed() > Duration::from_millis(140), "{:?}", began.elapsed());
}

#[test]
fn who_guesses_passwords_waits_and_is_logged_without_them() {
    let server = launch().with("requirepass", "secret").start();
    let mut guesser = server.connect();
    for _ in 0..12 {
        guesser.check("AUTH alice hunter2", WRONG);
    }
    let mut waiting = server.connect();
    waiting.send(encode(&["AUTH", "secret"]));
    assert!(waiting.is_silent_for(Duration::from_millis(20)));
    waiting.expect("+OK");
    // No other client waits.
    waiting.check("PING", "+PONG");
    let output = server.output() + &server.errors();
    assert!(output.contains("gave a wrong user name or password, for user 'alice'"), "{output}");
    assert!(!output.contains("hunter2"), "{output}");
}

#[test]
fn many_connections_guess_no_faster_than_one_and_keep_nobody_out() {
    let server = launch().with("requirepass", "secret").start();
    let mut admin = server.connect();
    admin.check("AUTH secret", "+OK");
    admin.check("ACL SETUSER alice on >pw", "+OK");
    admin.check("ACL SETUSER bob on >pw", "+OK");
    let mut guessers: Vec<_> = (0..40).map(|_| server.connect()).collect();
    for _ in 0..12 {
        guessers[0].check("AUTH alice hunter2", WRONG);
    }
    guessers.iter_mut().for_each(|guesser| guesser.send(encode(&["AUTH", "alice", "hunter2"])));
    let login = |words: &str| {
        let reply = server.connect().ask(words).to_string();
        assert!(!reply.starts_with('-'), "{words}: {reply}");
    };
    // One user is known at this address, and one is not.
    login("AUTH secret");
    login("AUTH bob pw");
    guessers.retain_mut(|guesser| guesser.is_silent_for(Duration::from_millis(1)));
    assert!(guessers.len() > 30);
    // The user whose password is guessed.
    login("HELLO 2 SETNAME auth AUTH alice pw");
}

/// A remote client opens one connection after the other and guesses on each.
#[test]
fn who_guesses_from_elsewhere_keeps_nobody_out() {
    let launch = launch().with("requirepass", "right").with("http-metrics-token", "scraper");
    let http = Both::start(launch, "http-port");
    let from = |last| Connection::tcp_from(Ipv4Addr::new(127, 0, 0, last), http.server.address());
    let mut first = from(2);
    for _ in 0..14 {
        first.check("AUTH bad", WRONG);
    }
    let mut strangers = Vec::new();
    let mut wait_while = |what: &str, is_silent: &mut dyn FnMut(Duration) -> bool| {
        for _ in 0..400 {
            let mut stranger = from(2);
            stranger.send(encode(&["AUTH", "bad"]));
            strangers.push(stranger);
            if !is_silent(Duration::from_millis(20)) {
                return;
            }
        }
        panic!("{what} is kept out");
    };
    let mut honest = from(3);
    honest.send(encode(&["AUTH", "right"]));
    wait_while("a client", &mut |limit| honest.is_silent_for(limit));
    honest.expect("+OK");
    let mut scraper = http.connect();
    let request =
        "GET /metrics HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer scraper\r\n\r\n";
    scraper.write_all(request.as_bytes()).expect("sent");
    let mut answer = [0; 12];
    wait_while("Prometheus", &mut |limit| {
        scraper.set_read_timeout(Some(limit)).expect("a socket");
        scraper.read_exact(&mut answer).is_err()
    });
    assert_eq!(&answer, b"HTTP/1.1 200");
}

#[test]
fn a_transaction_does_not_guess_passwords_faster() {
    let server = server();
    let mut guesser = server.connect();
    guesser.check("ACL SETUSER alice on >pw", "+OK");
    guesser.check("MULTI", "+OK");
    for _ in 0..12 {
        guesser.check("AUTH alice hunter2", "+QUEUED");
    }
    guesser.check("HELLO 3 AUTH alice pw", "+QUEUED");
    let reply = guesser.ask("EXEC").to_string();
    assert_eq!(reply.matches("WRONGPASS").count(), 9, "{reply}");
    assert_eq!(reply.matches("too many wrong passwords").count(), 4, "{reply}");
    guesser.check("ACL WHOAMI", "\"default\"");
    let refused = guesser.ask("ACL LOG").to_string();
    assert!(refused.contains("\"count\", :9"), "{refused}");
    // Outside of a transaction an attempt waits, and is then checked.
    guesser.check("AUTH alice pw", "+OK");
}

#[test]
fn a_password_does_not_stay_on_the_command_line() {
    let server = launch().with("requirepass", "hunter2").start();
    server.connect().check("AUTH hunter2", "+OK");
    let shown = fs::read(format!("/proc/{}/cmdline", server.pid())).expect("own process");
    let shown = String::from_utf8_lossy(&shown).into_owned();
    assert!(!shown.contains("hunter2") && shown.contains("--port"), "{shown}");
}

/// After both, the users in memory are equal to those in the file, in any order of the two.
#[test]
fn users_are_loaded_and_saved_one_after_the_other() {
    const ROUNDS: usize = 100;
    let dir = TempDir::new();
    let file = dir.write("users.acl", "user default on nopass ~* &* +@all\n");
    let server =
        launch().with("threads", "2").with("aclfile", file.to_str().expect("UTF-8")).start();
    // Connections are spread over the workers.
    let (mut saver, mut loader) = (server.connect(), server.connect());
    for round in 0..ROUNDS {
        saver.send(
            [encode(&["ACL", "SETUSER", &format!("u{round}"), "on"]), encode(&["ACL", "SAVE"])]
                .concat(),
        );
        loader.send(encode(&["ACL", "LOAD"]));
        saver.expect("+OK");
        saver.expect("+OK");
        loader.expect("+OK");
        let mut in_file: Vec<String> =
            fs::read_to_string(&file).expect("the file").lines().map(str::to_owned).collect();
        let list = saver.ask("ACL LIST");
        let mut in_memory: Vec<String> =
            list.items().iter().map(|line| line.text().to_owned()).collect();
        in_file.sort();
        in_memory.sort();
        assert_eq!(in_memory, in_file, "round {round}");
    }
}
