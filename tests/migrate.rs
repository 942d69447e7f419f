//! MIGRATE to another server: nothing is lost, whatever the other one does.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::thread;
use std::time::Duration;

use tierce_harness::{Connection, Server, TempDir, wait_until};

use crate::{launch, server};

/// Returns `MIGRATE` to this server, with the arguments after the port.
fn migrate(to: &Server, arguments: &str) -> String {
    format!("MIGRATE 127.0.0.1 {} {arguments}", to.port())
}

const READING: &str = "-IOERR error or timeout reading to target instance";

#[test]
fn values_of_all_types_move() {
    let (from, to) = (server(), server());
    let (mut a, mut b) = (from.connect(), to.connect());
    let fill = [
        "SET text value",
        "SET short-lived value PX 100000000",
        "RPUSH list a b 3",
        "SADD set a b 3",
        "ZADD zset 1.5 a 2 b",
        "HSET hash a 1 b 2",
        "HPEXPIREAT hash 32503680000000 FIELDS 1 a",
        "XADD stream 5-1 a b",
        "XGROUP CREATE stream g 0",
        "PFADD counter a b",
    ];
    fill.iter().for_each(|line| drop(a.ask(line)));
    let big = vec![b'x'; 3 << 20];
    a.call(&[&b"SET"[..], b"big", &big]);
    let keys = "text short-lived list set zset hash stream counter big";
    let dumps = |c: &mut Connection| {
        keys.split(' ').map(|key| c.ask(&format!("DUMP {key}")).to_string()).collect::<Vec<_>>()
    };
    let before = dumps(&mut a);
    a.check(&migrate(&to, &format!("'' 3 5000 KEYS {keys} nosuch")), "+OK");
    a.check("DBSIZE", ":0");
    b.check("DBSIZE", ":0");
    b.check("SELECT 3", "+OK");
    assert_eq!(dumps(&mut b), before);
    let ttl_ms = b.ask("PTTL short-lived").int();
    assert!((90_000_000..=100_000_000).contains(&ttl_ms), "{ttl_ms}");
    b.check("PTTL text", ":-1");
    b.check("HPEXPIRETIME hash FIELDS 1 a", "[:32503680000000]");
    a.check(&migrate(&to, "text 3 5000"), "+NOKEY");
}

#[test]
fn a_key_is_copied_or_replaced_as_the_call_says() {
    let (from, to) = (server(), server());
    let (mut a, mut b) = (from.connect(), to.connect());
    a.check("SET k new", "+OK");
    b.check("SET k old", "+OK");
    let busy = "-ERR Target instance replied with error: BUSYKEY Target key name already exists.";
    a.check(&migrate(&to, "k 0 5000"), busy);
    a.check("GET k", "\"new\"");
    a.check(&migrate(&to, "k 0 5000 COPY REPLACE"), "+OK");
    a.check("GET k", "\"new\"");
    b.check("GET k", "\"new\"");
    a.check(&migrate(&to, "k 0 5000 replace"), "+OK");
    a.check("EXISTS k", ":0");
    // A key that the target refuses stays, and the others have moved.
    a.check("MSET x 1 k 2 y 3", "+OK");
    a.check(&migrate(&to, "'' 0 5000 KEYS x k y"), busy);
    a.check("MGET x k y", "[nil, \"2\", nil]");
    b.check("MGET x k y", "[\"1\", \"new\", \"3\"]");
    let no_db = "-ERR Target instance replied with error: ERR DB index is out of range";
    a.check(&migrate(&to, "k 99 5000"), no_db);
    a.check("GET k", "\"2\"");
}

#[test]
fn a_target_with_a_password_gets_it() {
    let (from, to) = (server(), launch().with("requirepass", "secret").start());
    let mut a = from.connect();
    let mut b = to.connect();
    b.check("AUTH secret", "+OK");
    b.check("ACL SETUSER ann on >hers +@all ~*", "+OK");
    a.check("MSET x 1 y 2 z 3", "+OK");
    let reply = a.ask(&migrate(&to, "x 0 5000")).to_string();
    assert!(reply.starts_with("-ERR Target instance replied with error: NOAUTH"), "{reply}");
    let reply = a.ask(&migrate(&to, "x 0 5000 AUTH wrong")).to_string();
    assert!(reply.starts_with("-ERR Target instance replied with error: WRONGPASS"), "{reply}");
    a.check("GET x", "\"1\"");
    a.check(&migrate(&to, "x 0 5000 AUTH secret"), "+OK");
    a.check(&migrate(&to, "'' 0 5000 AUTH2 ann hers KEYS y z"), "+OK");
    b.check("MGET x y z", "[\"1\", \"2\", \"3\"]");
}

#[test]
fn calls_are_checked_as_by_redis() {
    let (from, to) = (server(), server());
    let mut a = from.connect();
    a.check("SET k v", "+OK");
    let not_integer = "-ERR value is not an integer or out of range";
    a.check(&migrate(&to, "k x 5000"), not_integer);
    a.check(&migrate(&to, "k 0 soon"), not_integer);
    a.check(&migrate(&to, "k 0 5000 NOSUCH"), "-ERR syntax error");
    a.check(&migrate(&to, "k 0 5000 AUTH"), "-ERR syntax error");
    let both =
        "-ERR When using MIGRATE KEYS option, the key argument must be set to the empty string";
    a.check(&migrate(&to, "k 0 5000 KEYS k"), both);
    a.check(&migrate(&to, "'' 0 5000"), "+NOKEY");
    let in_script = "return redis.pcall('migrate', 'h', '1', 'k', '0', '9').err";
    let reply = a.call(&["EVAL", in_script, "0"]).to_string();
    assert!(reply.contains("not allowed from script"), "{reply}");
    a.check("COMMAND GETKEYS MIGRATE h 1 '' 0 9 COPY KEYS a b", "[\"a\", \"b\"]");
    a.check("COMMAND GETKEYS MIGRATE h 1 k 0 9 AUTH KEYS", "[\"k\"]");
    a.check("ACL SETUSER ann on nopass +@all ~a*", "+OK");
    let mut ann = from.connect();
    ann.check("AUTH ann x", "+OK");
    ann.check(&migrate(&to, "'' 0 5000 KEYS ab"), "+NOKEY");
    let reply = ann.ask(&migrate(&to, "'' 0 5000 KEYS ab k")).to_string();
    assert!(reply.starts_with("-NOPERM"), "{reply}");
    a.check("MULTI", "+OK");
    let reply = a.ask(&migrate(&to, "k 0 5000")).to_string();
    assert!(reply.contains("not allowed inside a transaction"), "{reply}");
}

/// Starts a target that confirms this many requests, and then reads on in silence.
fn target(confirmed: usize) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("bound").port();
    thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("a connection");
        let _ = stream.write_all(&b"+OK\r\n".repeat(confirmed));
        let _ = stream.read_to_end(&mut Vec::new());
    });
    port
}

#[test]
fn only_what_the_target_has_confirmed_is_removed() {
    let server = server();
    let mut c = server.connect();
    c.check("MSET a 1 b 2 c 3", "+OK");
    // Nobody listens there.
    let closed = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = closed.local_addr().expect("bound").port();
    drop(closed);
    let connecting = "-IOERR error or timeout connecting to the client";
    c.check(&format!("MIGRATE 127.0.0.1 {port} a 0 1000"), connecting);
    c.check("MIGRATE 127.0.0.1 none a 0 1000", connecting);
    // SELECT is confirmed, and no key.
    c.check(&format!("MIGRATE 127.0.0.1 {} a 0 50", target(1)), READING);
    c.check("MGET a b c", "[\"1\", \"2\", \"3\"]");
    c.check(&format!("MIGRATE 127.0.0.1 {} '' 0 50 KEYS a b c", target(2)), READING);
    c.check("MGET a b c", "[nil, \"2\", \"3\"]");
    // A line that never ends is no reply.
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("bound").port();
    thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("a connection");
        while stream.write_all(b"+").is_ok() {
            thread::yield_now();
        }
    });
    c.check(&format!("MIGRATE 127.0.0.1 {port} b 0 50"), READING);
    // Others are served while a key waits for a target.
    let mut other = server.connect();
    c.request(&["MIGRATE", "127.0.0.1", &target(0).to_string(), "b", "0", "500"]);
    (0..100).for_each(|n| other.check(&format!("SET other:{n} x"), "+OK"));
    c.expect(READING);
    other.check("GET b", "\"2\"");
    // It is not awaited once its client has gone.
    let mut leaver = server.connect();
    leaver.request(&["MIGRATE", "127.0.0.1", &target(1).to_string(), "b", "0", "1000000000"]);
    let calls = |c: &mut Connection| c.ask("CLIENT LIST").text().matches("cmd=migrate").count();
    wait_until("it has begun", || calls(&mut other) == 2);
    drop(leaver);
    other.check("GET b", "\"2\"");
}

#[test]
fn a_target_that_confirms_keys_slowly_does_not_keep_them_locked() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("bound").port();
    thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("a connection");
        stream.set_read_timeout(Some(Duration::from_millis(20))).expect("a socket");
        let mut buffer = [0; 4096];
        // One reply after each time without a request, far within the timeout of a reply.
        loop {
            match stream.read(&mut buffer) {
                Ok(0) => break,
                Ok(_) => {}
                Err(_) if stream.write_all(b"+OK\r\n").is_err() => break,
                Err(_) => {}
            }
        }
    });
    let server = server();
    let mut c = server.connect();
    let keys: Vec<_> = (0..100).map(|n| format!("k{n}")).collect();
    keys.iter().for_each(|key| c.check(&format!("SET {key} v"), "+OK"));
    c.check(&format!("MIGRATE 127.0.0.1 {port} '' 0 500 KEYS {}", keys.join(" ")), READING);
    // SELECT takes one, and 500 ms have time for 25.
    let left = c.ask("DBSIZE").int();
    assert!(left >= 75, "{left}");
}

#[test]
fn a_moved_key_is_gone_after_a_restart() {
    let dir = TempDir::new();
    let launch = launch().with("appendonly", "yes").with("dir", &dir.path().display().to_string());
    let (from, to) = (launch.start(), server());
    let mut a = from.connect();
    a.check("MSET a 1 b 2", "+OK");
    a.check(&migrate(&to, "a 0 5000"), "+OK");
    drop(from);
    let from = launch.start();
    from.connect().check("MGET a b", "[nil, \"2\"]");
}
