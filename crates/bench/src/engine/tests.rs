//! The engine against a mock server that counts.

use std::time::Duration;

use super::{Engine, Goal, Tally};
use crate::cli::LoadArgs;
use crate::error::Error;
use crate::mock_server::{Behavior, MockServer};
use crate::workload::Workload;

fn workload(test: &str, change: impl FnOnce(&mut LoadArgs)) -> Workload {
    let mut args = LoadArgs { tests: vec![test.into()], clients: Some(3), ..LoadArgs::default() };
    change(&mut args);
    args.workloads(&[]).unwrap().remove(0)
}

fn run(server: &MockServer, workload: &Workload, goal: Goal) -> Result<Tally, Error> {
    let mut engine = Engine::connect(&server.target(), &workload.load, &workload.mix)?;
    engine.run(goal, &mut |_, _| ())
}

/// Checks that every request arrives and every reply is counted, for any shape.
fn check_exact(behavior: Behavior, test: &str, requests: u64, change: impl FnOnce(&mut LoadArgs)) {
    let server = MockServer::start(behavior);
    let workload = workload(test, change);
    let tally = run(&server, &workload, Goal::Requests(requests)).unwrap();
    let seen = server.seen();
    assert_eq!((tally.replies, seen.requests()), (requests, requests));
    assert_eq!((tally.errors, tally.latency.len()), (0, requests));
    assert_eq!(seen.connections, workload.load.clients as u64);
}

#[test]
fn exactly_the_wanted_requests_are_sent_and_answered() {
    check_exact(Behavior::Plain, "set", 1, |_| ());
    check_exact(Behavior::Plain, "get", 1000, |_| ());
    check_exact(Behavior::Plain, "get", 1001, |args| args.pipeline = Some(16));
    check_exact(Behavior::Plain, "mget", 777, |args| args.pipeline = Some(300));
    check_exact(Behavior::Plain, "set", 5, |args| args.pipeline = Some(16));
}

#[test]
fn threads_share_connections_and_requests() {
    check_exact(Behavior::Plain, "incr", 3001, |args| {
        args.threads = Some(3);
        args.clients = Some(7);
        args.pipeline = Some(10);
    });
    check_exact(Behavior::Plain, "ping", 50, |args| args.threads = Some(64));
}

#[test]
fn replies_may_come_in_pieces() {
    for size in [1, 2, 5, 7] {
        check_exact(Behavior::Pieces(size), "get", 90, |args| args.pipeline = Some(9));
        check_exact(Behavior::Pieces(size), "mget", 90, |args| args.pipeline = Some(9));
    }
}

/// Batches of 16 MB do not fit into any socket buffer, so most of each batch is sent later.
#[test]
fn requests_may_leave_in_pieces() {
    check_exact(Behavior::Plain, "set", 48, |args| {
        args.pipeline = Some(16);
        args.data_size = Some(1 << 20);
        args.clients = Some(1);
    });
}

#[test]
fn filling_sets_every_key_once() {
    let server = MockServer::start(Behavior::Plain);
    let workload = workload("get", |args| {
        args.keyspace = Some(1234);
        args.threads = Some(2);
    });
    let (fill, goal) = workload.fill();
    run(&server, &fill, goal).unwrap();
    let seen = server.seen();
    assert_eq!(seen.commands["SET"], 1234);
    assert_eq!(seen.keys.len(), 1234);
    assert!(seen.keys.contains_key("key:000000001233"));
}

#[test]
fn a_ratio_is_kept_exactly() {
    let server = MockServer::start(Behavior::Plain);
    let args = LoadArgs { ratio: Some((1, 9)), pipeline: Some(7), ..LoadArgs::default() };
    run(&server, &args.workloads(&[]).unwrap()[0], Goal::Requests(1000)).unwrap();
    let seen = server.seen();
    assert_eq!((seen.commands["SET"], seen.commands["GET"]), (100, 900));
}

#[test]
fn an_engine_runs_phase_after_phase() {
    let server = MockServer::start(Behavior::Plain);
    let workload = workload("get", |args| args.pipeline = Some(4));
    let mut engine = Engine::connect(&server.target(), &workload.load, &workload.mix).unwrap();
    let first = engine.run(Goal::Time(Duration::from_millis(30)), &mut |_, _| ()).unwrap();
    let second = engine.run(Goal::Requests(10), &mut |_, _| ()).unwrap();
    assert!(first.elapsed >= Duration::from_millis(25) && first.replies > 0);
    assert_eq!(second.replies, 10);
    assert_eq!(server.seen().requests(), first.replies + 10);
}

/// The wait is the point of the test: the tenth request is due 90 ms after the first.
#[test]
fn a_limited_rate_is_not_exceeded() {
    let server = MockServer::start(Behavior::Plain);
    let workload = workload("ping", |args| args.rate = Some(100));
    let tally = run(&server, &workload, Goal::Requests(10)).unwrap();
    assert_eq!(tally.replies, 10);
    assert!(tally.elapsed >= Duration::from_millis(90), "{:?}", tally.elapsed);
}

#[test]
fn error_replies_are_results() {
    let server = MockServer::start(Behavior::ErrorEvery(10));
    let workload = workload("get", |args| args.clients = Some(1));
    let tally = run(&server, &workload, Goal::Requests(100)).unwrap();
    assert_eq!((tally.replies, tally.errors), (100, 10));
    assert_eq!(tally.first_error.as_deref(), Some("ERR every now and then"));
}

#[test]
fn a_lost_connection_ends_the_run_with_what_was_said() {
    let server = MockServer::start(Behavior::CloseAfter(20));
    let workload = workload("get", |args| args.threads = Some(2));
    let error = run(&server, &workload, Goal::Requests(1_000_000)).unwrap_err();
    assert!(matches!(error, Error::ConnectionLost { .. }), "{error}");
    assert!(error.to_string().contains("ERR enough"), "{error}");
}

#[test]
fn a_peer_that_does_not_speak_resp_is_named_so() {
    let server = MockServer::start(Behavior::Garbage);
    let error = run(&server, &workload("get", |_| ()), Goal::Requests(10)).unwrap_err();
    assert!(error.to_string().contains("'h'"), "{error}");
}

#[test]
fn nobody_there_is_an_error_with_the_address() {
    let mut target = MockServer::start(Behavior::Plain).target();
    // Port 1 is reserved and nothing listens there.
    target.address = crate::target::Address::Tcp { host: "127.0.0.1".into(), port: 1 };
    let workload = workload("get", |_| ());
    let error = Engine::connect(&target, &workload.load, &workload.mix).unwrap_err();
    assert!(error.to_string().contains("127.0.0.1:1"), "{error}");
}

#[test]
fn merging_adds_counts_and_keeps_every_latency() {
    let mut total = Tally::new();
    for (replies, latency_us, elapsed_ms) in [(10, 100, 7), (30, 900, 5)] {
        let mut part = Tally::new();
        part.replies = replies;
        part.errors = 1;
        part.first_error = Some(format!("error of {replies}"));
        part.latency.record_n(latency_us * 1000, replies).unwrap();
        part.elapsed = Duration::from_millis(elapsed_ms);
        part.own_cpu = Duration::from_millis(2);
        total.merge(part);
    }
    assert_eq!((total.replies, total.errors), (40, 2));
    assert_eq!(total.first_error.as_deref(), Some("error of 10"));
    assert_eq!(total.elapsed, Duration::from_millis(7));
    assert_eq!(total.own_cpu, Duration::from_millis(4));
    let at = |quantile| total.latency.value_at_quantile(quantile) / 1000;
    assert_eq!((total.latency.len(), at(0.25), at(0.26)), (40, 100, 900));
}
