//! Help texts: overview, one directive, all directives, version.

use std::fmt::Write;

use super::directive::{Directive, Effect, Group, Mutability, Visibility};
use super::table::DirectiveId;

/// Width of an ordinary terminal.
const WIDTH: usize = 80;

const USAGE: &str = "\
Usage:    tierce [FILE | -] [--DIRECTIVE VALUE...]...    start the server
          tierce TOOL [OPTION...]                        run a tool
Example:  tierce --port 7000 --maxmemory 2gb
";

const OPTIONS: &str = "\
Options:
  -h, --help [DIRECTIVE]     this help, or what is known about a directive
      --help-directives      all directives with their defaults
      --check-config [FILE]  read the configuration, say what is wrong, and end
  -v, --version              the version
";

/// A tool of the program, besides the server.
#[derive(Clone, Copy, Debug)]
pub struct Tool {
    /// The first word of the command line.
    pub name: &'static str,
    /// A line for the help text.
    pub about: &'static str,
}

/// Returns the text of `tierce --help`. It fits a terminal of 24 rows, with the prompt below.
pub(super) fn overview(tools: &[Tool]) -> String {
    let mut text = version();
    text.push_str("A key-value server compatible with Redis and memcached.\n\n");
    text.push_str(USAGE);
    if !tools.is_empty() {
        text.push_str("Tools, each with --help:\n");
        for tool in tools {
            write_entry(&mut text, tool.name, 12, tool.about);
        }
    }
    text.push_str(OPTIONS);
    text
}

/// Returns the text of `tierce --help-directives`.
pub(super) fn directives() -> String {
    let mut text = String::from("All directives with their defaults, as in redis.conf.\n");
    text.push_str("A star marks what is accepted without an effect, an exclamation mark what is\n");
    text.push_str("refused unless it is at its default; tierce --help DIRECTIVE tells why.\n");
    for group in Group::ALL {
        let _ = write!(text, "\n{}\n", group.title());
        for directive in listed(group) {
            let head = format!("{} [{}]", marked_name(directive), shown_default(directive));
            write_wrapped(&mut text, 2, &head);
            write_wrapped(&mut text, 6, &directive.about.replace('`', ""));
        }
    }
    text
}

/// Returns the text of `tierce --help DIRECTIVE`.
pub(super) fn directive(id: DirectiveId) -> String {
    let directive = id.directive();
    let mut text = String::new();
    write_wrapped(&mut text, 0, &format!("{}: {}", directive.name, directive.about));
    let mut fact = |label: &str, value: &str| write_entry(&mut text, label, 10, value);
    fact("default", shown_default(directive));
    if let Some(redis) = directive.redis_default {
        fact("in Redis", redis);
    }
    if let Some(since) = directive.own_since {
        fact("since", &format!("Tierce {since}, not in Redis"));
    }
    fact("values", &directive.kind.describe());
    fact("change", mutability_text(directive.mutability));
    if let Some(alias) = directive.alias {
        fact("alias", alias);
    }
    match directive.effect {
        Effect::Acts => {}
        Effect::Accepted(reason) => fact("effect", &format!("none. {reason}")),
        Effect::Refused { .. } => fact("refused", &refusal(directive)),
    }
    text
}

/// Returns the text of `tierce --version`.
pub(super) fn version() -> String {
    let version = env!("CARGO_PKG_VERSION");
    let build = if cfg!(debug_assertions) { ", debug build" } else { "" };
    format!("tierce {version} ({} {}{build})\n", std::env::consts::ARCH, std::env::consts::OS)
}

/// Returns the public directives of a group.
pub(super) fn listed(group: Group) -> impl Iterator<Item = &'static Directive> {
    DirectiveId::all()
        .map(DirectiveId::directive)
        .filter(move |directive| directive.group == group)
        .filter(|directive| directive.visibility == Visibility::Listed)
}

/// Returns the default as a user would write it.
pub(super) fn shown_default(directive: &Directive) -> &'static str {
    if directive.default.is_empty() { "\"\"" } else { directive.default }
}

/// Describes when the directive may be changed.
pub(super) fn mutability_text(mutability: Mutability) -> &'static str {
    match mutability {
        Mutability::AtAnyTime => "at any time",
        Mutability::IfUnprotected => "at any time, if enable-protected-configs allows it",
        Mutability::BeforeStart => "before the start",
        Mutability::ForOneStart => "before the start, and for that one alone",
    }
}

/// Describes the refused values and the reason.
pub(super) fn refusal(directive: &Directive) -> String {
    let Effect::Refused { except, why } = directive.effect else { return String::new() };
    let fine = std::iter::once(shown_default(directive)).chain(except.iter().copied());
    let fine: Vec<_> = fine.map(|value| format!("`{value}`")).collect();
    format!("All values but {} are refused: {why}.", fine.join(", "))
}

fn marked_name(directive: &Directive) -> String {
    let mark = match directive.effect {
        Effect::Acts => "",
        Effect::Accepted(_) => "*",
        Effect::Refused { .. } => "!",
    };
    format!("{}{mark}", directive.name)
}

/// Writes a name in its own column, with a text next to it.
fn write_entry(out: &mut String, name: &str, column: usize, about: &str) {
    let _ = write!(out, "  {name:column$}");
    let indent = 2 + column;
    let start = out.len();
    write_wrapped(out, indent, &about.replace('`', ""));
    // The first line shares its row with the name, so its indentation is removed.
    out.replace_range(start..start + indent, "");
}

/// Writes a text in lines of at most [`WIDTH`], all indented.
fn write_wrapped(out: &mut String, indent: usize, text: &str) {
    let mut line = " ".repeat(indent);
    for word in text.split(' ') {
        if line.len() > indent {
            if line.len() + 1 + word.len() > WIDTH {
                let _ = writeln!(out, "{line}");
                line = " ".repeat(indent);
            } else {
                line.push(' ');
            }
        }
        line.push_str(word);
    }
    let _ = writeln!(out, "{line}");
}

#[cfg(test)]
mod tests {
    use super::super::table::DirectiveId;
    use super::{Tool, WIDTH, directive, directives, overview};

    #[test]
    fn all_texts_fit_a_terminal() {
        let tools = [Tool { name: "bench", about: "Load a server and measure it." }];
        let single = DirectiveId::all().map(directive);
        for text in [overview(&tools), directives()].into_iter().chain(single) {
            for line in text.lines() {
                assert!(line.len() <= WIDTH && line.trim_end() == line, "{line:?}");
            }
        }
    }

    #[test]
    fn the_overview_names_tools_and_directives() {
        let text = overview(&[Tool { name: "bench", about: "Load a server and measure it." }]);
        assert!(text.contains("\n  bench       Load a server and measure it.\n"), "{text}");
        assert!(text.contains("--port 7000"), "{text}");
        assert!(!overview(&[]).contains("Tools:"));
    }

    #[test]
    fn the_list_has_every_directive_but_the_hidden_ones() {
        let text = directives();
        for id in DirectiveId::all() {
            let name = id.name();
            let there =
                ["", "*", "!"].iter().any(|mark| text.contains(&format!("\n  {name}{mark} [")));
            let hidden = id.directive().visibility == super::Visibility::Hidden;
            assert_eq!(there, !hidden, "{name}");
        }
    }

    #[test]
    fn one_directive_is_explained() {
        let text = directive(DirectiveId::of("maxclients"));
        let expected = "\
maxclients: Maximum number of connections. Further ones get an error and are
closed.
  default   10000
  values    1 or more
  change    at any time
";
        assert_eq!(text, expected);
    }
}
