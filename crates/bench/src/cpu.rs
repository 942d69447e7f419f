//! The cost of a process: CPU time and resident memory, from `/proc`.
//!
//! CPU time comes from the scheduler's account of every thread (`/proc/PID/task/TID/schedstat`, nanoseconds). If the
//! kernel has none, or threads ended during the measurement and their accounts with them, it comes from `utime +
//! stime` of `/proc/PID/stat`. That includes ended threads, but in ticks of 10 ms. Every result names its source.
//!
//! Both include kernel time on behalf of the process, but not work that other processes do for it. In a loopback
//! transfer, the sender is charged for the receiving half.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Serialize;

use crate::error::Error;

/// Schedstat counts as incomplete if the ticks exceed it by more than this.
const TICKS_EXCESS_MAX: Duration = Duration::from_millis(50);

/// A running process.
#[derive(Clone, Debug)]
pub(crate) struct Process {
    pid: u32,
    directory: PathBuf,
}

/// Source of a CPU time, the finer one first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum CpuSource {
    /// Nanoseconds of each thread.
    Schedstat,
    /// Ticks of, usually, 10 ms.
    Ticks,
}

/// CPU time between two readings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CpuSpent {
    pub(crate) time: Duration,
    pub(crate) source: CpuSource,
}

/// CPU time from the start of the process until now.
#[derive(Clone, Debug)]
pub(crate) struct CpuReading {
    ticks: Duration,
    /// CPU time by thread; empty if the kernel has no such account.
    threads: BTreeMap<u32, Duration>,
}

impl CpuReading {
    /// Returns the time spent since `earlier`.
    pub(crate) fn since(&self, earlier: &Self) -> CpuSpent {
        let ticks = self.ticks.saturating_sub(earlier.ticks);
        match self.threads_since(earlier) {
            Some(time) if ticks.saturating_sub(time) <= TICKS_EXCESS_MAX => {
                CpuSpent { time, source: CpuSource::Schedstat }
            }
            _ => CpuSpent { time: ticks, source: CpuSource::Ticks },
        }
    }

    fn threads_since(&self, earlier: &Self) -> Option<Duration> {
        if self.threads.is_empty() || earlier.threads.is_empty() {
            return None;
        }
        let mut total: Duration = self.threads.values().sum();
        for (thread, before) in &earlier.threads {
            let now = self.threads.get(thread)?;
            now.checked_sub(*before)?;
            total -= *before;
        }
        Some(total)
    }
}

impl Process {
    pub(crate) fn new(pid: u32) -> Self {
        Self::at(Path::new("/proc"), pid)
    }

    fn at(proc: &Path, pid: u32) -> Self {
        Self { pid, directory: proc.join(pid.to_string()) }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.pid
    }

    /// Returns the CPU time used so far.
    pub(crate) fn cpu(&self) -> Result<CpuReading, Error> {
        let path = self.directory.join("stat");
        let ticks = parse_stat(&read(&path)?).ok_or_else(|| garbled(&path))?;
        let ticks =
            Duration::from_secs_f64(ticks as f64 / rustix::param::clock_ticks_per_second() as f64);
        Ok(CpuReading { ticks, threads: self.threads() })
    }

    /// Returns the account of each thread. Threads come and go, so unreadable ones are left out.
    fn threads(&self) -> BTreeMap<u32, Duration> {
        let Ok(entries) = fs::read_dir(self.directory.join("task")) else {
            return BTreeMap::new();
        };
        entries
            .filter_map(|entry| {
                let entry = entry.ok()?;
                let thread = entry.file_name().to_str()?.parse().ok()?;
                let text = fs::read_to_string(entry.path().join("schedstat")).ok()?;
                Some((thread, parse_schedstat(&text)?))
            })
            .collect()
    }

    /// Returns resident memory in bytes.
    pub(crate) fn resident(&self) -> Result<u64, Error> {
        let path = self.directory.join("status");
        parse_resident(&read(&path)?).ok_or_else(|| garbled(&path))
    }
}

fn read(path: &Path) -> Result<String, Error> {
    fs::read_to_string(path)
        .map_err(|source| Error::Procfs { path: path.display().to_string(), source })
}

fn garbled(path: &Path) -> Error {
    Error::Procfs {
        path: path.display().to_string(),
        source: io::Error::new(io::ErrorKind::InvalidData, "not in the form that proc(5) gives"),
    }
}

/// Returns `utime + stime`, fields 14 and 15. The name in field 2 may itself have spaces and parentheses, so fields
/// are counted from the last parenthesis.
fn parse_stat(text: &str) -> Option<u64> {
    let (_, rest) = text.rsplit_once(')')?;
    let mut fields = rest.split_ascii_whitespace().skip(11);
    let user: u64 = fields.next()?.parse().ok()?;
    let system: u64 = fields.next()?.parse().ok()?;
    user.checked_add(system)
}

fn parse_schedstat(text: &str) -> Option<Duration> {
    let nanoseconds = text.split_ascii_whitespace().next()?.parse().ok()?;
    Some(Duration::from_nanos(nanoseconds))
}

fn parse_resident(status: &str) -> Option<u64> {
    let value = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kibibytes: u64 = value.trim().strip_suffix("kB")?.trim_end().parse().ok()?;
    kibibytes.checked_mul(1024)
}

/// Returns the process that listens on a local TCP port, if this user may see it.
pub(crate) fn listener(port: u16) -> Option<Process> {
    let inodes: Vec<u64> = ["/proc/net/tcp", "/proc/net/tcp6"]
        .iter()
        .filter_map(|path| fs::read_to_string(path).ok())
        .flat_map(|table| listening_inodes(&table, port))
        .collect();
    if inodes.is_empty() {
        return None;
    }
    fs::read_dir("/proc")
        .ok()?
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .find(|&pid| holds_socket(pid, &inodes))
        .map(Process::new)
}

/// Returns the process at the other end of a Unix socket. Connects to ask the kernel.
pub(crate) fn listener_of(path: &Path) -> Option<Process> {
    let stream = UnixStream::connect(path).ok()?;
    let peer = rustix::net::sockopt::socket_peercred(&stream).ok()?;
    u32::try_from(peer.pid.as_raw_nonzero().get()).ok().map(Process::new)
}

/// Returns the inodes of sockets in a table of `/proc/net` that listen on `port`.
fn listening_inodes(table: &str, port: u16) -> Vec<u64> {
    const LISTEN: &str = "0A";
    let suffix = format!(":{port:04X}");
    table
        .lines()
        .filter_map(|line| {
            let fields: Vec<&str> = line.split_ascii_whitespace().collect();
            let listens = fields.get(1)?.ends_with(&suffix) && *fields.get(3)? == LISTEN;
            listens.then(|| fields.get(9)?.parse().ok()).flatten()
        })
        .collect()
}

fn holds_socket(pid: u32, inodes: &[u64]) -> bool {
    let Ok(entries) = fs::read_dir(format!("/proc/{pid}/fd")) else { return false };
    entries.filter_map(Result::ok).any(|entry| {
        let Ok(link) = fs::read_link(entry.path()) else { return false };
        let inode = link
            .to_str()
            .and_then(|link| link.strip_prefix("socket:[")?.strip_suffix(']')?.parse().ok());
        inode.is_some_and(|inode| inodes.contains(&inode))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    fn reading(ticks_ms: u64, threads: &[(u32, u64)]) -> CpuReading {
        CpuReading {
            ticks: Duration::from_millis(ticks_ms),
            threads: threads.iter().map(|&(id, ms)| (id, Duration::from_millis(ms))).collect(),
        }
    }

    fn check(before: &CpuReading, after: &CpuReading, ms: u64, source: CpuSource) {
        assert_eq!(after.since(before), CpuSpent { time: Duration::from_millis(ms), source });
    }

    #[test]
    fn threads_are_summed_new_ones_too() {
        let before = reading(100, &[(1, 60), (2, 40)]);
        check(&before, &reading(300, &[(1, 160), (2, 90), (3, 55)]), 205, CpuSource::Schedstat);
    }

    #[test]
    fn ticks_serve_when_a_thread_ended_or_came_and_went() {
        let before = reading(100, &[(1, 60), (2, 40)]);
        check(&before, &reading(300, &[(1, 260)]), 200, CpuSource::Ticks);
        check(&before, &reading(300, &[(1, 60), (2, 50)]), 200, CpuSource::Ticks);
        check(&before, &reading(300, &[(1, 5), (2, 250)]), 200, CpuSource::Ticks);
        check(&before, &reading(300, &[]), 200, CpuSource::Ticks);
    }

    #[test]
    fn stat_is_read_behind_any_name() {
        let line = "77 (a) b (c) S 1 2 3 4 5 6 7 8 9 10 120 34 0 0 20 0 4 0 99 1 2\n";
        assert_eq!(parse_stat(line), Some(154));
        assert_eq!(parse_stat("77 (a"), None);
        assert_eq!(parse_stat("77 (a) S 1 2"), None);
    }

    #[test]
    fn schedstat_and_status_are_read() {
        assert_eq!(parse_schedstat("163122 205846 2\n"), Some(Duration::from_nanos(163_122)));
        assert_eq!(parse_schedstat(""), None);
        assert_eq!(parse_resident("VmHWM:\t 9 kB\nVmRSS:\t    1760 kB\n"), Some(1760 * 1024));
        assert_eq!(parse_resident("Name:\tkthreadd\n"), None);
    }

    #[test]
    fn only_listening_sockets_of_the_port_are_found() {
        let table = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n\
            0: 0100007F:1CE9 00000000:0000 0A 00000000:00000000 00:00000000 00000000 0 0 26944 1 0 100 0 0 10 0\n\
            1: 0100007F:1CE9 0100007F:A5D2 01 00000000:00000000 00:00000000 00000000 0 0 26950 1 0 20 4 30 10 -1\n\
            2: 00000000:07E8 00000000:0000 0A 00000000:00000000 00:00000000 00000000 0 0 23 1 0 100 0 0 10 0\n";
        assert_eq!(listening_inodes(table, 0x1ce9), [26944]);
        assert!(listening_inodes(table, 80).is_empty());
    }

    #[test]
    fn this_process_is_found_by_its_port_and_has_costs() {
        let socket = TcpListener::bind("127.0.0.1:0").unwrap();
        let process = listener(socket.local_addr().unwrap().port()).unwrap();
        assert_eq!(process.pid(), std::process::id());
        assert!(process.resident().unwrap() > 100_000);
        process.cpu().unwrap();
    }

    #[test]
    fn a_process_that_is_gone_is_an_error_that_names_the_file() {
        let error = Process::at(Path::new("/proc/none"), 1).cpu().unwrap_err();
        assert!(error.to_string().contains("/proc/none/1/stat"), "{error}");
    }
}
