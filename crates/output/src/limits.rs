//! Limits on the output that a peer leaves unread.
//!
//! The server keeps reading requests while output is pending, because clients may send a lot before
//! they read the first reply. So the memory of a slow reader is bounded here and nowhere else.

/// Number of connection classes; each class has its own limits.
pub const OUTPUT_CLASSES: usize = 4;

/// Class of a connection, which selects its limits. The service gives classes their meaning.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OutputClass(u8);

impl OutputClass {
    /// Returns the class with this number.
    ///
    /// # Panics
    ///
    /// Panics if the number is not below [`OUTPUT_CLASSES`].
    pub const fn new(number: u8) -> OutputClass {
        assert!((number as usize) < OUTPUT_CLASSES);
        OutputClass(number)
    }
}

/// Limits that close a connection with unsent output. Zero bytes mean no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OutputLimit {
    /// The connection is closed as soon as more than this is pending.
    pub hard_bytes: usize,
    /// The connection is closed if more than this is pending for longer than `soft_ms`.
    pub soft_bytes: usize,
    /// Time for which more than `soft_bytes` may be pending.
    pub soft_ms: u64,
}

/// Result of checking an amount of pending output against the limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LimitState {
    /// Below all limits.
    Fine,
    /// Above the soft limit; to be checked again at this time in milliseconds.
    AboveSoftUntil(u64),
    /// The connection has to be closed.
    Exceeded,
}

/// Limits of all classes.
#[derive(Clone, Copy, Debug, Default)]
pub struct OutputLimits([OutputLimit; OUTPUT_CLASSES]);

impl OutputLimits {
    /// Sets the limit of a class.
    pub fn set(&mut self, class: OutputClass, limit: OutputLimit) {
        self.0[class.0 as usize] = limit;
    }

    /// Returns the limit of a class.
    pub fn get(&self, class: OutputClass) -> OutputLimit {
        self.0[class.0 as usize]
    }

    /// Checks `pending` bytes against the limits. `since_ms` is the time since which they exceed
    /// the soft limit; this updates it.
    pub fn check(
        &self,
        class: OutputClass,
        pending: usize,
        since_ms: &mut Option<u64>,
        now_ms: u64,
    ) -> LimitState {
        let limit = self.get(class);
        if limit.hard_bytes > 0 && pending > limit.hard_bytes {
            return LimitState::Exceeded;
        }
        if limit.soft_bytes == 0 || pending <= limit.soft_bytes {
            *since_ms = None;
            return LimitState::Fine;
        }
        let until_ms = since_ms.get_or_insert(now_ms).saturating_add(limit.soft_ms);
        if now_ms >= until_ms { LimitState::Exceeded } else { LimitState::AboveSoftUntil(until_ms) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn soft_limit_counts_only_time_spent_above_it_without_a_break() {
        let class = OutputClass::new(1);
        let mut limits = OutputLimits::default();
        limits.set(class, OutputLimit { hard_bytes: 100, soft_bytes: 10, soft_ms: 50 });
        let mut since = None;
        let mut check = |pending, now| limits.check(class, pending, &mut since, now);
        assert_eq!(check(10, 0), LimitState::Fine);
        assert_eq!(check(11, 5), LimitState::AboveSoftUntil(55));
        assert_eq!(check(90, 54), LimitState::AboveSoftUntil(55));
        assert_eq!(check(9, 54), LimitState::Fine);
        assert_eq!(check(11, 60), LimitState::AboveSoftUntil(110));
        assert_eq!(check(11, 110), LimitState::Exceeded);
        assert_eq!(check(101, 0), LimitState::Exceeded);
    }

    #[test]
    fn no_limit_unless_set() {
        let limits = OutputLimits::default();
        let state = limits.check(OutputClass::default(), usize::MAX, &mut None, 0);
        assert_eq!(state, LimitState::Fine);
    }
}
