//! A request of a pipeline may change the checks of the following ones, although all of them arrived together: the
//! database, the protocol, rights, limits, pauses, or if replies are sent. Facts that the server has computed for a
//! pipeline in advance must be discarded then.

use tierce_harness::{Connection, Server, encode, words};

use crate::{launch, server};

/// Sends all requests at once and compares the bytes of the replies.
fn check(connection: &mut Connection, exchange: &[(&str, &str)]) {
    let requests: Vec<u8> =
        exchange.iter().flat_map(|(request, _)| encode(&words(request))).collect();
    connection.send(&requests);
    for (request, expected) in exchange {
        let got = connection.read_exactly(expected.len());
        assert_eq!(String::from_utf8_lossy(&got), *expected, "{request}");
    }
    connection.check("ECHO end", "\"end\"");
}

/// Starts a server with so many keys that the server prefetches those of a pipeline.
fn populated() -> Server {
    let server = launch().with("enable-debug-command", "yes").start();
    server.connect().check("DEBUG POPULATE 40000 filler", "+OK");
    server
}

#[test]
fn another_database() {
    for server in [server(), populated()] {
        check(
            &mut server.connect(),
            &[
                ("SET k zero", "+OK\r\n"),
                ("SELECT 1", "+OK\r\n"),
                ("GET k", "$-1\r\n"),
                ("SET k one", "+OK\r\n"),
                ("GET k", "$3\r\none\r\n"),
                ("SELECT 0", "+OK\r\n"),
                ("GET k", "$4\r\nzero\r\n"),
                ("SWAPDB 0 1", "+OK\r\n"),
                ("GET k", "$3\r\none\r\n"),
                ("MOVE k 2", ":1\r\n"),
                ("GET k", "$-1\r\n"),
                ("SELECT 2", "+OK\r\n"),
                ("GET k", "$3\r\none\r\n"),
                ("FLUSHALL", "+OK\r\n"),
                ("GET k", "$-1\r\n"),
                ("SET k two", "+OK\r\n"),
                ("GET k", "$3\r\ntwo\r\n"),
                ("SELECT 0", "+OK\r\n"),
                ("GET k", "$-1\r\n"),
            ],
        );
    }
}

#[test]
fn another_protocol() {
    check(
        &mut server().connect(),
        &[
            ("GET k", "$-1\r\n"),
            ("GET k", "$-1\r\n"),
            ("CLIENT REPLY ON", "+OK\r\n"),
            ("GET k", "$-1\r\n"),
        ],
    );
    let server = server();
    let mut connection = server.connect();
    let request = |line: &str| encode(&words(line));
    connection.send([request("GET k"), request("HELLO 3"), request("GET k")].concat());
    assert_eq!(connection.read_exactly(5), b"$-1\r\n");
    assert_eq!(connection.reply().field("proto").int(), 3);
    assert_eq!(connection.read_exactly(3), b"_\r\n");
}

#[test]
fn other_rights() {
    let server = launch().with("requirepass", "secret").start();
    let mut connection = server.connect();
    let refused = "-NOAUTH Authentication required.\r\n";
    check(
        &mut connection,
        &[
            ("SET k 1", refused),
            ("SET k 2", refused),
            ("AUTH secret", "+OK\r\n"),
            ("SET k 3", "+OK\r\n"),
            ("GET k", "$1\r\n3\r\n"),
            ("GET k", "$1\r\n3\r\n"),
        ],
    );
    let requests = ["GET k", "RESET", "GET k", "GET k", "AUTH secret", "GET k", "ECHO end"];
    connection.send(requests.map(|line| encode(&words(line))).concat());
    for expected in ["\"3\"", "+RESET", refused.trim(), refused.trim(), "+OK", "\"3\"", "\"end\""] {
        connection.expect(expected);
    }
}

#[test]
fn other_limits() {
    let oom = "-OOM command not allowed when used memory > 'maxmemory'.\r\n";
    check(
        &mut server().connect(),
        &[
            ("SET k 1", "+OK\r\n"),
            ("CONFIG SET maxmemory 1", "+OK\r\n"),
            ("SET k 2", oom),
            ("SET k 3", oom),
            ("GET k", "$1\r\n1\r\n"),
            ("CONFIG SET maxmemory 0", "+OK\r\n"),
            ("SET k 4", "+OK\r\n"),
            ("GET k", "$1\r\n4\r\n"),
        ],
    );
}

#[test]
fn a_pause() {
    let server = server();
    let (mut one, mut other) = (server.connect(), server.connect());
    let requests = ["SET k 1", "CLIENT PAUSE 100000 WRITE", "GET k", "SET k 2", "SET k 3", "GET k"];
    one.send(requests.map(|line| encode(&words(line))).concat());
    for expected in ["+OK", "+OK", "\"1\""] {
        one.expect(expected);
    }
    // These replies were sent when the rest was deferred.
    other.check("GET k", "\"1\"");
    other.check("CLIENT UNPAUSE", "+OK");
    for expected in ["+OK", "+OK", "\"3\""] {
        one.expect(expected);
    }
}

#[test]
fn no_replies() {
    check(
        &mut server().connect(),
        &[
            ("SET k 1", "+OK\r\n"),
            ("CLIENT REPLY SKIP", ""),
            ("SET k 2", ""),
            ("GET k", "$1\r\n2\r\n"),
            ("CLIENT REPLY OFF", ""),
            ("SET k 3", ""),
            ("GET k", ""),
            ("CLIENT REPLY ON", "+OK\r\n"),
            ("GET k", "$1\r\n3\r\n"),
        ],
    );
}

#[test]
fn somebody_watches() {
    let server = server();
    let mut connection = server.connect();
    let requests = ["SET k 1", "MONITOR", "SET k 2"];
    connection.send(requests.map(|line| encode(&words(line))).concat());
    connection.expect("+OK");
    connection.expect("+OK");
    let rest = [connection.reply_bytes(), connection.reply_bytes()].concat();
    let rest = String::from_utf8_lossy(&rest);
    assert!(rest.contains("\"SET\" \"k\" \"2\"") && !rest.contains("\"k\" \"1\""), "{rest}");
}

/// Equal names with more or fewer arguments, subcommands, names of equal length, and keys that are not the first
/// argument or occur several times.
#[test]
fn other_forms_of_commands() {
    let arity = "-ERR wrong number of arguments for 'get' command\r\n";
    for server in [server(), populated()] {
        check(
            &mut server.connect(),
            &[
                ("SET k value", "+OK\r\n"),
                ("GET k", "$5\r\nvalue\r\n"),
                ("GET k k", arity),
                ("get k", "$5\r\nvalue\r\n"),
                ("GET", arity),
                ("GeT k", "$5\r\nvalue\r\n"),
                ("DEL k", ":1\r\n"),
                ("GET k", "$-1\r\n"),
                ("SET k 10 EX 100", "+OK\r\n"),
                ("SET k", "-ERR wrong number of arguments for 'set' command\r\n"),
                ("SET k 100", "+OK\r\n"),
                ("OBJECT ENCODING k", "$3\r\nint\r\n"),
                ("OBJECT REFCOUNT k", ":1\r\n"),
                ("GETS k", "-ERR unknown command 'GETS', with args beginning with: 'k' \r\n"),
                ("GET k", "$3\r\n100\r\n"),
                ("RPUSH list a b", ":2\r\n"),
                ("LMPOP 1 list LEFT", "*2\r\n$4\r\nlist\r\n*1\r\n$1\r\na\r\n"),
                (
                    "LMPOP 2 k list LEFT",
                    "-WRONGTYPE Operation against a key holding the wrong kind of value\r\n",
                ),
                ("BITOP AND to k k", ":3\r\n"),
                ("GET to", "$3\r\n100\r\n"),
                ("MGET k to k", "*3\r\n$3\r\n100\r\n$3\r\n100\r\n$3\r\n100\r\n"),
                ("RENAME to k", "+OK\r\n"),
                ("EXISTS k to k", ":2\r\n"),
            ],
        );
    }
}

/// Requests of a pipeline are counted together, as far as possible.
#[test]
fn every_call_is_counted() {
    let server = server();
    let mut connection = server.connect();
    connection.check("CONFIG RESETSTAT", "+OK");
    let round = [
        encode(&["SET", "k", "1"]).repeat(100),
        encode(&["GET", "k"]).repeat(3),
        encode(&["KEYS", "*"]),
        encode(&["GET", "k", "k"]),
        encode(&["GET", "k"]),
    ]
    .concat();
    connection.send(round.repeat(10));
    for _ in 0..1060 {
        connection.reply();
    }
    let stats = connection.ask("INFO commandstats");
    for line in ["cmdstat_set:calls=1000,", "cmdstat_get:calls=40,", "cmdstat_keys:calls=10,"] {
        assert!(stats.text().contains(line), "{line} in {}", stats.text());
    }
    assert!(
        stats.text().lines().any(|line| {
            line.starts_with("cmdstat_get:") && line.contains("rejected_calls=10,")
        })
    );
    let stats = connection.ask("INFO stats");
    let processed =
        stats.text().lines().find_map(|line| line.strip_prefix("total_commands_processed:"));
    // CONFIG RESETSTAT and the first INFO are included.
    assert_eq!(processed, Some("1052"), "refused calls are none");
}
