//! Tests that no check is forgotten: each script is a suite of `scripts/suites.tsv` or a tool in that table, the
//! parts take about equally long, and each test file is part of a test program.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// Minimum duration of the shortest part, as a share of the longest.
const BALANCE: f64 = 0.7;

const PARTS: [&str; 3] = ["1", "2", "3"];

/// A row of the table.
struct Suite {
    part: String,
    seconds: u32,
    script: String,
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn suites() -> Vec<Suite> {
    let text = fs::read_to_string(root().join("scripts/suites.tsv")).expect("the table");
    let rows = text.lines().filter(|line| !line.starts_with('#'));
    let parse = |line: &str| {
        let columns: Vec<_> = line.split('\t').collect();
        let [part, seconds, command, shows] = columns[..] else { panic!("four columns: {line}") };
        assert!(!shows.is_empty(), "what does it show: {line}");
        let script = command.split(' ').next().expect("a word").to_owned();
        Suite { part: part.to_owned(), seconds: seconds.parse().expect(line), script }
    };
    rows.map(parse).collect()
}

fn files(dir: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(dir).unwrap_or_else(|error| panic!("{}: {error}", dir.display()));
    let paths = entries.map(|entry| entry.expect("an entry").path());
    paths.filter(|path| path.is_file()).collect()
}

#[test]
fn every_script_is_a_suite_or_a_tool() {
    let suites = suites();
    for suite in &suites {
        assert!(root().join(&suite.script).is_file(), "there is no {}", suite.script);
        let known = ["always", "tool"].contains(&&*suite.part) || PARTS.contains(&&*suite.part);
        assert!(known, "{}: there is no part {}", suite.script, suite.part);
    }
    for path in files(&root().join("scripts")) {
        // Modules and tables of scripts have a file extension.
        if path.extension().is_none() {
            let name = format!("scripts/{}", path.file_name().expect("a name").display());
            assert!(suites.iter().any(|suite| suite.script == name), "{name} is in no part");
        }
    }
}

#[test]
fn parts_take_about_equally_long() {
    let mut seconds = BTreeMap::from(PARTS.map(|part| (part.to_owned(), 0)));
    for suite in suites() {
        seconds.entry(suite.part).and_modify(|sum| *sum += suite.seconds);
    }
    let (min, max) = (seconds.values().min().expect("parts"), seconds.values().max());
    assert!(f64::from(*min) >= BALANCE * f64::from(*max.expect("parts")), "{seconds:?}");
}

/// A crate whose tests are one program lists the files; so does the program that tests from outside.
#[test]
fn every_test_file_is_in_a_program() {
    let crates = fs::read_dir(root().join("crates")).expect("the crates");
    let crates = crates.map(|entry| entry.expect("an entry").path().join("tests"));
    for folder in
        crates.filter(|folder| folder.join("main.rs").is_file()).chain([root().join("tests")])
    {
        let main = fs::read_to_string(folder.join("main.rs")).expect("a program");
        for path in
            files(&folder).iter().filter(|path| path.extension().is_some_and(|kind| kind == "rs"))
        {
            let name = path.file_stem().expect("a name").to_string_lossy();
            let is_listed =
                name == "main" || main.lines().any(|line| line == format!("mod {name};"));
            assert!(is_listed, "{} is no module of main.rs", path.display());
        }
    }
}
