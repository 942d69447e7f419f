//! The checks that fail most often, in under two minutes: formatting, lints, the unit tests of changed crates,
//! generated pages, layers, documents, suites and budgets of lines.

use std::collections::BTreeSet;
use std::process::Command;

use crate::test;

/// Branch to compare with. A crate has changed if a file in it differs from this branch or is not committed.
const BASE: &str = "origin/main";

/// Crates that are always tested: those with tests of generated pages, and the one with tests of the repository.
const ALWAYS: [&str; 3] = ["tierce-config/", "tierce-commands/", "xtask/"];

pub fn run() -> Result<(), String> {
    cargo(&["fmt", "--all", "--check"])?;
    cargo(&["clippy", "--workspace", "--all-targets", "--locked", "--", "-D", "warnings"])?;
    let packages = ALWAYS.iter().map(|name| (*name).to_owned()).chain(changed_packages()?);
    test::unit_tests(&packages.collect::<Vec<_>>())
}

fn cargo(args: &[&str]) -> Result<(), String> {
    println!("check: cargo {}", args.join(" "));
    let status = test::cargo().args(args).status().map_err(|e| format!("cargo: {e}"))?;
    if status.success() { Ok(()) } else { Err(format!("cargo {} failed", args[0])) }
}

/// Returns the packages of changed crates, as their test programs are named.
fn changed_packages() -> Result<BTreeSet<String>, String> {
    // A clone without that branch compares with its last commit.
    let base = git(&["merge-base", "HEAD", BASE]).unwrap_or_else(|_| "HEAD".to_owned());
    let changed = git(&["diff", "--name-only", base.trim()])?;
    let new = git(&["ls-files", "--others", "--exclude-standard"])?;
    let folder = |path: &str| path.strip_prefix("crates/")?.split('/').next().map(str::to_owned);
    let folders = changed.lines().chain(new.lines()).filter_map(folder);
    Ok(folders
        .map(|name| if name == "tierce" { "tierce/".into() } else { format!("tierce-{name}/") })
        .collect())
}

fn git(args: &[&str]) -> Result<String, String> {
    let output = Command::new("git").args(args).output().map_err(|e| format!("git: {e}"))?;
    if !output.status.success() {
        return Err(format!("git {}: {}", args[0], String::from_utf8_lossy(&output.stderr)));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
