//! The tools for a bucket's history, `tierce bucket`: restore or branch any point in time, verify, and prune.

use std::fs;
use std::path::Path;

use rustix::process::Signal;
use tierce_harness::{Connection, Random, TempDir, takes_up_to_seconds, wait_until};

use super::{
    Contents, contents, files, info, objects, start, stop, text, tool, url, wait_for_bucket,
    wait_for_snapshot, write_everything,
};
use crate::launch;

/// Runs a tool successfully and returns its output.
fn tell(arguments: &[&str]) -> String {
    let (code, said, error) = tool(arguments);
    assert_eq!(code, 0, "{arguments:?}: {error}");
    said
}

/// Returns the contents of a data directory that has no bucket.
fn contents_of(dir: &Path) -> Contents {
    let server = launch().keeping().with("dir", text(dir)).start();
    let all = contents(&mut server.connect());
    stop(server);
    all
}

/// Returns the number of the last object, and its time according to `tierce bucket list`.
fn end(bucket: &TempDir) -> (String, String) {
    let listed = tell(&["list", "--bucket", &url(bucket)]);
    let line = listed.lines().next().unwrap_or_default();
    let line = line.strip_prefix("end: object ").unwrap_or_else(|| panic!("{listed}"));
    let (number, time) = line.split_once(" at ").expect("a time");
    (number.to_owned(), time.to_owned())
}

#[test]
fn every_moment_that_a_client_has_noted_can_be_restored() {
    takes_up_to_seconds(180);
    let (bucket, dir) = (TempDir::new(), TempDir::new());
    let server = start(dir.path(), &bucket).start();
    let mut c = server.connect();
    let mut moments = Vec::new();
    for round in 0..4 {
        write_everything(&mut c, round);
        if round == 1 {
            wait_for_snapshot(&mut c);
        }
        wait_for_bucket(&mut c);
        let (number, time) = end(&bucket);
        moments.push((number.clone(), contents(&mut c)));
        moments.push((time.clone(), contents(&mut c)));
        // The next change needs a different time: the clock of the log counts milliseconds.
        wait_until("the clock has gone on", || {
            c.check(&format!("SET clock {round}"), "+OK");
            wait_for_bucket(&mut c);
            end(&bucket).1 != time
        });
    }
    for (at, expected) in &moments {
        let restored = TempDir::new();
        let to = restored.path().join("new");
        tell(&["restore", "--bucket", &url(&bucket), "--at", at, "--dir", text(&to)]);
        assert_eq!(&contents_of(&to), expected, "{at}");
    }
    // All of this runs next to the owner, which stays the owner, and it leaves no pins of restores.
    c.check("SET behind 1", "+OK");
    wait_for_bucket(&mut c);
    let listed = tell(&["list", "--bucket", &url(&bucket)]);
    assert!(listed.contains("released: no") && !listed.contains("pin:"), "{listed}");
    let restored = TempDir::new();
    let refused = |at: &str, part: &str| {
        let (code, _, error) = tool(&[
            "restore",
            "--bucket",
            &url(&bucket),
            "--at",
            at,
            "--dir",
            text(restored.path()),
        ]);
        assert!(code == 2 && error.contains(part), "{at}: {error}");
        assert_eq!(fs::read_dir(restored.path()).expect("it is there").count(), 0);
    };
    refused("1000000", "the log ends at");
    refused("1999-12-31T00:00:00Z", "begins after");
    refused("yesterday", "not a moment in UTC");
    fs::write(restored.path().join("file"), "").expect("written");
    let to = text(restored.path());
    let (code, _, error) = tool(&["restore", "--bucket", &url(&bucket), "--dir", to]);
    assert!(code == 2 && error.contains("is not empty"), "{error}");
}

#[test]
fn a_branch_is_a_server_of_its_own_that_leaves_its_parent_alone() {
    takes_up_to_seconds(180);
    let (bucket, new) = (TempDir::new(), TempDir::new());
    let (dir, of_new, again) = (TempDir::new(), TempDir::new(), TempDir::new());
    let server = start(dir.path(), &bucket).start();
    let mut c = server.connect();
    write_everything(&mut c, 1);
    wait_for_snapshot(&mut c);
    write_everything(&mut c, 2);
    wait_for_bucket(&mut c);
    let (at, _) = end(&bucket);
    let expected = contents(&mut c);
    write_everything(&mut c, 3);
    let of_parent = contents(&mut c);
    stop(server);
    let before = files(bucket.path());
    tell(&["branch", &url(&new), "--bucket", &url(&bucket), "--at", &at]);
    let server = start(of_new.path(), &new).start();
    let mut c = server.connect();
    assert_eq!(contents(&mut c), expected);
    write_everything(&mut c, 4);
    let of_branch = contents(&mut c);
    stop(server);
    let server = start(again.path(), &new).start();
    assert_eq!(contents(&mut server.connect()), of_branch);
    stop(server);
    let mut after = files(bucket.path());
    let pins: Vec<_> = after.keys().filter(|path| !before.contains_key(*path)).cloned().collect();
    assert!(matches!(&pins[..], [pin] if pin.starts_with(bucket.path().join("pins"))), "{pins:?}");
    after.remove(&pins[0]);
    assert_eq!(after, before);
    let (code, _, error) = tool(&["branch", &url(&new), "--bucket", &url(&bucket)]);
    assert!(code == 2 && error.contains("there is a log in"), "{error}");
    let server = start(dir.path(), &bucket).start();
    assert_eq!(contents(&mut server.connect()), of_parent);
    stop(server);
    // Objects that the branch needs are kept.
    let server = start(dir.path(), &bucket).start();
    wait_for_snapshot_of(&mut server.connect(), "SET more 1");
    stop(server);
    let said = tell(&["prune", "--bucket", &url(&bucket), "--retention", "0"]);
    assert!(said.contains("pinned, and kept"), "{said}");
    let last = TempDir::new();
    let server = start(last.path(), &new).start();
    assert_eq!(contents(&mut server.connect()), of_branch);
}

/// Waits until another snapshot was taken after this command.
fn wait_for_snapshot_of(c: &mut Connection, command: &str) {
    let before = info(c, "bucket_snapshot_object");
    c.ask(command);
    c.check("CONFIG SET bucket-snapshot-interval 1", "+OK");
    wait_until("there is another snapshot", || {
        !["0", &before].contains(&info(c, "bucket_snapshot_object").as_str())
    });
    c.check("CONFIG SET bucket-snapshot-interval 86400", "+OK");
}

#[test]
fn verify_finds_each_byte_that_was_flipped() {
    let (bucket, dir) = (TempDir::new(), TempDir::new());
    let server = start(dir.path(), &bucket).start();
    let mut c = server.connect();
    write_everything(&mut c, 1);
    wait_for_snapshot(&mut c);
    write_everything(&mut c, 2);
    stop(server);
    let said = tell(&["verify", "--bucket", &url(&bucket)]);
    assert!(said.starts_with("sound: ") && said.contains("1 snapshot"), "{said}");
    let mut random = Random::new(23);
    let files = files(bucket.path());
    let counted = ["log", "blob", "snapshot"].map(|folder| bucket.path().join(folder));
    let counted = files.iter().filter(|(path, _)| counted.iter().any(|of| path.starts_with(of)));
    for (path, bytes) in counted {
        let mut flipped = bytes.clone();
        flipped[random.below(bytes.len())] ^= 1 << random.below(8);
        fs::write(path, &flipped).expect("written");
        let name = path.strip_prefix(bucket.path()).expect("below").display().to_string();
        let (code, said, error) = tool(&["verify", "--bucket", &url(&bucket), "--quiet"]);
        assert!(code != 0 && said.is_empty() && error.contains(&name), "{name}: {error}");
        fs::remove_file(path).expect("removed");
        let (code, said, error) = tool(&["verify", "--bucket", &url(&bucket), "--quiet"]);
        // Without its last object, a log looks like one that ended earlier.
        let is_last = name.starts_with("log/") && objects(&bucket).last() < Some(path);
        assert!(is_last || code == 1 && error.contains(&name), "{name}: {said} {error}");
        fs::write(path, bytes).expect("written");
    }
    tell(&["verify", "--bucket", &url(&bucket)]);
    let nothing = TempDir::new();
    let (code, _, error) = tool(&["verify", "--bucket", &url(&nothing)]);
    assert!(code == 2 && error.contains("there is no log in"), "{error}");
}

#[test]
fn prune_keeps_what_the_retention_needs_beside_a_running_owner() {
    let (bucket, dir, other) = (TempDir::new(), TempDir::new(), TempDir::new());
    let server = start(dir.path(), &bucket).start();
    let mut c = server.connect();
    for number in 0..20 {
        c.check(&format!("SET key:{number} value"), "+OK");
        wait_for_bucket(&mut c);
    }
    wait_for_snapshot(&mut c);
    let said = tell(&["prune", "--bucket", &url(&bucket)]);
    assert!(said.contains("nothing to prune"), "{said}");
    let (at, _) = end(&bucket);
    let expected = contents(&mut c);
    c.check("SET behind 1", "+OK");
    wait_for_bucket(&mut c);
    let count = objects(&bucket).len();
    let said = tell(&["prune", "--bucket", &url(&bucket), "--retention", "0"]);
    assert!(said.starts_with("deleted: "), "{said}");
    assert!(objects(&bucket).len() < count - 15, "{said}");
    tell(&["verify", "--bucket", &url(&bucket)]);
    let restored = other.path().join("restored");
    tell(&["restore", "--bucket", &url(&bucket), "--at", &at, "--dir", text(&restored)]);
    assert_eq!(contents_of(&restored), expected);
    let gone = other.path().join("gone");
    let (code, _, error) =
        tool(&["restore", "--bucket", &url(&bucket), "--at", "5", "--dir", text(&gone)]);
    assert!(code == 2 && error.contains("5 cannot be restored"), "{error}");
    // The owner continues, and takes snapshots.
    wait_for_snapshot_of(&mut c, "SET further 1");
    let expected = contents(&mut c);
    stop(server);
    let empty = TempDir::new();
    let server = start(empty.path(), &bucket).start();
    assert_eq!(contents(&mut server.connect()), expected);
}

#[test]
fn a_snapshot_of_an_owner_that_is_a_replica_has_what_its_primary_has_not_removed() {
    let (bucket, dir, other) = (TempDir::new(), TempDir::new(), TempDir::new());
    let primary = launch().with("repl-diskless-sync-delay", "0").start();
    let mut p = primary.connect();
    let primary_address = format!("127.0.0.1 {}", primary.port());
    let owner = start(dir.path(), &bucket).with("replicaof", &primary_address).start();
    let mut c = owner.connect();
    p.check("SET lasting v", "+OK");
    wait_until("the owner has it", || c.ask("DBSIZE").int() == 1);
    p.check("SET brief v PX 2000", "+OK");
    wait_until("the owner has it", || c.ask("DBSIZE").int() == 2);
    // The primary's clock counts, and a stopped primary sends no deletions.
    primary.signal(Signal::STOP);
    wait_until("the time has come", || c.ask("EXISTS brief").int() == 0);
    c.check("DBSIZE", ":2");
    wait_for_snapshot(&mut c);
    let restored = other.path().join("restored");
    let said = tell(&["restore", "--bucket", &url(&bucket), "--dir", text(&restored)]);
    assert!(said.starts_with("restored: 2 keys"), "{said}");
    primary.signal(Signal::CONT);
    wait_until("it is removed", || c.ask("DBSIZE").int() == 1);
    stop(owner);
}
