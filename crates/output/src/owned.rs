//! Output that belongs to no connection yet.

use crate::output::Attached;

/// Output taken out by [`Output::take`](crate::Output::take). Any thread may own it;
/// [`Output::append`](crate::Output::append) appends it.
#[derive(Debug, Default)]
pub struct OwnedOutput {
    pub(crate) bytes: Box<[u8]>,
    /// Attachments; their offsets ascend, and are inside `bytes` or at its end.
    pub(crate) attached: Vec<Attached>,
    /// Length of the discarded output, if it did not fit the room; otherwise 0.
    pub(crate) overrun: usize,
}

impl OwnedOutput {
    /// Returns the number of bytes, attached ones included.
    pub fn len(&self) -> usize {
        let attached = self.attached.iter().map(|attached| attached.attachment.bytes().len());
        self.bytes.len() + attached.sum::<usize>()
    }

    /// Returns true if there is no output in it.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty() && self.attached.is_empty()
    }
}

impl From<Box<[u8]>> for OwnedOutput {
    fn from(bytes: Box<[u8]>) -> Self {
        Self { bytes, ..Self::default() }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::{ATTACH_BYTES_MIN, Output, OutputClass, OutputLimit, OutputLimits};

    /// Writes text and a value, twice.
    fn write(output: &mut Output, value: &Arc<Vec<u8>>) {
        for text in [b"one", b"two"] {
            output.buffer().extend_from_slice(text);
            output.attach(Arc::clone(value));
            output.buffer().extend_from_slice(text);
        }
    }

    #[test]
    fn what_is_taken_and_appended_is_what_was_written() {
        let value = Arc::new(vec![b'v'; ATTACH_BYTES_MIN]);
        let mut whole = Output::new();
        write(&mut whole, &value);
        let expected = whole.into_bytes();
        // Both outputs have output of other calls in them, which must stay.
        let mut from = Output::new();
        from.buffer().extend_from_slice(b"other");
        from.attach(Arc::clone(&value));
        from.begin(0, 0, OutputClass::default());
        write(&mut from, &value);
        let taken = from.take();
        assert_eq!((from.written(), taken.len()), (0, expected.len()));
        let mut to = Output::new();
        to.buffer().extend_from_slice(b"before");
        to.append(taken);
        to.append(from.take());
        to.append(OwnedOutput::from(Box::from(&b"after"[..])));
        assert_eq!(Arc::strong_count(&value), 1 + 1 + 2, "nothing was copied");
        assert_eq!(to.into_bytes(), [b"before", &expected[..], b"after"].concat());
        assert_eq!(from.buffer(), b"other");
    }

    #[test]
    fn what_is_appended_counts_towards_the_limit() {
        let value = Arc::new(vec![b'v'; ATTACH_BYTES_MIN]);
        let mut limits = OutputLimits::default();
        let limit = OutputLimit { hard_bytes: ATTACH_BYTES_MIN + 100, ..OutputLimit::default() };
        limits.set(OutputClass::default(), limit);
        let mut output = Output::new();
        output.set_limits(limits);
        output.begin(0, 0, OutputClass::default());
        let mut from = Output::new();
        write(&mut from, &value);
        output.append(from.take());
        assert!(output.is_condemned());
        assert_eq!(Arc::strong_count(&value), 2);
    }

    #[test]
    fn what_has_no_room_elsewhere_condemns_the_connection_it_is_for() {
        let mut output = Output::new();
        output.buffer().extend_from_slice(b"before");
        let mut from = Output::with_room(output.room().min(100));
        from.buffer().extend_from_slice(&[b'v'; 100]);
        output.append(from.take());
        assert!(!output.is_condemned());
        from.buffer().extend_from_slice(&[b'v'; 101]);
        output.append(from.take());
        assert!(output.is_condemned());
        assert_eq!(output.condemned_bytes(), 101);
    }
}
