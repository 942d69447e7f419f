//! Product lines by crate, and their budgets in `scripts/lines.tsv`.
//!
//! A line counts if it is in a crate's `src`, is not blank, and does not belong to a unit test or simulation. A test
//! fails if a crate exceeds its budget. A budget is raised in its own commit, with a reason.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

const BUDGETS: &str = "scripts/lines.tsv";

/// Folders and files that only tests use.
const OF_TESTS: [&str; 3] = ["tests", "simulation", "testing"];

/// Prints the lines of each crate next to its budget.
pub fn print() -> Result<(), String> {
    let (lines, budgets) = (count(&root()), budgets(&root())?);
    println!("crate\tlines\tbudget");
    for (name, count) in &lines {
        println!("{name}\t{count}\t{}", budgets.get(name).copied().unwrap_or_default());
    }
    println!("all\t{}\t{}", lines.values().sum::<usize>(), budgets.values().sum::<usize>());
    faults(&lines, &budgets)
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// Returns product lines by crate.
fn count(root: &Path) -> BTreeMap<String, usize> {
    let crates = fs::read_dir(root.join("crates")).expect("the crates");
    let crates = crates.map(|entry| entry.expect("an entry").path());
    crates.map(|dir| (name_of(&dir), count_in(&dir.join("src")))).collect()
}

fn name_of(path: &Path) -> String {
    path.file_stem().expect("a name").to_string_lossy().into_owned()
}

fn count_in(dir: &Path) -> usize {
    let paths = fs::read_dir(dir).expect("a folder").map(|entry| entry.expect("an entry").path());
    let product = paths.filter(|path| !OF_TESTS.contains(&&*name_of(path)));
    let lines = product.map(|path| match path.extension() {
        _ if path.is_dir() => count_in(&path),
        Some(kind) if kind == "rs" => product_lines(&fs::read_to_string(&path).expect("a file")),
        _ => 0,
    });
    lines.sum()
}

/// Returns the number of lines that are not blank, before the file's unit tests, which are last.
fn product_lines(text: &str) -> usize {
    let lines: Vec<_> = text.lines().collect();
    let starts_tests = |pair: &[&str]| {
        pair[0].starts_with("#[cfg(")
            && pair[0].contains("test")
            && pair[1].starts_with("mod ")
            && pair[1].ends_with('{')
    };
    let end = lines.windows(2).position(starts_tests).unwrap_or(lines.len());
    lines[..end].iter().filter(|line| !line.trim().is_empty()).count()
}

/// Reads the budgets. A line has the name of a crate, a tab, and its maximum number of lines.
fn budgets(root: &Path) -> Result<BTreeMap<String, usize>, String> {
    let text = fs::read_to_string(root.join(BUDGETS)).map_err(|e| format!("{BUDGETS}: {e}"))?;
    let rows = text.lines().filter(|line| !line.starts_with('#'));
    let parse = |line: &str| {
        let (name, lines) = line.split_once('\t')?;
        Some((name.to_owned(), lines.parse().ok()?))
    };
    rows.map(|line| parse(line).ok_or_else(|| format!("{BUDGETS}: {line}"))).collect()
}

/// Returns crates that exceed their budgets, or have none.
fn faults(
    lines: &BTreeMap<String, usize>,
    budgets: &BTreeMap<String, usize>,
) -> Result<(), String> {
    let over =
        lines.iter().filter(|(name, count)| budgets.get(*name).is_none_or(|max| *count > max));
    let over: Vec<_> = over.map(|(name, count)| format!("{name}: {count} lines")).collect();
    if over.is_empty() {
        return Ok(());
    }
    Err(format!("more lines than {BUDGETS} has for these crates:\n{}", over.join("\n")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_crate_keeps_to_its_budget() {
        let (lines, budgets) = (count(&root()), budgets(&root()).expect("the budgets"));
        assert!(lines.values().sum::<usize>() > 100_000, "the sources are elsewhere: {lines:?}");
        faults(&lines, &budgets).expect("within the budgets");
        let gone: Vec<_> = budgets.keys().filter(|name| !lines.contains_key(*name)).collect();
        assert!(gone.is_empty(), "no such crates: {gone:?}");
    }

    #[test]
    fn unit_tests_and_blank_lines_do_not_count() {
        let text = "//! Head.\n\nfn f() {}\n#[cfg(test)]\nuse x;\n\n#[cfg(test)]\nmod tests {\n}\n";
        assert_eq!(product_lines(text), 4);
    }

    #[test]
    fn a_crate_past_its_budget_is_named() {
        let table = |rows: &[(&str, usize)]| {
            rows.iter().map(|(name, n)| ((*name).to_owned(), *n)).collect()
        };
        let budgets = table(&[("dash", 100), ("cask", 100)]);
        faults(&table(&[("dash", 100)]), &budgets).expect("not past it");
        let said = faults(&table(&[("cask", 101), ("new", 1)]), &budgets).expect_err("past it");
        assert!(said.contains("cask: 101 lines") && said.contains("new: 1 lines"), "{said}");
    }
}
