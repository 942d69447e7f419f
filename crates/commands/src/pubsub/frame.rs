//! A message in its encoding for receivers.
//!
//! RESP3 only differs from RESP2 in the first byte, `>` instead of `*`. The rest is encoded once and shared.

use std::ops::Range;
use std::sync::Arc;

use tierce_output::{ATTACH_BYTES_MIN, Output};
use tierce_wire::resp::{Encoder, Proto};

use super::names::{Kind, Name};
use super::trackers::Invalidation;

/// Content of a delivery.
#[derive(Clone)]
pub(super) enum Frame {
    /// A message for subscribers.
    Message(Part),
    /// An invalidation. Its encoding depends on the receiver.
    Invalidation(Invalidation),
}

/// A message for subscribers of its channel, without the first byte.
#[derive(Clone)]
pub(super) struct Message {
    bytes: Arc<Vec<u8>>,
    /// Offset of its channel and payload, which subscribers of patterns get as well.
    payload_at: usize,
}

/// The message for subscribers of one channel or pattern.
#[derive(Clone)]
pub(super) struct Part {
    /// Bytes before the shared part, for subscribers of a pattern.
    head: Option<Arc<Vec<u8>>>,
    message: Arc<Vec<u8>>,
    range: Range<usize>,
}

impl Message {
    pub(super) fn encode(is_of_shard: bool, channel: &[u8], message: &[u8]) -> Self {
        let word: &[u8] = if is_of_shard { b"smessage" } else { b"message" };
        let mut bytes = Vec::with_capacity(64 + channel.len() + message.len());
        bytes.extend_from_slice(b"3\r\n");
        Encoder::new(&mut bytes, Proto::Resp2).bulk(word);
        let payload_at = bytes.len();
        let mut encoder = Encoder::new(&mut bytes, Proto::Resp2);
        encoder.bulk(channel);
        encoder.bulk(message);
        Self { bytes: Arc::new(bytes), payload_at }
    }

    /// Returns the message for subscribers of this channel or pattern.
    pub(super) fn part(&self, kind: Kind, name: &Name) -> Part {
        let message = Arc::clone(&self.bytes);
        if kind != Kind::Pattern {
            let range = 0..message.len();
            return Part { head: None, message, range };
        }
        let mut head = Vec::with_capacity(40 + name.len());
        head.extend_from_slice(b"4\r\n");
        let mut encoder = Encoder::new(&mut head, Proto::Resp2);
        encoder.bulk(b"pmessage");
        encoder.bulk(name);
        let range = self.payload_at..message.len();
        Part { head: Some(Arc::new(head)), message, range }
    }
}

impl Frame {
    /// Returns the approximate number of bytes.
    pub(super) fn len(&self) -> usize {
        match self {
            Self::Message(part) => part.len(),
            Self::Invalidation(invalidation) => invalidation.len(),
        }
    }
}

impl Part {
    /// Returns the number of bytes, including the first one.
    pub(super) fn len(&self) -> usize {
        1 + self.head.as_ref().map_or(0, |head| head.len()) + self.range.len()
    }

    /// Writes it. A long message is sent by reference.
    pub(super) fn write(&self, output: &mut Output, proto: Proto) {
        output.buffer().push(first_byte(proto));
        if let Some(head) = &self.head {
            share(output, head, 0..head.len());
        }
        share(output, &self.message, self.range.clone());
    }

    /// Appends it to `bytes`.
    pub(super) fn copy_to(&self, bytes: &mut Vec<u8>, proto: Proto) {
        bytes.push(first_byte(proto));
        if let Some(head) = &self.head {
            bytes.extend_from_slice(head);
        }
        bytes.extend_from_slice(&self.message[self.range.clone()]);
    }
}

/// Appends a part of shared bytes. Only bytes that are not copied count as another reference.
pub(super) fn share(output: &mut Output, bytes: &Arc<Vec<u8>>, range: Range<usize>) {
    if range.len() < ATTACH_BYTES_MIN {
        output.buffer().extend_from_slice(&bytes[range]);
    } else {
        output.attach_range(Arc::clone(bytes), range);
    }
}

fn first_byte(proto: Proto) -> u8 {
    match proto {
        Proto::Resp2 => b'*',
        Proto::Resp3 => b'>',
    }
}
