//! Hides passwords on the command line, which every user of the machine can read.
//!
//! No safe code can overwrite the arguments of a running process. So the program replaces itself by another copy, with
//! the same process id, that has the passwords in its environment, which only its own user and root can read. They are
//! visible until then, as those of redis-server are until it has overwritten them; a configuration file does not show
//! them.

use std::ffi::OsString;
use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;

use tierce_config::Sources;

/// Restarts the program without passwords among its arguments, if there are any. Returns only if there are none, or on
/// failure.
pub fn hide(sources: &Sources) {
    let Some(public) = sources.without_secrets() else { return };
    let name = std::env::args_os().next().unwrap_or_else(|| OsString::from("tierce"));
    let replaced = std::env::current_exe().map(|program| {
        Command::new(program).arg0(name).args(public.arguments).envs(public.environment).exec()
    });
    let error: io::Error = replaced.unwrap_or_else(|error| error);
    eprintln!("tierce: warning: a password stays visible on the command line: {error}");
}
