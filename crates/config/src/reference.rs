//! Generates `docs/configuration.md` from the table.

use std::fmt::Write;

use super::directive::{Directive, Effect, Group};
use super::help::{listed, mutability_text, refusal, shown_default};
use super::table::{FILE_LINES, Handling};

const HEAD: &str = "\
# Configuration

This page is generated from the table of directives in `crates/config/src/table`; do not edit it.
`UPDATE_DOCS=1 cargo test -p tierce-config docs` regenerates it.

Tierce has the directives of redis.conf. They come from four sources, each of which overrides the
ones before:

1. the defaults below,
2. a file: `tierce /etc/redis/redis.conf`, or `tierce -` for standard input,
3. the command line: `tierce --port 7000 --save 60 1 --save 300 10`,
4. the environment: `TIERCE_PORT=7000`, dashes as underscores.

`CONFIG GET` and `CONFIG SET` show and change them at run time, and `CONFIG REWRITE` writes what is in
force into the file. An unknown name is an error, as in Redis, except in the environment,
where it logs a warning; a wrong value is an error everywhere. `tierce --check-config FILE` validates
a file without starting the server.

A configuration file of Redis has the same meaning. In particular, a file with `appendonly no` and no
`save` line has the save points of Redis, `3600 1 300 100 60 10000`, and the last snapshot is taken
when the server ends. Without a file, or without that line, the log is on.

A value in bytes may have a unit: `k`, `m`, `g` are powers of 1000, `kb`, `mb`, `gb` powers of 1024.

Every directive does what its description says, or is marked:

* **Accepted**: any value is checked, kept, shown and rewritten, but has no effect, for the reason
  given. The server says so at its start if such a directive is not at its default.
* **Refused**: with other values than those named the server refuses to start, and `CONFIG SET` fails,
  because users may rely on their effect.
";

/// Returns the whole page.
pub(super) fn page() -> String {
    let mut text = HEAD.to_owned();
    for group in Group::ALL {
        let _ = write!(text, "\n## {}\n\n", group.title());
        text.push_str("| directive | default | values | change | |\n|---|---|---|---|---|\n");
        for directive in listed(group) {
            write_row(&mut text, directive);
        }
    }
    write_file_lines(&mut text);
    text
}

fn write_row(out: &mut String, directive: &Directive) {
    let alias = directive.alias.map_or(String::new(), |alias| format!(", or `{alias}`"));
    let redis =
        directive.redis_default.map_or(String::new(), |redis| format!(" In Redis: `{redis}`."));
    let own = directive
        .own_since
        .map_or(String::new(), |since| format!(" Since Tierce {since}, not in Redis."));
    let effect = match directive.effect {
        Effect::Acts => String::new(),
        Effect::Accepted(reason) => format!(" **Accepted.** {reason}"),
        Effect::Refused { .. } => format!(" **Refused.** {}", refusal(directive)),
    };
    let Directive { name, kind, about, mutability, .. } = directive;
    let (default, values, change) =
        (shown_default(directive), kind.describe(), mutability_text(*mutability));
    let _ = writeln!(
        out,
        "| `{name}`{alias} | `{default}` | {values} | {change} | {about}{redis}{own}{effect} |"
    );
}

fn write_file_lines(out: &mut String) {
    out.push_str("\n## Other lines of a file\n\n| line | |\n|---|---|\n");
    for line in &FILE_LINES {
        let refused = match line.handling {
            Handling::Refuse(why) => format!(" **Refused**: {why}."),
            _ => String::new(),
        };
        let _ = writeln!(out, "| `{}` | {}{refused} |", line.name, line.about);
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn docs_are_up_to_date() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/configuration.md");
        let page = super::page();
        if std::env::var_os("UPDATE_DOCS").is_some() {
            std::fs::write(path, &page).expect("docs/configuration.md can be written");
        }
        let there = std::fs::read_to_string(path).unwrap_or_default();
        assert!(there == page, "docs/configuration.md is old; set UPDATE_DOCS=1 and run again");
    }
}
