//! Checks that documents only name existing things: files and headings of links, paths in the text, and directives
//! that users should set. `scripts/guides` runs their commands, or the documents say why not.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// Folders of the repository whose paths the documents write in full.
const FOLDERS: [&str; 8] =
    ["crates/", "docs/", "scripts/", "tests/", "xtask/", "fuzz/", "peers/", ".ci/"];

/// Comment above a block whose commands are not run; it is invisible on a page.
const NOT_RUN: &str = "<!-- not run: ";

/// Options of `tierce` that are no directives.
const OPTIONS: [&str; 6] =
    ["-->", "--check-config", "--help", "--help-directives", "--version", "--databases"];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// Returns the documents of the repository: all `.md` files outside of build folders.
fn documents() -> Vec<PathBuf> {
    let mut folders = vec![root()];
    let mut found = Vec::new();
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            if path.is_dir() {
                if !["target", ".git", "corpus", "artifacts"].contains(&name.as_str()) {
                    folders.push(path);
                }
            } else if name.ends_with(".md") {
                found.push(path);
            }
        }
    }
    assert!(found.len() > 30, "only {} documents were found", found.len());
    found
}

/// Returns the targets of `[text](target)` in a document, without code blocks.
fn links(text: &str) -> Vec<&str> {
    let outside_of_code = text.split("```").step_by(2);
    outside_of_code
        .flat_map(|part| part.split("](").skip(1))
        .filter_map(|rest| rest.split_once(')').map(|(target, _)| target))
        .collect()
}

/// Returns the anchors of a document's headings, as GitHub makes them.
fn anchors(text: &str) -> BTreeSet<String> {
    let headings = text.lines().filter(|line| line.starts_with('#'));
    headings
        .map(|heading| {
            let title = heading.trim_start_matches('#').trim().to_lowercase();
            let kept = title.chars().filter(|c| c.is_alphanumeric() || " -_".contains(*c));
            kept.map(|c| if c == ' ' { '-' } else { c }).collect()
        })
        .collect()
}

/// Returns the fault of a link in the document at `path`, if there is one.
fn broken_link(path: &Path, target: &str) -> Option<String> {
    if target.contains("://") {
        return None;
    }
    let (file, anchor) = target.split_once('#').unwrap_or((target, ""));
    let file = if file.is_empty() { path.to_owned() } else { path.parent().unwrap().join(file) };
    if !file.exists() {
        return Some(format!("{}: a link to {target}, which does not exist", path.display()));
    }
    if anchor.is_empty() || anchors(&fs::read_to_string(&file).unwrap()).contains(anchor) {
        return None;
    }
    Some(format!("{}: a link to {target}, but there is no such heading", path.display()))
}

/// Returns the words between backquotes.
fn quoted(text: &str) -> impl Iterator<Item = &str> {
    text.split("```")
        .step_by(2)
        .flat_map(|part| part.lines())
        .flat_map(|line| line.split('`').skip(1).step_by(2))
}

#[test]
fn links_and_paths_exist() {
    let mut wrong = Vec::new();
    for path in documents() {
        let text = fs::read_to_string(&path).unwrap();
        wrong.extend(links(&text).into_iter().filter_map(|target| broken_link(&path, target)));
        let paths = quoted(&text)
            .filter(|word| FOLDERS.iter().any(|folder| word.starts_with(folder)))
            .filter(|word| !word.contains(['*', '<', ' ', '{', '…', '$']));
        for named in paths {
            if !root().join(named).exists() && !path.parent().unwrap().join(named).exists() {
                wrong.push(format!("{}: names {named}, which does not exist", path.display()));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Returns all directives, from the page that is generated from their table.
fn directives() -> BTreeSet<String> {
    let page = fs::read_to_string(root().join("docs/configuration.md")).unwrap();
    let rows = page.lines().filter_map(|line| line.strip_prefix("| `"));
    let names: BTreeSet<_> =
        rows.filter_map(|row| row.split_once('`')).map(|(name, _)| name.to_owned()).collect();
    assert!(names.contains("maxmemory"), "{names:?}");
    names
}

/// Returns the directives that a line tells the reader to set, by `CONFIG SET` or on the server's command line.
fn named_directives(line: &str) -> Vec<String> {
    let by_command = line.split("CONFIG SET ").skip(1).filter_map(|rest| {
        let name: String = rest
            .chars()
            .take_while(|c| c.is_ascii_lowercase() || "-0123456789".contains(*c))
            .collect();
        // The page of commands has the placeholder of the command's syntax, the page of errors has error messages.
        let is_name = name.starts_with(|c: char| c.is_ascii_lowercase());
        (is_name && !["parameter", "failed"].contains(&&*name)).then_some(name)
    });
    let mut names: Vec<_> = by_command.collect();
    // In `-p tierce --test` it is cargo's option, and a tool of the program has its own options.
    for call in line.replace("-p tierce ", "").split("tierce ").skip(1) {
        if !call.starts_with(['-', '/']) {
            continue;
        }
        let call = call.split(['\'', '#', '`', ')']).next().unwrap();
        let options = call.split_whitespace().filter(|word| word.starts_with("--"));
        names.extend(
            options.filter(|option| !OPTIONS.contains(option)).map(|option| option[2..].to_owned()),
        );
    }
    names
}

#[test]
fn directives_exist() {
    let known = directives();
    let mut wrong = Vec::new();
    let mut seen = 0;
    for path in documents() {
        let text = fs::read_to_string(&path).unwrap();
        // An error in an example quotes the call.
        for line in text.lines().filter(|line| !line.starts_with("(error) ")) {
            for name in named_directives(line) {
                seen += 1;
                if !known.contains(&name) {
                    wrong.push(format!("{}: names the directive {name}", path.display()));
                }
            }
        }
    }
    assert!(seen > 10, "only {seen} directives were found in the documents");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Returns the first line of each block behind the fence, and the reason why it is not run: the comment above it.
fn kinds_of_blocks(text: &str) -> Vec<(&str, Option<&str>)> {
    let lines: Vec<&str> = std::iter::once("").chain(text.lines().map(str::trim_start)).collect();
    let fences = lines.windows(2).filter_map(|pair| {
        let reason = pair[0].strip_prefix(NOT_RUN).and_then(|rest| rest.strip_suffix(" -->"));
        Some((pair[1].strip_prefix("```")?, reason))
    });
    fences.step_by(2).collect()
}

/// Returns the fault of a block, if there is one. Its commands have to be run, or there is a reason of a few words
/// that only names existing things.
fn commands_without_a_check(kind: &str, reason: Option<&str>) -> Option<String> {
    if kind.starts_with("sh ") || ["bash", "shell"].contains(&kind) {
        return Some(format!("`{kind}` is not `sh`"));
    }
    let reason = reason?;
    if reason.split(' ').count() < 2 {
        return Some(format!("`{NOT_RUN}{reason}` has no reason"));
    }
    let mut named = reason.split([' ', ';', ',']);
    let lost = named.find(|word| {
        FOLDERS.iter().any(|folder| word.starts_with(folder)) && !root().join(word).exists()
    });
    lost.map(|word| format!("`{NOT_RUN}{reason}` names {word}, which does not exist"))
}

#[test]
fn commands_of_readme_and_docs_are_run_or_say_why_not() {
    let suites = fs::read_to_string(root().join("scripts/suites.tsv")).unwrap();
    let is_run = |line: &str| line.starts_with("always\t") && line.contains("\tscripts/guides\t");
    assert!(suites.lines().any(is_run), "CI runs the commands");
    let (docs, readme) = (root().join("docs"), root().join("README.md"));
    let (mut run, mut wrong) = (0, Vec::new());
    for path in documents().into_iter().filter(|path| path.starts_with(&docs) || *path == readme) {
        let text = fs::read_to_string(&path).unwrap();
        for (kind, reason) in kinds_of_blocks(&text) {
            run += usize::from(kind == "sh" && reason.is_none());
            let problem = commands_without_a_check(kind, reason);
            wrong.extend(problem.map(|problem| format!("{}: {problem}", path.display())));
        }
    }
    assert!(run > 30, "only {run} blocks are run");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn the_contents_of_docs_name_every_page() {
    let contents = fs::read_to_string(root().join("docs/README.md")).unwrap();
    let named: BTreeSet<&str> = links(&contents).into_iter().collect();
    let docs = root().join("docs");
    let pages = ["", "guides"].map(|folder| fs::read_dir(docs.join(folder)).unwrap());
    let pages = pages.into_iter().flatten().map(|entry| entry.unwrap().path());
    let pages = pages.filter(|path| path.extension().is_some_and(|end| end == "md"));
    let lost: Vec<_> = pages
        .map(|path| path.strip_prefix(&docs).unwrap().display().to_string())
        .filter(|page| page != "README.md" && !named.contains(&**page))
        .collect();
    assert!(lost.is_empty(), "docs/README.md does not link to {lost:?}");
}

#[test]
fn what_does_not_exist_is_found() {
    let here = root().join("README.md");
    assert_eq!(links("see [this](a.md) ```[no](b.md)``` and [that](c.md#d)"), ["a.md", "c.md#d"]);
    assert!(broken_link(&here, "docs/nowhere.md").is_some());
    assert!(broken_link(&here, "ARCHITECTURE.md#no-such-heading").is_some());
    assert_eq!(broken_link(&here, "ARCHITECTURE.md"), None);
    assert_eq!(named_directives("`CONFIG SET maxmemry 1`"), ["maxmemry"]);
    assert_eq!(named_directives("tierce --prt 7 # --not-this"), ["prt"]);
    assert!(named_directives("tierce bench --rounds 3").is_empty());
    let blocks = "<!-- not run: takes hours -->\n```sh\nls\n```\n\n   ```text\n   ```\n";
    assert_eq!(kinds_of_blocks(blocks), [("sh", Some("takes hours")), ("text", None)]);
    assert_eq!(commands_without_a_check("sh", None), None);
    assert_eq!(commands_without_a_check("sh", Some("measures for minutes")), None);
    for wrong in ["bash", "sh ignore"] {
        assert!(commands_without_a_check(wrong, None).is_some(), "{wrong}");
    }
    for reason in ["later", "see tests/nowhere.rs"] {
        assert!(commands_without_a_check("sh", Some(reason)).is_some(), "{reason}");
    }
}
