//! The start of a program.

use std::ffi::OsString;
use std::fs::File;
use std::net::{Ipv4Addr, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};

use crate::{Server, TempDir, free_port, wait_until};

/// File for the output of the program, inside of its directory.
pub(crate) const OUTPUT: &str = "output.txt";
pub(crate) const ERRORS: &str = "errors.txt";

/// Maximum number of attempts. Another process may take a free port before the program does.
const ATTEMPTS: usize = 5;

/// A program to start, with its arguments.
///
/// The program gets its own directory as working directory and data directory, and is configured to keep nothing on
/// disk.
#[derive(Clone, Debug)]
pub struct Launch {
    program: PathBuf,
    port: Option<u16>,
    file: Option<PathBuf>,
    directives: Vec<(String, String)>,
    arguments: Vec<OsString>,
    environment: Vec<(String, String)>,
    files_max: Option<u64>,
    keeps_nothing: bool,
}

/// Outcome of a program that ended on its own, as expected.
#[derive(Debug)]
pub struct Outcome {
    /// Exit code; `None` if a signal ended it.
    pub code: Option<i32>,
    /// Standard output.
    pub output: String,
    /// Standard error.
    pub errors: String,
}

impl Launch {
    /// Makes a launch of this program with defaults.
    pub fn new(program: impl Into<PathBuf>) -> Self {
        Self {
            program: program.into(),
            port: None,
            file: None,
            directives: Vec::new(),
            arguments: Vec::new(),
            environment: Vec::new(),
            files_max: None,
            keeps_nothing: true,
        }
    }

    /// Leaves persistence to a file or to the program's defaults. Otherwise nothing is kept on disk.
    #[must_use]
    pub fn keeping(mut self) -> Self {
        self.keeps_nothing = false;
        self
    }

    /// Adds this configuration file.
    #[must_use]
    pub fn file(mut self, path: impl Into<PathBuf>) -> Self {
        self.file = Some(path.into());
        self
    }

    /// Uses this port instead of any free one.
    #[must_use]
    pub fn on_port(mut self, port: u16) -> Self {
        self.port = Some(port);
        self
    }

    /// Adds this directive to the command line, after all earlier ones.
    #[must_use]
    pub fn with(mut self, directive: &str, value: &str) -> Self {
        self.directives.push((directive.to_owned(), value.to_owned()));
        self
    }

    /// Adds this argument to the command line, before the directives.
    #[must_use]
    pub fn argument(mut self, argument: impl Into<OsString>) -> Self {
        self.arguments.push(argument.into());
        self
    }

    /// Adds this variable to the environment.
    #[must_use]
    pub fn variable(mut self, name: &str, value: &str) -> Self {
        self.environment.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Limits the number of open files, without the right to raise the limit.
    #[must_use]
    pub fn files_max(mut self, files: u64) -> Self {
        self.files_max = Some(files);
        self
    }

    /// Starts a server on a free port of the loopback interface and waits until it is ready.
    ///
    /// # Panics
    /// If it does not become ready.
    #[must_use]
    #[track_caller]
    pub fn start(&self) -> Server {
        // A connection to ask the server would appear in its lists and counters.
        self.start_until(|server| server.output().contains("Ready to accept connections"))
    }

    /// Starts a server and waits only until it accepts connections: data may still be loading.
    ///
    /// # Panics
    /// If it ends.
    #[must_use]
    #[track_caller]
    pub fn start_loading(&self) -> Server {
        // Other protocols have their own ports, which are opened later.
        let is_port = |name: &str| matches!(name, "memcached-port" | "pedrokv-port" | "http-port");
        let others = self.directives.iter().filter(|(name, _)| is_port(name));
        let ports: Vec<u16> = others.filter_map(|(_, port)| port.parse().ok()).collect();
        self.start_until(|server| {
            let opened = |port: &u16| TcpStream::connect((Ipv4Addr::LOCALHOST, *port)).is_ok();
            TcpStream::connect(server.address()).is_ok() && ports.iter().all(opened)
        })
    }

    #[track_caller]
    fn start_until(&self, is_there: impl Fn(&Server) -> bool) -> Server {
        for _ in 0..ATTEMPTS {
            let port = self.port.unwrap_or_else(free_port);
            let dir = TempDir::new();
            // These come first, so that a test may override them.
            let mut arguments =
                vec![("port", port.to_string()), ("dir", dir.path().display().to_string())];
            if self.keeps_nothing {
                arguments.extend([("save", String::new()), ("appendonly", "no".to_owned())]);
            }
            let own = self.directives.iter().map(|(name, value)| (name.as_str(), value.clone()));
            arguments.extend(own);
            let child = self.spawn(&dir, arguments);
            if let Some(server) = Server::wait_for(child, port, dir, &is_there) {
                return server;
            }
        }
        panic!("{ATTEMPTS} ports in a row were taken");
    }

    /// Runs the program with only the given arguments, until it ends.
    ///
    /// # Panics
    /// If it does not end.
    #[must_use]
    #[track_caller]
    pub fn run(&self) -> Outcome {
        let dir = TempDir::new();
        let own = self.directives.iter().map(|(name, value)| (name.as_str(), value.clone()));
        let mut child = self.spawn(&dir, own.collect());
        let status = end_of(&mut child);
        let read = |name| std::fs::read(dir.path().join(name)).expect("the output");
        let text = |name| String::from_utf8_lossy(&read(name)).into_owned();
        Outcome { code: status.code(), output: text(OUTPUT), errors: text(ERRORS) }
    }

    fn spawn(&self, dir: &TempDir, directives: Vec<(&str, String)>) -> Child {
        let file = |name| File::create(dir.path().join(name)).expect("a file for the output");
        let mut command = match self.files_max {
            Some(files) => {
                let mut shell = Command::new("sh");
                shell.args(["-c", &format!("ulimit -n {files}; exec \"$0\" \"$@\"")]);
                shell.arg(&self.program);
                shell
            }
            None => Command::new(&self.program),
        };
        command.args(&self.file).args(&self.arguments);
        for (name, value) in directives {
            command.arg(format!("--{name}")).arg(value);
        }
        command
            .current_dir(dir.path())
            .envs(self.environment.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::null())
            .stdout(file(OUTPUT))
            .stderr(file(ERRORS))
            .spawn()
            .unwrap_or_else(|error| panic!("{}: {error}", self.program.display()))
    }
}

/// Waits for the end of a process, and kills it after the time limit.
#[track_caller]
pub(crate) fn end_of(child: &mut Child) -> ExitStatus {
    struct KillOnPanic<'a>(&'a mut Child);
    impl Drop for KillOnPanic<'_> {
        fn drop(&mut self) {
            if std::thread::panicking() {
                let _ = self.0.kill();
                let _ = self.0.wait();
            }
        }
    }
    let guard = KillOnPanic(child);
    let mut status = None;
    wait_until("the program ends", || {
        status = guard.0.try_wait().expect("the state of a child");
        status.is_some()
    });
    status.expect("an ended program")
}
