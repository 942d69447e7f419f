//! The `tierce` program: the server, and its tools as subcommands.

use std::io::{self, IsTerminal, Write};
use std::process::ExitCode;

use mimalloc::MiMalloc;
use tierce_server::config::{self, Invocation, Severity, Sources, Tool};

/// Chosen by measurement: of the allocators tried it wastes least on entries of a few hundred
/// bytes, and it needs nothing but a C compiler.
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

const TOOLS: &[Tool] =
    &[Tool { name: "bench", about: "Load a server, or two in turn, and measure them" }];

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("tierce: {message}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<(), String> {
    let args = std::env::args_os().skip(1);
    match config::parse(args, std::env::vars_os(), TOOLS).map_err(|error| error.to_string())? {
        Invocation::Serve(sources) => {
            let settings = load(&sources)?.settings;
            tierce_server::memory::on_purge(purge);
            tierce_server::run(settings).map_err(|error| error.to_string())
        }
        Invocation::CheckConfig(sources) => {
            load(&sources)?;
            print("configuration is valid\n");
            Ok(())
        }
        Invocation::Help(text) | Invocation::Version(text) => {
            print(&text);
            Ok(())
        }
        Invocation::Tool { args, .. } => Err(format!("bench: {args:?} not yet")),
    }
}

fn load(sources: &Sources) -> Result<config::Loaded, String> {
    let loaded = sources.load(&mut io::stdin().lock()).map_err(|error| error.to_string())?;
    for note in &loaded.notes {
        let severity = match note.severity() {
            Severity::Warning => "warning",
            Severity::Notice => "note",
        };
        eprintln!("tierce: {severity}: {note}");
    }
    Ok(loaded)
}

/// A reader that goes away early is no error.
fn print(text: &str) {
    let mut stdout = io::stdout();
    let _ = stdout.write_all(text.as_bytes());
    if stdout.is_terminal() && !text.ends_with('\n') {
        let _ = stdout.write_all(b"\n");
    }
}

/// Gives memory that was freed back to the system.
fn purge() {
    // SAFETY: the call has no preconditions; it may come from any thread at any time.
    unsafe { libmimalloc_sys::mi_collect(true) };
}
