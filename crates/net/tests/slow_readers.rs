//! Unread output waits, in order, up to a limit.

use crate::support::Server;
use tierce_net::{CloseReason, Config, OutputClass, OutputLimit, OutputLimits};

const MIB: usize = 1024 * 1024;

fn limits(class: u8, limit: OutputLimit) -> OutputLimits {
    let mut limits = OutputLimits::default();
    limits.set(OutputClass::new(class), limit);
    limits
}

#[test]
fn output_waits_for_a_reader_that_starts_late() {
    let server = Server::one_worker();
    let (mut client, key) = server.connect_known();
    // Inline and attached values, each more than a socket takes, in one batch and in several.
    client.send("bytes 3000000\nattach 7000000\nattach 100\nbytes 10\n");
    server.report_when(key, |report| report.output_bytes > 0);
    client.send("attach 2000000\necho end\n");
    for len in [3_000_000, 7_000_000, 100, 10, 2_000_000] {
        client.expect_pattern(len);
    }
    client.expect("end");
    server.report_when(key, |report| report.output_bytes == 0);
}

#[test]
fn many_attached_values_take_several_system_calls() {
    let server = Server::one_worker();
    let mut client = server.connect();
    client.send(&"attach 5000\n".repeat(1000));
    (0..1000).for_each(|_| client.expect_pattern(5000));
}

#[test]
fn requests_are_read_while_output_waits() {
    let server = Server::one_worker();
    let (mut client, key) = server.connect_known();
    client.send("bytes 8000000\n");
    server.report_when(key, |report| report.output_bytes > 0);
    client.send(&"echo x\n".repeat(10_000));
    server.report_when(key, |report| report.lines == 10_001);
    client.expect_pattern(8_000_000);
    (0..10_000).for_each(|_| client.expect("x"));
}

#[test]
fn the_hard_limit_closes_at_once_and_only_its_class() {
    let hard = OutputLimit { hard_bytes: 10 * MIB, ..OutputLimit::default() };
    let config = Config { workers: 1, output_limits: limits(2, hard), ..Config::default() };
    let server = Server::start(config);
    let (mut free, _) = server.connect_known();
    let (mut limited, key) = server.connect_known();
    free.send("attach 30000000\n");
    limited.send("class 2\nattach 30000000\n");
    match server.wait_for_close(key) {
        CloseReason::OutputLimit { pending } => assert!(pending > 10 * MIB, "{pending}"),
        other => panic!("closed because of {other:?}"),
    }
    assert!(limited.drain() < 30_000_000);
    free.expect_pattern(30_000_000);
}

#[test]
fn the_soft_limit_closes_after_its_time() {
    let soft = OutputLimit { soft_bytes: MIB, soft_ms: 30, ..OutputLimit::default() };
    let server = Server::one_worker();
    let (mut client, key) = server.connect_known();
    // Limits changed at run time apply to present connections.
    server.handle().set_output_limits(limits(0, soft));
    client.send("attach 30000000\n");
    match server.wait_for_close(key) {
        CloseReason::OutputLimit { pending } => assert!(pending > MIB, "{pending}"),
        other => panic!("closed because of {other:?}"),
    }
}

#[test]
fn output_of_others_does_not_wait() {
    let server = Server::one_worker();
    let (mut slow, key) = server.connect_known();
    slow.send("attach 30000000\n");
    server.report_when(key, |report| report.output_bytes > 0);
    let (mut quick, _) = server.connect_known();
    (0..100).for_each(|_| quick.check("echo quick", "quick"));
    slow.expect_pattern(30_000_000);
}

#[test]
fn what_is_condemned_is_neither_kept_nor_sent() {
    let hard = OutputLimit { hard_bytes: 10 * MIB, ..OutputLimit::default() };
    let config = Config { workers: 1, output_limits: limits(0, hard), ..Config::default() };
    let server = Server::start(config);
    let (mut client, key) = server.connect_known();
    // The socket would take the first reply, but the output behind it exceeds the limit.
    client.send("echo first\nattach 9000000\nattach 9000000\necho last\n");
    match server.wait_for_close(key) {
        CloseReason::OutputLimit { pending } => assert_eq!(pending, 18_000_007),
        other => panic!("closed because of {other:?}"),
    }
    assert_eq!(client.drain(), 0);
}

#[test]
fn what_others_write_is_bounded_while_it_is_built() {
    let hard = OutputLimit { hard_bytes: MIB, ..OutputLimit::default() };
    let config = Config { workers: 1, output_limits: limits(0, hard), ..Config::default() };
    let server = Server::start(config);
    let (mut client, key) = server.connect_known();
    server.with(key, |conn| {
        for _ in 0..100 {
            conn.output().attach(std::sync::Arc::new(crate::support::pattern(100_000)));
        }
    });
    match server.wait_for_close(key) {
        CloseReason::OutputLimit { pending } => assert_eq!(pending, 1_100_000),
        other => panic!("closed because of {other:?}"),
    }
    assert_eq!(client.drain(), 0);
}
