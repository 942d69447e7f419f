//! A replica that executes the translated records has all changes of its primary.
//!
//! If `TIERCE_TEST_REDIS` names a redis-server, it is also a replica here: see `scripts/replication-differential`.

mod change;
mod contents;
mod data;
mod history;
mod sides;

use tierce_harness::effort;
use tierce_keyspace::Options;
use tierce_keyspace::log::Sizes;
use tierce_replication::translate::Dialect;

use contents::{Detail, contents};
use history::History;
use sides::{Clock, Primary, Redis, Side, Store, shown};

/// Commands between two comparisons.
const BETWEEN: usize = 60;

/// Runs a random history on a primary, and its translation on a replica.
fn check(seed: u64, commands: usize, dialect: Dialect, detail: Detail, replica: &mut impl Side) {
    let mut history = History::new(seed);
    let piece_len = 1 << (5 + history.random.below(16));
    let clock = if detail == Detail::Everything { Clock::Behind } else { Clock::Ahead };
    let log_sizes = Sizes { piece_len, large_bytes_min: 200, ..Sizes::default() };
    let mut primary = Primary::new(dialect, Options { log_sizes, ..Options::default() }, clock);
    let mut log: Vec<String> = Vec::new();
    for step in 1..=commands {
        if history.random.one_in(20) {
            primary.store.now_ms += [1, 1000, 5000][history.random.below(3)];
        }
        for command in history.next() {
            log.push(shown(&command));
            primary.store.call(&command);
        }
        if step % BETWEEN == 0 || step == commands {
            primary.remove_expired();
            let expected = contents(detail, &mut |args| primary.store.ask(args));
            let (stream, lines) = primary.stream();
            replica.feed(&stream, primary.store.now_ms);
            let found = contents(detail, &mut |args| replica.ask(args));
            if let Some((expected, found)) = expected.iter().zip(&found).find(|(a, b)| a != b) {
                let from = log.len().saturating_sub(3 * BETWEEN);
                panic!(
                    "seed {seed}: the primary has\n{expected}\nthe replica has\n{found}\nafter\n{}\nas\n{}",
                    log[from..].join("\n"),
                    lines.join("\n")
                );
            }
            assert_eq!(expected.len(), found.len(), "seed {seed}: {expected:#?}\n{found:#?}");
        }
    }
}

#[test]
fn a_replica_has_what_random_commands_have_left() {
    for seed in 0..effort(12) {
        let mut replica = Store::replica(Options::default());
        check(seed, 600, Dialect::Tierce, Detail::Everything, &mut replica);
    }
}

#[test]
fn redis_has_what_random_commands_have_left() {
    let Ok(program) = std::env::var("TIERCE_TEST_REDIS") else { return };
    let mut redis = Redis::start(&program);
    let seeds = std::env::var("TIERCE_TEST_SEEDS").ok().and_then(|seeds| seeds.parse().ok());
    for seed in 0..seeds.unwrap_or(10) {
        redis.clear();
        check(seed, 600, redis.dialect(), Detail::OfRedis, &mut redis);
    }
}
