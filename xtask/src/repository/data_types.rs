//! A data type consists of a few folders and files of its own, and a row in some tables. Few other files name it.
//! `Add a data type` in `CONTRIBUTING.md` lists all of them.
//!
//! Sorted sets stand for all types. Their own files are the structure, its edits, the translation of the edits for
//! replicas, and their commands.

use super::layers::{CRATES, Source, sources};

/// Files of sorted sets: a crate, and the prefix of a path in its sources.
const OWN: [(&str, &str); 4] = [
    ("collections", "sorted_set/"),
    ("keyspace", "data/collections/sorted_set.rs"),
    ("replication", "translate/sorted_set.rs"),
    ("commands", "commands/sorted_sets/"),
];

/// Maximum number of other files that name the type. May only be lowered.
const OTHERS_MAX: usize = 15;

/// Returns the files of a crate that name sorted sets and are not their own. Tests and test support may name them.
fn others<'s>(of: &str, sources: &'s [Source]) -> Vec<&'s str> {
    let is_own = |path: &str| OWN.iter().any(|(own, begin)| *own == of && path.starts_with(begin));
    let is_of_tests = |path: &str| {
        path.split(['/', '.']).any(|word| ["tests", "testing", "simulation"].contains(&word))
    };
    let names = |source: &&Source| {
        let (path, code) = (source.path(), source.code());
        let mut words = code.split(|c: char| c != '_' && !c.is_ascii_alphanumeric());
        !is_own(path) && !is_of_tests(path) && words.any(|word| word == "SortedSet")
    };
    sources.iter().filter(names).map(Source::path).collect()
}

#[test]
fn few_files_name_a_data_type() {
    let mut all = Vec::new();
    for (of, _) in CRATES {
        all.extend(others(of, &sources(of)).iter().map(|path| format!("{of}/src/{path}")));
    }
    all.sort_unstable();
    assert!(all.len() <= OTHERS_MAX, "{} files name SortedSet:\n{}", all.len(), all.join("\n"));
}

#[test]
fn files_that_name_it_are_found() {
    let sources = [
        Source::new("sorted_set/mod.rs", "pub struct SortedSet;"),
        Source::new("form.rs", "use crate::SortedSet;"),
        Source::new("set.rs", "// SortedSet\nuse crate::SortedSetEdit;"),
        Source::new("list.rs", "fn f() {}\n#[cfg(test)]\nmod tests {\nuse crate::SortedSet;"),
        Source::new("testing/mod.rs", "use crate::SortedSet;"),
    ];
    assert_eq!(others("collections", &sources), ["form.rs"]);
    assert_eq!(others("engine", &sources), ["sorted_set/mod.rs", "form.rs"]);
}
