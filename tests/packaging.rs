//! The files in `packaging` fit the program.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use tierce_harness::TempDir;

use crate::program;

fn packaged(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging").join(name)
}

/// Checks a configuration as a user would, and returns what the program says.
fn check_config(file: &Path) -> String {
    let output = Command::new(program()).arg("--check-config").arg(file).output().unwrap();
    let said = [output.stdout, output.stderr].concat();
    String::from_utf8(said).unwrap()
}

#[test]
fn the_example_of_a_configuration_is_valid() {
    assert_eq!(check_config(&packaged("tierce.conf")), "The configuration is valid.\n");
}

/// A user who removes the `#` in front of a directive gets what it says. Files that it names are the user's own.
#[test]
fn what_the_example_leaves_out_is_valid_as_well() {
    let example = fs::read_to_string(packaged("tierce.conf")).unwrap();
    let is_directive = |line: &&str| {
        line.strip_prefix("# ").is_some_and(|rest| {
            rest.split(' ').count() == 2 && !rest.contains("/etc/tierce") && !rest.ends_with('.')
        })
    };
    let left_out: Vec<&str> = example.lines().filter(is_directive).collect();
    assert!(left_out.len() >= 4, "{left_out:?}");
    let dir = TempDir::new();
    let all = left_out.iter().map(|line| format!("{}\n", &line[2..])).collect::<String>();
    let tls = "tls-port 6380\n";
    let file = dir.write("tierce.conf", &all.replace(tls, ""));
    assert_eq!(check_config(&file), "The configuration is valid.\n");
}

#[test]
fn the_unit_starts_the_program_with_directives_that_it_has() {
    let unit = fs::read_to_string(packaged("tierce.service")).unwrap();
    let exec = unit.lines().find_map(|line| line.strip_prefix("ExecStart=")).unwrap();
    let mut words = exec.split(' ');
    assert_eq!(words.next(), Some("/usr/local/bin/tierce"));
    assert_eq!(words.next(), Some("/etc/tierce/tierce.conf"));
    let mut command = Command::new(program());
    let output = command.args(words).args(["--check-config"]).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn the_container_sets_directives_that_there_are() {
    let file = fs::read_to_string(packaged("Containerfile")).unwrap();
    let line = file.lines().find(|line| line.starts_with("ENV ")).unwrap();
    let mut command = Command::new(program());
    for (name, value) in
        [("TIERCE_DIR", "/data"), ("TIERCE_BIND", "0.0.0.0 -::"), ("TIERCE_HTTP_PORT", "8379")]
    {
        assert!(line.contains(name) && line.contains(value), "{line}");
        command.env(name, value);
    }
    let output = command.arg("--check-config").output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(String::from_utf8(output.stderr).unwrap(), "");
}
