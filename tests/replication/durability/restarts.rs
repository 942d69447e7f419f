//! A restarted primary: its replicas continue without a full copy, unless one of them may know more.

use std::fs;
use std::path::Path;

use rustix::process::Signal;
use tierce_harness::{Connection, Launch, Server, TempDir, free_port, wait_until};

use super::{end, fill, primary, replica_of, wait_for_all, wait_for_link};
use crate::launch;
use crate::replication::{assert_same, info};

const NO_ID: &str = "0000000000000000000000000000000000000000";

const WITH_LOG: &[(&str, &str)] = &[("appendonly", "yes")];
const WITH_SNAPSHOT: &[(&str, &str)] = &[("appendonly", "no"), ("save", "3600 1")];

/// A primary that can be started again with the same directory and port.
struct Place {
    dir: TempDir,
    port: u16,
    directives: Vec<(&'static str, &'static str)>,
}

impl Place {
    fn new(directives: &[(&'static str, &'static str)]) -> Self {
        Self { dir: TempDir::new(), port: free_port(), directives: directives.to_vec() }
    }

    fn launch(&self) -> Launch {
        let launch = launch()
            .on_port(self.port)
            .with("dir", &self.dir.path().display().to_string())
            .with("repl-diskless-sync-delay", "0")
            .with("enable-debug-command", "local");
        self.directives.iter().fold(launch, |launch, (name, value)| launch.with(name, value))
    }

    fn start(&self) -> Server {
        self.launch().start()
    }
}

/// Copies all files of a directory, as a power cut could leave them.
fn copy_dir(from: &Path, to: &Path) {
    fs::create_dir_all(to).expect("space");
    for entry in fs::read_dir(from).expect("a directory") {
        let entry = entry.expect("an entry");
        let target = to.join(entry.file_name());
        match entry.file_type().expect("a type").is_dir() {
            true => copy_dir(&entry.path(), &target),
            false => _ = fs::copy(entry.path(), target).expect("space"),
        }
    }
}

/// Replaces the content of a directory.
fn restore(dir: &Path, image: &Path) {
    for entry in fs::read_dir(dir).expect("a directory") {
        let path = entry.expect("an entry").path();
        let removed =
            if path.is_dir() { fs::remove_dir_all(&path) } else { fs::remove_file(&path) };
        removed.expect("it goes");
    }
    copy_dir(image, dir);
}

/// Returns a primary's number of full copies, and of replicas that continued.
fn syncs(c: &mut Connection) -> (String, String) {
    (info(c, "sync_full"), info(c, "sync_partial_ok"))
}

fn one_continued() -> (String, String) {
    ("0".to_owned(), "1".to_owned())
}

#[test]
fn a_replica_continues_after_an_orderly_restart_of_its_primary() {
    for directives in [WITH_LOG, WITH_SNAPSHOT] {
        let place = Place::new(directives);
        let mut primary = place.start();
        let mut c = primary.connect();
        let replica = replica_of(&primary).with("appendonly", "yes").start();
        let mut r = replica.connect();
        wait_for_link(&mut r);
        for round in 0..3 {
            fill(&mut c, &format!("round:{round}"));
            // It expires while the primary is down, or soon after.
            c.check(&format!("SET brief:{round} 1 PX 300"), "+OK");
            wait_for_all(&mut c);
            let id = info(&mut c, "master_replid");
            end(primary, Signal::TERM);
            primary = place.start();
            c = primary.connect();
            assert_eq!(info(&mut c, "master_replid2"), id);
            assert_ne!(info(&mut c, "master_replid"), id);
            fill(&mut c, &format!("later:{round}"));
            wait_until("it has come back", || c.ask("WAIT 1 100").int() == 1);
            wait_until("the key has expired there, too", || {
                r.ask("DBSIZE").int() == 102 * (round + 1)
            });
            assert_eq!(syncs(&mut c), one_continued(), "{directives:?}, round {round}");
        }
        assert_same(&mut c, &mut r);
    }
}

/// An expired key that still exists when the primary ends does not end the stream.
#[test]
fn a_key_that_had_expired_before_the_end_is_deleted_in_the_stream() {
    for directives in [WITH_LOG, WITH_SNAPSHOT] {
        let place = Place::new(directives);
        let primary = place.start();
        let mut c = primary.connect();
        let replica = replica_of(&primary).start();
        let mut r = replica.connect();
        wait_for_link(&mut r);
        c.check("DEBUG SET-ACTIVE-EXPIRE 0", "+OK");
        c.check("SET brief 1 PX 1", "+OK");
        wait_for_all(&mut c);
        let second = |c: &mut Connection| c.ask("TIME").items()[0].text().to_owned();
        // Snapshots record the second in which they were written.
        let began = second(&mut c);
        wait_until("a second has passed", || second(&mut c) != began);
        let id = info(&mut c, "master_replid");
        end(primary, Signal::TERM);
        let primary = place.start();
        let mut c = primary.connect();
        assert_eq!(info(&mut c, "master_replid2"), id, "{directives:?}");
        wait_until("it has come back", || c.ask("WAIT 1 100").int() == 1);
        wait_until("it has expired there, too", || r.ask("DBSIZE").int() == 0);
        assert_eq!(syncs(&mut c), one_continued(), "{directives:?}");
    }
}

#[test]
fn both_may_restart_in_order() {
    let place = Place::new(&[("appendonly", "yes")]);
    let of_replica = Place::new(&[("appendonly", "no"), ("save", "3600 1")]);
    let mut primary = place.start();
    let follow = |primary: &Server| {
        of_replica.launch().with("replicaof", &format!("127.0.0.1 {}", primary.port())).start()
    };
    let mut replica = follow(&primary);
    wait_for_link(&mut replica.connect());
    fill(&mut primary.connect(), "a");
    wait_for_all(&mut primary.connect());
    for round in 0..2 {
        end(replica, Signal::TERM);
        fill(&mut primary.connect(), &format!("meanwhile:{round}"));
        replica = follow(&primary);
        wait_for_all(&mut primary.connect());
        end(primary, Signal::TERM);
        primary = place.start();
        wait_for_all(&mut primary.connect());
        assert_eq!(syncs(&mut primary.connect()), one_continued());
    }
    assert_same(&mut primary.connect(), &mut replica.connect());
}

fn follow(replica: &Server, primary: &Server) {
    let mut c = replica.connect();
    c.check(&format!("REPLICAOF 127.0.0.1 {}", primary.port()), "+OK");
    wait_for_link(&mut c);
}

fn full_copies_for(server: &Server) -> usize {
    (server.output() + &server.errors()).matches("Full copy from").count()
}

/// It was a replica at its last start, and its stream began as that of another server.
#[test]
fn replicas_continue_after_an_orderly_restart_of_one_that_was_promoted() {
    for directives in
        [[("appendonly", "yes"), ("save", "")], [("appendonly", "no"), ("save", "3600 1")]]
    {
        let place = Place::new(&directives);
        let (first, promoted) = (primary().start(), place.start());
        let sibling = launch().start();
        follow(&promoted, &first);
        follow(&sibling, &first);
        let mut c = first.connect();
        fill(&mut c, "first");
        wait_until("both have all", || c.ask("WAIT 2 100").int() == 2);
        end(first, Signal::KILL);
        let mut c = promoted.connect();
        c.check("REPLICAOF NO ONE", "+OK");
        follow(&sibling, &promoted);
        fill(&mut c, "promoted");
        // It expires while no server is running that could remove it.
        c.check("SET brief 1 PX 100", "+OK");
        wait_for_all(&mut c);
        let id = info(&mut c, "master_replid");
        end(promoted, Signal::TERM);
        let restarted = place.start();
        let mut c = restarted.connect();
        assert_eq!(info(&mut c, "master_replid2"), id, "{directives:?}");
        fill(&mut c, "restarted");
        wait_for_all(&mut c);
        assert_eq!(syncs(&mut c), one_continued(), "{directives:?}");
        assert_eq!(full_copies_for(&sibling), 1, "the first one");
        let mut s = sibling.connect();
        wait_until("the key has expired there, too", || s.ask("DBSIZE").int() == 153);
        assert_same(&mut c, &mut s);
    }
}

/// Two servers take turns: each is restarted as the primary, and then hands over to the other one.
#[test]
fn primaries_that_were_restarted_in_order_hand_over() {
    let places = [Place::new(WITH_LOG), Place::new(WITH_SNAPSHOT)];
    let [mut from, mut to] = [0, 1].map(|at: usize| (at, places[at].start()));
    follow(&to.1, &from.1);
    for round in 0..4 {
        let mut c = from.1.connect();
        fill(&mut c, &format!("round:{round}"));
        wait_for_all(&mut c);
        end(from.1, Signal::TERM);
        from.1 = places[from.0].start();
        let mut c = from.1.connect();
        wait_for_all(&mut c);
        assert_eq!(syncs(&mut c), one_continued(), "round {round}");
        fill(&mut c, &format!("again:{round}"));
        c.check("FAILOVER", "+OK");
        wait_until("it has handed over", || info(&mut c, "role") == "slave");
        wait_for_link(&mut c);
        std::mem::swap(&mut from, &mut to);
        let mut c = from.1.connect();
        c.check("INCR rounds", &format!(":{}", round + 1));
        wait_for_all(&mut c);
        assert_eq!(full_copies_for(&to.1), 0, "round {round}");
        assert_same(&mut c, &mut to.1.connect());
    }
}

#[test]
fn a_primary_that_was_killed_has_another_stream() {
    let place = Place::new(&[("appendonly", "yes")]);
    let primary = place.start();
    let replica = replica_of(&primary).start();
    let (mut c, mut r) = (primary.connect(), replica.connect());
    wait_for_link(&mut r);
    fill(&mut c, "a");
    wait_for_all(&mut c);
    let id = info(&mut c, "master_replid");
    end(primary, Signal::KILL);
    let primary = place.start();
    let mut c = primary.connect();
    assert_ne!(info(&mut c, "master_replid"), id);
    assert_eq!(info(&mut c, "master_replid2"), NO_ID);
    wait_for_all(&mut c);
    assert_eq!(syncs(&mut c), ("1".to_owned(), "0".to_owned()));
    assert_same(&mut c, &mut r);
}

/// A power cut removes the end of the log, so the replica knows more than its primary. The disk image is of a running
/// server, or of one that was shut down: then its log begins with an offset that is not valid any more.
#[test]
fn a_replica_that_is_ahead_of_a_power_cut_gets_a_full_copy() {
    for was_restarted in [false, true] {
        let place = Place::new(&[("appendonly", "yes")]);
        let mut primary = place.start();
        let replica = replica_of(&primary).with("appendonly", "yes").start();
        let (mut c, mut r) = (primary.connect(), replica.connect());
        wait_for_link(&mut r);
        fill(&mut c, "old");
        wait_for_all(&mut c);
        let image = TempDir::new();
        if was_restarted {
            end(primary, Signal::TERM);
            copy_dir(place.dir.path(), image.path());
            primary = place.start();
            c = primary.connect();
            wait_for_all(&mut c);
        } else {
            c.check("WAITAOF 1 0 0", "[:1, :0]");
            copy_dir(place.dir.path(), image.path());
        }
        fill(&mut c, "lost");
        wait_for_all(&mut c);
        end(primary, Signal::KILL);
        restore(place.dir.path(), image.path());
        let primary = place.start();
        let mut c = primary.connect();
        c.check("SET lost:1 other", "+OK");
        wait_for_all(&mut c);
        assert_eq!(info(&mut c, "sync_full"), "1", "restarted: {was_restarted}");
        r.check("EXISTS lost:2", ":0");
        assert_same(&mut c, &mut r);
    }
}
