//! Redis' configuration files and service units have the same meaning here.

use std::os::unix::net::UnixDatagram;

use rustix::process::Signal;
use tierce_harness::{Connection, Launch, PATIENCE, Server, TempDir, free_port, wait_until};

use crate::program;

fn start(dir: &TempDir, conf: &str) -> Server {
    launch(dir, conf).start()
}

fn launch(dir: &TempDir, conf: &str) -> Launch {
    let file = dir.write("redis.conf", conf);
    Launch::new(program()).keeping().file(file).with("dir", &dir.path().display().to_string())
}

fn end(mut server: Server, signal: Signal) {
    server.signal(signal);
    assert!(server.wait_for_end().success(), "{}", server.output());
}

#[test]
fn data_outlives_the_server_without_a_log_and_without_save_points() {
    let dir = TempDir::new();
    let server = start(&dir, "appendonly no\n");
    let mut c = server.connect();
    c.check("CONFIG GET save", "[\"save\", \"3600 1 300 100 60 10000\"]");
    c.check("SET a 1", "+OK");
    end(server, Signal::TERM);
    assert!(dir.path().join("dump.rdb").exists() && !dir.path().join("wal").exists());
    let server = start(&dir, "appendonly no\n");
    let mut c = server.connect();
    c.check("INCR a", ":2");
    c.send("SHUTDOWN\r\n");
    c.expect_closed();
    drop(server);
    let server = start(&dir, "appendonly no\nsave \"\"\n");
    let mut c = server.connect();
    c.check("CONFIG GET save", "[\"save\", \"\"]");
    c.check("INCR a", ":3");
    end(server, Signal::TERM);
    let server = start(&dir, "appendonly no\n");
    server.connect().check("GET a", "\"2\"");
}

#[test]
fn a_file_that_does_not_mention_the_log_gets_one() {
    let dir = TempDir::new();
    let server = start(&dir, "maxclients 50\n");
    let mut c = server.connect();
    c.check("CONFIG GET appendonly", "[\"appendonly\", \"yes\"]");
    c.check("SET a 1", "+OK");
    drop(server);
    start(&dir, "maxclients 50\n").connect().check("GET a", "\"1\"");
}

#[test]
fn signals_save_as_the_directives_for_them_say() {
    for (conf, signal, saves) in [
        ("save \"\"\nshutdown-on-sigterm save\n", Signal::TERM, true),
        ("save \"\"\nshutdown-on-sigterm save\n", Signal::INT, false),
        ("shutdown-on-sigint nosave force\n", Signal::INT, false),
        ("shutdown-on-sigint nosave\n", Signal::TERM, true),
    ] {
        let dir = TempDir::new();
        let server = start(&dir, &format!("appendonly no\n{conf}"));
        server.connect().check("SET a 1", "+OK");
        end(server, signal);
        assert_eq!(dir.path().join("dump.rdb").exists(), saves, "{conf} {signal:?}");
    }
}

/// Returns the message that a service manager acts on.
fn heard(socket: &UnixDatagram) -> String {
    socket.set_read_timeout(Some(PATIENCE)).expect("a socket");
    let mut buffer = [0; 256];
    let len = socket.recv(&mut buffer).expect("a message");
    let text = String::from_utf8_lossy(&buffer[..len]);
    text.lines().filter(|line| !line.starts_with("STATUS=")).collect()
}

#[test]
fn systemd_hears_when_the_server_is_ready_and_when_it_ends() {
    let dir = TempDir::new();
    let path = dir.path().join("notify");
    let socket = UnixDatagram::bind(&path).expect("a socket");
    for mode in ["systemd", "auto"] {
        // The unit of Debian overrides `daemonize yes` of the file, and so does a service manager.
        let conf = format!("appendonly no\ndaemonize yes\nsupervised {mode}\n");
        let variable = path.to_str().expect("UTF-8");
        let server = launch(&dir, &conf).variable("NOTIFY_SOCKET", variable).start();
        assert_eq!(heard(&socket), "READY=1");
        server.connect().check("PING", "+PONG");
        end(server, Signal::TERM);
        assert_eq!(heard(&socket), "STOPPING=1");
    }
    let server = launch(&dir, "supervised systemd\n").start();
    assert!(server.output().contains("Type=notify"), "{}", server.output());
}

#[test]
fn a_daemon_is_ready_when_the_program_that_was_started_ends() {
    let dir = TempDir::new();
    let port = free_port();
    let conf = format!("daemonize yes\nport {port}\nappendonly no\npidfile server.pid\n");
    let outcome = launch(&dir, &conf).run();
    assert_eq!((outcome.code, outcome.errors.as_str()), (Some(0), ""), "{outcome:?}");
    let address = (std::net::Ipv4Addr::LOCALHOST, port).into();
    let mut c = Connection::tcp(address);
    c.check("SET a 1", "+OK");
    let again = launch(&dir, &conf).run();
    assert_eq!(again.code, Some(1), "{again:?}");
    assert!(again.errors.contains("in use"), "{again:?}");
    c.send("SHUTDOWN\r\n");
    c.expect_closed();
    wait_until("it has saved", || dir.path().join("dump.rdb").exists());
}
