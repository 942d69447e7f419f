//! Nothing that the server shows or writes contains a password, from any source.
//!
//! All passwords begin with [`MARK`], followed by their source. So one search finds all of them and names the source.

use std::fs;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpStream};

use tierce_harness::{
    Connection, Launch, PATIENCE, Server, TempDir, certificate_file, encode, free_port, wait_until,
};

use crate::launch;
use crate::memcached::frame;

const MARK: &str = "hush";

/// `ann:hush-basic-wrong` and `ann:hush-acl`, encoded for HTTP.
const WRONG_BASIC: &str = "YW5uOmh1c2gtYmFzaWMtd3Jvbmc=";
const RIGHT_BASIC: &str = "YW5uOmh1c2gtYWNs";

/// Requests of a client before it has authenticated.
const KNOCKS: &[&str] = &[
    "AUTH hush-auth-wrong",
    "AUTH ann hush-auth-user-wrong",
    "AUTH ann hush-auth-arity hush-auth-arity-2 hush-auth-arity-3",
    "HELLO 3 AUTH ann hush-hello-wrong",
    "HELLO 9 AUTH ann hush-hello-version",
    "HELLO 3 AUTH hush-hello-arity",
    "HELLO 3 SETNAME x AUTH default hush-requirepass",
];

/// Requests of an authenticated client. Each gets a reply or an error.
const REQUESTS: &[&str] = &[
    "ACL SETUSER ann on >hush-acl +@all ~*",
    "ACL SETUSER ann >hush-acl-second <hush-acl-second",
    "ACL SETUSER ann >hush-acl-third +nosuch",
    "ACL SETUSER ann (>hush-acl-selector)",
    "ACL GETUSER ann",
    "ACL LIST",
    "ACL DRYRUN ann AUTH hush-dryrun",
    "COMMAND GETKEYS AUTH ann hush-getkeys",
    "CONFIG SET masterauth hush-masterauth-set",
    "CONFIG SET masterauth hush-masterauth-bad nosuch 1",
    "CONFIG SET maxclients none masterauth hush-masterauth-bad",
    "CONFIG SET tls-key-file-pass hush-key-wrong",
    "MIGRATE 127.0.0.1 1 key 0 10 AUTH hush-migrate",
    "MIGRATE 127.0.0.1 1 key 0 10 AUTH2 ann hush-migrate-user",
    "MULTI",
    "AUTH ann hush-acl",
    "AUTH ann hush-auth-in-transaction",
    "EXEC",
    "AUTH default hush-requirepass",
    "CONFIG SET requirepass hush-requirepass-new",
    "AUTH hush-requirepass-new",
    "CONFIG SET requirepass hush-requirepass",
];

/// Commands that show data about the server, its clients, or their requests.
const SHOWN: &[&str] = &[
    "SLOWLOG GET -1",
    "CLIENT LIST",
    "CLIENT INFO",
    "INFO everything",
    "ACL LOG 100",
    "LATENCY LATEST",
    "LATENCY DOCTOR",
    "LATENCY HISTORY command",
    "LATENCY HISTOGRAM",
    "MEMORY STATS",
    "MEMORY DOCTOR",
    "MEMORY MALLOC-STATS",
    "COMMANDLOG GET -1 slow",
    "COMMAND DOCS auth",
    "ROLE",
    "CONFIG GET replicaof",
    "DEBUG OBJECT key",
    "DEBUG HTSTATS 0",
];

struct Scene {
    server: Server,
    memcached: u16,
    http: u16,
    log: std::path::PathBuf,
    /// Primary that refuses it as a replica.
    primary: Server,
}

impl Scene {
    fn start(dir: &TempDir) -> Self {
        let log = dir.path().join("server.log");
        let (memcached, http, tls) = (free_port(), free_port(), free_port());
        let primary = launch().with("requirepass", "another").start();
        let server = Self::launch(&log)
            .with("memcached-port", &memcached.to_string())
            .with("http-port", &http.to_string())
            .with("tls-port", &tls.to_string())
            .start();
        Self { server, memcached, http, log, primary }
    }

    fn launch(log: &std::path::Path) -> Launch {
        launch()
            .with("requirepass", "hush-requirepass")
            .with("masterauth", "hush-masterauth")
            .with("loglevel", "debug")
            .with("logfile", log.to_str().expect("UTF-8"))
            .with("slowlog-log-slower-than", "0")
            .with("slowlog-max-len", "10000")
            .with("latency-monitor-threshold", "1")
            .with("enable-debug-command", "yes")
            .with_certificates()
            .with("tls-key-file", certificate_file("encrypted.key").to_str().expect("UTF-8"))
            .with("tls-key-file-pass", "secret")
    }

    fn admin(&self) -> Connection {
        let mut admin = self.server.connect();
        admin.check("AUTH hush-requirepass", "+OK");
        admin
    }

    /// Reads the whole answer to some bytes on another port.
    fn talk(&self, port: u16, bytes: &[u8]) {
        let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).expect("a listener");
        stream.set_read_timeout(Some(PATIENCE)).expect("a socket option");
        stream.write_all(bytes).expect("sent");
        stream.shutdown(std::net::Shutdown::Write).expect("a socket");
        let mut answer = Vec::new();
        // It may end with a reset.
        let _ = stream.read_to_end(&mut answer);
        check("an answer", &String::from_utf8_lossy(&answer));
    }

    fn requests(&self) {
        for knock in KNOCKS {
            check(knock, &self.server.connect().ask(knock).to_string());
        }
        // Invalid lines, and more bytes than are allowed before authentication.
        for bytes in [
            &b"AUTH \"hush-unbalanced\r\n"[..],
            b"*2\r\n$4\r\nAUTH\r\n$99999999\r\nhush-too-long",
            b"*1\r\nhush-no-bulk\r\n",
        ] {
            let mut c = self.server.connect();
            c.send(bytes);
            c.finish_sending();
            check("an answer", &String::from_utf8_lossy(&c.rest()));
        }
        let mut admin = self.admin();
        for request in REQUESTS {
            let _ = admin.ask(request);
        }
    }

    fn requests_of_memcached(&self) {
        for login in [&b"\0ann\0hush-acl"[..], b"\0ann\0hush-sasl-wrong", b"hush-no-sasl"] {
            self.talk(self.memcached, &frame(0x21, b"", b"PLAIN", login));
        }
        for login in ["ann hush-acl", "ann hush-text-wrong", "hush-text-alone"] {
            self.talk(
                self.memcached,
                format!("set auth 0 0 {}\r\n{login}\r\nget key\r\n", login.len()).as_bytes(),
            );
        }
    }

    fn requests_of_http(&self) {
        for token in [
            "Bearer hush-requirepass",
            "Bearer ann:hush-acl",
            "Bearer hush-bearer-wrong",
            "Digest hush-digest",
        ] {
            self.http(&format!("GET /get/key HTTP/1.1\r\nAuthorization: {token}"));
        }
        self.http(&format!("GET /get/key HTTP/1.1\r\nAuthorization: Basic {RIGHT_BASIC}"));
        self.http(&format!("GET /get/key HTTP/1.1\r\nAuthorization: Basic {WRONG_BASIC}"));
        let bearer = "Authorization: Bearer hush-requirepass";
        self.http(&format!("POST /auth/hush-in-path HTTP/1.1\r\n{bearer}"));
        self.http("GET /get/key?_token=hush-in-query HTTP/1.1");
        self.http(&format!("POST /acl/setuser/eve/%3Ehush-acl-http HTTP/1.1\r\n{bearer}"));
    }

    fn http(&self, head: &str) {
        let request =
            format!("{head}\r\nHost: localhost\r\nConnection: close\r\nContent-Length: 0\r\n\r\n");
        self.talk(self.http, request.as_bytes());
    }

    /// Tries to follow a primary that wants another password, and stops after the failure.
    fn follows_in_vain(&self) {
        let mut admin = self.admin();
        admin.check(&format!("REPLICAOF 127.0.0.1 {}", self.primary.port()), "+OK");
        wait_until("the primary refuses", || self.text().contains("WRONGPASS"));
        check("ROLE", &admin.ask("ROLE").to_string());
        check("INFO", admin.ask("INFO replication").text());
        admin.check("REPLICAOF NO ONE", "+OK");
    }

    /// Returns its log and output.
    fn text(&self) -> String {
        let log = fs::read(&self.log).expect("a log");
        String::from_utf8_lossy(&log).into_owned() + &self.server.output() + &self.server.errors()
    }
}

#[track_caller]
fn check(place: &str, text: &str) {
    for secret in [MARK, WRONG_BASIC, RIGHT_BASIC] {
        let at = text.find(secret).unwrap_or(text.len());
        let near: String = text[at..].chars().take(200).collect();
        assert!(at == text.len(), "{place} shows a password: {near}");
    }
}

#[test]
fn nothing_that_is_shown_or_written_has_a_password() {
    let dir = TempDir::new();
    let scene = Scene::start(&dir);
    let mut watcher = scene.admin();
    watcher.check("MONITOR", "+OK");
    scene.requests();
    scene.requests_of_memcached();
    scene.requests_of_http();
    scene.follows_in_vain();

    let mut admin = scene.admin();
    for request in SHOWN {
        check(request, &admin.ask(request).to_string());
    }
    admin.send(encode(&["ECHO", "the end"]));
    admin.expect("\"the end\"");
    let mut lines = 0;
    loop {
        let line = watcher.reply().to_string();
        check("MONITOR", &line);
        lines += 1;
        if line.contains("the end") {
            break;
        }
    }
    assert!(lines > REQUESTS.len() / 2, "monitors see requests: {lines}");
    let log = scene.text();
    assert!(log.contains("wrong user name or password"), "{log}");
    check("the log", &log);
    let shown = fs::read(format!("/proc/{}/cmdline", scene.server.pid())).expect("own process");
    let shown = String::from_utf8_lossy(&shown).replace('\0', " ");
    assert!(shown.contains("--loglevel"), "{shown}");
    check("the command line", &shown);
    assert!(!shown.contains(" secret"), "{shown}");
}

/// The error about an invalid file of users does not contain its passwords, at the start and by ACL LOAD.
#[test]
fn what_is_wrong_with_a_file_is_said_without_its_passwords() {
    let dir = TempDir::new();
    let users = "user ann on >hush-file +nosuch\nuser bob <hush-missing\nuser eve #hush-no-hash\nann >hush-no-user\n";
    let acl = dir.write("users.acl", "user default on nopass +@all ~*\n");
    let server = launch().with("aclfile", acl.to_str().expect("UTF-8")).start();
    dir.write("users.acl", users);
    let reply = server.connect().ask("ACL LOAD").to_string();
    assert!(reply.contains("nosuch"), "{reply}");
    check("ACL LOAD", &reply.replace("#hush-no-hash", ""));
    let outcome = Launch::new(crate::program())
        .with("port", &free_port().to_string())
        .with("aclfile", acl.to_str().expect("UTF-8"))
        .run();
    assert_eq!(outcome.code, Some(1));
    check("the start", &(outcome.errors + &outcome.output).replace("#hush-no-hash", ""));
    let conf =
        dir.write("t.conf", "user ann on >hush-conf +nosuch\nrequirepass \"hush-unbalanced\n");
    let outcome = Launch::new(crate::program()).file(conf).run();
    assert_eq!(outcome.code, Some(1));
    check("the start", &(outcome.errors + &outcome.output));
}
