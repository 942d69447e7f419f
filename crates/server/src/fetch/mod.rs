//! Values on disk that requests need: which ones, and how they come into memory.
//!
//! * `wanted`: which values a request needs.
//! * `fetcher`: values that sessions wait for.
//!
//! A worker never waits for the disk. Before a request runs whose value is on disk, its session is
//! suspended; when the value has been read, the worker puts it into memory, and the request starts over.
//! A pipeline has the values of all its requests fetched at the same time. If a value has been forgotten
//! again before its request came to run, and that several times, the worker reads it itself, which is slow
//! and seldom.

mod fetcher;
mod wanted;

pub use fetcher::Fetcher;
pub use wanted::{Wanted, add_key, add_wanted, is_enough};

/// A session that has waited so often for the same request has its values read by the worker.
const ATTEMPTS_MAX: u8 = 3;

/// What a session waits for from disk.
#[derive(Default)]
pub struct Fetches {
    /// It waits.
    pub underway: bool,
    /// How often it has waited since a request was executed.
    attempts: u8,
}

impl Fetches {
    /// Whether it may wait again.
    #[must_use]
    pub fn may_wait(&self) -> bool {
        self.attempts < ATTEMPTS_MAX
    }

    fn begin(&mut self) {
        self.underway = true;
        self.attempts += 1;
    }

    /// It cannot wait, and the request is to be executed as it is.
    fn give_up(&mut self) {
        self.attempts = ATTEMPTS_MAX;
    }

    /// A request was executed.
    pub fn has_run(&mut self) {
        self.attempts = 0;
    }
}
