//! The disk fails under the log: writes are refused with the cause, reads continue, and acknowledged writes are there
//! after the next start.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tierce_storage::disk::{Fault, SimDisk};

use crate::operations::support::{Client, TestServer};

/// Starts with the log on a disk in memory, always in the directory of this name there.
fn start(disk: &SimDisk) -> TestServer {
    let dir = std::env::temp_dir();
    let options = format!("--dir {} --appendonly yes --appendfsync always", dir.display());
    TestServer::on_disk(Arc::new(disk.clone()), &options)
}

/// Writes until one is not acknowledged. Returns the number of acknowledged ones.
fn write_until_refused(server: &TestServer) -> usize {
    let mut client = server.client();
    let value = "v".repeat(100_000);
    for number in 0..10_000 {
        client.send(&format!("SET k{number} {value}"));
        match client.next().as_str() {
            "OK" => {}
            _ => return number,
        }
    }
    panic!("the disk never failed");
}

fn is_refused(client: &mut Client, cause: &str) {
    let reply = client.call("SET another 1");
    assert!(reply.starts_with("-MISCONF Errors writing to the AOF file: "), "{reply}");
    assert!(reply.contains(cause), "{reply}");
    assert_eq!(client.call("STRLEN k0"), ":100000", "reads go on");
}

/// Checks that acknowledged writes survive both a kill and a power loss now.
fn is_there(disk: &SimDisk, acknowledged: usize) {
    for image in [disk.now().after_kill(7), disk.now().after_power_cut(7)] {
        let server = start(&image);
        let mut client = server.client();
        for number in 0..acknowledged {
            assert_eq!(client.call(&format!("STRLEN k{number}")), ":100000", "{number}");
        }
        assert_eq!(client.call("SET another 1"), "OK");
    }
}

#[test]
fn a_full_disk_refuses_writes_until_there_is_space() {
    let disk = SimDisk::new(1);
    let server = start(&disk);
    assert_eq!(server.client().call("SET first 1"), "OK");
    disk.set_capacity(Some(disk.used()));
    let acknowledged = write_until_refused(&server);
    let mut client = server.client();
    if acknowledged > 0 {
        is_refused(&mut client, "no space left");
    }
    let full = disk.now().after_kill(1);
    is_there(&full, acknowledged);

    disk.set_capacity(None);
    client.ask_until("SET healed 1", |reply| reply == "OK");
    let image = disk.now().after_power_cut(2);
    let again = start(&image);
    assert_eq!(again.client().call("MGET first healed"), "[1, 1]");
}

/// The disk stays full for a while, and another fault occurs meanwhile: the reported cause does not change, nothing is
/// acknowledged, and writes are accepted again when there is space.
#[test]
fn a_disk_that_stays_full_heals_whatever_else_fails() {
    let disk = SimDisk::new(4);
    let server = start(&disk);
    assert_eq!(server.client().call("SET first 1"), "OK");
    disk.set_capacity(Some(disk.used()));
    let acknowledged = write_until_refused(&server);
    let mut client = server.client();
    for fault in [Fault::Sync, Fault::Write, Fault::Open, Fault::Remove, Fault::SyncDir] {
        disk.inject(fault, 0);
    }
    let begun = Instant::now();
    loop {
        let reply = client.call("SET another 1");
        assert!(reply.starts_with("-MISCONF") && reply.contains("no space left"), "{reply}");
        // An attempt to recover was made and failed.
        if client.call("INFO persistence").contains("aof_last_bgrewrite_status:err") {
            break;
        }
        assert!(begun.elapsed() < Duration::from_secs(30), "no attempt is made");
    }
    is_there(&disk.now().after_kill(1), acknowledged);
    disk.set_capacity(None);
    client.ask_until("SET healed 1", |reply| reply == "OK");
    let again = start(&disk.now().after_power_cut(2));
    assert_eq!(again.client().call("MGET first healed"), "[1, 1]");
}

#[test]
fn a_failed_sync_refuses_writes_until_the_next_start() {
    let disk = SimDisk::new(2);
    let server = start(&disk);
    let mut client = server.client();
    let value = "v".repeat(100_000);
    assert_eq!(client.call(&format!("SET k0 {value}")), "OK");
    disk.inject(Fault::Sync, 0);
    let acknowledged = 1 + write_after_fault(&server);
    is_refused(&mut client, "sync");
    is_there(&disk, acknowledged);
}

/// Makes one write whose reply waits for a sync that fails: the connection is closed without it.
fn write_after_fault(server: &TestServer) -> usize {
    let mut client = server.client();
    client.send("SET unacknowledged 1");
    usize::from(client.next() == "OK")
}

#[test]
fn a_failed_write_refuses_writes_until_the_next_start() {
    let disk = SimDisk::new(3);
    let server = start(&disk);
    let mut client = server.client();
    let value = "v".repeat(100_000);
    assert_eq!(client.call(&format!("SET k0 {value}")), "OK");
    disk.inject(Fault::Write, 0);
    let acknowledged = write_until_refused(&server);
    is_refused(&mut client, "cannot write");
    is_there(&disk, acknowledged.max(1));
}
