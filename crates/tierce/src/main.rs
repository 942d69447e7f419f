//! The `tierce` program: the server, and its tools as subcommands.

use std::error::Error;
use std::ffi::OsString;
use std::io::{self, Write};
use std::process::ExitCode;

use clap::Parser;
use mimalloc::MiMalloc;
use tierce_server::config::{self, Invocation, Loaded, Severity, Sources, Tool};

/// Chosen by measurement: it wastes little on entries of a few hundred bytes, is fast when another
/// thread frees, and needs nothing but a C compiler.
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

/// What `tierce NAME` runs instead of the server.
const TOOLS: [Tool; 1] =
    [Tool { name: "bench", about: "Load a server, or compare two, and report what it cost." }];

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("tierce: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<(), Box<dyn Error>> {
    match config::parse(std::env::args_os().skip(1), std::env::vars_os(), &TOOLS)? {
        Invocation::Serve(sources) => serve(&sources),
        Invocation::CheckConfig(sources) => {
            load(&sources)?;
            print("The configuration is valid.\n");
            Ok(())
        }
        Invocation::Help(text) | Invocation::Version(text) => {
            print(&text);
            Ok(())
        }
        Invocation::Tool { args, .. } => bench(args),
    }
}

fn serve(sources: &Sources) -> Result<(), Box<dyn Error>> {
    let loaded = load(sources)?;
    tierce_server::memory::on_purge(purge);
    Ok(tierce_server::run(loaded.settings)?)
}

/// Reads the configuration and tells the user what is odd about it.
fn load(sources: &Sources) -> Result<Loaded, Box<dyn Error>> {
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

/// The command line of `tierce bench`.
#[derive(Parser)]
#[command(name = "tierce bench")]
struct Bench {
    #[command(flatten)]
    args: tierce_bench::cli::BenchArgs,
}

fn bench(args: Vec<OsString>) -> Result<(), Box<dyn Error>> {
    let name = OsString::from("tierce bench");
    let bench = Bench::parse_from(std::iter::once(name).chain(args));
    Ok(tierce_bench::run(bench.args)?)
}

/// Prints to standard output; a reader that has gone away (`tierce --help | head`) is no error.
fn print(text: &str) {
    let _ = io::stdout().write_all(text.as_bytes());
}

/// Gives memory that was freed back to the system.
fn purge() {
    // SAFETY: the function has no preconditions and may be called from any thread at any time.
    unsafe { libmimalloc_sys::mi_collect(true) };
}
