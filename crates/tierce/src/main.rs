//! The `tierce` program: the server, and its tools as subcommands.

use std::io::{self, Write};
use std::process::ExitCode;

use tierce_server::config::{self, ConfigError, Invocation, Note, Severity, Sources, Tool};

/// What `tierce NAME` runs instead of the server.
const TOOLS: [Tool; 1] = [Tool { name: "bench", about: "Load a server and measure it." }];

fn main() -> ExitCode {
    run().unwrap_or_else(|error| {
        eprintln!("tierce: {error}");
        ExitCode::FAILURE
    })
}

fn run() -> Result<ExitCode, ConfigError> {
    match config::parse(std::env::args_os().skip(1), std::env::vars_os(), &TOOLS)? {
        Invocation::Serve(sources) => serve(&sources),
        Invocation::CheckConfig(sources) => check_config(&sources),
        Invocation::Help(text) | Invocation::Version(text) => {
            print(&text);
            Ok(ExitCode::SUCCESS)
        }
        Invocation::Tool { name, args: _ } => {
            eprintln!("tierce: {name} is not built yet");
            Ok(ExitCode::FAILURE)
        }
    }
}

fn serve(sources: &Sources) -> Result<ExitCode, ConfigError> {
    let loaded = sources.load(&mut io::stdin())?;
    report(&loaded.notes);
    eprintln!("tierce: the server is not built yet");
    Ok(ExitCode::FAILURE)
}

fn check_config(sources: &Sources) -> Result<ExitCode, ConfigError> {
    let loaded = sources.load(&mut io::stdin())?;
    report(&loaded.notes);
    print("The configuration is valid.\n");
    Ok(ExitCode::SUCCESS)
}

fn report(notes: &[Note]) {
    for note in notes {
        let label = match note.severity() {
            Severity::Warning => "warning",
            Severity::Notice => "note",
        };
        eprintln!("{label}: {note}");
    }
}

/// Prints to standard output; a reader that has gone away (`tierce --help | head`) is no error.
fn print(text: &str) {
    let _ = io::stdout().write_all(text.as_bytes());
}
