//! `daemonize yes`: the server continues without the terminal from which it was started.
//!
//! The started program ends with success when the server is ready, or with failure when it cannot start. The
//! reason of a failure is on the standard error, which the server keeps open until it is ready.

use std::fs::File;
use std::io::{self, PipeReader, PipeWriter, Read, Write};
use std::mem::ManuallyDrop;
use std::process::ExitCode;

/// This process' role of the two.
pub enum Side {
    /// The server, which must report when it is ready.
    Server(Background),
    /// The program that was started. The server is ready, or has failed.
    Launcher(ExitCode),
}

/// Work that remains when the server is ready.
pub struct Background {
    /// Not closed on drop: a server that cannot start closes it by ending, after it has printed the reason.
    ready: ManuallyDrop<PipeWriter>,
}

/// Continues in a separate process without a terminal.
///
/// Must be called before there are other threads.
pub fn detach() -> io::Result<Side> {
    let (outcome, ready) = io::pipe()?;
    // SAFETY: the process has one thread, so its copy is complete.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()),
        0 => {
            drop(outcome);
            rustix::process::setsid()?;
            Ok(Side::Server(Background { ready: ManuallyDrop::new(ready) }))
        }
        _ => {
            drop(ready);
            Ok(Side::Launcher(wait_for(outcome)))
        }
    }
}

/// Returns success when the server reports that it is ready, and failure when it ends without a report.
fn wait_for(mut outcome: PipeReader) -> ExitCode {
    match outcome.read_exact(&mut [0]) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}

impl Background {
    /// Detaches from the terminal, and from the waiting process.
    pub fn ready(mut self) {
        if let Ok(null) = File::options().read(true).write(true).open("/dev/null") {
            // If one of these fails, lines may appear on the terminal.
            let _ = rustix::stdio::dup2_stdin(&null);
            let _ = rustix::stdio::dup2_stdout(&null);
            let _ = rustix::stdio::dup2_stderr(&null);
        }
        // The waiting process may have been killed.
        let _ = self.ready.write_all(&[1]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_launcher_waits_for_the_end_of_a_server_that_is_never_ready() {
        let (mut outcome, ready) = io::pipe().expect("a pipe");
        rustix::io::ioctl_fionbio(&outcome, true).expect("a pipe that does not block");
        {
            let _gone = Background { ready: ManuallyDrop::new(ready) };
        }
        let error = outcome.read(&mut [0]).expect_err("the end of the pipe is open");
        assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
    }
}
