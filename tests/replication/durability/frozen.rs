//! Data directories of replicated servers, written by released versions, open with their data and their offset.

use std::fs;
use std::path::Path;

use rustix::process::Signal;
use tierce_harness::{Connection, Server, TempDir, freeze, thaw, wait_until};

use super::{end, fill, primary, replica_of, wait_for_all, wait_for_link};
use crate::launch;
use crate::replication::info;

const FIXTURES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/fixtures/0.1");

/// A port without a listener, for replicas that do not find their primary.
const NOWHERE: &str = "127.0.0.1 1";

fn open(dir: &Path, is_replica: bool) -> Server {
    let launch = launch().with("dir", &dir.display().to_string()).with("appendonly", "yes");
    if is_replica { launch.with("replicaof", NOWHERE) } else { launch }.start()
}

/// Returns the id of the stream of a server's data, and their offset in it.
fn place(c: &mut Connection, is_replica: bool) -> String {
    let (id, offset) = match is_replica {
        true => ("master_replid", "slave_repl_offset"),
        false => ("master_replid2", "second_repl_offset"),
    };
    format!("{} {}", info(c, id), info(c, offset))
}

/// The directory of a killed replica, and that of its primary, which had been shut down.
#[test]
fn directories_of_replicated_servers_open_with_their_data_and_place() {
    for (name, is_replica) in [("replica-after-a-kill", true), ("primary-after-its-end", false)] {
        let fixture = Path::new(FIXTURES).join(name);
        let dir = TempDir::new();
        thaw(&fixture.join("dir"), dir.path());
        let expected = fs::read_to_string(fixture.join("contents.txt")).expect("the contents");
        let server = open(dir.path(), is_replica);
        let mut c = server.connect();
        // A replica shows it when its replication thread has begun.
        wait_until(name, || place(&mut c, is_replica) == expected.trim());
        assert_eq!(c.ask("DBSIZE").int(), 51, "{name}");
        for number in 0..50 {
            c.check(&format!("GET frozen:{number}"), &format!("\"{number}\""));
        }
        c.check("LRANGE frozen:list 0 -1", "[\"a\", \"b\", \"c\"]");
    }
}

#[test]
#[ignore = "writes fixtures: FREEZE_TO says where to, from the root of the workspace"]
fn freeze_replicated_servers() {
    let to = std::env::var_os("FREEZE_TO").expect("FREEZE_TO says where to");
    let to = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(to);
    let (of_primary, of_replica) = (TempDir::new(), TempDir::new());
    let primary = primary()
        .with("dir", &of_primary.path().display().to_string())
        .with("appendonly", "yes")
        .start();
    let replica = replica_of(&primary)
        .with("dir", &of_replica.path().display().to_string())
        .with("appendonly", "yes")
        .start();
    wait_for_link(&mut replica.connect());
    let mut c = primary.connect();
    fill(&mut c, "frozen");
    wait_for_all(&mut c);
    end(replica, Signal::KILL);
    end(primary, Signal::TERM);
    for (name, dir, is_replica) in
        [("replica-after-a-kill", of_replica, true), ("primary-after-its-end", of_primary, false)]
    {
        freeze(dir.path(), &to.join(name).join("dir"));
        let text = place(&mut open(dir.path(), is_replica).connect(), is_replica);
        fs::write(to.join(name).join("contents.txt"), text).expect("space");
    }
}
