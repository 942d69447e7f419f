//! Runs one test program and reads its output.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader, PipeReader};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

use tierce_harness::effort;

use super::build::Program;

/// A test reports when it has run for 60 s. Tests of the server then end on their own, at the line where they wait.
/// Any other one is killed after this time, times the effort, after the stacks of its threads were printed.
const PAST_LIMIT: Duration = Duration::from_secs(180);

const LOOK: Duration = Duration::from_secs(1);

/// The results of a test program.
#[derive(Default)]
pub struct Outcome {
    pub passed: usize,
    /// The tests that failed, with their output.
    pub failed: Vec<(String, String)>,
    pub output: String,
}

/// One run of a test program's process.
#[derive(Default)]
struct Life {
    output: String,
    passed: BTreeSet<String>,
    failed: BTreeSet<String>,
    ignored: BTreeSet<String>,
    /// Tests that have reported that they run long, with the time of the report.
    long: BTreeMap<String, Instant>,
    hung: Option<String>,
}

/// Runs the matching tests until all have a result. If a test ends the process, another process runs the rest.
pub fn run(program: &Program, filter: &[String], threads: usize) -> Outcome {
    let all = match list(program, filter) {
        Ok(all) => all,
        Err(error) => {
            return Outcome { failed: vec![("--list".to_owned(), error)], ..Default::default() };
        }
    };
    let mut outcome = Outcome::default();
    let mut rest = all;
    while !rest.is_empty() {
        let mut life = live(program, &rest, threads);
        let before = rest.len();
        rest.retain(|name| {
            ![&life.passed, &life.failed, &life.ignored].iter().any(|names| names.contains(name))
        });
        if rest.len() == before && life.hung.is_none() {
            // There is not one result: the program itself is at fault.
            life.failed.extend(std::mem::take(&mut rest));
        }
        if let Some(hung) = life.hung.take() {
            rest.retain(|name| *name != hung);
            life.failed.insert(hung);
        }
        outcome.passed += life.passed.len();
        for name in &life.failed {
            outcome.failed.push((name.clone(), said_by(&life.output, name)));
        }
        outcome.output += &life.output;
    }
    outcome
}

/// Returns `true` if a test passes in its own process.
pub fn run_alone(program: &Program, test: &str) -> bool {
    live(program, &[test.to_owned()], 1).passed.contains(test)
}

/// Returns the names of the matching tests.
fn list(program: &Program, filter: &[String]) -> Result<Vec<String>, String> {
    let output = command(program)
        .args(["--list", "--format", "terse"])
        .args(filter)
        .output()
        .map_err(|error| format!("{}: {error}", program.executable.display()))?;
    let text = String::from_utf8_lossy(&output.stdout);
    Ok(text.lines().filter_map(|line| line.strip_suffix(": test")).map(str::to_owned).collect())
}

fn command(program: &Program) -> Command {
    let mut command = Command::new(&program.executable);
    command.current_dir(&program.dir).stdin(Stdio::null());
    command
}

/// Starts the program with these tests and reads its output until it ends.
fn live(program: &Program, tests: &[String], threads: usize) -> Life {
    let (reader, writer) = std::io::pipe().expect("a pipe");
    let mut command = command(program);
    command.arg("--exact").args(tests).args(["--test-threads", &threads.to_string()]);
    command.stdout(writer.try_clone().expect("a descriptor")).stderr(writer);
    let mut child = command.spawn().expect("a program that was just built");
    // The command keeps the write ends open, and the reader would wait for them.
    drop(command);
    let life = listen(&mut child, reader);
    child.wait().expect("a child");
    life
}

fn listen(child: &mut Child, reader: PipeReader) -> Life {
    let (sender, lines) = mpsc::channel();
    std::thread::spawn(move || {
        let mut reader = BufReader::new(reader);
        let mut line = Vec::new();
        while reader.read_until(b'\n', &mut line).is_ok_and(|len| len > 0) {
            if sender.send(String::from_utf8_lossy(&line).into_owned()).is_err() {
                return;
            }
            line.clear();
        }
    });
    let (mut life, limit) = (Life::default(), PAST_LIMIT * effort(1));
    loop {
        match lines.recv_timeout(LOOK) {
            Ok(line) => life.note(&line),
            Err(RecvTimeoutError::Disconnected) => return life,
            Err(RecvTimeoutError::Timeout) => {}
        }
        let hung = life.long.iter().find(|(_, since)| since.elapsed() > limit);
        if let Some(name) = hung.map(|(name, _)| name.clone()) {
            life.output += &format!("test {name} hung; its threads:\n{}", threads_of(child.id()));
            life.hung = Some(name);
            child.kill().expect("a child");
            return life;
        }
    }
}

impl Life {
    fn note(&mut self, line: &str) {
        self.output += line;
        let Some(said) = line.trim_end().strip_prefix("test ") else { return };
        if let Some(name) = said.strip_suffix(" has been running for over 60 seconds") {
            self.long.insert(name.to_owned(), Instant::now());
            return;
        }
        let Some((name, result)) = said.split_once(" ... ") else { return };
        let name = name.trim_end_matches(" - should panic").to_owned();
        self.long.remove(&name);
        match result {
            "ok" => self.passed.insert(name),
            "FAILED" => self.failed.insert(name),
            _ if result.starts_with("ignored") => self.ignored.insert(name),
            _ => false,
        };
    }
}

/// Returns the stacks of all threads of a process, if there is a debugger.
fn threads_of(pid: u32) -> String {
    let output = Command::new("gdb")
        .args(["-p", &pid.to_string(), "-batch", "-ex", "thread apply all backtrace 30"])
        .output();
    match output {
        Ok(output) => String::from_utf8_lossy(&output.stdout).into_owned(),
        Err(error) => format!("(unknown: gdb: {error})\n"),
    }
}

/// Returns the output of a failed test, or the end of all output if the program ended during it.
fn said_by(output: &str, test: &str) -> String {
    const END_LEN: usize = 20_000;
    let head = format!("---- {test} stdout ----");
    if let Some((_, rest)) = output.split_once(&head) {
        let end = rest.find("\n---- ").or_else(|| rest.find("\nfailures:\n")).unwrap_or(rest.len());
        return rest[..end].to_owned();
    }
    let mut from = output.len().saturating_sub(END_LEN);
    while !output.is_char_boundary(from) {
        from += 1;
    }
    output[from..].to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_are_read_from_the_lines_of_a_program() {
        let mut life = Life::default();
        for line in [
            "test expiry::a_key_expires ... ok\n",
            "test expiry::broken ... FAILED\n",
            "test later ... ignored, too slow\n",
            "test panics - should panic ... ok\n",
            "test slow has been running for over 60 seconds\n",
            "test stuck has been running for over 60 seconds\n",
            "test slow ... ok\n",
            "testimony\n",
        ] {
            life.note(line);
        }
        assert_eq!(
            life.passed.iter().collect::<Vec<_>>(),
            ["expiry::a_key_expires", "panics", "slow"]
        );
        assert_eq!(life.failed.iter().collect::<Vec<_>>(), ["expiry::broken"]);
        assert_eq!(life.ignored.iter().collect::<Vec<_>>(), ["later"]);
        assert_eq!(life.long.keys().collect::<Vec<_>>(), ["stuck"]);
    }

    #[test]
    fn the_output_of_a_failed_test_is_found() {
        let output = "---- a stdout ----\nwrong\n\n---- b stdout ----\nworse\n\nfailures:\n    a\n";
        assert_eq!(said_by(output, "a"), "\nwrong\n");
        assert_eq!(said_by(output, "b"), "\nworse\n");
        assert!(said_by(output, "c").ends_with("    a\n"));
    }
}
