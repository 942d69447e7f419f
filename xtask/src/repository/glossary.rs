//! Names: no retired word of `docs/glossary.md` comes back.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use super::layers::{CRATES, Source, sources};

/// Reads the words of the glossary's table of retired words.
fn retired() -> BTreeSet<String> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/glossary.md");
    let page = fs::read_to_string(path).expect("the glossary");
    let (_, table) = page.split_once("| retired | use |").expect("a table of retired words");
    let rows = table.lines().skip(2).map_while(|line| line.strip_prefix("| "));
    rows.filter_map(|row| Some(row.split_once(" |")?.0.to_owned())).collect()
}

/// Retired as a noun only. Names of functions and variables use it as a verb.
const NOUN: &str = "place";

/// Names of more words are sentences, such as those of tests.
const WORDS_MAX: usize = 5;

/// Folders and files that only tests use.
const OF_TESTS: [&str; 3] = ["simulation", "testing", "fuzzing"];

/// Returns the names in a line of code, outside of strings, that contain one of the words, in the singular or plural.
fn names_with(line: &str, words: &BTreeSet<String>) -> Vec<String> {
    let line = line.replace("'\"'", "").replace("\\\"", "");
    let code = line.split('"').step_by(2);
    let names = code.flat_map(|code| code.split(|c: char| !c.is_alphanumeric() && c != '_'));
    let has_word = |name: &&str| {
        let parts = parts(name);
        let is_retired = |part: &String| {
            let word = part.trim_end_matches('s');
            words.contains(word) && (word != NOUN || name.starts_with(char::is_uppercase))
        };
        parts.len() <= WORDS_MAX && parts.iter().any(is_retired)
    };
    names.filter(has_word).map(str::to_owned).collect()
}

/// Splits a name in any case into its words, in lower case.
fn parts(name: &str) -> Vec<String> {
    let mut parts = vec![String::new()];
    let mut was_lower = false;
    for c in name.chars() {
        if c == '_' || c.is_uppercase() && was_lower {
            parts.push(String::new());
        }
        was_lower = c.is_lowercase();
        let last = parts.last_mut().expect("never empty");
        last.extend(c.to_lowercase().filter(|c| *c != '_'));
    }
    parts
}

#[test]
fn no_retired_word_is_in_a_name() {
    let words = retired();
    assert!(words.len() >= 10, "the glossary retires {words:?}");
    let mut wrong = Vec::new();
    let sources = CRATES.iter().flat_map(|(name, ..)| sources(name));
    let is_product =
        |source: &Source| !source.words().iter().any(|word| OF_TESTS.contains(&&**word));
    for source in sources.filter(is_product) {
        for line in source.code().lines() {
            let names = names_with(line, &words);
            wrong.extend(names.iter().map(|name| format!("{}: {name}", source.words().join("::"))));
        }
    }
    wrong.dedup();
    assert!(wrong.is_empty(), "see docs/glossary.md:\n{}", wrong.join("\n"));
}

#[test]
fn words_are_found_in_names_of_any_case() {
    let words = BTreeSet::from(["gate".to_owned()]);
    let line = r#"let open_gates = LeaseGate::new("a gate", '"', GATES_MAX, aggregate, gateway);"#;
    assert_eq!(names_with(line, &words), ["open_gates", "LeaseGate", "GATES_MAX"]);
}
