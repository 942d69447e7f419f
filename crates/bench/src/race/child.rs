//! Runs a phase in its own process.
//!
//! The program starts itself with the same subcommand and `--child JOB`. The job is JSON, and so is each line that
//! the child writes to standard output. Standard error is shared.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{self, Command, Stdio};
use std::time::Duration;

use rustix::process::Signal;
use serde::{Deserialize, Serialize};

use super::error::RaceError;
use super::phase::{self, Outcome, Phase};
use super::plan::Plan;
use super::writer;

/// Job of the process.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(super) struct Job {
    pub(super) task: Task,
    pub(super) plan: Plan,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub(super) enum Task {
    Phase(Phase),
    /// Writes until killed.
    WriteOn,
}

/// Message of the process.
#[derive(Clone, Debug, Deserialize, Serialize)]
enum Message {
    Progress { done: u64, seconds: f64 },
    Outcome(Outcome),
    Failed(String),
}

/// Work done at one moment of a phase.
#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
pub(super) struct Sample {
    pub(super) seconds: f64,
    pub(super) done: u64,
}

pub(super) fn start(job: &Job) -> Result<process::Child, RaceError> {
    let text = serde_json::to_string(job)
        .map_err(|_| RaceError::Usage("the directory's name must be UTF-8".into()))?;
    let program =
        std::env::current_exe().map_err(RaceError::io("find", Path::new("/proc/self/exe")))?;
    Command::new(&program)
        .args(["race", "--child", &text])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(RaceError::io("start", &program))
}

/// Runs a phase in a new process and returns its result.
pub(super) fn run(
    plan: &Plan,
    phase: Phase,
    mut tell: impl FnMut(Sample),
) -> Result<Outcome, RaceError> {
    let failed = |reason: String| RaceError::Phase { phase: phase.name().to_owned(), reason };
    let mut child = start(&Job { task: Task::Phase(phase), plan: plan.clone() })?;
    let output = BufReader::new(child.stdout.take().expect("a pipe was asked for"));
    let (mut outcome, mut failure) = (None, None);
    for line in output.lines() {
        let message = line.ok().and_then(|line| serde_json::from_str(&line).ok());
        match message {
            Some(Message::Progress { done, seconds }) => tell(Sample { seconds, done }),
            Some(Message::Outcome(it)) => outcome = Some(it),
            Some(Message::Failed(reason)) => failure = Some(reason),
            None => failure = failure.or(Some("said what is no message".into())),
        }
    }
    let status = child.wait().map_err(RaceError::io("wait for", Path::new("a child process")))?;
    match (failure, outcome) {
        (Some(reason), _) => Err(failed(reason)),
        (None, Some(outcome)) if status.success() => Ok(outcome),
        _ => Err(failed(format!("the run is void: the process ended early ({status})"))),
    }
}

/// Runs the job of this process and reports on standard output.
pub(super) fn serve(job: &str) -> Result<(), RaceError> {
    // If the race is ended, no writer may continue to run.
    let _ = rustix::process::set_parent_process_death_signal(Some(Signal::KILL));
    let job: Job = serde_json::from_str(job)
        .map_err(|error| RaceError::Usage(format!("--child is for internal use: {error}")))?;
    let phase = match job.task {
        Task::WriteOn => return writer::write_on(&job.plan),
        Task::Phase(phase) => phase,
    };
    let tell = |done, time: Duration| say(&Message::Progress { done, seconds: time.as_secs_f64() });
    match phase::run(&job.plan, phase, tell) {
        Ok(outcome) => say(&Message::Outcome(outcome)),
        Err(error) => say(&Message::Failed(error.to_string())),
    }
    Ok(())
}

fn say(message: &Message) {
    let mut line = serde_json::to_string(message).expect("numbers and text have a form in JSON");
    line.push('\n');
    // Without a reader the write fails; then the signal above ends the process.
    let _ = std::io::stdout().lock().write_all(line.as_bytes());
}
