//! Fills a server with collections of each type, by commands in pipelines.

use std::ops::Range;

use tierce_harness::{Connection, encode};

/// Requests in a pipeline.
const DEPTH: usize = 50;

/// Types, each with the command that adds an element.
pub(super) const TYPES: [&str; 6] = ["list", "set", "intset", "zset", "hash", "stream"];

/// Number of elements that one command adds to a large collection. A stream gets one.
const ELEMENTS_PER_COMMAND: usize = 20;
const MANY: usize = 100_000;

/// Returns a command that adds the elements with these numbers to a collection. Elements, values of hashes and
/// entries of streams have about ten bytes.
pub(super) fn add(kind: &str, key: &str, numbers: Range<usize>) -> Vec<u8> {
    let first = numbers.start;
    let element = |number| format!("elem:{number:06}");
    let value = |number| format!("value:{number:06}");
    let digits = |number: usize| number.to_string();
    let command = match kind {
        "list" => "RPUSH",
        "set" | "intset" => "SADD",
        "zset" => "ZADD",
        "hash" => "HSET",
        "stream" => "XADD",
        _ => unreachable!("all types are listed"),
    };
    let elements = numbers.flat_map(|number| match kind {
        "list" | "set" => vec![element(number)],
        "intset" => vec![digits(number)],
        "zset" => vec![digits(number), element(number)],
        "hash" => vec![element(number), value(number)],
        _ => vec![format!("{}-0", first + 1), "field".to_owned(), value(number)],
    });
    let words: Vec<String> =
        [command, key].into_iter().map(str::to_owned).chain(elements).collect();
    encode(&words.iter().map(String::as_str).collect::<Vec<_>>())
}

/// Makes `keys` collections with this number of elements each.
pub(super) fn fill(connection: &mut Connection, kind: &str, keys: usize, elements: usize) {
    let mut requests = Vec::new();
    let mut waiting = 0;
    for key in 0..keys {
        let name = format!("{kind}:{key}");
        let is_slow = kind == "stream" || elements < MANY;
        let step = if is_slow { 1 } else { ELEMENTS_PER_COMMAND };
        for first in (0..elements).step_by(step) {
            requests.extend(add(kind, &name, first..(first + step).min(elements)));
            waiting += 1;
            if waiting == DEPTH {
                flush(connection, &mut requests, &mut waiting);
            }
        }
    }
    flush(connection, &mut requests, &mut waiting);
}

fn flush(connection: &mut Connection, requests: &mut Vec<u8>, waiting: &mut usize) {
    connection.send(&requests);
    requests.clear();
    for _ in 0..std::mem::take(waiting) {
        let reply = connection.reply_bytes();
        assert_ne!(reply[0], b'-', "{}", String::from_utf8_lossy(&reply));
    }
}
