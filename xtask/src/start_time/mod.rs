//! Start time of servers with data in their logs.
//!
//! Both servers get the same requests. Tierce keeps its log as it was written, and a second Tierce compacts it.
//! redis-server rewrites its append-only file, which then begins with an RDB preamble. They are started in turns. The
//! results are the time until DBSIZE is answered, and the CPU time that the server used until then. The files have
//! just been read, so no disk is measured.

mod contents;
mod stopwatch;

use std::path::{Path, PathBuf};

use tierce_harness::{Launch, Server, TempDir};

use self::stopwatch::{Cost, Program, cost_of_start};
use crate::differential::release_build;

#[derive(clap::Args)]
pub(crate) struct Options {
    /// Number of requests that fill a server.
    #[arg(long, default_value_t = 5_000_000)]
    requests: usize,
    /// Contents of the logs: set, overwrite, collections.
    #[arg(long, value_delimiter = ',', default_value = "set,overwrite,collections")]
    contents: Vec<String>,
    /// Number of starts of each server.
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// The server to test. By default the release build of this workspace.
    #[arg(long)]
    program: Option<PathBuf>,
    /// The server to compare with.
    #[arg(long, default_value = "redis-server")]
    reference: PathBuf,
}

/// Rewriting of a log after everything is in it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Log {
    AsWritten,
    Rewritten,
}

pub(crate) fn run(options: &Options) -> Result<(), String> {
    let tierce = Program::tierce(options.program.clone().unwrap_or_else(release_build));
    let redis = Program::redis(options.reference.clone());
    println!("Medians of {} starts by turns, and all of them.\n", options.rounds);
    println!("| contents | server | seconds | of redis | CPU seconds | of redis | all, seconds |");
    println!("|---|---|--:|--:|--:|--:|---|");
    for contents in &options.contents {
        let subjects = [
            ("redis, rewritten", &redis, Log::Rewritten),
            ("tierce, as written", &tierce, Log::AsWritten),
            ("tierce, compacted", &tierce, Log::Rewritten),
        ];
        let dirs = subjects.each_ref().map(|_| TempDir::new());
        for ((_, program, log), dir) in subjects.iter().zip(&dirs) {
            fill(program, dir.path(), contents, options.requests, *log)?;
        }
        let mut costs = subjects.each_ref().map(|_| Vec::new());
        for _ in 0..options.rounds.max(1) {
            for (((_, program, _), dir), costs) in subjects.iter().zip(&dirs).zip(&mut costs) {
                costs.push(cost_of_start(program, dir.path()));
            }
        }
        let names = subjects.map(|(name, ..)| name);
        report(contents, &names, &costs);
    }
    Ok(())
}

fn fill(
    program: &Program,
    dir: &Path,
    contents: &str,
    requests: usize,
    log: Log,
) -> Result<(), String> {
    let server = launch(program, dir).start();
    contents::send(&mut server.connect(), contents, requests)?;
    if log == Log::Rewritten {
        rewrite(&server);
    }
    let mut server = server;
    // The connection may end before the reply comes.
    let _ = server.connect().try_send(b"SHUTDOWN\r\n");
    server.wait_for_end();
    Ok(())
}

fn launch(program: &Program, dir: &Path) -> Launch {
    let launch = Launch::new(&program.path).with("dir", &dir.display().to_string());
    program.directives().into_iter().fold(launch, |launch, (name, value)| launch.with(name, value))
}

fn rewrite(server: &Server) {
    let mut connection = server.connect();
    connection.ask("BGREWRITEAOF");
    loop {
        let info = connection.ask("INFO persistence").text().to_owned();
        let is = |line: &str| info.lines().any(|found| found.trim_end() == line);
        if is("aof_rewrite_in_progress:0") && is("aof_rewrite_scheduled:0") {
            assert!(is("aof_last_bgrewrite_status:ok"), "the log could not be rewritten");
            return;
        }
        // It takes seconds, and polling all the time would take part of the machine.
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
}

/// Prints the results. The first of the servers is the one that the others are compared with.
fn report(contents: &str, names: &[&str], costs: &[Vec<Cost>]) {
    let median_of = |costs: &[Cost], figure: fn(&Cost) -> f64| {
        let mut figures: Vec<f64> = costs.iter().map(figure).collect();
        figures.sort_by(f64::total_cmp);
        figures[figures.len() / 2]
    };
    let seconds = |costs: &[Cost]| median_of(costs, |cost| cost.seconds);
    let cpu = |costs: &[Cost]| median_of(costs, |cost| cost.cpu_seconds);
    for (name, of_server) in names.iter().zip(costs) {
        let all: Vec<_> = of_server.iter().map(|cost| format!("{:.2}", cost.seconds)).collect();
        println!(
            "| {contents} | {name} | {:.2} | {:.2} | {:.2} | {:.2} | {} |",
            seconds(of_server),
            seconds(of_server) / seconds(&costs[0]),
            cpu(of_server),
            cpu(of_server) / cpu(&costs[0]),
            all.join(" ")
        );
    }
}
