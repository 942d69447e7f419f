//! Contents of the fixtures, of every type and of every kind of record, and a listing of them.

use std::collections::BTreeMap;

use tierce_harness::{Both, Connection, Reply, wait_until};

/// A deadline far in the future: 2 January 2100.
const FAR_MS: u64 = 4_102_531_200_000;

/// Returns a text of about `len` bytes, a different one for each seed.
pub(super) fn words(seed: usize, len: usize) -> String {
    let mut text = String::new();
    while text.len() < len {
        text += &format!("{seed}-{} ", text.len() * 7919 % 1009);
    }
    text
}

/// Writes data of every type to the databases 0 to 3: small and large, changed before, during and after a compaction
/// of the log.
pub(super) fn fill(both: &Both) {
    let mut c = both.server.connect();
    for db in 0..3 {
        c.check(&format!("SELECT {db}"), "+OK");
        fill_small(&mut c, db);
        if db != 1 {
            fill_large(&mut c, db);
        }
    }
    c.check("SELECT 3", "+OK");
    c.check("SET flushed 1", "+OK");
    c.check("FLUSHDB", "+OK");
    c.check("SWAPDB 1 3", "+OK");
    both.check(b"set mc:flags 4711 0 5\r\nvalue\r\n", b"STORED\r\n");
    both.check(b"set mc:deadline 7 4102531200 3\r\nabc\r\n", b"STORED\r\n");
    c.ask("BGREWRITEAOF");
    c.check("SELECT 0", "+OK");
    change(&mut c);
    let mut rewriting = both.server.connect();
    wait_until("no compaction is under way", || {
        rewriting.ask("INFO persistence").text().contains("aof_rewrite_in_progress:0")
    });
    change(&mut c);
}

fn fill_small(c: &mut Connection, db: usize) {
    for line in [
        "SET string value",
        "SET number 42",
        "INCRBY number 100000",
        "SET binary \u{0}\u{1}\u{ff}",
        "SETRANGE padded 10 end",
        "APPEND raw begin",
        "APPEND raw -and-more",
        "SET taken 1",
        "GETDEL taken",
        "RPUSH list a b c",
        "LPUSH list before",
        "LINSERT list AFTER a between",
        "SADD numbers 1 2 3 70000",
        "SADD members one two three",
        "SREM members two",
        "ZADD scores 1 one 2.5 two -inf least 1e300 much",
        "ZINCRBY scores 0.25 two",
        "HSET hash field value number 7",
        "HINCRBY hash number 35",
        "HSET fields a 1 b 2 c 3",
        "XADD stream 1-1 name value",
        "XADD stream 2-1 name other more fields",
        "XADD stream 3-1 name third",
        "XDEL stream 2-1",
        "XGROUP CREATE stream group 0",
        "XREADGROUP GROUP group consumer COUNT 1 STREAMS stream >",
        "XGROUP CREATECONSUMER stream group idle",
        "XADD emptied 5-5 a b",
        "XTRIM emptied MAXLEN 0",
        "PFADD counted a b c d",
        "SETBIT bits 77 1",
        "GEOADD places 13.361389 38.115556 Palermo",
        "SET source moved",
        "RENAME source target",
        "COPY hash copied",
    ] {
        let reply = c.ask(line);
        assert!(!matches!(reply, Reply::Error(_)), "{line}: {reply}");
    }
    c.check(&format!("SET with-deadline {db} PXAT {FAR_MS}"), "+OK");
    c.check(&format!("PEXPIREAT list {FAR_MS}"), ":1");
    c.check(&format!("HPEXPIREAT fields {FAR_MS} FIELDS 2 a b"), "[:1, :1]");
}

/// Writes collections that a compacted log holds in parts.
fn fill_large(c: &mut Connection, db: usize) {
    let mut requests = vec![vec!["SET".to_owned(), "large:string".into(), words(db, 40_000)]];
    for part in 0..12 {
        let of = |command: &str, key: &str| vec![command.to_owned(), key.to_owned()];
        let adds = &mut [
            of("RPUSH", "large:list"),
            of("SADD", "large:set"),
            of("ZADD", "large:sorted"),
            of("HSET", "large:hash"),
        ];
        for item in 0..25 {
            let text = words(db + part * 25 + item, 230);
            adds[0].push(text.clone());
            adds[1].push(text.clone());
            adds[2].extend([(part * item).to_string(), text.clone()]);
            adds[3].extend([format!("field:{part}:{item}"), text]);
        }
        // One of each is enough. The list, which is logged differently, is there twice.
        requests.extend(adds.iter().take(if db == 0 { 4 } else { 1 }).cloned());
    }
    for request in requests {
        let reply = c.call(&request);
        assert!(!matches!(reply, Reply::Error(_)), "{}: {reply}", request[0]);
    }
}

/// Changes existing values, large and small.
fn change(c: &mut Connection) {
    for line in [
        "RPUSH large:list behind",
        "LPOP large:list",
        "LSET large:list 100 changed",
        "LREM large:list 1 behind",
        "SADD large:set another",
        "SREM large:set another",
        "ZADD large:sorted 3.75 another",
        "HSET large:hash another 1",
        "HDEL large:hash field:3:3",
        "APPEND large:string -end",
        "SETRANGE large:string 5 START",
        "INCR number",
        "LPUSH list again",
        "HSET hash field again",
        "XADD stream * name again",
        "XTRIM stream MAXLEN 3",
        "DEL target",
    ] {
        let reply = c.ask(line);
        assert!(!matches!(reply, Reply::Error(_)), "{line}: {reply}");
    }
}

/// Returns all keys of all databases with type, deadline and value, in order, one line each. A long line becomes a
/// digest that depends on everything in it.
pub(crate) fn listing(c: &mut Connection) -> String {
    let mut text = String::new();
    for db in 0..16 {
        c.check(&format!("SELECT {db}"), "+OK");
        let keys = c.ask("KEYS *");
        let names: Vec<Vec<u8>> = keys.items().iter().map(|key| key.bytes().to_vec()).collect();
        let lines: BTreeMap<_, _> = names.into_iter().map(|key| line(c, db, key)).collect();
        lines.into_values().for_each(|line| text += &line);
    }
    text
}

fn line(c: &mut Connection, db: usize, key: Vec<u8>) -> (Vec<u8>, String) {
    let mut ask = |command: &str, arguments: &[&str]| {
        let mut request = vec![command.as_bytes(), &key];
        request.extend(arguments.iter().map(|argument| argument.as_bytes()));
        c.call(&request)
    };
    let kind = ask("TYPE", &[]).to_string();
    let deadline = ask("PEXPIRETIME", &[]);
    let value = match &*kind {
        "+string" => ask("GET", &[]).to_string(),
        "+list" => ask("LRANGE", &["0", "-1"]).to_string(),
        "+set" => sorted(&ask("SMEMBERS", &[]), 1),
        "+zset" => ask("ZRANGE", &["0", "-1", "WITHSCORES"]).to_string(),
        "+hash" => sorted(&ask("HGETALL", &[]), 2) + &field_deadlines(c, &key),
        "+stream" => stream(c, &key),
        other => panic!("a key of type {other}"),
    };
    let value = if value.len() > 1000 { digest(&value) } else { value };
    let name = key.escape_ascii().to_string();
    (key, format!("{db} {name} {kind} {deadline} {value}\n"))
}

/// Returns groups of `group` items, in order.
fn sorted(reply: &Reply, group: usize) -> String {
    let mut groups: Vec<_> = reply.items().chunks(group).map(<[Reply]>::to_vec).collect();
    groups.sort();
    Reply::Array(groups.concat()).to_string()
}

fn field_deadlines(c: &mut Connection, key: &[u8]) -> String {
    let names = c.call(&[&b"HKEYS"[..], key]);
    let mut names: Vec<_> = names.items().iter().map(|name| name.bytes().to_vec()).collect();
    names.sort();
    let count = names.len().to_string();
    let mut request = vec![&b"HPEXPIRETIME"[..], key, b"FIELDS", count.as_bytes()];
    request.extend(names.iter().map(|name| &name[..]));
    c.call(&request).to_string()
}

/// Returns entries, groups, consumers and pending entries, without values that depend on the time of day.
fn stream(c: &mut Connection, key: &[u8]) -> String {
    let entries = c.call(&[&b"XRANGE"[..], key, b"-", b"+"]);
    let groups = c.call(&[&b"XINFO"[..], b"GROUPS", key]);
    let mut text = format!("{entries} {groups}");
    for group in groups.items() {
        let name = group.items()[1].bytes().to_vec();
        let pending = c.call(&[&b"XPENDING"[..], key, &name]);
        text += &format!(" {pending}");
    }
    text
}

/// Returns the length of a text and an almost unique number (FNV-1a).
fn digest(text: &str) -> String {
    let step = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    let hash = text.bytes().fold(0xcbf2_9ce4_8422_2325, step);
    format!("{} bytes, digest {hash:016x}", text.len())
}
