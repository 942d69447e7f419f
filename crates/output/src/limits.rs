//! Bounds on the output a peer leaves unread.
//!
//! Requests go on being read while output is waiting, because clients may send a lot before they
//! read the first reply. So the memory a slow reader costs is bounded here and nowhere else.

/// Number of classes of connections with limits of their own.
pub const OUTPUT_CLASSES: usize = 4;

/// Which limits apply to a connection; the service gives classes their meaning.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OutputClass(u8);

impl OutputClass {
    /// The class with this number.
    ///
    /// # Panics
    ///
    /// If the number is not below [`OUTPUT_CLASSES`].
    pub const fn new(number: u8) -> OutputClass {
        assert!((number as usize) < OUTPUT_CLASSES);
        OutputClass(number)
    }
}

/// When a connection with unsent output is closed. Zero bytes mean no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OutputLimit {
    /// Closed as soon as more than this waits.
    pub hard_bytes: usize,
    /// Closed if more than this waits for longer than `soft_ms`.
    pub soft_bytes: usize,
    /// How long more than `soft_bytes` may wait.
    pub soft_ms: u64,
}

/// What the limits say of an amount of waiting output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Below all limits.
    Fine,
    /// Above the soft limit, and to be judged again at this moment.
    AboveSoftUntil(u64),
    /// To be closed.
    Exceeded,
}

/// The limits of all classes.
#[derive(Clone, Copy, Debug, Default)]
pub struct OutputLimits([OutputLimit; OUTPUT_CLASSES]);

impl OutputLimits {
    /// Sets the limit of a class.
    pub fn set(&mut self, class: OutputClass, limit: OutputLimit) {
        self.0[class.0 as usize] = limit;
    }

    /// The limit of a class.
    pub fn get(&self, class: OutputClass) -> OutputLimit {
        self.0[class.0 as usize]
    }

    /// Judges `pending` bytes, above the soft limit since `since_ms`, which is kept up to date.
    pub fn judge(
        &self,
        class: OutputClass,
        pending: usize,
        since_ms: &mut Option<u64>,
        now_ms: u64,
    ) -> Verdict {
        let limit = self.get(class);
        if limit.hard_bytes > 0 && pending > limit.hard_bytes {
            return Verdict::Exceeded;
        }
        if limit.soft_bytes == 0 || pending <= limit.soft_bytes {
            *since_ms = None;
            return Verdict::Fine;
        }
        let until_ms = since_ms.get_or_insert(now_ms).saturating_add(limit.soft_ms);
        if now_ms >= until_ms { Verdict::Exceeded } else { Verdict::AboveSoftUntil(until_ms) }
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
        let mut judge = |pending, now| limits.judge(class, pending, &mut since, now);
        assert_eq!(judge(10, 0), Verdict::Fine);
        assert_eq!(judge(11, 5), Verdict::AboveSoftUntil(55));
        assert_eq!(judge(90, 54), Verdict::AboveSoftUntil(55));
        assert_eq!(judge(9, 54), Verdict::Fine);
        assert_eq!(judge(11, 60), Verdict::AboveSoftUntil(110));
        assert_eq!(judge(11, 110), Verdict::Exceeded);
        assert_eq!(judge(101, 0), Verdict::Exceeded);
    }

    #[test]
    fn no_limit_unless_set() {
        let limits = OutputLimits::default();
        let verdict = limits.judge(OutputClass::default(), usize::MAX, &mut None, 0);
        assert_eq!(verdict, Verdict::Fine);
    }
}
