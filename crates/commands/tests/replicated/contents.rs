//! All data that a reader can see in a data set.

use tierce_harness::Reply;

/// The compared part of the contents.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Detail {
    Everything,
    /// Without data that Redis 7.0 does not know, and without delivery times, which each server sets itself.
    OfRedis,
}

/// Returns everything in the first three databases, and all libraries, as lines.
pub fn contents(detail: Detail, ask: &mut impl FnMut(&[&[u8]]) -> Reply) -> Vec<String> {
    let mut lines = Vec::new();
    for db in [&b"0"[..], b"1", b"2"] {
        ask(&[b"SELECT", db]);
        let keys = sorted(&ask(&[b"KEYS", b"*"]));
        for key in keys {
            let kind = ask(&[b"TYPE", &key]).text().to_owned();
            // A replica keeps a key that has expired until its primary has removed it.
            if kind == "none" {
                continue;
            }
            let deadline = ask(&[b"PEXPIRETIME", &key]);
            let head = format!("{} {} {kind} {deadline}", db.escape_ascii(), key.escape_ascii());
            lines.extend(
                value(&kind, &key, detail, ask).into_iter().map(|part| format!("{head} {part}")),
            );
        }
    }
    lines.extend(sorted_lines(&ask(&[b"FUNCTION", b"LIST", b"WITHCODE"])));
    if detail == Detail::Everything {
        lines.extend(sorted_lines(&ask(&[b"SCRIPT", b"NAMES"])));
    }
    lines
}

fn value(
    kind: &str,
    key: &[u8],
    detail: Detail,
    ask: &mut impl FnMut(&[&[u8]]) -> Reply,
) -> Vec<String> {
    match kind {
        "string" => vec![format!("{}", ask(&[b"GET", key]))],
        "list" => vec![format!("{}", ask(&[b"LRANGE", key, b"0", b"-1"]))],
        "set" => sorted_lines(&ask(&[b"SMEMBERS", key])),
        "zset" => scores(detail, &ask(&[b"ZRANGE", key, b"0", b"-1", b"WITHSCORES"])),
        "hash" => hash(key, detail, ask),
        "stream" => stream(key, detail, ask),
        other => vec![format!("a type of its own: {other}")],
    }
}

/// Versions of Redis spell scores in several ways, and forget the sign of zero.
fn scores(detail: Detail, reply: &Reply) -> Vec<String> {
    let pairs = reply.items().chunks(2);
    let pairs = pairs.map(|pair| {
        let score: f64 = pair[1].text().parse().expect("a score");
        let is_positive_zero = score == 0.0 && detail == Detail::OfRedis;
        format!("{} {:?}", pair[0], if is_positive_zero { 0.0 } else { score })
    });
    pairs.collect()
}

fn hash(key: &[u8], detail: Detail, ask: &mut impl FnMut(&[&[u8]]) -> Reply) -> Vec<String> {
    let all = ask(&[b"HGETALL", key]);
    let mut lines: Vec<String> = Vec::new();
    for pair in all.items().chunks(2) {
        let deadline = match detail {
            Detail::Everything => {
                format!("{}", ask(&[b"HPEXPIRETIME", key, b"FIELDS", b"1", pair[0].bytes()]))
            }
            Detail::OfRedis => String::new(),
        };
        lines.push(format!("{} {} {deadline}", pair[0], pair[1]));
    }
    lines.sort();
    lines
}

fn stream(key: &[u8], detail: Detail, ask: &mut impl FnMut(&[&[u8]]) -> Reply) -> Vec<String> {
    let mut lines = vec![format!("{}", ask(&[b"XRANGE", key, b"-", b"+"]))];
    let facts = ask(&[b"XINFO", b"STREAM", key]);
    let known = ["length", "last-generated-id", "max-deleted-entry-id", "entries-added"];
    lines.extend(known.map(|fact| format!("{fact} {}", facts.field(fact))));
    for group in ask(&[b"XINFO", b"GROUPS", key]).items() {
        let name = group.field("name").bytes().to_vec();
        let mut known = vec!["pending", "last-delivered-id", "entries-read"];
        if detail == Detail::Everything {
            // Redis 7.0 subtracts the entries read from the entries added, even if these are different entries.
            known.push("lag");
        }
        let known: Vec<_> = known.iter().map(|fact| group.field(fact).to_string()).collect();
        lines.push(format!("{} {known:?}", name.escape_ascii()));
        // On a redis-server, one without a name has the entries that were given back.
        let consumers = ask(&[b"XINFO", b"CONSUMERS", key, &name]);
        for consumer in consumers.items().iter().filter(|it| !it.field("name").bytes().is_empty()) {
            let known = ["name", "pending"].map(|fact| consumer.field(fact).to_string());
            lines.push(format!("{} {known:?}", name.escape_ascii()));
        }
        for pending in ask(&[b"XPENDING", key, &name, b"-", b"+", b"1000"]).items() {
            let mut known = pending.items().to_vec();
            if detail == Detail::OfRedis {
                // Time since its delivery.
                known.remove(2);
            }
            lines.push(format!("{} {}", name.escape_ascii(), Reply::Array(known)));
        }
    }
    lines
}

fn sorted(reply: &Reply) -> Vec<Vec<u8>> {
    let mut items: Vec<_> = reply.items().iter().map(|item| item.bytes().to_vec()).collect();
    items.sort();
    items
}

fn sorted_lines(reply: &Reply) -> Vec<String> {
    let mut lines: Vec<_> = reply.items().iter().map(|item| item.to_string()).collect();
    lines.sort();
    lines
}
