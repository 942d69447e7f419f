//! Data directories written by released versions open with all their data.
//!
//! `tests/fixtures/<version>/` has a directory for each kind of file, in the state in which a killed or a closed
//! server of that version left it. Next to it, `contents.txt` lists all of its contents.
//!
//! Before a format changes, the current one is frozen, with the released program:
//!
//! ```text
//! TIERCE_TEST_PROGRAM=/path/to/old/tierce FREEZE_TO=tests/fixtures/0.1 \
//!     cargo test -p tierce --test program -- --ignored released_formats::freeze_this_version
//! ```

pub(crate) mod contents;

use std::fs;
use std::path::{Path, PathBuf};

use rustix::process::Signal;
use tierce_harness::{Both, Connection, Launch, Server, TempDir, freeze, thaw, wait_until};

use crate::launch;
use contents::{fill, listing};

pub(crate) const FIXTURES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/fixtures");

/// A data directory of a released version.
struct Kind {
    name: &'static str,
    directives: &'static [(&'static str, &'static str)],
    /// Brings a fresh server with these directives to the state to freeze.
    prepare: fn(Both) -> Server,
}

const KINDS: [Kind; 4] = [
    Kind {
        name: "log-after-a-kill",
        directives: &[("appendonly", "yes")],
        prepare: |both| {
            fill(&both);
            both.server
        },
    },
    Kind {
        name: "log-begun-at-run-time",
        directives: &[("appendonly", "yes")],
        prepare: |both| {
            let mut c = both.server.connect();
            c.check("CONFIG SET appendonly no", "+OK");
            wait_until("the log is closed", || info(&mut c, "aof_enabled") == "0");
            c.check("CONFIG SET appendonly yes", "+OK");
            fill(&both);
            wait_until("the new log counts", || info(&mut c, "aof_rewrite_in_progress") == "0");
            both.server.signal(Signal::TERM);
            let mut server = both.server;
            server.wait_for_end();
            server
        },
    },
    Kind {
        name: "spilled-values",
        directives: &[("appendonly", "yes"), ("maxmemory", "600kb"), ("maxmemory-policy", "spill")],
        prepare: |both| {
            fill(&both);
            let mut c = both.server.connect();
            c.check("SELECT 9", "+OK");
            for key in 0..300 {
                let value = contents::words(key, 1200);
                c.call(&["SET", &format!("cold:{key}"), &value]);
            }
            wait_until("values are on disk", || {
                info(&mut c, "spilled_keys").parse::<u32>().is_ok_and(|keys| keys > 100)
            });
            both.server
        },
    },
    Kind {
        name: "snapshot",
        directives: &[],
        prepare: |both| {
            fill(&both);
            both.server.connect().check("SAVE", "+OK");
            both.server
        },
    },
];

fn info(c: &mut Connection, field: &str) -> String {
    let text = c.ask("INFO everything");
    let line = text.text().lines().find_map(|line| line.strip_prefix(&format!("{field}:")));
    line.unwrap_or_else(|| panic!("no {field}")).to_owned()
}

fn launch_in(dir: &Path, kind: &Kind) -> Launch {
    let launch = launch().with("dir", &dir.display().to_string()).with("databases", "16");
    kind.directives.iter().fold(launch, |launch, (name, value)| launch.with(name, value))
}

fn opens_with_all_data(fixture: &Path, kind: &Kind) {
    let dir = TempDir::new();
    thaw(&fixture.join("dir"), dir.path());
    let expected = fs::read_to_string(fixture.join("contents.txt")).expect("the contents");
    // The second start reads the files that this version has written.
    for start in ["first", "second"] {
        let server = launch_in(dir.path(), kind).start();
        let found = listing(&mut server.connect());
        let difference = expected.lines().zip(found.lines()).find(|(a, b)| a != b);
        assert!(expected == found, "{}, {start} start: {difference:?}", fixture.display());
        if start == "first" && kind.name != "snapshot" {
            // It may already be compacted. In either case it is afterwards.
            server.connect().ask("BGREWRITEAOF");
            wait_until("the log is compacted", || {
                info(&mut server.connect(), "aof_rewrites") != "0"
            });
        }
    }
}

#[test]
fn directories_of_all_released_versions_open_with_all_their_data() {
    let versions = fs::read_dir(FIXTURES).expect("fixtures");
    let mut tried = 0;
    for version in versions {
        let version = version.expect("an entry").path();
        for kind in &KINDS {
            opens_with_all_data(&version.join(kind.name), kind);
            tried += 1;
        }
    }
    assert!(tried >= KINDS.len(), "at least one version has been released");
}

#[test]
#[ignore = "writes fixtures; see the head of this file"]
fn freeze_this_version() {
    let to = PathBuf::from(std::env::var_os("FREEZE_TO").expect("FREEZE_TO says where to"));
    let to = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(to);
    for kind in &KINDS {
        let dir = TempDir::new();
        let both = Both::start(launch_in(dir.path(), kind), "memcached-port");
        let server = (kind.prepare)(both);
        let listed = Path::new("contents.txt");
        if server.is_running() {
            let text = listing(&mut server.connect());
            server.signal(Signal::KILL);
            drop(server);
            freeze(dir.path(), &to.join(kind.name).join("dir"));
            fs::write(to.join(kind.name).join(listed), text).expect("space");
        } else {
            freeze(dir.path(), &to.join(kind.name).join("dir"));
            let text = listing(&mut launch_in(dir.path(), kind).start().connect());
            fs::write(to.join(kind.name).join(listed), text).expect("space");
        }
    }
}
