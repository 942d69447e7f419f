//! Signals end the program: gracefully, with exit code 0, and without files left behind.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, Stdio};

/// Starts the program and waits until it accepts connections.
fn start(args: &[&str]) -> (Child, BufReader<ChildStdout>) {
    let mut child = Command::new(crate::program())
        .args(args)
        .env_clear()
        .stdout(Stdio::piped())
        .spawn()
        .expect("the program");
    let mut output = BufReader::new(child.stdout.take().expect("piped"));
    let mut line = String::new();
    while !line.starts_with("Ready to accept connections") {
        line.clear();
        assert_ne!(output.read_line(&mut line).expect("text"), 0, "the program ended");
    }
    (child, output)
}

fn end_by(signal: &str) {
    let dir = std::env::temp_dir().join(format!("tierce-signal-{signal}-{}", std::process::id()));
    std::fs::create_dir_all(&dir).expect("a directory");
    let (socket, pid_file) = (dir.join("s.sock"), dir.join("pid"));
    let (socket_path, pid_path) =
        (socket.to_str().expect("text"), pid_file.to_str().expect("text"));
    let data = dir.to_str().expect("text");
    let (mut child, mut output) =
        start(&["--port", "0", "--dir", data, "--unixsocket", socket_path, "--pidfile", pid_path]);
    let pid = std::fs::read_to_string(&pid_file).expect("a pid file");
    assert_eq!(pid.trim(), child.id().to_string());
    let killed = Command::new("kill").args(["-s", signal, pid.trim()]).status();
    assert!(killed.is_ok_and(|status| status.success()));
    assert_eq!(child.wait().expect("the program").code(), Some(0));
    let mut rest = String::new();
    output.read_to_string(&mut rest).expect("text");
    assert!(rest.contains("* A signal asks for shutdown\n"), "{rest}");
    assert!(!socket.exists() && !pid_file.exists());
    std::fs::remove_dir_all(&dir).expect("the directory");
}

#[test]
fn sigterm_ends_the_program() {
    end_by("TERM");
}

#[test]
fn sigint_ends_the_program() {
    end_by("INT");
}

/// Starts a server that takes its last snapshot, after a first SIGTERM, with this delay after each of its two keys.
fn saving(name: &str, rest_us: &str) -> (Child, BufReader<ChildStdout>, PathBuf) {
    let dir = std::env::temp_dir().join(format!("tierce-signal-{name}-{}", std::process::id()));
    std::fs::create_dir_all(&dir).expect("a directory");
    let socket = dir.join("s.sock");
    let (data, socket_path) = (dir.to_str().expect("text"), socket.to_str().expect("text"));
    let args = ["--port", "0", "--dir", data, "--unixsocket", socket_path, "--appendonly", "no"];
    let saving = ["--save", "3600 1", "--rdb-key-save-delay", rest_us];
    let (child, mut output) = start(&[&args[..], &saving].concat());
    let mut client = UnixStream::connect(&socket).expect("a connection");
    client.write_all(b"MSET a 1 b 2\r\n").expect("sent");
    client.read_exact(&mut [0; 5]).expect("a reply");
    signal(&child, "TERM");
    let mut line = String::new();
    while !line.contains("Saving the final RDB snapshot") {
        line.clear();
        assert_ne!(output.read_line(&mut line).expect("text"), 0, "the program ended");
    }
    (child, output, dir)
}

fn signal(child: &Child, signal: &str) {
    let killed = Command::new("kill").args(["-s", signal, &child.id().to_string()]).status();
    assert!(killed.is_ok_and(|status| status.success()));
}

/// `timeout` and some supervisors send SIGTERM twice. Regression: that lost the last snapshot, and with
/// `appendonly no` all data.
#[test]
fn a_second_sigterm_does_not_cut_the_last_snapshot_short() {
    let (mut child, _output, dir) = saving("TERM-TERM", "300000");
    signal(&child, "TERM");
    assert_eq!(child.wait().expect("the program").code(), Some(0));
    let snapshot = std::fs::read(dir.join("dump.rdb")).expect("a snapshot");
    assert!(snapshot.starts_with(b"REDIS"));
    std::fs::remove_dir_all(&dir).expect("the directory");
}

#[test]
fn sigint_cuts_the_last_snapshot_short() {
    let (mut child, mut output, dir) = saving("TERM-INT", "2000000000");
    signal(&child, "INT");
    assert_eq!(child.wait().expect("the program").code(), Some(1));
    let mut rest = String::new();
    output.read_to_string(&mut rest).expect("text");
    assert!(rest.contains("SIGINT: ending at once"), "{rest}");
    assert!(!dir.join("dump.rdb").exists());
    std::fs::remove_dir_all(&dir).expect("the directory");
}

/// After a rotation has renamed the log, SIGHUP creates a new one, and the server continues.
#[test]
fn sighup_opens_the_log_again() {
    let dir = std::env::temp_dir().join(format!("tierce-signal-HUP-{}", std::process::id()));
    std::fs::create_dir_all(&dir).expect("a directory");
    let (log, rotated) = (dir.join("log"), dir.join("log.1"));
    let (data, log_path) = (dir.to_str().expect("text"), log.to_str().expect("text"));
    let socket = dir.join("s.sock");
    let (mut child, _output) = start(
        &[
            ["--port", "0"],
            ["--dir", data],
            ["--unixsocket", socket.to_str().expect("text")],
            ["--logfile", log_path],
            ["--log-format", "json"],
        ]
        .concat(),
    );
    let send = |signal: &str| {
        let killed = Command::new("kill").args(["-s", signal, &child.id().to_string()]).status();
        assert!(killed.is_ok_and(|status| status.success()));
    };
    std::fs::rename(&log, &rotated).expect("a log");
    send("HUP");
    let lines = loop {
        match std::fs::read_to_string(&log) {
            Ok(lines) if lines.ends_with('\n') => break lines,
            _ => std::thread::yield_now(),
        }
    };
    let line: serde_json::Value = serde_json::from_str(lines.trim_end()).expect("JSON");
    assert_eq!(line["message"], "SIGHUP: the log was opened again");
    assert_eq!((&line["level"], &line["role"]), (&"notice".into(), &"primary".into()));
    assert_eq!(line["pid"], child.id());
    let before = std::fs::read_to_string(&rotated).expect("a log");
    assert!(before.lines().all(|line| line.starts_with("{\"time\":\"20")), "{before}");
    // The first signal that ends it, so it ends gracefully.
    send("TERM");
    assert_eq!(child.wait().expect("the program").code(), Some(0));
    let after = std::fs::read_to_string(&log).expect("a log");
    assert!(after.contains("\"message\":\"A signal asks for shutdown\""), "{after}");
    std::fs::remove_dir_all(&dir).expect("the directory");
}

/// A collector of the standard output finds JSON on each line, from the first one to the last.
#[test]
fn a_log_of_json_on_the_standard_output_has_nothing_else() {
    let dir = std::env::temp_dir().join(format!("tierce-json-{}", std::process::id()));
    std::fs::create_dir_all(&dir).expect("a directory");
    let socket = dir.join("s.sock");
    let mut child = Command::new(crate::program())
        .args(["--port", "0", "--log-format", "json", "--dir"])
        .arg(&dir)
        .arg("--unixsocket")
        .arg(&socket)
        .env_clear()
        .stdout(Stdio::piped())
        .spawn()
        .expect("the program");
    let mut output = BufReader::new(child.stdout.take().expect("piped"));
    let mut lines = String::new();
    while !lines.contains("Ready to accept connections") {
        assert_ne!(output.read_line(&mut lines).expect("text"), 0, "{lines}");
    }
    let killed = Command::new("kill").arg(child.id().to_string()).status();
    assert!(killed.is_ok_and(|status| status.success()));
    assert_eq!(child.wait().expect("the program").code(), Some(0));
    output.read_to_string(&mut lines).expect("text");
    for line in lines.lines() {
        let line: serde_json::Value = serde_json::from_str(line).expect(line);
        assert!(line["message"].as_str().is_some_and(|text| !text.contains("  ")), "{line}");
    }
    std::fs::remove_dir_all(&dir).expect("the directory");
}

#[test]
fn a_port_in_use_is_one_line_and_exit_code_1() {
    let taken = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = taken.local_addr().expect("an address").port();
    let output = Command::new(crate::program())
        .args(["--bind", "127.0.0.1", "--port", &port.to_string()])
        .env_clear()
        .output()
        .expect("the program");
    assert_eq!(output.status.code(), Some(1));
    let expected = format!(
        "tierce: could not listen on 127.0.0.1:{port}: address already in use; stop what listens there (sudo ss -ltnp \
         names it), or choose another one\n"
    );
    assert_eq!(String::from_utf8_lossy(&output.stderr), expected);
}

#[test]
fn a_log_that_cannot_be_written_is_one_line_and_exit_code_1() {
    let output = Command::new(crate::program())
        .args(["--port", "0", "--logfile", "/no/such/dir/log"])
        .env_clear()
        .output()
        .expect("the program");
    assert_eq!(output.status.code(), Some(1));
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(error.starts_with("tierce: could not open the log /no/such/dir/log: "), "{error}");
    assert_eq!(error.lines().count(), 1);
}
