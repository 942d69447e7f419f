//! A replica's request after a restart: the rest of the stream if its log or snapshot has an offset, otherwise a
//! copy.

use tierce_harness::{Launch, Server, TempDir, encode, wait_until};

use crate::launch;
use crate::replication::fake_primary::{ID, Primary, file, file_that_says};

/// Makes a launch of a replica with its own data directory, which the test keeps.
fn kept(primary: &Primary, dir: &TempDir) -> Launch {
    let dir = dir.path().display().to_string();
    primary.replica().with("dir", &dir).with("appendonly", "yes")
}

/// Ends a server by a shutdown, or at once.
#[track_caller]
fn end(mut server: Server, at_once: bool) {
    if at_once {
        server.signal(rustix::process::Signal::KILL);
    } else {
        server.signal(rustix::process::Signal::TERM);
    }
    server.wait_for_end();
}

#[test]
fn a_replica_goes_on_where_its_log_ends() {
    for at_once in [false, true] {
        let (primary, dir) = (Primary::new(), TempDir::new());
        let server = kept(&primary, &dir).start();
        let mut follower = primary.give_copy(100, &[("n", "5"), ("k", "v")]);
        follower.wait_for(100);
        // The offset of an unchanged stream.
        end(server, at_once);
        let server = kept(&primary, &dir).start();
        let (mut follower, psync) = primary.accept_until_psync();
        assert_eq!(psync, format!("PSYNC {ID} 101"));
        follower.send("+CONTINUE\r\n");
        let select = encode(&["SELECT", "3"]);
        let change = encode(&["INCR", "n"]);
        let transaction = [
            encode(&["MULTI"]),
            encode(&["SELECT", "4"]),
            encode(&["LPUSH", "l", "a"]),
            encode(&["INCR", "n"]),
            encode(&["EXEC"]),
        ]
        .concat();
        let stream = [select, change.clone(), transaction].concat();
        follower.send(&stream);
        let offset = 100 + stream.len() as u64;
        follower.wait_for(offset);
        let mut c = server.connect();
        // The log is compacted, and the offset stays.
        c.check("BGREWRITEAOF", "+Background append only file rewriting started");
        end(server, at_once);
        let server = kept(&primary, &dir).start();
        let (mut follower, psync) = primary.accept_until_psync();
        assert_eq!(psync, format!("PSYNC {ID} {}", offset + 1), "at_once: {at_once}");
        follower.send("+CONTINUE\r\n");
        // In the database that was selected last.
        follower.send(&change);
        follower.wait_for(offset + change.len() as u64);
        let mut c = server.connect();
        for (db, n) in [(0, "5"), (3, "1"), (4, "2")] {
            c.check(&format!("SELECT {db}"), "+OK");
            c.check("GET n", &format!("{n:?}"));
        }
        c.check("LRANGE l 0 -1", r#"["a"]"#);
    }
}

/// A script is rolled back and comes again. A transaction has changed more, and is not executed twice.
#[test]
fn a_script_of_the_primary_that_a_shutdown_ends_is_not_lost() {
    const SCRIPT: &str = "redis.call('INCR', 'n') redis.call('SET', 'begun', 1) while true do end";
    let begins = [SCRIPT, "while true do end"].map(|script| encode(&["EVAL", script, "1", "n"]));
    let commands = |script: &[u8], is_in_transaction: bool| match is_in_transaction {
        false => script.to_vec(),
        true => [&encode(&["MULTI"]), &encode(&["INCR", "n"]), script, &encode(&["EXEC"])].concat(),
    };
    for (script, is_in_transaction) in [(&begins[0], false), (&begins[1], true)] {
        let (primary, dir) = (Primary::new(), TempDir::new());
        let server = kept(&primary, &dir).with("busy-reply-threshold", "1").start();
        let mut follower = primary.give_copy(100, &[("n", "5")]);
        follower.wait_for(100);
        follower.send(commands(script, is_in_transaction));
        let mut c = server.connect();
        wait_until("it runs", || c.ask("GET n").to_string().starts_with("-BUSY"));
        end(server, false);
        let server = kept(&primary, &dir).start();
        let (_follower, psync) = primary.accept_until_psync();
        let expected = match is_in_transaction {
            false => format!("PSYNC {ID} 101"),
            true => "PSYNC ? -1".to_owned(),
        };
        assert_eq!(psync, expected);
        if !is_in_transaction {
            server.connect().check("MGET n begun", r#"["5", nil]"#);
        }
    }
}

/// Its deadline came between the snapshot and the start. Only the stream says when it is deleted.
#[test]
fn a_key_of_a_place_in_a_stream_is_loaded_behind_its_deadline() {
    let (primary, dir) = (Primary::new(), TempDir::new());
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("a clock");
    let written = (now.as_secs() - 100).to_string();
    let remarks = [("ctime", &*written), ("repl-id", ID), ("repl-offset", "100")];
    let mut snapshot = file_that_says(&remarks, &[("k", "v")]);
    // The key with its type and value, and the end.
    let key = snapshot.split_off(snapshot.len() - 5 - 9);
    snapshot.push(0xfc);
    let deadline_ms = u64::try_from(now.as_millis()).expect("a time") - 10_000;
    snapshot.extend([&deadline_ms.to_le_bytes()[..], &key].concat());
    std::fs::write(dir.path().join("dump.rdb"), snapshot).expect("written");
    let server = primary.replica().with("dir", &dir.path().display().to_string()).start();
    let (_follower, psync) = primary.accept_until_psync();
    assert_eq!(psync, format!("PSYNC {ID} 101"));
    server.connect().check("DBSIZE", ":1");
}

/// Data that a start has left out would never be replicated.
#[test]
fn a_snapshot_that_is_not_loaded_whole_has_no_place() {
    for (engine, expected) in [("lua", format!("PSYNC {ID} 101")), ("js", "PSYNC ? -1".into())] {
        let (primary, dir) = (Primary::new(), TempDir::new());
        let mut snapshot =
            file_that_says(&[("repl-id", ID), ("repl-offset", "100")], &[("k", "v")]);
        let library = format!("#!{engine} name=l\nredis.register_function('f', function() end)");
        let rest = snapshot.split_off(9);
        snapshot.extend([0xf5, u8::try_from(library.len()).expect("a short one")]);
        snapshot.extend([library.as_bytes(), &rest].concat());
        std::fs::write(dir.path().join("dump.rdb"), snapshot).expect("written");
        let launch = primary.replica().with("dir", &dir.path().display().to_string());
        let server = launch.with("skip-unsupported", "yes").start();
        let (_follower, psync) = primary.accept_until_psync();
        assert_eq!(psync, expected, "{engine}");
        server.connect().check("GET k", "\"v\"");
    }
}

#[test]
fn data_that_are_no_longer_those_of_the_stream_are_copied_again() {
    let (primary, dir) = (Primary::new(), TempDir::new());
    let server = kept(&primary, &dir).start();
    primary.give_copy(100, &[("k", "v")]).wait_for(100);
    let mut c = server.connect();
    c.check("REPLICAOF NO ONE", "+OK");
    c.check("SET k mine", "+OK");
    end(server, true);
    // It reports the role of a replica, but its data are its own.
    let server = kept(&primary, &dir).start();
    let (mut follower, psync) = primary.accept_until_psync();
    assert_eq!(psync, "PSYNC ? -1");
    follower.send(format!("+FULLRESYNC {ID} 200\r\n"));
    follower.send_file(&file(&[("k", "w")]));
    follower.wait_for(200);
    end(server, true);
    // As a primary in between, without a change.
    let own = launch().with("dir", &dir.path().display().to_string()).with("appendonly", "yes");
    let server = own.start();
    server.connect().check("GET k", r#""w""#);
    end(server, true);
    let _server = kept(&primary, &dir).start();
    assert_eq!(primary.accept_until_psync().1, "PSYNC ? -1");
}

#[test]
fn a_log_that_was_off_meanwhile_has_the_place_again() {
    let (primary, dir) = (Primary::new(), TempDir::new());
    let server = kept(&primary, &dir).start();
    let mut follower = primary.give_copy(100, &[("n", "5")]);
    follower.wait_for(100);
    let mut c = server.connect();
    c.check("CONFIG SET appendonly no", "+OK");
    let change = encode(&["INCR", "n"]);
    follower.send(&change);
    follower.wait_for(100 + change.len() as u64);
    c.check("CONFIG SET appendonly yes", "+OK");
    wait_until("the new log counts", || {
        c.ask("INFO persistence").text().contains("aof_rewrite_in_progress:0")
    });
    end(server, true);
    let server = kept(&primary, &dir).start();
    let offset = 100 + change.len();
    assert_eq!(primary.accept_until_psync().1, format!("PSYNC {ID} {}", offset + 1));
    server.connect().check("GET n", r#""6""#);
}
