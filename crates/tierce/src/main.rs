//! The `tierce` program: the server, and its tools as subcommands.

mod allocator;
mod background;
mod inspect;
mod secrets;
mod shown;
mod transfer;
mod upkeep;

use std::error::Error;
use std::ffi::OsString;
use std::io::{self, Write};
use std::process::ExitCode;

use background::{Background, Side};
use clap::{Args, Parser};
use tierce_config::{ConfigError, Invocation, Loaded, Severity, Sources, Tool};

#[global_allocator]
static ALLOCATOR: allocator::Allocator = allocator::Allocator;

/// What `tierce NAME` runs instead of the server.
const TOOLS: [Tool; 7] = [
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
];

fn main() -> ExitCode {
    allocator::configure();
    // What the program writes holds its users' data: files are for their owner alone, 0600, and directories 0700.
    rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o077));
    match run() {
        Ok(code) => code,
        Err(error) => {
            for line in error.to_string().lines() {
                eprintln!("tierce: {line}");
            }
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<ExitCode, Box<dyn Error>> {
    match tierce_config::parse(std::env::args_os().skip(1), std::env::vars_os(), &TOOLS)? {
        Invocation::Serve(sources) => {
            secrets::hide(&sources);
            return serve(&sources);
        }
        Invocation::CheckConfig(sources) => {
            let loaded = load(&sources)?;
            tierce_server::check_access(&loaded.settings)?;
            tierce_server::check_tls(&loaded.settings)?;
            print("The configuration is valid.\n");
        }
        Invocation::Help(text) | Invocation::Version(text) => {
            print(&text);
        }
        Invocation::Tool { name, args } => return run_tool(name, args),
    }
    Ok(ExitCode::SUCCESS)
}

fn run_tool(name: &str, args: Vec<OsString>) -> Result<ExitCode, Box<dyn Error>> {
    match name {
        "race" => tierce_bench::race::run(&parse(name, args))?,
        "check" => return Ok(parse::<upkeep::CheckArgs>(name, args).run()),
        "import" => return Ok(parse::<transfer::ImportArgs>(name, args).run()),
        "export" => return Ok(parse::<transfer::ExportArgs>(name, args).run()),
        "inspect" => return Ok(parse::<inspect::InspectArgs>(name, args).run()),
        "repair" => return Ok(parse::<upkeep::RepairArgs>(name, args).run()),
        _ => tierce_bench::run(parse(name, args))?,
    }
    Ok(ExitCode::SUCCESS)
}

// The command line of a tool, whose help is that of its arguments: so this is no doc comment.
#[derive(Parser)]
struct CommandLine<A: Args> {
    #[command(flatten)]
    args: A,
}

/// Parses what follows the name of a tool, or prints help or what is wrong, and ends the program.
fn parse<A: Args>(tool: &str, args: Vec<OsString>) -> A {
    let name = OsString::from(format!("tierce {tool}"));
    CommandLine::parse_from(std::iter::once(name).chain(args)).args
}

fn serve(sources: &Sources) -> Result<ExitCode, Box<dyn Error>> {
    let loaded = load(sources).inspect_err(tierce_server::log_refusal)?;
    let mut background = None;
    if tierce_server::wants_background(&loaded.settings) {
        match background::detach()? {
            Side::Server(side) => background = Some(side),
            Side::Launcher(outcome) => return Ok(outcome),
        }
    }
    tierce_engine::memory::on_purge(allocator::collect);
    tierce_server::run(loaded, || background.map_or((), Background::ready))?;
    Ok(ExitCode::SUCCESS)
}

/// Reads the configuration and tells the user what is odd about it.
fn load(sources: &Sources) -> Result<Loaded, ConfigError> {
    let loaded = sources.load(&mut io::stdin())?;
    for note in &loaded.notes {
        let label = match note.severity() {
            Severity::Warning => "warning",
            Severity::Notice => "note",
        };
        eprintln!("tierce: {label}: {note}");
    }
    Ok(loaded)
}

/// Prints to standard output; a reader that has gone away (`tierce --help | head`) is no error.
fn print(text: &str) {
    let _ = io::stdout().write_all(text.as_bytes());
}
