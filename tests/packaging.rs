//! The files in `packaging` fit the program.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use tierce_harness::TempDir;

use crate::program;

fn packaged(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging").join(name)
}

/// Checks a configuration like a user would, and returns the output.
fn check_config(file: &Path) -> String {
    let output = Command::new(program()).arg("--check-config").arg(file).output().unwrap();
    let said = [output.stdout, output.stderr].concat();
    String::from_utf8(said).unwrap()
}

#[test]
fn the_example_of_a_configuration_is_valid() {
    assert_eq!(check_config(&packaged("tierce.conf")), "The configuration is valid.\n");
}

/// If a user removes the `#` before a directive, its line is valid. Files that it names are the user's own.
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

/// Commands of `scripts/release` and `docs/installing.md` that make the additional files of the program.
#[test]
fn man_pages_and_completions_are_made_by_the_program() {
    let dir = TempDir::new();
    let made = Command::new(program()).args(["man", "--into"]).arg(dir.path()).output().unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    for (path, content) in [
        ("man1/tierce.1", ".SH SIGNALS"),
        ("man1/tierce-doctor.1", "tierce doctor /etc/tierce/tierce.conf"),
        ("man5/tierce.conf.5", "appendfsync"),
    ] {
        let text = fs::read_to_string(dir.path().join(path)).unwrap();
        assert!(text.contains(content), "{path}: {text}");
    }
    let page = Command::new(program()).args(["man", "check"]).output().unwrap();
    assert!(String::from_utf8_lossy(&page.stdout).contains("tierce\\-check"));
    let missing = Command::new(program()).args(["man", "nosuch"]).output().unwrap();
    assert_eq!(missing.status.code(), Some(1));
    for shell in ["bash", "zsh", "fish"] {
        let script = Command::new(program()).args(["completions", shell]).output().unwrap();
        let script = String::from_utf8(script.stdout).unwrap();
        for word in ["maxmemory-policy", "doctor", "--format"] {
            let word = if shell == "fish" { word.trim_start_matches("--") } else { word };
            assert!(script.contains(word), "{shell}: {word}");
        }
    }
}

#[test]
fn the_doctor_takes_what_the_server_takes() {
    let run = |args: &[&str]| {
        let output = Command::new(program()).arg("doctor").args(args).output().unwrap();
        let said = [output.stdout, output.stderr].concat();
        (output.status.code(), String::from_utf8(said).unwrap())
    };
    let dir = TempDir::new();
    let file =
        dir.write("a.conf", &format!("dir {}\nbind *\nprotected-mode no\n", dir.path().display()));
    let (code, said) = run(&[file.to_str().unwrap()]);
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("is open to other machines at * without a password"), "{said}");
    let (_, said) = run(&[file.to_str().unwrap(), "--requirepass", "secret"]);
    assert!(!said.contains("without a password"), "{said}");
    for (args, expected) in [
        (&["--prot", "1"][..], "did you mean --port?"),
        (&["/no/such.conf"], "cannot read /no/such.conf"),
        (&["--port", "many"], "port"),
    ] {
        let (code, said) = run(args);
        assert_eq!(code, Some(2), "{said}");
        assert!(said.starts_with("tierce doctor: ") && said.contains(expected), "{said}");
    }
}

/// The server continues, and its log is not touched.
#[test]
fn the_doctor_leaves_a_running_server_alone() {
    let dir = TempDir::new();
    let server = crate::launch()
        .with("dir", &dir.path().display().to_string())
        .with("appendonly", "yes")
        .start();
    server.connect().check("SET k v", "+OK");
    let doctor =
        || Command::new(program()).args(["doctor", "--dir"]).arg(dir.path()).output().unwrap();
    let said = String::from_utf8(doctor().stdout).unwrap();
    assert!(said.contains("a server uses the data directory"), "{said}");
    server.connect().check("GET k", "\"v\"");
    drop(server);
    let said = String::from_utf8(doctor().stdout).unwrap();
    assert!(said.contains("syncs a second"), "{said}");
}
