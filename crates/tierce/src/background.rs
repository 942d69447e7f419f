//! `daemonize yes`: the server goes on without the terminal that it was started from.
//!
//! The program that was started ends when the server is ready, with success, or when it cannot start, with
//! failure; the reason has been said on the standard error, which the server keeps until it is ready.

use std::fs::File;
use std::io::{self, PipeReader, PipeWriter, Read, Write};
use std::mem::ManuallyDrop;
use std::process::ExitCode;

/// Which of the two processes this is.
pub enum Side {
    /// The one that serves; it has to tell when it is ready.
    Server(Background),
    /// The one that was started. The server is ready, or has failed.
    Launcher(ExitCode),
}

/// What is left to do when the server is ready.
pub struct Background {
    /// Stays open when it is dropped: a server that cannot start closes it by ending, after it has said why.
    ready: ManuallyDrop<PipeWriter>,
}

/// Goes on in a process of its own, of which the terminal knows nothing.
///
/// Must be called before there are other threads.
pub fn detach() -> io::Result<Side> {
    let (outcome, ready) = io::pipe()?;
    // SAFETY: the process has one thread, so its copy is as whole as it is itself.
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

/// Success when the server says that it is ready; it has ended if there comes nothing.
fn wait_for(mut outcome: PipeReader) -> ExitCode {
    match outcome.read_exact(&mut [0]) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}

impl Background {
    /// Lets go of the terminal, and of the process that waits.
    pub fn ready(mut self) {
        if let Ok(null) = File::options().read(true).write(true).open("/dev/null") {
            // If one of them stays as it is, there may be lines on the terminal.
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
