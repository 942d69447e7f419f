//! Encrypted connections: the same protocols, certificates that change, and peers that disconnect anywhere.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::Arc;

use rustls::ClientConfig;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use tierce_client::{Config, Tls, TlsOptions, resp};
use tierce_harness::{
    Both, Connection, Launch, PATIENCE, Server, certificate_file, encode, free_port, tls_config,
    tls_stream, wait_until,
};

use super::{launch, program};

const MIB: usize = 1024 * 1024;

/// A server with a second port for encrypted connections.
struct Encrypted {
    both: Both,
    client: Arc<ClientConfig>,
}

impl Encrypted {
    fn start(launch: Launch) -> Self {
        let both = Both::start(launch.with_certificates(), "tls-port");
        Self { both, client: tls_config(Some("client")) }
    }

    fn server(&self) -> &Server {
        &self.both.server
    }

    fn address(&self) -> SocketAddr {
        ([127, 0, 0, 1], self.both.port).into()
    }

    fn connect(&self) -> Connection {
        Connection::tls(self.address(), &self.client)
    }

    fn plain(&self) -> Connection {
        self.both.server.connect()
    }

    /// Returns a field of INFO stats.
    fn stat(&self, name: &str) -> u64 {
        let info =
            String::from_utf8(self.plain().ask("INFO stats").bytes().to_vec()).expect("text");
        let line = info.lines().find_map(|line| line.strip_prefix(&format!("{name}:")));
        line.expect("the field").parse().expect("a number")
    }

    /// Returns true if a request is answered over a new connection with this certificate.
    fn serves(&self, identity: Option<&str>) -> bool {
        let mut stream = tls_stream(self.address(), &tls_config(identity));
        let mut reply = [0; 7];
        stream.write_all(b"PING\r\n").is_ok()
            && stream.read_exact(&mut reply).is_ok()
            && reply == *b"+PONG\r\n"
    }
}

fn file(name: &str) -> String {
    certificate_file(name).display().to_string()
}

#[test]
fn plain_and_encrypted_clients_share_the_data() {
    let server = Encrypted::start(launch());
    let (mut plain, mut encrypted) = (server.plain(), server.connect());
    encrypted.check("SET k v", "+OK");
    plain.check("GET k", "\"v\"");
    plain.check("INCR n", ":1");
    encrypted.check("INCR n", ":2");
    let many = "INCR n\r\n".repeat(5000);
    encrypted.send(&many);
    for n in 3..5003 {
        encrypted.expect(&format!(":{n}"));
    }
}

#[test]
fn a_server_may_have_no_other_port() {
    let server = Encrypted::start(launch().with("port", "0"));
    let mut client = server.connect();
    client.check("SET k v", "+OK");
    client.check("GET k", "\"v\"");
}

#[test]
fn clients_show_certificates_as_configured() {
    let server = Encrypted::start(launch());
    let serves = || [None, Some("client"), Some("stranger")].map(|name| server.serves(name));
    assert_eq!(serves(), [false, true, false]);
    server.plain().check("CONFIG SET tls-auth-clients optional", "+OK");
    assert_eq!(serves(), [true, true, false]);
    server.plain().check("CONFIG SET tls-auth-clients no", "+OK");
    assert_eq!(serves(), [true, true, true]);
    assert!(server.stat("tls_errors") >= 3);
}

#[test]
fn certificates_are_replaced_without_closing_a_connection() {
    let server = Encrypted::start(launch());
    let mut old = server.connect();
    old.check("SET k v", "+OK");
    let mut plain = server.plain();
    for wrong in ["tls-cert-file /nonexistent", "tls-ciphers RC4-SHA", "tls-protocols TLSv1.1"] {
        let reply = plain.ask(&format!("CONFIG SET {wrong}")).to_string();
        assert!(reply.contains("Unable to update TLS configuration"), "{reply}");
    }
    // The named file has to exist, although no certificate is asked for.
    plain.check("CONFIG SET tls-auth-clients no", "+OK");
    let reply = plain.ask("CONFIG SET tls-ca-cert-file /nonexistent").to_string();
    assert!(reply.contains("Unable to update TLS configuration"), "{reply}");
    plain.check("CONFIG SET tls-auth-clients yes", "+OK");
    // The key of another certificate.
    let reply = plain.ask(&format!("CONFIG SET tls-cert-file {}", file("rsa.crt"))).to_string();
    assert!(reply.contains("do not fit together"), "{reply}");
    assert!(server.serves(Some("client")));
    let (cert, key) = (file("rsa.crt"), file("rsa.key"));
    plain.check(&format!("CONFIG SET tls-cert-file {cert} tls-key-file {key}"), "+OK");
    let mut stream = tls_stream(server.address(), &server.client);
    stream.write_all(b"PING\r\n").expect("sent");
    let shown = stream.conn.peer_certificates().expect("a certificate")[0].to_vec();
    // A file that has changed under the same name is read again, and refused if it is invalid.
    let copy = server.server().dir().join("copy.crt");
    std::fs::copy(certificate_file("rsa.crt"), &copy).expect("copied");
    let set = format!("CONFIG SET tls-cert-file {}", copy.display());
    plain.check(&set, "+OK");
    std::fs::write(&copy, "no certificate").expect("written");
    assert!(plain.ask(&set).to_string().contains("no certificate in PEM"));
    let mut again = tls_stream(server.address(), &server.client);
    again.write_all(b"PING\r\n").expect("sent");
    assert_eq!(again.conn.peer_certificates().expect("a certificate")[0].to_vec(), shown);
    old.check("GET k", "\"v\"");
}

#[test]
fn files_that_have_changed_are_read_again() {
    const SERIALS: [&str; 2] = ["541520DE1D3F792E", "41F378CD81E6241E"];
    let server = Encrypted::start(launch().with("tls-auto-reload-interval", "1"));
    let (mut plain, mut old) = (server.plain(), server.connect());
    let live = |kind: &str| server.server().dir().join(format!("live.{kind}"));
    // Renamed, as programs that renew certificates do.
    let install = |name: &str, kind: &str| {
        let new = server.server().dir().join("new");
        std::fs::copy(certificate_file(&format!("{name}.{kind}")), &new).expect("copied");
        std::fs::rename(new, live(kind)).expect("renamed");
    };
    install("server", "crt");
    install("server", "key");
    let [cert, key] = ["crt", "key"].map(|kind| live(kind).display().to_string());
    plain.check(&format!("CONFIG SET tls-cert-file {cert} tls-key-file {key}"), "+OK");
    let mut info = || plain.ask("INFO tls").text().to_owned();
    let begin = format!("# TLS\r\ntls_server_cert_serial:{}\r\n", SERIALS[0]);
    assert!(info().starts_with(&begin), "{}", info());
    assert!(info().contains("tls_server_cert_expires_in_seconds:3"), "{}", info());
    // They do not fit together until both are there.
    install("rsa", "crt");
    install("rsa", "key");
    wait_until("the new certificate is in use", || info().contains(SERIALS[1]));
    let mut stream = tls_stream(server.address(), &server.client);
    stream.write_all(b"PING\r\n").expect("sent");
    let shown = stream.conn.peer_certificates().expect("a certificate")[0].to_vec();
    let file = CertificateDer::from_pem_file(certificate_file("rsa.crt")).expect("a certificate");
    assert_eq!(shown, file.to_vec());
    old.check("PING", "+PONG");
}

#[test]
fn an_encrypted_key_needs_its_password() {
    let key = file("encrypted.key");
    let with_key = || launch().with_certificates().with("tls-key-file", &key).with("tls-port", "1");
    let said = with_key().run().errors;
    assert!(said.contains("tls-key-file-pass is empty"), "{said}");
    let said = with_key().with("tls-key-file-pass", "wrong").run().errors;
    assert!(said.contains("another password"), "{said}");
    let launch = launch().with_certificates().with("tls-key-file", &key);
    let both = Both::start(launch.with("tls-key-file-pass", "secret"), "tls-port");
    let address: SocketAddr = ([127, 0, 0, 1], both.port).into();
    Connection::tls(address, &tls_config(Some("client"))).check("PING", "+PONG");
}

#[test]
fn a_start_without_certificates_says_what_is_missing() {
    let outcome = Launch::new(program()).with("tls-port", "1").run();
    assert_eq!(outcome.code, Some(1));
    assert!(outcome.errors.contains("tls-c"), "{}", outcome.errors);
}

#[test]
fn clients_come_back_with_tickets() {
    let server = Encrypted::start(launch());
    server.connect().check("PING", "+PONG");
    server.connect().check("PING", "+PONG");
    assert_eq!(server.stat("tls_handshakes"), 2);
    assert_eq!(server.stat("tls_handshakes_resumed"), 1);
    server.plain().check("CONFIG SET tls-session-caching no", "+OK");
    server.connect().check("PING", "+PONG");
    assert_eq!(server.stat("tls_handshakes_resumed"), 1);
}

#[test]
fn large_values_go_both_ways() {
    let server = Encrypted::start(launch());
    let mut value = (0..251).collect::<Vec<u8>>().repeat(64 * MIB / 251 + 1);
    value.truncate(64 * MIB);
    let mut client = server.connect();
    assert_eq!(client.call(&[b"SET", b"k".as_slice(), &value]).to_string(), "+OK");
    client.request(&["GET", "k"]);
    let reply = client.reply_bytes();
    assert!(reply.ends_with(b"\r\n") && reply[..reply.len() - 2].ends_with(&value));
    client.check("PING", "+PONG");
}

#[test]
fn messages_and_blocked_clients_are_served() {
    let server = Encrypted::start(launch());
    let (mut subscriber, mut blocked) = (server.connect(), server.connect());
    subscriber.ask("SUBSCRIBE news");
    blocked.request(&["BLPOP", "list", "0"]);
    let mut plain = server.plain();
    wait_until("the client is blocked", || {
        plain.ask("INFO clients").to_string().contains("blocked_clients:1")
    });
    plain.check("RPUSH list element", ":1");
    plain.check("PUBLISH news text", ":1");
    blocked.expect("[\"list\", \"element\"]");
    subscriber.expect("[\"message\", \"news\", \"text\"]");
    // Received requests of a blocked client wait for the end of its wait.
    blocked.send("BLPOP list 0\r\nPING\r\n".repeat(3));
    for _ in 0..3 {
        wait_until("the client is blocked", || {
            plain.ask("INFO clients").to_string().contains("blocked_clients:1")
        });
        plain.ask("RPUSH list element");
        blocked.expect("[\"list\", \"element\"]");
        blocked.expect("+PONG");
    }
}

#[test]
fn a_reader_that_starts_late_gets_everything() {
    let server = Encrypted::start(launch());
    let mut client = server.connect();
    client.call(&[b"SET", b"k".as_slice(), &vec![b'x'; MIB]]);
    client.send("GET k\r\n".repeat(40) + "PING\r\n");
    let mut plain = server.plain();
    wait_until("output waits", || {
        let clients = plain.ask("CLIENT LIST");
        clients.text().lines().any(|client| !client.contains(" omem=0 "))
    });
    for _ in 0..40 {
        assert_eq!(client.reply_bytes().len(), MIB + b"$1048576\r\n\r\n".len());
    }
    client.expect("+PONG");
}

#[test]
fn a_reader_that_never_reads_is_closed() {
    let limit = "normal 8mb 0 0";
    let server = Encrypted::start(launch().with("client-output-buffer-limit", limit));
    let mut client = server.connect();
    client.call(&[b"SET", b"k".as_slice(), &vec![b'x'; MIB]]);
    client.send("GET k\r\n".repeat(60));
    wait_until("the client is closed", || {
        server.stat("client_output_buffer_limit_disconnections") == 1
    });
}

#[test]
fn a_connection_may_break_at_any_byte() {
    let server = Encrypted::start(launch());
    // Bytes that a client sends for its handshake and a request.
    let mut recorded = Vec::new();
    let mut stream = tls_stream(server.address(), &server.client);
    stream.conn.writer().write_all(b"PING\r\n").expect("room");
    stream.conn.write_tls(&mut recorded).expect("a vector takes all");
    drop(stream);
    for len in (0..recorded.len()).step_by(7) {
        let mut socket = TcpStream::connect(server.address()).expect("a listener");
        socket.write_all(&recorded[..len]).expect("sent");
        if len % 2 == 0 {
            socket.shutdown(Shutdown::Write).expect("open");
            socket.set_read_timeout(Some(PATIENCE)).expect("an option");
            let _ = socket.read_to_end(&mut Vec::new());
        }
    }
    // In the middle of a record.
    for len in 1..40 {
        let mut stream = tls_stream(server.address(), &server.client);
        stream.write_all(b"PING\r\n").expect("sent");
        stream.read_exact(&mut [0; 7]).expect("a reply");
        let mut record = Vec::new();
        stream.conn.writer().write_all(b"SET broken yes\r\n").expect("room");
        stream.conn.write_tls(&mut record).expect("a vector takes all");
        stream.sock.write_all(&record[..len.min(record.len() - 1)]).expect("sent");
    }
    server.connect().check("EXISTS broken", ":0");
    wait_until("all are closed", || server.stat("tls_handshakes_under_way") == 0);
}

#[test]
fn what_is_no_tls_is_closed_and_counted() {
    let server = Encrypted::start(launch());
    let before = server.stat("tls_errors");
    let mut socket = TcpStream::connect(server.address()).expect("a listener");
    socket.set_read_timeout(Some(PATIENCE)).expect("an option");
    socket.write_all(b"PING\r\nPING\r\n").expect("sent");
    let mut alert = Vec::new();
    let _ = socket.read_to_end(&mut alert);
    assert_eq!(alert.first(), Some(&21), "an alert");
    // Repeats this after a handshake.
    let mut stream = tls_stream(server.address(), &server.client);
    stream.write_all(b"PING\r\n").expect("sent");
    stream.read_exact(&mut [0; 7]).expect("a reply");
    stream.sock.write_all(b"\x17\x03\x03\x00\x20 this was not encrypted by anyone").expect("sent");
    let _ = stream.sock.read_to_end(&mut Vec::new());
    wait_until("both are counted", || server.stat("tls_errors") == before + 2);
}

#[test]
fn handshakes_are_bounded_in_time_and_number() {
    let bounds = launch().with("tls-handshake-timeout", "1").with("tls-handshakes-max", "8");
    let server = Encrypted::start(bounds.with("threads", "1"));
    let silent: Vec<_> =
        (0..20).map(|_| TcpStream::connect(server.address()).expect("a listener")).collect();
    wait_until("some are refused", || server.stat("tls_handshakes_refused") == 12);
    // They do not count as clients, and no client waits for them.
    server.plain().check("PING", "+PONG");
    wait_until("the others are given up", || server.stat("tls_errors") == 8);
    assert_eq!(server.stat("tls_handshakes_timed_out"), 8);
    assert_eq!(server.stat("tls_handshakes_under_way"), 0);
    server.connect().check("PING", "+PONG");
    drop(silent);
}

#[test]
fn the_end_is_announced_both_ways() {
    let server = Encrypted::start(launch());
    let mut stream = tls_stream(server.address(), &server.client);
    stream.write_all(b"PING\r\nQUIT\r\n").expect("sent");
    let mut replies = Vec::new();
    // Without close_notify, this is an error.
    stream.read_to_end(&mut replies).expect("an orderly end");
    assert_eq!(replies, b"+PONG\r\n+OK\r\n");
    let mut stream = tls_stream(server.address(), &server.client);
    stream.write_all(b"PING\r\n").expect("sent");
    stream.conn.send_close_notify();
    stream.flush().expect("sent");
    replies.clear();
    stream.read_to_end(&mut replies).expect("an orderly end");
    assert_eq!(replies, b"+PONG\r\n");
}

#[test]
fn the_client_in_rust_encrypts() {
    let server = Encrypted::start(launch());
    let options = TlsOptions {
        ca_file: certificate_file("ca.crt"),
        identity: Some((certificate_file("client.crt"), certificate_file("client.key"))),
        ..TlsOptions::default()
    };
    let tls = Some(Tls::new(&options).expect("files"));
    let config = Config { tls, ..Config::default() };
    let client = resp::Client::connect(server.address(), config.clone()).expect("a thread");
    let (value, login) = (vec![b'x'; 300_000], resp::Login::default());
    let stored: Vec<_> = (0..50u8).map(|n| client.set(&[n], &value)).collect();
    stored.into_iter().for_each(|stored| stored.wait().expect("stored"));
    // The connection is lost, and a new one is made.
    server.plain().ask("CLIENT KILL TYPE normal SKIPME yes");
    assert_eq!(client.get(&[7]).wait().expect("a reply"), Some(value.clone()));
    let mut client = resp::SyncClient::new(server.address(), config, &login);
    assert_eq!(client.get(&[9]).expect("a reply"), Some(value));
    // A server that no trusted authority has signed.
    let unknown = TlsOptions { ca_file: certificate_file("stranger.crt"), ..options };
    let tls = Some(Tls::new(&unknown).expect("files"));
    let config = Config { tls, ..Config::default() };
    let mut client = resp::SyncClient::new(server.address(), config, &login);
    client.get(b"k").expect_err("not to be trusted");
}

#[test]
fn the_other_protocols_are_encrypted_too() {
    let client = tls_config(Some("client"));
    for (directive, request, reply) in [
        (
            "memcached-tls-port",
            &b"set k 0 0 1\r\nv\r\nget k\r\n"[..],
            &b"STORED\r\nVALUE k 0 1\r\nv\r\nEND\r\n"[..],
        ),
        ("pedrokv-tls-port", b"\0\x0b\x01\0\0\0\x07\0\x01kv", b""),
    ] {
        let both = Both::start(launch().with_certificates(), directive);
        let mut stream = tls_stream(([127, 0, 0, 1], both.port).into(), &client);
        stream.write_all(request).expect("sent");
        let mut received = vec![0; reply.len().max(1)];
        stream.read_exact(&mut received).expect("a reply");
        assert!(reply.is_empty() || received == reply, "{directive}");
    }
}

/// A client whose certificate names a user is that user from its first request on, in every protocol.
#[test]
fn the_name_in_a_certificate_is_that_of_a_user() {
    let ports = [free_port(), free_port()];
    let server = Encrypted::start(
        launch()
            .with("tls-auth-clients-user", "CN")
            .with("memcached-tls-port", &ports[0].to_string())
            .with("pedrokv-tls-port", &ports[1].to_string()),
    );
    let encrypted =
        |port: u16| Connection::tls(([127, 0, 0, 1], port).into(), &tls_config(Some("client")));
    let mut admin = server.plain();
    admin.check("ACL SETUSER client on >other ~own:* +@all", "+OK");
    admin.check("ACL SETUSER default >secret", "+OK");
    let mut client = server.connect();
    client.check("ACL WHOAMI", "\"client\"");
    client.check("SET own:k v", "+OK");
    assert!(client.ask("GET k").to_string().starts_with("-NOPERM"));
    // A client that resumes with a ticket has shown its certificate before.
    server.connect().check("ACL WHOAMI", "\"client\"");
    // A connection begins with the user of the certificate, and RESET restores the default user as usual.
    client.check("AUTH default secret", "+OK");
    client.check("ACL WHOAMI", "\"default\"");
    let mut memcached = encrypted(ports[0]);
    memcached.send("get own:k\r\nget k\r\nquit\r\n");
    let replies = memcached.rest();
    assert!(replies.starts_with(b"VALUE own:k 0 1\r\nv\r\nEND\r\n"), "{}", replies.escape_ascii());
    assert!(!replies.ends_with(b"END\r\nEND\r\n"), "{}", replies.escape_ascii());
    let get = b"\0\x0d\x05\x01\0\0\0\x01own:k";
    let mut pedrokv = encrypted(ports[1]);
    pedrokv.send(get);
    assert_eq!(pedrokv.read_exactly(8), b"\0\x08\0\0\0\0\x01v");
    // If the user does not exist or is off, the client is the default user, who needs a password.
    admin.check("ACL SETUSER client off", "+OK");
    server.connect().check("GET own:k", "-NOAUTH Authentication required.");
    admin.check("ACL DELUSER client", ":1");
    wait_until("clients of that user are gone", || {
        !admin.ask("CLIENT LIST").text().contains(" user=client ")
    });
    server.connect().check("GET own:k", "-NOAUTH Authentication required.");
    admin.check("ACL SETUSER client on nopass ~* +@all", "+OK");
    admin.check("CONFIG SET tls-auth-clients-user off", "+OK");
    server.connect().check("GET own:k", "-NOAUTH Authentication required.");
    admin.check("CONFIG SET tls-auth-clients-user CN tls-auth-clients optional", "+OK");
    let mut anonymous = Connection::tls(server.address(), &tls_config(None));
    anonymous.check("GET own:k", "-NOAUTH Authentication required.");
    server.connect().check("GET own:k", "\"v\"");
}

/// Records that the socket did not take do not wait for room after the socket has failed.
#[test]
fn a_reset_ends_a_connection_whose_script_runs_behind_an_unread_reply() {
    const LEN: usize = 20 * MIB;
    let launch = launch().with("threads", "1").with("busy-reply-threshold", "50");
    let server = Encrypted::start(launch);
    let (mut c, mut client) = (server.plain(), server.connect());
    c.check(&format!("SETRANGE long {} x", LEN - 1), &format!(":{LEN}"));
    let endless = ["EVAL", "while true do end", "1", "held"];
    client.send([encode(&["GET", "long"]), encode(&endless)].concat());
    wait_until("the script runs", || c.ask("GET held").to_string().starts_with("-BUSY"));
    // Unread bytes turn the close into a reset.
    drop(client);
    c.check("SCRIPT KILL", "+OK");
    wait_until("the connection has ended", || {
        c.ask("INFO clients").text().contains("\nconnected_clients:1\r")
    });
}
