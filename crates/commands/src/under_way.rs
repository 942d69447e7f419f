//! Requests that were admitted and have not ended.
//!
//! A worker checks admission once for each batch. It is sent a notice and reads it between two batches, so it then has
//! no admitted request in progress. Other threads register each request before the check, with an [`InFlight`].

use std::sync::Arc;

use parking_lot::Mutex;

use crate::clients::Hold;
use crate::message::Reported;

/// Requests in progress on threads other than workers.
#[derive(Clone, Debug, Default)]
pub struct InFlightRequests(Arc<Mutex<Numbers>>);

#[derive(Debug, Default)]
struct Numbers {
    next: u64,
    under_way: Vec<u64>,
}

/// A request in progress; it ends when this is dropped.
#[derive(Debug)]
pub struct InFlight {
    of: InFlightRequests,
    number: u64,
}

impl InFlightRequests {
    /// Registers a request. Must be called before admission is checked.
    #[must_use]
    pub fn enter(&self) -> InFlight {
        let mut numbers = self.0.lock();
        let number = numbers.next;
        numbers.next += 1;
        numbers.under_way.push(number);
        InFlight { of: self.clone(), number }
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        let mut numbers = self.of.0.lock();
        let at = numbers.under_way.iter().position(|number| *number == self.number);
        numbers.under_way.swap_remove(at.expect("it was entered"));
    }
}

/// Wait until all requests that were admitted before have ended.
#[derive(Debug)]
pub struct Quiet {
    workers: Arc<Reported>,
    in_flight_requests: InFlightRequests,
    /// Requests with lower numbers began before.
    next: u64,
    /// Position of the feed when the wait was over.
    pub(crate) position: Option<u64>,
    /// Time at which replicas are asked again for the stream up to there.
    pub(crate) calls_at_ms: i64,
    /// Pause that begins afterwards.
    pub(crate) pause: Option<Pending>,
}

/// Pause that has not begun yet.
#[derive(Debug)]
pub(crate) struct Pending {
    pub(crate) _hold: Hold,
    /// Number of pauses that had ended before it.
    pub(crate) ends: u32,
    /// Time at which it is given up.
    pub(crate) until_ms: i64,
}

impl Quiet {
    /// Begins to wait. Must be called after admission was closed, and the workers must have been asked to report.
    #[must_use]
    pub fn new(workers: Arc<Reported>, in_flight_requests: &InFlightRequests) -> Self {
        let next = in_flight_requests.0.lock().next;
        Self {
            workers,
            in_flight_requests: in_flight_requests.clone(),
            next,
            position: None,
            calls_at_ms: 0,
            pause: None,
        }
    }

    /// Returns true if these requests have ended.
    #[must_use]
    pub fn is_reached(&self) -> bool {
        let is_later = |number: &u64| *number >= self.next;
        self.workers.have_all() && self.in_flight_requests.0.lock().under_way.iter().all(is_later)
    }
}
