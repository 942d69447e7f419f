//! Every client has its limits; a client that exceeds one loses its connection, and no other client does.

use std::io::Write;

use tierce_harness::{Connection, TempDir, encode, free_port, wait_until};

use crate::{launch, server};

#[test]
fn maxclients() {
    let server = launch().with("maxclients", "5").start();
    let mut clients: Vec<_> = (0..5).map(|_| server.connect()).collect();
    clients.iter_mut().for_each(|c| c.check("PING", "+PONG"));
    let mut sixth = server.connect();
    assert_eq!(sixth.rest(), b"-ERR max number of clients reached\r\n");
    clients.iter_mut().for_each(|c| c.check("PING", "+PONG"));
    let stats = clients[0].ask("INFO stats").text().to_owned();
    assert!(stats.contains("rejected_connections:1\r\n"), "{stats}");
    assert!(stats.contains("rejected_connections_maxclients:1\r\n"), "{stats}");
    clients[0].check("CONFIG SET maxclients 6", "+OK");
    server.connect().check("PING", "+PONG");
    drop(clients.pop());
    wait_until("a place is free", || {
        let mut c = server.connect();
        c.try_send("PING\r\n").is_ok() && c.reply_or_rest() == b"+PONG\r\n"
    });
}

/// Silent clients of another protocol cannot take the connections of clients that would close them.
#[test]
fn a_crowd_of_one_protocol_leaves_places_for_the_others() {
    const PLACES: usize = 40;
    // Four for each protocol, and as many for local clients that speak RESP.
    const KEPT_FOR_RESP: usize = 8;
    const CROWD: usize = 60;
    let port = free_port();
    let server = launch()
        .with("maxclients", &PLACES.to_string())
        .with("memcached-port", &port.to_string())
        .start();
    let mut first = server.connect();
    first.check("PING", "+PONG");
    let memcached = ([127, 0, 0, 1], port).into();
    let mut crowd: Vec<_> = (0..CROWD).map(|_| Connection::tcp(memcached)).collect();
    let (admitted, refused) = (PLACES - KEPT_FOR_RESP, CROWD - (PLACES - KEPT_FOR_RESP));
    wait_until("all have been looked at", || {
        info(&mut first, "rejected_connections_maxclients") == refused
    });
    assert_eq!(info(&mut first, "connected_clients"), 1 + admitted);
    assert_eq!(crowd.pop().expect("the last").rest(), b"ERROR Too many open connections\r\n");
    let mut administrators: Vec<_> = (1..KEPT_FOR_RESP).map(|_| server.connect()).collect();
    administrators.iter_mut().for_each(|c| c.check("PING", "+PONG"));
    assert_eq!(server.connect().rest(), b"-ERR max number of clients reached\r\n");
    drop(crowd);
    wait_until("they have gone", || info(&mut first, "connected_clients") == KEPT_FOR_RESP);
    Connection::tcp(memcached).send("quit\r\n");
    server.connect().check("PING", "+PONG");
}

/// Opens connections until one is refused, and returns the error. The server's own figures show which one was
/// refused, so the speed of the machine makes no difference.
fn refused_for_haste(admin: &mut Connection, connect: impl Fn() -> Connection) -> Vec<u8> {
    loop {
        let seen = |admin: &mut Connection| {
            info(admin, "total_connections_received")
                + info(admin, "rejected_connections_per_address")
        };
        let (seen_before, refused) = (seen(admin), info(admin, "rejected_connections_per_address"));
        let mut c = connect();
        wait_until("it has been looked at", || seen(admin) > seen_before);
        if info(admin, "rejected_connections_per_address") > refused {
            return c.rest();
        }
    }
}

#[test]
fn an_address_that_opens_connections_too_fast_is_refused_until_it_slows_down() {
    let (dir, ports) = (TempDir::new(), [free_port(), free_port(), free_port()]);
    let unix = dir.path().join("tierce.sock");
    let server = launch()
        .with("max-new-connections-per-address", "2")
        .with("unixsocket", unix.to_str().expect("UTF-8"))
        .with("memcached-port", &ports[0].to_string())
        .with("pedrokv-port", &ports[1].to_string())
        .with("tls-port", &ports[2].to_string())
        .with_certificates()
        .start();
    // Clients on the Unix socket are not limited.
    let mut admin = Connection::unix(&unix);
    (0..50).for_each(|_| Connection::unix(&unix).check("PING", "+PONG"));
    let at = |port: u16| move || Connection::tcp(([127, 0, 0, 1], port).into());
    for (port, told) in [
        (server.port(), &b"-ERR max number of new connections per second reached\r\n"[..]),
        (ports[0], b"ERROR Too many new connections\r\n"),
        (ports[1], b"\0\x20\x01\0\0\0\0err: connections too fast"),
        // No protocol is agreed on yet, and no handshake has begun.
        (ports[2], b""),
    ] {
        assert_eq!(
            refused_for_haste(&mut admin, at(port)).escape_ascii().to_string(),
            told.escape_ascii().to_string()
        );
    }
    let refused = info(&mut admin, "rejected_connections_per_address");
    assert_eq!(info(&mut admin, "rejected_connections"), refused);
    wait_until("the log tells of it", || {
        server.output().contains("max-new-connections-per-address")
    });
    wait_until("there is a connection for it again", || {
        let mut c = server.connect();
        c.try_send("PING\r\n").is_ok() && c.reply_or_rest() == b"+PONG\r\n"
    });
    admin.check("CONFIG SET max-new-connections-per-address 0", "+OK");
    (0..50).for_each(|_| server.connect().check("PING", "+PONG"));
}

#[test]
fn idle_clients_are_closed_after_the_timeout() {
    let server = server();
    let (mut idle, mut busy) = (server.connect(), server.connect());
    idle.check("PING", "+PONG");
    busy.check("CONFIG SET timeout 1", "+OK");
    let mut late = server.connect();
    late.check("PING", "+PONG");
    let mut watcher = server.connect();
    watcher.check("MONITOR", "+OK");
    wait_until("the idle ones are gone", || {
        let list = busy.ask("CLIENT LIST");
        let left = list.text().lines().count();
        assert!(left >= 2, "those who work or watch stay: {list}");
        left == 2
    });
    idle.expect_closed();
    late.expect_closed();
    assert_eq!(info(&mut busy, "idle_timeout_disconnections"), 2);
    busy.check("CONFIG SET timeout 0", "+OK");
}

#[test]
fn a_request_larger_than_the_query_buffer_limit() {
    let server = launch().with("client-query-buffer-limit", "1mb").start();
    let mut other = server.connect();
    let mut c = server.connect();
    let small = encode(&[&b"SET"[..], b"small", &vec![b'x'; 900_000]]);
    c.send(&small);
    c.expect("+OK");
    // Many small ones do not count as a large one.
    c.send(small.repeat(3));
    (0..3).for_each(|_| c.expect("+OK"));
    let large = encode(&[&b"SET"[..], b"large", &vec![b'x'; 4 << 20]]);
    // The server may close before it has received everything.
    let _ = c.try_send(&large);
    let told = b"-ERR request exceeds client-query-buffer-limit\r\n";
    assert_eq!(c.rest(), told);
    other.check("EXISTS small large", ":1");
    // The commands that MULTI queues count like one request.
    let mut c = server.connect();
    c.check("MULTI", "+OK");
    c.send(small.repeat(2));
    c.expect("+QUEUED");
    assert_eq!(c.rest(), told);
    assert_eq!(info(&mut other, "client_query_buffer_limit_disconnections"), 2);
}

#[test]
fn an_argument_larger_than_proto_max_bulk_len() {
    let server = launch().with("proto-max-bulk-len", "1mb").start();
    let mut c = server.connect();
    let fits = encode(&[&b"SET"[..], b"a", &vec![b'x'; 1 << 20]]);
    c.send(fits);
    c.expect("+OK");
    let too_long = "-ERR string exceeds maximum allowed size (proto-max-bulk-len)";
    c.check("APPEND a x", too_long);
    c.check("SETRANGE a 1048576 x", too_long);
    c.check("SETRANGE a 9223372036854775807 x", too_long);
    c.check("STRLEN a", ":1048576");
    c.send("*3\r\n$3\r\nSET\r\n$1\r\na\r\n$1048577\r\n");
    assert_eq!(c.rest(), b"-ERR Protocol error: invalid bulk length\r\n");
    let mut c = server.connect();
    assert_eq!(info(&mut c, "request_size_limit_errors"), 1);
}

/// One limit refuses each of these requests and counts it. Invalid requests are not counted.
#[test]
fn what_is_refused_is_counted_by_its_limit() {
    let port = free_port();
    let server =
        launch().with("requirepass", "secret").with("memcached-port", &port.to_string()).start();
    let mut admin = server.connect();
    admin.check("AUTH secret", "+OK");
    for (request, counter) in [
        ("*2147483648\r\n", "request_arguments_limit_errors"),
        ("*11\r\n", "request_arguments_limit_errors"),
        ("*1\r\n$16385\r\n", "request_size_limit_errors"),
        ("*1\r\n$536870913\r\n", "request_size_limit_errors"),
        ("*1\r\n:1\r\n", ""),
    ] {
        let figures = |admin: &mut Connection| {
            ["request_arguments_limit_errors", "request_size_limit_errors"]
                .map(|name| info(admin, name) - usize::from(name == counter))
        };
        let before = ["request_arguments_limit_errors", "request_size_limit_errors"]
            .map(|name| info(&mut admin, name));
        let mut c = server.connect();
        c.send(request);
        assert!(c.rest().starts_with(b"-ERR Protocol error: "), "{request:?}");
        assert_eq!(figures(&mut admin), before, "{request:?}");
    }
    let before = info(&mut admin, "request_size_limit_errors");
    let mut c = Connection::tcp(([127, 0, 0, 1], port).into());
    c.send("set a 0 0 14\r\ndefault secret\r\n");
    assert_eq!(c.read_exactly(8), b"STORED\r\n");
    c.send(["set k 0 0 1048577\r\n", &"x".repeat(1 << 20), "x\r\n"].concat());
    c.send("quit\r\n");
    assert_eq!(c.rest(), b"SERVER_ERROR object too large for cache\r\n");
    assert_eq!(info(&mut admin, "request_size_limit_errors"), before + 1);
    let too_deep = admin.call(&["EVAL", "local t = {} t[1] = t return t", "0"]);
    assert!(too_deep.to_string().contains("reached lua stack limit"), "{too_deep}");
    assert_eq!(info(&mut admin, "nesting_limit_errors"), 1);
}

/// Sends requests and reads nothing until the server closes the connection.
fn never_read(c: &Connection, request: &[u8], times: usize) {
    let mut sender = c.sender();
    for _ in 0..times {
        if sender.write_all(request).is_err() {
            return;
        }
    }
}

#[test]
fn who_never_reads_is_cut_off_at_the_hard_limit() {
    let server = launch().with("client-output-buffer-limit", "normal 4mb 0 0").start();
    let mut other = server.connect();
    other.call(&[&b"SET"[..], b"large", &vec![b'x'; 1 << 20]]);
    let before = server.resident_bytes();
    let mut c = server.connect();
    let id = c.ask("CLIENT ID").int();
    never_read(&c, &encode(&["GET", "large"]), 1000);
    wait_until("the connection ends", || {
        !other.ask("CLIENT LIST").text().contains(&format!("id={id} "))
    });
    let grown = server.resident_bytes().saturating_sub(before);
    assert!(grown < 64 << 20, "{grown} bytes");
    let received = c.rest().len();
    assert!(received < 500 << 20, "{received} bytes");
    other.check("PING", "+PONG");
    let stats = other.ask("INFO stats").text().to_owned();
    assert!(stats.contains("client_output_buffer_limit_disconnections:1\r\n"), "{stats}");
}

#[test]
fn who_never_reads_is_cut_off_after_the_soft_limit() {
    let server = launch().with("client-output-buffer-limit", "normal 0 1mb 1").start();
    let mut other = server.connect();
    other.call(&[&b"SET"[..], b"large", &vec![b'x'; 1 << 20]]);
    let mut c = server.connect();
    let id = c.ask("CLIENT ID").int();
    c.send(encode(&["GET", "large"]).repeat(20));
    wait_until("the connection ends", || {
        !other.ask("CLIENT LIST").text().contains(&format!("id={id} "))
    });
    other.check("PING", "+PONG");
}

/// Memory of a reply in addition to the limit of 4 MB: the request, and the part being encoded.
const BESIDE_THE_LIMIT: usize = 16 << 20;

/// A reply of 300 MB ends at the limit, not when it is complete.
#[test]
fn a_long_reply_is_not_built_beyond_the_hard_limit() {
    let port = free_port();
    let server = launch()
        .with("client-output-buffer-limit", "normal 4mb 0 0")
        .with("memcached-port", &port.to_string())
        .start();
    let mut other = server.connect();
    other.call(&[&b"SET"[..], b"k", &vec![b'x'; 15_000]]);
    let element = "x".repeat(500);
    let list = [vec!["RPUSH", "list"], vec![&*element; 20_000]].concat();
    other.call(&list);
    other.check("PING", "+PONG");
    let before = server.peak_resident_bytes();
    let keys = vec!["k"; 20_000];
    let mget = [vec!["MGET"], keys.clone()].concat();
    let memcached = ([127, 0, 0, 1], port).into();
    for (mut c, request) in [
        (server.connect(), encode(&mget)),
        (Connection::tcp(memcached), format!("get {}\r\n", keys.join(" ")).into_bytes()),
        (server.connect(), encode(&["LRANGE", "list", "0", "-1"])),
    ] {
        // The server may close before it has received everything.
        let _ = c.try_send(&request);
        assert!(c.rest().len() < BESIDE_THE_LIMIT);
    }
    let stats = other.ask("INFO stats").text().to_owned();
    assert!(stats.contains("client_output_buffer_limit_disconnections:3\r\n"), "{stats}");
    // As many bytes in many replies are sent from turn to turn. A client that reads them may get them all.
    let mut c = server.connect();
    let _ = c.try_send(encode(&["GETRANGE", "k", "0", "-1"]).repeat(20_000));
    c.finish_sending();
    c.rest();
    let grown = server.peak_resident_bytes() - before;
    assert!(grown < BESIDE_THE_LIMIT, "{grown} bytes");
    other.check("GET k", &format!("{:?}", "x".repeat(15_000)));
}

/// A client without replies cannot exceed the limit of unread replies.
#[test]
fn replies_that_nobody_wants_do_not_count() {
    let server = launch().with("client-output-buffer-limit", "normal 1mb 0 0").start();
    let mut c = server.connect();
    c.call(&[&b"SET"[..], b"k", &vec![b'x'; 100_000]]);
    c.send("CLIENT REPLY OFF\r\n");
    c.send(encode(&["GET", "k"]).repeat(100));
    let mget = [vec!["MGET"], vec!["k"; 100]].concat();
    c.send(encode(&mget));
    c.send("CLIENT REPLY ON\r\n");
    c.expect("+OK");
    c.check("PING", "+PONG");
}

/// A client that has not authenticated gets no memory for unread replies.
#[test]
fn strangers_who_never_read_are_cut_off_early() {
    let ports = [free_port(), free_port()];
    let server = launch()
        .with("requirepass", "secret")
        .with("memcached-port", &ports[0].to_string())
        .with("pedrokv-port", &ports[1].to_string())
        .start();
    let before = server.peak_resident_bytes();
    let pedrokv_get = b"\0\x09\x01\x01\0\0\0\x07k";
    let memcached_get = [&b"\x80\0\0\x01\0\0\0\0\0\0\0\x01"[..], &[0; 12], b"k"].concat();
    for (port, request) in [
        (server.port(), &b"HELLO\r\n"[..]),
        (server.port(), b"GET k\r\n"),
        (ports[0], b"get k\r\n"),
        (ports[0], &memcached_get),
        (ports[1], pedrokv_get),
    ] {
        let block = request.repeat(10_000);
        let mut c = Connection::tcp(([127, 0, 0, 1], port).into());
        let is_closed = (0..2000).any(|_| c.try_send(&block).is_err());
        assert!(is_closed, "{}", request.escape_ascii());
    }
    let grown = server.peak_resident_bytes() - before;
    assert!(grown < BESIDE_THE_LIMIT, "{grown} bytes");
}

/// The stricter limits end with the password, also in the middle of a pipeline.
#[test]
fn a_pipeline_that_begins_with_the_password_is_answered() {
    let port = free_port();
    let server =
        launch().with("requirepass", "secret").with("memcached-port", &port.to_string()).start();
    let mut c = server.connect();
    let set = encode(&["SET", "k", &"x".repeat(10_000)]);
    c.send([encode(&["AUTH", "secret"]), set, encode(&["GET", "k"]).repeat(1000)].concat());
    c.expect("+OK");
    c.expect("+OK");
    (0..1000).for_each(|_| assert_eq!(c.reply().bytes().len(), 10_000));
    let mut c = Connection::tcp(([127, 0, 0, 1], port).into());
    c.send(["set a 0 0 14\r\ndefault secret\r\n", &"get k\r\n".repeat(1000)].concat());
    assert_eq!(c.read_exactly(8), b"STORED\r\n");
    c.read_exactly(1000 * (10_000 + "VALUE k 0 10000\r\n\r\nEND\r\n".len()));
    c.send("quit\r\n");
    assert_eq!(c.rest(), b"");
}

/// RESET does not discard replies to earlier commands. After it, the stricter limits apply again.
#[test]
fn replies_from_before_a_reset_are_sent() {
    let server = launch().with("requirepass", "secret").start();
    let mut c = server.connect();
    let set = encode(&["SET", "k", &"x".repeat(10_000)]);
    let gets = encode(&["GET", "k"]).repeat(300);
    let end = [encode(&["RESET"]), encode(&["PING"]).repeat(200)].concat();
    c.send([encode(&["AUTH", "secret"]), set, gets, end].concat());
    c.expect("+OK");
    c.expect("+OK");
    (0..300).for_each(|_| assert_eq!(c.reply().bytes().len(), 10_000));
    c.expect("+RESET");
    (0..200).for_each(|_| c.expect("-NOAUTH Authentication required."));
    c.check("PING", "-NOAUTH Authentication required.");
}

/// Even a slow reader gets everything, in order.
#[test]
fn who_reads_slowly_gets_everything() {
    let server = server();
    let mut c = server.connect();
    for n in 0..4 {
        let value = vec![b'a' + n; 3 << 20];
        c.call(&[&b"SET"[..], format!("large:{n}").as_bytes(), &value]);
    }
    let requests: Vec<u8> =
        (0..12).flat_map(|n| encode(&["GET", &format!("large:{}", n % 4)])).collect();
    c.send(requests);
    for n in 0..12 {
        let reply = c.reply();
        assert!(reply.bytes().len() == 3 << 20 && reply.bytes().iter().all(|b| *b == b'a' + n % 4));
        server.connect().check("PING", "+PONG");
    }
}

/// Returns a number of INFO.
fn info(c: &mut Connection, name: &str) -> usize {
    let text = c.ask("INFO everything").text().to_owned();
    let line = text.lines().find_map(|line| line.strip_prefix(&format!("{name}:")));
    line.unwrap_or_else(|| panic!("{name}: {text}")).parse().expect("a number")
}

/// Begins a request of this size, and waits until the server has received it.
fn occupy(admin: &mut Connection, c: &mut Connection, bytes: usize) {
    let id = c.ask("CLIENT ID").int();
    c.send(
        [format!("*2\r\n$3\r\nGET\r\n${bytes}\r\n").as_bytes(), &vec![b'x'; bytes - 1]].concat(),
    );
    wait_until("it has arrived, or the client has gone", || {
        let list = admin.ask("CLIENT LIST").text().to_owned();
        let line = list.lines().find(|line| line.starts_with(&format!("id={id} ")));
        line.is_none_or(|line| {
            let (_, rest) = line.split_once(" tot-mem=").expect("it is listed");
            let digits = rest.split(' ').next().expect("a number");
            digits.parse::<usize>().expect("a number") >= bytes
        })
    });
}

#[test]
fn the_client_that_occupies_most_is_closed_at_maxmemory_clients() {
    let server = server();
    let mut admin = server.connect();
    admin.check("CONFIG SET maxmemory-clients 24mb", "+OK");
    let (mut small, mut large, mut last) = (server.connect(), server.connect(), server.connect());
    occupy(&mut admin, &mut small, 3 << 20);
    occupy(&mut admin, &mut large, 14 << 20);
    assert_eq!(info(&mut admin, "evicted_clients"), 0);
    occupy(&mut admin, &mut last, 7 << 20);
    wait_until("one has gone", || info(&mut admin, "evicted_clients") == 1);
    large.expect_closed();
    for mut c in [small, last] {
        c.send("x\r\n");
        c.expect("nil");
    }
    admin.check("PING", "+PONG");
}

#[test]
fn clients_with_no_evict_are_never_closed_at_maxmemory_clients() {
    let server = server();
    let mut admin = server.connect();
    admin.check("CLIENT NO-EVICT on", "+OK");
    let (mut protected, mut other) = (server.connect(), server.connect());
    protected.check("CLIENT NO-EVICT on", "+OK");
    occupy(&mut admin, &mut protected, 8 << 20);
    occupy(&mut admin, &mut other, 2 << 20);
    // The protected client's memory counts, so the other client is evicted.
    admin.check("CONFIG SET maxmemory-clients 4mb", "+OK");
    wait_until("the other one has gone", || info(&mut admin, "evicted_clients") == 1);
    other.expect_closed();
    protected.send("x\r\n");
    protected.expect("nil");
}

#[test]
fn a_share_of_maxmemory_limits_clients_only_while_there_is_a_maxmemory() {
    let server = server();
    let mut admin = server.connect();
    admin.check("CONFIG SET maxmemory-clients 5%", "+OK");
    admin.check("CONFIG GET maxmemory-clients", "[\"maxmemory-clients\", \"5%\"]");
    let mut c = server.connect();
    occupy(&mut admin, &mut c, 8 << 20);
    assert_eq!(info(&mut admin, "evicted_clients"), 0);
    admin.check("CONFIG SET maxmemory 100mb", "+OK");
    wait_until("it has gone", || info(&mut admin, "evicted_clients") == 1);
    c.expect_closed();
    admin.check("CONFIG SET maxmemory 0", "+OK");
}

/// Even the lowest value admits a client that can raise it.
#[test]
fn the_lowest_maxmemory_clients_is_enough_for_an_administrator() {
    let server = launch().with("maxmemory-clients", "1").start();
    let mut large = server.connect();
    let _ = large.try_send([&b"*2\r\n$3\r\nGET\r\n$1000000\r\n"[..], &[b'x'; 900_000]].concat());
    large.expect_closed();
    let mut admin = server.connect();
    assert_eq!(info(&mut admin, "evicted_clients"), 1);
    admin.check("CONFIG GET maxmemory-clients", "[\"maxmemory-clients\", \"1\"]");
    admin.check("CONFIG SET maxmemory-clients 0", "+OK");
}

/// Unread replies of a client count, and so do its queued commands.
#[test]
fn replies_and_queued_requests_count_towards_maxmemory_clients() {
    let server = launch().with("maxmemory-clients", "6mb").start();
    let mut admin = server.connect();
    let value = vec![b'x'; 2 << 20];
    admin.call(&[&b"SET"[..], b"k", &value]);
    let mut reader = server.connect();
    reader.send(encode(&["GET", "k"]).repeat(20));
    wait_until("it has gone", || info(&mut admin, "evicted_clients") == 1);
    let mut queuing = server.connect();
    queuing.check("MULTI", "+OK");
    let set = encode(&[&b"SET"[..], b"k", &value]);
    // The server may close before it has received everything.
    let _ = queuing.try_send(set.repeat(4));
    wait_until("it has gone", || info(&mut admin, "evicted_clients") == 2);
    admin.check("PING", "+PONG");
}

#[test]
fn clients_of_other_protocols_count_towards_maxmemory_clients() {
    let ports = [free_port(), free_port()];
    let server = launch()
        .with("maxmemory-clients", "4mb")
        .with("item-size-max", "8mb")
        .with("memcached-port", &ports[0].to_string())
        .with("pedrokv-port", &ports[1].to_string())
        .start();
    let mut admin = server.connect();
    let mut memcached = Connection::tcp(([127, 0, 0, 1], ports[0]).into());
    let set = [format!("set k 0 0 {}\r\n", 6 << 20).as_bytes(), &vec![b'x'; 5 << 20]].concat();
    let _ = memcached.try_send(&set);
    wait_until("it has gone", || info(&mut admin, "evicted_clients") == 1);
    // Frames of PedroKV are short, so one of its clients only uses memory together with others.
    let mut pedrokv = Connection::tcp(([127, 0, 0, 1], ports[1]).into());
    admin.check("CONFIG SET maxmemory-clients 0", "+OK");
    pedrokv.send("x");
    wait_until("it is listed", || admin.ask("CLIENT LIST").text().lines().count() == 2);
    admin.check("CLIENT NO-EVICT on", "+OK");
    let mut large = server.connect();
    large.check("CLIENT NO-EVICT on", "+OK");
    occupy(&mut admin, &mut large, 1 << 20);
    admin.check("CONFIG SET maxmemory-clients 1mb", "+OK");
    wait_until("it has gone", || info(&mut admin, "evicted_clients") == 2);
    pedrokv.expect_closed();
}

/// `mem_clients_normal` and `tot-mem` agree with the process' memory for connections, as the system sees it.
#[test]
fn what_clients_occupy_is_what_the_process_takes_for_them() {
    const CLIENTS: usize = 40;
    const EACH: usize = 1 << 20;
    let server = server();
    let mut admin = server.connect();
    admin.check("PING", "+PONG");
    let (counted, resident) = (info(&mut admin, "mem_clients_normal"), server.resident_bytes());
    let mut clients: Vec<_> = (0..CLIENTS).map(|_| server.connect()).collect();
    for c in &mut clients {
        // Many short arguments, each of which needs more memory than its bytes.
        c.send(["*200000\r\n".to_owned(), "$1\r\nx\r\n".repeat(EACH / 7)].concat());
    }
    let received = || admin.ask("CLIENT LIST").text().matches(" qbuf=10").count();
    let mut received = received;
    wait_until("all has arrived", || received() == CLIENTS);
    let counted = info(&mut admin, "mem_clients_normal") - counted;
    let resident = server.resident_bytes() - resident;
    assert!(counted > CLIENTS * EACH, "{counted} counted");
    // A grown buffer is at least half used, and its unused part may not be resident.
    assert!(
        counted > resident * 3 / 4 && counted < resident * 2,
        "{counted} counted, {resident} taken"
    );
}
