//! Whole comparisons against mock servers in this process, and against redis-server if it is
//! installed. Figures only have to exist and to be consistent; their size is not checked.

use std::process::{Command, Stdio};

use clap::Parser;

use super::*;
use crate::cli::{BenchArgs, Mode};
use crate::mock_server::{Behavior, MockServer};

#[derive(Parser)]
struct Program {
    #[command(flatten)]
    bench: BenchArgs,
}

/// Parses the arguments of a comparison that prints nothing until the end.
fn parse(words: &[&str]) -> CompareArgs {
    let words = ["bench", "compare", "--json"].iter().chain(words);
    match Program::try_parse_from(words).unwrap().bench.mode {
        Some(Mode::Compare(args)) => *args,
        _ => panic!("the first word is another subcommand"),
    }
}

/// Adds `--a` and `--b` with redis-server, if it is installed.
fn with_redis(words: &[&str]) -> Option<CompareArgs> {
    let mut version = Command::new("redis-server");
    let version = version.arg("--version").stdout(Stdio::null()).status();
    if !version.is_ok_and(|status| status.success()) {
        eprintln!("skipped: no redis-server is installed");
        return None;
    }
    let line = "redis-server --port {port} --save '' --appendonly no";
    Some(parse(&[&["--a", line, "--b", line, "--rounds", "1"], words].concat()))
}

#[test]
fn rounds_alternate_and_have_medians() {
    let (a, b) = (MockServer::start(Behavior::Plain), MockServer::start(Behavior::ErrorEvery(2)));
    let (a_addr, b_addr) = (a.target().address.to_string(), b.target().address.to_string());
    let args = parse(&[
        "--a-addr", &a_addr, "--b-addr", &b_addr, "--rounds", "3", "-n", "40", "-c", "2", "-P",
        "4", "--warmup", "0.001", "-t", "get,incr",
    ]);
    let mut comparison = Comparison::new(&args).unwrap();
    comparison.rounds(CUSTOM, &args.load).unwrap();
    let results = comparison.results;
    assert_eq!(results.throughput.len(), 2);
    for of in &results.throughput {
        assert_eq!(of.rounds.len(), 3);
        assert!(of.rounds.iter().all(|round| round.a.requests == 40 && round.a.errors == 0));
        assert!(of.rounds.iter().all(|round| round.b.requests == 40 && round.b.errors > 0));
        assert!(of.median.throughput_ratio.is_some_and(|ratio| ratio > 0.0));
        let labels = Pair { a: "left", b: "right" };
        let text = table::rounds(&labels, of);
        assert_eq!(
            text.lines().filter(|line| line.contains("ERRORS of right")).count(),
            1,
            "{text}"
        );
    }
    // This process is both servers, so its CPU time is known.
    assert_eq!(results.findings.len(), 6);
}

#[test]
fn named_workloads_refuse_what_would_change_them() {
    let args = parse(&["--a", "x {port}", "--b", "y {port}", "-P", "3"]);
    let error = Comparison::new(&args).unwrap().check(&[Name::P16]).unwrap_err().to_string();
    assert!(error.contains("p16 fixes"), "{error}");
    let args = parse(&["--a", "x {port}", "--b-addr", "127.0.0.1:1"]);
    let error = Comparison::new(&args).unwrap().check(&[Name::Memory]).unwrap_err().to_string();
    assert!(error.contains("fresh servers"), "{error}");
}

#[test]
fn a_hot_key_is_compared_on_started_servers() {
    let Some(args) = with_redis(&["-n", "2000", "--warmup", "0.01"]) else { return };
    let mut comparison = Comparison::new(&args).unwrap();
    comparison.run(Name::P200Hot).unwrap();
    let tests: Vec<_> = comparison.results.throughput.iter().map(|it| it.test.as_str()).collect();
    assert_eq!(tests, ["GET", "SET"]);
    for of in &comparison.results.throughput {
        assert_eq!((of.rounds[0].a.requests, of.rounds[0].b.requests), (2000, 2000));
        assert_eq!((of.rounds[0].a.errors, of.rounds[0].b.errors), (0, 0));
        assert!(of.median.cpu_us.as_ref().is_some_and(|cpu| cpu.a > 0.0 && cpu.b > 0.0));
    }
}

#[test]
fn memory_is_measured_per_entry() {
    let Some(args) = with_redis(&["--entries", "20000"]) else { return };
    let mut comparison = Comparison::new(&args).unwrap();
    comparison.run(Name::Memory).unwrap();
    let memory = &comparison.results.memory;
    assert_eq!(memory.iter().map(|it| it.value_size).collect::<Vec<_>>(), [10, 100, 1000]);
    for of in memory {
        assert!(of.servers.a.full > of.servers.a.empty, "{of:?}");
        assert!(of.servers.a.overhead_per_entry > 0.0, "{of:?}");
    }
}

#[test]
fn growth_sees_every_key_twice() {
    let Some(args) = with_redis(&["--growth-keys", "5000"]) else { return };
    let mut comparison = Comparison::new(&args).unwrap();
    comparison.run(Name::Growth).unwrap();
    let growth = comparison.results.growth.unwrap();
    assert_eq!((growth.keys, growth.rounds.len()), (5000, 1));
    assert!(growth.adding_max_ms.a > 0.0 && growth.overwriting_max_ms.b > 0.0);
}

#[test]
fn idle_connections_are_held_beside_busy_ones() {
    let options = ["--idle-connections", "50", "-n", "500", "-c", "5"];
    let Some(args) = with_redis(&options) else { return };
    let mut comparison = Comparison::new(&args).unwrap();
    comparison.run(Name::Idle).unwrap();
    let idle = comparison.results.idle.unwrap();
    assert_eq!(idle.connections, 50);
    assert!(idle.servers.a.throughput_ratio > 0.0 && idle.servers.b.throughput_ratio > 0.0);
}

#[test]
fn messages_are_delivered_to_few_and_many() {
    let Some(args) = with_redis(&["--idle-connections", "50", "-n", "5000"]) else { return };
    let mut comparison = Comparison::new(&args).unwrap();
    comparison.run(Name::Pubsub).unwrap();
    let pubsub = comparison.results.pubsub.unwrap();
    assert!(pubsub.cases.iter().all(|case| case.cpu_us_per_delivery.ratio().is_some()));
    assert!(pubsub.crowd.others_wait_max_ms.a >= pubsub.crowd.others_wait_p99_ms.a);
}

#[test]
fn elements_are_handed_over_to_one_and_many() {
    let Some(args) = with_redis(&["-n", "150"]) else { return };
    let mut comparison = Comparison::new(&args).unwrap();
    comparison.run(Name::Handover).unwrap();
    let cases = comparison.results.handover.unwrap().cases;
    let what: Vec<_> = cases.iter().map(|case| (case.command, case.clients)).collect();
    assert_eq!(what, [("BLPOP", 1), ("BLPOP", 100), ("BLMOVE", 1), ("BLMOVE", 100)]);
    assert!(cases.iter().all(|case| case.p50_us.a > 0.0 && case.p99_us.a >= case.p50_us.a));
}

#[test]
fn transactions_are_sent_at_once_and_in_turn() {
    let Some(args) = with_redis(&["-n", "500"]) else { return };
    let mut comparison = Comparison::new(&args).unwrap();
    comparison.run(Name::Transactions).unwrap();
    let cases = comparison.results.transactions.unwrap().cases;
    assert_eq!(cases.len(), 3);
    assert!(cases.iter().all(|case| case.cpu_us.ratio().is_some()), "{cases:?}");
}

#[test]
fn keys_are_tracked_and_set() {
    let Some(args) = with_redis(&["--entries", "20500"]) else { return };
    let mut comparison = Comparison::new(&args).unwrap();
    comparison.run(Name::Tracking).unwrap();
    let tracking = comparison.results.tracking.unwrap();
    assert_eq!((tracking.keys, tracking.sets), (20_500, 8_200));
    assert!(tracking.cpu_us_per_set.ratio().is_some(), "{tracking:?}");
    assert!(tracking.bytes_per_key.a > 0.0, "{tracking:?}");
}
