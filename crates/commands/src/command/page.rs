//! The pages of `docs/commands/`, one for each group of commands and an index, made from the table.

use std::fmt::Write as _;

use super::{Command, Flags, Group, Table};

/// A page: the name of its file in `docs/commands/`, and its text.
struct Page {
    file: String,
    text: String,
}

/// The index of all commands of `table`, and the page of each group that has any.
fn render(table: &Table) -> Vec<Page> {
    let groups = Group::ALL.into_iter().filter(|&group| of_group(table, group).next().is_some());
    let groups: Vec<Group> = groups.collect();
    let index = Page { file: "README.md".to_owned(), text: index(table, &groups) };
    let pages = groups.iter().map(|&group| Page { file: file(group), text: page(table, group) });
    std::iter::once(index).chain(pages).collect()
}

fn file(group: Group) -> String {
    format!("{}.md", group.name())
}

/// The commands of a group, and their subcommands in place of commands that do nothing by themselves.
fn of_group(table: &Table, group: Group) -> impl Iterator<Item = &Command> {
    let commands = table.commands().iter().filter(move |command| command.spec.group == group);
    commands.flat_map(|command| {
        let is_called = command.subcommands.is_empty() || command.spec.arity == -1;
        let subcommands = command.subcommands.iter().filter(|sub| sub.spec.name != "help");
        is_called.then_some(command).into_iter().chain(subcommands)
    })
}

fn index(table: &Table, groups: &[Group]) -> String {
    let mut page = String::from(
        "# Commands\n\n\
         These pages are generated from the command table by `UPDATE_DOCS=1 cargo test -p tierce-commands page`; do \
         not edit them by hand. Commands behave as in Redis 7.2. [Differences](../differences.md) lists the exceptions.\n\n\
         `since` is the version of Redis that introduced the command, or the version of Tierce for a command that \
         only Tierce has.\n\n\
         Each example starts with an empty database and shows the replies as redis-cli prints them in RESP2. RESP3 \
         has more types, such as maps, sets and doubles. If the structure of a reply differs in RESP3, it follows \
         after a line `RESP3:`. `...` stands for text that varies, a line `...` for any number of lines. The tests \
         run all examples.\n",
    );
    for &group in groups {
        let _ = write!(page, "\n## [{}]({})\n\n", group.title(), file(group));
        let names = of_group(table, group).map(|command| {
            if command.spec.example.is_empty() {
                return name(command);
            }
            let anchor = name(command).to_lowercase().replace(' ', "-");
            format!("[{}]({}#{anchor})", name(command), file(group))
        });
        let _ = writeln!(page, "{}", names.collect::<Vec<_>>().join(", "));
    }
    page
}

fn page(table: &Table, group: Group) -> String {
    let mut page = format!("# {}\n\n[All commands](README.md)\n\n", group.title());
    page.push_str("| command | since | complexity | what it does |\n|---|---|---|---|\n");
    of_group(table, group).for_each(|command| row(&mut page, command));
    let commands = table.all().filter(|command| command.spec.group == group);
    commands
        .filter(|command| !command.spec.example.is_empty())
        .for_each(|command| example(&mut page, command));
    page
}

fn name(command: &Command) -> String {
    command.full_name.replace('|', " ").to_ascii_uppercase()
}

fn row(page: &mut String, command: &Command) {
    let spec = command.spec;
    let call = format!("{} {}", name(command), spec.syntax);
    // A bar would end the cell, even within code.
    let call = call.trim_end().replace('|', "\\|");
    let complexity = spec.complexity.replace('|', "\\|");
    let fast = if spec.flags.contains(Flags::FAST) { ", fast" } else { "" };
    let _ = writeln!(page, "| `{call}` | {} | {complexity}{fast} | {} |", spec.since, spec.summary);
}

fn example(page: &mut String, command: &Command) {
    let _ = write!(page, "\n## {}\n\n```text\n", name(command));
    for line in without_indent(command.spec.example) {
        let _ = writeln!(page, "{line}");
    }
    page.push_str("```\n");
}

/// Returns the lines of a text in the source, without the indentation of the first one.
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
    fn pages_are_up_to_date() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/commands");
        for page in render(&commands::table()) {
            let path = format!("{folder}/{}", page.file);
            if std::env::var_os("UPDATE_DOCS").is_some() {
                std::fs::write(&path, &page.text).unwrap();
            }
            let written = std::fs::read_to_string(&path).unwrap_or_default();
            assert!(written == page.text, "{path} is out of date: see docs/commands/README.md");
        }
        let files = std::fs::read_dir(folder).unwrap().count();
        assert_eq!(files, render(&commands::table()).len(), "pages of no group in {folder}");
    }
}
