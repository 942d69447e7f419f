//! The two servers of a comparison: started here, or already running.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{self, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use tierce_client::Tls;
use tierce_wire::resp::Proto;

use super::pair::Pair;
use super::reaper::{Child, Reaper};
use crate::cli::{CompareArgs, Encrypted};
use crate::cpu::{self, Process};
use crate::error::Error;
use crate::protocol::Protocol;
use crate::target::{Address, Target};

/// Time limit for the first answer of a started server.
const START_TIMEOUT: Duration = Duration::from_secs(30);
const START_POLL: Duration = Duration::from_millis(20);

/// Length of the end of a failed server's output that is shown.
const OUTPUT_SHOWN_LEN: usize = 2000;

const PORT_PLACEHOLDER: &str = "{port}";

/// A server of the comparison.
#[derive(Clone, Debug)]
pub(crate) struct Contender {
    /// Name in tables.
    pub(crate) label: String,
    source: Source,
    resp_version: Proto,
    protocol: Protocol,
    tls: Option<Tls>,
}

#[derive(Clone, Debug)]
enum Source {
    Command { line: String, words: Vec<String> },
    Address(SocketAddr),
}

/// A server that runs and answers.
#[derive(Debug)]
pub(crate) struct Server {
    pub(crate) target: Target,
    /// Absent if it runs elsewhere, or if this user may not read its data.
    pub(crate) process: Option<Process>,
    /// Kills the server at the end, if it was started here.
    _child: Option<Child>,
}

impl Server {
    /// Returns the process of a server that was started here.
    pub(super) fn own_process(&self) -> &Process {
        self.process.as_ref().expect("a server that was started here has a process")
    }
}

impl Contender {
    /// Makes both contenders of a command line.
    pub(crate) fn both(args: &CompareArgs) -> Result<Pair<Self>, Error> {
        let resp_version = if args.resp3 { Proto::Resp3 } else { Proto::Resp2 };
        let mut both = Pair { a: (&args.a, args.a_addr), b: (&args.b, args.b_addr) }.try_map(
            |(line, address)| Self::new(line.as_deref(), address, resp_version, args.load.protocol),
        )?;
        if args.tls != Encrypted::None {
            let tls = args.tls_files.resolve()?;
            both.a.tls = (args.tls != Encrypted::B).then(|| tls.clone());
            both.b.tls = (args.tls != Encrypted::A).then_some(tls);
        }
        if both.a.label == both.b.label {
            both.a.label.push_str(" A");
            both.b.label.push_str(" B");
        }
        Ok(both)
    }

    /// Makes a contender from its command line or its address, one of which is given.
    pub(crate) fn new(
        line: Option<&str>,
        address: Option<SocketAddr>,
        resp_version: Proto,
        protocol: Protocol,
    ) -> Result<Self, Error> {
        let source = match (line, address) {
            (Some(line), _) => Source::command(line)?,
            (None, Some(address)) => Source::Address(address),
            (None, None) => return Err(Error::Usage("a server is missing".into())),
        };
        Ok(Self { label: source.label(), source, resp_version, protocol, tls: None })
    }

    /// Returns true if it is reached over encrypted connections.
    pub(crate) fn is_encrypted(&self) -> bool {
        self.tls.is_some()
    }

    /// Returns the command line or address, as the user gave it.
    pub(crate) fn origin(&self) -> String {
        match &self.source {
            Source::Command { line, .. } => line.clone(),
            Source::Address(address) => address.to_string(),
        }
    }

    /// Fails for a server that only runs somewhere, because the workload needs an empty one.
    pub(crate) fn require_fresh(&self, workload: &str) -> Result<(), Error> {
        match self.source {
            Source::Command { .. } => Ok(()),
            Source::Address(address) => Err(Error::Usage(format!(
                "workload {workload} starts fresh servers: give a command instead of {address}"
            ))),
        }
    }

    /// Starts the server or uses the running one, and waits until it answers.
    pub(crate) fn start(&self, reaper: &Reaper) -> Result<Server, Error> {
        match &self.source {
            Source::Command { line, words } => self.start_command(line, words, reaper),
            Source::Address(address) => {
                let target = self.target(address.ip().to_string(), address.port());
                target.serves(self.protocol)?;
                let local = address.ip().is_loopback();
                let process = local.then(|| cpu::listener(address.port())).flatten();
                Ok(Server { target, process, _child: None })
            }
        }
    }

    fn start_command(
        &self,
        line: &str,
        words: &[String],
        reaper: &Reaper,
    ) -> Result<Server, Error> {
        let failed = |reason: String| Error::Server { command: line.to_owned(), reason };
        let port = free_port()?;
        let directory = working_directory()?;
        let log = directory.join("output");
        let output = File::create(&log).map_err(Error::io("creating a server's log"))?;
        let errors = output.try_clone().map_err(Error::io("sharing a server's log"))?;
        let words: Vec<String> =
            words.iter().map(|word| word.replace(PORT_PLACEHOLDER, &port.to_string())).collect();
        let mut command = Command::new(program(&words[0]));
        command.args(&words[1..]).stdin(Stdio::null()).stdout(output).stderr(errors);
        let mut child = reaper
            .spawn(&mut command, directory)
            .map_err(|error| failed(format!("cannot be started: {error}")))?;
        let target = self.target("127.0.0.1".into(), port);
        await_answer(&target, self.protocol, &mut child, &log).map_err(failed)?;
        let process = cpu::listener(port).unwrap_or_else(|| Process::new(child.pid()));
        Ok(Server { target, process: Some(process), _child: Some(child) })
    }

    fn target(&self, host: String, port: u16) -> Target {
        Target {
            address: Address::Tcp { host, port },
            user: None,
            password: None,
            database: 0,
            resp_version: self.resp_version,
            tls: self.tls.clone(),
        }
    }
}

impl Source {
    fn command(line: &str) -> Result<Self, Error> {
        let words = tierce_wire::words::split(line.as_bytes())
            .map_err(|error| Error::Usage(format!("{line:?}: {error}")))?;
        let words: Vec<_> =
            words.iter().map(|word| String::from_utf8_lossy(word).into_owned()).collect();
        if !words.iter().skip(1).any(|word| word.contains(PORT_PLACEHOLDER)) {
            let message =
                format!("{line:?} does not say {PORT_PLACEHOLDER} after a program's name");
            return Err(Error::Usage(message));
        }
        Ok(Self::Command { line: line.to_owned(), words })
    }

    fn label(&self) -> String {
        match self {
            Self::Command { words, .. } => Path::new(&words[0])
                .file_name()
                .map_or_else(|| words[0].clone(), |name| name.to_string_lossy().into_owned()),
            Self::Address(address) => address.to_string(),
        }
    }
}

/// Waits until the server answers. The error is the reason for the message.
fn await_answer(
    target: &Target,
    protocol: Protocol,
    child: &mut Child,
    log: &Path,
) -> Result<(), String> {
    let deadline = Instant::now() + START_TIMEOUT;
    loop {
        if let Some(status) = child.exited() {
            return Err(format!("ended with {status}\n{}", end_of(log)));
        }
        let answer = target.serves(protocol);
        match answer {
            Ok(()) => return Ok(()),
            Err(error) if Instant::now() >= deadline => {
                let waited = START_TIMEOUT.as_secs();
                return Err(format!("no answer in {waited} s: {error}\n{}", end_of(log)));
            }
            Err(_) => thread::sleep(START_POLL),
        }
    }
}

fn end_of(log: &Path) -> String {
    let output = fs::read(log).unwrap_or_default();
    let start = output.len().saturating_sub(OUTPUT_SHOWN_LEN);
    String::from_utf8_lossy(&output[start..]).trim().to_owned()
}

/// Returns a port that is free now, a different one each time: the system may offer a port again before a server
/// listens on it. Another program may take it first. Then the server reports that.
pub(crate) fn free_port() -> Result<u16, Error> {
    static GIVEN: Mutex<BTreeSet<u16>> = Mutex::new(BTreeSet::new());
    loop {
        let port = TcpListener::bind(("127.0.0.1", 0)).and_then(|listener| listener.local_addr());
        let port = port.map_err(Error::io("looking for a free port"))?.port();
        if GIVEN.lock().unwrap_or_else(PoisonError::into_inner).insert(port) {
            return Ok(port);
        }
    }
}

/// Creates a new directory for each server, so that it finds no files of an earlier one.
fn working_directory() -> Result<PathBuf, Error> {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let path = std::env::temp_dir().join(format!("tierce-bench-{}-{number}", process::id()));
    fs::create_dir(&path).map_err(Error::io("creating a server's directory"))?;
    Ok(path)
}

/// Makes a path absolute, because the server starts in another directory. A name without a slash is looked up in PATH.
fn program(word: &str) -> PathBuf {
    if word.contains('/') {
        std::path::absolute(word).unwrap_or_else(|_| word.into())
    } else {
        word.into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn contender(line: &str) -> Result<Contender, Error> {
        Contender::new(Some(line), None, Proto::Resp2, Protocol::Resp)
    }

    #[test]
    fn a_command_must_be_told_its_port() {
        let wrong = contender("redis-server --port 7000").unwrap_err().to_string();
        assert!(wrong.contains("{port}"), "{wrong}");
        assert_eq!(contender("/usr/bin/redis-server --port {port}").unwrap().label, "redis-server");
    }

    #[test]
    fn a_server_that_does_not_start_shows_its_last_words() {
        let reaper = Reaper::new().unwrap();
        let broken = contender("sh -c 'echo no port {port} for me; exit 3'").unwrap();
        let error = broken.start(&reaper).unwrap_err().to_string();
        assert!(error.contains("for me") && error.contains("exit status: 3"), "{error}");
        let absent = contender("/nonexistent/server {port}").unwrap();
        let error = absent.start(&reaper).unwrap_err().to_string();
        assert!(error.contains("cannot be started"), "{error}");
    }
}
