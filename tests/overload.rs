//! Clients that send more long commands than can be served delay others by one turn, not by everything they sent.

use tierce_harness::{Connection, encode, free_port};

use crate::launch;

/// Number of commands of a pipeline. All of them fit into one receive buffer.
const COMMANDS: usize = 500;

/// Number of elements that each command reads: almost the maximum for a worker.
const ELEMENTS: usize = 9_999;

/// Minimum number of turns. Each command takes 50 µs on the fastest machines, so a turn of half a millisecond ends
/// after ten of them.
const TURNS_MIN: i64 = 20;

/// Returns the number of turns of the only worker.
fn turns(info: &str) -> i64 {
    let line = info.lines().find_map(|line| line.strip_prefix("eventloop_cycles:"));
    line.expect("the field").parse().expect("a number")
}

#[test]
fn a_pipeline_of_long_commands_takes_many_turns() {
    let server = launch().with("threads", "1").start();
    let mut c = server.connect();
    let push = [vec!["RPUSH", "list"], vec!["x"; ELEMENTS]].concat();
    assert_eq!(c.call(&push).int(), ELEMENTS as i64);
    c.check("RPUSH other first", ":1");
    let before = turns(c.ask("INFO stats").text());
    // The rest after a turn's end is parsed again: nothing is lost, executed twice, or out of order.
    let pipeline: Vec<u8> = (0..COMMANDS)
        .flat_map(|number| {
            let number = number.to_string();
            [encode(&["LPOS", "list", "none"]), encode(&["ECHO", &number]), encode(&["INCR", "n"])]
        })
        .flatten()
        .collect();
    c.send(pipeline);
    for number in 0..COMMANDS {
        c.expect("nil");
        c.expect(&format!("{:?}", number.to_string()));
        c.expect(&format!(":{}", number + 1));
    }
    let taken = turns(c.ask("INFO stats").text()) - before;
    assert!(taken >= TURNS_MIN, "{taken} turns");
}

/// A connection that has stopped in the middle of its input receives no more before the rest is executed.
#[test]
fn what_waits_for_its_turn_stays_in_the_socket() {
    let server = launch().with("threads", "1").start();
    let mut c = server.connect();
    // A turn still ends long before a receive buffer does.
    c.call(&[vec!["RPUSH", "list"], vec!["x"; ELEMENTS / 4]].concat());
    let mut watcher = server.connect();
    // Several times the size of a receive buffer.
    let sent = encode(&["LPOS", "list", "none"]).repeat(COMMANDS * 8);
    let mut sender = c.sender();
    let id = c.ask("CLIENT ID").int();
    let writer = std::thread::spawn(move || std::io::Write::write_all(&mut sender, &sent));
    let mut most: usize = 0;
    for number in 0..COMMANDS * 8 {
        c.expect("nil");
        if number % 100 == 0 {
            let list = watcher.ask(&format!("CLIENT LIST ID {id}"));
            let kept = list.text().split_once("qbuf=").expect("the field").1;
            most = most.max(kept.split(' ').next().expect("a word").parse().expect("a number"));
        }
    }
    writer.join().expect("no panic").expect("all sent");
    assert!(most <= 2 * 64 * 1024, "{most} bytes");
}

/// Like the test above, for another protocol. `stats` has a reply of thousands of bytes.
#[test]
fn a_pipeline_of_memcached_takes_many_turns() {
    let port = free_port();
    let server = launch().with("threads", "1").with("memcached-port", &port.to_string()).start();
    let mut watcher = server.connect();
    let before = turns(watcher.ask("INFO stats").text());
    let mut c = Connection::tcp(([127, 0, 0, 1], port).into());
    c.send("stats\r\n".repeat(COMMANDS * 4) + "quit\r\n");
    let ends = c.rest();
    let ends = ends.split(|byte| *byte == b'\n').filter(|line| *line == b"END\r").count();
    assert_eq!(ends, COMMANDS * 4, "each has its reply");
    let taken = turns(watcher.ask("INFO stats").text()) - before;
    assert!(taken >= TURNS_MIN, "{taken} turns");
}
