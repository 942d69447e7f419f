//! Prints the cost of parsing a request, encoding a reply and skipping a reply, for pipelines of
//! GET and SET. Run it with `--release`.

use std::hint::black_box;
use std::time::Instant;

use tierce_wire::resp::{Batch, Encoder, Limits, Parser, Proto, ReplyScanner};

const KEY: &str = "key:000000000042";

/// Number of runs. Each figure is the best one, as other programs only add time.
const ROUNDS: usize = 30;
const REQUESTS_PER_ROUND: usize = 200_000;

fn main() {
    let get = format!("*2\r\n$3\r\nGET\r\n$16\r\n{KEY}\r\n");
    let set = |len: usize| {
        format!("*3\r\n$3\r\nSET\r\n$16\r\n{KEY}\r\n${len}\r\n{}\r\n", "v".repeat(len))
    };
    for depth in [1, 16, 200] {
        report("parse GET", depth, parse(&get, depth));
        for len in [3, 10, 100, 1000] {
            report(&format!("parse SET of {len} bytes"), depth, parse(&set(len), depth));
        }
    }
    for len in [3, 10, 100, 1000] {
        report(&format!("encode {len} bytes"), 16, encode(len, 16));
        let reply = format!("${len}\r\n{}\r\n", "v".repeat(len));
        report(&format!("scan {len} bytes"), 16, scan(&reply, 16));
    }
    for value in [7, 123456, i64::MIN] {
        report(&format!("encode {value}"), 16, encode_int(value, 16));
    }
    report("scan +OK", 16, scan("+OK\r\n", 16));
}

fn report(name: &str, depth: usize, turn: impl FnMut()) {
    let mut turn = turn;
    let turns = REQUESTS_PER_ROUND.div_ceil(depth);
    let round = || {
        let start = Instant::now();
        (0..turns).for_each(|_| turn());
        start.elapsed().as_secs_f64() * 1e9 / (turns * depth) as f64
    };
    let best = std::iter::repeat_with(round).take(ROUNDS).fold(f64::MAX, f64::min);
    println!("{name:<27} pipeline {depth:>3}: {best:6.1} ns");
}

fn parse(request: &str, depth: usize) -> impl FnMut() {
    let input = request.repeat(depth).into_bytes();
    let (mut parser, mut batch, limits) = (Parser::new(), Batch::new(), Limits::default());
    move || {
        let input = black_box(input.as_slice());
        let parsed = parser.parse(input, &limits, usize::MAX, &mut batch);
        assert_eq!((parsed.consumed, batch.len()), (input.len(), depth));
        black_box(batch.get(depth - 1, input));
    }
}

fn encode(len: usize, depth: usize) -> impl FnMut() {
    let (value, mut output) = (vec![b'v'; len], Vec::new());
    move || {
        output.clear();
        for _ in 0..depth {
            Encoder::new(&mut output, Proto::Resp2).bulk(black_box(&value));
        }
        black_box(&output);
    }
}

fn encode_int(value: i64, depth: usize) -> impl FnMut() {
    let mut output = Vec::new();
    move || {
        output.clear();
        for _ in 0..depth {
            Encoder::new(&mut output, Proto::Resp2).int(black_box(value));
        }
        black_box(&output);
    }
}

fn scan(reply: &str, depth: usize) -> impl FnMut() {
    let input = reply.repeat(depth).into_bytes();
    let mut scanner = ReplyScanner::new();
    move || {
        let scanned = scanner.scan(black_box(&input), usize::MAX);
        assert_eq!(scanned.map(|scanned| scanned.replies), Ok(depth));
    }
}
