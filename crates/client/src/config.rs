//! The options of a client.

use std::time::Duration;

use crate::window::Repeat;

/// The largest window. Beyond it, the table of requests would be larger than what a processor keeps
/// at hand, and nothing is gained.
pub const MAX_INFLIGHT_MAX: usize = 1 << 20;

/// How a client behaves. Change what you need of the default:
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
    /// The window: how many requests can have been made and not completed, exactly. With 1, each
    /// request waits for the one before. At least 1, at most [`MAX_INFLIGHT_MAX`]; 4096 unless told.
    pub max_inflight: usize,
    /// How long a request may take in all: from when the client takes it up, over the wait for a
    /// connection and all repetitions, to the answer. `None` is for ever; 5 seconds unless told.
    pub timeout: Option<Duration>,
    /// How long one attempt at a request may take, if the request may be repeated. `None`, the
    /// default, repeats requests only after a connection was lost.
    pub attempt_timeout: Option<Duration>,
    /// How often a request may be repeated that was sent and not answered. Only reads are repeated,
    /// and what [`Config::retry_writes`] adds. 2 unless told.
    pub retries: u32,
    /// Whether writes that have the same outcome when they are made twice (Put, Delete, SET, DEL)
    /// are repeated, too. If another client writes the same key between the two, the second one undoes
    /// that; and a repeated delete may find the key gone. Off unless told.
    pub retry_writes: bool,
    /// How long a repetition waits: 10 ms, at most 1 s unless told.
    pub backoff: Backoff,
    /// How long the client waits before it tries to connect again: 50 ms, at most 2 s unless told.
    /// After the loss of a connection that worked, the first attempt is made at once.
    pub reconnect: Backoff,
    /// How long connecting may take, greeting included. 2 seconds unless told.
    pub connect_timeout: Duration,
    /// What becomes of requests while there is no connection.
    pub offline: Offline,
    /// How connections are encrypted, if they are. Those to Unix sockets are not.
    #[cfg(feature = "tls")]
    pub tls: Option<crate::Tls>,
}

/// What becomes of requests while there is no connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Offline {
    /// They wait for one, as long as their timeout allows.
    #[default]
    Wait,
    /// They wait for the first attempt to connect; once an attempt has failed, they fail with
    /// [`Unreachable`](crate::Error::Unreachable), until there is a connection again.
    Fail,
}

/// Waits that double each time and are cut at random, so that clients that fail together do not
/// come back together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backoff {
    /// The first wait, before it is cut by up to a half.
    pub first: Duration,
    /// No wait is longer.
    pub max: Duration,
}

impl Backoff {
    /// The wait after so many failures, of which there is one at least. `random` is any number.
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
    /// Whether writes are repeated.
    pub(crate) fn write_repeat(&self) -> Repeat {
        if self.retry_writes { Repeat::Yes } else { Repeat::No }
    }

    /// The window, within its bounds.
    pub(crate) fn window(&self) -> usize {
        self.max_inflight.clamp(1, MAX_INFLIGHT_MAX)
    }
}

/// Whole milliseconds, at least one: nothing here is finer.
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
