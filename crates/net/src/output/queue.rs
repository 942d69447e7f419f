//! Output that the socket did not take, or may not get yet.
//!
//! Bytes are copied into pooled blocks; attached values, and with them the pieces of a long reply, stay
//! references. A queue exists only while it holds something.

use std::collections::VecDeque;
use std::io::IoSlice;

use super::{Attachment, Output, Part, Piece};
use crate::buffer::pool::{BLOCK_BYTES_MAX, BLOCK_BYTES_MIN, Block, Pool};
use crate::transport::SLICES_MAX;

#[derive(Debug)]
enum Bytes {
    Pooled {
        block: Block,
        len: usize,
    },
    /// More than the pool gives in one piece.
    Heap(Vec<u8>),
    Attached(Attachment),
}

impl Bytes {
    fn get(&self) -> &[u8] {
        match self {
            Bytes::Pooled { block, len } => &block[..*len],
            Bytes::Heap(bytes) => bytes,
            Bytes::Attached(attachment) => attachment.bytes(),
        }
    }

    fn len(&self) -> usize {
        self.get().len()
    }

    /// Drops the last `count` bytes.
    fn shorten(&mut self, count: usize) {
        match self {
            Bytes::Pooled { len, .. } => *len -= count,
            Bytes::Heap(bytes) => bytes.truncate(bytes.len() - count),
            Bytes::Attached(attachment) => attachment.range.end -= count,
        }
    }

    /// Appends the beginning of `bytes` as far as there is room, and returns the rest.
    fn fill<'a>(&mut self, bytes: &'a [u8]) -> &'a [u8] {
        let Bytes::Pooled { block, len } = self else { return bytes };
        let (now, later) = bytes.split_at(bytes.len().min(block.len() - *len));
        block[*len..*len + now.len()].copy_from_slice(now);
        *len += now.len();
        later
    }
}

/// Unsent output of one connection.
#[derive(Debug, Default)]
pub(crate) struct OutputQueue {
    chunks: VecDeque<Bytes>,
    /// Bytes of the first chunk that are sent.
    sent: usize,
    /// Bytes unsent in all chunks.
    bytes: usize,
}

impl OutputQueue {
    /// Bytes that wait.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Number of separate pieces that wait.
    pub(crate) fn chunks(&self) -> usize {
        self.chunks.len()
    }

    /// Appends what remains of a part after its first `skip` bytes.
    pub(crate) fn push_part(&mut self, output: &Output, part: Part, skip: usize, pool: &Pool) {
        let mut skip = skip;
        for piece in output.pieces(part) {
            let len = piece.bytes().len();
            if skip >= len {
                skip -= len;
                continue;
            }
            match piece {
                Piece::Bytes(bytes) => self.push_bytes(&bytes[skip..], pool),
                Piece::Attached(attachment) => self.push_attachment(attachment, skip),
            }
            skip = 0;
        }
    }

    fn push_bytes(&mut self, bytes: &[u8], pool: &Pool) {
        self.bytes += bytes.len();
        let rest = match self.chunks.back_mut() {
            Some(chunk) => chunk.fill(bytes),
            None => bytes,
        };
        if rest.is_empty() {
            return;
        }
        if rest.len() > BLOCK_BYTES_MAX {
            self.chunks.push_back(Bytes::Heap(rest.to_vec()));
            return;
        }
        // A block as large as all that waits already, so that many small outputs make few chunks.
        let wanted = rest.len().max(self.bytes.min(BLOCK_BYTES_MAX / 16)).max(BLOCK_BYTES_MIN);
        let mut chunk = Bytes::Pooled { block: pool.take(wanted), len: 0 };
        let none_left = chunk.fill(rest);
        debug_assert!(none_left.is_empty());
        self.chunks.push_back(chunk);
    }

    fn push_attachment(&mut self, attachment: &Attachment, skip: usize) {
        let mut attachment = attachment.clone();
        attachment.range.start += skip;
        self.bytes += attachment.range.len();
        self.chunks.push_back(Bytes::Attached(attachment));
    }

    /// The first slices, for one system call, of the first `len` bytes.
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

    /// Drops the first `count` bytes, for they were sent.
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

    use super::*;
    use crate::output::ATTACH_BYTES_MIN;
    use crate::output::limits::OutputClass;

    /// One output: runs of bytes and attached values by turns, and how much of it was sent before
    /// the rest was queued.
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
            cases: if cfg!(miri) { 3 } else { 200 },
            failure_persistence: None,
            ..ProptestConfig::default()
        })]
        #[test]
        fn bytes_leave_in_the_order_they_were_written(
            replies in prop::collection::vec(reply(), 1..12),
            steps in prop::collection::vec(1..5000usize, 1..20),
        ) {
            let pool = Pool::default();
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
                queue.push_part(&output, part, sent, &pool);
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
            prop_assert_eq!((queue.chunks(), pool.stats().used_bytes), (0, 0));
        }
    }

    #[test]
    fn many_small_outputs_make_few_chunks() {
        let pool = Pool::default();
        let mut queue = OutputQueue::default();
        let mut output = Output::new();
        for _ in 0..100_000 {
            output.begin(queue.bytes(), queue.bytes(), OutputClass::default());
            output.buffer().extend_from_slice(b"+OK\r\n");
            let part = output.part();
            queue.push_part(&output, part, 0, &pool);
            output.discard_part();
        }
        assert_eq!(queue.bytes(), 500_000);
        assert!(queue.chunks() < 20, "{} chunks", queue.chunks());
        assert!(pool.stats().used_bytes < 600_000);
    }
}
