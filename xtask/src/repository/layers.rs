//! Which crate may use which, by their `Cargo.toml`, and which module, by what its code names.
//!
//! Modules are listed from the lowest to the highest, and each may use those before it. So there are no
//! circles among them, except for what [`Modules::upward`] lists: what is left to be untied, to which nothing is added.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// The crates, each with those that it may use.
const CRATES: &[(&str, &[&str])] = &[
    ("dash", &[]),
    ("cask", &[]),
    ("bucket", &[]),
    ("wire", &[]),
    ("output", &[]),
    ("net", &["output"]),
    ("lua", &["wire"]),
    ("rdb", &[]),
    ("collections", &["dash"]),
    ("client", &["wire"]),
    ("keyspace", &["cask", "collections", "dash"]),
    ("config", &["keyspace", "wire"]),
    ("engine", &["cask", "collections", "config", "keyspace", "rdb", "wire"]),
    ("bucket", &[]),
    ("replication", &["collections", "config", "keyspace", "rdb", "wire"]),
    (
        "commands",
        &[
            "cask",
            "collections",
            "config",
            "engine",
            "keyspace",
            "lua",
            "output",
            "rdb",
            "replication",
            "wire",
        ],
    ),
    ("gateway", &["commands", "config", "engine", "output", "wire"]),
    (
        "server",
        &[
            "bucket",
            "cask",
            "collections",
            "commands",
            "config",
            "engine",
            "gateway",
            "keyspace",
            "net",
            "output",
            "rdb",
            "replication",
            "wire",
        ],
    ),
    ("progress", &[]),
    ("bench", &["cask", "client", "progress", "wire"]),
    ("tierce", &["bench", "bucket", "cask", "client", "config", "engine", "progress", "server"]),
];

/// The modules of a crate, from the lowest to the highest.
struct Modules {
    of: &'static str,
    names: &'static [&'static str],
    /// Those that use one above them: what is known, and is to go.
    upward: &'static [(&'static str, &'static str)],
}

const MODULES: &[Modules] = &[
    Modules { of: "bucket", names: BUCKET, upward: &[] },
    Modules { of: "config", names: CONFIG, upward: &[] },
    Modules { of: "engine", names: ENGINE, upward: &[] },
    // A type that contains itself: a context has a kernel, which has the table, which holds functions of a context.
    Modules { of: "commands", names: COMMANDS, upward: &[("command", "execute")] },
    Modules { of: "server", names: SERVER, upward: &[] },
];

#[rustfmt::skip]
const BUCKET: &[&str] = &[
    "fields", "env", "lease", "rules", "error", "counters",
    // The store, and what an object holds.
    "aws_files", "credentials", "directory", "location", "record", "store", "append", "body", "payload", "chain",
    // The log, its owner, what keeps it short, reading it, and who takes over.
    "group", "nesting", "probe", "owner", "snapshot", "pin", "prune", "span", "restore", "history", "follower",
    "runtime", "simulation", "lib",
];

#[rustfmt::skip]
const CONFIG: &[&str] = &[
    "own_names", "suggest", "sync_policy", "events", "origin",
    // What a directive is, and all of them.
    "limits", "log_format", "value", "kind", "directive", "table",
    // From what was said to values.
    "error", "file", "settings", "startup", "http", "live", "sources", "public", "environment", "help", "invocation",
    // Values that change.
    "rewrite", "runtime",
    // Documentation and its tests.
    "reference", "of_redis", "fuzzing", "lib",
];

#[rustfmt::skip]
const ENGINE: &[&str] = &[
    // What all parts need.
    "clock", "utc", "random", "next_step", "log", "latency", "encoding_limits", "library", "loading",
    // The parts, and the whole.
    "memory", "eviction", "durability", "feed", "persistence", "spill",
    "engine", "inspection", "lib",
];

#[rustfmt::skip]
const COMMANDS: &[&str] = &[
    // What needs nothing.
    "process", "metrics",
    // Replies, and who gets them.
    "error", "reply", "message", "replica_level", "waiting", "command", "redaction", "slowlog", "acl", "stats", "clients", "pubsub", "transaction", "replication", "caller", "answer", "offload", "scripting", "shutdown", "hot_keys", "lease", "bucket",
    // The kernel, and how it executes.
    "kernel", "redirect", "meter", "monitors", "notifications", "fetch", "execute", "tracking", "blocking", "pipeline", "roles", "plan", "gates",
    "run", "commands", "lib",
];

#[rustfmt::skip]
const SERVER: &[&str] = &[
    // What faces the operator.
    "pid_file", "listening", "supervision", "tls",
    // Protocols, start and end.
    "session", "suspend", "turn", "fetcher", "held", "front_ends", "memcached", "pedrokv", "server", "results", "replication", "connection", "acknowledge",
    "set_aside", "deadlines", "deliver", "batch", "dispatcher", "long_commands", "transfer", "bucket", "no_bucket", "start", "fuzzing", "lib",
];

/// A file of a crate, by its path inside of `src`, and its text.
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

impl Modules {
    fn place(&self, module: &str) -> Option<usize> {
        self.names.iter().position(|name| *name == module)
    }
}

/// Uses of modules above those that use them. What is no module, such as a constant, counts for nothing.
fn upward(sources: &[Source], modules: &Modules) -> BTreeSet<Arrow> {
    let mut arrows = BTreeSet::new();
    for source in sources {
        let from = source.module();
        for to in source.uses() {
            if modules.place(&to).is_some_and(|to| Some(to) > modules.place(from)) {
                arrows.insert(Arrow { from: from.to_owned(), to, file: source.path.clone() });
            }
        }
    }
    arrows
}

/// What is wrong between modules, a sentence for each.
fn faults(sources: &[Source], modules: &Modules) -> Vec<String> {
    let mut faults = Vec::new();
    for source in sources {
        let module = source.module();
        if modules.place(module).is_none() {
            faults.push(format!("{}: `{module}` has no place in MODULES yet", source.path));
        }
    }
    let arrows = upward(sources, modules);
    for Arrow { from, to, file } in &arrows {
        if !modules.upward.contains(&(from, to)) {
            faults.push(format!("{file}: `{from}` uses `{to}`, which is above it"));
        }
    }
    for (from, to) in modules.upward {
        if !arrows.iter().any(|arrow| arrow.from == *from && arrow.to == *to) {
            faults.push(format!("`{from}` does not use `{to}` any more: take it off the list"));
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

fn sources(of: &str) -> Vec<Source> {
    let root = crates().join(of).join("src");
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

/// The folder of all crates.
fn crates() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../crates")
}

fn entries(dir: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(dir).expect("a directory");
    entries.map(|entry| entry.expect("an entry").path()).collect()
}

#[test]
fn modules_use_those_below_them() {
    for modules in MODULES {
        let sources = sources(modules.of);
        assert!(sources.len() > 20, "the sources of {} are elsewhere", modules.of);
        let faults = faults(&sources, modules);
        assert!(faults.is_empty(), "{}", faults.join("\n"));
    }
}

#[test]
fn crates_use_those_below_them() {
    let mut faults = Vec::new();
    for path in entries(&crates()) {
        let name = path.file_name().expect("a name").to_string_lossy().into_owned();
        let manifest = fs::read_to_string(path.join("Cargo.toml")).expect("a manifest");
        faults.extend(crate_faults(&name, &manifest));
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

#[test]
fn what_points_upward_is_found() {
    let modules = Modules {
        of: "planted",
        names: &["log", "persistence", "spill", "engine", "session", "batch", "server", "start"],
        upward: &[("spill", "server"), ("log", "start")],
    };
    let planted = [
        Source::new("spill/spiller.rs", "use std::fmt;\nuse crate::server::Server;\n"),
        Source::new(
            "log.rs",
            "use crate::{\n    clock, config::{LogLevel, table},\n    engine,\n};\n",
        ),
        Source::new("persistence/mod.rs", "type Policy = super::spill::Policy;"),
        Source::new(
            "engine/mod.rs",
            "fn f() {}\n// use crate::batch\n#[cfg(test)]\nmod tests {\ncrate::start",
        ),
        Source::new("batch.rs", "use crate::VERSION;\nuse crate::session::Session;"),
        Source::new("news/mod.rs", ""),
    ];
    let expected = [
        "news/mod.rs: `news` has no place in MODULES yet",
        "log.rs: `log` uses `engine`, which is above it",
        "persistence/mod.rs: `persistence` uses `spill`, which is above it",
        "`log` does not use `start` any more: take it off the list",
    ];
    assert_eq!(faults(&planted, &modules), expected);
    let manifest =
        "[dependencies]\ntierce-cask.workspace = true\n[dev-dependencies]\ntierce-net = 1";
    let expected = "crates/dash/Cargo.toml: `dash` must not use `cask`";
    assert_eq!(crate_faults("dash", manifest), [expected]);
    assert_eq!(crate_faults("keyspace", manifest), [""; 0]);
}
