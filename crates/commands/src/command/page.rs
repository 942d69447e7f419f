//! The page `docs/commands.md`, made from the table.

use std::fmt::Write as _;

use super::{Command, Flags, Group, Table};

/// The page for all commands of `table`, chapter by chapter.
pub fn render(table: &Table) -> String {
    let mut page = String::from(
        "# Commands\n\n\
         Generated from the command table by `UPDATE_DOCS=1 cargo test -p tierce-commands page`; do not \
         edit by hand. Semantics, replies and errors are those of Redis 7.2; where they differ on \
         purpose, [differences.md](differences.md) says so.\n\n\
         `since` is the version of Redis that introduced the command. A command that only Tierce has names \
         the version of Tierce instead.\n\n\
         Each example starts with an empty database and shows the replies as redis-cli prints them in RESP2. \
         RESP3 has other types: maps in place of alternating keys and values, sets and doubles. Where the \
         reply has another structure, it follows after a line `RESP3:`. `...` stands for text that varies, a \
         line `...` for any number of lines. The tests run all examples.\n",
    );
    let is_empty =
        |group: &Group| table.commands().iter().all(|command| command.spec.group != *group);
    for group in Group::ALL.into_iter().filter(|group| !is_empty(group)) {
        let _ = write!(page, "\n## {}\n\n", group.title());
        page.push_str("| command | since | complexity | what it does |\n|---|---|---|---|\n");
        for command in table.commands().iter().filter(|command| command.spec.group == group) {
            if command.subcommands.is_empty() || command.spec.arity == -1 {
                row(&mut page, command);
            }
            let subs = command.subcommands.iter().filter(|sub| sub.spec.name != "help");
            subs.for_each(|sub| row(&mut page, sub));
        }
        let chapter = table.all().filter(|command| command.spec.group == group);
        chapter
            .filter(|command| !command.spec.example.is_empty())
            .for_each(|command| example(&mut page, command));
    }
    page
}

fn name(command: &Command) -> String {
    command.full_name.replace('|', " ").to_ascii_uppercase()
}

fn row(page: &mut String, command: &Command) {
    let spec = command.spec;
    let call = format!("{} {}", name(command), spec.syntax);
    // A bar would end the cell, even in code.
    let call = call.trim_end().replace('|', "\\|");
    let complexity = spec.complexity.replace('|', "\\|");
    let fast = if spec.flags.contains(Flags::FAST) { ", fast" } else { "" };
    let _ = writeln!(page, "| `{call}` | {} | {complexity}{fast} | {} |", spec.since, spec.summary);
}

fn example(page: &mut String, command: &Command) {
    let _ = write!(page, "\n### {}\n\n```text\n", name(command));
    for line in without_indent(command.spec.example) {
        let _ = writeln!(page, "{line}");
    }
    page.push_str("```\n");
}

/// The lines of a text in the source, without the indentation of the first one.
fn without_indent(text: &str) -> impl Iterator<Item = &str> {
    let text = text.trim_end().trim_start_matches('\n');
    let indent = text.len() - text.trim_start().len();
    text.lines().map(move |line| line.get(indent..).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::render;
    use crate::commands;

    #[test]
    fn page_is_up_to_date() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/commands.md");
        let page = render(&commands::table());
        if std::env::var_os("UPDATE_DOCS").is_some() {
            std::fs::write(path, &page).unwrap();
        }
        let written = std::fs::read_to_string(path).unwrap_or_default();
        assert!(written == page, "docs/commands.md is out of date; see its second line");
    }
}
