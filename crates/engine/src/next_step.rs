//! Remedies for errors, as the end of a message: empty, or `; ` and a few words.
//!
//! Messages name the cause; these name the next step. They are for people at a terminal and readers of the log, so
//! errors that only reach clients have none.

use std::io::{self, ErrorKind};

use tierce_storage::Error;

/// Returns the remedy for a store that cannot be opened, read or written.
#[must_use]
pub fn of_store(error: &Error) -> &'static str {
    match error {
        Error::Locked { .. } => {
            "; stop the server or the tool that uses it, or choose another directory"
        }
        Error::TooNew { .. } => "; use the version of Tierce that wrote it, or a later one",
        Error::NotAStore { .. } => {
            "; name the directory that the server has as dir, or the log in it"
        }
        Error::NoSpace { .. } | Error::NoReserve { .. } => {
            "; make room on the disk (df -h shows it)"
        }
        Error::TooManyOpenFiles { .. } => "; raise the limit of open files (ulimit -n)",
        Error::Missing { .. } => "; bring the file back, or save the rest with tierce repair",
        Error::Io { source, .. } => of_system(source),
        _ => "",
    }
}

/// Returns the remedy for a system error about a file or directory.
#[must_use]
pub fn of_system(error: &io::Error) -> &'static str {
    match error.kind() {
        ErrorKind::PermissionDenied => {
            "; run as the user who owns it, or give it to the user who runs this (chown)"
        }
        ErrorKind::NotFound => "; check the path",
        ErrorKind::NotADirectory => "; a file has the place of a directory: choose another path",
        ErrorKind::ReadOnlyFilesystem => "; choose a directory that can be written to",
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => {
            "; make room on the disk (df -h shows it)"
        }
        _ => "",
    }
}

/// Returns the remedy for an address on which the server cannot listen.
#[must_use]
pub fn of_listening(error: &io::Error) -> &'static str {
    match error.kind() {
        ErrorKind::AddrInUse => {
            "; stop what listens there (sudo ss -ltnp names it), or choose another one"
        }
        ErrorKind::AddrNotAvailable => {
            "; bind has to name addresses of this machine (ip addr shows them)"
        }
        ErrorKind::PermissionDenied => {
            "; ports below 1024 need a privilege, and a Unix socket a directory that can be written to"
        }
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_known_ends_a_message_and_the_rest_adds_nothing() {
        let denied = || io::Error::from(ErrorKind::PermissionDenied);
        let io = Error::Io { action: "open", path: "p".into(), source: denied().into() };
        for step in [
            of_store(&Error::Locked { path: "p".into() }),
            of_store(&Error::NotAStore { path: "p".into() }),
            of_store(&io),
            of_system(&denied()),
            of_listening(&ErrorKind::AddrInUse.into()),
        ] {
            assert!(
                step.starts_with("; ") && !step.ends_with('.') && !step.contains('\n'),
                "{step}"
            );
        }
        assert_eq!(of_store(&Error::Closed), "");
        assert_eq!(of_system(&ErrorKind::Other.into()), "");
        assert_eq!(of_listening(&ErrorKind::Other.into()), "");
    }
}
