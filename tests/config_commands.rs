//! CONFIG reads and changes directives while the server runs.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpStream};

use tierce_harness::{Reply, TempDir, free_port, wait_until};

use crate::{launch, server};

#[test]
fn get_by_name_and_pattern() {
    let server = server();
    let mut c = server.connect();
    c.check("CONFIG GET maxclients", "[\"maxclients\", \"10000\"]");
    c.check("CONFIG GET nosuch", "[]");
    let names = |reply: &Reply| -> Vec<String> {
        reply.items().chunks(2).map(|pair| pair[0].text().to_owned()).collect()
    };
    let mut slow = names(&c.ask("CONFIG GET slowlog-*"));
    slow.sort();
    assert_eq!(slow, ["slowlog-log-slower-than", "slowlog-max-len"]);
    assert_eq!(names(&c.ask("CONFIG GET port time?ut nosuch port")).len(), 2);
    assert!(names(&c.ask("CONFIG GET *")).len() > 100);
    let map = server.connect_resp3().ask("CONFIG GET timeout").to_string();
    assert_eq!(map, "{\"timeout\": \"0\"}");
}

#[test]
fn set_one_or_many_all_or_none() {
    let server = server();
    let mut c = server.connect();
    c.check("CONFIG SET timeout 100 maxclients 500", "+OK");
    c.check("CONFIG GET timeout", "[\"timeout\", \"100\"]");
    c.check("CONFIG GET maxclients", "[\"maxclients\", \"500\"]");
    let failed = c.ask("CONFIG SET timeout 200 maxclients many").text().to_owned();
    assert!(
        failed.starts_with("ERR CONFIG SET failed (possibly related to argument 'maxclients') - "),
        "{failed}"
    );
    c.check("CONFIG GET timeout", "[\"timeout\", \"100\"]");
    let unknown = "-ERR Unknown option or number of arguments for CONFIG SET - 'nosuch'";
    c.check("CONFIG SET nosuch 1", unknown);
    c.check("CONFIG SET timeout 5 nosuch 1", unknown);
    c.check("CONFIG SET timeout 5 maxclients", "-ERR syntax error");
    c.check(
        "CONFIG SET timeout 1 timeout 2",
        "-ERR CONFIG SET failed (possibly related to argument 'timeout') - duplicate parameter",
    );
    c.check(
        "CONFIG SET databases 5",
        "-ERR CONFIG SET failed (possibly related to argument 'databases') - can't set immutable config",
    );
    c.check("CONFIG GET timeout", "[\"timeout\", \"100\"]");
}

#[test]
fn units_and_words() {
    let server = server();
    let mut c = server.connect();
    for (directive, given, kept) in [
        ("maxmemory", "100mb", "104857600"),
        ("maxmemory", "2gb", "2147483648"),
        ("maxmemory", "1k", "1000"),
        ("maxmemory", "0", "0"),
        ("maxmemory-policy", "ALLKEYS-LRU", "allkeys-lru"),
        ("proto-max-bulk-len", "2mb", "2097152"),
        ("slowlog-log-slower-than", "-1", "-1"),
        ("loglevel", "warning", "warning"),
        ("lazyfree-lazy-user-flush", "yes", "yes"),
    ] {
        c.check(&format!("CONFIG SET {directive} {given}"), "+OK");
        c.check(&format!("CONFIG GET {directive}"), &format!("[\"{directive}\", \"{kept}\"]"));
    }
    c.check("CONFIG SET client-output-buffer-limit 'normal 3mb 1mb 5'", "+OK");
    let limits = c.ask("CONFIG GET client-output-buffer-limit").items()[1].text().to_owned();
    assert!(limits.starts_with("normal 3145728 1048576 5 slave "), "{limits}");
    for (directive, value) in [
        ("maxmemory-policy", "nosuch"),
        ("loglevel", "loud"),
        ("maxmemory", "1tb"),
        ("timeout", "-1"),
        ("lazyfree-lazy-user-flush", "maybe"),
        ("client-output-buffer-limit", "normal 1"),
    ] {
        let error = c.call(&["CONFIG", "SET", directive, value]);
        assert!(
            error.to_string().starts_with("-ERR CONFIG SET failed"),
            "{directive} {value}: {error}"
        );
    }
}

#[test]
fn rewrite_changes_the_file_and_keeps_its_comments() {
    let dir = TempDir::new();
    let file = dir.write("server.conf", "# Mine.\ntimeout 5\n\n# Others.\nmaxclients 100\n");
    // The path of the directory is written into the file, so it has to outlive the server.
    let data = dir.path().to_str().expect("UTF-8");
    let server = launch().file(&file).with("dir", data).start();
    let mut c = server.connect();
    c.check("CONFIG GET timeout", "[\"timeout\", \"5\"]");
    c.check("CONFIG SET timeout 77 slowlog-max-len 33", "+OK");
    c.check("CONFIG REWRITE", "+OK");
    let text = std::fs::read_to_string(&file).expect("the file");
    assert!(text.starts_with("# Mine.\ntimeout 77\n\n# Others.\nmaxclients 100\n"), "{text}");
    assert!(text.lines().any(|line| line == "slowlog-max-len 33"), "{text}");
    drop((c, server));
    let server = launch().file(&file).with("dir", data).start();
    let mut c = server.connect();
    c.check("CONFIG GET timeout", "[\"timeout\", \"77\"]");
    c.check("CONFIG GET slowlog-max-len", "[\"slowlog-max-len\", \"33\"]");
}

#[test]
fn rewrite_needs_a_file() {
    let server = server();
    server.connect().check("CONFIG REWRITE", "-ERR The server is running without a config file");
}

#[test]
fn help() {
    let server = server();
    let help = server.connect().ask("CONFIG HELP");
    assert!(help.items().iter().any(|line| line.text() == "REWRITE"), "{help}");
    server.connect().check("CONFIG NOSUCH", "-ERR unknown subcommand 'NOSUCH'. Try CONFIG HELP.");
}

/// A client may connect before the server has reported that it is ready.
#[test]
fn what_the_first_client_sets_acts() {
    for _ in 0..5 {
        let (port, memcached_port) = (free_port(), free_port());
        let starting = std::thread::spawn(move || launch().on_port(port).start());
        let mut first = None;
        wait_until("a connection is accepted", || {
            first = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).ok();
            first.is_some()
        });
        let mut first = first.expect("waited for");
        let request = format!("CONFIG SET memcached-port {memcached_port}\r\n");
        first.write_all(request.as_bytes()).expect("sent");
        let mut reply = [0; 5];
        first.read_exact(&mut reply).expect("a reply");
        assert_eq!(&reply, b"+OK\r\n");
        TcpStream::connect((Ipv4Addr::LOCALHOST, memcached_port)).expect("it listens");
        drop(starting.join().expect("started"));
    }
}
