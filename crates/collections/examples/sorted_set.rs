//! Measures operations on a large sorted set, and its memory.
//!
//! ```sh
//! cargo run --release -p tierce-collections --example sorted_set -- [MEMBERS]
//! ```

use std::hint::black_box;
use std::time::Instant;

use tierce_collections::{PackedLimits, ScoreBound, SortedSet};

const LIMITS: PackedLimits = PackedLimits { entries_max: 128, value_len_max: 64 };

/// Mixes the bits of a number, so that consecutive numbers come in a seemingly random order.
fn mixed(number: u64) -> u64 {
    let mixed = (number ^ number >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
    mixed ^ mixed >> 31
}

fn member(number: u64) -> String {
    format!("element:{number:012}")
}

/// Runs `step` for each of `count` numbers in a random order, and prints the time per step.
fn time(what: &str, count: u64, mut step: impl FnMut(u64, &str)) {
    let order: Vec<(u64, String)> =
        (0..count).map(|number| mixed(number) % count).map(|at| (at, member(at))).collect();
    let begin = Instant::now();
    for (number, member) in &order {
        step(*number, member);
    }
    let nanoseconds = begin.elapsed().as_nanos() as f64 / count as f64;
    println!("{what:32} {nanoseconds:8.0} ns");
}

fn main() {
    let count = std::env::args().nth(1).and_then(|text| text.parse().ok()).unwrap_or(1_000_000);
    let score = |number: u64| (mixed(number + 7) % 1_000_000_000) as f64 / 4.0;

    let mut ascending = SortedSet::new();
    let begin = Instant::now();
    (0..count).for_each(|number| {
        ascending.insert(member(number).as_bytes(), number as f64, &LIMITS);
    });
    let nanoseconds = begin.elapsed().as_nanos() as f64 / count as f64;
    println!("{:32} {nanoseconds:8.0} ns", "insert, ascending scores");
    println!("{:32} {:8} bytes", "memory", ascending.allocated_bytes() / ascending.len());
    drop(ascending);

    let mut set = SortedSet::new();
    time("insert or change, random scores", count, |number, member| {
        set.insert(member.as_bytes(), score(number), &LIMITS);
    });
    (0..count).for_each(|at| _ = set.insert(member(at).as_bytes(), score(at), &LIMITS));
    println!("{:32} {:8} bytes", "memory", set.allocated_bytes() / set.len());
    time("score", count, |_, member| _ = black_box(set.score(member.as_bytes())));
    time("rank", count, |_, member| _ = black_box(set.rank(member.as_bytes())));
    time("range of 10 by rank", count, |number, _| {
        set.range(number as usize..number as usize + 10).for_each(|entry| _ = black_box(entry));
    });
    time("range of 10 by score", count, |number, _| {
        let from = ScoreBound::Included(score(number));
        let ranks = set.ranks_of_scores(from, ScoreBound::Included(f64::INFINITY));
        set.range(ranks).take(10).for_each(|entry| _ = black_box(entry));
    });
    time("count between scores", count, |number, _| {
        let from = score(number);
        let to = ScoreBound::Included(from + 1e6);
        _ = black_box(set.ranks_of_scores(ScoreBound::Included(from), to));
    });
    time("change by a little", count, |number, member| {
        set.insert(member.as_bytes(), score(number) + 0.25, &LIMITS);
    });
    time("change to any", count, |number, member| {
        set.insert(member.as_bytes(), score(number + count), &LIMITS);
    });
    time("pop the lowest", count / 2, |_, _| set.remove_range(0..1, |_, _| {}));
    println!("{:32} {:8} bytes", "memory", set.allocated_bytes() / set.len());
    time("remove", count, |_, member| _ = black_box(set.remove(member.as_bytes())));
    println!("{:32} {:8} members", "left", set.len());
}
