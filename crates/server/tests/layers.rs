//! What stands on what: between the crates, by their `Cargo.toml`, and between the modules of the server,
//! by what their code names.
//!
//! Modules are listed from the lowest to the highest, and each may use those before it. So there are no
//! circles among them, but for [`UPWARD`]: what is left to be untied, which may only become less.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// The crates, each with those that it may use.
const CRATES: &[(&str, &[&str])] = &[
    ("dash", &[]),
    ("cask", &[]),
    ("wire", &[]),
    ("net", &[]),
    ("rdb", &[]),
    ("collections", &["dash"]),
    ("client", &["wire"]),
    ("keyspace", &["cask", "collections", "dash"]),
    ("server", &["cask", "collections", "keyspace", "net", "rdb", "wire"]),
    ("bench", &["cask", "client", "wire"]),
    ("tierce", &["bench", "cask", "server"]),
];

/// The modules of the server, from the lowest to the highest.
#[rustfmt::skip]
const MODULES: &[&str] = &[
    // What needs nothing.
    "clock", "random", "process", "test_dir",
    // Settings, and what is told to the operator.
    "config", "log", "latency", "listening", "compactness", "supervision", "secrets", "slowlog",
    // The store, without sessions and protocols.
    "memory", "eviction", "durability", "persistence", "spill", "engine", "inspection",
    // Commands, and what they need of a connection.
    "error", "reply", "command", "stats", "clients", "fetch", "waiting", "blocking", "message",
    "acknowledge", "session", "transaction", "execute", "commands",
    // The server: protocols, start and end.
    "server", "meter", "foreign", "memcached", "pedrokv", "plan", "gates", "batch", "service",
    "transfer", "start", "fuzzing", "lib",
];

/// Modules that use one above them: what is known, and is to go. Nothing is added here.
const UPWARD: &[(&str, &str)] = &[
    ("acknowledge", "server"),
    ("acknowledge", "service"),
    ("blocking", "execute"),
    ("blocking", "message"),
    ("blocking", "server"),
    ("blocking", "service"),
    ("blocking", "session"),
    ("command", "execute"),
    ("commands", "server"),
    ("execute", "server"),
    ("fetch", "server"),
    ("server", "memcached"),
    ("waiting", "service"),
];

/// A file of the server, by its path inside of `src`, and its text.
struct Source {
    path: String,
    text: String,
}

/// An arrow between modules, and a file that has it.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Arrow {
    from: String,
    to: String,
    file: String,
}

impl Source {
    fn new(path: &str, text: &str) -> Self {
        Self { path: path.to_owned(), text: text.to_owned() }
    }

    fn module(&self) -> &str {
        let name = self.path.split('/').next().unwrap_or_default();
        name.strip_suffix(".rs").unwrap_or(name)
    }

    /// The code without comments and unit tests, which may use what they like.
    fn code(&self) -> String {
        let is_code = |line: &&str| !line.trim_start().starts_with("//");
        let code: Vec<_> = self.text.lines().filter(is_code).collect();
        let code = code.join("\n");
        let end = code.find("\n#[cfg(test)]\nmod tests {").unwrap_or(code.len());
        code[..end].to_owned()
    }

    /// The modules that it names: `crate::name`, or `crate::{name, name::of}`.
    fn uses(&self) -> BTreeSet<String> {
        let code = self.code();
        // In the file of a module of the crate itself, the module above is the crate.
        let is_top = !self.path.contains('/') || self.path == format!("{}/mod.rs", self.module());
        let code = if is_top { code.replace("super::", "crate::") } else { code };
        let mut names = BTreeSet::new();
        for (at, _) in code.match_indices("crate::") {
            let rest = &code[at + "crate::".len()..];
            match rest.strip_prefix('{') {
                Some(list) => names.extend(first_words(list)),
                None => names.extend(word(rest)),
            }
        }
        names.remove(self.module());
        names
    }
}

/// The first words of the members of a list up to its closing brace.
fn first_words(list: &str) -> Vec<String> {
    let (mut depth, mut starts, mut words) = (0, true, Vec::new());
    for (at, c) in list.char_indices() {
        match c {
            '{' => depth += 1,
            '}' if depth == 0 => break,
            '}' => depth -= 1,
            ',' if depth == 0 => starts = true,
            c if depth == 0 && starts && !c.is_whitespace() => {
                words.extend(word(&list[at..]));
                starts = false;
            }
            _ => {}
        }
    }
    words
}

fn word(text: &str) -> Option<String> {
    let len = text.find(|c: char| c != '_' && !c.is_ascii_alphanumeric()).unwrap_or(text.len());
    Some(text[..len].to_owned()).filter(|word| !word.is_empty())
}

fn place(module: &str) -> Option<usize> {
    MODULES.iter().position(|name| *name == module)
}

/// Uses of modules above those that use them. What is no module, such as a constant, counts for nothing.
fn upward(sources: &[Source]) -> BTreeSet<Arrow> {
    let mut arrows = BTreeSet::new();
    for source in sources {
        let from = source.module();
        for to in source.uses() {
            if place(&to).is_some_and(|to| Some(to) > place(from)) {
                arrows.insert(Arrow { from: from.to_owned(), to, file: source.path.clone() });
            }
        }
    }
    arrows
}

/// What is wrong between modules, a sentence for each.
fn faults(sources: &[Source], known: &[(&str, &str)]) -> Vec<String> {
    let mut faults = Vec::new();
    for source in sources {
        let module = source.module();
        if place(module).is_none() {
            faults.push(format!("{}: `{module}` has no place in MODULES yet", source.path));
        }
    }
    let arrows = upward(sources);
    for Arrow { from, to, file } in &arrows {
        if !known.contains(&(from, to)) {
            faults.push(format!("{file}: `{from}` uses `{to}`, which is above it"));
        }
    }
    for (from, to) in known {
        if !arrows.iter().any(|arrow| arrow.from == *from && arrow.to == *to) {
            faults.push(format!("`{from}` does not use `{to}` any more: take it off UPWARD"));
        }
    }
    faults
}

/// What is wrong with the dependencies of a crate; those of its tests may be any.
fn crate_faults(name: &str, manifest: &str) -> Vec<String> {
    let Some((_, allowed)) = CRATES.iter().find(|(of, _)| *of == name) else {
        return vec![format!("crates/{name}: it has no place in CRATES yet")];
    };
    let mut is_dependency = false;
    let mut faults = Vec::new();
    for line in manifest.lines() {
        if line.starts_with('[') {
            is_dependency = line == "[dependencies]" || line.ends_with(".dependencies]");
        }
        let used = word(line.strip_prefix("tierce-").unwrap_or_default());
        if let Some(used) = used.filter(|used| is_dependency && !allowed.contains(&&**used)) {
            faults.push(format!("crates/{name}/Cargo.toml: `{name}` must not use `{used}`"));
        }
    }
    faults
}

fn sources() -> Vec<Source> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let (mut dirs, mut sources) = (vec![root.clone()], Vec::new());
    while let Some(dir) = dirs.pop() {
        for path in entries(&dir) {
            // Unit tests in files of their own may use what they like, too.
            if path.file_stem().is_some_and(|name| name == "tests") {
                continue;
            }
            if path.is_dir() {
                dirs.push(path);
            } else if path.extension().is_some_and(|kind| kind == "rs") {
                let name = path.strip_prefix(&root).expect("inside").display().to_string();
                sources.push(Source::new(&name, &fs::read_to_string(&path).expect("a file")));
            }
        }
    }
    sources
}

fn entries(dir: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(dir).expect("a directory");
    entries.map(|entry| entry.expect("an entry").path()).collect()
}

#[test]
fn modules_use_those_below_them() {
    let sources = sources();
    assert!(sources.len() > 100, "the sources are elsewhere");
    let faults = faults(&sources, UPWARD);
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

#[test]
fn crates_use_those_below_them() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut faults = Vec::new();
    for path in entries(&crates) {
        let name = path.file_name().expect("a name").to_string_lossy().into_owned();
        let manifest = fs::read_to_string(path.join("Cargo.toml")).expect("a manifest");
        faults.extend(crate_faults(&name, &manifest));
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

#[test]
fn what_points_upward_is_found() {
    let planted = [
        Source::new("spill/spiller.rs", "use std::fmt;\nuse crate::server::Server;\n"),
        Source::new(
            "log.rs",
            "use crate::{\n    clock, config::{LogLevel, table},\n    engine,\n};\n",
        ),
        Source::new("config/mod.rs", "type Policy = super::durability::Policy;"),
        Source::new(
            "engine/mod.rs",
            "fn f() {}\n// use crate::batch\n#[cfg(test)]\nmod tests {\ncrate::start",
        ),
        Source::new("batch.rs", "use crate::VERSION;\nuse crate::session::Session;"),
        Source::new("news/mod.rs", ""),
    ];
    let expected = [
        "news/mod.rs: `news` has no place in MODULES yet",
        "config/mod.rs: `config` uses `durability`, which is above it",
        "log.rs: `log` uses `engine`, which is above it",
        "`eviction` does not use `start` any more: take it off UPWARD",
    ];
    assert_eq!(faults(&planted, &[("spill", "server"), ("eviction", "start")]), expected);
    let manifest =
        "[dependencies]\ntierce-cask.workspace = true\n[dev-dependencies]\ntierce-net = 1";
    let expected = "crates/dash/Cargo.toml: `dash` must not use `cask`";
    assert_eq!(crate_faults("dash", manifest), [expected]);
    assert_eq!(crate_faults("keyspace", manifest), [""; 0]);
}
