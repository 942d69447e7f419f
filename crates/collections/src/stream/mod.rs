//! A stream: entries of fields ordered by ID, and consumer groups.
//!
//! Entries are in blocks of bytes (`block.rs`), found by ID (`blocks.rs`). Groups are in `group.rs`, and the messages
//! that are not added twice in `messages.rs`. A stream may be empty.
//!
//! There are two ways to change a stream. Commands maintain the counters: [`Stream::add`], [`Stream::delete`],
//! [`Stream::trim`]. Replay of a log applies facts, which may come twice and in any order: [`Stream::insert`],
//! [`Stream::remove`], [`Stream::remove_through`], [`Stream::set_state`], and everything about groups and messages.

mod block;
mod blocks;
mod code;
mod group;
mod id;
mod messages;
mod range;
#[cfg(test)]
mod tests;
mod tree_bytes;

use std::collections::BTreeMap;
use std::ptr::NonNull;

use crate::form::Form;
use crate::limits::StreamLimits;
use crate::size_class::size_class;

pub use self::block::{Entry, Fields, NewFields};
use self::blocks::Blocks;
pub use self::blocks::{Keep, Trim, TrimPrecision, Trimmed};
pub use self::group::{Consumer, ConsumerNumber, Group, GroupMut, Pending, deliveries_in_redis};
pub use self::id::StreamId;
pub use self::messages::{MessageCounts, MessageLimits, MessageName, Messages, Remembered};
pub use self::range::{Ascending, Descending};
use self::tree_bytes::tree_bytes;

/// A stream: entries of fields in the order of their IDs, and consumer groups.
#[derive(Debug)]
pub struct Stream {
    body: Box<Body>,
}

#[derive(Debug)]
struct Body {
    blocks: Blocks,
    state: State,
    groups: BTreeMap<Box<[u8]>, Box<Group>>,
    /// Memory of groups and their names.
    group_bytes: usize,
    /// Messages that are not added twice; `None` if no message had a name.
    messages: Option<Box<Messages>>,
}

const _: () = assert!(size_class(size_of::<Body>()) == 192, "one more class for every stream");

/// The metadata of a stream.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct State {
    /// The highest ID ever given.
    pub last_id: StreamId,
    /// The highest ID that was ever deleted (not trimmed).
    pub max_deleted_id: StreamId,
    /// Number of entries ever added.
    pub entries_added: u64,
}

impl crate::Snapshotted for Stream {}

impl Stream {
    /// Creates an empty stream.
    #[expect(clippy::new_without_default, reason = "no caller needs a default")]
    pub fn new() -> Self {
        let (blocks, state, groups) = (Blocks::default(), State::default(), BTreeMap::new());
        let body = Body { blocks, state, groups, group_bytes: 0, messages: None };
        Self { body: Box::new(body) }
    }

    /// Returns the number of entries.
    #[inline]
    #[expect(clippy::len_without_is_empty, reason = "an empty stream is one like others")]
    pub fn len(&self) -> usize {
        self.body.blocks.len()
    }

    /// Returns the bytes it owns, as the allocator counts them; for its ordered maps, an estimate.
    pub fn allocated_bytes(&self) -> usize {
        size_class(size_of::<Body>())
            + self.body.blocks.allocated_bytes()
            + self.body.group_bytes
            + tree_bytes::<Box<[u8]>, Box<Group>>(self.body.groups.len())
            + self.body.messages.as_ref().map_or(0, |messages| messages.allocated_bytes())
    }

    /// Returns the name of its encoding for OBJECT ENCODING.
    pub fn encoding(&self) -> &'static str {
        "stream"
    }

    /// Returns a copy.
    pub fn duplicate(&self) -> Self {
        let mut copy = Self::new();
        copy.body.blocks = self.body.blocks.clone();
        // A copied block has no room for more.
        copy.body.blocks.recount();
        copy.body.state = self.body.state;
        for (name, group) in &self.body.groups {
            copy.put_group(name, group.duplicate());
        }
        let messages = self.body.messages.as_ref();
        copy.body.messages = messages.map(|messages| Box::new(messages.duplicate()));
        copy
    }

    /// See [`Collection::into_raw`](crate::Collection::into_raw).
    #[inline]
    #[must_use]
    pub fn into_raw(self) -> (Form, NonNull<u8>) {
        (Form::Stream, NonNull::from(Box::leak(self.body)).cast())
    }

    /// See [`Collection::from_raw`](crate::Collection::from_raw).
    ///
    /// # Safety
    ///
    /// As there.
    #[inline]
    pub unsafe fn from_raw(form: Form, pointer: NonNull<u8>) -> Self {
        debug_assert_eq!(form, Form::Stream);
        // SAFETY: the caller guarantees that the pointer is from `into_raw`, which leaked a box of this type, and is
        // used once.
        Self { body: unsafe { Box::from_raw(pointer.cast().as_ptr()) } }
    }

    /// Returns the metadata.
    #[inline]
    pub fn state(&self) -> State {
        self.body.state
    }

    /// Sets the metadata.
    pub fn set_state(&mut self, state: State) {
        self.body.state = state;
    }

    /// Returns the first entry.
    pub fn first(&self) -> Option<Entry<'_>> {
        self.body.blocks.first()
    }

    /// Returns the last entry.
    pub fn last(&self) -> Option<Entry<'_>> {
        self.descending(StreamId::MIN, StreamId::MAX).next()
    }

    /// Returns the entry with this ID.
    pub fn get(&self, id: StreamId) -> Option<Entry<'_>> {
        self.ascending(id, id).next()
    }

    /// Returns the entries from `from` to `to`, both included, the oldest first.
    pub fn ascending(&self, from: StreamId, to: StreamId) -> Ascending<'_> {
        self.body.blocks.ascending(from, to)
    }

    /// Returns the entries from `from` to `to`, both included, the newest first.
    pub fn descending(&self, from: StreamId, to: StreamId) -> Descending<'_> {
        self.body.blocks.descending(from, to)
    }

    /// Returns the number of blocks.
    pub fn block_count(&self) -> usize {
        self.body.blocks.count()
    }

    /// Adds an entry after all others: XADD. Returns `false`, and does nothing, if `id` is not above all IDs ever
    /// given.
    pub fn add<'f>(
        &mut self,
        id: StreamId,
        fields: impl NewFields<'f>,
        limits: StreamLimits,
    ) -> bool {
        let state = &mut self.body.state;
        if id <= state.last_id {
            return false;
        }
        state.last_id = id;
        state.entries_added = state.entries_added.saturating_add(1);
        // Replay may have left an entry above the last ID.
        self.body.blocks.insert(id, fields, limits)
    }

    /// Deletes an entry: XDEL. Returns true if it existed.
    pub fn delete(&mut self, id: StreamId) -> bool {
        self.delete_visited(id, |_| ())
    }

    /// As [`Stream::delete`]; `visit` sees the entry before.
    pub fn delete_visited(&mut self, id: StreamId, visit: impl FnOnce(&Entry<'_>)) -> bool {
        let deleted = self.body.blocks.remove(id, visit);
        if deleted {
            let state = &mut self.body.state;
            state.max_deleted_id = state.max_deleted_id.max(id);
        }
        deleted
    }

    /// Removes entries from the beginning: XTRIM.
    pub fn trim(&mut self, trim: Trim) -> Trimmed {
        self.body.blocks.trim(trim)
    }

    /// Returns the number of entries that [`Stream::trim`] would remove.
    pub fn count_to_trim(&self, trim: Trim) -> usize {
        match (trim.precision, trim.keep) {
            (TrimPrecision::Exact, Keep::Newest(max)) => self.len().saturating_sub(max),
            (TrimPrecision::Exact, Keep::From(id)) => {
                let entries = self.ascending(StreamId::MIN, StreamId::MAX);
                entries.take_while(|entry| entry.id < id).count()
            }
            (TrimPrecision::Blocks { limit }, keep) => self.body.blocks.count_to_trim(keep, limit),
        }
    }

    /// Replays the addition of an entry. Returns true if it is new; an existing entry of this ID stays unchanged.
    /// Counters do not change.
    pub fn insert<'f>(
        &mut self,
        id: StreamId,
        fields: impl NewFields<'f>,
        limits: StreamLimits,
    ) -> bool {
        self.body.blocks.insert(id, fields, limits)
    }

    /// Replays the removal of an entry. Returns true if it existed. Counters do not change.
    pub fn remove(&mut self, id: StreamId) -> bool {
        self.body.blocks.remove(id, |_| ())
    }

    /// Removes an entry that was added after all others, if it is still the last one; `false` if it is not. Counters
    /// do not change.
    pub fn withdraw(&mut self, id: StreamId) -> bool {
        self.body.blocks.withdraw(id)
    }

    /// Replays the removal of all entries up to this ID. Returns their number.
    pub fn remove_through(&mut self, id: StreamId) -> usize {
        let keep = id.next().map_or(Keep::Newest(0), Keep::From);
        self.trim(Trim { keep, precision: TrimPrecision::Exact }).count
    }

    /// Returns the number of groups.
    pub fn group_count(&self) -> usize {
        self.body.groups.len()
    }

    /// Returns the groups in the order of their names.
    pub fn groups(&self) -> impl Iterator<Item = (&[u8], &Group)> {
        self.body.groups.iter().map(|(name, group)| (&**name, &**group))
    }

    /// Returns a group.
    pub fn group(&self, name: &[u8]) -> Option<&Group> {
        self.body.groups.get(name).map(|group| &**group)
    }

    /// Returns a group for changing it.
    pub fn group_mut(&mut self, name: &[u8]) -> Option<GroupMut<'_>> {
        let body = &mut *self.body;
        let group = body.groups.get_mut(name)?;
        Some(GroupMut::new(group, &mut body.group_bytes))
    }

    /// Returns a group for changing it, which is created if it does not exist.
    pub fn group_or_new(&mut self, name: &[u8]) -> GroupMut<'_> {
        if !self.body.groups.contains_key(name) {
            self.put_group(name, Group::new(StreamId::MIN, None));
        }
        self.group_mut(name).expect("a group that is there, or was just made")
    }

    /// Removes a group. Returns true if it existed.
    pub fn remove_group(&mut self, name: &[u8]) -> bool {
        let Some(group) = self.body.groups.remove(name) else {
            return false;
        };
        self.body.group_bytes -= size_class(name.len()) + group.allocated_bytes();
        true
    }

    fn put_group(&mut self, name: &[u8], group: Group) {
        self.body.group_bytes += size_class(name.len()) + group.allocated_bytes();
        self.body.groups.insert(name.into(), Box::new(group));
    }

    /// Returns the messages that are not added twice; `None` if no message had a name.
    #[inline]
    pub fn messages(&self) -> Option<&Messages> {
        self.body.messages.as_deref()
    }

    /// Forgets all messages. New ones are remembered by these limits, or with `None` there were never any.
    pub fn set_messages(&mut self, limits: Option<MessageLimits>, counts: MessageCounts) {
        self.body.messages = limits.map(|limits| Box::new(Messages::new(limits, counts)));
    }

    /// Sets the numbers of messages so far, if there were any.
    pub fn set_message_counts(&mut self, counts: MessageCounts) {
        self.body.messages.iter_mut().for_each(|messages| messages.set_counts(counts));
    }

    /// Remembers a message that was added at this time as this entry. `forgotten` gets the messages that are forgotten
    /// for it. Returns `false`, and does not remember it, without limits or if a later entry is known for it.
    pub fn remember(
        &mut self,
        name: MessageName<'_>,
        id: StreamId,
        at_ms: u64,
        forgotten: impl FnMut(StreamId, Remembered),
    ) -> bool {
        let messages = self.body.messages.as_mut();
        messages.is_some_and(|messages| messages.remember(name, id, at_ms, forgotten))
    }

    /// Forgets the message that was added as this entry, if any.
    pub fn forget(&mut self, id: StreamId) {
        if let Some(messages) = &mut self.body.messages {
            messages.forget(id, &mut |_, _| ());
        }
    }

    /// Returns the number of entries added up to this ID, if it can be determined: entries within a stream are not
    /// counted, so it is known at both ends only, and not beyond deletions.
    pub fn entries_added_at(&self, id: StreamId) -> Option<u64> {
        let State { last_id, max_deleted_id, entries_added } = self.state();
        if entries_added == 0 {
            return Some(0);
        }
        let Some(first) = self.first() else {
            return (id <= last_id).then_some(entries_added);
        };
        if id >= last_id {
            return (id == last_id).then_some(entries_added);
        }
        let before_first = entries_added.checked_sub(self.len() as u64)?;
        if id != StreamId::MIN && id < max_deleted_id {
            return None;
        }
        let intact = max_deleted_id < first.id;
        match id.cmp(&first.id) {
            _ if !intact => None,
            std::cmp::Ordering::Less => Some(before_first),
            std::cmp::Ordering::Equal => Some(before_first + 1),
            std::cmp::Ordering::Greater => None,
        }
    }

    /// Returns true if an entry from `id` on may have been deleted.
    pub fn has_gap_from(&self, id: StreamId) -> bool {
        let max_deleted_id = self.state().max_deleted_id;
        self.len() > 0 && max_deleted_id != StreamId::MIN && id <= max_deleted_id
    }

    /// Returns the number of entries that a group has not read yet, if it can be determined.
    pub fn lag(&self, group: &Group) -> Option<u64> {
        let State { max_deleted_id, entries_added, .. } = self.state();
        let position = group.last_delivered();
        let Some(first) = self.first() else { return Some(0) };
        if entries_added == 0 {
            return Some(0);
        }
        // All entries are unread, and none of them is missing.
        if position.max(max_deleted_id) < first.id {
            return Some(self.len() as u64);
        }
        let read = group.entries_read().filter(|_| !self.has_gap_from(position));
        let read = read.or_else(|| self.entries_added_at(position))?;
        Some(entries_added.saturating_sub(read))
    }

    /// Returns the number of entries that a group has read with the entry `id`, given that it had read `read` entries
    /// up to `position`.
    pub fn entries_read_at(
        &self,
        id: StreamId,
        position: StreamId,
        read: Option<u64>,
    ) -> Option<u64> {
        match read {
            Some(read)
                if self.first().is_some_and(|first| first.id <= position)
                    && !self.has_gap_from(position) =>
            {
                Some(read.saturating_add(1))
            }
            read if self.state().entries_added == 0 => read,
            _ => self.entries_added_at(id),
        }
    }
}
