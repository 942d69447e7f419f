//! Tests a whole configuration file with every kind of value and every name.

use std::io;
use std::path::{Path, PathBuf};

use tierce_config::{Config, DirectiveId, FileSource, Loaded, Note, Sources};

fn load(path: PathBuf) -> Loaded {
    let file = FileSource::Path { path, hint: String::new() };
    let sources = Sources { file, ..Sources::default() };
    sources.load(&mut io::empty()).expect("valid")
}

#[test]
fn a_file_of_every_kind_is_understood() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/mixed.conf");
    let loaded = load(path);
    assert!(
        !loaded.notes.iter().any(|note| matches!(note, Note::Unknown(_))),
        "{:?}",
        loaded.notes
    );

    let config = Config::new(loaded.settings);
    for (name, expected) in [
        ("bind", "127.0.0.1 -::1"),
        ("port", "7001"),
        ("unixsocket", "/tmp/tierce test.sock"),
        ("unixsocketperm", "770"),
        ("protected-mode", "no"),
        ("tcp-keepalive", "60"),
        ("save", "900 1 300 10 60 10000"),
        (
            "client-output-buffer-limit",
            "normal 67108864 16777216 30 slave 1000000000 500000000 60 pubsub 33554432 8388608 60",
        ),
        ("proto-max-bulk-len", "134217728"),
        ("maxmemory", "2147483648"),
        ("maxmemory-policy", "allkeys-lfu"),
        ("requirepass", "don't tell"),
        ("shutdown-on-sigterm", "save now"),
        ("latency-tracking-info-percentiles", "50 99 99.99"),
        ("oom-score-adj-values", "-10 100 900"),
        ("hz", "500"),
        ("dir", "/var/lib/tierce"),
        ("replica-priority", "7"),
        ("hash-max-listpack-entries", "64"),
        ("busy-reply-threshold", "250"),
    ] {
        let found = config.get(&[name.as_bytes()]);
        let text = found.iter().map(|(_, value)| String::from_utf8_lossy(value)).next();
        assert_eq!(text.as_deref(), Some(expected), "{name}");
    }
}

#[test]
fn a_file_that_names_everything_at_its_default_needs_no_note() {
    let path = std::env::temp_dir().join(format!("tierce-everything-{}.conf", std::process::id()));
    let lines = DirectiveId::all().flat_map(|id| {
        let directive = id.directive();
        directive.names().map(move |name| format!("{name} \"{}\"\n", directive.default))
    });
    std::fs::write(&path, lines.collect::<String>()).expect("temporary file");
    let loaded = load(path.clone());
    std::fs::remove_file(path).expect("there");
    assert_eq!(loaded.notes, []);
}
