//! More clients than the limit of open files allows.

use tierce_harness::{Connection, TempDir, free_port, wait_until};

use crate::launch;

const FILES: u64 = 160;

/// Connections of `maxclients` that are reserved for memcached's protocols.
const KEPT_FOR_MEMCACHED: u64 = 4;

#[test]
fn clients_leave_the_log_its_files() {
    let (dir, port) = (TempDir::new(), free_port());
    let unix = dir.path().join("tierce.sock");
    let server = launch()
        .files_max(FILES)
        .with("threads", "1")
        .with("appendonly", "yes")
        .with("unixsocket", unix.to_str().expect("UTF-8"))
        .with("memcached-port", &port.to_string())
        .start();
    let mut first = server.connect();
    let maxclients: u64 = first.ask("CONFIG GET maxclients").items()[1].text().parse().unwrap();
    assert!((FILES - 48..FILES - 32).contains(&maxclients), "{maxclients}");
    let memcached = ([127, 0, 0, 1], port).into();
    // Two waves: connections of the first one that linger count in the second.
    for _ in 0..2 {
        let storm: Vec<Connection> = (0..FILES)
            .flat_map(|_| [server.connect(), Connection::unix(&unix), Connection::tcp(memcached)])
            .collect();
        // When the last one has been handled, all of them have.
        let mut last = server.connect();
        assert_eq!(last.rest(), b"-ERR max number of clients reached\r\n");
        first.check("SET a 1", "+OK");
        first.check("SAVE", "+OK");
        let before = passes(&mut first);
        first.check("BGREWRITEAOF", "+Background append only file rewriting started");
        wait_until("the log is compacted", || passes(&mut first) > before);
        first.check("SET a 2", "+OK");
        let figures = first.ask("INFO").text().to_owned();
        let connected: u64 = figure(&figures, "connected_clients:");
        // The last clients may be within `maxclients` but get no descriptors.
        assert!((maxclients - KEPT_FOR_MEMCACHED..=maxclients).contains(&connected), "{connected}");
        for line in ["aof_last_write_status:ok\r\n", "aof_last_bgrewrite_status:ok\r\n"] {
            assert!(figures.contains(line), "no {line}: {figures}");
        }
        drop(storm);
        wait_until("they have gone", || {
            first.ask("INFO clients").text().contains("connected_clients:1\r\n")
        });
    }
}

/// Returns the number of compactions of the log.
fn passes(c: &mut Connection) -> u64 {
    let figures = c.ask("INFO persistence").text().to_owned();
    figure(&figures, "aof_rewrites:")
}

fn figure(figures: &str, name: &str) -> u64 {
    let line = figures.lines().find_map(|line| line.strip_prefix(name));
    line.expect("the figure").parse().expect("a number")
}

#[test]
fn a_limit_that_leaves_no_room_is_told_at_the_start() {
    let port = free_port().to_string();
    let outcome = launch().files_max(40).with("threads", "1").with("port", &port).run();
    assert_eq!(outcome.code, Some(1));
    assert!(outcome.errors.contains("ulimit -n must be 45 or more"), "{}", outcome.errors);
}
