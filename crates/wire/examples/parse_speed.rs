//! Prints what parsing a request costs, for pipelines of GET and SET. Run it with `--release`.

use std::hint::black_box;
use std::time::Instant;

use tierce_wire::resp::{Batch, Limits, Parser};

const KEY: &str = "key:000000000042";

/// Each figure is the best of this many, as disturbance by other programs only adds.
const ROUNDS: usize = 30;
const REQUESTS_PER_ROUND: usize = 200_000;

fn main() {
    let get = format!("*2\r\n$3\r\nGET\r\n$16\r\n{KEY}\r\n");
    let set = |len: usize| {
        format!("*3\r\n$3\r\nSET\r\n$16\r\n{KEY}\r\n${len}\r\n{}\r\n", "v".repeat(len))
    };
    for depth in [1, 16, 200] {
        report("GET", &get, depth);
        for len in [3, 10, 100, 1000] {
            report(&format!("SET of {len} bytes"), &set(len), depth);
        }
    }
}

fn report(name: &str, request: &str, depth: usize) {
    let input = request.repeat(depth).into_bytes();
    let best = (0..ROUNDS).map(|_| nanoseconds_per_request(&input, depth)).fold(f64::MAX, f64::min);
    println!("{name:<18} pipeline {depth:>3}: {best:6.1} ns per request");
}

fn nanoseconds_per_request(input: &[u8], depth: usize) -> f64 {
    let (mut parser, mut batch, limits) = (Parser::new(), Batch::new(), Limits::default());
    let turns = REQUESTS_PER_ROUND.div_ceil(depth);
    let start = Instant::now();
    for _ in 0..turns {
        let input = black_box(input);
        let parsed = parser.parse(input, &limits, usize::MAX, &mut batch);
        assert_eq!((parsed.consumed, batch.len()), (input.len(), depth));
        black_box(batch.get(depth - 1, input));
    }
    start.elapsed().as_secs_f64() * 1e9 / (turns * depth) as f64
}
