//! The load generator as a program of its own: `cargo run --release --example bench -- --help`.

use std::process::ExitCode;

use clap::Parser;

#[derive(Parser)]
#[command(name = "bench", disable_help_flag = true, disable_help_subcommand = true)]
struct Program {
    #[command(flatten)]
    bench: tierce_bench::cli::BenchArgs,
}

fn main() -> ExitCode {
    match tierce_bench::run(Program::parse().bench) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("bench: {error}");
            ExitCode::FAILURE
        }
    }
}
