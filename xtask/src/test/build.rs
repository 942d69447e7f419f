//! The test programs of the workspace, as cargo builds them.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use serde_json::Value;

/// A test program.
#[derive(Clone, Debug)]
pub struct Program {
    /// Package and target, such as `tierce-cask/main`.
    pub name: String,
    pub executable: PathBuf,
    /// The folder of its package, where cargo runs it.
    pub dir: PathBuf,
}

/// Test programs that take longest, longest first. The others run next to them.
const LONGEST: [&str; 4] =
    ["tierce/program", "tierce-engine/main", "tierce-cask/main", "tierce-bucket/tierce_bucket"];

/// Builds the test programs of all targets, or of some, such as `--lib`. Returns those whose names contain one of
/// `only`, or all, the longest first.
pub fn programs(targets: &[&str], only: &[String]) -> Result<Vec<Program>, String> {
    let output = cargo()
        .args(["test", "--workspace", "--locked", "--no-run"])
        .args(targets)
        .arg("--message-format=json-render-diagnostics")
        .stderr(Stdio::inherit())
        .output()
        .map_err(|error| format!("cargo: {error}"))?;
    if !output.status.success() {
        return Err("the tests do not build".to_owned());
    }
    let text = String::from_utf8_lossy(&output.stdout);
    let mut programs: Vec<_> = text.lines().filter_map(program).collect();
    programs.retain(|it| only.is_empty() || only.iter().any(|part| it.name.contains(part)));
    programs.sort_by_key(|it| LONGEST.iter().position(|name| it.name == *name).unwrap_or(9));
    if programs.is_empty() { Err("no test program".to_owned()) } else { Ok(programs) }
}

/// Returns cargo without the variables that it has set for xtask itself. Build scripts that read these variables
/// would run again, and all their dependents would be compiled again.
pub fn cargo() -> Command {
    let mut cargo = Command::new("cargo");
    let of_package = |name: &str| {
        ["CARGO_PKG_", "CARGO_MANIFEST_"].iter().any(|prefix| name.starts_with(prefix))
    };
    for (name, _) in std::env::vars_os() {
        if name.to_str().is_some_and(of_package) {
            cargo.env_remove(name);
        }
    }
    cargo
}

/// Returns the test program that a line of cargo's output names.
fn program(line: &str) -> Option<Program> {
    let message: Value = serde_json::from_str(line).ok()?;
    if message["reason"] != "compiler-artifact" || message["profile"]["test"] != true {
        return None;
    }
    let manifest = PathBuf::from(message["manifest_path"].as_str()?);
    let dir = manifest.parent()?.to_owned();
    let id = message["package_id"].as_str()?;
    // `path+file:///folder/dash#tierce-dash@0.1.0`, or `path+file:///folder/xtask#0.1.0` if both names are equal.
    let package = id.rsplit('#').next()?.split_once('@').map(|(name, _)| name.to_owned());
    let package = package.or_else(|| Some(dir.file_name()?.to_str()?.to_owned()))?;
    let target = message["target"]["name"].as_str()?;
    let executable = PathBuf::from(message["executable"].as_str()?);
    Some(Program { name: format!("{package}/{target}"), executable, dir })
}
