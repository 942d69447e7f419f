//! The output at a terminal: colours unless they are turned off, and a progress bar while data are loaded.

use std::fs::{File, OpenOptions};
use std::io::Read;
use std::os::fd::OwnedFd;
use std::process::{Child, Command};

use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};
use tierce_harness::{TempDir, free_port};

/// A server at a terminal of 80 columns.
struct AtTerminal {
    child: Child,
    screen: File,
    seen: String,
}

impl AtTerminal {
    fn start(dir: &TempDir, variables: &[(&str, &str)], options: &[&str]) -> Self {
        let screen: OwnedFd = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).expect("a terminal");
        grantpt(&screen).expect("granted");
        unlockpt(&screen).expect("unlocked");
        let size = Winsize { ws_row: 24, ws_col: 80, ws_xpixel: 0, ws_ypixel: 0 };
        tcsetwinsize(&screen, size).expect("a size");
        let path = ptsname(&screen, Vec::new()).expect("a name").into_string().expect("text");
        let terminal = OpenOptions::new().read(true).write(true).open(path).expect("opened");
        let child = Command::new(crate::program())
            .args(["--bind", "127.0.0.1", "--port", &free_port().to_string(), "--dir"])
            .arg(dir.path())
            .args(options)
            .env_clear()
            .envs(variables.iter().copied())
            .stdout(terminal.try_clone().expect("a descriptor"))
            .stderr(terminal)
            .spawn()
            .expect("the program");
        Self { child, screen: screen.into(), seen: String::new() }
    }

    fn wait_for(&mut self, text: &str) {
        let mut part = [0; 4096];
        while !self.seen.contains(text) {
            let count = self.screen.read(&mut part).unwrap_or(0);
            assert!(count > 0, "the end, and no {text:?}: {:?}", self.seen);
            self.seen.push_str(&String::from_utf8_lossy(&part[..count]));
        }
    }
}

impl Drop for AtTerminal {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// More clients than any system has descriptors for, which causes a warning.
const WARNED: [&str; 2] = ["--maxclients", "2000000000"];

#[test]
fn the_start_has_colours_unless_they_are_switched_off() {
    let dir = TempDir::new();
    for (variables, has_colours) in [
        (&[("TERM", "xterm")][..], true),
        (&[("TERM", "xterm"), ("NO_COLOR", "1")], false),
        (&[("TERM", "dumb")], false),
        (&[], false),
    ] {
        let mut server = AtTerminal::start(&dir, variables, &WARNED);
        server.wait_for("Ready to accept connections");
        let seen = &server.seen;
        assert!(seen.contains("stop with"), "{seen:?}");
        for colour in ["\x1b[1m", "\x1b[2m", "\x1b[32m", "\x1b[33m"] {
            assert_eq!(seen.contains(colour), has_colours, "{variables:?}: {seen:?}");
        }
        if variables != [("TERM", "xterm"), ("NO_COLOR", "1")] && !has_colours {
            assert!(!seen.contains('\x1b'), "{variables:?}: {seen:?}");
        }
    }
}

/// A mistyped `dir` is empty, which surprises the user.
#[test]
fn the_start_says_what_the_directory_has_and_where_else_the_data_are() {
    let dir = TempDir::new();
    let mut server = AtTerminal::start(&dir, &[], &["--replicaof", "127.0.0.1 1"]);
    server.wait_for("Ready to accept connections");
    let seen = &server.seen;
    assert!(
        seen.contains(", new and empty, ") && seen.contains("replica of    127.0.0.1:1\r"),
        "{seen}"
    );
    drop(server);
    let mut server = AtTerminal::start(&dir, &[], &[]);
    server.wait_for("Ready to accept connections");
    assert!(server.seen.contains(", no keys yet, "), "{}", server.seen);

    let (dir, store) = (TempDir::new(), TempDir::new());
    let url = format!("file://{}", store.path().display());
    let mut server = AtTerminal::start(&dir, &[], &["--bucket", &url]);
    server.wait_for("Ready to accept connections");
    let line = format!("bucket        {url}, every 1000 ms (bucket-interval)\r");
    assert!(server.seen.contains(&line), "{}", server.seen);
}

#[test]
fn a_load_shows_a_bar() {
    let dir = TempDir::new();
    let import = dir.write(
        "lines.jsonl",
        "{\"type\":\"header\",\"format\":\"tierce-jsonl\",\"version\":1}\n\
         {\"type\":\"string\",\"key\":\"a\",\"value\":\"1\"}\n{\"type\":\"end\"}\n",
    );
    let imported = Command::new(crate::program())
        .args(["import", "--quiet", "--dir"])
        .args([dir.path(), &import])
        .status()
        .expect("the program");
    assert!(imported.success());
    // The delay after the first key is longer than any test.
    let rests = ["--key-load-delay", "2000000000"];
    let mut server = AtTerminal::start(&dir, &[("TERM", "xterm")], &rests);
    server.wait_for("loading");
    server.wait_for("left");
    assert!(!server.seen.contains("Ready"), "{}", server.seen);
    let killed = Command::new("kill").arg(server.child.id().to_string()).status();
    assert!(killed.is_ok_and(|status| status.success()));
    server.wait_for("\r\u{1b}[Ktierce: A signal ends the start");
}
