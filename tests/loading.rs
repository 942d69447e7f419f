//! A server that is loading its data reports that, and shows no key before all are loaded.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};

use tierce_harness::{
    Connection, Launch, PATIENCE, Reply, Server, TempDir, encode, free_port, wait_until, words,
};

use crate::launch;
use crate::pedrokv::{GET, PUT, request};

const REFUSED: &str = "-LOADING Redis is loading the dataset in memory";

/// Delay after each loaded key, longer than any test.
const HELD: &str = "2000000000";

/// Source of the loaded data.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum From {
    Log,
    Snapshot,
}

/// A data directory with some keys, for a server that does not load more than the first.
struct Held {
    dir: TempDir,
    from: From,
}

impl Held {
    fn new(from: From) -> Self {
        let held = Self { dir: TempDir::new(), from };
        let mut server = held.launch().start();
        let mut c = server.connect();
        c.check("SET k v", "+OK");
        c.check("RPUSH l a b c", ":3");
        c.check("SET soon gone PXAT 1900000000000", "+OK");
        if from == From::Snapshot {
            c.check("SAVE", "+OK");
        }
        c.request(&["SHUTDOWN", "NOSAVE"]);
        assert_eq!(server.wait_for_end().code(), Some(0));
        held
    }

    fn launch(&self) -> Launch {
        let appendonly = if self.from == From::Log { "yes" } else { "no" };
        let dir = self.dir.path().display().to_string();
        launch().with("dir", &dir).with("appendonly", appendonly)
    }

    /// Makes a launch of a server that loads until `let_go`.
    fn held(&self) -> Launch {
        self.launch().with("key-load-delay", HELD)
    }
}

/// Lets the load continue, and waits for its end.
fn let_go(c: &mut Connection) {
    c.check("CONFIG SET key-load-delay 0", "+OK");
    wait_until("the data are loaded", || c.ask("GET k").to_string() == r#""v""#);
}

fn field(c: &mut Connection, section: &str, name: &str) -> Option<String> {
    let info = c.ask(&format!("INFO {section}"));
    let mut lines = info.text().lines();
    let of = |line: &str| Some(line.strip_prefix(name)?.strip_prefix(':')?.to_owned());
    lines.find_map(of)
}

#[test]
fn what_needs_no_data_is_answered_and_the_rest_is_refused() {
    for from in [From::Log, From::Snapshot] {
        let held = Held::new(from);
        let server = held.held().start_loading();
        let mut c = server.connect();
        c.check("PING", "+PONG");
        c.check("CLIENT SETNAME me", "+OK");
        c.check("SELECT 1", "+OK");
        c.check("SELECT 0", "+OK");
        c.check("ECHO hello", r#""hello""#);
        c.check("ROLE", r#"["master", :0, []]"#);
        c.check("CONFIG GET key-load-delay", &format!(r#"["key-load-delay", "{HELD}"]"#));
        c.check("CONFIG SET requirepass secret", "+OK");
        c.check("AUTH secret", "+OK");
        assert!(c.ask("CLIENT LIST").text().contains("name=me"));
        c.check("SLOWLOG LEN", ":0");
        c.check("CLIENT TRACKING ON", "+OK");
        c.check("CLIENT TRACKING OFF", "+OK");
        for line in [
            "GET k",
            "SET k w",
            "MGET k l",
            "DEL k",
            "KEYS *",
            "SCAN 0",
            "DBSIZE",
            "RANDOMKEY",
            "FLUSHALL",
            "SWAPDB 0 1",
            "BLPOP l 0",
            "XREAD BLOCK 0 STREAMS x $",
            "WAIT 0 0",
            "EVAL 'return 1' 0",
            "FUNCTION LIST",
            "SCRIPT LOAD 'return 1'",
            "SAVE",
            "BGSAVE",
            "BGREWRITEAOF",
            "DEBUG SET-ACTIVE-EXPIRE 0",
            "DEBUG RELOAD",
            "MEMORY USAGE k",
            "OBJECT ENCODING k",
            "REPLICAOF 127.0.0.1 1",
            "PSYNC ? -1",
            "WATCH k",
            "CLIENT TRACKING ON BCAST",
        ] {
            c.check(line, REFUSED);
        }
        c.check("MULTI", "+OK");
        c.check("PING", "+QUEUED");
        c.check("GET k", REFUSED);
        assert!(c.ask("EXEC").to_string().starts_with("-EXECABORT"));
        c.check("MULTI", "+OK");
        c.check("PING", "+QUEUED");
        c.check("EXEC", "[+PONG]");
        // A batch: all of its commands are executed, or none.
        c.send([encode(&["GET", "k"]), encode(&["PING"]), encode(&["GET", "k"])].concat());
        [REFUSED, "+PONG", REFUSED].iter().for_each(|expected| c.expect(expected));
        let_go(&mut c);
        c.check("LRANGE l 0 -1", r#"["a", "b", "c"]"#);
        c.check("DBSIZE", ":3");
        c.check("PEXPIRETIME soon", ":1900000000000");
        c.check("CLIENT TRACKING ON BCAST", "+OK");
        c.check("SET k w", "+OK");
    }
}

#[test]
fn figures_of_a_load() {
    for from in [From::Log, From::Snapshot] {
        let held = Held::new(from);
        let before = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        let server = held.held().start_loading();
        let mut c = server.connect();
        let number = |c: &mut Connection, name| -> f64 {
            let value = field(c, "persistence", name).unwrap_or_else(|| panic!("no {name}"));
            value.parse().unwrap_or_else(|_| panic!("{name}:{value}"))
        };
        wait_until("the first key is loaded", || number(&mut c, "loading_loaded_bytes") > 0.0);
        assert_eq!(field(&mut c, "persistence", "loading").as_deref(), Some("1"));
        let (total, loaded) =
            (number(&mut c, "loading_total_bytes"), number(&mut c, "loading_loaded_bytes"));
        assert!(loaded < total, "{from:?}: {loaded} of {total}");
        let percent = number(&mut c, "loading_loaded_perc");
        assert!((percent - loaded * 100.0 / total).abs() < 0.01, "{percent} of {loaded}/{total}");
        assert!(number(&mut c, "loading_start_time") >= before.unwrap().as_secs() as f64);
        assert!(number(&mut c, "loading_eta_seconds") >= 0.0);
        let_go(&mut c);
        assert_eq!(field(&mut c, "persistence", "loading").as_deref(), Some("0"));
        assert_eq!(field(&mut c, "persistence", "loading_start_time"), None);
    }
}

#[test]
fn other_protocols_say_that_data_load() {
    let held = Held::new(From::Log);
    let (memcached, pedrokv, http) = (free_port(), free_port(), free_port());
    let server = held
        .held()
        .with("memcached-port", &memcached.to_string())
        .with("pedrokv-port", &pedrokv.to_string())
        .with("http-port", &http.to_string())
        .start_loading();
    let talk = |port: u16, bytes: &[u8], expected: &[u8]| {
        let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).expect("a connection");
        stream.set_read_timeout(Some(PATIENCE)).expect("a socket option");
        stream.write_all(bytes).expect("sent");
        let mut answer = Vec::new();
        while !answer.ends_with(expected) {
            let mut piece = [0; 1024];
            let len = stream.read(&mut piece).expect("an answer");
            assert!(len > 0, "{}", answer.escape_ascii());
            answer.extend_from_slice(&piece[..len]);
        }
        answer
    };
    let refused = b"SERVER_ERROR the server is loading the dataset\r\n";
    for line in
        ["get k", "gets k l", "set k 0 0 1\r\nw", "delete k", "incr k 1", "mg k v", "flush_all"]
    {
        let answer = talk(memcached, format!("{line}\r\n").as_bytes(), refused);
        assert_eq!(answer.escape_ascii().to_string(), refused.escape_ascii().to_string(), "{line}");
    }
    talk(memcached, b"version\r\n", b"\r\n");
    for frame in [request(GET, 1, b"k", b""), request(PUT, 2, b"k", b"w")] {
        talk(pedrokv, &frame, b"err: the server is loading the dataset");
    }
    let ready = b"GET /readyz HTTP/1.1\r\nHost: localhost\r\n\r\n";
    assert!(talk(http, ready, b"loading\n").starts_with(b"HTTP/1.1 503 "));
    let_go(&mut server.connect());
    assert!(talk(http, ready, b"\r\n\r\nready\n").starts_with(b"HTTP/1.1 200 "));
    talk(memcached, b"get k\r\n", b"VALUE k 0 1\r\nv\r\nEND\r\n");
    assert!(talk(pedrokv, &request(GET, 1, b"k", b""), b"v").len() > 1);
}

#[test]
fn shutdown_ends_a_load_and_saves_nothing() {
    for (from, line) in [
        (From::Log, "SHUTDOWN"),
        (From::Snapshot, "SHUTDOWN SAVE"),
        (From::Snapshot, "SHUTDOWN NOW FORCE"),
    ] {
        let held = Held::new(from);
        let mut server = held.held().start_loading();
        let (mut c, mut other) = (server.connect(), server.connect());
        other.check("PING", "+PONG");
        c.send(encode(&words(line)));
        c.expect_closed();
        other.expect_closed();
        assert_eq!(server.wait_for_end().code(), Some(0), "{line}: {}", server.errors());
        assert!(!server.output().contains("Ready to accept connections"));
        held.launch().start().connect().check("DBSIZE", ":3");
    }
}

#[test]
fn a_load_that_fails_ends_the_process_with_its_reason() {
    let held = Held::new(From::Snapshot);
    let file = held.dir.path().join("dump.rdb");
    let mut bytes = std::fs::read(&file).expect("a snapshot");
    let end = bytes.len() - 1;
    bytes[end] ^= 1;
    std::fs::write(&file, bytes).expect("written");
    let mut server = held.held().start_loading();
    let mut c = server.connect();
    c.check("GET k", REFUSED);
    c.request(&["CONFIG", "SET", "key-load-delay", "0"]);
    assert_eq!(server.wait_for_end().code(), Some(1));
    assert!(server.errors().contains("checksum"), "{}", server.errors());
    assert!(!server.output().contains("Ready to accept connections"));
}

#[test]
fn settings_that_the_load_goes_by_stay_and_others_count_behind_it() {
    let held = Held::new(From::Log);
    let server = held.held().start_loading();
    let mut c = server.connect();
    // The log is already on, and stays so when it is loaded.
    c.check("CONFIG SET appendonly yes", "+OK");
    for line in ["CONFIG SET appendonly no", "CONFIG SET maxmemory-policy allkeys-lru"] {
        let refused = c.ask(line).to_string();
        assert!(refused.contains("the data are being loaded"), "{refused}");
    }
    c.check("CONFIG GET appendonly", r#"["appendonly", "yes"]"#);
    c.check("CONFIG SET maxmemory 1", "+OK");
    c.check("CONFIG SET notify-keyspace-events KEA", "+OK");
    let mut listener = server.connect();
    listener.check("PSUBSCRIBE __key*__:*", r#"["psubscribe", "__key*__:*", :1]"#);
    let_go(&mut c);
    c.check("SET k w", "-OOM command not allowed when used memory > 'maxmemory'.");
    c.check("CONFIG SET maxmemory 0", "+OK");
    c.check("SET other w", "+OK");
    // There are no events for loaded keys.
    listener.expect(r#"["pmessage", "__key*__:*", "__keyspace@0__:other", "set"]"#);
    c.check("CONFIG SET maxmemory-policy allkeys-lru", "+OK");
}

#[test]
fn messages_go_on_meanwhile() {
    let held = Held::new(From::Log);
    let server = held.held().start_loading();
    let (mut c, mut listener) = (server.connect(), server.connect());
    listener.check("SUBSCRIBE news", r#"["subscribe", "news", :1]"#);
    c.check("PUBLISH news some", ":1");
    listener.expect(r#"["message", "news", "some"]"#);
    let_go(&mut c);
}

#[test]
fn a_replica_says_so_and_follows_when_its_data_are_there() {
    let held = Held::new(From::Log);
    let primary = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = primary.local_addr().expect("an address").port();
    let server = held.held().with("replicaof", &format!("127.0.0.1 {port}")).start_loading();
    let mut c = server.connect();
    let Reply::Array(role) = c.ask("ROLE") else { panic!("no array") };
    assert_eq!(role[0].to_string(), r#""slave""#);
    assert_eq!(field(&mut c, "replication", "role").as_deref(), Some("slave"));
    assert_eq!(field(&mut c, "replication", "master_link_status").as_deref(), Some("down"));
    c.check("GET k", REFUSED);
    c.check("SET k w", REFUSED);
    primary.set_nonblocking(true).expect("a socket option");
    assert!(primary.accept().is_err(), "it has no data to follow with");
    c.check("CONFIG SET key-load-delay 0", "+OK");
    wait_until("it connects", || primary.accept().is_ok());
    c.check("GET k", r#""v""#);
}

#[test]
fn many_clients_see_all_data_or_none() {
    let held = Held::new(From::Log);
    {
        let server = held.launch().start();
        let mut c = server.connect();
        let keys: Vec<String> = (0..2000).map(|n| format!("key:{n}")).collect();
        for key in &keys {
            c.send(encode(&["SET", key, "v"]));
        }
        keys.iter().for_each(|_| c.expect("+OK"));
        c.request(&["SHUTDOWN"]);
        c.expect_closed();
    }
    let server: Server = held.held().start_loading();
    let see = |mut c: Connection| {
        let mut seen = String::new();
        wait_until("the data are loaded", || {
            seen = c.ask("DBSIZE").to_string();
            seen != REFUSED
        });
        assert_eq!(seen, ":2003");
        c.check("GET key:1999", r#""v""#);
    };
    std::thread::scope(|scope| {
        for _ in 0..4 {
            let c = server.connect();
            scope.spawn(|| see(c));
        }
        server.connect().check("CONFIG SET key-load-delay 0", "+OK");
    });
}
