//! Requests under way that the gates have let pass.
//!
//! Workers look at the gates once for each batch, so each is sent a notice, which it reads between two batches. Other
//! threads say when they are about to look, and when what they let pass is done: a [`Passage`].

use std::sync::Arc;

use parking_lot::Mutex;

use crate::clients::Hold;
use crate::message::Reported;

/// The requests that threads beside workers have under way.
#[derive(Clone, Debug, Default)]
pub struct Passages(Arc<Mutex<Numbers>>);

#[derive(Debug, Default)]
struct Numbers {
    next: u64,
    under_way: Vec<u64>,
}

/// A request is under way as long as this exists.
#[derive(Debug)]
pub struct Passage {
    of: Passages,
    number: u64,
}

impl Passages {
    /// To be called before the gates are read.
    #[must_use]
    pub fn enter(&self) -> Passage {
        let mut numbers = self.0.lock();
        let number = numbers.next;
        numbers.next += 1;
        numbers.under_way.push(number);
        Passage { of: self.clone(), number }
    }
}

impl Drop for Passage {
    fn drop(&mut self) {
        let mut numbers = self.of.0.lock();
        let at = numbers.under_way.iter().position(|number| *number == self.number);
        numbers.under_way.swap_remove(at.expect("it was entered"));
    }
}

/// Begins when a gate has closed, and is reached when nothing is under way that has passed it before.
#[derive(Debug)]
pub struct Quiet {
    workers: Arc<Reported>,
    passages: Passages,
    /// The passages with numbers below this had begun.
    next: u64,
    /// The position of the feed when it was reached.
    pub(crate) position: Option<u64>,
    /// When the stream up to there is called for again.
    pub(crate) calls_at_ms: i64,
    /// The pause that begins then.
    pub(crate) pause: Option<Pending>,
}

/// A pause that has not begun yet.
#[derive(Debug)]
pub(crate) struct Pending {
    pub(crate) _hold: Hold,
    /// Counts the ends of pauses before it.
    pub(crate) ends: u32,
    /// It is given up at this time.
    pub(crate) until_ms: i64,
}

impl Quiet {
    /// To be called behind what closes the gate. The workers are told to report.
    #[must_use]
    pub fn new(workers: Arc<Reported>, passages: &Passages) -> Self {
        let next = passages.0.lock().next;
        Self {
            workers,
            passages: passages.clone(),
            next,
            position: None,
            calls_at_ms: 0,
            pause: None,
        }
    }

    /// True if nothing is under way any more.
    #[must_use]
    pub fn is_reached(&self) -> bool {
        let is_later = |number: &u64| *number >= self.next;
        self.workers.have_all() && self.passages.0.lock().under_way.iter().all(is_later)
    }
}
