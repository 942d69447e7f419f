//! Runs all tests of the workspace, and each failed one twice more, alone.
//!
//! A test that then passes both times depends on luck. It is listed as `flaky` and does not fail the run; its cause
//! should be fixed in the next change. `cargo test --workspace` runs the same programs one after the other and does
//! not repeat failed tests. Here the programs share the processors, because most tests of the server spend most of
//! their time waiting.

mod build;
mod program;

use std::collections::VecDeque;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::Instant;

use self::build::Program;
pub use self::build::cargo;
use self::program::Outcome;

/// Number of repetitions of a failed test, alone.
const SECOND_LOOKS: u32 = 2;

/// Number of programs that run at the same time.
const LANES: usize = 2;

/// The folder for the output of each test program.
const OUTPUT: &str = "target/test-output";

#[derive(clap::Args)]
pub struct Options {
    /// Only test programs whose names contain one of these, such as `tierce-cask` or `tierce/program`
    #[arg(long, num_args = 1..)]
    only: Vec<String>,
    /// Only tests whose names contain one of these
    filter: Vec<String>,
    /// Threads of each test program
    #[arg(long, default_value_t = 3)]
    threads: usize,
    /// Number of runs of everything
    #[arg(long, default_value_t = 1)]
    rounds: u32,
    /// No repetition: any failure fails the run
    #[arg(long)]
    strict: bool,
    /// Write the flaky tests, with their output, to this file
    #[arg(long)]
    flaky: Option<PathBuf>,
    /// Leave out the tests in the documentation
    #[arg(long)]
    no_doc: bool,
}

/// A test that did not pass at once.
struct Failed {
    program: Program,
    test: String,
    output: String,
}

pub fn run(options: &Options) -> Result<(), String> {
    let programs = build::programs(&[], &options.only)?;
    fs::create_dir_all(OUTPUT).map_err(|error| format!("{OUTPUT}: {error}"))?;
    let (mut passed, mut broken, mut flaky) = (0, Vec::new(), Vec::new());
    for round in 1..=options.rounds {
        if options.rounds > 1 {
            println!("== round {round} of {}", options.rounds);
        }
        let (ok, failed) = run_all(&programs, &options.filter, options.threads);
        passed += ok;
        for failed in failed {
            if !options.strict && passes_alone(&failed) {
                flaky.push(failed);
            } else {
                broken.push(failed);
            }
        }
        if !broken.is_empty() {
            break;
        }
    }
    if !options.no_doc && options.only.is_empty() && options.filter.is_empty() {
        documentation_tests()?;
    }
    report(&broken, &flaky, options.flaky.as_deref())?;
    println!("{} passed, {} failed", passed + flaky.len(), broken.len());
    if broken.is_empty() { Ok(()) } else { Err(format!("{} tests failed", broken.len())) }
}

/// Runs the unit tests of these packages.
pub fn unit_tests(packages: &[String]) -> Result<(), String> {
    let programs = build::programs(&["--lib", "--bins"], packages)?;
    let (passed, failed) = run_all(&programs, &[], 2);
    report(&failed, &[], None)?;
    println!("{passed} passed, {} failed", failed.len());
    if failed.is_empty() { Ok(()) } else { Err("unit tests failed".to_owned()) }
}

/// Runs all programs, the slowest first. Returns the number of passed tests, and the failed ones.
fn run_all(programs: &[Program], filter: &[String], threads: usize) -> (usize, Vec<Failed>) {
    let queue = Mutex::new(programs.iter().collect::<VecDeque<_>>());
    let results = Mutex::new((0, Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..LANES {
            scope.spawn(|| {
                loop {
                    let Some(program) = queue.lock().expect("no panic").pop_front() else { return };
                    let began = Instant::now();
                    let outcome = program::run(program, filter, threads);
                    note(program, &outcome, began);
                    let mut results = results.lock().expect("no panic");
                    results.0 += outcome.passed;
                    results.1.extend(outcome.failed.into_iter().map(|(test, output)| Failed {
                        program: program.clone(),
                        test,
                        output,
                    }));
                }
            });
        }
    });
    results.into_inner().expect("no panic")
}

fn note(program: &Program, outcome: &Outcome, began: Instant) {
    let name = &program.name;
    let (passed, failed) = (outcome.passed, outcome.failed.len());
    println!("{name}: {passed} passed, {failed} failed, {:.0} s", began.elapsed().as_secs_f64());
    outcome.failed.iter().for_each(|(test, _)| println!("{name} {test}: failed"));
    let file = format!("{OUTPUT}/{}.txt", name.replace('/', "-"));
    if let Err(error) = fs::write(&file, &outcome.output) {
        println!("{file}: {error}");
    }
}

fn passes_alone(failed: &Failed) -> bool {
    (1..=SECOND_LOOKS).all(|look| {
        let passes = program::run_alone(&failed.program, &failed.test);
        let result = if passes { "passed" } else { "failed" };
        println!("{} {}: {result} alone, look {look}", failed.program.name, failed.test);
        passes
    })
}

fn documentation_tests() -> Result<(), String> {
    let status = cargo()
        .args(["test", "--workspace", "--locked", "--doc", "--quiet"])
        .status()
        .map_err(|error| format!("cargo: {error}"))?;
    if status.success() { Ok(()) } else { Err("a test in the documentation failed".to_owned()) }
}

fn report(broken: &[Failed], flaky: &[Failed], file: Option<&Path>) -> Result<(), String> {
    let text = |kind: &str, failed: &Failed| {
        let Failed { program, test, output } = failed;
        format!("{kind}: {} {test}\n{output}\n", program.name)
    };
    let flaky: String = flaky.iter().map(|failed| text("flaky", failed)).collect();
    print!("{flaky}");
    for failed in broken {
        print!("{}", text("failed", failed));
    }
    let Some(file) = file else { return Ok(()) };
    fs::write(file, flaky).map_err(|error| format!("{}: {error}", file.display()))
}
