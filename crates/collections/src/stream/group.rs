//! Consumer groups: entries delivered and not yet acknowledged, by consumer.

use std::collections::{BTreeMap, BTreeSet, btree_map, btree_set};
use std::ops::Deref;
use std::sync::Arc;

use crate::size_class::size_class;
use crate::stream::StreamId;
use crate::stream::tree_bytes::tree_bytes;

/// A consumer group: consumers that share the entries.
#[derive(Debug, Clone)]
pub struct Group {
    last_delivered: StreamId,
    entries_read: Option<u64>,
    /// Invariant: these are the pending entries of all consumers, each with its consumer, and those without one.
    pending: BTreeMap<StreamId, Pending>,
    /// The pending entries by the time of their delivery. Made when they are first wanted in this order.
    by_time: Option<BTreeSet<(u64, StreamId)>>,
    /// By number. The slot of a removed consumer is reused for the next new one.
    consumers: Vec<Option<Consumer>>,
    numbers: BTreeMap<Arc<[u8]>, ConsumerNumber>,
    vacant: Vec<ConsumerNumber>,
    /// Memory of names and sets of all consumers.
    consumer_bytes: usize,
}

/// Number of a consumer in its group; valid until the consumer is removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ConsumerNumber(u32);

impl ConsumerNumber {
    /// No consumer: its last one gave the entry back.
    pub const NONE: Self = Self(u32::MAX);
}

/// Returns a number of deliveries as Redis counts them. Higher ones than fit here count as the highest, which XNACK
/// sets for an entry that must not be processed again.
pub fn deliveries_in_redis(deliveries: u32) -> u64 {
    if deliveries == u32::MAX { i64::MAX as u64 } else { deliveries.into() }
}

/// An entry that was delivered and not acknowledged. The entry itself may have been removed since.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pending {
    /// Consumer of the last delivery.
    pub consumer: ConsumerNumber,
    /// Number of deliveries.
    pub deliveries: u32,
    /// Time of the last delivery, in milliseconds since 1970.
    pub delivered_ms: u64,
}

/// A consumer of a group.
#[derive(Debug, Clone)]
pub struct Consumer {
    name: Arc<[u8]>,
    /// Time of its last attempted interaction, in milliseconds since 1970.
    pub seen_ms: u64,
    /// Time at which it last received or claimed an entry; `None` for never.
    pub active_ms: Option<u64>,
    pending: BTreeSet<StreamId>,
}

impl Consumer {
    /// Returns its name.
    pub fn name(&self) -> &[u8] {
        &self.name
    }

    /// Returns the number of its pending entries.
    pub fn pending_len(&self) -> usize {
        self.pending.len()
    }

    /// Returns its pending entries from `from` to `to`, in ascending order.
    pub fn pending(&self, from: StreamId, to: StreamId) -> btree_set::Range<'_, StreamId> {
        if from > to { Default::default() } else { self.pending.range(from..=to) }
    }

    fn own_bytes(&self) -> usize {
        /// The two counts of an `Arc`.
        const COUNTS: usize = 2 * size_of::<usize>();
        size_class(COUNTS + self.name.len()) + tree_bytes::<StreamId, ()>(self.pending.len())
    }
}

impl Group {
    pub(super) fn new(last_delivered: StreamId, entries_read: Option<u64>) -> Self {
        Self {
            last_delivered,
            entries_read,
            pending: BTreeMap::new(),
            by_time: None,
            consumers: Vec::new(),
            numbers: BTreeMap::new(),
            vacant: Vec::new(),
            consumer_bytes: 0,
        }
    }

    /// Returns the highest entry that was delivered to any of its consumers.
    pub fn last_delivered(&self) -> StreamId {
        self.last_delivered
    }

    /// Returns the number of entries it has read, if known.
    pub fn entries_read(&self) -> Option<u64> {
        self.entries_read
    }

    /// Returns the number of pending entries.
    pub fn pending_len(&self) -> usize {
        self.pending.len()
    }

    /// Returns the pending entries from `from` to `to`, in ascending order.
    pub fn pending(&self, from: StreamId, to: StreamId) -> btree_map::Range<'_, StreamId, Pending> {
        if from > to { Default::default() } else { self.pending.range(from..=to) }
    }

    /// Returns the pending entries that were delivered at this time or later, the oldest first; none unless
    /// [`GroupMut::order_by_time`] was called.
    pub fn pending_by_time(&self, from_ms: u64) -> impl Iterator<Item = (u64, StreamId)> {
        let from = (from_ms, StreamId::MIN);
        self.by_time.iter().flat_map(move |by_time| by_time.range(from..)).copied()
    }

    /// Returns true if [`GroupMut::order_by_time`] was called.
    pub fn is_ordered_by_time(&self) -> bool {
        self.by_time.is_some()
    }

    fn times(&self) -> BTreeSet<(u64, StreamId)> {
        self.pending.iter().map(|(id, pending)| (pending.delivered_ms, *id)).collect()
    }

    /// Returns a pending entry.
    pub fn pending_entry(&self, id: StreamId) -> Option<Pending> {
        self.pending.get(&id).copied()
    }

    /// Returns the number of consumers.
    pub fn consumer_count(&self) -> usize {
        self.numbers.len()
    }

    /// Returns the consumers in the order of their names.
    pub fn consumers(&self) -> impl Iterator<Item = &Consumer> {
        self.numbers.values().filter_map(|number| self.consumer(*number))
    }

    /// Returns the number of the consumer with this name.
    pub fn consumer_number(&self, name: &[u8]) -> Option<ConsumerNumber> {
        self.numbers.get(name).copied()
    }

    /// Returns a consumer by its number.
    pub fn consumer(&self, number: ConsumerNumber) -> Option<&Consumer> {
        self.consumers.get(number.0 as usize)?.as_ref()
    }

    /// Returns the name of a consumer by its number; empty if there is none.
    pub fn consumer_name(&self, number: ConsumerNumber) -> &[u8] {
        self.consumer(number).map_or(b"", Consumer::name)
    }

    /// Returns a consumer by its name.
    pub fn consumer_named(&self, name: &[u8]) -> Option<&Consumer> {
        self.consumer(self.consumer_number(name)?)
    }

    pub(super) fn allocated_bytes(&self) -> usize {
        size_class(size_of::<Self>())
            + tree_bytes::<StreamId, Pending>(self.pending.len())
            + self.by_time.as_ref().map_or(0, |it| tree_bytes::<(u64, StreamId), ()>(it.len()))
            + tree_bytes::<Arc<[u8]>, ConsumerNumber>(self.numbers.len())
            + vec_bytes(&self.consumers)
            + vec_bytes(&self.vacant)
            + self.consumer_bytes
    }

    #[cfg(test)]
    pub(super) fn check_account(&self) {
        assert!(self.by_time.as_ref().is_none_or(|by_time| *by_time == self.times()));
        assert_eq!(self.consumer_bytes, self.consumers().map(Consumer::own_bytes).sum::<usize>());
    }

    /// Returns a copy that shares nothing, so that the memory of both is counted correctly.
    pub(super) fn duplicate(&self) -> Self {
        let mut copy = Self::new(self.last_delivered, self.entries_read);
        let mut numbers = BTreeMap::new();
        for consumer in self.consumers() {
            let number = copy.consumer_or_new(&consumer.name);
            copy.change_consumer(number, |copy| {
                copy.seen_ms = consumer.seen_ms;
                copy.active_ms = consumer.active_ms;
                copy.pending.clone_from(&consumer.pending);
            });
            numbers.insert(self.numbers[&consumer.name].0, number);
        }
        copy.pending = self.pending.clone();
        for pending in copy.pending.values_mut() {
            let number = numbers.get(&pending.consumer.0).copied();
            pending.consumer = number.unwrap_or(ConsumerNumber::NONE);
        }
        copy
    }

    fn consumer_or_new(&mut self, name: &[u8]) -> ConsumerNumber {
        if let Some(number) = self.consumer_number(name) {
            return number;
        }
        let name: Arc<[u8]> = name.into();
        let pending = BTreeSet::new();
        let consumer = Consumer { name: name.clone(), seen_ms: 0, active_ms: None, pending };
        self.consumer_bytes += consumer.own_bytes();
        let number = match self.vacant.pop() {
            Some(number) => number,
            None => {
                self.consumers.push(None);
                ConsumerNumber((self.consumers.len() - 1) as u32)
            }
        };
        self.consumers[number.0 as usize] = Some(consumer);
        self.numbers.insert(name, number);
        number
    }

    /// Removes an entry from the pending ones, but not from those of its consumer.
    fn forget(&mut self, id: StreamId) -> Option<Pending> {
        let pending = self.pending.remove(&id)?;
        if let Some(by_time) = &mut self.by_time {
            by_time.remove(&(pending.delivered_ms, id));
        }
        Some(pending)
    }

    /// Changes a consumer, if there is one with this number.
    fn change_consumer<T>(
        &mut self,
        number: ConsumerNumber,
        change: impl FnOnce(&mut Consumer) -> T,
    ) -> Option<T> {
        let consumer = self.consumers.get_mut(number.0 as usize)?.as_mut()?;
        let before = consumer.own_bytes();
        let result = change(consumer);
        self.consumer_bytes = self.consumer_bytes - before + consumer.own_bytes();
        Some(result)
    }
}

fn vec_bytes<T>(vec: &Vec<T>) -> usize {
    if vec.capacity() == 0 { 0 } else { size_class(vec.capacity() * size_of::<T>()) }
}

/// Mutable access to a group. Maintains the stream's memory accounting.
#[derive(Debug)]
pub struct GroupMut<'a> {
    group: &'a mut Group,
    account: &'a mut usize,
    bytes_before: usize,
}

impl Deref for GroupMut<'_> {
    type Target = Group;

    fn deref(&self) -> &Group {
        self.group
    }
}

impl Drop for GroupMut<'_> {
    fn drop(&mut self) {
        *self.account = *self.account - self.bytes_before + self.group.allocated_bytes();
    }
}

impl<'a> GroupMut<'a> {
    pub(super) fn new(group: &'a mut Group, account: &'a mut usize) -> Self {
        let bytes_before = group.allocated_bytes();
        Self { group, account, bytes_before }
    }

    /// Sets the group's position.
    pub fn set_position(&mut self, last_delivered: StreamId, entries_read: Option<u64>) {
        self.group.last_delivered = last_delivered;
        self.group.entries_read = entries_read;
    }

    /// Keeps the pending entries ordered by time from now on.
    pub fn order_by_time(&mut self) {
        if self.group.by_time.is_none() {
            self.group.by_time = Some(self.group.times());
        }
    }

    /// Returns the number of the consumer with this name, which is created if it does not exist.
    pub fn consumer_or_new(&mut self, name: &[u8]) -> ConsumerNumber {
        self.group.consumer_or_new(name)
    }

    /// Sets the times at which a consumer was seen and active.
    pub fn set_times(&mut self, number: ConsumerNumber, seen_ms: u64, active_ms: Option<u64>) {
        self.group.change_consumer(number, |consumer| {
            consumer.seen_ms = seen_ms;
            consumer.active_ms = active_ms;
        });
    }

    /// Removes a consumer with all its pending entries. Returns their number, or `None` if there is no such consumer.
    pub fn remove_consumer(&mut self, name: &[u8]) -> Option<usize> {
        let group = &mut *self.group;
        let number = group.numbers.remove(name)?;
        let consumer = group.consumers[number.0 as usize].take()?;
        group.vacant.push(number);
        group.consumer_bytes -= consumer.own_bytes();
        for id in &consumer.pending {
            group.forget(*id);
        }
        Some(consumer.pending.len())
    }

    /// Sets an entry as pending with a consumer or none, whatever its state was before. Does nothing if there is no
    /// such consumer.
    pub fn set_pending(&mut self, id: StreamId, pending: Pending) {
        let group = &mut *self.group;
        let known = group.change_consumer(pending.consumer, |consumer| consumer.pending.insert(id));
        if known.is_none() && pending.consumer != ConsumerNumber::NONE {
            return;
        }
        let before = group.pending.insert(id, pending);
        if let Some(by_time) = &mut group.by_time {
            before.iter().for_each(|before| _ = by_time.remove(&(before.delivered_ms, id)));
            by_time.insert((pending.delivered_ms, id));
        }
        if let Some(before) = before
            && before.consumer != pending.consumer
        {
            group.change_consumer(before.consumer, |consumer| consumer.pending.remove(&id));
        }
    }

    /// Removes an entry from the pending ones. Returns true if it was pending.
    pub fn acknowledge(&mut self, id: StreamId) -> bool {
        let Some(pending) = self.group.forget(id) else {
            return false;
        };
        self.group.change_consumer(pending.consumer, |consumer| consumer.pending.remove(&id));
        true
    }
}
