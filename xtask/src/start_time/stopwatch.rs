//! Measures one start.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use tierce_harness::free_port;

/// Time between two polls: short compared with a start, and long compared with an answer.
const PAUSE: Duration = Duration::from_millis(5);

/// Time limit of a start.
const PATIENCE: Duration = Duration::from_secs(600);

/// A server to start, with directives that keep everything in its log until a rewrite is requested.
pub(super) struct Program {
    pub(super) path: PathBuf,
    own_directives: &'static [(&'static str, &'static str)],
}

impl Program {
    pub(super) fn tierce(path: PathBuf) -> Self {
        Self { path, own_directives: &[("compaction-bytes-per-second", "0")] }
    }

    pub(super) fn redis(path: PathBuf) -> Self {
        Self { path, own_directives: &[("daemonize", "no"), ("aof-use-rdb-preamble", "yes")] }
    }

    pub(super) fn directives(&self) -> Vec<(&'static str, &'static str)> {
        let common = [
            ("appendonly", "yes"),
            ("appendfsync", "no"),
            ("save", ""),
            ("auto-aof-rewrite-percentage", "0"),
        ];
        common.into_iter().chain(self.own_directives.iter().copied()).collect()
    }
}

/// Cost of a start.
pub(super) struct Cost {
    pub(super) seconds: f64,
    pub(super) cpu_seconds: f64,
}

/// Starts a server with the data in `dir`, and ends it when it is ready. Only the start itself changes `dir`.
pub(super) fn cost_of_start(program: &Program, dir: &Path) -> Cost {
    let port = free_port();
    let mut command = Command::new(&program.path);
    command.args(["--port", &port.to_string(), "--dir", &dir.display().to_string()]);
    for (name, value) in program.directives() {
        command.arg(format!("--{name}")).arg(value);
    }
    command.current_dir(dir).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let begun = Instant::now();
    let mut server = EndsWithOwner(command.spawn().expect("a server that can be started"));
    while !is_ready(port) {
        let ended = server.0.try_wait().expect("the state of a child");
        assert!(ended.is_none(), "the server ended: {ended:?}");
        assert!(begun.elapsed() < PATIENCE, "waited {PATIENCE:?} in vain for a start");
        sleep(PAUSE);
    }
    Cost { seconds: begun.elapsed().as_secs_f64(), cpu_seconds: cpu_seconds(server.0.id()) }
}

/// Returns true if the server replies with a number of keys. While it loads, it replies LOADING.
fn is_ready(port: u16) -> bool {
    let Ok(mut stream) = TcpStream::connect(("127.0.0.1", port)) else { return false };
    let mut reply = [0; 1];
    stream.write_all(b"DBSIZE\r\n").is_ok()
        && stream.read_exact(&mut reply).is_ok()
        && &reply == b":"
}

fn cpu_seconds(pid: u32) -> f64 {
    /// Number of clock ticks a second. On Linux it is 100 on all machines.
    const TICKS: f64 = 100.0;
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).expect("a running server");
    let fields = stat.rsplit_once(") ").expect("the name").1.split(' ').skip(11).take(2);
    fields.map(|ticks| ticks.parse::<f64>().expect("a number")).sum::<f64>() / TICKS
}

struct EndsWithOwner(Child);

impl Drop for EndsWithOwner {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
