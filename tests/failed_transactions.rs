//! There are no transactions yet, and a client that tries one leaves nothing: neither does a part of it
//! happen, nor does anything say that it did.

use tierce_harness::encode;

use crate::launch;

const UNKNOWN: &str = "-ERR unknown command";

#[test]
fn nothing_of_a_transaction_happens() {
    let server = launch().start();
    let mut c = server.connect();
    c.check("SET balance 100", "+OK");
    for (end, expected) in [
        ("EXEC", "-EXECABORT Transaction discarded because of previous errors."),
        ("exec", "-EXECABORT Transaction discarded because of previous errors."),
        ("DISCARD", "+OK"),
        ("RESET", "+RESET"),
    ] {
        assert!(c.ask("MULTI").to_string().starts_with(UNKNOWN));
        for line in
            ["DECRBY balance 100", "GET balance", "MULTI", "WATCH balance", "NOSUCH", "SELECT 1"]
        {
            assert!(c.ask(line).to_string().starts_with("-ERR refused, as MULTI was"), "{line}");
        }
        c.check(end, expected);
        c.check("GET balance", "\"100\"");
    }
}

#[test]
fn a_pipelined_transaction_ends_where_it_should() {
    let server = launch().start();
    let mut c = server.connect();
    let requests: Vec<u8> = [
        &["SET", "a", "1"][..],
        &["MULTI"],
        &["INCR", "a"],
        &["INCR", "a"],
        &["EXEC"],
        &["INCR", "a"],
    ]
    .iter()
    .flat_map(|request| encode(request))
    .collect();
    c.send(requests);
    let replies: Vec<_> = (0..6).map(|_| c.reply().to_string()).collect();
    let begins = ["+OK", UNKNOWN, "-ERR refused", "-ERR refused", "-EXECABORT", ":2"];
    for (reply, begin) in replies.iter().zip(begins) {
        assert!(reply.starts_with(begin), "{replies:?}");
    }
    // A watch that nobody keeps is refused, too, and begins nothing.
    assert!(c.ask("WATCH a").to_string().starts_with(UNKNOWN));
    c.check("INCR a", ":3");
}

#[test]
fn other_connections_and_the_next_one_are_not_concerned() {
    let server = launch().with("requirepass", "secret").start();
    let mut stranger = server.connect();
    assert!(stranger.ask("MULTI").to_string().starts_with(UNKNOWN));
    // It has begun nothing.
    stranger.check("AUTH secret", "+OK");
    let mut c = server.connect();
    c.check("AUTH secret", "+OK");
    assert!(c.ask("MULTI").to_string().starts_with(UNKNOWN));
    assert!(c.ask("SET a 1").to_string().starts_with("-ERR refused"));
    stranger.check("SET a 2", "+OK");
    c.check("QUIT", "+OK");
    c.expect_closed();
    stranger.check("GET a", "\"2\"");
}
