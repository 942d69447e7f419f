//! `tierce man`: the man pages, made from the tables of tools and directives.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use clap_mangen::Man;
use clap_mangen::roff::{Inline, Roff, bold, italic, roman};
use tierce_config::table::{FILE_LINES, Handling};
use tierce_config::{Directive, DirectiveId, Effect, Group, Mutability, Visibility};

use crate::tools::{self, TOOLS};
use crate::upkeep::print;

/// Print a man page, or write all of them into a directory.
///
/// There are tierce(1), a page for each tool such as tierce-bench(1), and tierce.conf(5) with all directives.
#[derive(Args, Debug)]
pub struct ManArgs {
    /// Name of the page, or of a tool
    #[arg(default_value = "tierce", conflicts_with = "into")]
    page: String,
    /// Write all pages into the folders man1 and man5 of this directory
    #[arg(long, value_name = "DIR", value_hint = clap::ValueHint::DirPath)]
    into: Option<PathBuf>,
}

/// A page: `name(section)`.
struct Page {
    name: String,
    section: u8,
    /// Text in troff.
    text: String,
}

impl ManArgs {
    /// Prints or writes the pages.
    pub fn run(&self) -> io::Result<ExitCode> {
        let pages = pages()?;
        if let Some(dir) = &self.into {
            write(dir, &pages)?;
            return Ok(ExitCode::SUCCESS);
        }
        let of_tool = format!("tierce-{}", self.page);
        let is_meant = |page: &&Page| page.name == self.page || page.name == of_tool;
        let Some(page) = pages.iter().find(is_meant) else {
            let names: Vec<_> = pages.iter().map(|page| page.name.as_str()).collect();
            eprintln!("tierce man: no page {}; there are: {}", self.page, names.join(", "));
            return Ok(ExitCode::FAILURE);
        };
        print(&page.text);
        Ok(ExitCode::SUCCESS)
    }
}

fn write(dir: &Path, pages: &[Page]) -> io::Result<()> {
    for Page { name, section, text } in pages {
        let folder = dir.join(format!("man{section}"));
        let path = folder.join(format!("{name}.{section}"));
        let explain = |error: io::Error| {
            io::Error::new(error.kind(), format!("cannot write {}: {error}", path.display()))
        };
        fs::create_dir_all(&folder).map_err(explain)?;
        fs::write(&path, text).map_err(explain)?;
    }
    Ok(())
}

fn pages() -> io::Result<Vec<Page>> {
    let mut pages = vec![of_the_program()?, of_the_configuration()];
    for tool in TOOLS {
        let name = format!("tierce-{}", tool.name);
        let command =
            tools::command(tool).name(name.clone()).bin_name(format!("tierce {}", tool.name));
        for action in command.get_subcommands() {
            let name = format!("{name}-{}", action.get_name());
            let called = format!("tierce {} {}", tool.name, action.get_name());
            pages.push(of_a_command(name.clone(), action.clone().name(name).bin_name(called))?);
        }
        pages.push(of_a_command(name, command)?);
    }
    Ok(pages)
}

fn of_a_command(name: String, command: clap::Command) -> io::Result<Page> {
    let mut text = Vec::new();
    let synopsis = synopsis(&command);
    man(command).render(&mut text)?;
    let text = String::from_utf8_lossy(&text).replace('`', "");
    // Fix clap's sections: its synopsis lacks the values of options, and it names the example "extra".
    let text = text.replace(".SH EXTRA\nExample:\n", ".SH EXAMPLES\n");
    let (before, rest) = text.split_once(".SH SYNOPSIS\n").unwrap_or((&text, ""));
    let (_, after) = rest.split_once('\n').unwrap_or_default();
    Ok(Page { name, section: 1, text: format!("{before}.SH SYNOPSIS\n{synopsis}{after}") })
}

/// Returns the synopsis of a tool, with the values of its options.
fn synopsis(command: &clap::Command) -> String {
    let called = command.get_bin_name().unwrap_or_else(|| command.get_name());
    let mut line = vec![bold(called)];
    for arg in command.get_arguments().filter(|arg| !arg.is_hide_set()) {
        let (open, close) = if arg.is_required_set() { (" ", "") } else { (" [", "]") };
        line.push(roman(open));
        match (arg.get_short(), arg.get_long()) {
            (Some(short), _) => line.push(bold(format!("-{short}"))),
            (None, Some(long)) => line.push(bold(format!("--{long}"))),
            (None, None) => {}
        }
        let blank = if arg.is_positional() { "" } else { " " };
        let takes_values = arg.get_action().takes_values();
        for value in arg.get_value_names().unwrap_or_default().iter().filter(|_| takes_values) {
            line.extend([roman(blank), italic(value.as_str())]);
        }
        line.push(roman(close));
    }
    if command.has_subcommands() {
        line.extend([roman(" ["), italic("COMMAND"), roman("]")]);
    }
    let mut roff = Roff::new();
    roff.text(line);
    roff.to_roff()
}

fn man(command: clap::Command) -> Man {
    let source = format!("Tierce {}", tierce_server::VERSION);
    Man::new(command.disable_help_subcommand(true)).source(source).manual("Tierce")
}

fn of_the_program() -> io::Result<Page> {
    let mut text = Vec::new();
    let man = man(tools::program());
    man.render_title(&mut text)?;
    man.render_name_section(&mut text)?;
    let mut roff = Roff::new();
    roff.control("SH", ["SYNOPSIS"]);
    roff.text([bold("tierce"), roman(" [FILE | -] [--DIRECTIVE VALUE...]...")]);
    roff.control("br", []);
    roff.text([bold("tierce "), italic("TOOL"), roman(" [OPTION...]")]);
    section(
        &mut roff,
        "DESCRIPTION",
        &[
            "Without the name of a tool, tierce is the server. It reads a configuration file like that of Redis, then the \
         options of the command line, then variables of the environment such as TIERCE_PORT; later ones win. All \
         directives are in tierce.conf(5). Without any, it serves port 6379 of this machine and keeps its data in \
         ./tierce-data.",
        ],
    );
    roff.to_writer(&mut text)?;
    man.render_options_section(&mut text)?;
    man.render_subcommands_section(&mut text)?;
    let mut roff = Roff::new();
    section(
        &mut roff,
        "SIGNALS",
        &[
            "SIGTERM and SIGINT end the server: it sends the last replies, and saves if that is configured. A SIGINT \
         behind that ends it at once. SIGHUP opens the log file again.",
        ],
    );
    section(
        &mut roff,
        "EXIT STATUS",
        &["0 after a clean end, 1 if the server cannot start. Each tool's page has its own."],
    );
    roff.control("SH", ["EXAMPLES"]);
    for example in
        ["tierce /etc/redis/redis.conf", "tierce --port 7000 --maxmemory 2gb", "tierce doctor"]
    {
        roff.control("TP", []);
        roff.text([bold(example)]);
    }
    let tools: Vec<_> = TOOLS.iter().map(|tool| format!("tierce-{}(1)", tool.name)).collect();
    let tools = tools.join(", ");
    section(&mut roff, "SEE ALSO", &[&format!("tierce.conf(5), {tools}")]);
    roff.to_writer(&mut text)?;
    let text = String::from_utf8_lossy(&text).into_owned();
    Ok(Page { name: "tierce".into(), section: 1, text })
}

fn section(roff: &mut Roff, title: &str, paragraphs: &[&str]) {
    roff.control("SH", [title]);
    for paragraph in paragraphs {
        roff.text([roman(*paragraph)]);
    }
}

fn of_the_configuration() -> Page {
    let mut roff = Roff::new();
    let source = format!("Tierce {}", tierce_server::VERSION);
    roff.control("TH", ["tierce.conf", "5", "", &source, "Tierce"]);
    section(&mut roff, "NAME", &["tierce.conf - configuration of the Tierce server"]);
    section(
        &mut roff,
        "DESCRIPTION",
        &[
            "A line has a directive and its value; # begins a comment. A file of Redis has the same meaning. Each directive is \
         also an option (--port 7000) and a variable (TIERCE_PORT=7000). A number of bytes may have a unit: k, m, g are \
         powers of 1000, kb, mb, gb powers of 1024. tierce --check-config FILE checks a file.",
        ],
    );
    for group in Group::ALL {
        roff.control("SH", [group.title().to_uppercase().as_str()]);
        let listed = DirectiveId::all().map(DirectiveId::directive).filter(|directive| {
            directive.group == group && directive.visibility == Visibility::Listed
        });
        listed.for_each(|directive| describe(&mut roff, directive));
    }
    roff.control("SH", ["OTHER LINES"]);
    for line in &FILE_LINES {
        roff.control("TP", []);
        roff.text([bold(line.name)]);
        let refused = match line.handling {
            Handling::Refuse(why) => format!(" Refused: {why}."),
            _ => String::new(),
        };
        roff.text([roman(plain(line.about) + &refused)]);
    }
    section(&mut roff, "SEE ALSO", &["tierce(1), tierce-doctor(1)"]);
    Page { name: "tierce.conf".into(), section: 5, text: roff.to_roff() }
}

fn describe(roff: &mut Roff, directive: &Directive) {
    let default = if directive.default.is_empty() { "\"\"" } else { directive.default };
    roff.control("TP", []);
    let head: [Inline; 4] = [
        bold(directive.name),
        roman(" "),
        italic(directive.kind.describe()),
        roman(format!(" [{default}]")),
    ];
    roff.text(head);
    let mut about = plain(directive.about);
    match directive.effect {
        Effect::Acts => {}
        Effect::Accepted(reason) => {
            about += &format!(" Accepted without effect: {}", plain(reason));
        }
        Effect::Refused { why, .. } => {
            about += &format!(" Other values are refused: {}.", plain(why));
        }
    }
    if matches!(directive.mutability, Mutability::BeforeStart | Mutability::ForOneStart) {
        about += " Cannot be changed at run time.";
    }
    if let Some(alias) = directive.alias {
        about += &format!(" Formerly {alias}.");
    }
    roff.text([roman(about)]);
}

/// Removes Markdown markup.
fn plain(text: &str) -> String {
    text.replace('`', "").replace("[acl.md](acl.md)", "docs/acl.md")
}

#[cfg(test)]
mod tests {
    use super::*;
    use tierce_harness::TempDir;

    #[test]
    fn there_is_a_page_for_each_tool_and_all_directives() {
        let pages = pages().unwrap();
        let find = |name: &str| pages.iter().find(|page| page.name == name).expect("a page");
        for tool in TOOLS {
            let page = &find(&format!("tierce-{}", tool.name)).text;
            assert!(
                page.contains(".SH OPTIONS")
                    && page.contains(".SH EXAMPLES")
                    && !page.contains('`'),
                "{page}"
            );
            let reference = format!("tierce\\-{}(1)", tool.name);
            assert!(find("tierce").text.contains(&reference), "{reference}");
        }
        let configuration = &find("tierce.conf").text;
        for directive in DirectiveId::all().map(DirectiveId::directive) {
            let name = format!("\\fB{}\\fR", directive.name.replace('-', "\\-"));
            let is_listed = directive.visibility == Visibility::Listed;
            assert_eq!(configuration.contains(&name), is_listed, "{name}");
        }
        assert!(!configuration.contains('`'));
    }

    #[test]
    fn pages_are_written_where_man_looks_for_them() {
        let dir = TempDir::new();
        write(dir.path(), &pages().unwrap()).unwrap();
        for path in ["man1/tierce.1", "man1/tierce-check.1", "man5/tierce.conf.5"] {
            assert!(dir.path().join(path).is_file(), "{path}");
        }
    }
}
