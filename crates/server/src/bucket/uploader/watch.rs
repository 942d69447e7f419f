//! Publishes the state of the thread that writes the log, and applies backpressure to writers.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use tierce_bucket::{Progress, Store, Usage};
use tierce_commands::bucket::State;
use tierce_engine::feed::Reader;
use tokio::time::timeout;

use super::super::ending::Ending;
use super::super::settings::{INTERVAL, LOG_MAX, bytes_max};
use crate::clock::unix_ms;
use crate::message::Notice;
use crate::server::Server;

/// Polling interval of the thread when nothing wakes it.
pub(super) const TICK: Duration = Duration::from_millis(100);

/// Age of the oldest uncommitted change, besides twice the interval, from which on writers must wait while the store
/// answers.
const LAG_MS_MAX: u64 = 5_000;

/// Time that a shutdown waits for its clients and the bucket.
const END_MAX: Duration = Duration::from_secs(10);

/// Part of it left for the bucket after the wait for clients: an append or two, and the RELEASE.
const END_MIN: Duration = Duration::from_secs(3);

/// Minimum time base of request rates: the first requests of a start are not repeated.
const MEASURED_MIN: Duration = Duration::from_secs(60);

/// Published state of the thread, with the backpressure on writers.
pub(super) struct Watch {
    server: Arc<Server>,
    pub(super) store: Store,
    progress: Arc<Progress>,
    began: Instant,
    /// Requests of the start, which are not repeated.
    before: Usage,
    /// Time since which the oldest uncommitted change waits.
    waiting_ms: Option<u64>,
    holds: bool,
    /// Maximum of pending bytes in the feed.
    bytes_max: usize,
    /// Time since which the store is unreachable, if it was logged.
    away: Option<Instant>,
    needs_base: bool,
    /// True once it was logged that a foreign object is in the way.
    is_blocked: bool,
    end_at: Option<Instant>,
}

impl Watch {
    pub(super) fn new(
        server: Arc<Server>,
        store: Store,
        progress: Arc<Progress>,
        needs_base: bool,
    ) -> Self {
        let before = store.counters().usage();
        Self {
            before,
            server,
            store,
            progress,
            began: Instant::now(),
            waiting_ms: None,
            holds: false,
            bytes_max: 0,
            away: None,
            needs_base,
            is_blocked: false,
            end_at: None,
        }
    }

    pub(super) fn note_waiting(&mut self) {
        self.waiting_ms.get_or_insert(now_ms());
    }

    /// Notes that all taken changes are committed. Newer changes are in the feed since the append began, at most.
    pub(super) fn note_sent(&mut self, has_more: bool, began_ms: u64) {
        self.waiting_ms = has_more.then_some(began_ms);
    }

    /// Notes whether the log continues behind a snapshot that is not valid yet.
    pub(super) fn needs_base(&mut self, needs_base: bool) {
        self.needs_base = needs_base;
        self.tell_state();
    }

    /// Publishes the state, which combines parts that change independently.
    fn tell_state(&self) {
        let state = match (self.away, self.needs_base) {
            (Some(_), _) => State::Away,
            (None, true) => State::Base,
            (None, false) => State::Following,
        };
        self.server.bucket.update(|figures| figures.state = state);
    }

    /// Notes that everything up to this position is committed.
    pub(super) fn committed(&mut self, position: u64) {
        if position > self.server.bucket.committed() {
            self.server.bucket.note_committed(position);
            self.server.tell_all(&Notice::Durable);
        }
    }

    pub(super) fn failed(&self, error: &str) {
        note_failure(&self.server, error);
    }

    /// Updates writers and INFO. `taken_bytes` were taken and are not committed.
    pub(super) fn look(&mut self, taken_bytes: u64) {
        let server = Arc::clone(&self.server);
        let settings = server.config.settings();
        if std::mem::replace(&mut self.bytes_max, bytes_max(&settings)) != bytes_max(&settings) {
            server.feed.raise_limit(Reader::Bucket, self.bytes_max);
        }
        let trouble = self.progress.trouble();
        server.bucket.note_waiting(self.waiting_ms, taken_bytes);
        let (lag_bytes, lag_ms) =
            (server.bucket.lag_bytes(&server.feed), server.bucket.lag_ms(now_ms()));
        let is_late = trouble.is_none()
            && !self.needs_base
            && lag_ms > LAG_MS_MAX + 2 * settings.count(INTERVAL);
        self.hold(is_late || lag_bytes > settings.bytes(LOG_MAX));
        let usage = self.store.counters().usage().since(&self.before);
        let elapsed = self.began.elapsed();
        server.bucket.update(|figures| {
            figures.puts = usage.puts + usage.lists;
            figures.gets = usage.gets + usage.heads;
            figures.failures = usage.failures;
            (figures.bytes_up, figures.bytes_down) = (usage.bytes_up, usage.bytes_down);
            figures.dollars_a_month = usage.dollars_a_month(elapsed.max(MEASURED_MIN));
        });
        self.tell_trouble(trouble.map(|trouble| trouble.error), settings.bytes(LOG_MAX));
    }

    /// Waits for a put of the owner, without a time limit. These bytes were taken and are not committed. `None` if the
    /// shutdown's time ended without an answer.
    pub(super) async fn watched<T>(
        &mut self,
        put: impl Future<Output = T>,
        ending: &Ending,
        taken_bytes: u64,
    ) -> Option<T> {
        let mut put = pin!(put);
        loop {
            match timeout(TICK, put.as_mut()).await {
                Ok(outcome) => return Some(outcome),
                Err(_) => self.look(taken_bytes),
            }
            if self.is_out_of_time(ending) {
                return None;
            }
        }
    }

    /// Returns true if writers must wait.
    pub(super) fn holds(&self) -> bool {
        self.holds
    }

    /// Makes writers wait, or lets them continue.
    fn hold(&mut self, holds: bool) {
        if std::mem::replace(&mut self.holds, holds) == holds {
            return;
        }
        self.server.durability.hold_for_outside(holds);
        if !holds {
            self.server.tell_all(&Notice::Resume);
        }
    }

    fn tell_trouble(&mut self, error: Option<String>, bytes_max: u64) {
        let (server, url) = (&self.server, self.store.url());
        let is_blocked = error.is_some() && self.progress.is_blocked();
        if std::mem::replace(&mut self.is_blocked, is_blocked) != is_blocked
            && let Some(error) = error.as_ref().filter(|_| is_blocked)
        {
            server.log.warning(format_args!(
                "The bucket {url} has something under the next number of its log that is not of this server: {error}. \
                 Nothing can follow it. Find out what has put it there, and that nothing does so again; once this object is \
                 removed, the log goes on"
            ));
        }
        match (error, self.away) {
            (Some(error), None) => {
                self.away = Some(Instant::now());
                self.tell_state();
                let until = match server.bucket.lease.clock() {
                    Some(_) => "everything waits once the lease is over",
                    None => "beyond that, writes wait",
                };
                let advice = match is_blocked {
                    true => "",
                    false => {
                        ". Check the network, the credentials and the rights of this server in the bucket"
                    }
                };
                server.log.warning(format_args!(
                    "The bucket {url} does not take the log: {error}. Changes wait here, up to bucket-log-max \
                     ({bytes_max} bytes); {until}{advice}"
                ));
                self.failed(&error);
            }
            (Some(error), Some(_)) => self.failed(&error),
            (None, Some(since)) => {
                self.away = None;
                self.tell_state();
                let seconds = since.elapsed().as_secs();
                server
                    .log
                    .notice(format_args!("The bucket takes the log again, after {seconds} s"));
            }
            (None, None) => {}
        }
    }

    /// Returns true if shutdown was requested.
    pub(super) fn is_ending(&mut self, ending: &Ending) -> bool {
        let is_asked = ending.is_asked.load(Ordering::Acquire);
        if is_asked {
            self.end_at.get_or_insert_with(|| Instant::now() + left_of_end(ending.spent()));
        }
        is_asked
    }

    /// Returns true if the time of the shutdown is over, so that nothing is waited for.
    pub(super) fn is_out_of_time(&mut self, ending: &Ending) -> bool {
        self.is_ending(ending) && self.end_at.is_some_and(|at| Instant::now() >= at)
    }
}

/// Returns how long to wait for the bucket, after this long a wait for clients.
fn left_of_end(spent: Duration) -> Duration {
    END_MAX.saturating_sub(spent).max(END_MIN)
}

pub(super) fn now_ms() -> u64 {
    unix_ms().max(0).unsigned_abs()
}

/// Publishes the last failure in INFO.
pub(in crate::bucket) fn note_failure(server: &Server, error: &str) {
    server.bucket.update(|figures| {
        error.clone_into(&mut figures.last_error);
        figures.last_error_ms = now_ms();
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_and_the_bucket_share_the_time_of_the_end() {
        let seconds = |spent| left_of_end(Duration::from_secs(spent)).as_secs();
        assert_eq!([0, 3, 6, 9, 60].map(seconds), [10, 7, 4, 3, 3]);
    }
}
