//! Messages that a producer sends again are not added again: XADD IDMP and IDMPAUTO, as in Redis 8.6.

use rustix::process::Signal;
use tierce_harness::{Connection, Reply, Server, TempDir, wait_until};

use crate::both_protocols::raw::{check_nil, with_both};
use crate::replication::info;
use crate::{launch, program};

/// Sends a command, and returns the ID in its reply.
fn add(c: &mut Connection, line: &str) -> String {
    let reply = c.ask(line);
    let text = reply.to_string();
    assert!(text.contains('-') && !text.starts_with('-'), "{line}: {text}");
    text.trim_matches('"').to_owned()
}

/// Returns six numbers of XINFO STREAM; nothing if it does not have them.
fn numbers(c: &mut Connection, key: &str) -> String {
    const NAMES: [&str; 6] = [
        "idmp-duration",
        "idmp-maxsize",
        "pids-tracked",
        "iids-tracked",
        "iids-added",
        "iids-duplicates",
    ];
    let pairs: Vec<(String, String)> = match c.call(&["XINFO", "STREAM", key]) {
        Reply::Map(pairs) => {
            pairs.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect()
        }
        list => {
            let pairs = list.items().chunks(2);
            pairs.map(|pair| (pair[0].to_string(), pair[1].to_string())).collect()
        }
    };
    let found = NAMES.iter().filter_map(|name| {
        let pair = pairs.iter().find(|pair| pair.0.trim_matches('"') == *name)?;
        Some(pair.1.trim_matches(':').to_owned())
    });
    found.collect::<Vec<_>>().join(" ")
}

#[test]
fn a_repeated_message_has_the_id_of_the_first() {
    with_both(|c| {
        let first = add(c, "XADD s IDMP p1 m1 * total 20");
        assert_eq!(add(c, "XADD s IDMP p1 m1 * total 30"), first);
        assert_eq!(add(c, "XADD s MAXLEN 0 idmp p1 m1 * total 30"), first);
        c.check("XLEN s", ":1");
        let other = add(c, "XADD s IDMP p2 m1 * total 20");
        assert_ne!(other, first);
        assert_ne!(add(c, "XADD s KEEPREF IDMP p1 m2 MAXLEN 5 * total 20"), other);
        c.check("XLEN s", ":3");
        let by_fields = add(c, "XADD s IDMPAUTO p1 * a 1 b 2");
        assert_eq!(add(c, "XADD s IDMPAUTO p1 * b 2 a 1"), by_fields);
        assert_ne!(add(c, "XADD s IDMPAUTO p1 * a 2 b 1"), by_fields);
        assert_ne!(add(c, "XADD s IDMPAUTO p2 * a 1 b 2"), by_fields);
        assert_eq!(numbers(c, "s"), "100 100 2 6 6 3");
        check_nil(c, "XADD none NOMKSTREAM IDMP p m * a 1", "nil");
        c.check("EXISTS none", ":0");
    });
}

#[test]
fn a_stream_without_such_messages_shows_nothing() {
    with_both(|c| {
        c.check("XADD s 1-1 a 1", "\"1-1\"");
        assert_eq!(numbers(c, "s"), "");
        c.check("XCFGSET s IDMP-DURATION 7", "+OK");
        assert_eq!(numbers(c, "s"), "7 100 0 0 0 0");
    });
}

#[test]
fn deleted_and_trimmed_entries_are_known() {
    with_both(|c| {
        let first = add(c, "XADD s IDMP p m * a 1");
        c.check(&format!("XDEL s {first}"), ":1");
        assert_eq!(add(c, "XADD s IDMP p m * a 1"), first);
        let second = add(c, "XADD s IDMP p n * a 1");
        c.check("XTRIM s MAXLEN 0", ":1");
        assert_eq!(add(c, "XADD s IDMP p n * a 1"), second);
        c.check("XLEN s", ":0");
        c.check("RENAME s t", "+OK");
        assert_eq!(add(c, "XADD t IDMP p m * a 1"), first);
        c.check("COPY t u", ":1");
        assert_eq!(add(c, "XADD u IDMP p n * a 1"), second);
        c.check("DEL t", ":1");
        assert_ne!(add(c, "XADD t IDMP p m * a 1"), first);
    });
}

#[test]
fn messages_are_forgotten() {
    with_both(|c| {
        let first = add(c, "XADD s IDMP p m0 * a 1");
        assert_eq!(add(c, "XADD s IDMP p m0 * a 1"), first);
        // Limits that are set already are set again.
        c.check("XCFGSET s IDMP-DURATION 100 IDMP-MAXSIZE 100", "+OK");
        let ids: Vec<String> =
            (0..3).map(|n| add(c, &format!("XADD s IDMP p m{n} * a 1"))).collect();
        assert_ne!(ids[0], first);
        c.check("XCFGSET s IDMP-MAXSIZE 2", "+OK");
        assert_eq!(numbers(c, "s"), "100 2 0 0 4 1");
        let again: Vec<String> =
            (0..3).map(|n| add(c, &format!("XADD s IDMP p m{n} * a 1"))).collect();
        assert!(again.iter().all(|id| !ids.contains(id)), "{again:?}");
        assert_eq!(add(c, "XADD s IDMP p m2 * a 1"), again[2]);
        assert_eq!(add(c, "XADD s IDMP p m1 * a 1"), again[1]);
        assert_ne!(add(c, "XADD s IDMP p m0 * a 1"), again[0]);
        c.check("XCFGSET s IDMP-DURATION 1", "+OK");
        let first = add(c, "XADD s IDMP p m * a 1");
        wait_until("a second has passed", || add(c, "XADD s IDMP p m * a 1") != first);
    });
}

#[test]
fn directives_are_for_streams_with_their_first_message() {
    with_both(|c| {
        c.check("CONFIG SET stream-idmp-duration 7 stream-idmp-maxsize 9", "+OK");
        add(c, "XADD old IDMP p m * a 1");
        assert_eq!(numbers(c, "old"), "7 9 1 1 1 0");
        c.check("CONFIG SET stream-idmp-duration 100 stream-idmp-maxsize 100", "+OK");
        add(c, "XADD old IDMP p m * a 1");
        assert_eq!(numbers(c, "old"), "7 9 1 1 1 1");
        add(c, "XADD new IDMP p m * a 1");
        assert_eq!(numbers(c, "new"), "100 100 1 1 1 0");
    });
}

#[test]
fn wrong_calls() {
    with_both(|c| {
        const EXPLICIT: &str = "-ERR IDMP and IDMPAUTO can only be used with * as the ID";
        const EMPTY: &str = "-ERR The producer ID and the idempotent ID must not be empty";
        const TWICE: &str = "-ERR syntax error, only one of IDMP and IDMPAUTO may be given, once";
        c.check("XADD s IDMP p m 1-1 a 1", EXPLICIT);
        c.check("XADD s IDMPAUTO p 5-* a 1", EXPLICIT);
        c.check("XADD s IDMPAUTO p IDMP p m * a 1", TWICE);
        c.check("XADD s IDMP p m IDMP p m * a 1", TWICE);
        c.check("XADD s IDMP '' m * a 1", EMPTY);
        c.check("XADD s IDMP p '' * a 1", EMPTY);
        c.check("XADD s IDMPAUTO '' * a 1", EMPTY);
        c.check("XADD s IDMP p *", "-ERR wrong number of arguments for 'xadd' command");
        c.check("EXISTS s", ":0");
        c.check("XCFGSET s IDMP-DURATION 5", "-ERR no such key");
        c.check("XADD s 1-1 a 1", "\"1-1\"");
        const NOTHING: &str = "-ERR syntax error, IDMP-DURATION or IDMP-MAXSIZE must be given";
        c.check("XCFGSET s", NOTHING);
        c.check("XCFGSET s IDMP-DURATION", "-ERR syntax error");
        c.check("XCFGSET s COUNTS 1 1", "-ERR syntax error");
        for seconds in [0, 86_401, -1] {
            let error = "-ERR IDMP-DURATION must be between 1 and 86400 seconds";
            c.check(&format!("XCFGSET s IDMP-DURATION {seconds}"), error);
        }
        for number in [0, 10_001] {
            let error = "-ERR IDMP-MAXSIZE must be between 1 and 10000";
            c.check(&format!("XCFGSET s IDMP-MAXSIZE {number}"), error);
        }
        c.check("XCFGSET s IDMP-MAXSIZE x", "-ERR value is not an integer or out of range");
        c.check("SET t 1", "+OK");
        const OTHER: &str = "-WRONGTYPE Operation against a key holding the wrong kind of value";
        c.check("XCFGSET t IDMP-MAXSIZE 1", OTHER);
        c.check("XADD t IDMP p m * a 1", OTHER);
        c.check("XIDMPRECORD t p m 1-1", OTHER);
    });
}

#[test]
fn an_existing_entry_becomes_a_message() {
    with_both(|c| {
        let id = add(c, "XADD s * a 1");
        c.check(&format!("XIDMPRECORD s p m {id}"), "+OK");
        c.check(&format!("XIDMPRECORD s p m {id}"), "+OK");
        assert_eq!(add(c, "XADD s IDMP p m * a 1"), id);
        assert_eq!(numbers(c, "s"), "100 100 1 1 1 1");
        c.check("XIDMPRECORD s p n 9-9", "-ERR The stream has no entry with this ID");
        let other = add(c, "XADD s * a 1");
        let error = "-ERR The message with these IDs was added as another entry";
        c.check(&format!("XIDMPRECORD s p m {other}"), error);
        c.check("XIDMPRECORD none p m 1-1", "-ERR no such key");
        c.check(
            "XIDMPRECORD s p '' 1-1",
            "-ERR The producer ID and the idempotent ID must not be empty",
        );
        let arity = "-ERR wrong number of arguments for 'xidmprecord' command";
        c.check(&format!("XIDMPRECORD s p x {other} 1 1 1"), arity);
    });
}

/// Adds two messages, of which one entry is deleted. Returns their IDs.
fn make(c: &mut Connection) -> [String; 2] {
    let ids = [add(c, "XADD s IDMP p m1 * a 1"), add(c, "XADD s IDMPAUTO p * a 2")];
    c.check("XCFGSET other IDMP-DURATION 5", "-ERR no such key");
    c.check(&format!("XDEL s {}", ids[0]), ":1");
    ids
}

fn check(c: &mut Connection, ids: &[String; 2]) {
    assert_eq!(numbers(c, "s"), "100 100 1 2 2 0");
    assert_eq!(add(c, "XADD s IDMP p m1 * a 1"), ids[0]);
    assert_eq!(add(c, "XADD s IDMPAUTO p * a 2"), ids[1]);
    c.check("XLEN s", ":1");
}

#[test]
fn messages_survive_restarts() {
    for appendonly in ["yes", "no"] {
        let dir = TempDir::new();
        let launch =
            launch().with("appendonly", appendonly).with("dir", &dir.path().display().to_string());
        let launch = launch.with("enable-debug-command", "yes");
        let mut server = launch.start();
        let mut c = server.connect();
        let ids = make(&mut c);
        if appendonly == "no" {
            c.check("SAVE", "+OK");
        }
        server.signal(Signal::KILL);
        server.wait_for_end();
        let server = launch.start();
        let mut c = server.connect();
        check(&mut c, &ids);
        // The whole value becomes a record of the log, and is in a snapshot.
        c.check("DEBUG RELOAD", "+OK");
        assert_eq!(add(&mut c, "XADD s IDMP p m1 * a 1"), ids[0]);
    }
}

fn follow(replica: &Server, primary: &Server) -> Connection {
    let mut c = replica.connect();
    c.check(&format!("REPLICAOF 127.0.0.1 {}", primary.port()), "+OK");
    wait_until("the link is up", || info(&mut c, "master_link_status") == "up");
    c
}

#[test]
fn a_promoted_replica_knows_the_messages() {
    let launch = launch().with("repl-diskless-sync-delay", "0");
    let (primary, early, late) = (launch.start(), launch.start(), launch.start());
    let mut c = primary.connect();
    let mut early = follow(&early, &primary);
    let ids = make(&mut c);
    let mut late = follow(&late, &primary);
    for replica in [&mut early, &mut late] {
        wait_until("it has all", || replica.ask("XLEN s").to_string() == ":1");
        wait_until("it knows all", || numbers(replica, "s") == "100 100 1 2 2 0");
        replica.check("REPLICAOF NO ONE", "+OK");
        check(replica, &ids);
    }
}

#[test]
fn messages_are_exported_and_imported() {
    let scratch = TempDir::new();
    let path = |name: &str| scratch.path().join(name).display().to_string();
    let launch_in = |dir: &str| launch().with("appendonly", "yes").with("dir", dir);
    let mut server = launch_in(&path("from")).start();
    let mut c = server.connect();
    let ids = make(&mut c);
    server.signal(Signal::TERM);
    server.wait_for_end();
    for file in ["data.jsonl", "data.rdb"] {
        let to = path(&format!("{file}.dir"));
        for arguments in
            [["export", "--dir", &path("from"), &path(file)], ["import", &path(file), "--dir", &to]]
        {
            let done = std::process::Command::new(program()).args(arguments).output();
            let done = done.expect("the program");
            assert!(done.status.success(), "{arguments:?}: {done:?}");
        }
        check(&mut launch_in(&to).start().connect(), &ids);
    }
}

#[test]
fn a_repeated_message_disturbs_no_transaction() {
    with_both(|c| {
        let id = add(c, "XADD s IDMP p m * a 1");
        c.check("WATCH s", "+OK");
        assert_eq!(add(c, "XADD s IDMP p m * a 1"), id);
        c.check("MULTI", "+OK");
        c.check("XADD s IDMP p m * a 1", "+QUEUED");
        c.check("EXEC", &format!("[\"{id}\"]"));
    });
}
