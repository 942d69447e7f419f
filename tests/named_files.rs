//! Clients and directives cannot name the server's own files.

use std::fs;
use std::path::Path;

use tierce_harness::{Connection, Launch, Server, TempDir, free_port};

use crate::{launch, program};

fn text(path: &Path) -> &str {
    path.to_str().expect("a path in UTF-8")
}

/// A start with a log, from a configuration file in the data directory, with another file in it.
fn start(dir: &Path) -> Server {
    let conf = dir.join("t.conf");
    if !conf.exists() {
        let conf_text = format!("dir {}\nappendonly yes\nenable-debug-command no\n", text(dir));
        fs::write(&conf, conf_text).expect("a configuration file");
    }
    launch().file(conf).with("dir", text(dir)).with("appendonly", "yes").start()
}

fn refused(c: &mut Connection, command: &str, reason: &str) {
    let reply = c.ask(command).to_string();
    assert!(reply.starts_with("-ERR ") && reply.contains(reason), "{command}: {reply}");
}

#[test]
fn a_backup_has_no_name_of_the_servers_own_files() {
    let scratch = TempDir::new();
    let dir = scratch.path().join("data");
    fs::create_dir_all(dir.join("sub")).expect("a directory");
    let server = start(&dir);
    let mut c = server.connect();
    c.check("SET key value", "+OK");
    fs::write(dir.join("notes.rdb"), "no snapshot").expect("a file");
    std::os::unix::fs::symlink(dir.join("wal"), dir.join("link")).expect("a link");
    std::os::unix::fs::symlink(dir.join("t.conf"), dir.join("link.rdb")).expect("a link");
    let own = "place of the server's own files";
    for name in [
        "wal-9.complete",
        "WAL-9.complete",
        "wal",
        "wal/copy.rdb",
        "sub/../wal/copy.rdb",
        "link/copy.rdb",
        "cold",
        "cold/00000001.cold REPLACE",
        "t.conf REPLACE",
        "sub/../t.conf REPLACE",
        "dump.rdb",
        "temp-1.rdb",
        "wal-9.rdb",
    ] {
        if name.starts_with("cold/") {
            fs::create_dir_all(dir.join("cold")).expect("a directory");
        }
        refused(&mut c, &format!("BACKUP {name}"), own);
    }
    refused(&mut c, "BACKUP copy", "has to end in .rdb");
    refused(&mut c, "BACKUP notes.rdb REPLACE", "is no snapshot");
    refused(&mut c, "BACKUP link.rdb REPLACE", "exists already");
    c.check("BACKUP copy.rdb", "+OK");
    c.check("BACKUP copy.rdb REPLACE", "+OK");
    c.check("BACKUP sub/wal.copy.rdb", "+OK");
    assert_eq!(fs::read(dir.join("notes.rdb")).expect("it"), b"no snapshot");
    drop(server);
    start(&dir).connect().check("GET key", "\"value\"");
}

#[test]
fn a_snapshot_has_no_name_of_the_servers_own_files() {
    let scratch = TempDir::new();
    let dir = scratch.path().join("data");
    fs::create_dir_all(&dir).expect("a directory");
    let launch = launch().with("dir", text(&dir)).with("appendonly", "yes");
    let server = launch.clone().with("enable-protected-configs", "yes").start();
    let mut c = server.connect();
    c.check("SET key value", "+OK");
    for name in ["wal", "WAL", "wal-9.complete", "cold", "..", "temp-4.rdb"] {
        refused(&mut c, &format!("CONFIG SET dbfilename {name}"), "dbfilename can't be");
    }
    fs::write(dir.join("t.conf"), "port 1\n").expect("a file");
    c.check("CONFIG SET dbfilename t.conf", "+OK");
    refused(&mut c, "SAVE", "is no snapshot");
    assert_eq!(fs::read(dir.join("t.conf")).expect("it"), b"port 1\n");
    // The log is where it was, though the directory is another one now.
    c.check("CONFIG SET dbfilename dump.rdb", "+OK");
    c.check(&format!("CONFIG SET dir {}/wal", text(&dir)), "+OK");
    refused(&mut c, "SAVE", "server's own files");
    refused(&mut c, "BACKUP copy.rdb", "place of the server's own files");
    c.check(&format!("CONFIG SET dir {}", text(scratch.path())), "+OK");
    refused(&mut c, "BACKUP data/wal/copy.rdb", "place of the server's own files");
    c.check("SAVE", "+OK");
    assert!(scratch.path().join("dump.rdb").exists());
    drop(server);
    launch.start().connect().check("GET key", "\"value\"");
}

#[test]
fn directives_that_name_one_file_stop_the_start() {
    let scratch = TempDir::new();
    let dir = scratch.path().join("data");
    fs::create_dir_all(&dir).expect("a directory");
    let at = |name: &str| dir.join(name).display().to_string();
    for (directives, expected) in [
        (
            [("logfile", at("x")), ("pidfile", at("../data/x"))],
            "logfile and pidfile are the same file",
        ),
        (
            [("logfile", at("wal/x")), ("pidfile", at("y"))],
            "logfile is a place of the server's data",
        ),
        (
            [("logfile", at("z")), ("dbfilename", "z".to_owned())],
            "logfile and dbfilename are the same",
        ),
    ] {
        let launch = Launch::new(program()).with("port", &free_port().to_string());
        let launch = launch.with("dir", text(&dir));
        let launch =
            directives.iter().fold(launch, |launch, (name, value)| launch.with(name, value));
        let outcome = launch.run();
        assert_eq!(outcome.code, Some(1), "{outcome:?}");
        assert!(outcome.errors.contains(expected), "{outcome:?}");
    }
    assert_eq!(fs::read_dir(&dir).expect("it").count(), 0);
}
