//! Client-side caching: clients get invalidations when keys change that they have read.
//!
//! The expected replies are those of redis-server 7.0.15, except where a test says otherwise.

use tierce_harness::{Both, Connection, Random, Reply, Server, encode, wait_until};

use crate::pedrokv::{DELETE, PUT, request};
use crate::{launch, server};

/// Number of workers; each has clients.
const WORKERS: usize = 4;

fn workers() -> Server {
    launch().with("threads", &WORKERS.to_string()).start()
}

/// Opens a RESP3 connection that tracks keys.
pub(crate) fn tracker(server: &Server, options: &str) -> Connection {
    let mut c = server.connect_resp3();
    c.check(&format!("CLIENT TRACKING ON {options}"), "+OK");
    c
}

pub(crate) fn id_of(c: &mut Connection) -> i64 {
    c.ask("CLIENT ID").int()
}

/// Returns the messages to a connection, after others were told.
pub(crate) fn told(c: &mut Connection) -> Vec<String> {
    c.request(&["PING", "mark"]);
    let next = || Some(c.reply()).filter(|reply| *reply != Reply::Bulk(b"mark".to_vec()));
    std::iter::from_fn(next).map(|reply| reply.to_string()).collect()
}

pub(crate) fn invalidate(key: &str) -> String {
    format!(r#">["invalidate", ["{key}"]]"#)
}

pub(crate) const INVALIDATE_ALL: &str = r#">["invalidate", null]"#;

/// Returns a field of INFO.
fn info(c: &mut Connection, name: &str) -> u64 {
    let info = c.ask("INFO clients stats memory").text().to_owned();
    let field = info.lines().find_map(|line| line.strip_prefix(&format!("{name}:")));
    field.unwrap_or_else(|| panic!("no {name}")).parse().expect("a number")
}

/// Returns a field of CLIENT INFO.
fn shown(c: &mut Connection, name: &str) -> String {
    let info = c.ask("CLIENT INFO").text().trim_end().to_owned();
    let field = info.split(' ').find_map(|word| word.strip_prefix(&format!("{name}=")));
    field.unwrap_or_else(|| panic!("no {name}")).to_owned()
}

/// Reads keys that do not exist, each with a name of 32 bytes.
fn read_absent(c: &mut Connection, count: usize) {
    for numbers in (0..count).collect::<Vec<_>>().chunks(1000) {
        let gets = numbers.iter().map(|number| encode(&["GET", &format!("absent:{number:025}")]));
        c.send(gets.collect::<Vec<_>>().concat());
        numbers.iter().for_each(|_| c.expect("null"));
    }
}

#[test]
fn what_is_known_of_cached_keys_is_counted_as_memory() {
    const KEYS: usize = 20_000;
    let server = workers();
    let mut c = tracker(&server, "");
    let mut observer = server.connect();
    assert_eq!(info(&mut observer, "mem_tracking_keys"), 0);
    let before = info(&mut observer, "used_memory");
    read_absent(&mut c, KEYS);
    let known = info(&mut observer, "mem_tracking_keys");
    let each = known as f64 / KEYS as f64;
    // Name, id of the client, header, and a slot in the table.
    assert!((48.0..128.0).contains(&each), "{each} bytes");
    assert!(info(&mut observer, "used_memory") >= before + known);
    let stats = observer.ask("MEMORY STATS");
    assert_eq!(stats.field("tracking.keys").int() as u64, known);
    observer.check("FLUSHALL", "+OK");
    assert_eq!(info(&mut observer, "mem_tracking_keys"), 0);
}

/// As in Redis, although only existing keys can be evicted.
#[test]
fn what_is_known_of_cached_keys_counts_against_the_limit() {
    let server = launch()
        .with("maxmemory", "4mb")
        .with("maxmemory-policy", "allkeys-lru")
        // A command evicts until there is room, even if it rarely gets CPU time.
        .with("maxmemory-eviction-tenacity", "100")
        .with("shards", "16")
        .start();
    let mut observer = server.connect();
    let value = "x".repeat(10_000);
    for number in 0..200 {
        assert_eq!(observer.call(&["SET", &format!("key:{number}"), &value]).to_string(), "+OK");
    }
    assert_eq!(info(&mut observer, "evicted_keys"), 0);
    let mut c = tracker(&server, "");
    read_absent(&mut c, 40_000);
    observer.check("SET one more", "+OK");
    assert!(info(&mut observer, "evicted_keys") > 0);
    let counted =
        info(&mut observer, "used_memory") - info(&mut observer, "mem_not_counted_for_evict");
    // INFO's own memory is counted, and nothing is evicted for that.
    assert!(counted <= (4 << 20) + (64 << 10), "{counted} bytes");
}

#[test]
fn prefixes_are_counted_as_memory() {
    let server = workers();
    let mut c = tracker(&server, "BCAST PREFIX short:");
    let mut observer = server.connect();
    let names = info(&mut observer, "mem_clients_messages");
    let client: usize = shown(&mut c, "tot-mem").parse().expect("a number");
    let long: Vec<String> = (0..10).map(|n| format!("{n}{}", "y".repeat(60_000))).collect();
    let mut command = vec!["CLIENT", "TRACKING", "ON", "BCAST"];
    long.iter().for_each(|prefix| command.extend(["PREFIX", prefix]));
    assert_eq!(c.call(&command).to_string(), "+OK");
    let grown = info(&mut observer, "mem_clients_messages") - names;
    assert_eq!(grown, 600_010);
    assert!(shown(&mut c, "tot-mem").parse::<usize>().expect("a number") >= client + 10 * 100);
    c.check("CLIENT TRACKING OFF", "+OK");
    assert_eq!(info(&mut observer, "mem_clients_messages"), 0);
}

#[test]
fn changes_of_groups_are_told() {
    let server = server();
    let mut c = tracker(&server, "");
    let mut all = tracker(&server, "BCAST");
    let mut other = server.connect();
    for command in ["XADD s 1-1 f v", "XADD s 2-1 f v", "XGROUP CREATE s g 0"] {
        other.ask(command);
    }
    told(&mut all);
    for (command, is_told) in [
        ("XGROUP CREATE s another 0", true),
        ("XGROUP CREATECONSUMER s g a", true),
        ("XGROUP CREATECONSUMER s g a", false),
        ("XREADGROUP GROUP g a COUNT 2 STREAMS s >", true),
        ("XREADGROUP GROUP g a COUNT 2 STREAMS s >", false),
        ("XACK s g 1-1", true),
        ("XACK s g 1-1", false),
        ("XCLAIM s g b 0 2-1", true),
        ("XAUTOCLAIM s g a 0 0", true),
        ("XGROUP SETID s g 0", true),
        ("XGROUP DELCONSUMER s g a", true),
        ("XGROUP DESTROY s another", true),
        ("XSETID s 5-0", true),
    ] {
        c.ask("XRANGE s - +");
        other.ask(command);
        let expected = if is_told { vec![invalidate("s")] } else { vec![] };
        assert_eq!((told(&mut c), told(&mut all)), (expected.clone(), expected), "{command}");
    }
}

#[test]
fn a_key_that_was_read_is_told_of_once() {
    let server = workers();
    let mut c = tracker(&server, "");
    let mut other = server.connect();
    c.check("GET k", "null");
    other.check("SET k 1", "+OK");
    assert_eq!(told(&mut c), [invalidate("k")]);
    other.check("SET k 2", "+OK");
    assert_eq!(told(&mut c), [""; 0]);
    c.check("MGET k other", r#"["2", null]"#);
    other.check("MSET k 3 other 4 third 5", "+OK");
    let mut keys = told(&mut c);
    keys.sort();
    assert_eq!(keys, [invalidate("k"), invalidate("other")]);
}

#[test]
fn reads_are_remembered_and_writes_are_not() {
    let server = workers();
    for (before, read, is_remembered) in [
        ("SET k v", "GET k", true),
        ("SET k v", "STRLEN k", true),
        ("SET k v", "EXISTS a k b", true),
        ("SET k v", "TTL k", true),
        ("SET k v", "TYPE k", true),
        ("SET k v", "OBJECT ENCODING k", true),
        ("SET k v", "TOUCH k", true),
        ("HSET k f v", "HGETALL k", true),
        ("SADD k a", "SINTERCARD 2 k other", true),
        ("SADD k a", "SUNIONCARD 2 other k", true),
        ("ZADD k 1 a", "ZDIFF 2 other k", true),
        ("RPUSH k 1", "SORT_RO k", true),
        ("RPUSH k 1", "GET k", true),
        ("SET k v", "GETEX k", false),
        ("SET k v", "APPEND k ''", false),
        ("SET k v", "KEYS *", false),
        ("SET k v", "SCAN 0", false),
        ("SET k v", "RANDOMKEY", false),
        ("XADD k 1-1 f v", "XREAD STREAMS k 0", true),
        ("SET k v", "COPY k other", false),
    ] {
        let (mut c, mut writer) = (tracker(&server, ""), server.connect());
        writer.check("FLUSHALL", "+OK");
        told(&mut c);
        writer.ask(before);
        c.ask(read);
        let before = told(&mut c);
        assert_eq!(before, [""; 0], "{read}");
        writer.ask("DEL k");
        let expected: Vec<String> = is_remembered.then(|| invalidate("k")).into_iter().collect();
        assert_eq!(told(&mut c), expected, "{read}");
    }
}

#[test]
fn own_changes_are_told_behind_the_reply_unless_with_noloop() {
    let server = workers();
    let mut c = tracker(&server, "");
    c.check("GET k", "null");
    c.check("SET k 1", "+OK");
    c.expect(&invalidate("k"));
    c.check("CLIENT TRACKING ON NOLOOP", "+OK");
    c.check("GET k", r#""1""#);
    c.check("SET k 2", "+OK");
    assert_eq!(told(&mut c), [""; 0]);
    // The key is not tracked any more, as in Redis.
    server.connect().check("SET k 3", "+OK");
    assert_eq!(told(&mut c), [""; 0]);
    c.check("GET k", r#""3""#);
    server.connect().check("SET k 4", "+OK");
    assert_eq!(told(&mut c), [invalidate("k")]);
}

#[test]
fn a_pipeline_gets_invalidations_between_its_replies() {
    let server = server();
    let mut c = tracker(&server, "");
    for line in ["GET k", "SET k 1", "GET k", "GET j", "SET k 2"] {
        c.send(encode(&line.split(' ').collect::<Vec<_>>()));
    }
    let expected = ["null", "+OK", &invalidate("k"), r#""1""#, "null", "+OK", &invalidate("k")];
    expected.iter().for_each(|reply| c.expect(reply));
}

#[test]
fn optin_and_optout_follow_client_caching() {
    let server = workers();
    let mut writer = server.connect();
    let mut check = |c: &mut Connection, lines: &[&str], is_told: bool| {
        lines.iter().for_each(|line| _ = c.ask(line));
        writer.check("SET k v", "+OK");
        let expected: Vec<String> = is_told.then(|| invalidate("k")).into_iter().collect();
        assert_eq!(told(c), expected, "{lines:?}");
    };
    let mut c = tracker(&server, "OPTIN");
    check(&mut c, &["GET k"], false);
    check(&mut c, &["CLIENT CACHING YES", "GET k"], true);
    check(&mut c, &["CLIENT CACHING YES", "PING", "GET k"], false);
    check(&mut c, &["CLIENT CACHING YES", "CLIENT ID", "GET k"], true);
    check(&mut c, &["CLIENT CACHING YES", "NOSUCH", "GET k"], false);
    check(&mut c, &["CLIENT CACHING YES", "MULTI", "GET a", "GET k", "EXEC"], true);
    check(&mut c, &["CLIENT CACHING YES", "MULTI", "GET a", "EXEC", "GET k"], false);
    check(&mut c, &["MULTI", "CLIENT CACHING YES", "GET k", "EXEC"], true);
    let mut c = tracker(&server, "OPTOUT");
    check(&mut c, &["GET k"], true);
    check(&mut c, &["CLIENT CACHING NO", "GET k"], false);
    check(&mut c, &["CLIENT CACHING NO", "GET a", "GET k"], true);
}

#[test]
fn with_bcast_every_key_with_a_prefix_is_told() {
    let server = workers();
    let mut writer = server.connect();
    let mut all = tracker(&server, "BCAST");
    let mut some = tracker(&server, "BCAST PREFIX user: PREFIX order:");
    some.check("CLIENT TRACKING ON BCAST PREFIX item:", "+OK");
    assert_eq!(info(&mut writer, "tracking_total_prefixes"), 4);
    for (line, key, has_prefix) in [
        ("SET user:1 a", "user:1", true),
        ("SET user:1 b", "user:1", true),
        ("RPUSH order: x", "order:", true),
        ("SET item:3 a", "item:3", true),
        ("SET users a", "users", false),
        ("DEL user:1", "user:1", true),
    ] {
        writer.ask(line);
        assert_eq!(told(&mut all), [invalidate(key)], "{line}");
        let expected: Vec<String> = has_prefix.then(|| invalidate(key)).into_iter().collect();
        assert_eq!(told(&mut some), expected, "{line}");
    }
    writer.check("DEL none", ":0");
    assert_eq!(told(&mut all), [""; 0]);
    writer.check("MSET user:1 a user:2 b", "+OK");
    assert_eq!(told(&mut some).concat().matches("user:").count(), 2);
    drop((all, some));
    wait_until("prefixes are gone", || info(&mut writer, "tracking_total_prefixes") == 0);
}

#[test]
fn with_bcast_and_noloop_own_changes_are_not_told() {
    let server = workers();
    let mut c = tracker(&server, "BCAST NOLOOP");
    let mut other = tracker(&server, "BCAST");
    c.check("SET mine 1", "+OK");
    assert_eq!(told(&mut c), [""; 0]);
    assert_eq!(told(&mut other), [invalidate("mine")]);
    other.check("SET theirs 1", "+OK");
    other.expect(&invalidate("theirs"));
    assert_eq!(told(&mut c), [invalidate("theirs")]);
}

/// Its own change in the same pipeline and in the same transaction, when the shard is already locked.
#[test]
fn bcast_holds_from_the_next_command_on() {
    let server = server();
    let mut c = server.connect_resp3();
    for line in ["SET k 1", "CLIENT TRACKING ON BCAST", "SET k 2"] {
        c.send(encode(&line.split(' ').collect::<Vec<_>>()));
    }
    ["+OK", "+OK", "+OK", &invalidate("k")].iter().for_each(|reply| c.expect(reply));
    let mut c = server.connect_resp3();
    c.check("MULTI", "+OK");
    for line in ["SET k 3", "CLIENT TRACKING ON BCAST", "SET k 4"] {
        c.check(line, "+QUEUED");
    }
    c.check("EXEC", "[+OK, +OK, +OK]");
    assert_eq!(told(&mut c), [invalidate("k")]);
}

#[test]
fn in_resp2_a_redirect_gets_messages() {
    let server = workers();
    let (mut listener, mut c, mut writer) = (server.connect(), server.connect(), server.connect());
    let id = id_of(&mut listener);
    listener
        .check("SUBSCRIBE __redis__:invalidate", r#"["subscribe", "__redis__:invalidate", :1]"#);
    c.check(&format!("CLIENT TRACKING ON REDIRECT {id}"), "+OK");
    c.check("CLIENT GETREDIR", &format!(":{id}"));
    assert_eq!((shown(&mut c, "redir"), shown(&mut c, "flags")), (id.to_string(), "t".to_owned()));
    c.check("GET k", "nil");
    writer.check("SET k 1", "+OK");
    listener.expect(r#"["message", "__redis__:invalidate", ["k"]]"#);
    c.check("GET k", r#""1""#);
    writer.check("FLUSHALL", "+OK");
    listener.expect(r#"["message", "__redis__:invalidate", nil]"#);
    c.check("PING", "+PONG");
}

#[test]
fn in_resp3_a_redirect_gets_pushes_until_it_ends() {
    let server = workers();
    let (mut listener, mut c, mut writer) =
        (server.connect_resp3(), server.connect_resp3(), server.connect());
    let id = id_of(&mut listener);
    c.check(&format!("CLIENT TRACKING ON REDIRECT {id}"), "+OK");
    c.check("GET k", "null");
    writer.check("SET k 1", "+OK");
    listener.expect(&invalidate("k"));
    // It is not one of the clients that track keys.
    listener.check("CLIENT GETREDIR", ":-1");
    c.check(&format!("CLIENT TRACKING ON BCAST REDIRECT {id}"), "-ERR You can't switch BCAST mode on/off before disabling tracking for this client, and then re-enabling it with a different mode.");
    c.check("CLIENT TRACKING OFF", "+OK");
    c.check(&format!("CLIENT TRACKING ON BCAST REDIRECT {id}"), "+OK");
    writer.check("SET j 1", "+OK");
    listener.expect(&invalidate("j"));
    assert_eq!(told(&mut c), [""; 0]);
    drop(listener);
    wait_until("the listener is gone", || {
        let list = writer.ask(&format!("CLIENT LIST ID {id}"));
        list.text().is_empty()
    });
    writer.check("SET j 2", "+OK");
    assert_eq!(told(&mut c), [format!(r#">["tracking-redir-broken", :{id}]"#)]);
    let info = c.ask("CLIENT TRACKINGINFO").to_string();
    assert!(info.contains("broken_redirect") && info.contains(&format!(":{id}")), "{info}");
    assert_eq!(shown(&mut c, "flags"), "tRB");
    c.check("CLIENT TRACKING ON BCAST PREFIX x", "-ERR Prefix 'x' overlaps with an existing prefix ''. Prefixes for a single client must not overlap.");
    c.check("RESET", "+RESET");
    assert_eq!((shown(&mut c, "redir"), shown(&mut c, "flags")), ("-1".to_owned(), "N".to_owned()));
}

/// Redis sends nothing at SWAPDB.
#[test]
fn flushes_and_swaps_invalidate_everything() {
    let server = workers();
    let mut writer = server.connect();
    for line in ["FLUSHALL", "FLUSHDB", "FLUSHALL ASYNC", "SWAPDB 0 1"] {
        let (mut c, mut all) = (tracker(&server, ""), tracker(&server, "BCAST PREFIX a"));
        let mut own = tracker(&server, "NOLOOP");
        c.ask("GET k");
        assert!(info(&mut writer, "tracking_total_keys") > 0);
        writer.check(line, "+OK");
        assert_eq!(
            (told(&mut c), told(&mut all)),
            (vec![INVALIDATE_ALL.to_owned()], vec![INVALIDATE_ALL.to_owned()]),
            "{line}"
        );
        assert_eq!(info(&mut writer, "tracking_total_keys"), 0);
        told(&mut own);
        own.check(line, "+OK");
        own.expect(INVALIDATE_ALL);
    }
}

#[test]
fn expiry_is_told_whoever_finds_it() {
    let server = workers();
    let mut writer = server.connect();
    let mut c = tracker(&server, "NOLOOP");
    let mut all = tracker(&server, "BCAST NOLOOP");
    // It reads its own write at the same moment, so that the key has not expired before.
    let at_once = |c: &mut Connection, write: &str, read: &str, replies: &str| {
        c.check("MULTI", "+OK");
        c.check(write, "+QUEUED");
        c.check(read, "+QUEUED");
        c.check("EXEC", replies);
    };
    at_once(&mut c, "SET k v PX 30", "GET k", r#"[+OK, "v"]"#);
    all.expect(&invalidate("k"));
    c.expect(&invalidate("k"));
    all.expect(&invalidate("k"));
    writer.check("HSET h f 1 g 2", ":2");
    all.expect(&invalidate("h"));
    let replies = r#"[[:1], {"f": "1", "g": "2"}]"#;
    at_once(&mut c, "HPEXPIRE h 40 FIELDS 1 f", "HGETALL h", replies);
    all.expect(&invalidate("h"));
    // The hash stays.
    c.expect(&invalidate("h"));
    all.expect(&invalidate("h"));
    writer.check("HLEN h", ":1");
    writer.ask("HPEXPIRE h 10 FIELDS 1 g");
    all.expect(&invalidate("h"));
    all.expect(&invalidate("h"));
    writer.check("EXISTS h", ":0");
}

#[test]
fn a_key_that_had_expired_is_remembered_when_it_is_read() {
    let server = launch().with("enable-debug-command", "yes").start();
    let (mut c, mut writer) = (tracker(&server, ""), server.connect());
    writer.check("DEBUG SET-ACTIVE-EXPIRE 0", "+OK");
    writer.check("SET k v PX 1", "+OK");
    wait_until("it expires", || writer.ask("PTTL k").int() < 0);
    c.check("GET k", "null");
    assert_eq!(told(&mut c), [""; 0]);
    writer.check("SET k w", "+OK");
    assert_eq!(told(&mut c), [invalidate("k")]);
}

#[test]
fn eviction_is_told() {
    let server = launch().with("maxmemory-policy", "allkeys-lru").start();
    let (mut c, mut writer) = (tracker(&server, ""), server.connect());
    for key in 0..100 {
        writer.request(&["SET", &format!("k{key}"), &"x".repeat(10_000)]);
        writer.expect("+OK");
        c.request(&["STRLEN", &format!("k{key}")]);
        c.expect(":10000");
    }
    writer.check("CONFIG SET maxmemory 1", "+OK");
    let mut keys: Vec<String> = (0..100).map(|_| c.reply().to_string()).collect();
    keys.sort();
    let mut expected: Vec<String> = (0..100).map(|key| invalidate(&format!("k{key}"))).collect();
    expected.sort();
    assert_eq!(keys, expected);
}

#[test]
fn what_a_command_evicts_is_told_before_its_reply() {
    let server = launch()
        .with("maxmemory-policy", "allkeys-lru")
        .with("maxmemory", "1mb")
        .with("maxmemory-eviction-tenacity", "100")
        .start();
    let mut c = tracker(&server, "");
    let (mut early, mut late) = (0, 0);
    for key in 0..300 {
        c.request(&["SET", &format!("k{key}"), &"x".repeat(10_000)]);
        while c.reply().to_string() != "+OK" {
            early += 1;
        }
        late += told(&mut c).len();
        c.request(&["STRLEN", &format!("k{key}")]);
        while c.reply().to_string() != ":10000" {
            late += 1;
        }
    }
    // Rarely another thread, which evicts in the background, is faster.
    assert!(early > 100 && late < 10, "{early} {late}");
}

#[test]
fn the_table_keeps_to_its_limit() {
    let server = launch().with("threads", "4").with("tracking-table-max-keys", "100").start();
    let (mut c, mut writer) = (tracker(&server, ""), server.connect());
    let mut forgotten = 0;
    for key in 0..300 {
        c.check(&format!("GET k{key}"), "null");
        forgotten += told(&mut c).len();
        assert!(info(&mut writer, "tracking_total_keys") <= 100);
    }
    assert_eq!(forgotten, 200);
    assert_eq!(info(&mut writer, "tracking_total_items"), 100);
    writer.check("CONFIG SET tracking-table-max-keys 10", "+OK");
    wait_until("some are forgotten", || info(&mut writer, "tracking_total_keys") == 10);
    assert_eq!(told(&mut c).len(), 90);
    for key in 0..300 {
        writer.check(&format!("SET k{key} v"), "+OK");
    }
    assert_eq!(told(&mut c).len(), 10);
    writer.check("CONFIG SET tracking-table-max-keys 0", "+OK");
    for key in 0..300 {
        c.ask(&format!("GET k{key}"));
    }
    assert_eq!(info(&mut writer, "tracking_total_keys"), 300);
    drop(c);
    wait_until("no keys are left", || info(&mut writer, "tracking_total_keys") == 0);
    assert_eq!(info(&mut writer, "tracking_clients"), 0);
}

#[test]
fn memory_does_not_grow_with_keys_that_are_read() {
    let server = launch().with("tracking-table-max-keys", "1000").start();
    let mut c = tracker(&server, "");
    let mut read = |from: usize| {
        for batch in 0..5 {
            let names: Vec<String> =
                (0..1000).map(|n| format!("{:0400}", from + batch * 1000 + n)).collect();
            let bytes: Vec<u8> = names.iter().flat_map(|name| encode(&["GET", name])).collect();
            c.send(bytes);
            let mut replies = 0;
            while replies < 1000 {
                replies += usize::from(!matches!(c.reply(), Reply::Push(_)));
            }
        }
    };
    read(0);
    let before = server.resident_bytes();
    for round in 1..4 {
        read(round * 5000);
    }
    let grown = server.resident_bytes().saturating_sub(before);
    assert!(grown < 4 << 20, "{grown} bytes for 15,000 keys with names of 400 bytes");
    assert_eq!(info(&mut server.connect(), "tracking_total_keys"), 1000);
}

#[test]
fn other_protocols_invalidate_too() {
    let both = Both::start(launch(), "memcached-port");
    let (mut c, mut all) = (tracker(&both.server, ""), tracker(&both.server, "BCAST"));
    c.check("MGET a b", "[null, null]");
    both.check(b"set a 0 0 1\r\nx\r\n", b"STORED\r\n");
    assert_eq!((told(&mut c), told(&mut all)), (vec![invalidate("a")], vec![invalidate("a")]));
    c.check("GET a", r#""x""#);
    both.check(b"delete a\r\n", b"DELETED\r\n");
    assert_eq!(told(&mut c), [invalidate("a")]);

    let both = Both::start(launch(), "pedrokv-port");
    let mut c = tracker(&both.server, "");
    c.check("MGET a b", "[null, null]");
    both.talk([&*[request(PUT, 1, b"a", b"x"), request(PUT, 2, b"b", b"y")].concat()]);
    let mut keys = told(&mut c);
    keys.sort();
    assert_eq!(keys, [invalidate("a"), invalidate("b")]);
    c.check("GET a", r#""x""#);
    both.talk([&*request(DELETE, 3, b"a", b"")]);
    assert_eq!(told(&mut c), [invalidate("a")]);
}

#[test]
fn a_transaction_is_told_behind_its_reply() {
    let server = workers();
    let (mut c, mut other) = (tracker(&server, ""), tracker(&server, ""));
    c.check("GET k", "null");
    other.check("GET k", "null");
    c.check("MULTI", "+OK");
    c.check("SET k 1", "+QUEUED");
    c.check("GET k", "+QUEUED");
    c.check("GET j", "+QUEUED");
    c.check("EXEC", r#"[+OK, "1", null]"#);
    c.expect(&invalidate("k"));
    assert_eq!(told(&mut other), [invalidate("k")]);
    // Values read after the change are still valid.
    assert_eq!(told(&mut c), [""; 0]);
    other.check("MSET k 2 j 2", "+OK");
    let mut keys = told(&mut c);
    keys.sort();
    assert_eq!(keys, [invalidate("j"), invalidate("k")]);
}

#[test]
fn tracking_changes_within_a_transaction() {
    let server = workers();
    let (mut c, mut writer) = (server.connect_resp3(), server.connect());
    c.check("MULTI", "+OK");
    for line in ["GET a", "CLIENT TRACKING ON", "GET k", "CLIENT TRACKINGINFO"] {
        c.check(line, "+QUEUED");
    }
    let reply = c.ask("EXEC").to_string();
    assert!(reply.contains(r#"["on"]"#) || reply.contains(r#"~["on"]"#), "{reply}");
    writer.check("MSET a 1 k 1", "+OK");
    assert_eq!(told(&mut c), [invalidate("k")]);
    c.check("GET k", r#""1""#);
    c.check("MULTI", "+OK");
    c.check("CLIENT TRACKING OFF", "+QUEUED");
    c.check("EXEC", "[+OK]");
    writer.check("SET k 2", "+OK");
    assert_eq!(told(&mut c), [""; 0]);
}

/// A script makes the transaction leave the worker, which keeps the subscriptions.
#[test]
fn a_transaction_that_runs_scripts_shows_tracking() {
    let server = workers();
    let (mut c, mut other) = (server.connect_resp3(), server.connect_resp3());
    let id = id_of(&mut other);
    let queued = ["CLIENT TRACKINGINFO", "CLIENT GETREDIR", "EVAL 'return 7' 0"];
    let show = |c: &mut Connection| {
        c.check("MULTI", "+OK");
        queued.iter().for_each(|line| c.check(line, "+QUEUED"));
        c.ask("EXEC").to_string()
    };
    let off = r#"{"flags": ~["off"], "redirect": :-1, "prefixes": []}"#;
    assert_eq!(show(&mut c), format!("[{off}, :-1, :7]"));
    c.check(&format!("CLIENT TRACKING ON BCAST PREFIX b PREFIX a REDIRECT {id}"), "+OK");
    let on = format!(r#"{{"flags": ~["on", "bcast"], "redirect": :{id}, "prefixes": ["a", "b"]}}"#);
    assert_eq!(show(&mut c), format!("[{on}, :{id}, :7]"));
    c.check("CLIENT TRACKINGINFO", &on);
}

#[test]
fn errors_are_those_of_redis() {
    let server = server();
    let mut c = server.connect_resp3();
    let id = id_of(&mut c);
    let redirect_twice = format!("CLIENT TRACKING ON REDIRECT {id} REDIRECT {id}");
    for (line, expected) in [
        ("CLIENT TRACKING", "ERR wrong number of arguments for 'client|tracking' command"),
        ("CLIENT TRACKING maybe", "ERR syntax error"),
        ("CLIENT TRACKING ON NOSUCH", "ERR syntax error"),
        ("CLIENT TRACKING ON REDIRECT", "ERR syntax error"),
        ("CLIENT TRACKING ON PREFIX", "ERR syntax error"),
        ("CLIENT TRACKING ON REDIRECT x", "ERR value is not an integer or out of range"),
        (
            "CLIENT TRACKING ON REDIRECT 99999",
            "ERR The client ID you want redirect to does not exist",
        ),
        ("CLIENT TRACKING ON REDIRECT -1", "ERR The client ID you want redirect to does not exist"),
        (&redirect_twice, "ERR A client can only redirect to a single other client"),
        ("CLIENT TRACKING ON PREFIX a", "ERR PREFIX option requires BCAST mode to be enabled"),
        ("CLIENT TRACKING ON BCAST OPTIN", "ERR OPTIN and OPTOUT are not compatible with BCAST"),
        (
            "CLIENT TRACKING ON OPTIN OPTOUT",
            "ERR You can't specify both OPTIN mode and OPTOUT mode",
        ),
        (
            "CLIENT TRACKING ON BCAST PREFIX ab PREFIX a",
            "ERR Prefix 'ab' overlaps with another provided prefix 'a'. Prefixes for a single client must not overlap.",
        ),
        (
            "CLIENT TRACKING ON BCAST PREFIX x PREFIX x",
            "ERR Prefix 'x' overlaps with another provided prefix 'x'. Prefixes for a single client must not overlap.",
        ),
        (
            "CLIENT CACHING YES",
            "ERR CLIENT CACHING can be called only when the client is in tracking mode with OPTIN or OPTOUT mode enabled",
        ),
        ("CLIENT CACHING", "ERR wrong number of arguments for 'client|caching' command"),
        ("CLIENT CACHING YES NO", "ERR wrong number of arguments for 'client|caching' command"),
    ] {
        c.check(line, &format!("-{expected}"));
        c.check("CLIENT GETREDIR", ":-1");
    }
    c.check("CLIENT TRACKING ON OPTIN", "+OK");
    c.check("CLIENT GETREDIR", ":0");
    c.check(
        "CLIENT CACHING NO",
        "-ERR CLIENT CACHING NO is only valid when tracking is enabled in OPTOUT mode.",
    );
    c.check("CLIENT CACHING maybe", "-ERR syntax error");
    c.check("CLIENT TRACKING ON OPTOUT", "-ERR You can't switch OPTIN/OPTOUT mode before disabling tracking for this client, and then re-enabling it with a different mode.");
    c.check("CLIENT CACHING YES", "+OK");
    c.check(
        "CLIENT TRACKINGINFO",
        r#"{"flags": ~["on", "optin", "caching-yes"], "redirect": :0, "prefixes": []}"#,
    );
    c.check("CLIENT TRACKING ON", "+OK");
    c.check(
        "CLIENT CACHING YES",
        "-ERR CLIENT CACHING YES is only valid when tracking is enabled in OPTIN mode.",
    );
    c.check("CLIENT TRACKING OFF", "+OK");
    c.check("CLIENT TRACKING ON BCAST PREFIX b PREFIX a NOLOOP", "+OK");
    c.check(
        "CLIENT TRACKINGINFO",
        r#"{"flags": ~["on", "bcast", "noloop"], "redirect": :0, "prefixes": ["a", "b"]}"#,
    );
    c.check("CLIENT TRACKING ON BCAST PREFIX abc", "-ERR Prefix 'abc' overlaps with an existing prefix 'a'. Prefixes for a single client must not overlap.");
    c.check("CLIENT TRACKING OFF", "+OK");
    c.check("CLIENT TRACKINGINFO", r#"{"flags": ~["off"], "redirect": :-1, "prefixes": []}"#);
}

/// For tracking, Redis does not distinguish databases. Here only changes in the read database are sent.
#[test]
fn databases_are_told_apart() {
    let server = workers();
    let (mut c, mut writer) = (tracker(&server, ""), server.connect());
    c.check("GET k", "null");
    writer.check("SELECT 1", "+OK");
    writer.check("SET k v", "+OK");
    assert_eq!(told(&mut c), [""; 0]);
    writer.check("MOVE k 0", ":1");
    assert_eq!(told(&mut c), [invalidate("k")]);
}

/// Caches never keep stale values: each client applies its messages in order of arrival.
#[test]
fn caches_are_right_while_many_change_keys() {
    const KEYS: usize = 30;
    const WRITES: u64 = 3000;
    let server = workers();
    let seed = 7;
    std::thread::scope(|scope| {
        for writer in 0..2 {
            let server = &server;
            scope.spawn(move || {
                let (mut c, mut random) = (server.connect(), Random::new(seed + writer));
                for value in 0..WRITES {
                    let key = random.below(KEYS);
                    match random.below(8) {
                        0 => c.ask(&format!("DEL k{key}")),
                        1 => c.ask(&format!(
                            "MSET k{key} {writer}-{value} k{} {value}",
                            (key + 1) % KEYS
                        )),
                        _ => c.ask(&format!("SET k{key} {writer}-{value}")),
                    };
                }
            });
        }
        for reader in 0..3 {
            let server = &server;
            scope.spawn(move || {
                let mut random = Random::new(100 + seed + reader);
                let mut c = tracker(server, "");
                let mut cache: Vec<Option<String>> = vec![None; KEYS];
                let next = |c: &mut Connection, cache: &mut Vec<Option<String>>| loop {
                    match c.reply() {
                        Reply::Push(parts) => {
                            let key: usize = parts[1].items()[0].text()[1..].parse().unwrap();
                            cache[key] = None;
                        }
                        other => return other.to_string(),
                    }
                };
                for _ in 0..4000 {
                    let key = random.below(KEYS);
                    if cache[key].is_none() {
                        c.request(&["GET", &format!("k{key}")]);
                        cache[key] = Some(next(&mut c, &mut cache));
                    }
                }
                // When all writers have finished, the cached values are the current ones.
                let mut other = server.connect_resp3();
                wait_until("writers are done", || {
                    let list = other.ask("CLIENT LIST").text().to_owned();
                    list.lines()
                        .filter(|line| {
                            line.contains("flags=N") && !line.contains("cmd=client|list")
                        })
                        .count()
                        == 0
                });
                c.request(&["PING", "mark"]);
                next(&mut c, &mut cache);
                for (key, cached) in cache.iter().enumerate() {
                    let now = other.ask(&format!("GET k{key}")).to_string();
                    assert!(
                        cached.as_ref().is_none_or(|cached| *cached == now),
                        "k{key}: {cached:?}, {now}"
                    );
                }
            });
        }
    });
}

/// So many arguments would otherwise move the command off its worker, which has the tracking state.
#[test]
fn a_client_may_have_many_prefixes() {
    let server = workers();
    let (mut c, mut writer) = (server.connect_resp3(), server.connect());
    let mut words: Vec<String> = ["CLIENT", "TRACKING", "ON", "BCAST"].map(String::from).into();
    words.extend((0..50_000).flat_map(|n| ["PREFIX".to_owned(), format!("p{n}:")]));
    c.request(&words);
    c.expect("+OK");
    assert_eq!(info(&mut writer, "tracking_total_prefixes"), 50_000);
    writer.check("SET p777:x 1", "+OK");
    assert_eq!(told(&mut c), [invalidate("p777:x")]);
    words.push("PREFIX".into());
    words.push("p49999:more".into());
    c.request(&words);
    c.expect("-ERR Prefix 'p0:' overlaps with an existing prefix 'p0:'. Prefixes for a single client must not overlap.");
    c.check("CLIENT TRACKING OFF", "+OK");
    c.request(&words);
    c.expect("-ERR Prefix 'p49999:' overlaps with another provided prefix 'p49999:more'. Prefixes for a single client must not overlap.");
    assert_eq!(info(&mut writer, "tracking_total_prefixes"), 0);
}

/// A client that reads a growing stream never keeps a stale copy: it is told about a change after the reply, even if
/// it was already told about the change before it, which served the command.
#[test]
fn a_read_that_was_served_late_is_told_of() {
    let server = workers();
    let mut writer = server.connect();
    let reply = r#"{"s": [["6-0", ["a", "1"]]]}"#;
    for (line, is_result) in
        [("XREAD BLOCK 0 STREAMS s 5-0", false), ("NBXREAD BLOCK 0 STREAMS s 5-0 0", true)]
    {
        for options in ["", "OPTOUT", "OPTIN"] {
            let mut c = tracker(&server, options);
            let id = id_of(&mut c);
            writer.ask("DEL s");
            writer.check("XADD s 1-0 a 1", r#""1-0""#);
            if options == "OPTIN" {
                c.check("CLIENT CACHING YES", "+OK");
            }
            c.request(&line.split(' ').collect::<Vec<_>>());
            // It finds no new entry in the stream, but it is now tracked.
            wait_until("it has read", || info(&mut writer, "tracking_total_keys") == 1);
            writer.check("XADD s 2-0 a 1", r#""2-0""#);
            c.expect(&invalidate("s"));
            writer.check("XADD s 6-0 a 1", r#""6-0""#);
            let expected = match is_result {
                true => format!(r#">["nbxread", :{id}, :1, {reply}]"#),
                false => reply.to_owned(),
            };
            let next = c.reply().to_string();
            // There may also be an earlier message for a change that the reply contains.
            let next = if next == invalidate("s") { c.reply().to_string() } else { next };
            assert_eq!(next, expected, "{line}, {options}");
            writer.check("XADD s 7-0 a 1", r#""7-0""#);
            c.expect(&invalidate("s"));
            drop(c);
            wait_until("it is gone", || info(&mut writer, "tracking_clients") == 0);
        }
    }
}

#[test]
fn client_reply_silences_what_changes_tracking() {
    let server = server();
    let mut c = server.connect_resp3();
    for line in ["CLIENT TRACKING ON", "CLIENT TRACKING ON", "CLIENT TRACKING OFF"] {
        c.request(&["CLIENT", "REPLY", "OFF"]);
        c.request(&line.split(' ').collect::<Vec<_>>());
        c.check("CLIENT REPLY ON", "+OK");
        c.request(&["CLIENT", "REPLY", "SKIP"]);
        c.request(&line.split(' ').collect::<Vec<_>>());
        c.check("GET k", "null");
    }
    c.check("CLIENT TRACKING ON", "+OK");
    c.check("GET k", "null");
    // Messages are no replies.
    c.request(&["CLIENT", "REPLY", "OFF"]);
    c.request(&["SET", "k", "v"]);
    c.expect(&invalidate("k"));
}

#[test]
fn client_caching_holds_for_one_command_that_does_not_block_too() {
    let server = workers();
    let (mut c, mut writer) = (tracker(&server, "OPTOUT"), server.connect());
    let id = id_of(&mut c);
    c.check("CLIENT CACHING NO", "+OK");
    c.request(&["NBKEYS", "nosuch*", "0"]);
    c.expect(&format!(r#">["nbkeys", :{id}, :1, []]"#));
    c.check("GET k", "null");
    writer.check("SET k v", "+OK");
    assert_eq!(told(&mut c), [invalidate("k")]);
}

/// A long transaction leaves the worker, which knows the tracking state of the connection.
#[test]
fn a_long_transaction_shows_how_keys_are_tracked() {
    let server = workers();
    let mut c = tracker(&server, "NOLOOP");
    let members: Vec<String> = (0..100_000).map(|n| n.to_string()).collect();
    let words: Vec<&str> =
        ["SADD", "set"].into_iter().chain(members.iter().map(|m| &**m)).collect();
    c.request(&words);
    c.expect(":100000");
    c.check("MULTI", "+OK");
    for line in ["SUNIONSTORE copy set", "CLIENT TRACKINGINFO", "CLIENT GETREDIR"] {
        c.check(line, "+QUEUED");
    }
    c.check(
        "EXEC",
        r#"[:100000, {"flags": ~["on", "noloop"], "redirect": :0, "prefixes": []}, :0]"#,
    );
}

#[test]
fn what_client_caching_said_is_shown_in_its_mode_only() {
    let server = server();
    let mut client = server.connect();
    client.ask("HELLO 3");
    client.check("CLIENT TRACKING ON OPTOUT", "+OK");
    client.check("CLIENT CACHING NO", "+OK");
    let flags = |client: &mut Connection| client.ask("CLIENT TRACKINGINFO").to_string();
    assert!(flags(&mut client).contains("caching-no"));
    client.check("CLIENT TRACKING OFF", "+OK");
    client.check("CLIENT TRACKING ON OPTOUT", "+OK");
    client.check("CLIENT CACHING NO", "+OK");
    client.check("CLIENT TRACKING ON", "+OK");
    assert!(!flags(&mut client).contains("caching"), "{}", flags(&mut client));
}
