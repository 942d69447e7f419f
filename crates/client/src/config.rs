//! The options of a client.

use std::time::Duration;

use crate::window::Repeat;

/// Largest window. A larger one gains nothing: the table of requests would not fit the processor's cache.
pub const MAX_INFLIGHT_MAX: usize = 1 << 20;

/// Options of a client. Change some of the defaults:
///
/// ```
/// use std::time::Duration;
/// use tierce_client::Config;
///
/// let config = Config { max_inflight: 1024, timeout: Some(Duration::from_secs(1)), ..Config::default() };
/// # assert_eq!(config.retries, 2);
/// ```
#[derive(Clone, Debug)]
pub struct Config {
    /// Size of the window: the exact maximum of requests made and not completed. With 1, each request waits for the
    /// one before. At least 1, at most [`MAX_INFLIGHT_MAX`]; default 4096.
    pub max_inflight: usize,
    /// Time limit of a request from its start to the answer, including the wait for a connection and all repetitions.
    /// `None` means no limit; default 5 seconds.
    pub timeout: Option<Duration>,
    /// Time limit of one attempt, if the request may be repeated. With `None`, the default, a request is only
    /// repeated after a connection was lost.
    pub attempt_timeout: Option<Duration>,
    /// Maximum number of repetitions of a request that was sent and not answered. Applies to reads, and with
    /// [`Config::retry_writes`] to writes; default 2.
    pub retries: u32,
    /// True if idempotent writes (Put, Delete, SET, DEL) are repeated, too. If another client writes the same key in
    /// between, the repetition undoes that write. A repeated delete may find no key. Off by default.
    pub retry_writes: bool,
    /// Wait before a repetition: by default from 10 ms to 1 s.
    pub backoff: Backoff,
    /// Wait before the next attempt to connect: by default from 50 ms to 2 s. If a working connection is lost, the
    /// first attempt is made at once.
    pub reconnect: Backoff,
    /// Time limit of connecting, including the greeting; default 2 seconds.
    pub connect_timeout: Duration,
    /// Policy for requests while there is no connection.
    pub offline: Offline,
    /// Encryption of connections, if any. Connections to Unix sockets are never encrypted.
    #[cfg(feature = "tls")]
    pub tls: Option<crate::Tls>,
}

/// Policy for requests while there is no connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Offline {
    /// Requests wait for a connection until their timeout.
    #[default]
    Wait,
    /// Requests wait for the first attempt to connect. After a failed attempt they fail with
    /// [`Unreachable`](crate::Error::Unreachable), until there is a connection again.
    Fail,
}

/// Exponential backoff: each wait doubles. A random part is subtracted, so that clients that fail together do not
/// return together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backoff {
    /// First wait, before up to a half of it is subtracted.
    pub first: Duration,
    /// Upper bound of a wait.
    pub max: Duration,
}

impl Backoff {
    /// Returns the wait after so many failures, at least one. `random` is any number.
    pub(crate) fn wait_ms(&self, failures: u32, random: u64) -> u64 {
        let doublings = failures.saturating_sub(1).min(32);
        let whole = millis(self.first).saturating_mul(1 << doublings).min(millis(self.max));
        let half = whole / 2;
        whole - random % (half + 1)
    }
}

impl Default for Config {
    fn default() -> Config {
        Config {
            max_inflight: 4096,
            timeout: Some(Duration::from_secs(5)),
            attempt_timeout: None,
            retries: 2,
            retry_writes: false,
            backoff: Backoff { first: Duration::from_millis(10), max: Duration::from_secs(1) },
            reconnect: Backoff { first: Duration::from_millis(50), max: Duration::from_secs(2) },
            connect_timeout: Duration::from_secs(2),
            offline: Offline::Wait,
            #[cfg(feature = "tls")]
            tls: None,
        }
    }
}

impl Config {
    /// Returns the policy for repeated writes.
    pub(crate) fn write_repeat(&self) -> Repeat {
        if self.retry_writes { Repeat::Yes } else { Repeat::No }
    }

    /// Returns the size of the window, within its bounds.
    pub(crate) fn window(&self) -> usize {
        self.max_inflight.clamp(1, MAX_INFLIGHT_MAX)
    }
}

/// Converts to whole milliseconds, at least one. The client has no finer timer.
pub(crate) fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX / 4).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_up_to_their_bound_and_are_cut_by_half_at_most() {
        let backoff = Backoff { first: Duration::from_millis(10), max: Duration::from_millis(100) };
        let bounds = [(1, 10), (2, 20), (3, 40), (4, 80), (5, 100), (6, 100), (u32::MAX, 100)];
        for (failures, whole) in bounds {
            for random in [0, 1, 17, u64::MAX] {
                let wait = backoff.wait_ms(failures, random);
                assert!((whole / 2..=whole).contains(&wait), "{failures}: {wait}");
            }
        }
    }
}
