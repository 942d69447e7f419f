//! The tools of the program: one table for the help, the man pages, the completions and the dispatch.

pub(crate) mod completions;
pub(crate) mod man;

use std::ffi::OsString;

use clap::{Arg, ArgAction, Args, Command, FromArgMatches};
use tierce_bench::{cli::BenchArgs, race::RaceArgs};
use tierce_config::{Directive, DirectiveId, Kind, Tool, Visibility};

#[cfg(feature = "bucket")]
use crate::bucket::BucketArgs;
use crate::doctor::DoctorArgs;
use crate::inspect::InspectArgs;
use crate::transfer::{ExportArgs, ImportArgs};
use crate::upkeep::{CheckArgs, RepairArgs};
use completions::CompletionsArgs;
use man::ManArgs;

/// Tools that `tierce NAME` runs instead of the server.
pub const TOOLS: &[Tool] = &[
    Tool { name: "bench", about: "Measure a server under load, or compare two." },
    Tool { name: "race", about: "Measure the storage engine against the disk it is on." },
    Tool { name: "check", about: "Verify every record on disk." },
    Tool { name: "repair", about: "Copy what is intact in a damaged store to a new one." },
    Tool {
        name: "import",
        about: "Import data from Redis, or lines of JSON, into a data directory.",
    },
    Tool { name: "export", about: "Export a data directory for Redis, or as lines of JSON." },
    Tool { name: "inspect", about: "Show the big and the hot keys of a running server." },
    Tool { name: "doctor", about: "Say what is wrong with this machine or configuration." },
    #[cfg(feature = "bucket")]
    Tool { name: "bucket", about: "Show, verify, prune, restore or branch a log in a bucket." },
    Tool { name: "man", about: "Print the man pages, or write them into a directory." },
    Tool { name: "completions", about: "Print the completions of a shell." },
];

/// Returns the command line of a tool, and an example.
fn row(name: &str) -> (Command, &'static str) {
    match name {
        "bench" => (args::<BenchArgs>(), "tierce bench -p 6379 -c 50 -P 16 -t get,set"),
        "race" => (args::<RaceArgs>(), "tierce race --dir /mnt/nvme/race"),
        "check" => (args::<CheckArgs>(), "tierce check /var/lib/tierce"),
        "repair" => {
            (args::<RepairArgs>(), "tierce repair /var/lib/tierce/wal /var/lib/repaired/wal")
        }
        "import" => {
            (args::<ImportArgs>(), "tierce import /var/lib/redis/dump.rdb --dir /var/lib/tierce")
        }
        "export" => (args::<ExportArgs>(), "tierce export dump.rdb --dir /var/lib/tierce"),
        "inspect" => (args::<InspectArgs>(), "tierce inspect --big -p 6379"),
        "doctor" => (args::<DoctorArgs>(), "tierce doctor /etc/tierce/tierce.conf"),
        #[cfg(feature = "bucket")]
        "bucket" => (args::<BucketArgs>(), "tierce bucket verify --bucket s3://my-bucket/orders"),
        "man" => (args::<ManArgs>(), "tierce man --into /usr/local/share/man"),
        _ => (args::<CompletionsArgs>(), "tierce completions bash > /etc/bash_completion.d/tierce"),
    }
}

fn args<A: Args>() -> Command {
    A::augment_args(Command::new("tool"))
}

/// Returns the command line of a tool, with its help.
pub fn command(tool: &Tool) -> Command {
    let (command, example) = row(tool.name);
    command.name(tool.name).max_term_width(80).after_help(format!("Example:\n  {example}"))
}

/// Parses the arguments of a tool. On a request for help or an error it prints the text and ends the program.
pub fn parse<A: Args + FromArgMatches>(name: &str, args: Vec<OsString>) -> A {
    let tool = TOOLS.iter().find(|tool| tool.name == name).expect("a tool of the table");
    let called = format!("tierce {name}");
    let command = command(tool).bin_name(&called).display_name(&called);
    // Some tools, like redis-benchmark, use -h for the host. Without a host, it means help.
    let args = if args == ["-h"] { vec!["--help".into()] } else { args };
    let words = std::iter::once(OsString::from(called)).chain(args);
    let matches = command.get_matches_from(words);
    A::from_arg_matches(&matches).unwrap_or_else(|error| error.exit())
}

/// Returns the program for clap's generators. The server's own command line is parsed by `tierce-config`.
pub fn program() -> Command {
    let flag = |name: &'static str, help: &'static str| {
        Arg::new(name).long(name).action(ArgAction::SetTrue).help(help)
    };
    Command::new("tierce")
        .version(tierce_server::VERSION)
        .about("a key-value server compatible with Redis and memcached")
        .disable_help_flag(true)
        .disable_version_flag(true)
        .disable_help_subcommand(true)
        .arg(
            Arg::new("FILE")
                .value_hint(clap::ValueHint::FilePath)
                .help("Configuration file, as redis.conf; - reads it from standard input"),
        )
        .arg(
            Arg::new("help")
                .short('h')
                .long("help")
                .num_args(0..=1)
                .value_name("DIRECTIVE")
                .help("Print help, or what is known about a directive"),
        )
        .arg(flag("help-directives", "Print all directives with their defaults"))
        .arg(
            Arg::new("check-config")
                .long("check-config")
                .num_args(0..=1)
                .value_name("FILE")
                .value_hint(clap::ValueHint::FilePath)
                .help("Read the configuration, say what is wrong with it, and end"),
        )
        .arg(flag("version", "Print the version").short('v'))
        .subcommands(TOOLS.iter().map(command))
}

/// Returns the program with an option for each directive.
pub fn program_with_directives() -> Command {
    DirectiveId::all()
        .map(DirectiveId::directive)
        .filter(|directive| directive.visibility == Visibility::Listed)
        .fold(program(), |program, directive| program.arg(option(directive)))
}

fn option(directive: &Directive) -> Arg {
    let arg = Arg::new(directive.name)
        .long(directive.name)
        .help(directive.about.replace('`', ""))
        .value_name("VALUE");
    match directive.kind {
        Kind::Bool => arg.value_parser(["yes", "no"]),
        Kind::Word(words) | Kind::Words(words) => {
            arg.value_parser(clap::builder::PossibleValuesParser::new(words))
        }
        Kind::Directory => arg.value_hint(clap::ValueHint::DirPath),
        _ => arg,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_line_is_consistent() {
        program_with_directives().debug_assert();
    }

    #[test]
    fn every_tool_has_its_help_and_an_example_that_parses() {
        for tool in TOOLS {
            let help = command(tool).bin_name(tool.name).render_long_help().to_string();
            let start = format!("Example:\n  tierce {} ", tool.name);
            let (_, example) = help.split_once(&start).unwrap_or_else(|| panic!("{help}"));
            let example = example.lines().next().unwrap_or_default();
            let words = example.split(" > ").next().unwrap_or_default().split(' ');
            let parsed = command(tool).try_get_matches_from(std::iter::once("tierce").chain(words));
            assert!(parsed.is_ok(), "{example}: {parsed:?}");
        }
    }

    #[test]
    fn every_directive_can_be_completed() {
        let program = program_with_directives();
        let has = |name: &str| program.get_arguments().any(|arg| arg.get_long() == Some(name));
        assert!(has("maxmemory") && has("appendfsync") && !has("key-load-delay"));
    }
}
