//! Third-party crates of the program: their licences, their sources, and that each has one version.
//! `docs/dependencies.md` has to give a reason for each that a manifest names. For C sources it has to name the
//! publication of vulnerabilities, and when somebody last read it.
//!
//! Dependencies of other platforms are left out of the licences and versions: they are never built, and not available
//! without a network. The sources are those of the lock files, which list all dependencies.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;
use tierce_harness::TempDir;

/// Permitted licences, by their SPDX names. All of them allow using, changing and redistributing the program. At most
/// they require that their text goes with it.
const LICENCES: [&str; 8] =
    ["Apache-2.0", "BSD-3-Clause", "BSL-1.0", "ISC", "MIT", "Unicode-3.0", "Unlicense", "Zlib"];

/// The only permitted registry.
const REGISTRY: &str = "registry+https://github.com/rust-lang/crates.io-index";

/// Crates with several versions, and the reason why that is tolerated.
const SEVERAL_VERSIONS: [(&str, &[&str], &str); 10] = [
    (
        "block-buffer",
        &["0.10.4", "0.12.1"],
        "pkcs8 is of the generation before; object_store's md-5 of the next",
    ),
    (
        "cpufeatures",
        &["0.2.17", "0.3.1"],
        "pkcs8 is of the generation before; proptest's rand of the next",
    ),
    (
        "crypto-common",
        &["0.1.7", "0.2.2"],
        "pkcs8 is of the generation before; object_store's md-5 of the next",
    ),
    (
        "digest",
        &["0.10.7", "0.11.3"],
        "pkcs8 is of the generation before; object_store's md-5 of the next",
    ),
    (
        "getrandom",
        &["0.2.17", "0.4.3"],
        "ring keeps the interface of 0.2; proptest's rand has the new one",
    ),
    (
        "lock_api",
        &["0.4.14", "0.5.0"],
        "prometheus and object_store still have the parking_lot before",
    ),
    (
        "parking_lot",
        &["0.12.5", "0.13.0"],
        "prometheus and object_store still have the parking_lot before",
    ),
    (
        "parking_lot_core",
        &["0.9.12", "0.10.0"],
        "prometheus and object_store still have the parking_lot before",
    ),
    (
        "rand_core",
        &["0.6.4", "0.10.1"],
        "pkcs8 names it in its interface; proptest's rand has the new one",
    ),
    (
        "syn",
        &["2.0.119", "3.0.9"],
        "macros that run while building: some have taken the new parser, some not yet",
    ),
];

/// Number of months after which the publications about C sources have to be read again.
const READING_MONTHS_MAX: u64 = 6;

/// Lock files of the repository: of the workspace, and of the programs built outside of it.
const LOCK_FILES: [&str; 5] = [
    "Cargo.lock",
    "fuzz/Cargo.lock",
    "peers/Cargo.lock",
    "peers/clients/Cargo.lock",
    "peers/pingpong/Cargo.lock",
];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").canonicalize().expect("the workspace")
}

/// Returns all packages of the workspace and their dependencies on this platform, as cargo describes them.
fn packages() -> Vec<Value> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let platform = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
    let output = Command::new(cargo)
        .args([
            "metadata",
            "--format-version",
            "1",
            "--locked",
            "--offline",
            "--filter-platform",
            &platform,
        ])
        .current_dir(root())
        .output()
        .expect("cargo");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let mut metadata: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let Value::Array(packages) = metadata["packages"].take() else { panic!("no packages") };
    assert!(packages.len() > 50, "only {} packages were found", packages.len());
    packages
}

/// Returns the crates of the program, with or without the features that are on by default.
fn built_from(features: &[&str]) -> BTreeSet<String> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .args(["tree", "--locked", "--offline", "--package", "tierce", "--edges", "no-dev"])
        .args(["--prefix", "none", "--format", "{p}"])
        .args(features)
        .current_dir(root())
        .output()
        .expect("cargo");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let tree = String::from_utf8(output.stdout).expect("text");
    tree.lines().filter_map(|line| line.split(' ').next()).map(str::to_owned).collect()
}

fn text<'a>(package: &'a Value, field: &str) -> &'a str {
    package[field].as_str().unwrap_or_default()
}

/// Returns true if a licence in SPDX notation leaves a choice that [`LICENCES`] allows. A slash is an old `OR`, and
/// an exception only removes conditions.
fn is_allowed(licence: &str) -> bool {
    let spaced = licence.replace('/', " OR ").replace('(', " ( ").replace(')', " ) ");
    let words: Vec<&str> = spaced.split_whitespace().collect();
    let mut rest = words.as_slice();
    choice(&mut rest) && rest.is_empty()
}

/// Parses one or more conjunctions with `OR` between them.
fn choice(rest: &mut &[&str]) -> bool {
    let mut allowed = conjunction(rest);
    while let ["OR", after @ ..] = rest {
        *rest = after;
        allowed |= conjunction(rest);
    }
    allowed
}

/// Parses one or more licences with `AND` between them.
fn conjunction(rest: &mut &[&str]) -> bool {
    let mut allowed = licence(rest);
    while let ["AND", after @ ..] = rest {
        *rest = after;
        allowed &= licence(rest);
    }
    allowed
}

/// Parses a licence, perhaps with an exception, or a choice in parentheses.
fn licence(rest: &mut &[&str]) -> bool {
    match *rest {
        ["(", after @ ..] => {
            *rest = after;
            let allowed = choice(rest);
            let closed = rest.first() == Some(&")");
            *rest = rest.get(1..).unwrap_or_default();
            allowed && closed
        }
        [name, "WITH", _, after @ ..] | [name, after @ ..] => {
            *rest = after;
            LICENCES.contains(name)
        }
        [] => false,
    }
}

/// Returns the third-party crates that manifests name, each with the workspace crates that use it, formatted as on
/// the page. Crates that only use it in tests are in parentheses.
fn direct(packages: &[Value]) -> BTreeMap<String, String> {
    let mut users: BTreeMap<String, BTreeMap<String, bool>> = BTreeMap::new();
    for package in packages.iter().filter(|package| package["source"].is_null()) {
        let user = text(package, "name").trim_start_matches("tierce-");
        let others = package["dependencies"].as_array().expect("a list");
        for other in others.iter().filter(|other| other["path"].is_null()) {
            let of_tests = users.entry(text(other, "name").to_owned()).or_default();
            *of_tests.entry(user.to_owned()).or_insert(true) &= text(other, "kind") == "dev";
        }
    }
    let row = |users: BTreeMap<String, bool>| {
        let names = users
            .iter()
            .map(|(name, tests)| if *tests { format!("({name})") } else { name.clone() });
        names.collect::<Vec<_>>().join(", ")
    };
    users.into_iter().map(|(name, users)| (name, row(users))).collect()
}

/// Heading of the last table.
const C_SOURCES: &str = "\n## C sources\n";

/// Returns the rows of the page about C: a crate, its version, and the month of the last reading, from 1970.
fn c_sources() -> BTreeMap<String, (String, u64)> {
    let page = fs::read_to_string(root().join("docs/dependencies.md")).expect("the page");
    let (_, page) = page.split_once(C_SOURCES).expect("a chapter about C");
    let rows = page.lines().filter_map(|line| line.strip_prefix("| `")?.strip_suffix(" |"));
    rows.map(|row| {
        let [name, version, _, _, read] = row.split(" | ").collect::<Vec<_>>()[..] else {
            panic!("five cells, not {row:?}");
        };
        let (year, month) = read.split_once('-').expect("a year and a month");
        let month =
            year.parse::<u64>().expect("a year") * 12 + month.parse::<u64>().expect("a month") - 1;
        (name.trim_end_matches('`').to_owned(), (version.to_owned(), month - 1970 * 12))
    })
    .collect()
}

/// Returns the month of the last commit in a folder as a number since 1970, or `None` without the history. The clock
/// is not used, so that a tree that has passed once always passes.
fn month_of_commit(root: &Path) -> Option<u64> {
    // In a worktree this is a file.
    if !root.join(".git").exists() {
        return None;
    }
    let mut git = Command::new("git");
    git.current_dir(root).args(["log", "-1", "--format=%ct"]);
    let output = git.output().expect("git, which tells the month of the last commit");
    assert!(output.status.success(), "git: {}", String::from_utf8_lossy(&output.stderr));
    let seconds = String::from_utf8(output.stdout).expect("text");
    // Months of 30.44 days.
    Some(seconds.trim().parse::<u64>().expect("seconds") / 2_629_746)
}

/// Returns the rows of the page: a crate, its users, and the reason.
fn page() -> BTreeMap<String, (String, String)> {
    let page = fs::read_to_string(root().join("docs/dependencies.md")).expect("the page");
    let (page, _) = page.split_once(C_SOURCES).expect("a chapter about C");
    let rows = page.lines().filter_map(|line| line.strip_prefix("| `")?.strip_suffix(" |"));
    let cells = rows.map(|row| row.split(" | ").collect::<Vec<_>>());
    cells
        .map(|cells| {
            let [name, users, reason] = cells[..] else { panic!("three cells, not {cells:?}") };
            (name.trim_end_matches('`').to_owned(), (users.to_owned(), reason.to_owned()))
        })
        .collect()
}

#[test]
fn publications_about_c_sources_are_read_for_each_version_and_twice_a_year() {
    let built = built_from(&[]);
    let is_compiler = |other: &Value| text(other, "name") == "cc" && other["optional"] == false;
    let has_c = |package: &&Value| {
        let needs = package["dependencies"].as_array().expect("a list");
        built.contains(text(package, "name")) && needs.iter().any(is_compiler)
    };
    let packages = packages();
    let found = packages
        .iter()
        .filter(has_c)
        .map(|package| (text(package, "name"), text(package, "version")));
    let rows = c_sources();
    let told = rows.iter().map(|(name, (version, _))| (name.as_str(), version.as_str()));
    assert_eq!(
        found.collect::<BTreeMap<_, _>>(),
        told.collect(),
        "found on the left, in the page on the right"
    );
    let Some(this_month) = month_of_commit(&root()) else { return };
    for (name, (_, read)) in &rows {
        let is_fresh = this_month <= read + READING_MONTHS_MAX;
        assert!(
            is_fresh,
            "{name}: read its publications again, and write the month into docs/dependencies.md"
        );
    }
}

#[test]
fn only_a_folder_without_history_has_no_month() {
    let dir = TempDir::new();
    assert_eq!(month_of_commit(dir.path()), None);
    // Git refuses this, as it refuses another user's folder.
    dir.write(".git", "not a folder");
    let said = std::panic::catch_unwind(|| month_of_commit(dir.path())).expect_err("a failure");
    let said = said.downcast_ref::<String>().expect("a text");
    assert!(said.contains("git: fatal:"), "{said}");
}

#[test]
fn licences_let_the_program_be_passed_on() {
    let packages = packages();
    let refused = packages.iter().filter(|package| !is_allowed(text(package, "license")));
    let refused: Vec<_> = refused
        .map(|package| format!("{}: {}", text(package, "name"), package["license"]))
        .collect();
    assert_eq!(refused, [""; 0], "licences that LICENCES does not allow");
}

#[test]
fn a_licence_is_read_as_it_is_meant() {
    for allowed in [
        "MIT",
        "GPL-3.0 OR MIT",
        "MIT/Apache-2.0",
        "Apache-2.0 WITH LLVM-exception",
        "(MIT OR X) AND ISC",
    ] {
        assert!(is_allowed(allowed), "{allowed}");
    }
    for refused in
        ["", "GPL-3.0", "MIT AND GPL-3.0", "MIT (", "(MIT", "MIT ISC", "(GPL-3.0 OR X) AND MIT"]
    {
        assert!(!is_allowed(refused), "{refused}");
    }
}

#[test]
fn there_is_one_version_of_each_crate() {
    let packages = packages();
    let mut versions: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for package in &packages {
        versions.entry(text(package, "name")).or_default().insert(text(package, "version"));
    }
    versions.retain(|_, versions| versions.len() > 1);
    let tolerated =
        SEVERAL_VERSIONS.map(|(name, versions, _)| (name, versions.iter().copied().collect()));
    assert_eq!(
        versions,
        BTreeMap::from(tolerated),
        "found on the left, in SEVERAL_VERSIONS on the right"
    );
}

#[test]
fn crates_come_from_the_registry_or_the_workspace() {
    for package in packages().iter().filter(|package| package["source"].is_null()) {
        let manifest = Path::new(text(package, "manifest_path"));
        assert!(manifest.starts_with(root()), "{} is outside of the workspace", manifest.display());
    }
    for file in LOCK_FILES {
        let lock = fs::read_to_string(root().join(file)).expect("a lock file");
        let packages: Vec<&str> = lock.split("[[package]]").skip(1).collect();
        assert!(packages.len() > 5, "{file} has only {} packages", packages.len());
        for package in packages {
            let line = |name: &str| {
                let value =
                    package.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(" = "));
                value.map(|value| value.trim_matches('"'))
            };
            let name = line("name").expect("a name");
            // A package without a source is a path, which no registry vouches for. Its name shows that it is ours.
            let Some(source) = line("source") else {
                assert!(is_ours(name), "{file}: {name} is from a path");
                continue;
            };
            assert_eq!(source, REGISTRY, "{file}: {name}");
            assert!(
                line("checksum").is_some_and(|sum| sum.len() == 64),
                "{file}: {name} has no checksum"
            );
        }
    }
}

fn is_ours(package: &str) -> bool {
    package.starts_with("tierce") || package == "xtask"
}

#[test]
fn the_page_has_a_reason_for_each_direct_dependency() {
    let page = page();
    let told: BTreeMap<_, _> =
        page.iter().map(|(name, (users, _))| (name.clone(), users.clone())).collect();
    let direct = direct(&packages());
    let mut wrong = String::new();
    for name in told.keys().chain(direct.keys()).collect::<BTreeSet<_>>() {
        if told.get(name) != direct.get(name) {
            let _ = writeln!(
                wrong,
                "{name}: {:?} in the page, {:?} by the manifests",
                told.get(name),
                direct.get(name)
            );
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
    for (name, (_, reason)) in &page {
        assert!(reason.len() > 20, "{name} needs a reason, not {reason:?}");
    }
}

#[test]
fn the_workspace_names_no_dependency_that_no_crate_uses() {
    let manifest = fs::read_to_string(root().join("Cargo.toml")).expect("the manifest");
    let (_, rest) = manifest.split_once("[workspace.dependencies]\n").expect("the table");
    let table = rest.split("\n[").next().expect("a table");
    let named = table.lines().filter_map(|line| line.split_once(" = ").map(|(name, _)| name));
    let direct = direct(&packages());
    let unused: Vec<_> =
        named.filter(|name| !is_ours(name) && !direct.contains_key(*name)).collect();
    assert_eq!(unused, [""; 0]);
}

#[test]
fn a_program_without_the_bucket_has_none_of_its_crates() {
    let (with, without) = (built_from(&[]), built_from(&["--no-default-features"]));
    let clients = [
        "tierce-bucket",
        "object_store",
        "reqwest",
        "hyper-rustls",
        "h2",
        "quick-xml",
        "zstd-sys",
        "url",
    ];
    for client in clients {
        assert!(with.contains(client), "{client} is not needed any more");
        assert!(!without.contains(client), "{client} is built without the bucket");
    }
    // The build without the feature has no crates of its own, so the feature is no part of the server.
    assert!(without.is_subset(&with));
    let manifest = fs::read_to_string(root().join("crates/bucket/Cargo.toml")).expect("a manifest");
    let (_, needs) = manifest.split_once("[dependencies]\n").expect("the table");
    let needs = needs.split("\n[").next().expect("a table").lines();
    let needs = needs.filter_map(|line| line.split([' ', '.', '=']).next());
    let needs: BTreeSet<_> =
        needs.filter(|name| !name.is_empty() && !name.starts_with('#')).collect();
    assert!(needs.len() > 5, "{needs:?}");
    let shared: Vec<_> = needs.into_iter().filter(|name| without.contains(*name)).collect();
    let server =
        ["bytes", "crc32c", "futures-util", "ring", "rustix", "rustls", "thiserror", "tokio"];
    assert_eq!(shared, server, "what the bucket needs and the server has without it");
}
