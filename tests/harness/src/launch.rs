//! How a program is started.

use std::ffi::OsString;
use std::fs::File;
use std::net::{Ipv4Addr, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};

use crate::{Server, TempDir, free_port, wait_until};

/// Where the output of the program goes, inside of its directory.
pub(crate) const OUTPUT: &str = "output.txt";
pub(crate) const ERRORS: &str = "errors.txt";

/// Other processes may take a port between the look and the start.
const ATTEMPTS: usize = 5;

/// What to start, and with what.
///
/// The program gets a directory of its own as working directory and data directory, and is told
/// not to keep anything on disk.
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

/// How a program ended that was expected to end by itself.
#[derive(Debug)]
pub struct Outcome {
    /// Its exit code; `None` when a signal ended it.
    pub code: Option<i32>,
    /// What it wrote to standard output.
    pub output: String,
    /// What it wrote to standard error.
    pub errors: String,
}

impl Launch {
    /// A start of this program with nothing said.
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

    /// Leaves it to a file, or to the program, what is kept on disk. Else nothing is.
    #[must_use]
    pub fn keeping(mut self) -> Self {
        self.keeps_nothing = false;
        self
    }

    /// With this configuration file.
    #[must_use]
    pub fn file(mut self, path: impl Into<PathBuf>) -> Self {
        self.file = Some(path.into());
        self
    }

    /// On this port instead of any free one.
    #[must_use]
    pub fn on_port(mut self, port: u16) -> Self {
        self.port = Some(port);
        self
    }

    /// With this directive on the command line, after all earlier ones.
    #[must_use]
    pub fn with(mut self, directive: &str, value: &str) -> Self {
        self.directives.push((directive.to_owned(), value.to_owned()));
        self
    }

    /// With this argument on the command line, before the directives.
    #[must_use]
    pub fn argument(mut self, argument: impl Into<OsString>) -> Self {
        self.arguments.push(argument.into());
        self
    }

    /// With this variable in the environment.
    #[must_use]
    pub fn variable(mut self, name: &str, value: &str) -> Self {
        self.environment.push((name.to_owned(), value.to_owned()));
        self
    }

    /// With no more open files than this, and no right to more.
    #[must_use]
    pub fn files_max(mut self, files: u64) -> Self {
        self.files_max = Some(files);
        self
    }

    /// Starts a server on a free port of the loopback interface and waits until it is ready.
    ///
    /// # Panics
    /// When it does not.
    #[must_use]
    #[track_caller]
    pub fn start(&self) -> Server {
        // Asking over a connection would leave that one in the lists and counters of the server.
        self.start_until(|server| server.output().contains("Ready to accept connections"))
    }

    /// The same, but waits for no more than that connections can be made: data may still be loading.
    ///
    /// # Panics
    /// When it ends.
    #[must_use]
    #[track_caller]
    pub fn start_loading(&self) -> Server {
        // Other protocols have ports of their own, which are opened later.
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
            // Said first, so that a test may say something else.
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

    /// Runs the program with nothing but what was said, until it ends.
    ///
    /// # Panics
    /// When it does not end.
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

/// Waits for the end of a process, and ends it if it does not come.
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
