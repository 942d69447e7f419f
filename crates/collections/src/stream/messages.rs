//! Messages that producers have added, by names that stay valid when a message is sent again. So a repeated message
//! is recognized, and adds nothing.
//!
//! A message is forgotten after some time, and the oldest ones of a producer are forgotten above a number. Its entry
//! may be deleted before. Expired messages are invisible, and leave the memory when others are remembered.
//!
//! **Invariant:** a message of `by_entry` is in its producer's two maps, and the other way round.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::size_class::size_class;
use crate::stream::StreamId;
use crate::stream::tree_bytes::tree_bytes;

/// Upper bound of expired messages that leave the memory when one is remembered.
const EXPIRED_MAX: usize = 16;

/// Name of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MessageName<'a> {
    /// Name of its producer.
    pub producer: &'a [u8],
    /// Its own name, unique among those of the producer.
    pub message: &'a [u8],
}

/// Limits of remembered messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MessageLimits {
    /// Time after which a message is forgotten, in seconds.
    pub duration_s: u32,
    /// Maximum number of messages of each producer.
    pub messages_max: u32,
}

impl MessageLimits {
    /// The highest limits that commands and files may set.
    pub const MAX: Self = Self { duration_s: 86_400, messages_max: 10_000 };

    /// Returns true if commands could have set them.
    pub fn are_allowed(self) -> bool {
        (1..=Self::MAX.duration_s).contains(&self.duration_s)
            && (1..=Self::MAX.messages_max).contains(&self.messages_max)
    }
}

/// Numbers of messages in the life of a stream.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct MessageCounts {
    /// Messages that were added with a name.
    pub added: u64,
    /// Repeated ones, which were not added.
    pub duplicates: u64,
}

/// Remembered messages of a stream.
#[derive(Debug)]
pub struct Messages {
    limits: MessageLimits,
    counts: MessageCounts,
    by_entry: BTreeMap<StreamId, Remembered>,
    producers: BTreeMap<Arc<[u8]>, Producer>,
    /// Memory of names and of the maps of producers.
    bytes: usize,
}

/// A remembered message.
#[derive(Debug)]
pub struct Remembered {
    /// Time at which it was added, in milliseconds since 1970.
    pub at_ms: u64,
    producer: Arc<[u8]>,
    message: Arc<[u8]>,
}

/// Messages of a producer.
#[derive(Debug, Default)]
struct Producer {
    by_name: BTreeMap<Arc<[u8]>, StreamId>,
    entries: BTreeSet<StreamId>,
}

impl Remembered {
    /// Returns its name.
    pub fn name(&self) -> MessageName<'_> {
        MessageName { producer: &self.producer, message: &self.message }
    }
}

impl Producer {
    fn own_bytes(&self) -> usize {
        tree_bytes::<Arc<[u8]>, StreamId>(self.by_name.len())
            + tree_bytes::<StreamId, ()>(self.entries.len())
    }
}

fn name_bytes(name: &[u8]) -> usize {
    /// The two counts of an `Arc`.
    const COUNTS: usize = 2 * size_of::<usize>();
    size_class(COUNTS + name.len())
}

impl Messages {
    pub(super) fn new(limits: MessageLimits, counts: MessageCounts) -> Self {
        let (by_entry, producers) = (BTreeMap::new(), BTreeMap::new());
        Self { limits, counts, by_entry, producers, bytes: 0 }
    }

    /// Returns the limits.
    pub fn message_limits(&self) -> MessageLimits {
        self.limits
    }

    /// Returns the numbers of messages so far.
    pub fn counts(&self) -> MessageCounts {
        self.counts
    }

    /// Returns the number of messages in memory, including expired ones.
    #[expect(clippy::len_without_is_empty, reason = "no caller asks")]
    pub fn len(&self) -> usize {
        self.by_entry.len()
    }

    /// Returns the entry of a message, unless it has been forgotten.
    pub fn find(&self, name: MessageName<'_>, now_ms: u64) -> Option<StreamId> {
        let id = *self.producers.get(name.producer)?.by_name.get(name.message)?;
        (!self.is_expired(id, now_ms)).then_some(id)
    }

    /// Returns the messages whose entries are from `from` to `to`, both included, in order.
    pub fn range(
        &self,
        from: StreamId,
        to: StreamId,
    ) -> impl Iterator<Item = (StreamId, &Remembered)> {
        let is_empty = from > to;
        let range = (!is_empty).then(|| self.by_entry.range(from..=to));
        range.into_iter().flatten().map(|(id, message)| (*id, message))
    }

    /// Returns the numbers of producers and messages that are remembered.
    pub fn tracked(&self, now_ms: u64) -> (usize, usize) {
        let is_known = |id: &StreamId| !self.is_expired(*id, now_ms);
        let producers = self.producers.values();
        let producers = producers.filter(|producer| producer.entries.iter().rev().any(is_known));
        (producers.count(), self.by_entry.keys().filter(|id| is_known(id)).count())
    }

    /// Returns true if this entry was added as a message that has not been forgotten.
    pub fn has_name(&self, id: StreamId, now_ms: u64) -> bool {
        !self.is_expired(id, now_ms)
    }

    fn is_expired(&self, id: StreamId, now_ms: u64) -> bool {
        self.by_entry.get(&id).is_none_or(|message| self.has_expired(message, now_ms))
    }

    fn has_expired(&self, message: &Remembered, now_ms: u64) -> bool {
        let duration_ms = u64::from(self.limits.duration_s) * 1000;
        message.at_ms.saturating_add(duration_ms) <= now_ms
    }

    pub(super) fn set_counts(&mut self, counts: MessageCounts) {
        self.counts = counts;
    }

    /// Remembers a message that was added at this time. `forgotten` gets the messages that are forgotten for it. Of
    /// two entries of a message, the later one counts: returns `false` if the known one is later.
    pub(super) fn remember(
        &mut self,
        name: MessageName<'_>,
        id: StreamId,
        at_ms: u64,
        mut forgotten: impl FnMut(StreamId, Remembered),
    ) -> bool {
        for _ in 0..EXPIRED_MAX {
            let first = self.by_entry.first_key_value();
            let Some((first, _)) = first.filter(|(_, first)| self.has_expired(first, at_ms)) else {
                break;
            };
            self.forget(*first, &mut forgotten);
        }
        let producer = self.producers.get(name.producer);
        if let Some(before) = producer.and_then(|it| it.by_name.get(name.message).copied()) {
            // A message that had expired by then was added again.
            let is_expired =
                self.by_entry.get(&before).is_some_and(|it| self.has_expired(it, at_ms));
            if before > id && !is_expired {
                return false;
            }
            self.forget(before, &mut forgotten);
        }
        self.forget(id, &mut forgotten);
        self.insert(name, id, at_ms);
        let entries = &self.producers[name.producer].entries;
        let too_many = entries.len().saturating_sub(self.limits.messages_max as usize);
        let oldest: Vec<StreamId> = entries.iter().take(too_many).copied().collect();
        oldest.into_iter().for_each(|id| self.forget(id, &mut forgotten));
        true
    }

    fn insert(&mut self, name: MessageName<'_>, id: StreamId, at_ms: u64) {
        let producer = match self.producers.get_key_value(name.producer) {
            Some((known, _)) => Arc::clone(known),
            None => {
                self.bytes += name_bytes(name.producer);
                name.producer.into()
            }
        };
        let message: Arc<[u8]> = name.message.into();
        self.bytes += name_bytes(&message);
        let messages = self.producers.entry(Arc::clone(&producer)).or_default();
        self.bytes -= messages.own_bytes();
        messages.by_name.insert(Arc::clone(&message), id);
        messages.entries.insert(id);
        self.bytes += messages.own_bytes();
        self.by_entry.insert(id, Remembered { at_ms, producer, message });
    }

    /// Forgets the message of an entry, if any.
    pub(super) fn forget(
        &mut self,
        id: StreamId,
        forgotten: &mut impl FnMut(StreamId, Remembered),
    ) {
        let Some(message) = self.by_entry.remove(&id) else { return };
        self.bytes -= name_bytes(&message.message);
        if let Some(producer) = self.producers.get_mut(&message.producer) {
            self.bytes -= producer.own_bytes();
            producer.by_name.remove(&message.message);
            producer.entries.remove(&id);
            self.bytes += producer.own_bytes();
            if producer.entries.is_empty() {
                self.producers.remove(&message.producer);
                self.bytes -= name_bytes(&message.producer);
            }
        }
        forgotten(id, message);
    }

    pub(super) fn allocated_bytes(&self) -> usize {
        size_class(size_of::<Self>())
            + tree_bytes::<StreamId, Remembered>(self.by_entry.len())
            + tree_bytes::<Arc<[u8]>, Producer>(self.producers.len())
            + self.bytes
    }

    /// Returns a copy that shares nothing, so that the memory of both is counted correctly.
    pub(super) fn duplicate(&self) -> Self {
        let mut copy = Self::new(self.limits, self.counts);
        for (id, message) in &self.by_entry {
            copy.insert(message.name(), *id, message.at_ms);
        }
        copy
    }

    #[cfg(test)]
    pub(super) fn check_account(&self) {
        let of_messages = self.by_entry.values().map(|it| name_bytes(&it.message)).sum::<usize>();
        let of_producers = self.producers.iter();
        let of_producers = of_producers.map(|(name, it)| name_bytes(name) + it.own_bytes());
        assert_eq!(self.bytes, of_messages + of_producers.sum::<usize>());
        let len = self.producers.values().map(|producer| producer.entries.len()).sum::<usize>();
        assert_eq!(len, self.by_entry.len());
        for (id, message) in &self.by_entry {
            assert_eq!(self.producers[&message.producer].by_name[&message.message], *id);
        }
    }
}
