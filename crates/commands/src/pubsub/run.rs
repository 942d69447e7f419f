//! Consecutive messages to the same receivers, which are written together.

use std::cell::OnceCell;
use std::sync::Arc;

use tierce_output::Output;
use tierce_wire::resp::Proto;

use super::frame::{self, Frame, Part};
use super::inbox::{Delivery, To};
use super::subscriptions::Subscriptions;

/// Size limit for joining frames: beyond it, the copy would cost more than it saves.
pub(super) const RUN_BYTES_MAX: usize = 16 * 1024;

/// Deliveries with consecutive numbers to the same receivers.
pub struct Run {
    pub(super) to: To,
    /// The number of the first delivery.
    first: u64,
    frames: Vec<Frame>,
    /// All frames joined, in each protocol version.
    joined: [OnceCell<Arc<Vec<u8>>>; 2],
    /// Number of receivers that have not got it.
    pub(super) left: usize,
}

impl Run {
    pub(super) fn new(first_number: u64, first: Delivery, others: Vec<Frame>) -> Self {
        let Delivery { to, frame } = first;
        let frames = std::iter::once(frame).chain(others).collect();
        Self { to, first: first_number, frames, joined: Default::default(), left: usize::MAX }
    }

    /// Returns the number after the last delivery.
    fn end(&self) -> u64 {
        self.first + self.frames.len() as u64
    }

    /// Returns the bytes of its deliveries in an inbox.
    pub(super) fn bytes(&self) -> usize {
        self.frames.iter().map(|frame| size_of::<Delivery>() + frame.len()).sum()
    }

    /// Writes the messages that a subscriber has not seen, and returns their bytes.
    pub(super) fn write(
        &self,
        subscriptions: &mut Subscriptions,
        output: &mut Output,
        proto: Proto,
    ) -> usize {
        let seen = subscriptions.seen;
        if seen >= self.end() {
            return 0;
        }
        subscriptions.seen = self.end();
        let before = output.written();
        match &*self.frames {
            _ if seen > self.first => self.write_unseen(seen, subscriptions, output, proto),
            [Frame::Message(only)] if only.len() > RUN_BYTES_MAX => only.write(output, proto),
            [Frame::Message(_), ..] => {
                let joined = self.joined(proto);
                frame::share(output, joined, 0..joined.len());
            }
            _ => self.write_unseen(seen, subscriptions, output, proto),
        }
        output.written() - before
    }

    /// Writes the messages for a connection without subscriptions, and returns their bytes.
    pub(super) fn write_to_other(&self, output: &mut Output, proto: Proto) -> usize {
        let before = output.written();
        for frame in &self.frames {
            if let Frame::Invalidation(invalidation) = frame {
                invalidation.write_redirected(false, output, proto);
            }
        }
        output.written() - before
    }

    /// Writes the deliveries from number `seen` on.
    pub(super) fn write_unseen(
        &self,
        seen: u64,
        subscriptions: &mut Subscriptions,
        output: &mut Output,
        proto: Proto,
    ) {
        let skipped = seen.saturating_sub(self.first) as usize;
        let unseen = self.frames.iter().skip(skipped);
        unseen.for_each(|frame| subscriptions.write(frame, output, proto));
    }

    /// Returns the messages. Invalidations have other receivers.
    fn parts(&self) -> impl Iterator<Item = &Part> {
        self.frames.iter().filter_map(|frame| match frame {
            Frame::Message(part) => Some(part),
            Frame::Invalidation(_) => None,
        })
    }

    fn joined(&self, proto: Proto) -> &Arc<Vec<u8>> {
        self.joined[proto as usize].get_or_init(|| {
            let mut bytes = Vec::with_capacity(self.frames.iter().map(Frame::len).sum());
            self.parts().for_each(|part| part.copy_to(&mut bytes, proto));
            Arc::new(bytes)
        })
    }
}
