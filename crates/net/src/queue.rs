//! Output that the socket did not take, or must not get yet.
//!
//! Bytes are copied; attached values and the pieces of a long reply stay references. A queue exists only while it is
//! not empty.

use std::collections::VecDeque;
use std::io::IoSlice;

use tierce_output::{Attachment, Output, Part, Piece};

use crate::transport::SLICES_MAX;

/// Bounds of the room allocated for later outputs.
const ROOM_BYTES_MIN: usize = 256;
const ROOM_BYTES_MAX: usize = 64 * 1024;

#[derive(Debug)]
enum Bytes {
    /// Filled at most to its capacity.
    Copied(Vec<u8>),
    Attached(Attachment),
}

impl Bytes {
    fn get(&self) -> &[u8] {
        match self {
            Bytes::Copied(bytes) => bytes,
            Bytes::Attached(attachment) => attachment.bytes(),
        }
    }

    fn len(&self) -> usize {
        self.get().len()
    }

    /// Drops the last `count` bytes.
    fn shorten(&mut self, count: usize) {
        match self {
            Bytes::Copied(bytes) => bytes.truncate(bytes.len() - count),
            Bytes::Attached(attachment) => attachment.shorten(count),
        }
    }

    /// Appends as many of `bytes` as there is room for, and returns the rest.
    fn fill<'a>(&mut self, bytes: &'a [u8]) -> &'a [u8] {
        let Bytes::Copied(filled) = self else { return bytes };
        let (now, later) = bytes.split_at(bytes.len().min(filled.capacity() - filled.len()));
        filled.extend_from_slice(now);
        later
    }
}

/// Unsent output of one connection.
#[derive(Debug, Default)]
pub(crate) struct OutputQueue {
    chunks: VecDeque<Bytes>,
    /// Number of bytes of the first chunk that are sent.
    sent: usize,
    /// Number of unsent bytes in all chunks.
    bytes: usize,
}

impl OutputQueue {
    /// Returns the number of pending bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns the number of separate pending pieces.
    pub(crate) fn chunks(&self) -> usize {
        self.chunks.len()
    }

    /// Appends a part except for its first `skip` bytes.
    pub(crate) fn push_part(&mut self, output: &Output, part: Part, skip: usize) {
        let mut skip = skip;
        for piece in output.pieces(part) {
            let len = piece.bytes().len();
            if skip >= len {
                skip -= len;
                continue;
            }
            match piece {
                Piece::Bytes(bytes) => self.push_bytes(&bytes[skip..]),
                Piece::Attached(attachment) => self.push_attachment(attachment, skip),
            }
            skip = 0;
        }
    }

    fn push_bytes(&mut self, bytes: &[u8]) {
        self.bytes += bytes.len();
        let rest = match self.chunks.back_mut() {
            Some(chunk) => chunk.fill(bytes),
            None => bytes,
        };
        if rest.is_empty() {
            return;
        }
        // As large as everything pending, so that many small outputs make few chunks.
        let room = rest.len().max(self.bytes.clamp(ROOM_BYTES_MIN, ROOM_BYTES_MAX));
        let mut bytes = Vec::with_capacity(room);
        bytes.extend_from_slice(rest);
        self.chunks.push_back(Bytes::Copied(bytes));
    }

    fn push_attachment(&mut self, attachment: &Attachment, skip: usize) {
        let mut attachment = attachment.clone();
        attachment.skip(skip);
        self.bytes += attachment.bytes().len();
        self.chunks.push_back(Bytes::Attached(attachment));
    }

    /// Returns the first slices, for one system call, of the first `len` bytes.
    pub(crate) fn slices<'a>(
        &'a self,
        slices: &mut [IoSlice<'a>; SLICES_MAX],
        len: usize,
    ) -> usize {
        let (mut skip, mut left) = (self.sent, len);
        let mut count = 0;
        for (slice, chunk) in slices.iter_mut().zip(&self.chunks) {
            if left == 0 {
                break;
            }
            let bytes = &chunk.get()[skip..];
            let bytes = &bytes[..bytes.len().min(left)];
            *slice = IoSlice::new(bytes);
            left -= bytes.len();
            skip = 0;
            count += 1;
        }
        count
    }

    /// Drops all but the first `len` bytes.
    pub(crate) fn truncate(&mut self, len: usize) {
        let mut excess = self.bytes.saturating_sub(len);
        self.bytes -= excess;
        while excess > 0 {
            let Some(last) = self.chunks.back_mut() else { break };
            if excess >= last.len() {
                excess -= last.len();
                self.chunks.pop_back();
            } else {
                last.shorten(excess);
                excess = 0;
            }
        }
    }

    /// Drops the first `count` bytes, which were sent.
    pub(crate) fn advance(&mut self, count: usize) {
        assert!(count <= self.bytes, "sent more than was queued");
        self.bytes -= count;
        self.sent += count;
        while let Some(chunk) = self.chunks.front() {
            let len = chunk.get().len();
            if self.sent < len {
                break;
            }
            self.sent -= len;
            self.chunks.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use proptest::prelude::*;
    use tierce_harness::effort;

    use super::*;
    use tierce_output::{ATTACH_BYTES_MIN, OutputClass};

    /// One output: alternating runs of bytes and attached values, and the percentage that was sent before the rest was
    /// queued.
    #[derive(Clone, Debug)]
    struct Reply {
        runs: Vec<(usize, usize)>,
        sent_percent: usize,
    }

    fn reply() -> impl Strategy<Value = Reply> {
        let attached = prop_oneof![Just(0), 1..20usize, ATTACH_BYTES_MIN..2 * ATTACH_BYTES_MIN];
        let runs = prop::collection::vec((0..700usize, attached), 0..4);
        (runs, 0..100usize).prop_map(|(runs, sent_percent)| Reply { runs, sent_percent })
    }

    fn write(output: &mut Output, reply: &Reply, bytes: &mut impl Iterator<Item = u8>) -> Vec<u8> {
        let mut written = Vec::new();
        for &(plain, attached) in &reply.runs {
            let plain: Vec<u8> = bytes.take(plain).collect();
            output.buffer().extend_from_slice(&plain);
            written.extend(plain);
            if attached > 0 {
                let value: Vec<u8> = bytes.take(attached + 2).collect();
                written.extend(&value[1..=attached]);
                output.attach_range(Arc::new(value), 1..attached + 1);
            }
        }
        written
    }

    fn collect(slices: &[IoSlice<'_>]) -> Vec<u8> {
        slices.iter().flat_map(|slice| slice.iter().copied()).collect()
    }

    proptest! {
        #![proptest_config(ProptestConfig {
            cases: if cfg!(miri) { 3 } else { effort(200) },
            failure_persistence: None,
            ..ProptestConfig::default()
        })]
        #[test]
        fn bytes_leave_in_the_order_they_were_written(
            replies in prop::collection::vec(reply(), 1..12),
            steps in prop::collection::vec(1..5000usize, 1..20),
        ) {
                let mut queue = OutputQueue::default();
            let mut output = Output::new();
            // Output of another connection that stays in the buffer.
            output.buffer().extend_from_slice(b"other");
            let mut expected = Vec::new();
            let mut bytes = (0..=250u8).cycle();
            for reply in &replies {
                output.begin(queue.bytes(), queue.bytes(), OutputClass::default());
                let written = write(&mut output, reply, &mut bytes);
                let part = output.part();
                prop_assert_eq!(part.len(), written.len());
                prop_assert_eq!(output.pending(), queue.bytes() + written.len());
                let mut slices = [IoSlice::new(&[]); SLICES_MAX];
                let count = output.slices(part, &mut slices);
                prop_assert_eq!(&collect(&slices[..count]), &written);
                if let Some(plain) = output.plain_bytes(part) {
                    prop_assert_eq!(plain, &written);
                }
                let sent = written.len() * reply.sent_percent / 100;
                queue.push_part(&output, part, sent);
                expected.extend(&written[sent..]);
                output.discard_part();
                prop_assert_eq!(output.part().len(), 0);
            }
            let mut steps = steps.into_iter().cycle();
            let mut received = Vec::new();
            while queue.bytes() > 0 {
                prop_assert_eq!(queue.bytes(), expected.len() - received.len());
                let mut slices = [IoSlice::new(&[]); SLICES_MAX];
                let count = queue.slices(&mut slices, queue.bytes());
                let mut bytes = collect(&slices[..count]);
                bytes.truncate(steps.next().expect("an endless iterator"));
                queue.advance(bytes.len());
                received.extend(bytes);
            }
            prop_assert_eq!(received, expected);
            prop_assert_eq!(queue.chunks(), 0);
        }
    }

    #[test]
    fn many_small_outputs_make_few_chunks() {
        let mut queue = OutputQueue::default();
        let mut output = Output::new();
        for _ in 0..100_000 {
            output.begin(queue.bytes(), queue.bytes(), OutputClass::default());
            output.buffer().extend_from_slice(b"+OK\r\n");
            let part = output.part();
            queue.push_part(&output, part, 0);
            output.discard_part();
        }
        assert_eq!(queue.bytes(), 500_000);
        assert!(queue.chunks() < 20, "{} chunks", queue.chunks());
        let capacity = |chunk: &Bytes| matches!(chunk, Bytes::Copied(bytes) if bytes.capacity() <= ROOM_BYTES_MAX);
        assert!(queue.chunks.iter().all(capacity));
    }
}
