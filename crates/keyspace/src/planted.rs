//! Faults that can be put back, for the test that has to find them (`crates/server/tests/together`).
//!
//! Each was in the code once, or is what a natural mistake there would do. [`is`] stands where the code does
//! better now. Without the feature `planted-faults`, which only that test has, it is `false` when the
//! program is compiled, and nothing is left of it.

/// What goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Fault {
    /// Emptying a database ends the lists of all databases that a checkpoint has logged in part.
    FlushEndsAllLists = 1,
    /// The log does not hear that a key has expired.
    ExpiryIsNotLogged,
    /// What is longer than a record does not get to the log.
    LongRecordsAreDropped,
    /// A log that could not be begun is not begun again, whatever is said of it.
    RefusedLogIsNotBegun,
    /// A log that has failed takes writes again before another one has all keys.
    WoundEndsTooEarly,
    /// A new log whose completion has failed once is never complete.
    CompletionIsNotRepeated,
}

#[cfg(feature = "planted-faults")]
static PLANTED: std::sync::atomic::AtomicU8 = std::sync::atomic::AtomicU8::new(0);

/// Puts a fault into the whole process, in place of the one before.
#[cfg(feature = "planted-faults")]
pub fn plant(fault: Option<Fault>) {
    let number = fault.map_or(0, |fault| fault as u8);
    PLANTED.store(number, std::sync::atomic::Ordering::SeqCst);
}

/// Whether this fault is there.
#[cfg(feature = "planted-faults")]
#[must_use]
pub fn is(fault: Fault) -> bool {
    PLANTED.load(std::sync::atomic::Ordering::Relaxed) == fault as u8
}

/// Whether this fault is there.
#[cfg(not(feature = "planted-faults"))]
#[inline]
#[must_use]
pub const fn is(_: Fault) -> bool {
    false
}
