//! SLOWLOG and LATENCY record slow commands and events.

use tierce_harness::{Connection, Reply, encode, wait_until};

use crate::{launch, server};

#[test]
fn slow_commands_are_logged_newest_first() {
    let server = launch().with("slowlog-log-slower-than", "0").start();
    let mut c = server.connect();
    c.check("SLOWLOG RESET", "+OK");
    c.check("CLIENT SETNAME me", "+OK");
    c.check("SET a 1", "+OK");
    c.check("GET a", "\"1\"");
    let log = c.ask("SLOWLOG GET");
    let entries = log.items();
    let shown: Vec<_> = entries.iter().map(|entry| entry.items()[3].to_string()).collect();
    assert_eq!(shown[0], "[\"GET\", \"a\"]");
    assert_eq!(shown[1], "[\"SET\", \"a\", \"1\"]");
    let entry = entries[0].items();
    assert!(entry[0].int() > entries[1].items()[0].int(), "identities grow");
    assert!(entry[1].int() > 1_700_000_000, "Unix seconds");
    assert!(entry[2].int() >= 0, "microseconds");
    assert_eq!(entry[4].text(), c.local_address());
    assert_eq!(entry[5].text(), "me");
}

#[test]
fn only_what_is_slow_enough() {
    let server = launch()
        .with("slowlog-log-slower-than", "20000")
        .with("enable-debug-command", "yes")
        .start();
    let mut c = server.connect();
    c.check("SET a 1", "+OK");
    c.check("SLOWLOG LEN", ":0");
    c.check("DEBUG SLEEP 0.03", "+OK");
    c.check("SLOWLOG LEN", ":1");
    let entry = c.ask("SLOWLOG GET").items()[0].items()[2].int();
    assert!(entry >= 30_000, "{entry}");
    c.check("CONFIG SET slowlog-log-slower-than -1", "+OK");
    c.check("DEBUG SLEEP 0.03", "+OK");
    c.check("SLOWLOG LEN", ":1");
    c.check("SLOWLOG RESET", "+OK");
    c.check("SLOWLOG LEN", ":0");
}

/// It has one entry, with its own name. The command that has served it does not count that time.
#[test]
fn a_command_that_has_waited_is_logged_when_it_is_served() {
    let server =
        launch().with("slowlog-log-slower-than", "0").with("slowlog-max-len", "10000").start();
    let (mut c, mut waiting) = (server.connect(), server.connect());
    waiting.send(encode(&["BLPOP", "k", "0"]));
    wait_until("it waits", || c.ask("INFO clients").text().contains("blocked_clients:1\r\n"));
    let of_blpop = |c: &mut Connection| {
        let log = c.ask("SLOWLOG GET -1");
        let entries = log.items().iter().map(|entry| entry.items());
        let found = entries.filter(|entry| entry[3].items()[0].text() == "BLPOP");
        found.map(|entry| entry[4].text().to_owned()).collect::<Vec<_>>()
    };
    assert!(of_blpop(&mut c).is_empty());
    c.check("RPUSH k a", ":1");
    waiting.expect(r#"["k", "a"]"#);
    assert_eq!(of_blpop(&mut c), [waiting.local_address()]);
    let stats = c.ask("INFO commandstats").text().to_owned();
    assert!(stats.contains("cmdstat_blpop:calls=1,"), "{stats}");
}

#[test]
fn the_log_is_bounded() {
    let server =
        launch().with("slowlog-log-slower-than", "0").with("slowlog-max-len", "20").start();
    let mut c = server.connect();
    (0..50).for_each(|n| drop(c.ask(&format!("SET key {n}"))));
    c.check("SLOWLOG LEN", ":20");
    assert_eq!(c.ask("SLOWLOG GET").items().len(), 10);
    assert_eq!(c.ask("SLOWLOG GET 3").items().len(), 3);
    assert_eq!(c.ask("SLOWLOG GET -1").items().len(), 20);
    c.check("SLOWLOG GET -2", "-ERR count should be greater than or equal to -1");
    c.check("CONFIG SET slowlog-max-len 5", "+OK");
    c.ask("PING");
    c.check("SLOWLOG LEN", ":5");
    // Long arguments, and many of them, are truncated.
    let many: Vec<_> =
        ["DEL".to_owned()].into_iter().chain((0..100).map(|n| n.to_string())).collect();
    c.call(&many);
    c.call(&["SET", "a", &"x".repeat(1000)]);
    let log = c.ask("SLOWLOG GET 2");
    let args = |entry: &Reply| {
        entry.items()[3].items().iter().map(|a| a.text().to_owned()).collect::<Vec<_>>()
    };
    let (set, del) = (args(&log.items()[0]), args(&log.items()[1]));
    assert!(set[2].ends_with("... (872 more bytes)"), "{set:?}");
    assert!(del.len() == 32 && del[31] == "... (70 more arguments)", "{del:?}");
}

#[test]
fn spikes_of_latency_are_kept_by_event() {
    let server = launch()
        .with("latency-monitor-threshold", "10")
        .with("enable-debug-command", "yes")
        .start();
    let mut c = server.connect();
    c.check("LATENCY LATEST", "[]");
    c.check("DEBUG SLEEP 0.03", "+OK");
    let latest = c.ask("LATENCY LATEST");
    let event = latest.items()[0].items();
    assert_eq!(event[0].text(), "command");
    assert!(event[2].int() >= 30 && event[3].int() >= event[2].int(), "{latest}");
    let history = c.ask("LATENCY HISTORY command");
    assert!(history.items()[0].items()[1].int() >= 30, "{history}");
    let said = c.ask("LATENCY DOCTOR");
    assert!(said.text().starts_with("command: 1 spikes over 10 ms"), "{said}");
    assert!(c.ask("LATENCY GRAPH command").text().contains("command"));
    c.check("LATENCY RESET command", ":1");
    c.check("LATENCY RESET", ":0");
    c.check("LATENCY HISTORY command", "[]");
    c.check("LATENCY GRAPH nosuch", "-ERR No samples available for event 'nosuch'");
}

/// Separate threads write the log, so only writes that are faster than the disk have to wait.
#[test]
fn a_write_that_waits_for_the_log_is_a_spike() {
    let server = launch()
        .with("appendonly", "yes")
        .with("appendfsync", "no")
        .with("latency-monitor-threshold", "1")
        .start();
    let mut c = server.connect();
    let value = "x".repeat(32 << 20);
    wait_until("a write has waited", || {
        c.call(&["SET", "k", &value]);
        c.ask("LATENCY LATEST").to_string().contains("\"aof-write\"")
    });
    assert!(c.ask("LATENCY HISTORY aof-write").items()[0].items()[1].int() >= 1);
    assert!(c.ask("LATENCY DOCTOR").text().contains("aof-write: "));
    assert!(c.ask("LATENCY GRAPH aof-write").text().starts_with("aof-write - worst "));
    c.check("LATENCY RESET aof-write", ":1");
}

#[test]
fn a_histogram_counts_calls() {
    let server = server();
    let mut c = server.connect_resp3();
    (0..7).for_each(|_| drop(c.ask("SET a 1")));
    let histogram = c.ask("LATENCY HISTOGRAM set");
    let set = histogram.field("set");
    assert_eq!(set.field("calls").int(), 7);
    let Reply::Map(buckets) = set.field("histogram_usec") else { panic!("{histogram}") };
    assert_eq!(buckets.last().expect("a bucket").1.int(), 7, "{histogram}");
    let mut bounds = buckets.iter().map(|(bound, calls)| (bound.int(), calls.int()));
    let mut last = bounds.next().expect("a bucket");
    for next in bounds {
        assert!(next.0 > last.0 && next.1 > last.1, "{histogram}");
        last = next;
    }
    assert_eq!(c.ask("LATENCY HISTOGRAM nosuch").to_string(), "{}");
}
