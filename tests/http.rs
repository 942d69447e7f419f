//! HTTP in bytes: commands as JSON, access control, and the limits of hostile clients.

use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use tierce_harness::{Both, Connection, Launch, TempDir, free_port, wait_until};

use crate::launch;
use crate::replication::fake_replica::Replica;

const LOCAL: &str = "Host: localhost\r\n";

fn start() -> Both {
    with(launch())
}

fn with(launch: Launch) -> Both {
    Both::start(launch, "http-port")
}

/// Makes a request with this head after its first line, and this body.
fn request(line: &str, head: &str, body: &[u8]) -> Vec<u8> {
    let len = body.len();
    let head =
        format!("{line} HTTP/1.1\r\n{head}Content-Length: {len}\r\nConnection: close\r\n\r\n");
    [head.as_bytes(), body].concat()
}

/// Returns status and body of the response to some bytes, for any end of the connection.
fn exchange(http: &Both, bytes: &[u8]) -> (u16, String) {
    let mut stream = http.connect();
    stream.write_all(bytes).expect("sent");
    response(&mut stream)
}

/// Reads until the server closes the connection. That is a reset if the server has not read everything.
fn read_to_end(stream: &mut TcpStream) -> Vec<u8> {
    let mut answer = Vec::new();
    match stream.read_to_end(&mut answer) {
        Err(error) if error.kind() != ErrorKind::ConnectionReset => panic!("no end: {error}"),
        _ => answer,
    }
}

fn response(stream: &mut TcpStream) -> (u16, String) {
    let answer = String::from_utf8(read_to_end(stream)).expect("text");
    let (head, body) = answer.split_once("\r\n\r\n").expect("a head");
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok());
    (status.expect("a status"), body.to_owned())
}

#[track_caller]
fn check(http: &Both, line: &str, head: &str, body: &[u8], expected: (u16, &str)) {
    let (status, answer) = exchange(http, &request(line, &format!("{LOCAL}{head}"), body));
    assert_eq!((status, answer.as_str()), expected, "{line} {}", body.escape_ascii());
}

/// Checks that the body of a response is an error with this text, and checks the status.
#[track_caller]
fn check_error(http: &Both, bytes: &[u8], status: u16, text: &str) {
    let (is, body) = exchange(http, bytes);
    assert!(
        is == status && body.starts_with("{\"error\":\"") && body.contains(text),
        "{is} {body}"
    );
}

#[test]
fn commands_are_json_paths_pipelines_and_transactions() {
    let http = start();
    let ok = (200, r#"{"result":"OK"}"#);
    check(&http, "POST /", "", br#"["SET","k","v"]"#, ok);
    check(&http, "GET /get/k", "", b"", (200, r#"{"result":"v"}"#));
    check(&http, "POST /set/k?EX=100&XX", "", b"body", ok);
    check(&http, "POST /", "", br#"["TTL","k"]"#, (200, r#"{"result":100}"#));
    check(&http, "GET /get/absent", "", b"", (200, r#"{"result":null}"#));
    let pipeline = br#"[["RPUSH","l","a","b"],["NOSUCH"],["INCR","l"],["LRANGE","l",0,-1]]"#;
    let expected = concat!(
        r#"[{"result":2},{"error":"ERR unknown command 'NOSUCH', with args beginning with: "},"#,
        r#"{"error":"WRONGTYPE Operation against a key holding the wrong kind of value"},"#,
        r#"{"result":["a","b"]}]"#
    );
    check(&http, "POST /pipeline", "", pipeline, (200, expected));
    let transaction = br#"[["INCR","n"],["INCR","l"],["GET","n"]]"#;
    let expected = concat!(
        r#"[{"result":1},"#,
        r#"{"error":"WRONGTYPE Operation against a key holding the wrong kind of value"},"#,
        r#"{"result":"1"}]"#
    );
    check(&http, "POST /multi-exec", "", transaction, (200, expected));
    let refused = request("POST /multi-exec", LOCAL, br#"[["INCR","n"],["NOSUCH"]]"#);
    check_error(&http, &refused, 400, "EXECABORT Transaction discarded because of: ERR unknown");
    http.server.connect().check("GET n", "\"1\"");
}

/// The thread that answers all requests must not parse or encode large data itself, because `/healthz` would wait.
/// Its CPU time shows that even on a busy machine.
#[test]
fn long_bodies_and_replies_are_converted_on_other_threads() {
    let http = with(launch().with("http-max-body", "64mb"));
    let mut c = http.server.connect();
    c.request(&[&b"SET"[..], b"long", &b"\"\n".repeat(1 << 20)]);
    c.expect("+OK");
    let script = "for i = 1, 50 do local t = {} for j = 1, 5000 do t[j] = 'element' .. j end redis.call('rpush', KEYS[1], unpack(t)) end";
    c.request(&["EVAL", script, "1", "list"]);
    c.expect("nil");
    let numbers = format!("[\"DEL\"{}]", ",1".repeat(1 << 20));
    let pipeline = format!("[{}[\"LLEN\",\"list\"]]", "[\"LLEN\",\"list\"],".repeat(30_000));
    let base64 = "Upstash-Encoding: base64\r\n";
    for (line, head, body) in [
        ("GET /get/long", "", ""),
        ("GET /get/long", base64, ""),
        ("GET /lrange/list/0/-1", "", ""),
        ("POST /pipeline", "", r#"[["GET","long"],["LRANGE","list",0,-1]]"#),
        ("POST /multi-exec", "", r#"[["GET","long"],["LRANGE","list",0,-1]]"#),
        ("POST /", "", &numbers),
        ("POST /pipeline", "", &pipeline),
    ] {
        let before = (http_ticks(&http), http.server.cpu_ticks());
        let (status, answer) =
            exchange(&http, &request(line, &format!("{LOCAL}{head}"), body.as_bytes()));
        let (own, all) = (http_ticks(&http) - before.0, http.server.cpu_ticks() - before.1);
        assert_eq!(status, 200, "{answer:.100}");
        assert!(own * 4 <= all, "{line} {body:.20}: {own} of {all} ticks");
    }
}

/// Otherwise many such requests occupy the threads that encode, and delay the end of the server.
#[test]
fn nothing_is_encoded_for_clients_that_have_gone() {
    let http = start();
    let mut c = http.server.connect();
    c.request(&[&b"SET"[..], b"long", &b"\"\n".repeat(1 << 20)]);
    c.expect("+OK");
    c.check("CLIENT PAUSE 3600000 WRITE", "+OK");
    let reads = request("POST /", LOCAL, br#"["GETEX","long","PERSIST"]"#);
    let mut clients: Vec<_> = (0..40).map(|_| http.connect()).collect();
    clients.iter_mut().for_each(|client| client.write_all(&reads).expect("sent"));
    wait_until("all are read", || c.ask("INFO stats").text().contains("http_requests:40\r\n"));
    drop(clients);
    wait_until("all are gone", || c.ask("INFO clients").text().contains("http_clients:0\r\n"));
    let before = http.server.cpu_ticks();
    c.check("CLIENT UNPAUSE", "+OK");
    // Replies are encoded in the order of their commands.
    wait_until("all are run", || c.ask("INFO commandstats").text().contains("getex:calls=40,"));
    assert_eq!(exchange(&http, &reads).0, 200);
    let of_gone = http.server.cpu_ticks() - before;
    let before = http.server.cpu_ticks();
    (0..10).for_each(|_| assert_eq!(exchange(&http, &reads).0, 200));
    let of_ten = http.server.cpu_ticks() - before;
    assert!(of_gone < of_ten, "{of_gone} ticks, and {of_ten} for ten replies");
}

/// Returns the CPU time of the HTTP thread, in hundredths of a second.
fn http_ticks(http: &Both) -> u64 {
    let tasks = fs::read_dir(format!("/proc/{}/task", http.server.pid())).expect("the process");
    let stats = tasks.filter_map(|task| fs::read_to_string(task.ok()?.path().join("stat")).ok());
    let stat = stats.into_iter().find(|stat| stat.contains("(http)")).expect("its thread");
    let fields: Vec<_> = stat.split(' ').collect();
    fields[13..15].iter().map(|ticks| ticks.parse::<u64>().expect("a number")).sum()
}

#[test]
fn transactions_and_events_need_no_names_of_commands() {
    let dir = TempDir::new();
    let names = "rename-command EXEC \"\"\nrename-command MULTI begin\nrename-command AUTH \"\"\n";
    let http = with(launch().file(dir.write("a.conf", names)));
    let transaction = br#"[["SET","k","1"],["INCR","k"]]"#;
    let expected = r#"[{"result":"OK"},{"result":2}]"#;
    check(&http, "POST /multi-exec", "", transaction, (200, expected));
    http.server.connect().check("CONFIG SET requirepass secret", "+OK");
    let mut stream = http.connect();
    let head = format!("{LOCAL}Accept: text/event-stream\r\nAuthorization: Bearer secret\r\n");
    stream.write_all(&request("POST /subscribe/news", &head, b"[]")).expect("sent");
    let mut seen = String::new();
    let mut part = [0; 4096];
    while !seen.contains("data: subscribe,news,1\n\n") {
        let count = stream.read(&mut part).expect("more");
        assert!(count > 0, "the end: {seen}");
        seen.push_str(&String::from_utf8_lossy(&part[..count]));
    }
}

#[test]
fn writes_wait_for_as_many_replicas_as_the_configuration_says() {
    const UNCONFIRMED: &str =
        "UNCONFIRMED The write is done on this server, but 1 replica has not confirmed it in time";
    for appendonly in ["no", "yes"] {
        let launch = launch().with("repl-diskless-sync-delay", "0").with("appendonly", appendonly);
        let http = with(launch.with("durability-replicas", "1"));
        let set = request("POST /", LOCAL, br#"["SET","k","1"]"#);
        check_error(&http, &set, 503, "NOREPLICAS Not enough good replicas to write.");
        let mut replica = Replica::new(&http.server);
        let transaction = request("POST /multi-exec", LOCAL, br#"[["INCR","k"],["GET","k"]]"#);
        for (bytes, expected) in
            [(&set, r#"{"result":"OK"}"#), (&transaction, r#"[{"result":2},{"result":"2"}]"#)]
        {
            let mut stream = http.connect();
            stream.write_all(bytes).expect("sent");
            // The replica gets no request to acknowledge a write that does not wait for it.
            replica.commands_until("REPLCONF GETACK *");
            replica.acknowledge();
            assert_eq!(response(&mut stream), (200, expected.to_owned()), "{appendonly}");
        }
        check(&http, "POST /", "", br#"["GET","k"]"#, (200, r#"{"result":"2"}"#));
        let mut c = http.server.connect();
        c.check("CONFIG SET durability-replicas-timeout 50", "+OK");
        check_error(&http, &set, 503, UNCONFIRMED);
        check_error(&http, &transaction, 503, UNCONFIRMED);
        let pipeline = br#"[["INCR","k"],["GET","k"],["SET","k","9","NX"]]"#;
        let expected =
            format!(r#"[{{"error":"{UNCONFIRMED}"}},{{"result":"3"}},{{"result":null}}]"#);
        check(&http, "POST /pipeline", "", pipeline, (200, &expected));
        assert!(c.ask("INFO errorstats").text().contains("errorstat_UNCONFIRMED:count=3"));
        // A server that becomes a replica ends the wait.
        c.check("CONFIG SET durability-replicas-timeout 100000", "+OK");
        let (mut stream, mut watcher) = (http.connect(), http.server.connect());
        watcher.check("MONITOR", "+OK");
        let last = request("POST /", LOCAL, br#"["SET","last","1"]"#);
        stream.write_all(&last).expect("sent");
        while replica.command() != "SET last 1" {}
        replica.commands_until("REPLCONF GETACK *");
        // A client that watches sees commands in the order of their changes, and does not wait for replicas.
        while !watcher.reply().text().ends_with("\"SET\" \"last\" \"1\"") {}
        c.check("REPLICAOF 127.0.0.1 1", "+OK");
        let (status, answer) = response(&mut stream);
        assert!(status == 503 && answer.contains(UNCONFIRMED), "{status} {answer}");
    }
}

#[test]
fn long_pipelines_and_commands_for_all_keys_run_as_well() {
    let http = start();
    let commands: Vec<_> = (0..500).map(|n| format!(r#"["SET","k{n}",{n}]"#)).collect();
    let (status, body) = exchange(
        &http,
        &request("POST /pipeline", LOCAL, format!("[{}]", commands.join(",")).as_bytes()),
    );
    assert_eq!((status, body.matches(r#"{"result":"OK"}"#).count()), (200, 500), "{body}");
    check(&http, "POST /dbsize", "", b"", (200, r#"{"result":500}"#));
    check(
        &http,
        "POST /",
        "",
        br#"["EVAL","return redis.call('GET',KEYS[1])",1,"k7"]"#,
        (200, r#"{"result":"7"}"#),
    );
    let (status, body) = exchange(&http, &request("POST /keys/k49*", LOCAL, b""));
    assert_eq!((status, body.matches("\"k49").count()), (200, 11), "{body}");
}

#[test]
fn bytes_come_back_in_base64() {
    let http = start();
    let base64 = "Upstash-Encoding: base64\r\n";
    check(&http, "POST /set/k", base64, b"\xff\0\r\n\"", (200, r#"{"result":"OK"}"#));
    check(&http, "GET /get/k", base64, b"", (200, r#"{"result":"/wANCiI="}"#));
    check(&http, "POST /", base64, br#"["PING"]"#, (200, r#"{"result":"UE9ORw=="}"#));
    check_error(&http, &request("GET /get/k", LOCAL, b""), 400, "Upstash-Encoding: base64");
    check(&http, "POST /set/%FF%00/%fe", "", b"", (200, r#"{"result":"OK"}"#));
    check(&http, "GET /get/%FF%00", base64, b"", (200, r#"{"result":"/g=="}"#));
    let other = format!("{LOCAL}Upstash-Encoding: gzip\r\n");
    check_error(&http, &request("GET /get/k", &other, b""), 400, "can be base64 only");
}

#[test]
fn what_is_about_a_connection_or_waits_is_refused() {
    let http = start();
    for body in [
        r#"["BLPOP","l",0]"#,
        r#"["XREAD","BLOCK",0,"STREAMS","s","$"]"#,
        r#"["WAIT",1,0]"#,
        r#"["SUBSCRIBE","c"]"#,
        r#"["MONITOR"]"#,
        r#"["MULTI"]"#,
        r#"["SELECT",1]"#,
        r#"["AUTH","x"]"#,
        r#"["CLIENT","REPLY","OFF"]"#,
        r#"["SHUTDOWN"]"#,
        r#"["REPLCONF","capa","eof"]"#,
        r#"["PSYNC","?","-1"]"#,
        r#"["SYNC"]"#,
        r#"["EXIT"]"#,
        r#"["QUIT"]"#,
        r#"["WATCH","k"]"#,
        r#"["HELLO",3]"#,
    ] {
        check_error(&http, &request("POST /", LOCAL, body.as_bytes()), 400, "requests over HTTP");
    }
    check(&http, "POST /", "", br#"["XREAD","STREAMS","s","0"]"#, (200, r#"{"result":null}"#));
    for body in ["", "[]", "{}", "[[\"GET\",\"k\"]]", "[\"GET\",null]", "[\"GET\",\"\\ud800\"]"] {
        check_error(&http, &request("POST /", LOCAL, body.as_bytes()), 400, "ERR ");
    }
}

#[test]
fn users_have_their_rights_and_nobody_else_has_any() {
    let launch = launch().with("requirepass", "secret");
    let http = with(launch);
    let get = |authorization: &str| {
        request("GET /get/a", &format!("{LOCAL}Authorization: {authorization}\r\n"), b"")
    };
    check_error(&http, &request("GET /get/a", LOCAL, b""), 401, "NOAUTH");
    for wrong in
        ["Bearer guess", "Bearer", "Basic ZGVmYXVsdDpndWVzcw==", "Digest secret", "Basic !"]
    {
        let (status, body) = exchange(&http, &get(wrong));
        assert_eq!(status, 401, "{wrong}: {body}");
    }
    assert_eq!(exchange(&http, &get("Bearer secret")), (200, r#"{"result":null}"#.to_owned()));
    // default:secret
    assert_eq!(exchange(&http, &get("Basic ZGVmYXVsdDpzZWNyZXQ=")).0, 200);
    let mut admin = http.server.connect();
    admin.ask("AUTH secret");
    admin.ask("ACL SETUSER ann on >word ~a +get");
    assert_eq!(exchange(&http, &get("Bearer ann:word")).0, 200);
    for denied in ["GET /get/b", "POST /set/a/1"] {
        let head = format!("{LOCAL}Authorization: Bearer ann:word\r\n");
        check_error(&http, &request(denied, &head, b""), 403, "NOPERM");
    }
    admin.ask("ACL DELUSER ann");
    assert_eq!(exchange(&http, &get("Bearer ann:word")).0, 401);
}

/// There are few connections. So guesses must not occupy them for the time of checking one after the other.
#[test]
fn guesses_do_not_keep_their_connections() {
    let http = with(launch().with("requirepass", "secret").with("http-timeout", "2"));
    let guess = request("GET /get/a", &format!("{LOCAL}Authorization: Bearer guess\r\n"), b"");
    (0..9).for_each(|_| assert_eq!(exchange(&http, &guess).0, 401));
    let mut guessers: Vec<_> = (0..40).map(|_| http.connect()).collect();
    guessers.iter_mut().for_each(|guesser| guesser.write_all(&guess).expect("sent"));
    let mut waited_in_vain = 0;
    for guesser in &mut guessers {
        match response(guesser) {
            (401, _) => {}
            (429, text) => waited_in_vain += usize::from(text.contains("TRYAGAIN")),
            other => panic!("{other:?}"),
        }
    }
    assert!(waited_in_vain > 20, "{waited_in_vain} of 40");
    let mut admin = http.server.connect();
    wait_until("no connection is left", || {
        admin.ask("AUTH secret");
        admin.ask("INFO clients").to_string().contains("http_clients:0")
    });
}

/// A page that a user of this machine visits makes the browser send requests here.
#[test]
fn web_pages_are_kept_out() {
    let http = with(launch().with("http-origins", "https://app.example"));
    http.server.connect().ask("SET k v");
    let set = br#"["SET","k","hacked"]"#;
    for host in ["evil.example", "localhost.evil.example", "127.0.0.1.nip.io:80", ""] {
        check_error(
            &http,
            &request("POST /", &format!("Host: {host}\r\n"), set),
            421,
            "http-hosts",
        );
    }
    for sent in [
        "Origin: http://evil.example",
        "Origin: null",
        "Sec-Fetch-Site: cross-site",
        "Sec-Fetch-Site: same-site",
    ] {
        let head = format!("{LOCAL}{sent}\r\n");
        check_error(&http, &request("POST /", &head, set), 403, "http-origins");
        check_error(&http, &request("GET /set/k/hacked", &head, b""), 403, "http-origins");
        check_error(&http, &request("OPTIONS /", &head, b""), 403, "http-origins");
    }
    // The image request of an old browser.
    for path in ["GET /set/k/hacked", "GET /flushall", "GET /config/set/maxmemory/1"] {
        check_error(&http, &request(path, LOCAL, b""), 400, "may only read");
    }
    http.server.connect().check("GET k", "\"v\"");
    let allowed = format!("{LOCAL}Origin: https://app.example\r\nSec-Fetch-Site: cross-site\r\n");
    assert_eq!(exchange(&http, &request("OPTIONS /", &allowed, b"")).0, 204);
    assert_eq!(exchange(&http, &request("POST /", &allowed, br#"["GET","k"]"#)).0, 200);
    for host in ["127.0.0.1:7", "[::1]:7", "LOCALHOST"] {
        let head = format!("Host: {host}\r\n");
        assert_eq!(exchange(&http, &request("GET /get/k", &head, b"")).0, 200, "{host}");
    }
}

#[test]
fn huge_bodies_are_refused_before_they_have_come() {
    let http = with(launch().with("http-max-body", "10kb"));
    let head = format!("POST /set/k HTTP/1.1\r\n{LOCAL}Content-Length: 99999999999\r\n\r\n");
    check_error(&http, head.as_bytes(), 413, "http-max-body");
    let mut chunked = format!("POST /set/k HTTP/1.1\r\n{LOCAL}Transfer-Encoding: chunked\r\n\r\n");
    chunked += &format!("2801\r\n{}\r\n", "x".repeat(0x2801));
    check_error(&http, chunked.as_bytes(), 413, "http-max-body");
    check(&http, "POST /set/k", "", &[b'x'; 10 << 10], (200, r#"{"result":"OK"}"#));
    check(&http, "POST /strlen/k", "", b"", (200, r#"{"result":10240}"#));
}

/// Half a head or half a body cannot keep a connection open for longer than `http-timeout`.
#[test]
fn clients_that_send_slowly_are_closed() {
    let http = with(launch().with("http-timeout", "3"));
    let mut silent = http.connect();
    let mut slow = http.connect();
    slow.write_all(b"GET /get/k HTTP/1.1\r\nHost: loc").expect("sent");
    let mut body = http.connect();
    let head = format!("POST /set/k HTTP/1.1\r\n{LOCAL}Content-Length: 10\r\n\r\nhalf");
    body.write_all(head.as_bytes()).expect("sent");
    assert_eq!(response(&mut body).0, 408);
    for stream in [&mut silent, &mut slow] {
        let rest = read_to_end(stream);
        assert!(!rest.starts_with(b"HTTP/1.1 200"), "{}", rest.escape_ascii());
    }
}

/// Nor can a client that does not read its reply.
#[test]
fn clients_that_read_nothing_are_closed() {
    let http = with(launch().with("http-timeout", "3").with("http-max-body", "64mb"));
    let mut admin = http.server.connect();
    let has_clients = |admin: &mut Connection, count: &str| {
        admin.ask("INFO clients").text().contains(&format!("http_clients:{count}\r\n"))
    };
    check(&http, "POST /set/k", "", &vec![b'x'; 32 << 20], (200, r#"{"result":"OK"}"#));
    let mut idle = http.connect();
    idle.write_all(format!("GET /get/k HTTP/1.1\r\n{LOCAL}\r\n").as_bytes()).expect("sent");
    let mut first = [0; 15];
    idle.read_exact(&mut first).expect("the beginning of a reply");
    assert_eq!(&first, b"HTTP/1.1 200 OK");
    wait_until("the client is closed", || has_clients(&mut admin, "0"));
}

#[test]
fn heads_that_are_huge_or_ambiguous_are_refused() {
    let http = start();
    let long = format!("{LOCAL}X-Long: {}\r\n", "x".repeat(200 << 10));
    assert_eq!(exchange(&http, &request("GET /get/k", &long, b"")).0, 431);
    // `request` adds its own Content-Length.
    let twice = format!("{LOCAL}Content-Length: 1\r\n");
    assert_eq!(exchange(&http, &request("POST /set/k", &twice, b"body")).0, 400);
    let hosts = format!("{LOCAL}Host: evil.example\r\n");
    assert_eq!(exchange(&http, &request("GET /get/k", &hosts, b"")).0, 400);
}

#[test]
fn connections_are_limited_and_places_come_free() {
    let http = with(launch().with("http-maxclients", "2"));
    let mut held: Vec<_> = (0..2).map(|_| http.connect()).collect();
    for stream in &mut held {
        // Keep-alive: the connection still counts.
        stream.write_all(format!("GET /healthz HTTP/1.1\r\n{LOCAL}\r\n").as_bytes()).expect("sent");
        let mut first = [0; 15];
        stream.read_exact(&mut first).expect("received");
        assert_eq!(&first, b"HTTP/1.1 200 OK");
    }
    let mut third = http.connect();
    assert_eq!(response(&mut third).0, 503);
    drop(held);
    wait_until("a place is free", || {
        let mut stream = http.connect();
        let asked = request("GET /healthz", LOCAL, b"");
        let mut answer = Vec::new();
        stream.write_all(&asked).is_ok()
            && stream.read_to_end(&mut answer).is_ok()
            && answer.starts_with(b"HTTP/1.1 200")
    });
}

#[test]
fn health_is_told_without_a_password() {
    let http = with(launch().with("requirepass", "secret"));
    check(&http, "GET /healthz", "", b"", (200, "alive\n"));
    check(&http, "GET /readyz", "", b"", (200, "ready\n"));
}

#[test]
fn config_set_opens_moves_and_closes_the_port() {
    let server = launch().start();
    let mut admin = server.connect();
    let ports = [free_port(), free_port()];
    let is_open = |port: u16| TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_ok();
    admin.check(&format!("CONFIG SET http-port {}", ports[0]), "+OK");
    assert!(is_open(ports[0]));
    admin.check(&format!("CONFIG SET http-port {}", ports[1]), "+OK");
    wait_until("the port has moved", || is_open(ports[1]) && !is_open(ports[0]));
    let taken = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
    let port = taken.local_addr().expect("bound").port();
    let refused = admin.ask(&format!("CONFIG SET http-port {port}"));
    assert!(refused.to_string().contains("is in use"), "{refused}");
    assert!(is_open(ports[1]));
    admin.check("CONFIG SET http-port 0", "+OK");
    assert!(!is_open(ports[1]));
}

/// One of its own commands closes the port while another one is deferred. The client waits for neither.
#[test]
fn a_port_is_closed_by_a_command_over_it() {
    let http = with(launch());
    let mut admin = http.server.connect();
    admin.check("CLIENT PAUSE 60000 WRITE", "+OK");
    let mut held = http.connect();
    held.write_all(&request("POST /set/k/v", LOCAL, b"")).expect("sent");
    let mut closing = http.connect();
    let close = request("POST /", LOCAL, br#"["CONFIG","SET","http-port","0"]"#);
    closing.write_all(&close).expect("sent");
    // The connections end, with or without a reply.
    read_to_end(&mut closing);
    read_to_end(&mut held);
    wait_until("it is set", || admin.ask("CONFIG GET http-port").to_string().contains("\"0\""));
    let port = free_port();
    admin.check(&format!("CONFIG SET http-port {port}"), "+OK");
    assert!(TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_ok());
}

/// Commands that CLIENT PAUSE defers end with an error after `http-timeout`, and others are served meanwhile.
#[test]
fn what_is_held_back_ends_in_an_error() {
    let http = with(launch().with("http-timeout", "3"));
    http.server.connect().ask("CLIENT PAUSE 60000 WRITE");
    let mut held = http.connect();
    held.write_all(&request("POST /set/k/v", LOCAL, b"")).expect("sent");
    check(&http, "GET /get/k", "", b"", (200, r#"{"result":null}"#));
    let (status, body) = response(&mut held);
    assert!(status == 503 && body.contains("held back for too long"), "{status} {body}");
}

/// If a pause has begun meanwhile, the writes of a script are rolled back, and so is its reply.
#[test]
fn a_script_that_runs_again_replies_once() {
    let http = with(launch().with("busy-reply-threshold", "20"));
    let mut c = http.server.connect();
    let mut held = http.connect();
    let script = "repeat local info = redis.call('info', 'clients') until info:find('maxclients:9000') \
                  return redis.call('incr', KEYS[1])";
    let body = format!(r#"[["SET","x","1"],["EVAL","{script}","1","slow"],["GET","x"]]"#);
    held.write_all(&request("POST /pipeline", LOCAL, body.as_bytes())).expect("sent");
    let mut is_busy = |busy| c.ask("GET slow").to_string().starts_with("-BUSY") == busy;
    wait_until("it runs", || is_busy(true));
    http.server.connect().check("CLIENT PAUSE 100000 WRITE", "+OK");
    http.server.connect().check("CONFIG SET maxclients 9000", "+OK");
    wait_until("it has ended", || is_busy(false));
    http.server.connect().check("CLIENT UNPAUSE", "+OK");
    let replies = r#"[{"result":"OK"},{"result":1},{"result":"1"}]"#;
    assert_eq!(response(&mut held), (200, replies.to_owned()));
}

/// The operator can see and end the cause of deferred requests, however many there are.
#[test]
fn requests_without_data_do_not_wait_for_those_that_are_held_back() {
    let http = with(launch().with("http-timeout", "3600"));
    let mut admin = http.server.connect();
    admin.ask("CLIENT PAUSE 3600000 WRITE");
    let mut held: Vec<_> = (0..140).map(|_| http.connect()).collect();
    for (number, one) in held.iter_mut().enumerate() {
        let body: &[u8] = match number % 2 {
            0 => br#"["SET","k","v"]"#,
            _ => br#"["PUBLISH","c","m"]"#,
        };
        one.write_all(&request("POST /", LOCAL, body)).expect("sent");
    }
    wait_until("all are read", || {
        admin.ask("INFO clients").to_string().contains("http_requests:140")
            || admin.ask("INFO stats").to_string().contains("http_requests:140")
    });
    let (status, _) = exchange(&http, &request("POST /", LOCAL, br#"["INFO","server"]"#));
    assert_eq!(status, 200);
    let (status, _) = exchange(&http, &request("POST /", LOCAL, br#"["CLIENT","UNPAUSE"]"#));
    assert_eq!(status, 200);
    held.iter_mut().for_each(|one| assert_eq!(response(one).0, 200));
}

/// If the user of a deferred request is deleted, the request does nothing and gets the reason.
#[test]
fn a_user_who_is_deleted_meanwhile_gets_nothing() {
    let http = with(launch().with("http-timeout", "3600").with("requirepass", "secret"));
    let mut admin = http.server.connect();
    admin.check("AUTH secret", "+OK");
    admin.check("ACL SETUSER ann on >pw +@all ~*", "+OK");
    admin.check("CLIENT PAUSE 3600000 WRITE", "+OK");
    let head = format!("{LOCAL}Authorization: Bearer ann:pw\r\n");
    let mut all: Vec<_> = [
        ("POST /", &br#"["SET","k","v"]"#[..]),
        ("POST /pipeline", br#"[["GET","k"],["SET","k","v"],["GET","k"]]"#),
        ("POST /multi-exec", br#"[["SET","k","v"]]"#),
    ]
    .into_iter()
    .map(|(line, body)| {
        let mut held = http.connect();
        held.write_all(&request(line, &head, body)).expect("sent");
        held
    })
    .collect();
    // They have passed the access check: a request that comes later is answered.
    let secret = "Authorization: Bearer secret\r\n";
    check(&http, "GET /get/k", secret, b"", (200, r#"{"result":null}"#));
    admin.check("ACL DELUSER ann", ":1");
    admin.check("CLIENT UNPAUSE", "+OK");
    for held in &mut all {
        let (status, body) = response(held);
        assert!(status == 401 && body.starts_with("{\"error\":\""), "{status} {body}");
    }
    admin.check("EXISTS k", ":0");
}

/// The server ends although a request waits for a pause of an hour to end.
#[test]
fn the_end_waits_for_no_pause() {
    let mut http = with(launch().with("http-timeout", "3600"));
    http.server.connect().ask("CLIENT PAUSE 3600000 WRITE");
    let mut held = http.connect();
    held.write_all(&request("POST /set/k/v", LOCAL, b"")).expect("sent");
    // The answer to another request shows that the first one has been read.
    check(&http, "GET /get/k", "", b"", (200, r#"{"result":null}"#));
    http.server.connect().send("SHUTDOWN NOSAVE\r\n");
    assert!(http.server.wait_for_end().success());
}

/// These scripts hold or wait for keys, and would occupy all threads.
#[test]
fn requests_do_not_wait_behind_endless_scripts_of_others() {
    let http = with(launch().with("busy-reply-threshold", "50"));
    let mut c = http.server.connect();
    let post = |body: &str| request("POST /", LOCAL, body.as_bytes());
    let begin = || {
        let mut stream = http.connect();
        let endless = post(r#"["EVAL","while true do end","1","held"]"#);
        stream.write_all(&endless).expect("sent");
        stream
    };
    let mut scripts = vec![begin()];
    wait_until("it is busy", || c.ask("GET held").to_string().starts_with("-BUSY"));
    let mut keys = (0..).map(|n| format!("free{n}"));
    let free = keys.find(|key| c.call(&["SET", key, "1"]).to_string() == "+OK").unwrap();
    c.check("CONFIG SET busy-reply-threshold 100000000", "+OK");
    scripts.extend((0..8).map(|_| begin()));
    for _ in 0..3 {
        for (body, reply) in [
            (r#"["PING"]"#.to_owned(), r#"{"result":"PONG"}"#.to_owned()),
            (format!(r#"["MGET","{free}","{free}"]"#), r#"{"result":["1","1"]}"#.to_owned()),
            (format!(r#"["EVAL","return 1","1","{free}"]"#), r#"{"result":1}"#.to_owned()),
        ] {
            assert_eq!(exchange(&http, &post(&body)), (200, reply), "{body}");
        }
    }
    let ends: Vec<_> = scripts
        .into_iter()
        .map(|mut stream| thread::spawn(move || response(&mut stream).0))
        .collect();
    wait_until("all are killed", || {
        c.ask("SCRIPT KILL");
        ends.iter().all(|end| end.is_finished())
    });
    ends.into_iter().for_each(|end| assert_eq!(end.join().expect("a response"), 400));
}

/// Deadlines count from the time when a request runs.
#[test]
fn what_was_held_back_runs_at_the_time_of_its_run() {
    let http = start();
    let mut c = http.server.connect();
    c.check("CLIENT PAUSE 3600000 ALL", "+OK");
    let since = Instant::now();
    let mut held = http.connect();
    held.write_all(&request("POST /", LOCAL, br#"["SET","k","v","PX","60000"]"#)).expect("sent");
    wait_until("some time has passed", || since.elapsed() > Duration::from_millis(100));
    let earliest =
        SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970") + Duration::from_secs(60);
    c.check("CLIENT UNPAUSE", "+OK");
    assert_eq!(response(&mut held), (200, r#"{"result":"OK"}"#.to_owned()));
    assert!(c.ask("PEXPIRETIME k").int() >= earliest.as_millis() as i64);
}

#[test]
fn the_reply_to_a_switch_of_the_log_comes_when_it_is_done() {
    let temp = TempDir::new();
    let (dir, aside) = (temp.path().join("data"), temp.path().join("aside"));
    fs::create_dir(&dir).expect("made");
    let http = with(launch().with("dir", &dir.display().to_string()).with("appendonly", "no"));
    let switch = |to| format!(r#"["CONFIG","SET","appendonly","{to}"]"#);
    // A file is in the place of the folder, which cannot be created then.
    fs::rename(&dir, &aside).expect("moved");
    fs::write(&dir, "").expect("written");
    let bytes = request("POST /", LOCAL, switch("yes").as_bytes());
    let (status, text) = exchange(&http, &bytes);
    assert!(status == 400 && text.contains("argument 'appendonly'"), "{status} {text}");
    fs::remove_file(&dir).expect("removed");
    fs::rename(&aside, &dir).expect("moved");
    for to in ["no", "yes"] {
        check(&http, "POST /", "", switch(to).as_bytes(), (200, r#"{"result":"OK"}"#));
    }
    let expected = (200, r#"{"result":["appendonly","yes"]}"#);
    check(&http, "POST /", "", br#"["CONFIG","GET","appendonly"]"#, expected);
}

/// They occupy all threads for long requests.
#[test]
fn endless_scripts_are_ended_by_those_who_came_behind_them() {
    let http = with(launch().with("busy-reply-threshold", "50").with("http-timeout", "3"));
    let mut c = http.server.connect();
    let post = |body: &str| request("POST /", LOCAL, body.as_bytes());
    let mut names = (0..).map(|n| format!("key{n}"));
    let mut scripts: Vec<_> = (0..4)
        .map(|_| {
            // Another key may be in a locked shard.
            let key = names.find(|key| c.call(&["GET", key]).to_string() == "nil").expect("many");
            let mut stream = http.connect();
            let endless = format!(r#"["EVAL","while true do end","1","{key}"]"#);
            stream.write_all(&post(&endless)).expect("sent");
            wait_until("it is busy", || c.call(&["GET", &key]).to_string().starts_with("-BUSY"));
            stream
        })
        .collect();
    check_error(&http, &post(r#"["EVAL","return 1","0"]"#), 503, "TRYAGAIN too many requests");
    for words in ["INFO server", "CONFIG GET port", "CLIENT LIST"] {
        let body = format!(r#"["{}"]"#, words.replace(' ', r#"",""#));
        assert_eq!(exchange(&http, &post(&body)).0, 200, "{words}");
    }
    let killed = exchange(&http, &post(r#"["SCRIPT","KILL"]"#));
    assert_eq!(killed, (200, r#"{"result":"OK"}"#.to_owned()));
    scripts.iter_mut().for_each(|stream| assert_eq!(response(stream).0, 400));
}
