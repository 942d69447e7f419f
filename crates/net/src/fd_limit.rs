//! The process' limit of file descriptors, which bounds the number of connections.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Raises the soft limit of open files to at least `wanted`, and the hard limit with it if the
/// process may. Returns the limit in force, which may be lower than wanted.
pub fn raise_fd_limit(wanted: u64) -> u64 {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    let (Some(current), hard) = (current, maximum.unwrap_or(u64::MAX)) else { return u64::MAX };
    if current >= wanted {
        return current;
    }
    if hard < wanted && set(wanted, wanted) {
        return wanted;
    }
    let reachable = wanted.min(hard);
    if set(reachable, hard) { reachable } else { current }
}

fn set(soft: u64, hard: u64) -> bool {
    let limit = Rlimit { current: Some(soft), maximum: Some(hard) };
    setrlimit(Resource::Nofile, limit).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn never_lowers_the_limit() {
        let before = raise_fd_limit(0);
        assert!(before > 0);
        assert_eq!(raise_fd_limit(1), before);
        assert!(raise_fd_limit(before) >= before);
    }
}
