//! A running server.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::process::{Child, ExitStatus};

use rustix::process::{Pid, Resource, Rlimit, Signal, getrlimit, kill_process, setrlimit};

use crate::launch::{ERRORS, OUTPUT, end_of};
use crate::{Connection, TempDir, wait_until};

/// A server that ends with its owner.
///
/// If a thread of the server has panicked, the end of the owner is a panic, too: no test may pass
/// over a panic that no connection has noticed.
pub struct Server {
    child: Child,
    port: u16,
    dir: TempDir,
    ended: bool,
}

impl Server {
    /// Waits until a started server is as far as that; `None` when its port was taken.
    #[track_caller]
    pub(crate) fn wait_for(
        child: Child,
        port: u16,
        dir: TempDir,
        is_there: &dyn Fn(&Self) -> bool,
    ) -> Option<Self> {
        let mut server = Self { child, port, dir, ended: false };
        let mut status = None;
        wait_until("the server is ready", || {
            status = server.child.try_wait().expect("the state of a child");
            status.is_some() || is_there(&server)
        });
        let Some(status) = status else { return Some(server) };
        server.ended = true;
        let said = server.errors() + &server.output();
        assert!(said.contains("ddress already in use"), "ended at once ({status}): {said}");
        None
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, self.port).into()
    }

    /// The port that it listens on.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Its working directory and data directory.
    #[must_use]
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// A new connection.
    ///
    /// # Panics
    /// When the server does not accept it.
    #[must_use]
    #[track_caller]
    pub fn connect(&self) -> Connection {
        Connection::tcp(self.address())
    }

    /// A new connection that speaks RESP3.
    ///
    /// # Panics
    /// When the server does not accept it.
    #[must_use]
    #[track_caller]
    pub fn connect_resp3(&self) -> Connection {
        let mut connection = self.connect();
        connection.ask("HELLO 3");
        connection
    }

    /// Its process id.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Memory that it occupies, in bytes.
    ///
    /// # Panics
    /// When it is not running.
    #[must_use]
    pub fn resident_bytes(&self) -> usize {
        self.status_bytes("VmRSS:")
    }

    fn status_bytes(&self, field: &str) -> usize {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.pid()));
        let status = status.expect("a running server");
        let line = status.lines().find_map(|line| line.strip_prefix(field));
        let kib = line.expect(field).trim().trim_end_matches(" kB");
        kib.parse::<usize>().expect("a number") * 1024
    }

    /// The most memory that it has occupied so far, in bytes.
    ///
    /// # Panics
    /// When it is not running.
    #[must_use]
    pub fn peak_resident_bytes(&self) -> usize {
        self.status_bytes("VmHWM:")
    }

    /// Processor time that it has used, in clock ticks.
    ///
    /// # Panics
    /// When it is not running.
    #[must_use]
    pub fn cpu_ticks(&self) -> u64 {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.pid()));
        let stat = stat.expect("a running server");
        // The name in parentheses may contain anything; fields are counted from behind it, where
        // the state is the first, and user and system time are the 12th and 13th.
        let fields = stat.rsplit_once(") ").expect("the name").1.split(' ').skip(11).take(2);
        fields.map(|field| field.parse::<u64>().expect("a number")).sum()
    }

    /// Whether its end has not been seen yet.
    #[must_use]
    pub fn is_running(&self) -> bool {
        !self.ended
    }

    /// Sends it a signal.
    ///
    /// # Panics
    /// When it is not running.
    pub fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(self.pid() as i32).expect("a process id");
        kill_process(pid, signal).expect("a running server");
    }

    /// Waits for it to end by itself.
    ///
    /// # Panics
    /// When it does not.
    #[track_caller]
    pub fn wait_for_end(&mut self) -> ExitStatus {
        let status = end_of(&mut self.child);
        self.ended = true;
        status
    }

    /// What it wrote to standard output so far.
    #[must_use]
    pub fn output(&self) -> String {
        self.read(OUTPUT)
    }

    /// What it wrote to standard error so far.
    #[must_use]
    pub fn errors(&self) -> String {
        self.read(ERRORS)
    }

    fn read(&self, name: &str) -> String {
        let bytes = std::fs::read(self.dir().join(name)).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if !self.ended {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
        let said = self.errors();
        if std::thread::panicking() {
            eprintln!("--- the server said\n{}{said}---", self.output());
        } else {
            assert!(!said.contains("panicked at"), "the server has panicked: {said}");
        }
    }
}

/// Lets this process, and those that it starts, have as many open files as the system allows.
///
/// # Panics
/// When the system refuses what it says it allows.
pub fn allow_many_files() {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: limit.maximum, maximum: limit.maximum };
    setrlimit(Resource::Nofile, raised).expect("the limit that the system names");
}
