//! From one version to another, and back by a snapshot: the guarantees of `docs/upgrading.md`.
//!
//! `released_formats.rs` tests that directories of earlier versions open.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::process::Signal;
use tierce_harness::{TempDir, thaw};

use crate::released_formats::{FIXTURES, contents::listing};
use crate::{launch, program};

/// Runs a tool of the program with `arguments`. Returns its exit code and all output.
fn tool(program: &Path, arguments: &[&str]) -> (Option<i32>, String) {
    let output = Command::new(program).args(arguments).output().expect("the program");
    let said = [output.stdout, output.stderr].concat();
    (output.status.code(), String::from_utf8(said).expect("text"))
}

fn text(path: &Path) -> &str {
    path.to_str().expect("a path of text")
}

/// Returns the directory of this kind that an earlier version left.
fn left_behind(kind: &str) -> (TempDir, PathBuf, String) {
    let scratch = TempDir::new();
    let dir = scratch.path().join("data");
    let fixture = Path::new(FIXTURES).join("0.1").join(kind);
    fs::create_dir(&dir).expect("a directory");
    thaw(&fixture.join("dir"), &dir);
    let contents = fs::read_to_string(fixture.join("contents.txt")).expect("the contents");
    (scratch, dir, contents)
}

/// Returns all files below a directory, with their bytes.
fn files(dir: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(dir).expect("a directory") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            found.extend(files(&path));
        } else {
            found.insert(path.clone(), fs::read(&path).expect("a file"));
        }
    }
    found
}

/// Returns the format versions that the page lists, by file.
fn versions_of_the_page() -> BTreeMap<String, u32> {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/upgrading.md");
    let page = fs::read_to_string(page).expect("the page");
    let rows = page.lines().filter_map(|line| line.strip_prefix("| `")?.split_once('`'));
    rows.map(|(file, rest)| {
        let version = rest.split('|').nth(1).and_then(|cell| cell.trim().parse().ok());
        (file.to_owned(), version.unwrap_or_else(|| panic!("no version: {rest}")))
    })
    .collect()
}

/// Returns the version in a file of the storage engine, which follows the magic number.
fn version_in(file: &Path) -> u32 {
    let bytes = fs::read(file).expect("a file");
    u32::from_le_bytes(bytes[8..12].try_into().expect("four bytes"))
}

/// Returns the first file in `dir` whose name ends like this.
fn file_in(dir: &Path, end: &str) -> PathBuf {
    let found = files(dir).into_keys().find(|path| text(path).ends_with(end));
    found.unwrap_or_else(|| panic!("no {end} in {}", dir.display()))
}

/// Returns a directory's data, exported in the format of the name's extension.
fn exported(dir: &Path, to: &Path) -> Vec<u8> {
    let format = if text(to).ends_with(".rdb") { "rdb" } else { "jsonl" };
    let call = ["export", text(to), "--format", format, "--dir", text(dir)];
    let (code, said) = tool(&program(), &call);
    assert_eq!(code, Some(0), "{said}");
    fs::read(to).expect("an export")
}

#[test]
fn the_page_has_the_versions_of_the_files_that_are_written() {
    let (scratch, dir, _) = left_behind("spilled-values");
    let mut server = launch()
        .with("dir", text(&dir))
        .with("appendonly", "yes")
        .with("maxmemory", "600kb")
        .with("maxmemory-policy", "spill")
        .start();
    // More values that move to disk, so that there are files of this version.
    let mut c = server.connect();
    for key in 0..300 {
        c.call(&["SET", &format!("cold:{key}"), &"x".repeat(1200 + key)]);
    }
    server.signal(Signal::TERM);
    server.wait_for_end();

    let page = versions_of_the_page();
    assert_eq!(version_in(&file_in(&dir, "wal/MANIFEST")), page["MANIFEST"]);
    assert_eq!(version_in(&file_in(&dir, ".seg")), page["00000001.seg"]);
    assert_eq!(version_in(&file_in(&dir, ".cold")), page["00000001.cold"]);
    // The directory has hashes with deadlines of fields; a server with one string has none.
    let expiring = exported(&dir, &scratch.path().join("expiring.rdb"));
    assert_eq!(expiring[..9], *b"REDIS0012");
    let plain = scratch.path().join("plain");
    let mut server = launch().with("dir", text(&plain)).with("appendonly", "yes").start();
    server.connect().check("SET key value", "+OK");
    server.signal(Signal::TERM);
    server.wait_for_end();
    let snapshot = exported(&plain, &scratch.path().join("plain.rdb"));
    assert_eq!(snapshot[..9], *format!("REDIS{:04}", page["dump.rdb"]).as_bytes());
    let lines = exported(&plain, &scratch.path().join("lines.jsonl"));
    let header = format!("\"format\":\"tierce-jsonl\",\"version\":{},", page["tierce-jsonl"]);
    assert!(String::from_utf8_lossy(&lines).lines().next().unwrap().contains(&header), "{header}");
}

/// Sets the version of a file of the storage engine, with a correct checksum at `crc`.
fn set_version(file: &Path, version: u32, crc: usize) {
    let mut bytes = fs::read(file).expect("a file");
    bytes[8..12].copy_from_slice(&version.to_le_bytes());
    let sum = crc32c::crc32c(&bytes[..crc]).to_le_bytes();
    bytes[crc..crc + 4].copy_from_slice(&sum);
    fs::write(file, bytes).expect("space");
}

/// Runs everything that opens a directory. Each reports this line and changes nothing.
fn is_refused(dir: &Path, line: &str) {
    let before = files(dir);
    let (away, socket) = (dir.with_extension("rdb"), dir.with_extension("socket"));
    let calls: [&[&str]; 3] = [
        &["--port", "0", "--unixsocket", text(&socket), "--dir", text(dir)],
        &["check", text(dir)],
        &["export", text(&away), "--dir", text(dir)],
    ];
    for call in calls {
        let (code, said) = tool(&program(), call);
        assert!(matches!(code, Some(1 | 2)), "{call:?}: {code:?}: {said}");
        assert_eq!(said.lines().count(), 1, "{call:?}: {said}");
        assert!(said.contains(line), "{call:?}: {said}");
    }
    assert!(files(dir) == before, "a file was changed");
}

#[test]
fn a_log_in_a_newer_format_is_refused_and_left_alone() {
    let (_scratch, dir, _) = left_behind("log-after-a-kill");
    let manifest = dir.join("wal/MANIFEST");
    let newer = versions_of_the_page()["MANIFEST"] + 1;
    let crc = fs::read(&manifest).expect("a manifest").len() - 4;
    set_version(&manifest, newer, crc);
    let line =
        format!("MANIFEST has format version {newer}; this version reads 1 to {}", newer - 1);
    is_refused(&dir, &line);
    let mended = dir.with_extension("mended");
    let (code, said) = tool(&program(), &["repair", text(&dir.join("wal")), text(&mended)]);
    assert_eq!((code, said.lines().count()), (Some(2), 1), "{said}");
    assert!(said.contains(&line), "{said}");
}

#[test]
fn a_snapshot_and_lines_in_a_newer_format_are_refused() {
    let scratch = TempDir::new();
    let (rdb, lines) = (scratch.path().join("dump.rdb"), scratch.path().join("lines.jsonl"));
    fs::write(&rdb, b"REDIS0099\xff\0\0\0\0\0\0\0\0").expect("space");
    let header = r#"{"type":"header","format":"tierce-jsonl","version":2,"written_ms":1}"#;
    fs::write(&lines, format!("{header}\n")).expect("space");
    let into = scratch.path().join("data");
    for (file, why) in [(&rdb, "version 99"), (&lines, "tierce-jsonl 2 is unknown")] {
        let (code, said) = tool(&program(), &["import", text(file), "--dir", text(&into)]);
        assert_eq!((code, said.lines().count()), (Some(2), 1), "{said}");
        assert!(said.contains(why), "{said}");
    }
    let before = files(scratch.path());
    let outside = TempDir::new();
    let socket = outside.path().join("socket");
    let call = ["--port", "0", "--unixsocket", text(&socket), "--appendonly", "no", "--dir"];
    let (code, said) = tool(&program(), &[&call[..], &[text(scratch.path())]].concat());
    assert_eq!(code, Some(1), "{said}");
    assert!(said.lines().last().is_some_and(|line| line.contains("version 99")), "{said}");
    assert!(files(scratch.path()) == before, "a file was changed");
}

/// Going back: an export by this version, an import by the one before. Without that program this version imports,
/// which shows that the snapshot is complete.
#[test]
fn a_snapshot_takes_all_data_back() {
    let earlier = std::env::var_os("TIERCE_PREVIOUS_PROGRAM").map(PathBuf::from);
    for kind in ["log-after-a-kill", "spilled-values", "log-begun-at-run-time"] {
        let (scratch, dir, contents) = left_behind(kind);
        let back = scratch.path().join("back.rdb");
        let (code, said) = tool(&program(), &["export", text(&back), "--dir", text(&dir)]);
        assert_eq!(code, Some(0), "{kind}: {said}");
        let earlier = earlier.clone().unwrap_or_else(program);
        let into = scratch.path().join("earlier");
        let (code, said) = tool(&earlier, &["import", text(&back), "--dir", text(&into)]);
        assert_eq!(code, Some(0), "{kind}: {said}");
        let server = tierce_harness::Launch::new(earlier)
            .with("dir", text(&into))
            .with("appendonly", "yes")
            .start();
        let found = listing(&mut server.connect());
        let difference = contents.lines().zip(found.lines()).find(|(a, b)| a != b);
        assert!(found == contents, "{kind}: {difference:?}");
    }
}
