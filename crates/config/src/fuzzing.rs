//! Fuzz target for configuration files; see `tierce_wire::fuzzing`.
//!
//! Panics when a guarantee is violated. Not part of the crate's interface.

use std::path::Path;

use tierce_wire::words;

use crate::origin::Assignment;
use crate::table::DirectiveId;
use crate::{file, rewrite, sources};

/// Checks that quoted words are read back unchanged, and that a rewritten file has the same settings as before.
/// Included files are not read.
pub fn config_file(text: &[u8]) {
    let Ok(lines) = parse(text) else { return };
    let written: Vec<u8> = lines.iter().flat_map(in_quotes).collect();
    let read = parse(&written).expect("its own lines");
    assert!(read.iter().map(said).eq(lines.iter().map(said)));

    let Ok(settings) = sources::settings_of(&lines) else { return };
    let rewritten = rewrite::rewritten(text, &settings, &[]);
    let again = parse(&rewritten).and_then(|lines| sources::settings_of(&lines));
    let again = again.expect("its own file");
    for id in DirectiveId::all() {
        assert_eq!(again.value(id), settings.value(id), "{}", id.directive().name);
    }
}

fn parse(text: &[u8]) -> Result<Vec<Assignment>, crate::ConfigError> {
    file::parse(text, Path::new("fuzzed.conf"))
}

fn said(line: &Assignment) -> (&[u8], &[Vec<u8>]) {
    (&line.name, &line.args)
}

fn in_quotes(line: &Assignment) -> Vec<u8> {
    let words: Vec<_> =
        [&line.name].into_iter().chain(&line.args).map(|word| words::quote(word)).collect();
    [words.join(&b' ').as_slice(), b"\n"].concat()
}

#[cfg(test)]
#[test]
fn fuzz_smoke() {
    tierce_harness::fuzz_smoke(config_file, b"\n\n \t\"'\\x#0123456789kmgb-%:*aeinorst", &[
        b"# head\n\n  port 7000 \r\nsave \"\"\n\t#port 1\nBIND 127.0.0.1 -::1\nsave 60 1 300 10",
        b"maxmemory 1gb\nmaxmemory-policy allkeys-lru\nappendonly no\nappendfsync always\n",
        b"client-output-buffer-limit pubsub 32mb 8mb 60\nrequirepass \"a\\x41\\n\"\ndir '/tmp'\n",
        b"user ann on #e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855 +@all ~* (%R~a +get)\n",
        b"notify-keyspace-events KEA\nslowlog-log-slower-than -1\nrename-command GET \"\"\nreplicaof h 1\n",
    ]);
}
