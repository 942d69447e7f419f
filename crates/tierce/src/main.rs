//! The `tierce` program: the server, and its tools as subcommands.

mod allocator;
mod background;
#[cfg(feature = "bucket")]
mod bucket;
mod console;
mod doctor;
mod in_use;
mod inspect;
mod secrets;
mod tools;
mod transfer;
mod upkeep;

use std::error::Error;
use std::ffi::OsString;
use std::io::{self, Write};
use std::process::ExitCode;

use background::{Background, Side};
use tierce_config::{ConfigError, Invocation, Loaded, Severity, Sources};
use tierce_engine::log::Colour;
use tierce_server::Ended;

use tools::{TOOLS, parse};

#[global_allocator]
static ALLOCATOR: allocator::Allocator = allocator::Allocator;

fn main() -> ExitCode {
    allocator::configure();
    // The program writes its users' data: files get the mode 0600, directories 0700.
    rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o077));
    match run() {
        Ok(code) => code,
        Err(error) => {
            for line in error.to_string().lines() {
                eprintln!("tierce: {}", Colour::Red.paint(line, &io::stderr()));
            }
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<ExitCode, Box<dyn Error>> {
    match tierce_config::parse(std::env::args_os().skip(1), std::env::vars_os(), TOOLS)? {
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
        "doctor" => return Ok(parse::<doctor::DoctorArgs>(name, args).run()),
        #[cfg(feature = "bucket")]
        "bucket" => return Ok(parse::<bucket::BucketArgs>(name, args).run()),
        "man" => return Ok(parse::<tools::man::ManArgs>(name, args).run()?),
        "completions" => parse::<tools::completions::CompletionsArgs>(name, args).run(),
        _ => tierce_bench::run(parse(name, args))?,
    }
    Ok(ExitCode::SUCCESS)
}

fn serve(sources: &Sources) -> Result<ExitCode, Box<dyn Error>> {
    let loaded = load(sources).inspect_err(tierce_server::log_refusal)?;
    in_use::await_end_of_use(&loaded.settings.dir());
    let mut background = None;
    if tierce_server::wants_background(&loaded.settings) {
        match background::detach()? {
            Side::Server(side) => background = Some(side),
            Side::Launcher(outcome) => return Ok(outcome),
        }
    }
    tierce_engine::memory::on_purge(allocator::collect);
    let ready = || background.map_or((), Background::ready);
    Ok(match tierce_server::run(loaded, &mut console::Console::new(), ready)? {
        Ended::AsTold => ExitCode::SUCCESS,
        // A failure makes a supervisor restart the server.
        Ended::Succeeded => ExitCode::FAILURE,
    })
}

/// Reads the configuration and prints its warnings.
fn load(sources: &Sources) -> Result<Loaded, ConfigError> {
    let loaded = sources.load(&mut io::stdin())?;
    for note in &loaded.notes {
        let (label, colour) = match note.severity() {
            Severity::Warning => ("warning", Colour::Yellow),
            Severity::Notice => ("note", Colour::Bold),
        };
        eprintln!("tierce: {}: {note}", colour.paint(label, &io::stderr()));
    }
    Ok(loaded)
}

/// Prints to standard output. A closed reader (`tierce --help | head`) is not an error.
fn print(text: &str) {
    let _ = io::stdout().write_all(text.as_bytes());
}
