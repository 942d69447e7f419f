//! Kills the servers that a comparison started, however it ends.
//!
//! A [`Child`] kills its process group when dropped. SIGINT, SIGTERM and SIGHUP would end this process without
//! dropping anything. So a thread waits for them, kills all servers and exits. Only SIGKILL leaves servers running.
//!
//! Every server leads its own process group. So a server behind a wrapper script is killed too, and a Ctrl-C at the
//! terminal only reaches this process.

use std::fs;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{self, Command};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

use rustix::process::{Pid, Signal, kill_process_group};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::error::Error;

/// List of the processes to kill.
#[derive(Clone, Debug)]
pub(crate) struct Reaper {
    alive: Arc<Mutex<Vec<Victim>>>,
}

#[derive(Debug)]
struct Victim {
    /// Leader of the process group. It was not waited for, so its number cannot have been reused.
    pid: Pid,
    /// Its working directory, which this process removes.
    directory: PathBuf,
}

impl Reaper {
    /// Begins to watch for signals.
    pub(crate) fn new() -> Result<Self, Error> {
        let reaper = Self { alive: Arc::default() };
        let mut signals =
            Signals::new([SIGINT, SIGTERM, SIGHUP]).map_err(Error::io("watching for signals"))?;
        let watcher = reaper.clone();
        thread::spawn(move || {
            if let Some(signal) = signals.forever().next() {
                watcher.kill_all();
                process::exit(128 + signal);
            }
        });
        Ok(reaper)
    }

    /// Starts a command in `directory`, and removes the directory when the command has ended.
    pub(crate) fn spawn(&self, command: &mut Command, directory: PathBuf) -> io::Result<Child> {
        // The list stays locked until the process is on it, so that a signal in between must wait.
        let mut alive = self.lock();
        let spawned = command.current_dir(&directory).process_group(0).spawn();
        let child = spawned.inspect_err(|_| remove(&directory))?;
        let pid = Pid::from_child(&child);
        alive.push(Victim { pid, directory });
        Ok(Child { child, pid, reaper: self.clone() })
    }

    /// Kills all processes and keeps the list locked, so that nothing can be started any more.
    fn kill_all(&self) {
        let alive = self.lock();
        alive.iter().for_each(Victim::kill);
        std::mem::forget(alive);
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Victim>> {
        self.alive.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Victim {
    /// Kills the group. A comparison has no data that need a graceful end. A failure means that it is gone already.
    fn kill(&self) {
        let _ = kill_process_group(self.pid, Signal::KILL);
        remove(&self.directory);
    }
}

/// Removes a directory. Ignores failures: there is no caller to tell, and nothing depends on it.
fn remove(directory: &Path) {
    let _ = fs::remove_dir_all(directory);
}

/// A process that is killed when this is dropped.
#[derive(Debug)]
pub(crate) struct Child {
    child: process::Child,
    pid: Pid,
    reaper: Reaper,
}

impl Child {
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Returns the exit status if the process has ended on its own.
    pub(crate) fn exited(&mut self) -> Option<process::ExitStatus> {
        self.child.try_wait().ok().flatten()
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        let mut alive = self.reaper.lock();
        if let Some(index) = alive.iter().position(|victim| victim.pid == self.pid) {
            let victim = alive.swap_remove(index);
            victim.kill();
            let _ = self.child.wait();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::process::test_kill_process;

    #[test]
    fn a_dropped_child_is_dead_and_its_directory_gone() {
        let directory = std::env::temp_dir().join(format!("tierce-reaper-{}", process::id()));
        fs::create_dir(&directory).unwrap();
        let reaper = Reaper::new().unwrap();
        let mut command = Command::new("sleep");
        let mut child = reaper.spawn(command.arg("1000"), directory.clone()).unwrap();
        assert!(child.exited().is_none());
        let pid = child.pid;
        drop(child);
        assert!(test_kill_process(pid).is_err());
        assert!(!directory.exists());
        assert!(reaper.lock().is_empty());
    }
}
