//! Deferred output is released in its order, and is no reason to close.

use std::net::TcpStream;
use std::sync::Arc;

use crate::support::{Client, Server};
use rustix::event::{PollFd, PollFlags, poll};
use tierce_net::{CloseReason, Config, OutputClass, OutputLimit, OutputLimits, Ticket};

/// Returns true if nothing has arrived at the client.
fn has_nothing(client: &Client<TcpStream>) -> bool {
    let mut fds = [PollFd::new(&client.stream, PollFlags::IN)];
    poll(&mut fds, Some(&rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 })).unwrap() == 0
}

#[test]
fn held_output_leaves_when_released() {
    let server = Server::one_worker();
    let (mut client, key) = server.connect_known();
    client.send("echo before\nhold 1\necho after\n");
    server.report_when(key, |report| report.output_bytes == "before\nheld\nafter\n".len());
    client.send("echo behind\n");
    server.report_when(key, |report| report.lines == 4);
    server.with(key, |conn| {
        assert!(conn.release(Ticket([1, 0, 0])));
        conn.output().buffer().extend_from_slice(b"released\n");
    });
    for line in ["before", "held", "after", "behind", "released"] {
        client.expect(line);
    }
    client.check("echo free", "free");
}

#[test]
fn a_prefix_is_released_while_more_is_held() {
    let server = Server::one_worker();
    let (mut client, key) = server.connect_known();
    client.send("hold 10\nattach 20000\n");
    server.report_when(key, |report| report.lines == 2);
    client.send("echo unheld\n");
    server.report_when(key, |report| report.lines == 3);
    client.send("hold 20\nbytes 3000000\n");
    server.report_when(key, |report| report.lines == 5);
    server.with(key, |conn| assert!(!conn.release(Ticket([9, 0, 0]))));
    server.report();
    assert!(has_nothing(&client));
    server.with(key, |conn| assert!(!conn.release(Ticket([19, 0, 0]))));
    client.expect("held");
    client.expect_pattern(20_000);
    client.expect("unheld");
    let all_of_the_second = "held\n".len() + 3_000_000 + 1;
    server.report_when(key, |report| report.output_bytes == all_of_the_second);
    assert!(has_nothing(&client));
    server.with(key, |conn| assert!(conn.release(Ticket([20, 0, 0]))));
    client.expect("held");
    client.expect_pattern(3_000_000);
}

#[test]
fn output_sent_at_the_end_of_the_turn_is_not_held_by_what_comes_behind() {
    let server = Server::one_worker();
    let (mut client, key) = server.connect_known();
    client.send("turn\n");
    client.expect("turn");
    client.send("turn\nyield\nhold 1\n");
    server.report_when(key, |report| report.lines == 4);
    client.expect("turn");
    client.expect("yielded");
    assert!(has_nothing(&client));
    server.with(key, |conn| assert!(conn.release(Ticket([1, 0, 0]))));
    client.expect("held");
}

#[test]
fn a_connection_is_not_closed_for_output_that_is_held() {
    let hard = OutputLimit { hard_bytes: 100_000, ..OutputLimit::default() };
    let mut limits = OutputLimits::default();
    limits.set(OutputClass::default(), hard);
    let server = Server::start(Config { workers: 1, output_limits: limits, ..Config::default() });
    let (mut client, key) = server.connect_known();
    for ticket in 1..=3 {
        client.send(&format!("hold {ticket}\nattach 90000\n"));
        server.report_when(key, |report| report.lines == 2 * ticket);
    }
    for ticket in 1..=3_u64 {
        server.with(key, move |conn| assert_eq!(conn.release(Ticket([ticket, 0, 0])), ticket == 3));
        client.expect("held");
        client.expect_pattern(90_000);
    }
    // Output that others write to it has no other bound.
    client.send("hold 4\nattach 90000\n");
    server.report_when(key, |report| report.lines == 8);
    server.with(key, |conn| conn.output().attach(Arc::new(vec![b'x'; 20_000])));
    assert!(matches!(server.wait_for_close(key), CloseReason::OutputLimit { .. }));
}

#[test]
fn requests_wait_while_a_lot_of_output_is_held() {
    let server = Server::one_worker();
    let (mut client, key) = server.connect_known();
    client.send("hold 1\nattach 3000000\n");
    server.report_when(key, |report| report.lines == 2);
    client.send("echo later\n");
    // Proves a turn of the worker in which the line has arrived: the worker served another connection's later request.
    let (mut other, _) = server.connect_known();
    other.check("echo turn", "turn");
    assert_eq!(server.report_when(key, |report| report.output_bytes > 3_000_000).lines, 2);
    server.with(key, |conn| assert!(conn.release(Ticket([1, 0, 0]))));
    client.expect("held");
    client.expect_pattern(3_000_000);
    client.expect("later");
}

#[test]
fn what_is_held_can_be_dropped_and_the_rest_is_sent() {
    let server = Server::one_worker();
    let (mut client, key) = server.connect_known();
    client.send("hold 1\nbytes 100000\n");
    server.report_when(key, |report| report.lines == 2);
    client.send("hold 2\nbytes 100000\n");
    server.report_when(key, |report| report.lines == 4);
    server.with(key, |conn| {
        assert!(!conn.release(Ticket([1, 0, 0])));
        conn.close_without_held();
        conn.output().buffer().extend_from_slice(b"nothing follows\n");
    });
    client.expect("held");
    client.expect_pattern(100_000);
    assert_eq!(client.rest(), "");
}
