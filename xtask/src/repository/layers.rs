//! Permitted dependencies: of crates, by their `Cargo.toml`, and of modules, by the names in their code.
//!
//! Modules are listed from the lowest to the highest, and each may use those before it. So there are no cycles among
//! them.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// The crates, each with the crates that it may use.
pub(super) const CRATES: &[(&str, &[&str])] = &[
    ("dash", &[]),
    ("storage", &[]),
    ("cask", &["storage"]),
    ("bucket", &[]),
    ("wire", &[]),
    ("output", &[]),
    ("net", &["output"]),
    ("lua", &["wire"]),
    ("json", &["wire"]),
    ("rdb", &[]),
    ("collections", &["dash"]),
    ("client", &["wire"]),
    ("keyspace", &["collections", "dash", "storage"]),
    ("config", &["keyspace", "wire"]),
    ("engine", &["collections", "config", "keyspace", "rdb", "storage", "wire"]),
    ("replication", &["collections", "config", "keyspace", "rdb", "wire"]),
    (
        "commands",
        &[
            "collections",
            "config",
            "engine",
            "keyspace",
            "lua",
            "output",
            "rdb",
            "replication",
            "storage",
            "wire",
        ],
    ),
    ("gateway", &["commands", "config", "engine", "json", "output", "wire"]),
    (
        "transfer",
        &[
            "collections",
            "commands",
            "config",
            "engine",
            "keyspace",
            "output",
            "rdb",
            "storage",
            "wire",
        ],
    ),
    (
        "server",
        &[
            "bucket",
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
            "storage",
            "transfer",
            "wire",
        ],
    ),
    ("progress", &[]),
    ("bench", &["cask", "client", "progress", "wire"]),
    (
        "tierce",
        &[
            "bench", "bucket", "cask", "client", "config", "engine", "progress", "server",
            "storage", "transfer",
        ],
    ),
];

/// The modules of a crate, from the lowest to the highest.
struct Modules {
    of: &'static str,
    names: &'static [&'static str],
}

/// All crates with more than a handful of modules.
const MODULES: &[Modules] = &[
    Modules { of: "bench", names: BENCH },
    Modules { of: "bucket", names: BUCKET },
    Modules { of: "cask", names: CASK },
    Modules { of: "client", names: CLIENT },
    Modules { of: "collections", names: COLLECTIONS },
    Modules { of: "commands", names: COMMANDS },
    Modules { of: "config", names: CONFIG },
    Modules { of: "dash", names: DASH },
    Modules { of: "engine", names: ENGINE },
    Modules { of: "gateway", names: GATEWAY },
    Modules { of: "keyspace", names: KEYSPACE },
    Modules { of: "lua", names: LUA },
    Modules { of: "net", names: NET },
    Modules { of: "rdb", names: RDB },
    Modules { of: "replication", names: REPLICATION },
    Modules { of: "server", names: SERVER },
    Modules { of: "storage", names: STORAGE },
    Modules { of: "tierce", names: TIERCE },
    Modules { of: "transfer", names: TRANSFER },
    Modules { of: "wire", names: WIRE },
];

/// A crate with more modules has to be among them.
const MODULES_MAX: usize = 6;

#[rustfmt::skip]
const BUCKET: &[&str] = &[
    "fields", "env", "lease", "rules", "error", "counters",
    // The store, and the contents of an object.
    "aws_files", "credentials", "directory", "location", "record", "store", "append", "body", "payload", "chain",
    // The log, its owner, its pruning, its readers, and takeover.
    "group", "nesting", "probe", "owner", "snapshot", "pin", "prune", "span", "restore", "history", "follower",
    "runtime", "simulation", "lib",
];

#[rustfmt::skip]
const CONFIG: &[&str] = &[
    "own_names", "suggest", "sync_policy", "events", "origin",
    // Definition of a directive, and the table of all directives.
    "limits", "log_format", "value", "kind", "directive", "table",
    // From assignments to values.
    "error", "file", "settings", "startup", "http", "live", "sources", "public", "environment", "help", "invocation",
    // Values that change.
    "rewrite", "runtime",
    // Documentation and its tests.
    "reference", "of_redis", "fuzzing", "lib",
];

#[rustfmt::skip]
const ENGINE: &[&str] = &[
    // Basics for all parts.
    "clock", "count", "utc", "random", "next_step", "log", "latency", "encoding_limits", "library", "loading",
    // The parts, and the whole.
    "memory", "eviction", "durability", "feed", "persistence", "spill",
    "engine", "inspection", "lib",
];

#[rustfmt::skip]
const COMMANDS: &[&str] = &[
    // Modules without dependencies.
    "process", "metrics",
    // Replies, and their receivers.
    "certificates", "outgoing", "error", "fault", "reply", "maintenance", "message", "replica_level", "barrier", "waiting", "command", "redaction", "command_log", "acl", "stats", "clients", "under_way", "pubsub", "transaction", "replication", "caller", "answer", "offload", "scripting", "shutdown", "hot_keys", "lease", "bucket",
    // The kernel, and its execution.
    "kernel", "monitors", "notifications", "pipeline", "tracking", "roles",
    "commands", "lib",
];

#[rustfmt::skip]
const SERVER: &[&str] = &[
    // Modules for the operator.
    "pid_file", "connect", "listening", "last_words", "supervision", "tls",
    // Protocols, start and end.
    "session", "suspend", "turn", "fetcher", "front_ends", "memcached", "pedrokv", "server", "results", "replication", "connection", "awaiting",
    "set_aside", "deadlines", "deliver", "batch", "dispatcher", "mail", "long_commands", "simulation", "bucket", "no_bucket", "start", "lib",
];

#[rustfmt::skip]
const BENCH: &[&str] = &[
    "digits", "counted", "random", "request", "pedrokv", "protocol", "memcached", "template", "catalog",
    "distribution", "error", "cli", "cpu", "replies", "ring", "socket", "target", "engine", "machine",
    "progress", "workload", "measure", "report", "compare", "mock_server", "plan", "race", "lib",
];

const CASK: &[&str] =
    &["options", "hint", "index", "entry", "cache", "check", "db", "fuzzing", "lib"];

#[rustfmt::skip]
const STORAGE: &[&str] = &[
    "bytes", "cache_line", "checksum", "hash", "error", "compression", "disk", "location", "names",
    "progress", "reserve_file",
    // Segments, the log that is written to them, and cold values.
    "tail", "segment", "manifest", "directory", "log", "wal", "upkeep", "cold", "lib",
];

#[rustfmt::skip]
const CLIENT: &[&str] = &[
    "address", "error", "callback", "reply", "wakeup", "window", "config", "framing", "engine", "tls",
    "socket", "blocking", "driver", "channel", "pedrokv", "resp", "cluster", "testing", "lib",
];

#[rustfmt::skip]
const COLLECTIONS: &[&str] = &[
    "form", "incremental_snapshot", "limits", "size_class", "text_int", "packed", "prefetch", "random",
    "raw_box", "same_bytes", "seed", "thin", "hash", "hyperloglog", "list", "set", "sorted_set", "stream",
    "collection", "lib",
];

#[rustfmt::skip]
const DASH: &[&str] = &[
    "group", "geometry", "bucket", "hash", "prefetch", "segment", "directory", "rebuild", "table", "invariants",
    "iter", "scan", "visited", "snapshot", "lib",
];

#[rustfmt::skip]
const GATEWAY: &[&str] = &[
    "failure", "credentials", "health", "metrics", "waiting", "shared",
    "events", "execute", "guard", "routes", "connection", "gateway", "lib",
];

#[rustfmt::skip]
const KEYSPACE: &[&str] = &[
    // Basics for all parts.
    "clock", "random", "db_index", "error", "planted", "simulation", "interleaving", "codec",
    // Data; changes; the registries that shards keep for the services; locks and operations on keys; the services.
    "data", "change", "registries", "access", "services",
    "fuzzing", "lib",
];

#[rustfmt::skip]
const LUA: &[&str] = &[
    "host", "number", "sha1", "shebang", "program", "values", "random", "native", "libraries",
    "memory", "shared", "convert", "api", "sandbox", "machine", "fuzzing", "lib",
];

#[rustfmt::skip]
const NET: &[&str] = &[
    "arrivals", "system_clock", "socket", "tls", "transport", "buffer", "send_barriers", "queue", "clock", "timer", "mailbox",
    "metrics", "slab", "connection", "listener", "io", "handle", "acceptor", "worker", "runtime", "simulation",
    "fd_limit", "lib",
];

#[rustfmt::skip]
const RDB: &[&str] = &[
    "error", "format", "crc64", "input", "packed", "value", "decode", "reader", "aof", "compression_heuristic",
    "lzf", "output", "encode", "writer", "dump", "functions", "testing", "fuzzing", "string", "lib",
];

#[rustfmt::skip]
const REPLICATION: &[&str] = &[
    "backlog", "identity", "link", "fuzzing", "note", "translate", "lib",
];

#[rustfmt::skip]
const TIERCE: &[&str] = &[
    "allocator", "background", "in_use", "upkeep", "bucket", "doctor", "inspect", "transfer",
    "tools", "console", "main", "secrets",
];

#[rustfmt::skip]
const TRANSFER: &[&str] = &[
    "progress", "error", "aof", "commands", "store", "jsonl", "export", "import", "first_import", "newer_files", "fuzzing", "lib",
];

#[rustfmt::skip]
const WIRE: &[&str] = &[
    "glob", "number", "memcached", "pedrokv", "words", "resp", "fuzzing", "lib",
];

/// A file of a crate: its path inside of `src`, and its text.
pub(super) struct Source {
    path: String,
    text: String,
}

impl Source {
    pub(super) fn new(path: &str, text: &str) -> Self {
        Self { path: path.to_owned(), text: text.to_owned() }
    }

    /// Returns the path below the crate's `src`.
    pub(super) fn path(&self) -> &str {
        &self.path
    }

    fn module(&self) -> &str {
        let name = self.path.split('/').next().unwrap_or_default();
        name.strip_suffix(".rs").unwrap_or(name)
    }

    /// Returns the words of its module path; none for the root of the crate.
    pub(super) fn words(&self) -> Vec<String> {
        let path = self.path.strip_suffix(".rs").unwrap_or(&self.path);
        let path = path.strip_suffix("/mod").unwrap_or(path);
        path.split('/').filter(|word| *word != "lib").map(str::to_owned).collect()
    }

    /// Returns the code without comments and unit tests, which may use any module.
    pub(super) fn code(&self) -> String {
        let is_code = |line: &&str| !line.trim_start().starts_with("//");
        let code: Vec<_> = self.text.lines().filter(is_code).collect();
        let code = code.join("\n");
        let end = code.find("\n#[cfg(test)]\nmod tests {").unwrap_or(code.len());
        code[..end].to_owned()
    }

    /// Returns the modules that it names: `crate::name`, or `crate::{name, name::of}`.
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

/// Returns the first words of the members of a list up to its closing brace.
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

/// Returns the faults between modules, a sentence for each. Other names, such as constants, are ignored.
fn faults(sources: &[Source], modules: &Modules) -> Vec<String> {
    let (mut faults, mut upward) = (Vec::new(), BTreeSet::new());
    for source in sources {
        let from = source.module();
        if modules.place(from).is_none() {
            faults.push(format!("{}: `{from}` has no place in MODULES yet", source.path));
        }
        for to in source.uses() {
            if modules.place(&to) > modules.place(from) {
                upward.insert(format!("{}: `{from}` uses `{to}`, which is above it", source.path));
            }
        }
    }
    faults.extend(upward);
    faults
}

/// Returns the faults in the dependencies of a crate. Dependencies of its tests may be any.
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

pub(super) fn sources(of: &str) -> Vec<Source> {
    let root = crates().join(of).join("src");
    let (mut dirs, mut sources) = (vec![root.clone()], Vec::new());
    while let Some(dir) = dirs.pop() {
        for path in entries(&dir) {
            // Unit tests in their own files may also use any module.
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

/// Returns the folder of all crates.
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
        assert!(
            sources.len() >= modules.names.len(),
            "the sources of {} are elsewhere",
            modules.of
        );
        let faults = faults(&sources, modules);
        assert!(faults.is_empty(), "{}: {}", modules.of, faults.join("\n"));
    }
    for (of, _) in CRATES {
        let sources = sources(of);
        let names: BTreeSet<_> = sources.iter().map(Source::module).collect();
        let is_known = MODULES.iter().any(|modules| modules.of == *of);
        assert!(is_known || names.len() <= MODULES_MAX, "{of} has no place in MODULES yet");
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
        names: &["log", "persistence", "spill", "server", "engine", "session", "batch", "start"],
    };
    let planted = [
        Source::new("spill/spiller.rs", "use std::fmt;\nuse crate::server::Server;\n"),
        Source::new("server.rs", "use crate::spill;\n"),
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
        "spill/spiller.rs: `spill` uses `server`, which is above it",
    ];
    assert_eq!(faults(&planted, &modules), expected);
    let manifest =
        "[dependencies]\ntierce-storage.workspace = true\n[dev-dependencies]\ntierce-net = 1";
    let expected = "crates/dash/Cargo.toml: `dash` must not use `storage`";
    assert_eq!(crate_faults("dash", manifest), [expected]);
    assert_eq!(crate_faults("keyspace", manifest), [""; 0]);
}
