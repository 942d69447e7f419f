//! No value that CONFIG SET accepts lets a client end the server: each number is set to its smallest and largest
//! accepted value, and then commands on every type are run.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use tierce_harness::{Connection, Server};

use crate::launch;

/// Values to try for a number, from the outside in.
const LEAST: [&str; 8] =
    ["-9223372036854775808", "-2147483648", "-1000", "-1", "0", "1", "1024", "1048576"];
const GREATEST: [&str; 11] = [
    "18446744073709551615",
    "9223372036854775807",
    "9007199254740993",
    "4294967296",
    "4294967295",
    "3221225472",
    "2147483647",
    "65535",
    "1000",
    "500",
    "100",
];

/// With other values of these, the test could not reach the server, or would wait for a requested delay.
const LEFT_OUT: [&str; 10] = [
    "port",
    "tls-port",
    "memcached-port",
    "memcached-tls-port",
    "pedrokv-port",
    "pedrokv-tls-port",
    "maxclients",
    "maxmemory-clients",
    "rdb-key-save-delay",
    "key-load-delay",
];

const COMMANDS: &str = "\
SET s value|APPEND s more|SETRANGE s 100 x|GETRANGE s 0 -1|INCR n|SETBIT bits 1000 1|BITCOUNT bits|
PFADD h a b c|PFCOUNT h|EXPIRE s 1000|
RPUSH l a bb ccc 1 2 3|LPUSH l x|LINSERT l BEFORE bb y|LSET l 0 z|LRANGE l 0 -1|LMOVE l l LEFT RIGHT|
SADD i 1 2 3 4 5|SADD i 100000|SADD t a b c|SINTER i t|SUNIONSTORE u i t|SPOP u|
ZADD z 1 a 2 b 3 c|ZADD z 1.5 d|ZINCRBY z 2 a|ZRANGE z 0 -1 WITHSCORES|ZUNIONSTORE zz 1 z|
HSET k f v g w|HINCRBY k n 1|HPEXPIRE k 100000 FIELDS 1 f|HGETALL k|
XADD x 1-1 f v|XADD x 1-2 f v g w|XADD x 1-3 other v|XGROUP CREATE x grp 0|
XREADGROUP GROUP grp me STREAMS x >|XTRIM x MAXLEN 2|XRANGE x - +|GEOADD geo 13 38 p|
SORT l ALPHA|COPY l l2 REPLACE|RENAME l2 l3|SCAN 0|KEYS *|OBJECT ENCODING z|MEMORY USAGE z|
SAVE|INFO|CLIENT LIST|SLOWLOG GET|LATENCY HISTOGRAM|FLUSHALL";

/// Runs commands on a new connection. The limits may cause it to be closed.
fn run_commands(server: &Server) {
    let mut stream = TcpStream::connect(server.address()).expect("a connection");
    stream.set_read_timeout(Some(Duration::from_secs(20))).expect("a socket");
    let requests: String =
        COMMANDS.split('|').map(|command| command.trim().to_owned() + "\r\n").collect();
    // If the connection is closed, this may fail.
    let _ = stream.write_all((requests + "ECHO all-is-done\r\n").as_bytes());
    let (mut replies, mut piece) = (Vec::new(), [0; 65536]);
    loop {
        match stream.read(&mut piece) {
            Ok(0) => return,
            Ok(len) => replies.extend_from_slice(&piece[..len]),
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {
                panic!("no reply: {}", String::from_utf8_lossy(&replies))
            }
            Err(_) => return,
        }
        if replies.windows(11).any(|window| window == b"all-is-done") {
            return;
        }
    }
}

/// Returns all directives that are a number now, and their values.
fn numbers(c: &mut Connection) -> Vec<(String, String)> {
    let reply = c.ask("CONFIG GET *");
    let texts: Vec<String> = reply.items().iter().map(|item| item.text().to_owned()).collect();
    let pairs = texts.chunks_exact(2).map(|pair| (pair[0].clone(), pair[1].clone()));
    pairs
        .filter(|(name, value)| value.parse::<i64>().is_ok() && !LEFT_OUT.contains(&name.as_str()))
        .collect()
}

fn set(c: &mut Connection, name: &str, value: &str) -> bool {
    c.call(&["CONFIG", "SET", name, value]).to_string() == "+OK"
}

#[test]
fn no_accepted_number_ends_the_server() {
    let server = launch().with("appendonly", "yes").start();
    let mut tried = 0;
    let all = numbers(&mut server.connect());
    for (name, original) in &all {
        for candidates in [&LEAST[..], &GREATEST] {
            let mut c = server.connect();
            if candidates.iter().any(|value| set(&mut c, name, value)) {
                tried += 1;
                run_commands(&server);
                // It may have closed this connection, too.
                let mut c = server.connect();
                assert!(set(&mut c, name, original), "{name} {original}");
                c.check("PING", "+PONG");
            }
        }
    }
    assert!(all.len() > 60 && tried > all.len(), "{tried} of {}", all.len());
}

/// Values beyond the limit of any structure are refused, and accepted values are stored.
#[test]
fn a_value_is_never_longer_than_can_be_kept() {
    let server = launch().start();
    let mut c = server.connect();
    let refused = c.ask("CONFIG SET proto-max-bulk-len 4294967296").to_string();
    assert!(refused.contains("must be between 1048576 and 3221225472"), "{refused}");
    c.check("CONFIG SET proto-max-bulk-len 3221225472", "+OK");
    c.check(
        "SETRANGE s 4294967296 x",
        "-ERR string exceeds maximum allowed size (proto-max-bulk-len)",
    );
}
