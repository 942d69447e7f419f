//! A running server.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::process::{Child, ExitStatus};

use rustix::process::{Pid, Resource, Rlimit, Signal, getrlimit, kill_process, setrlimit};

use crate::launch::{ERRORS, OUTPUT, end_of};
use crate::{Connection, TempDir, wait_until};

/// A server that ends with its owner.
///
/// If a thread of the server has panicked, dropping the owner panics too, so that no test passes
/// although no connection has noticed the panic.
pub struct Server {
    child: Child,
    port: u16,
    dir: TempDir,
    ended: bool,
}

impl Server {
    /// Waits until a started server satisfies the condition. Returns `None` if its port was taken.
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

    /// Returns the listening address.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, self.port).into()
    }

    /// Returns the listening port.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Returns its working directory and data directory.
    #[must_use]
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// Opens a connection.
    ///
    /// # Panics
    /// If the server does not accept it.
    #[must_use]
    #[track_caller]
    pub fn connect(&self) -> Connection {
        Connection::tcp(self.address())
    }

    /// Opens a connection that speaks RESP3.
    ///
    /// # Panics
    /// If the server does not accept it.
    #[must_use]
    #[track_caller]
    pub fn connect_resp3(&self) -> Connection {
        let mut connection = self.connect();
        connection.ask("HELLO 3");
        connection
    }

    /// Returns its process id.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Returns its resident memory in bytes.
    ///
    /// # Panics
    /// If it is not running.
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

    /// Returns its peak of resident memory in bytes.
    ///
    /// # Panics
    /// If it is not running.
    #[must_use]
    pub fn peak_resident_bytes(&self) -> usize {
        self.status_bytes("VmHWM:")
    }

    /// Returns its CPU time in clock ticks.
    ///
    /// # Panics
    /// If it is not running.
    #[must_use]
    pub fn cpu_ticks(&self) -> u64 {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.pid()));
        let stat = stat.expect("a running server");
        // The name in parentheses may contain anything, so fields are counted from after it. There,
        // the state is the first field, and user and system time are the 12th and 13th.
        let fields = stat.rsplit_once(") ").expect("the name").1.split(' ').skip(11).take(2);
        fields.map(|field| field.parse::<u64>().expect("a number")).sum()
    }

    /// Returns true until its end has been noticed.
    #[must_use]
    pub fn is_running(&self) -> bool {
        !self.ended
    }

    /// Sends it a signal.
    ///
    /// # Panics
    /// If it is not running.
    pub fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(self.pid() as i32).expect("a process id");
        kill_process(pid, signal).expect("a running server");
    }

    /// Waits until it ends on its own.
    ///
    /// # Panics
    /// If it does not end.
    #[track_caller]
    pub fn wait_for_end(&mut self) -> ExitStatus {
        let status = end_of(&mut self.child);
        self.ended = true;
        status
    }

    /// Returns its standard output so far.
    #[must_use]
    pub fn output(&self) -> String {
        self.read(OUTPUT)
    }

    /// Returns its standard error so far.
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

/// Raises this process' limit of open files, and its children's, to the system's maximum.
///
/// # Panics
/// If the system refuses its own maximum.
pub fn allow_many_files() {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: limit.maximum, maximum: limit.maximum };
    setrlimit(Resource::Nofile, raised).expect("the limit that the system names");
}
