//! The log is switched on and off at run time: `CONFIG SET appendonly`.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::SystemTime;

use tierce_engine::durability::{
    DurableLog, LogDirectory, LogOptions, Operator, Severity, recover,
};
use tierce_engine::loading::Loading;
use tierce_keyspace::{DbIndex, Keyspace, Options};
use tierce_server::Instance;
use tierce_storage::disk::{Fault, SimDisk};

use crate::operations::support::{Client, TestServer, free_port, settings, show, wait_until};

/// Log that writes nothing.
struct Silent;

impl Operator for Silent {
    fn tell(&self, _: Severity, _: fmt::Arguments<'_>) {}
}

/// Starts with the log on a disk in memory, always in the directory of this name there.
fn start(disk: &SimDisk, appendonly: &str) -> TestServer {
    let dir = std::env::temp_dir();
    let options = format!("--dir {} --appendonly {appendonly}", dir.display());
    TestServer::on_disk(Arc::new(disk.clone()), &options)
}

/// Returns a field of INFO, if it is there.
fn info(client: &mut Client, field: &str) -> Option<String> {
    let info = client.call("INFO persistence");
    let mut lines = info.lines().filter_map(|line| line.split_once(':'));
    lines.find(|(name, _)| *name == field).map(|(_, value)| value.trim().to_owned())
}

fn is(client: &mut Client, field: &str, value: &str) -> bool {
    info(client, field).as_deref() == Some(value)
}

/// Returns true if there is a log with all keys in it, by one INFO.
fn is_complete(client: &mut Client) -> bool {
    let info = client.call("INFO persistence");
    info.contains("aof_enabled:1") && info.contains("aof_rewrite_in_progress:0")
}

/// Switches the log on and waits until it is complete.
fn switch_on(client: &mut Client) {
    assert_eq!(client.call("CONFIG SET appendonly yes"), "OK");
    assert!(is(client, "aof_enabled", "1"));
    wait_until("complete", || is_complete(client));
}

/// Switches the log off and waits until it is closed.
fn switch_off(client: &mut Client) {
    assert_eq!(client.call("CONFIG SET appendonly no"), "OK");
    assert!(is(client, "aof_enabled", "0"));
    wait_until("closed", || info(client, "aof_current_size").is_none());
}

fn values(server: &TestServer, keys: &str) -> String {
    server.client().call(&format!("MGET {keys}"))
}

#[test]
fn what_was_written_before_and_after_is_in_the_log() {
    let disk = SimDisk::new(1);
    let server = start(&disk, "no");
    let mut client = server.client();
    assert_eq!(client.call("MSET before 1 changed 1"), "OK");
    assert_eq!(client.call("BGREWRITEAOF").split(' ').next(), Some("-ERR"));
    switch_on(&mut client);
    assert_eq!(client.call("MSET after 1 changed 2"), "OK");
    assert_eq!(client.call("WAITAOF 1 0 0"), "[:1, :0]");
    let image = disk.now().after_power_cut(1);
    assert_eq!(values(&start(&image, "yes"), "before changed after"), "[1, 2, 1]");

    switch_off(&mut client);
    assert_eq!(client.call("SET later 1"), "OK");
    assert!(client.call("WAITAOF 1 0 0").starts_with("-ERR"));
    let image = disk.now().after_power_cut(2);
    assert_eq!(values(&start(&image, "yes"), "changed later"), "[2, (nil)]", "as it was left");
    assert_eq!(values(&start(&image, "no"), "changed later"), "[(nil), (nil)]");

    // The next log replaces the previous one, and no other remains.
    switch_on(&mut client);
    let image = disk.now().after_power_cut(3);
    assert_eq!(values(&start(&image, "yes"), "changed later"), "[2, 1]");
    let logs: std::collections::BTreeSet<_> = disk
        .paths()
        .iter()
        .filter_map(|path| Some(path.parent()?.file_name()?.to_string_lossy().into_owned()))
        .filter(|name| name.starts_with("wal"))
        .collect();
    assert_eq!(logs.into_iter().collect::<Vec<_>>(), ["wal-3"]);
}

/// The disk dies after any number of calls during the switch to a new log, and then the power fails. Then either the
/// previous log is there as a whole, or the new one.
#[test]
fn a_crash_on_the_way_leaves_the_log_that_counted_before() {
    let disk = SimDisk::new(2);
    let server = start(&disk, "yes");
    assert_eq!(server.client().call("MSET a old b old"), "OK");
    drop(server);
    let prepared = disk.now();

    for calls in 0.. {
        let disk = prepared.after_kill(calls);
        let server = start(&disk, "yes");
        let mut client = server.client();
        switch_off(&mut client);
        assert_eq!(client.call("MSET a new c new"), "OK");
        disk.halt_at(disk.calls() + calls);
        let mut has_completed = false;
        let reply = client.call("CONFIG SET appendonly yes");
        if reply != "OK" {
            assert!(reply.contains("the simulated process is dead"), "{reply}");
            let configured = client.call("CONFIG GET appendonly");
            assert!(configured.contains("no"), "{configured}");
            assert!(is(&mut client, "aof_enabled", "0"));
        }
        wait_until("an outcome", || {
            has_completed = is_complete(&mut client);
            has_completed || is(&mut client, "aof_last_bgrewrite_status", "err")
        });
        // Whatever happened to the log: without one, writes are accepted.
        switch_off(&mut client);
        assert_eq!(client.call("SET a newer"), "OK");
        let image = disk.now().after_power_cut(calls);
        let found = values(&start(&image, "yes"), "a b c");
        match found.as_str() {
            "[old, old, (nil)]" => assert!(!has_completed, "it was said to be complete"),
            "[new, old, new]" => {}
            _ => panic!("after {calls} calls: {found}"),
        }
        if has_completed {
            assert!(calls > 5, "the log is not written by so few calls");
            return;
        }
    }
}

/// The disk is full when the log should begin: the client gets the cause, nothing reports that there is a log, and once
/// there is space it can be requested again.
#[test]
fn a_log_that_could_not_be_begun_can_be_asked_for_again() {
    let disk = SimDisk::new(4);
    let server = start(&disk, "no");
    let mut client = server.client();
    assert_eq!(client.call("SET before 1"), "OK");
    disk.set_capacity(Some(disk.used()));
    for _ in 0..2 {
        let reply = client.call("CONFIG SET appendonly yes");
        assert!(reply.starts_with("-ERR CONFIG SET failed"), "{reply}");
        assert!(reply.contains("no space left"), "{reply}");
        assert!(client.call("CONFIG GET appendonly").contains("no"));
        assert!(is(&mut client, "aof_enabled", "0"));
        assert_eq!(client.call("SET without 1"), "OK", "as before");
    }
    disk.set_capacity(None);
    switch_on(&mut client);
    assert_eq!(client.call("SET after 1"), "OK");
    assert_eq!(client.call("WAITAOF 1 0 0"), "[:1, :0]");
    let image = disk.now().after_power_cut(1);
    assert_eq!(values(&start(&image, "yes"), "before without after"), "[1, 1, 1]");
}

/// A client that requests a log while a failed one recovers is told so, and not that it failed for good. When it has
/// recovered, the client is told that there is one.
#[test]
fn a_log_that_heals_is_not_called_failed() {
    let disk = SimDisk::new(5);
    let server = start(&disk, "yes");
    let mut client = server.client();
    disk.set_capacity(Some(0));
    wait_until("the disk is full", || {
        let mut writer = server.client();
        writer.send(&format!("SET k {}", "v".repeat(100_000)));
        writer.read().is_none_or(|reply| show(&reply).starts_with("-MISCONF"))
    });
    let reply = client.call("CONFIG SET appendonly yes");
    assert!(reply.contains("no space left") && reply.contains("is being written"), "{reply}");
    disk.set_capacity(None);
    wait_until("healed", || is(&mut client, "aof_last_write_status", "ok"));
    assert_eq!(client.call("CONFIG SET appendonly yes"), "OK");
    // A failing device is another matter.
    disk.inject(Fault::Sync, 0);
    wait_until("the sync fails", || {
        // A write that cannot be acknowledged ends its connection.
        let mut writer = server.client();
        writer.send("SET k v");
        writer.read();
        is(&mut client, "aof_last_write_status", "err")
    });
    for command in ["CONFIG SET appendonly yes", "BGREWRITEAOF"] {
        let reply = client.call(command);
        assert!(reply.starts_with("-ERR") && reply.contains("appendonly no and then"), "{reply}");
    }
}

/// The shutdown finds expired keys that were not read since. The log records their expiry, so an earlier clock at the
/// next start does not restore them.
#[test]
fn what_has_expired_at_the_end_is_gone_from_the_log() {
    let disk = SimDisk::new(6);
    let server = start(&disk, "yes --enable-debug-command yes");
    let mut client = server.client();
    assert_eq!(client.call("DEBUG SET-ACTIVE-EXPIRE 0"), "OK");
    assert_eq!(client.call("SET other 1"), "OK");
    assert_eq!(client.call("SET mortal 1 PX 1"), "OK");
    let set = SystemTime::now();
    // A read removes it.
    wait_until("its time has come", || set.elapsed().is_ok_and(|time| time.as_millis() > 2));
    drop(server);
    let durable_log = Arc::<DurableLog>::default();
    let keyspace = Arc::new(Keyspace::new(Options::default()).unwrap());
    let home = LogDirectory::new(Arc::new(disk), &std::env::temp_dir(), LogOptions::default());
    let loading = Loading::default();
    recover(&durable_log, &keyspace, &home, &Silent, false, &loading).unwrap();
    // Time stands still while a log is loaded.
    assert_eq!(keyspace.len(DbIndex::ZERO), 1);
}

/// A log that is requested and not yet begun at shutdown is there at the next start.
#[test]
fn a_log_that_was_asked_for_last_is_not_lost_at_the_end() {
    let disk = SimDisk::new(5);
    let mut server = start(&disk, "no");
    let mut client = server.client();
    assert_eq!(client.call("SET key 1"), "OK");
    client.send("CONFIG SET appendonly yes");
    client.send("SHUTDOWN NOSAVE");
    while client.read().is_some() {}
    server.join();
    assert_eq!(values(&start(&disk.now().after_power_cut(1), "yes"), "key"), "[1]");
}

/// Activating the new log fails half-way, and the log is then switched off: its remains must not replace the valid log.
#[test]
fn a_log_that_was_half_completed_takes_no_place() {
    let disk = SimDisk::new(6);
    let server = start(&disk, "yes");
    let mut client = server.client();
    assert_eq!(client.call("SET key old"), "OK");
    switch_off(&mut client);
    assert_eq!(client.call("SET key new"), "OK");
    // Every sync of a directory, from that of the new log's last files on.
    for skip in 0..12 {
        disk.inject(Fault::SyncDir, skip);
        let begun = client.call("CONFIG SET appendonly yes") == "OK";
        if begun {
            wait_until("an outcome", || {
                is_complete(&mut client)
                    || is(&mut client, "aof_last_bgrewrite_status", "err")
                    || is(&mut client, "aof_last_write_status", "err")
            });
        }
        switch_off(&mut client);
        for image in [disk.now().after_kill(skip), disk.now().after_power_cut(skip)] {
            let found = values(&start(&image, "yes"), "key");
            assert!(found == "[old]" || found == "[new]", "{skip}: {found}");
        }
    }
}

/// The reply to a refused write names the remedy; here only giving up the data is left.
#[test]
fn a_full_disk_is_named_and_its_log_can_be_given_up() {
    let disk = SimDisk::new(11);
    let server = start(&disk, "yes");
    let mut client = server.client();
    let value = "x".repeat(100_000);
    for number in 0..20 {
        assert_eq!(client.call(&format!("SET old:{number} {value}")), "OK");
    }
    disk.set_capacity(Some(disk.used()));
    let line = format!("SET k {value}");
    // A client whose write is not logged loses its connection.
    let reply = || {
        let mut client = server.client();
        client.send(&line);
        client.read().map(|reply| show(&reply)).unwrap_or_default()
    };
    wait_until("it is said what is needed", || reply().contains("another one needs about"));
    let (reply, mut client) = (reply(), server.client());
    assert!(reply.starts_with("-MISCONF") && reply.contains("FLUSHALL"), "{reply}");
    assert!(reply.contains("0 MB are free in"), "{reply}");
    let free = info(&mut client, "data_disk_free_bytes");
    assert!(free.is_some_and(|free| free.parse::<u64>().unwrap() < 100_000));
    switch_off(&mut client);
    assert_eq!(client.call("FLUSHALL"), "OK");
    switch_on(&mut client);
    assert_eq!(client.call("SET k v"), "OK");
    assert_eq!(client.call("WAITAOF 1 0 0"), "[:1, :0]");
    let image = disk.now().after_power_cut(1);
    image.set_capacity(None);
    assert_eq!(values(&start(&image, "yes"), "old:1 k"), "[(nil), v]");
}

/// The file that names the valid log names a missing one: the start refuses and removes nothing.
#[test]
fn a_start_without_the_log_that_counts_refuses() {
    let disk = SimDisk::new(7);
    let server = start(&disk, "yes");
    assert_eq!(server.client().call("SET key 1"), "OK");
    drop(server);
    let witness = std::env::temp_dir().join("wal-9.complete");
    disk.set_content(&witness, b"a snapshot, perhaps".to_vec());
    let before = disk.paths();
    let dir = std::env::temp_dir();
    let line = format!(
        "--port {} --dir {} --appendonly yes --loglevel nothing",
        free_port(),
        dir.display()
    );
    let refused = Instance::start_on(settings(&line), Arc::new(disk.clone()));
    let error = refused.err().expect("it refuses").to_string();
    assert!(error.contains("there is no log in") && error.contains("wal-9.complete"), "{error}");
    assert_eq!(disk.paths(), before);
    disk.erase(&witness);
    assert_eq!(values(&start(&disk, "yes"), "key"), "[1]");
}

/// A client writes and waits for the device all the time; every reply arrives.
#[test]
fn clients_go_on_while_the_log_comes_and_goes() {
    let disk = SimDisk::new(3);
    let server = start(&disk, "no");
    let (told, ends) = (AtomicU64::new(0), AtomicBool::new(false));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut client = server.client();
            assert_eq!(client.call("CLIENT DURABILITY always"), "OK");
            while !ends.load(Ordering::Relaxed) {
                let count = client.call("INCR count");
                told.store(count[1..].parse().expect("a number"), Ordering::Relaxed);
            }
        });
        let mut client = server.client();
        for round in 0..4 {
            switch_on(&mut client);
            let some = told.load(Ordering::Relaxed) + 20;
            wait_until("progress", || told.load(Ordering::Relaxed) >= some);
            let before = told.load(Ordering::Relaxed);
            let image = disk.now().after_power_cut(round);
            let count = start(&image, "yes").client().call("GET count");
            assert!(count.parse::<u64>().expect("a number") >= before, "{count} of {before}");
            switch_off(&mut client);
        }
        ends.store(true, Ordering::Relaxed);
    });
}
