//! Clients and directives cannot name the server's own files.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use tierce_harness::{Connection, Launch, Server, TempDir, free_port};

use crate::{launch, program};

fn text(path: &Path) -> &str {
    path.to_str().expect("a path in UTF-8")
}

/// Starts a server with a log, from a configuration file in the data directory that also has
/// another file.
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
    // The log stays where it was, although `dir` is different now.
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

/// Collects the modes of everything below a directory, by path.
fn modes(dir: &Path, found: &mut Vec<(String, u32)>) {
    for entry in fs::read_dir(dir).expect("a directory") {
        let path = entry.expect("an entry").path();
        let mode = fs::symlink_metadata(&path).expect("a file").permissions().mode() & 0o777;
        found.push((text(&path).to_owned(), mode));
        if path.is_dir() {
            modes(&path, found);
        }
    }
}

#[test]
fn files_are_for_their_owner_alone() {
    let scratch = TempDir::new();
    let dir = scratch.path().join("data");
    fs::create_dir(&dir).expect("a directory");
    let server = launch()
        .with("dir", text(&dir))
        .with("appendonly", "yes")
        .with("maxmemory", "1mb")
        .with("maxmemory-policy", "spill")
        .with("pidfile", text(&dir.join("server.pid")))
        .with("logfile", text(&dir.join("server.log")))
        .with("unixsocket", text(&dir.join("server.sock")))
        .start();
    let mut c = server.connect();
    c.check("SET key value", "+OK");
    c.check("SAVE", "+OK");
    c.check("BACKUP copy.rdb", "+OK");
    c.check("BGREWRITEAOF", "+Background append only file rewriting started");
    let mut found = Vec::new();
    modes(&dir, &mut found);
    for name in ["dump.rdb", "copy.rdb", "server.pid", "server.log", "server.sock", "wal", "cold"] {
        assert!(found.iter().any(|(path, _)| path.ends_with(name)), "{name} in {found:?}");
    }
    found.retain(|(_, mode)| mode & 0o077 != 0);
    assert_eq!(found, []);
}

#[test]
fn links_in_the_place_of_pid_and_lock_files_are_not_followed() {
    let scratch = TempDir::new();
    let (dir, precious) = (scratch.path().join("data"), scratch.path().join("precious"));
    fs::create_dir(&dir).expect("a directory");
    fs::write(&precious, "of another").expect("a file");
    let pid_file = dir.join("server.pid");
    std::os::unix::fs::symlink(&precious, &pid_file).expect("a link");
    let start = || launch().with("dir", text(&dir)).with("appendonly", "yes");
    let server = start().with("pidfile", text(&pid_file)).start();
    assert!(fs::symlink_metadata(&pid_file).expect("a file").is_file());
    server.connect().check("SET key value", "+OK");
    drop(server);
    let lock = dir.join("wal").join("LOCK");
    fs::remove_file(&lock).expect("the lock file");
    std::os::unix::fs::symlink(&precious, &lock).expect("a link");
    let outcome = start().run();
    assert_ne!(outcome.code, Some(0), "{}", outcome.errors);
    assert_eq!(fs::read_to_string(&precious).expect("a file"), "of another");
}
