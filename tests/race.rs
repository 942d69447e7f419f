//! A small `tierce race`: it runs to its end, reports its results, and cleans up. A store with
//! different data voids the run.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use tierce_harness::TempDir;

/// Runs a race of 4 threads with 50 keys each.
fn race(dir: &Path, more: &[&str]) -> Output {
    Command::new(crate::program())
        .args(["race", "--threads", "4", "--per-thread", "50", "--kills", "3"])
        // A test must not drop the cache of the whole system.
        .args(["--drop-caches", "files", "--segment-size", "1", "--dir"])
        .arg(dir)
        .args(more)
        .output()
        .expect("the program")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Returns the segments of a store.
fn segments(store: &Path) -> Vec<PathBuf> {
    let paths = std::fs::read_dir(store).expect("a store").map(|entry| entry.expect("it").path());
    paths.filter(|path| path.extension().is_some_and(|it| it == "seg")).collect()
}

#[test]
fn all_phases_run_and_are_reported_and_nothing_is_left() {
    let scratch = TempDir::new();
    let (dir, json, plot) =
        (scratch.path().join("race"), scratch.path().join("json"), scratch.path().join("svg"));
    let files = ["--json", json.to_str().expect("text"), "--plot", plot.to_str().expect("text")];
    let output = race(&dir, &files);
    let told = text(&output.stdout);
    assert!(output.status.success(), "{told}{}", text(&output.stderr));
    for part in [
        "4 threads × 50 keys of 8 bytes with values of 4096",
        "recovery: 3 kills",
        "nothing lost",
        "random write",
        "random read, cold",
        "random read, warm",
        "ordered scans",
        "warm ÷ cold random read",
        "bytes a key",
    ] {
        assert!(told.contains(part), "no {part:?} in:\n{told}");
    }
    assert!(!dir.exists(), "files are left behind");
    let json = std::fs::read_to_string(json).expect("results");
    for part in ["\"phase\": \"scan\"", "\"operations\": 1600", "\"kills\": 3", "\"peak\""] {
        assert!(json.contains(part), "no {part} in:\n{json}");
    }
    let plot = std::fs::read_to_string(plot).expect("a plot");
    // A line for each phase, and dashed ones for the limits of the disk: for writing and for
    // reading.
    assert_eq!(plot.matches("stroke-dasharray").count(), 2);
    assert_eq!(plot.matches("<polyline").count(), 4 + 2);
    assert!(plot.starts_with("<svg") && plot.ends_with("</svg>\n"));
}

#[test]
fn a_store_can_be_kept_and_read_later_and_damage_voids_the_run() {
    let scratch = TempDir::new();
    let dir = scratch.path().join("race");
    assert!(race(&dir, &["--phases", "write", "--keep"]).status.success());

    let again = race(&dir, &["--phases", "write"]);
    assert_eq!(again.status.code(), Some(1));
    assert!(text(&again.stderr).contains("is there already"), "{}", text(&again.stderr));

    let later = race(&dir, &["--phases", "read,scan", "--keep", "--verify-all"]);
    assert!(later.status.success(), "{}", text(&later.stderr));

    let other = race(&dir, &["--phases", "read", "--seed", "2"]);
    assert_eq!(other.status.code(), Some(1));
    let error = text(&other.stderr);
    assert!(
        error.contains("phase read: the run is void: key") && error.contains("missing"),
        "{error}"
    );
    assert!(error.contains("are left in"), "{error}");

    let largest = segments(&dir.join("store"))
        .into_iter()
        .max_by_key(|path| path.metadata().expect("a file").len())
        .expect("a segment");
    let mut bytes = std::fs::read(&largest).expect("a segment");
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(&largest, bytes).expect("a segment");
    let damaged = race(&dir, &["--phases", "scan"]);
    assert_eq!(damaged.status.code(), Some(1));
    let error = text(&damaged.stderr);
    assert!(error.contains("phase scan: the run is void") && error.contains("damaged"), "{error}");
}

#[test]
fn what_cannot_be_run_is_refused_in_one_line() {
    let scratch = TempDir::new();
    let dir = scratch.path().join("race");
    let no_store = race(&dir, &["--phases", "read"]);
    assert_eq!(no_store.status.code(), Some(1));
    assert!(text(&no_store.stderr).contains("run the phase write"), "{}", text(&no_store.stderr));
    let unknown = race(&dir, &["--phases", "swim"]);
    assert_eq!(unknown.status.code(), Some(2));
}
