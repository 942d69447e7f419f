//! Received bytes that are not parsed yet.

/// Size of the receive buffer: a few hundred answers of ordinary size.
const BUFFER_LEN: usize = 64 * 1024;

/// A buffer that has grown larger than this for a large answer is freed when it is empty.
const BUFFER_LEN_KEPT: usize = 1024 * 1024;

/// A buffer whose memory grows with the received bytes.
#[derive(Debug)]
pub(crate) struct Input {
    buffer: Vec<u8>,
    start: usize,
    end: usize,
}

impl Input {
    pub(crate) fn new() -> Input {
        Input { buffer: Vec::new(), start: 0, end: 0 }
    }

    /// Returns the space for received bytes. It is never empty.
    pub(crate) fn space(&mut self) -> &mut [u8] {
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
            if self.buffer.len() > BUFFER_LEN_KEPT || self.buffer.is_empty() {
                self.buffer = vec![0; BUFFER_LEN];
            }
        } else if self.buffer.len() - self.end < BUFFER_LEN / 2 {
            self.buffer.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
            if self.buffer.len() - self.end < BUFFER_LEN / 2 {
                self.buffer.resize(self.buffer.len() * 2, 0);
            }
        }
        &mut self.buffer[self.end..]
    }

    /// Notes that this many bytes were written to the front of the [`space`](Input::space).
    pub(crate) fn received(&mut self, count: usize) {
        self.end += count;
        debug_assert!(self.end <= self.buffer.len());
    }

    /// Returns the bytes that were not consumed.
    #[inline]
    pub(crate) fn unread(&self) -> &[u8] {
        &self.buffer[self.start..self.end]
    }

    #[inline]
    pub(crate) fn consume(&mut self, count: usize) {
        self.start += count;
        debug_assert!(self.start <= self.end);
    }

    pub(crate) fn clear(&mut self) {
        (self.start, self.end) = (0, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_lost_when_it_moves_and_grows() {
        let mut input = Input::new();
        let (mut written, mut read) = (0u32, 0u32);
        for round in 0..400usize {
            let space = input.space();
            let count = space.len().min(7_000 + round * 13) / 4;
            for word in space.chunks_exact_mut(4).take(count) {
                word.copy_from_slice(&written.to_be_bytes());
                written += 1;
            }
            input.received(count * 4);
            let consumed = if round % 7 == 0 { count * 2 } else { count / 2 };
            for _ in 0..consumed.min(input.unread().len() / 4) {
                assert_eq!(input.unread()[..4], read.to_be_bytes());
                input.consume(4);
                read += 1;
            }
        }
        assert_eq!(input.unread().len(), (written - read) as usize * 4);
    }
}
