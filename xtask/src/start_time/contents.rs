//! Contents of the servers.

use tierce_harness::{Connection, Random, encode};

/// Number of requests in a pipeline.
const DEPTH: usize = 200;

const VALUE_LEN: usize = 100;

/// Number of requests for each key, if keys are overwritten repeatedly.
const REQUESTS_PER_KEY: usize = 5;

/// Number of requests for each collection.
const REQUESTS_PER_COLLECTION: usize = 20;

/// Sends this number of requests, the same to every server.
///
/// # Errors
///
/// If there are no contents of this name.
pub(super) fn send(connection: &mut Connection, name: &str, count: usize) -> Result<(), String> {
    let request = match name {
        "set" => |random: &mut Random, number, _| set(random, number),
        "overwrite" => |random: &mut Random, _, count: usize| {
            let key = random.below(count.div_ceil(REQUESTS_PER_KEY));
            set(random, key)
        },
        "collections" => |random: &mut Random, number, count: usize| {
            add(random, number, count.div_ceil(REQUESTS_PER_COLLECTION))
        },
        _ => return Err(format!("no contents are called {name}")),
    };
    let mut random = Random::new(7);
    for first in (0..count).step_by(DEPTH) {
        let numbers = first..(first + DEPTH).min(count);
        let requests: Vec<u8> =
            numbers.clone().flat_map(|number| request(&mut random, number, count)).collect();
        connection.send(&requests);
        for _ in numbers {
            let reply = connection.reply_bytes();
            assert_ne!(reply[0], b'-', "{}", String::from_utf8_lossy(&reply));
        }
    }
    Ok(())
}

fn set(random: &mut Random, key: usize) -> Vec<u8> {
    let value = format!("{:0VALUE_LEN$}", random.next_u64());
    encode(&["SET", &format!("key:{key:012}"), &value])
}

/// Adds an element to a collection of one of four types.
fn add(random: &mut Random, number: usize, collections: usize) -> Vec<u8> {
    let key = random.below(collections);
    let element = format!("elem:{:06}", random.below(1000));
    let value = format!("value:{number:09}");
    match key % 4 {
        0 => encode(&["HSET", &format!("hash:{key}"), &element, &value]),
        1 => encode(&["SADD", &format!("set:{key}"), &element]),
        2 => encode(&["ZADD", &format!("zset:{key}"), &number.to_string(), &element]),
        _ => encode(&["RPUSH", &format!("list:{key}"), &value]),
    }
}
