//! A replica's messages to its primary, its processing of the stream, and its offset after a disconnect.

use tierce_harness::encode;

use super::{info, wait_for_log, wait_for_reply};
use crate::replication::fake_primary::{ID, OTHER_ID, Primary, file, stream};
use crate::replication::info as field;

#[test]
fn a_full_copy_and_then_the_stream() {
    let primary = Primary::new();
    let server = primary.replica().start();
    let mut follower = primary.give_copy(100, &[("k", "v"), ("n", "1")]);
    let mut c = server.connect();
    let commands = stream(&[
        "SET k w",
        "SELECT 2",
        "RPUSH l a b",
        "MULTI",
        "INCR n",
        "INCR n",
        "EXEC",
        "PING",
        "REPLCONF GETACK *",
    ]);
    follower.wait_for(100);
    follower.send(&commands);
    follower.wait_for(100 + commands.len() as u64);
    c.check("MGET k n", r#"["w", "1"]"#);
    c.check("SELECT 2", "+OK");
    c.check("GET n", r#""2""#);
    c.check("LRANGE l 0 -1", r#"["a", "b"]"#);
    assert_eq!(info(&mut c, "role"), "slave");
    assert_eq!(info(&mut c, "master_replid"), ID);
    assert_eq!(info(&mut c, "slave_repl_offset"), (100 + commands.len()).to_string());
    let (port, offset) = (primary.port(), 100 + commands.len());
    let role = format!(r#"["slave", "127.0.0.1", :{port}, "connected", :{offset}]"#);
    c.check("ROLE", &role);
}

#[test]
fn what_is_said_at_the_beginning() {
    let primary = Primary::new();
    let replica = primary.replica().with("masteruser", "ann").with("masterauth", "secret");
    let server =
        replica.with("replica-announce-ip", "10.0.0.9").with("replica-announce-port", "77").start();
    let mut follower = primary.accept();
    let expected = [
        "PING",
        "AUTH ann secret",
        "REPLCONF listening-port 77",
        "REPLCONF ip-address 10.0.0.9",
        "REPLCONF capa eof capa psync2",
        "PSYNC ? -1",
    ];
    for command in expected {
        assert_eq!(follower.command(), command);
        follower.send("+OK\r\n");
    }
    wait_for_log(&server, "instead of a reply to PSYNC came: +OK");
}

/// A sync for each command would be slower than the primary, which needs one for all commands of its clients
/// meanwhile.
#[test]
fn what_comes_together_is_synced_together() {
    let primary = Primary::new();
    let server = primary.replica().with("appendonly", "yes").with("appendfsync", "always").start();
    let mut c = server.connect();
    let mut follower = primary.give_copy(0, &[]);
    let commands = stream(&vec!["INCR n"; 10_000]);
    follower.send(&commands);
    follower.wait_for(commands.len() as u64);
    c.check("GET n", "\"10000\"");
    let syncs: u64 = field(&mut c, "log_syncs").parse().expect("a number");
    assert!((1..5_000).contains(&syncs), "{syncs} syncs");
}

/// Redis 7.0 allows that to clients, and newer versions do not.
#[test]
fn a_stream_goes_below_what_was_deleted() {
    let primary = Primary::new();
    let server = primary.replica().start();
    let mut c = server.connect();
    let mut follower = primary.give_copy(0, &[]);
    let commands = ["XADD s 9-6 a 1", "XADD s 9-7 a 1", "XDEL s 9-7", "XSETID s 9-6"];
    let mut commands = stream(&commands);
    commands.extend(stream(&["XADD s 9-7 a 2"]));
    follower.send(&commands);
    follower.wait_for(commands.len() as u64);
    c.check("XRANGE s 9-7 +", r#"[["9-7", ["a", "2"]]]"#);
    c.check("REPLICAOF NO ONE", "+OK");
    c.check("XDEL s 9-7", ":1");
    const REFUSED: &str =
        "-ERR The ID specified in XSETID is smaller than current max_deleted_entry_id";
    c.check("XTRIM s MAXLEN 0", ":1");
    c.check("XSETID s 9-6", REFUSED);
}

#[test]
fn a_cut_link_goes_on_where_it_was() {
    let primary = Primary::new();
    let server = primary.replica().start();
    let mut c = server.connect();
    let commands = stream(&["SET a 1", "MULTI", "INCR n", "INCR n", "EXEC", "INCR n"]);
    let ends = [
        0,
        stream(&["SET a 1"]).len(),
        stream(&["SET a 1", "MULTI", "INCR n", "INCR n", "EXEC"]).len(),
    ];
    drop(primary.give_copy(0, &[]));
    // A transaction counts from its EXEC on, and no command counts twice.
    let mut sent = 0;
    let mut cuts = vec![3, ends[1] + 5, ends[2] - 2, ends[2] + 1, commands.len()];
    cuts.dedup();
    for cut in cuts {
        let (mut follower, psync) = primary.accept_until_psync();
        let from = *ends.iter().rfind(|end| **end <= sent).expect("the beginning");
        assert_eq!(psync, format!("PSYNC {ID} {}", from + 1));
        follower.send("+CONTINUE\r\n");
        follower.send(&commands[from..cut]);
        sent = cut;
        if cut == commands.len() {
            follower.wait_for(commands.len() as u64);
        } else {
            // Sent bytes are read before the end of the connection.
            follower.stream.shutdown(std::net::Shutdown::Write).expect("an open connection");
            follower.wait_for_end();
        }
    }
    c.check("MGET a n", r#"["1", "3"]"#);
}

#[test]
fn the_selected_database_outlasts_a_link() {
    let primary = Primary::new();
    let server = primary.replica().start();
    let (mut follower, _) = primary.accept_until_psync();
    // A replica with replicas also sends the database that its primary has selected.
    let mut copy = file(&[]);
    copy.splice(9..9, *b"\xfa\x0erepl-stream-db\x012");
    follower.send(format!("+FULLRESYNC {ID} 0\r\n"));
    follower.send_file(&copy);
    let pieces = ["SET two 1", "SELECT 3", "MULTI", "SELECT 4", "SET four 1", "EXEC", "SET four 2"];
    let cuts = [1, 2, 6, 7].map(|count| stream(&pieces[..count]).len());
    let mut sent = 0;
    for cut in cuts {
        follower.send(&stream(&pieces)[sent..cut]);
        follower.stream.shutdown(std::net::Shutdown::Write).expect("an open connection");
        follower.wait_for_end();
        sent = cut;
        let (next, psync) = primary.accept_until_psync();
        assert_eq!(psync, format!("PSYNC {ID} {}", sent + 1));
        follower = next;
        follower.send("+CONTINUE\r\n");
    }
    let mut c = server.connect();
    for (db, key, value) in [(2, "two", "1"), (4, "four", "2")] {
        c.check(&format!("SELECT {db}"), "+OK");
        c.check(&format!("GET {key}"), &format!("{value:?}"));
    }
}

#[test]
fn a_stream_goes_on_in_the_database_that_was_selected() {
    let primary = Primary::new();
    let server = primary.replica().start();
    let mut follower = primary.give_copy(1, &[]);
    let select = encode(&["SELECT", "3"]);
    follower.send(&select);
    follower.wait_for(1 + select.len() as u64);
    drop(follower);
    let (mut follower, psync) = primary.accept_until_psync();
    assert_eq!(psync, format!("PSYNC {ID} {}", 2 + select.len()));
    follower.send("+CONTINUE\r\n");
    let change = encode(&["SET", "k", "v"]);
    follower.send(&change);
    follower.wait_for((1 + select.len() + change.len()) as u64);
    let mut c = server.connect();
    c.check("SELECT 3", "+OK");
    c.check("GET k", r#""v""#);
}

/// Later commands went to the database that was selected before.
#[test]
fn a_stream_of_a_database_that_is_not_here_ends() {
    for commands in [
        &["SELECT 4", "SET a 2", "SET b 1"][..],
        &["MULTI", "SELECT 4", "SET a 2", "EXEC"],
        &["SELECT x", "SET a 2"],
    ] {
        let primary = Primary::new();
        let server = primary.replica().with("databases", "4").start();
        let mut client = server.connect();
        let mut follower = primary.give_copy(0, &[("a", "1")]);
        follower.send(stream(&["SELECT 3", "SET c 1"]));
        follower.send(stream(commands));
        wait_for_log(
            &server,
            "which this server does not have (databases). Asking for a full copy",
        );
        let (_, psync) = primary.accept_until_psync();
        assert_eq!(psync, "PSYNC ? -1", "{commands:?}");
        for db in 0..4 {
            client.check(&format!("SELECT {db}"), "+OK");
            let expected = if db == 0 { "\"1\"" } else { "nil" };
            client.check("GET a", expected);
        }
    }
}

#[test]
fn a_stream_may_be_renamed() {
    let primary = Primary::new();
    let server = primary.replica().start();
    drop(primary.give_copy(7, &[("k", "v")]));
    let (mut follower, psync) = primary.accept_until_psync();
    assert_eq!(psync, format!("PSYNC {ID} 8"));
    follower.send(format!("+CONTINUE {OTHER_ID}\r\n"));
    follower.wait_for(7);
    drop(follower);
    let (_, psync) = primary.accept_until_psync();
    assert_eq!(psync, format!("PSYNC {OTHER_ID} 8"));
    server.connect().check("GET k", r#""v""#);
}

#[test]
fn nonsense_in_the_stream_ends_the_link_and_not_the_server() {
    let primary = Primary::new();
    let server = primary.replica().start();
    let mut c = server.connect();
    let mut follower = primary.give_copy(1, &[("k", "v")]);
    let nonsense: [&[u8]; 4] = [
        b"*1\r\nx\r\n",
        b"*99999999999\r\n",
        b"*1\r\n$-5\r\n",
        b"*2\r\n$3\r\nGET\r\n$99999999999\r\n",
    ];
    for bytes in nonsense {
        follower.send(bytes);
        follower.wait_for_end();
        c.check("GET k", r#""v""#);
        let (next, psync) = primary.accept_until_psync();
        assert_eq!(psync, format!("PSYNC {ID} 2"));
        follower = next;
        follower.send("+CONTINUE\r\n");
    }
    wait_for_log(&server, "at offset 1 of the stream there is no command");
    // An unknown command is logged, and later ones are applied.
    let commands = stream(&["NOSUCHCOMMAND 1", "SET k w"]);
    follower.send(&commands);
    follower.wait_for(1 + commands.len() as u64);
    c.check("GET k", r#""w""#);
    wait_for_log(&server, "The primary's command NOSUCHCOMMAND in database 0 failed here");
}

/// This happened when a redis-server had a key that is too long here. A copy has that key as well.
#[test]
fn what_a_full_copy_would_have_as_well_does_not_end_the_link() {
    let primary = Primary::new();
    let server = primary.replica().start();
    let mut c = server.connect();
    let mut follower = primary.give_copy(0, &[("k", "v")]);
    let mut commands = encode(&["SET", "k".repeat(70_000).as_str(), "v"]);
    commands.extend(stream(&["COPY k l DB 99", "RESTORE l 0 nonsense", "SET k w"]));
    follower.send(&commands);
    follower.wait_for(commands.len() as u64);
    c.check("GET k", r#""w""#);
    c.check("DBSIZE", ":1");
    assert_eq!(field(&mut c, "unexpected_error_replies"), "3");
    // An error that a copy can repair, if it can be loaded.
    follower.send(stream(&["LPUSH k a"]));
    let (mut follower, psync) = primary.accept_until_psync();
    assert_eq!(psync, "PSYNC ? -1");
    follower.send(format!("+FULLRESYNC {ID} 100000\r\n"));
    follower.send_file(b"no file at all");
    wait_for_log(&server, "The next full copy is asked for in ");
    c.check("GET k", r#""w""#);
}

#[test]
fn a_silent_primary_is_left() {
    let primary = Primary::new();
    let server = primary.replica().start();
    let mut follower = primary.give_copy(1, &[("k", "v")]);
    follower.wait_for(1);
    // It applies to the current link.
    server.connect().check("CONFIG SET repl-timeout 1", "+OK");
    follower.wait_for_end();
    wait_for_log(&server, "nothing came for 1 s (repl-timeout)");
    let (_, psync) = primary.accept_until_psync();
    assert_eq!(psync, format!("PSYNC {ID} 2"));
}

#[test]
fn a_primary_decides_what_expires() {
    let primary = Primary::new();
    let server = primary.replica().start();
    let mut c = server.connect();
    let mut follower = primary.give_copy(0, &[]);
    // The deadline of the key is already in the past.
    let first = stream(&["SET k v PXAT 1000", "SET other w"]);
    follower.send(&first);
    follower.wait_for(first.len() as u64);
    c.check("MGET k other", r#"[nil, "w"]"#);
    c.check("EXISTS k", ":0");
    c.check("KEYS *", r#"["other"]"#);
    c.check("DBSIZE", ":2");
    // On the primary, the key existed when it executed this.
    let second = stream(&["PERSIST k", "APPEND k w"]);
    follower.send(&second);
    follower.wait_for((first.len() + second.len()) as u64);
    c.check("GET k", r#""vw""#);
    // A primary removes expired keys on its own.
    let third = stream(&["PEXPIREAT k 1000"]);
    follower.send(&third);
    follower.wait_for((first.len() + second.len() + third.len()) as u64);
    c.check("DBSIZE", ":2");
    c.check("REPLICAOF NO ONE", "+OK");
    wait_for_reply(&mut c, "DBSIZE", ":1");
}

/// A redis-server sends no DEL before a RESTORE, and old versions send relative times.
#[test]
fn a_write_to_a_key_past_its_deadline_leaves_one_entry() {
    let primary = Primary::new();
    let server = primary.replica().start();
    let mut c = server.connect();
    let mut follower = primary.give_copy(0, &[("other", "new")]);
    follower.wait_for(0);
    let payload = c.call(&["DUMP", "other"]).bytes().to_vec();
    let writes: [&[&[u8]]; 7] = [
        &[b"RESTORE", b"k", b"0", &payload, b"REPLACE"],
        &[b"RESTORE", b"k", b"100000", &payload, b"REPLACE"],
        &[b"SET", b"k", b"new", b"EX", b"100"],
        &[b"SET", b"k", b"new", b"XX", b"PX", b"100000"],
        &[b"SETEX", b"k", b"100", b"new"],
        &[b"PSETEX", b"k", b"100000", b"new"],
        &[b"SET", b"k", b"new"],
    ];
    let mut offset = 0;
    let mut send = |bytes: &[u8]| {
        follower.send(bytes);
        offset += bytes.len() as u64;
        follower.wait_for(offset);
    };
    for write in writes {
        send(&stream(&["SET k old PXAT 1000"]));
        send(&encode(write));
        c.check("GET k", r#""new""#);
        c.check("DBSIZE", ":2");
        send(&stream(&["DEL k"]));
        c.check("EXISTS k", ":0");
        c.check("DBSIZE", ":1");
    }
    // Without REPLACE it is refused, as in Redis: the key still exists.
    send(&stream(&["SET k old PXAT 1000"]));
    follower.send(encode::<&[u8]>(&[b"RESTORE", b"k", b"0", &payload]));
    wait_for_log(&server, "RESTORE of key k in database 0 failed here");
    wait_for_log(&server, "BUSYKEY");
    primary.give_copy(0, &[]).wait_for(0);
    c.check("DBSIZE", ":0");
}

#[test]
fn times_from_now_count_in_transactions_as_well() {
    let commands = [
        ["SET a v", "PEXPIRE a 100000"],
        ["SET b v", "EXPIRE b 100"],
        ["SET c v", "GETEX c EX 100"],
        ["SET d v PX 100000", "SETEX e 100 v"],
    ];
    let primary = Primary::new();
    let server = primary.replica().start();
    let mut c = server.connect();
    let mut follower = primary.give_copy(0, &[]);
    let mut offset = 0;
    for [first, second] in commands {
        let transaction = stream(&["MULTI", first, second, "EXEC"]);
        offset += transaction.len() as u64;
        follower.send(&transaction);
    }
    follower.wait_for(offset);
    for key in ["a", "b", "c", "d", "e"] {
        c.check(&format!("GET {key}"), r#""v""#);
        let left_ms = c.call(&["PTTL", key]).int();
        assert!((1..=100_000).contains(&left_ms), "{key}: {left_ms}");
    }
}
