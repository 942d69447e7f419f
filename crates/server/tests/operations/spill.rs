//! Spilled values: too long ones, more than is written at once, and a full disk.

use std::sync::Arc;

use tierce_storage::ColdLimits;
use tierce_storage::disk::{OsDisk, SimDisk};

use crate::operations::support::{Client, TestServer, wait_until};

const LIMITS: ColdLimits = ColdLimits { value_len_max: 400_000, batch_len_max: 700_000 };

/// Returns the length of a value. Of every sixteen values, one exceeds the limit of a value on disk, and one reaches
/// it.
fn len(number: usize) -> usize {
    match number % 16 {
        0 => 500_000,
        1 => LIMITS.value_len_max - 1,
        _ => 350_000 + number,
    }
}

#[test]
fn what_is_too_long_stays_in_memory_and_full_batches_end() {
    // The limit applies to the memory of the process, which is that of this test.
    let options = "--appendonly no --shards 1 --maxmemory 40mb --maxmemory-policy spill";
    let server = TestServer::limited(Arc::new(OsDisk), options, LIMITS);
    let mut client = server.client();
    let keys = 120;
    // Zeros followed by the key's number.
    for number in 0..keys {
        let (digits, len) = (format!("{number:05}"), len(number));
        let set = format!("SETRANGE k{number} {} {digits}", len - digits.len());
        assert_eq!(client.call(&set), format!(":{len}"), "{number}");
    }
    for number in 0..keys {
        assert_eq!(client.call(&format!("GETRANGE k{number} -5 -1")), format!("{number:05}"));
        assert_eq!(client.call(&format!("STRLEN k{number}")), format!(":{}", len(number)));
    }
    let info = client.call("INFO memory");
    assert!(info.contains("spilled_keys:") && !info.contains("spilled_keys:0\r"), "{info}");
}

const VALUE_LEN: usize = 16_000;

/// Returns a figure of INFO.
fn figure(client: &mut Client, name: &str) -> u64 {
    let info = client.call("INFO memory");
    let line = info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    line.and_then(|figure| figure.trim().parse().ok()).unwrap_or_else(|| panic!("{name}: {info}"))
}

/// Writes keys from `first` on until one is refused for lack of memory. Returns its number.
fn write_until_full(client: &mut Client, first: usize) -> usize {
    let zeros = "0".repeat(VALUE_LEN - 10);
    let refused = (first..first + 100_000).find(|number| {
        let reply = client.call(&format!("SET k{number} {zeros}{number:010}"));
        assert!(reply == "OK" || reply.starts_with("-OOM"), "{reply}");
        reply != "OK"
    });
    refused.expect("the disk is never full")
}

/// Values fill the disk; nine in ten are deleted, spread over all files. The files shrink, and as many values fit
/// again, also after a restart.
#[test]
fn a_disk_full_of_spilled_values_has_space_again_when_most_are_deleted() {
    let dir = std::env::temp_dir();
    let options = "--appendonly yes --shards 16 --maxmemory 2mb --maxmemory-policy spill";
    let options = format!("--dir {} {options}", dir.display());
    let mut disk = SimDisk::new(1);
    for round in 0..2 {
        disk.set_capacity(Some(40 << 20));
        let server = TestServer::on_disk(Arc::new(disk.clone()), &options);
        let mut client = server.client();
        let first = round * 100_000;
        let end = write_until_full(&mut client, first);
        let bytes = (end - first) * VALUE_LEN;
        assert!(bytes > 20 << 20, "{bytes} bytes are on the disk");
        for number in (first..end).filter(|number| number % 10 > 0) {
            assert_eq!(client.call(&format!("DEL k{number}")), ":1", "{number}");
        }
        wait_until("the files shrink", || {
            let live = figure(&mut client, "spilled_disk_live_bytes");
            figure(&mut client, "spilled_disk_bytes") < 2 * live + (4 << 20)
        });
        disk = disk.now().after_kill(1);
    }
}

/// A version without the reserve filled the disk, or the reserve was lent when the server was killed: the rest of the
/// disk belongs to the log.
#[test]
fn a_start_leaves_the_log_what_is_free() {
    let dir = std::env::temp_dir();
    let options = "--appendonly yes --shards 16 --maxmemory 2mb --maxmemory-policy spill";
    let options = format!("--dir {} {options}", dir.display());
    let disk = SimDisk::new(2);
    // So that the log reserves little for itself.
    disk.set_capacity(Some(48 << 20));
    let server = TestServer::on_disk(Arc::new(disk.clone()), &options);
    let mut client = server.client();
    assert_eq!(client.call(&format!("SET large {}", "v".repeat(10 << 20))), "OK");
    wait_until("it is on disk", || figure(&mut client, "spilled_keys") == 1);
    let disk = disk.now().after_kill(1);
    let reserve = disk.paths().into_iter().find(|path| path.ends_with("cold/RESERVE")).unwrap();
    disk.erase(&reserve);
    disk.set_capacity(Some(disk.used() + (4 << 20)));
    let server = TestServer::on_disk(Arc::new(disk), &options);
    let mut client = server.client();
    for number in 0..400 {
        let reply = client.call(&format!("SET k {number:0>VALUE_LEN$}"));
        assert_eq!(reply, "OK", "{number}");
        assert_eq!(client.call("DEL k"), ":1", "{number}");
    }
}

/// Each of them has had its value fetched, and has left its worker before it has run.
#[test]
fn a_value_is_fetched_behind_long_commands_with_spilled_values() {
    const SETS: usize = 3;
    // There is room: only the temporary limit spills them.
    let options = "--appendonly no --maxmemory 1gb --maxmemory-policy spill";
    let server = TestServer::with(options);
    let mut client = server.client();
    let members: Vec<String> = (0..100).map(|number| format!("member:{number}")).collect();
    for number in 0..SETS {
        client.call(&format!("SADD set{number} {}", members.join(" ")));
    }
    for key in ["string", "other"] {
        client.check(&[(&format!("SET {key} {}", "x".repeat(VALUE_LEN)), "OK")]);
    }
    client.check(&[("CONFIG SET maxmemory 1", "OK")]);
    wait_until("all is on disk", || figure(&mut client, "spilled_keys") == SETS as u64 + 2);
    client.check(&[("CONFIG SET maxmemory 1gb", "OK")]);
    // A round of spilling that has not seen the new limit spills fetched values again.
    wait_until("what comes back stays", || {
        client.call("GET other");
        (0..100).all(|_| figure(&mut client, "spilled_keys") == SETS as u64 + 1)
    });
    let figures = |client: &mut Client| {
        ["spilled_reads", "spilled_reads_late"].map(|name| figure(client, name))
    };
    let [reads, late] = figures(&mut client);
    for number in 0..SETS {
        let reply = client.call(&format!("SRANDMEMBER set{number} -20000"));
        assert_eq!(reply.matches("member:").count(), 20_000);
    }
    assert_eq!(client.call("GET string").len(), VALUE_LEN);
    assert_eq!(figures(&mut client), [reads + SETS as u64 + 1, late], "once, and none late");
}
