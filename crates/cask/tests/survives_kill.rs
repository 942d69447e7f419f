//! A real process, killed again and again, in the same store.
//!
//! The writer reports acknowledged writes. After each kill the store is opened here: every acknowledged write is
//! there, or the one that was in progress after it; no other key, no older value. `TIERCE_KILL_CYCLES` is the number
//! of kills; `scripts/kill-loop` raises it, and builds the writer, an example, which cargo does not build for this
//! test alone.

use std::collections::HashMap;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use tierce_cask::{Db, IndexKind, Options};
use tierce_harness::effort;

/// A directory that is removed with the test.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Self {
        let dir = std::env::temp_dir().join(format!("tierce-cask-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        Scratch(dir)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Cargo puts examples next to the folder of test programs.
fn writer() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let profile = test.parent().and_then(Path::parent).unwrap();
    profile.join("examples").join("cask_writer")
}

/// Lets the writer run until it has reported `lines` lines, kills it, and returns its whole output.
fn run_and_kill(dir: &Path, round: u64, index: &str, lines: usize) -> Vec<String> {
    let mut child = Command::new(writer())
        .args([dir.to_str().unwrap(), &round.to_string(), index])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut output = BufReader::new(child.stdout.take().unwrap());
    let mut said = Vec::new();
    let mut line = String::new();
    // Lines left in the pipe after the kill were acknowledged as well.
    while output.read_line(&mut line).unwrap() > 0 {
        if line.ends_with('\n') {
            said.push(std::mem::take(&mut line));
        }
        if said.len() == lines {
            child.kill().unwrap();
        }
        line.clear();
    }
    child.wait().unwrap();
    said
}

fn check(index: &str, kind: IndexKind) {
    let cycles: u64 =
        std::env::var("TIERCE_KILL_CYCLES").ok().and_then(|n| n.parse().ok()).unwrap_or(effort(12));
    let scratch = Scratch::new(index);
    let mut acknowledged: HashMap<String, String> = HashMap::new();
    for round in 0..cycles {
        let said = run_and_kill(&scratch.0, round, index, 200 + (round as usize * 377) % 2500);
        for line in said {
            let mut words = line.trim_end_matches('\n').splitn(4, ' ');
            let (_, _, key) = (words.next(), words.next(), words.next().unwrap());
            acknowledged.insert(key.to_owned(), words.next().unwrap().to_owned());
        }
        let options = Options { index: kind, ..Options::default() };
        let db = Db::open(&scratch.0, options).unwrap();
        // Each of the four threads may have made one more write than it reported.
        let mut unsaid = 0;
        for (key, value) in &mut acknowledged {
            let found = db.get(key.as_bytes()).unwrap();
            let found = found.map_or("-".to_owned(), |v| String::from_utf8(v.into_vec()).unwrap());
            if found != *value {
                assert!(found == "-" || is_later(&found, value), "{key}: {found} for {value}");
                unsaid += 1;
                *value = found;
            }
        }
        for item in db.iter() {
            let (key, entry) = item.unwrap();
            let key = String::from_utf8(key).unwrap();
            let value = String::from_utf8(entry.value.into_vec()).unwrap();
            if let std::collections::hash_map::Entry::Vacant(vacant) = acknowledged.entry(key) {
                unsaid += 1;
                vacant.insert(value);
            }
        }
        assert!(unsaid <= 4, "{unsaid} differences after round {round}");
    }
}

/// Returns true if a value was written after another one, a deletion counting as earliest.
fn is_later(a: &str, b: &str) -> bool {
    let number = |value: &str| -> Option<(u64, u64)> {
        let mut words = value.split('.');
        Some((words.next()?.parse().ok()?, words.next()?.parse().ok()?))
    };
    number(a) > number(b)
}

#[test]
fn hashed_store_survives_being_killed() {
    check("hash", IndexKind::Hash);
}

#[test]
fn ordered_store_survives_being_killed() {
    check("ordered", IndexKind::Ordered);
}
