//! Memory of each element beyond its own bytes, in many small collections and in one large one.

use tierce_harness::Server;

use super::load::{TYPES, fill};

/// Number of small collections, which all servers store in one block each, and of their elements.
const SMALL: (usize, usize) = (20_000, 20);

/// Measures each figure on a newly started server, because the next type could reuse the memory that an allocator
/// keeps of an earlier one.
pub(super) fn run(start: impl Fn() -> [Server; 2], elements: usize) {
    println!(
        "Bytes for each element, keys included: what the server accounts for, and resident memory.\n"
    );
    println!(
        "| type | collections | elements each | tierce | redis | ratio | resident: tierce | redis | ratio |"
    );
    println!("|---|--:|--:|--:|--:|--:|--:|--:|--:|");
    for kind in TYPES {
        for (keys, each) in [SMALL, (1, elements)] {
            let costs = start().each_ref().map(|server| cost(server, kind, keys, each));
            let [(tierce, tierce_resident), (redis, redis_resident)] = costs;
            println!(
                "| {kind} | {keys} | {each} | {tierce:.1} | {redis:.1} | {:.2} | {tierce_resident:.1} | \
                 {redis_resident:.1} | {:.2} |",
                tierce / redis,
                tierce_resident / redis_resident
            );
        }
    }
}

/// Returns the bytes of accounted and of resident memory for each element of new collections.
fn cost(server: &Server, kind: &str, keys: usize, elements: usize) -> (f64, f64) {
    let mut connection = server.connect();
    let before = (accounted(server), server.resident_bytes());
    fill(&mut connection, kind, keys, elements);
    let after = (accounted(server), server.resident_bytes());
    let each = |bytes: usize| bytes as f64 / (keys * elements) as f64;
    (each(after.0.saturating_sub(before.0)), each(after.1.saturating_sub(before.1)))
}

fn accounted(server: &Server) -> usize {
    let mut connection = server.connect();
    let info = connection.ask("INFO memory").text().to_owned();
    let line = info.lines().find_map(|line| line.strip_prefix("used_memory:"));
    line.and_then(|bytes| bytes.trim().parse().ok()).expect("INFO has used_memory")
}
