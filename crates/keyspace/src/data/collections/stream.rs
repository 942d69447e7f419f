//! Edits of streams.
//!
//! Edits of a stream's metadata state the new value, and the log has them in the order of the changes. So the last
//! one is correct, whatever a checkpoint has written in between.

use tierce_collections::stream::{
    ConsumerNumber, Entry, Group, MessageCounts, MessageLimits, MessageName, Messages, NewFields,
    Pending, Remembered, State, StreamId, Trim,
};
use tierce_collections::{CollectionKind, IntText, Stream};

use super::Editor;
use super::edits::{Field, Fields, code};
use super::limits::LimitCells;
use super::part::CollectionPart;
use super::sealed::Sealed;
use crate::codec::{Malformed, Reader, Writer};
use crate::planted::Fault;

/// Codes of the edits. `docs/formats/log-operations.md` has their layouts.
mod edit {
    pub(super) const STATE: u8 = 0;
    pub(super) const ADD: u8 = 1;
    pub(super) const ENTRY: u8 = 2;
    pub(super) const DELETE: u8 = 3;
    pub(super) const THROUGH: u8 = 4;
    pub(super) const GROUP: u8 = 5;
    pub(super) const NO_GROUP: u8 = 6;
    pub(super) const CONSUMER: u8 = 7;
    pub(super) const NO_CONSUMER: u8 = 8;
    pub(super) const PENDING: u8 = 9;
    pub(super) const ACKNOWLEDGE: u8 = 10;
    /// Only for rollbacks, never in the log.
    pub(super) const WITHDRAW: u8 = 11;
    pub(super) const NEW_GROUP: u8 = 12;
    pub(super) const MESSAGES: u8 = 13;
    pub(super) const REMEMBER: u8 = 14;
    /// Only for rollbacks, never in the log.
    pub(super) const FORGET: u8 = 15;
}

const fn code_of(edit: u8) -> u8 {
    code(CollectionKind::Stream, edit)
}

impl Editor<'_, Stream> {
    /// Adds an entry after all others. Does nothing and returns `false` if `id` is not above all earlier identities.
    pub fn add<'f>(&mut self, id: StreamId, fields: impl NewFields<'f>) -> bool {
        let before = self.value.state();
        if !self.value.add(id, fields.clone(), self.limits.stream()) {
            return false;
        }
        self.undo_by(|edits| {
            edits.begin(code_of(edit::WITHDRAW));
            put_id(edits, id);
            put_state(edits, before);
        });
        self.serve_waiters();
        let entries_added = self.value.state().entries_added;
        self.record(|edits| {
            edits.begin(code_of(edit::ADD));
            edits.number(entries_added);
            put_id(edits, id);
            put_fields(edits, fields);
        });
        true
    }

    /// Deletes an entry. Returns true if there was one.
    pub fn delete(&mut self, id: StreamId) -> bool {
        let before = self.value.state();
        let (stream, mut recorder) = self.split();
        let deleted = stream.delete_visited(id, |entry| {
            recorder.undo_by(|edits| {
                put_entry(edits, entry);
                put_state(edits, before);
            });
        });
        if deleted {
            self.record(|edits| put_deletion(edits, id));
        }
        deleted
    }

    /// Removes entries from the beginning. Returns their number.
    pub fn trim(&mut self, trim: Trim) -> usize {
        self.before(|stream, edits| {
            let count = stream.count_to_trim(trim);
            let entries = stream.ascending(StreamId::MIN, StreamId::MAX);
            entries.take(count).for_each(|entry| put_entry(edits, &entry));
        });
        let trimmed = self.value.trim(trim);
        if let Some(through) = trimmed.through {
            self.record(|edits| {
                edits.begin(code_of(edit::THROUGH));
                put_id(edits, through);
            });
        }
        trimmed.count
    }

    /// Sets the metadata.
    pub fn set_state(&mut self, state: State) {
        self.before(|stream, edits| put_state(edits, stream.state()));
        self.value.set_state(state);
        self.record(|edits| put_state(edits, state));
    }

    /// Sets the position of a group, which is created if absent.
    pub fn set_group(&mut self, name: &[u8], last_delivered: StreamId, entries_read: Option<u64>) {
        self.before(|stream, edits| match stream.group(name) {
            Some(group) => {
                put_group(edits, edit::GROUP, name, group.last_delivered(), group.entries_read());
            }
            None => put_no_group(edits, name),
        });
        let before = self.value.group(name).map(Group::last_delivered);
        let is_new = before.is_none();
        if before.is_some_and(|before| last_delivered < before) {
            // Its consumers may receive entries again.
            self.serve_waiters();
        }
        self.value.group_or_new(name).set_position(last_delivered, entries_read);
        self.record(|edits| match is_new {
            true => put_group(edits, edit::NEW_GROUP, name, last_delivered, entries_read),
            false => put_group(edits, edit::GROUP, name, last_delivered, entries_read),
        });
    }

    /// Removes a group. Returns true if there was one.
    pub fn remove_group(&mut self, name: &[u8]) -> bool {
        self.before(|stream, edits| {
            if let Some(group) = stream.group(name) {
                put_group_head(edits, name, group);
                put_pending_range(edits, name, group, StreamId::MIN, StreamId::MAX);
            }
        });
        let removed = self.value.remove_group(name);
        if removed {
            // Its consumers are told that it is gone.
            self.serve_waiters();
            self.record(|edits| put_no_group(edits, name));
        }
        removed
    }

    /// Sets when a consumer was seen and active; it is created if absent. Does nothing without the group.
    pub fn set_consumer(
        &mut self,
        group: &[u8],
        name: &[u8],
        seen_ms: u64,
        active_ms: Option<u64>,
    ) {
        self.before(|stream, edits| {
            if let Some(found) = stream.group(group) {
                put_consumer_of(edits, group, found, name);
            }
        });
        let Some(mut found) = self.value.group_mut(group) else { return };
        let number = found.consumer_or_new(name);
        found.set_times(number, seen_ms, active_ms);
        drop(found);
        self.record(|edits| put_consumer(edits, group, name, seen_ms, active_ms));
    }

    /// Notes that a consumer was seen. This is not logged on its own: consumers ask all the time.
    pub fn saw_consumer(&mut self, group: &[u8], name: &[u8], seen_ms: u64) {
        self.before(|stream, edits| {
            if let Some(found) = stream.group(group)
                && found.consumer_number(name).is_some()
            {
                put_consumer_of(edits, group, found, name);
            }
        });
        let Some(mut group) = self.value.group_mut(group) else { return };
        let Some(number) = group.consumer_number(name) else { return };
        let active_ms = group.consumer(number).and_then(|consumer| consumer.active_ms);
        group.set_times(number, seen_ms, active_ms);
    }

    /// Removes a consumer with its pending entries. Returns their number, or `None` if there is no such consumer.
    pub fn remove_consumer(&mut self, group: &[u8], name: &[u8]) -> Option<usize> {
        self.before(|stream, edits| {
            if let Some(found) = stream.group(group)
                && let Some(consumer) = found.consumer_named(name)
            {
                put_consumer_of(edits, group, found, name);
                let ids = consumer.pending(StreamId::MIN, StreamId::MAX);
                ids.for_each(|id| put_pending_of(edits, group, found, *id));
            }
        });
        let pending = self.value.group_mut(group)?.remove_consumer(name)?;
        self.record(|edits| put_no_consumer(edits, group, name));
        Some(pending)
    }

    /// Makes entries pending with a consumer, whatever their previous state. Does nothing without the group or the
    /// consumer. A [`Delivery::given_back`] to a consumer without a name leaves them without a consumer.
    pub fn deliver(&mut self, group: &[u8], consumer: &[u8], ids: &[StreamId], delivery: Delivery) {
        self.before(|stream, edits| {
            if let Some(found) = stream.group(group)
                && receiver(found, consumer, delivery).is_some()
            {
                ids.iter().for_each(|id| put_pending_of(edits, group, found, *id));
            }
        });
        let Some(mut found) = self.value.group_mut(group) else { return };
        let Some(number) = receiver(&found, consumer, delivery) else { return };
        for id in ids {
            found.set_pending(*id, delivery.to(number));
        }
        drop(found);
        if number == ConsumerNumber::NONE {
            // Others may claim them at once.
            self.serve_waiters();
        }
        if !ids.is_empty() {
            self.record(|edits| put_pending(edits, group, consumer, delivery, ids));
        }
    }

    /// Keeps what is pending in a group ordered by time, see [`Group::pending_by_time`]. This is no change.
    pub fn order_by_time(&mut self, group: &[u8]) {
        if let Some(mut group) = self.value.group_mut(group) {
            group.order_by_time();
        }
    }

    /// Makes entries not pending. Returns the number of those that were.
    pub fn acknowledge(&mut self, group: &[u8], ids: impl Iterator<Item = StreamId>) -> usize {
        let ids: Vec<StreamId> = ids.collect();
        self.before(|stream, edits| {
            if let Some(found) = stream.group(group) {
                let known = ids.iter().filter(|id| found.pending_entry(**id).is_some());
                known.for_each(|id| put_pending_of(edits, group, found, *id));
            }
        });
        let Some(mut found) = self.value.group_mut(group) else { return 0 };
        let gone: Vec<StreamId> = ids.into_iter().filter(|id| found.acknowledge(*id)).collect();
        drop(found);
        if !gone.is_empty() {
            self.record(|edits| {
                edits.begin(code_of(edit::ACKNOWLEDGE));
                edits.bytes(group);
                put_ids(edits, &gone);
            });
        }
        gone.len()
    }

    /// Returns the entry of a message that is added again, and counts it; `None` for a new message. The count is not
    /// logged on its own: it changes no data.
    pub fn find_duplicate(&mut self, name: MessageName<'_>, now_ms: u64) -> Option<StreamId> {
        let messages = self.value.messages()?;
        let (id, counts) = (messages.find(name, now_ms)?, messages.counts());
        self.undo_by(|edits| put_forgotten(edits, counts, StreamId::MIN));
        let duplicates = counts.duplicates.saturating_add(1);
        self.value.set_message_counts(MessageCounts { duplicates, ..counts });
        Some(id)
    }

    /// Forgets all messages. New ones are remembered by these limits.
    pub fn set_messages(&mut self, limits: MessageLimits, counts: MessageCounts) {
        self.before(|stream, edits| put_messages(edits, stream.messages()));
        self.value.set_messages(Some(limits), counts);
        self.record(|edits| put_limits(edits, limits, counts));
    }

    /// Remembers a message that was added at this time as this entry. Does nothing before [`Editor::set_messages`].
    pub fn remember(
        &mut self,
        name: MessageName<'_>,
        id: StreamId,
        at_ms: u64,
        counts: MessageCounts,
    ) {
        let Some(before) = self.value.messages().map(Messages::counts) else { return };
        let is_undoable = self.is_undoable();
        let mut forgotten = Vec::new();
        let is_new = self.value.remember(name, id, at_ms, |id, message| {
            if is_undoable {
                forgotten.push((id, message));
            }
        });
        self.value.set_message_counts(counts);
        self.undo_by(|edits| {
            put_forgotten(edits, before, if is_new { id } else { StreamId::MIN });
            // The expired ones last, since they would be forgotten again for the others.
            let forgotten = forgotten.iter().rev();
            forgotten.for_each(|(id, message)| put_remembered(edits, before, *id, message));
        });
        self.record(|edits| put_message(edits, counts, at_ms, id, name));
    }
}

/// Time and count of the deliveries of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Delivery {
    /// Time of the last delivery, in milliseconds since 1970.
    pub at_ms: u64,
    /// Number of deliveries.
    pub count: u32,
}

impl Delivery {
    /// Returns the state of an entry that was given back after this many deliveries. The log has it as a delivery to a
    /// consumer without a name, which older versions and other servers create.
    pub fn given_back(count: u32) -> Self {
        Self { at_ms: 0, count }
    }

    /// Returns true if a delivery to this consumer means that the entry has none.
    pub fn is_given_back(self, consumer: &[u8]) -> bool {
        consumer.is_empty() && self.at_ms == 0
    }

    fn of(pending: &Pending) -> Self {
        Self { at_ms: pending.delivered_ms, count: pending.deliveries }
    }

    fn to(self, consumer: ConsumerNumber) -> Pending {
        Pending { consumer, deliveries: self.count, delivered_ms: self.at_ms }
    }
}

/// Returns the consumer of a delivery; `None` if it does not exist.
fn receiver(group: &Group, consumer: &[u8], delivery: Delivery) -> Option<ConsumerNumber> {
    if delivery.is_given_back(consumer) {
        return Some(ConsumerNumber::NONE);
    }
    group.consumer_number(consumer)
}

fn put_id(edits: &mut Writer<'_>, id: StreamId) {
    edits.number(id.ms);
    edits.number(id.seq);
}

fn put_ids(edits: &mut Writer<'_>, ids: &[StreamId]) {
    edits.count(ids.len());
    ids.iter().for_each(|id| put_id(edits, *id));
}

fn put_fields<'f>(edits: &mut Writer<'_>, fields: impl NewFields<'f>) {
    edits.count(fields.len());
    for (name, value) in fields {
        edits.bytes(name);
        edits.bytes(value);
    }
}

fn put_entry(edits: &mut Writer<'_>, entry: &Entry<'_>) {
    let (mut name_text, mut value_text) = (IntText::new(), IntText::new());
    edits.begin(code_of(edit::ENTRY));
    put_id(edits, entry.id);
    edits.count(entry.fields().len());
    for (name, value) in entry.fields() {
        edits.bytes(name.bytes(&mut name_text));
        edits.bytes(value.bytes(&mut value_text));
    }
}

fn put_state(edits: &mut Writer<'_>, state: State) {
    edits.begin(code_of(edit::STATE));
    put_id(edits, state.last_id);
    put_id(edits, state.max_deleted_id);
    edits.number(state.entries_added);
}

/// Zero means unknown; anything else is one more than the number.
fn put_optional(edits: &mut Writer<'_>, value: Option<u64>) {
    edits.number(value.map_or(0, |value| value.saturating_add(1)));
}

fn put_group(
    edits: &mut Writer<'_>,
    edit: u8,
    name: &[u8],
    last_delivered: StreamId,
    entries_read: Option<u64>,
) {
    edits.begin(code_of(edit));
    edits.bytes(name);
    put_id(edits, last_delivered);
    put_optional(edits, entries_read);
}

fn put_deletion(edits: &mut Writer<'_>, id: StreamId) {
    edits.begin(code_of(edit::DELETE));
    put_id(edits, id);
}

fn put_no_group(edits: &mut Writer<'_>, name: &[u8]) {
    edits.begin(code_of(edit::NO_GROUP));
    edits.bytes(name);
}

fn put_no_consumer(edits: &mut Writer<'_>, group: &[u8], name: &[u8]) {
    edits.begin(code_of(edit::NO_CONSUMER));
    edits.bytes(group);
    edits.bytes(name);
}

/// Appends the state of a consumer, or its absence.
fn put_consumer_of(edits: &mut Writer<'_>, name: &[u8], group: &Group, consumer: &[u8]) {
    match group.consumer_named(consumer) {
        Some(known) => put_consumer(edits, name, consumer, known.seen_ms, known.active_ms),
        None => put_no_consumer(edits, name, consumer),
    }
}

/// Appends the state of a pending entry, or that it is not pending.
fn put_pending_of(edits: &mut Writer<'_>, name: &[u8], group: &Group, id: StreamId) {
    match group.pending_entry(id) {
        Some(pending) => {
            let consumer = group.consumer_name(pending.consumer);
            put_pending(edits, name, consumer, Delivery::of(&pending), &[id]);
        }
        None => {
            edits.begin(code_of(edit::ACKNOWLEDGE));
            edits.bytes(name);
            put_ids(edits, &[id]);
        }
    }
}

fn put_consumer(
    edits: &mut Writer<'_>,
    group: &[u8],
    name: &[u8],
    seen_ms: u64,
    active_ms: Option<u64>,
) {
    edits.begin(code_of(edit::CONSUMER));
    edits.bytes(group);
    edits.bytes(name);
    edits.number(seen_ms);
    put_optional(edits, active_ms);
}

fn put_pending(
    edits: &mut Writer<'_>,
    group: &[u8],
    consumer: &[u8],
    delivery: Delivery,
    ids: &[StreamId],
) {
    edits.begin(code_of(edit::PENDING));
    edits.bytes(group);
    edits.bytes(consumer);
    edits.number(delivery.at_ms);
    edits.number(delivery.count.into());
    put_ids(edits, ids);
}

fn put_counts(edits: &mut Writer<'_>, counts: MessageCounts) {
    edits.number(counts.added);
    edits.number(counts.duplicates);
}

/// Appends that all messages are forgotten, and the limits of new ones.
fn put_limits(edits: &mut Writer<'_>, limits: MessageLimits, counts: MessageCounts) {
    edits.begin(code_of(edit::MESSAGES));
    edits.number(limits.duration_s.into());
    edits.number(limits.messages_max.into());
    put_counts(edits, counts);
}

fn put_message(
    edits: &mut Writer<'_>,
    counts: MessageCounts,
    at_ms: u64,
    id: StreamId,
    name: MessageName<'_>,
) {
    edits.begin(code_of(edit::REMEMBER));
    put_counts(edits, counts);
    edits.number(at_ms);
    put_id(edits, id);
    edits.bytes(name.producer);
    edits.bytes(name.message);
}

fn put_remembered(
    edits: &mut Writer<'_>,
    counts: MessageCounts,
    id: StreamId,
    message: &Remembered,
) {
    put_message(edits, counts, message.at_ms, id, message.name());
}

fn put_forgotten(edits: &mut Writer<'_>, counts: MessageCounts, id: StreamId) {
    edits.begin(code_of(edit::FORGET));
    put_counts(edits, counts);
    put_id(edits, id);
}

/// Appends the limits and all messages, or that there were never any.
fn put_messages(edits: &mut Writer<'_>, messages: Option<&Messages>) {
    let never = MessageLimits { duration_s: 0, messages_max: 0 };
    let limits = messages.map_or(never, Messages::message_limits);
    put_limits(edits, limits, messages.map(Messages::counts).unwrap_or_default());
    put_message_range(edits, messages, StreamId::MIN, StreamId::MAX);
}

fn put_message_range(
    edits: &mut Writer<'_>,
    messages: Option<&Messages>,
    from: StreamId,
    to: StreamId,
) {
    let Some(messages) = messages else { return };
    for (id, message) in messages.range(from, to) {
        put_remembered(edits, messages.counts(), id, message);
    }
}

/// Appends the metadata, without entries, pending ones and messages.
fn put_heads(edits: &mut Writer<'_>, stream: &Stream) {
    put_state(edits, stream.state());
    stream.groups().for_each(|(name, group)| put_group_head(edits, name, group));
    if let Some(messages) = stream.messages() {
        put_limits(edits, messages.message_limits(), messages.counts());
    }
}

fn put_group_head(edits: &mut Writer<'_>, name: &[u8], group: &Group) {
    put_group(edits, edit::GROUP, name, group.last_delivered(), group.entries_read());
    for consumer in group.consumers() {
        put_consumer(edits, name, consumer.name(), consumer.seen_ms, consumer.active_ms);
    }
}

/// Appends the entries from `from` to `to`, their pending states, and the messages of these entries.
fn put_range(edits: &mut Writer<'_>, stream: &Stream, from: StreamId, to: StreamId) {
    for entry in stream.ascending(from, to) {
        put_entry(edits, &entry);
    }
    for (name, group) in stream.groups() {
        put_pending_range(edits, name, group, from, to);
    }
    put_message_range(edits, stream.messages(), from, to);
}

/// Appends the pending entries of a group; neighbours that were delivered together share an edit.
fn put_pending_range(
    edits: &mut Writer<'_>,
    name: &[u8],
    group: &Group,
    from: StreamId,
    to: StreamId,
) {
    let mut run: Option<Pending> = None;
    let mut ids = Vec::new();
    let mut flush = |run: Option<Pending>, ids: &mut Vec<StreamId>| {
        if let Some(pending) = run {
            let consumer = group.consumer_name(pending.consumer);
            put_pending(edits, name, consumer, Delivery::of(&pending), ids);
        }
        ids.clear();
    };
    for (id, pending) in group.pending(from, to) {
        if run != Some(*pending) {
            flush(run, &mut ids);
            run = Some(*pending);
        }
        ids.push(*id);
    }
    flush(run, &mut ids);
}

/// Approximate number of pending entries in a part of a checkpoint, of all groups together, and of messages.
const PENDING_PER_PART: usize = 1024;

/// Returns the millisecond before which a part ends that begins with `from_ms`; `None` for the end of the stream.
///
/// Parts are split between milliseconds, since a cursor has no room for more. So all entries of one millisecond are
/// in one part, however many there are.
fn end_of_part(stream: &Stream, from_ms: u64, bytes_max: usize) -> Option<u64> {
    let from = StreamId::new(from_ms, 0);
    let mut bytes = 0;
    let beyond = stream.ascending(from, StreamId::MAX).find(|entry| {
        let fields = entry.fields();
        let is_beyond = bytes > bytes_max;
        bytes += fields.map(|(name, value)| name.len() + value.len() + 4).sum::<usize>();
        is_beyond
    });
    let pending = PENDING_PER_PART / stream.group_count().max(1);
    let groups = stream.groups();
    let ends = groups.filter_map(|(_, group)| group.pending(from, StreamId::MAX).nth(pending));
    let messages = stream.messages().into_iter();
    let message = messages.filter_map(|it| it.range(from, StreamId::MAX).nth(PENDING_PER_PART));
    let ends = ends.map(|(id, _)| id.ms).chain(message.map(|(id, _)| id.ms));
    let end = ends.chain(beyond.map(|entry| entry.id.ms)).min()?;
    // However many entries the first millisecond has, the next part begins later.
    if end > from_ms { Some(end) } else { from_ms.checked_add(1) }
}

impl Sealed for Stream {
    const FAULT_OF_UNDO: Fault = Fault::UndoOfStreams;
    const STAYS_EMPTY: bool = true;

    fn encode(&self, edits: &mut Writer<'_>) {
        put_heads(edits, self);
        put_range(edits, self, StreamId::MIN, StreamId::MAX);
    }

    /// The cursor is the millisecond at which a part begins.
    fn encode_part(&self, cursor: u64, bytes_max: usize, edits: &mut Writer<'_>) -> u64 {
        if cursor == 0 {
            put_heads(edits, self);
        }
        let end = end_of_part(self, cursor, bytes_max);
        let to = end.map_or(StreamId::MAX, |end| StreamId::new(end - 1, u64::MAX));
        put_range(edits, self, StreamId::new(cursor, 0), to);
        end.unwrap_or(0)
    }

    fn apply(&mut self, edit: StreamEdit<'_>, limits: &LimitCells) {
        match edit {
            StreamEdit::State(state) => self.set_state(state),
            StreamEdit::Add { entries_added, id, fields } => {
                insert(self, id, fields, limits);
                let state = self.state();
                self.set_state(State { last_id: id, entries_added, ..state });
            }
            StreamEdit::Entry { id, fields } => insert(self, id, fields, limits),
            StreamEdit::Delete(id) => {
                self.remove(id);
                let state = self.state();
                let max_deleted_id = state.max_deleted_id.max(id);
                self.set_state(State { max_deleted_id, ..state });
            }
            StreamEdit::Withdraw(id) => {
                if !self.withdraw(id) {
                    self.remove(id);
                }
            }
            StreamEdit::Through(id) => _ = self.remove_through(id),
            StreamEdit::Group { name, last_delivered, entries_read, .. } => {
                self.group_or_new(name).set_position(last_delivered, entries_read);
            }
            StreamEdit::NoGroup(name) => _ = self.remove_group(name),
            StreamEdit::Consumer { group, name, seen_ms, active_ms } => {
                let mut group = self.group_or_new(group);
                let number = group.consumer_or_new(name);
                group.set_times(number, seen_ms, active_ms);
            }
            StreamEdit::NoConsumer { group, name } => {
                if let Some(mut group) = self.group_mut(group) {
                    group.remove_consumer(name);
                }
            }
            StreamEdit::Pending { group, consumer, delivery, ids } => {
                let mut group = self.group_or_new(group);
                let number = receiver(&group, consumer, delivery);
                let number = number.unwrap_or_else(|| group.consumer_or_new(consumer));
                ids.for_each(|id| group.set_pending(id, delivery.to(number)));
            }
            StreamEdit::Acknowledge { group, ids } => {
                if let Some(mut group) = self.group_mut(group) {
                    ids.for_each(|id| _ = group.acknowledge(id));
                }
            }
            StreamEdit::Messages { limits, counts } => {
                self.set_messages((limits.duration_s > 0).then_some(limits), counts);
            }
            StreamEdit::Remember { counts, at_ms, id, producer, message } => {
                self.remember(MessageName { producer, message }, id, at_ms, |_, _| ());
                self.set_message_counts(counts);
            }
            StreamEdit::Forget { counts, id } => {
                self.forget(id);
                self.set_message_counts(counts);
            }
        }
    }

    fn part_count(_code: u8, _edit: &mut Reader<'_>) -> Result<u64, Malformed> {
        Ok(1)
    }

    fn part<'a>(code: u8, edit: &mut Reader<'a>) -> Result<CollectionPart<'a>, Malformed> {
        StreamEdit::read(code, edit).map(CollectionPart::Stream)
    }

    fn check(&self) {
        let (first, last) = (StreamId::MIN, StreamId::MAX);
        let ascending: Vec<_> = self.ascending(first, last).map(|entry| entry.id).collect();
        let mut descending: Vec<_> = self.descending(first, last).map(|entry| entry.id).collect();
        descending.reverse();
        assert_eq!((ascending.len(), &ascending), (self.len(), &descending));
        assert!(ascending.iter().all(|id| self.get(*id).is_some()));
    }
}

fn insert(stream: &mut Stream, id: StreamId, fields: StreamFields<'_>, limits: &LimitCells) {
    let fields: Vec<_> = fields.collect();
    stream.insert(id, fields.iter().copied(), limits.stream());
}

/// Bits of a code that select the edit.
const EDIT_MASK: u8 = 0x0f;

/// An edit, decoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StreamEdit<'a> {
    /// Sets the metadata besides entries and groups.
    State(State),
    /// Adds an entry with the last identity, and sets the number of entries ever added.
    Add {
        /// Number of entries ever added.
        entries_added: u64,
        /// Its identity.
        id: StreamId,
        /// Its fields.
        fields: StreamFields<'a>,
    },
    /// Adds an entry.
    Entry {
        /// Its identity.
        id: StreamId,
        /// Its fields.
        fields: StreamFields<'a>,
    },
    /// Deletes an entry; the highest deleted identity is at least this one.
    Delete(StreamId),
    /// Deletes all entries up to this one.
    Through(StreamId),
    /// Sets the position of a group.
    Group {
        /// Its name.
        name: &'a [u8],
        /// The highest entry that was delivered to any of its consumers.
        last_delivered: StreamId,
        /// Number of entries that it has read, if known.
        entries_read: Option<u64>,
        /// True if the edit says that the group is new.
        is_new: bool,
    },
    /// Removes a group.
    NoGroup(&'a [u8]),
    /// Sets the times of a consumer.
    Consumer {
        /// Its group.
        group: &'a [u8],
        /// Its name.
        name: &'a [u8],
        /// Time of its last attempt, in milliseconds since 1970.
        seen_ms: u64,
        /// Time when it last got or claimed an entry; `None` for never.
        active_ms: Option<u64>,
    },
    /// Removes a consumer.
    NoConsumer {
        /// Its group.
        group: &'a [u8],
        /// Its name.
        name: &'a [u8],
    },
    /// Makes these entries pending with this consumer and no other, or with none if [`Delivery::is_given_back`].
    Pending {
        /// The consumer's group.
        group: &'a [u8],
        /// The consumer.
        consumer: &'a [u8],
        /// Time and count of their deliveries.
        delivery: Delivery,
        /// Identities of the entries.
        ids: StreamIds<'a>,
    },
    /// Makes these entries not pending.
    Acknowledge {
        /// The group.
        group: &'a [u8],
        /// Identities of the entries.
        ids: StreamIds<'a>,
    },
    /// Reverts an addition; never in the log.
    Withdraw(StreamId),
    /// Forgets all messages, and sets the limits of new ones; none, if the duration is 0.
    Messages {
        /// The limits.
        limits: MessageLimits,
        /// Numbers of messages so far.
        counts: MessageCounts,
    },
    /// Remembers a message. Skipped while there are no limits.
    Remember {
        /// Numbers of messages so far.
        counts: MessageCounts,
        /// Time at which it was added.
        at_ms: u64,
        /// Its entry, which may have been deleted since.
        id: StreamId,
        /// Name of its producer.
        producer: &'a [u8],
        /// Its own name.
        message: &'a [u8],
    },
    /// Forgets the message of an entry; never in the log.
    Forget {
        /// Numbers of messages so far.
        counts: MessageCounts,
        /// The entry.
        id: StreamId,
    },
}

impl<'a> StreamEdit<'a> {
    /// Appends an edit about messages, as the log has it, and nothing for another one.
    pub fn put_message(&self, out: &mut Vec<u8>) {
        let mut edits = Writer::new(out);
        match *self {
            Self::Messages { limits, counts } => put_limits(&mut edits, limits, counts),
            Self::Remember { counts, at_ms, id, producer, message } => {
                put_message(&mut edits, counts, at_ms, id, MessageName { producer, message });
            }
            _ => {}
        }
    }

    /// Reads an edit whose code has been read.
    pub(super) fn read(code: u8, edit: &mut Reader<'a>) -> Result<Self, Malformed> {
        Ok(match code & EDIT_MASK {
            edit::STATE => Self::State(State {
                last_id: Field::read(edit)?,
                max_deleted_id: Field::read(edit)?,
                entries_added: edit.varint()?,
            }),
            edit::ADD => Self::Add {
                entries_added: edit.varint()?,
                id: Field::read(edit)?,
                fields: Fields::read(edit)?,
            },
            edit::ENTRY => Self::Entry { id: Field::read(edit)?, fields: Fields::read(edit)? },
            edit::DELETE => Self::Delete(Field::read(edit)?),
            edit::THROUGH => Self::Through(Field::read(edit)?),
            number @ (edit::GROUP | edit::NEW_GROUP) => Self::Group {
                name: edit.bytes()?,
                last_delivered: Field::read(edit)?,
                entries_read: read_optional(edit)?,
                is_new: number == edit::NEW_GROUP,
            },
            edit::NO_GROUP => Self::NoGroup(edit.bytes()?),
            edit::CONSUMER => Self::Consumer {
                group: edit.bytes()?,
                name: edit.bytes()?,
                seen_ms: edit.varint()?,
                active_ms: read_optional(edit)?,
            },
            edit::NO_CONSUMER => Self::NoConsumer { group: edit.bytes()?, name: edit.bytes()? },
            edit::PENDING => Self::Pending {
                group: edit.bytes()?,
                consumer: edit.bytes()?,
                delivery: read_delivery(edit)?,
                ids: Fields::read(edit)?,
            },
            edit::ACKNOWLEDGE => {
                Self::Acknowledge { group: edit.bytes()?, ids: Fields::read(edit)? }
            }
            edit::WITHDRAW => Self::Withdraw(Field::read(edit)?),
            edit::MESSAGES => {
                Self::Messages { limits: read_limits(edit)?, counts: read_counts(edit)? }
            }
            edit::REMEMBER => Self::Remember {
                counts: read_counts(edit)?,
                at_ms: edit.varint()?,
                id: Field::read(edit)?,
                producer: edit.bytes()?,
                message: edit.bytes()?,
            },
            edit::FORGET => Self::Forget { counts: read_counts(edit)?, id: Field::read(edit)? },
            _ => return Err(edit.malformed("an edit of a stream of an unknown kind")),
        })
    }
}

/// Names and values of an entry.
pub type StreamFields<'a> = Fields<'a, (&'a [u8], &'a [u8])>;

/// Identities.
pub type StreamIds<'a> = Fields<'a, StreamId>;

fn read_optional(edit: &mut Reader<'_>) -> Result<Option<u64>, Malformed> {
    Ok(edit.varint()?.checked_sub(1))
}

fn read_limits(edit: &mut Reader<'_>) -> Result<MessageLimits, Malformed> {
    let mut number = || {
        u32::try_from(edit.varint()?).map_err(|_| edit.malformed("too high a limit of messages"))
    };
    Ok(MessageLimits { duration_s: number()?, messages_max: number()? })
}

fn read_counts(edit: &mut Reader<'_>) -> Result<MessageCounts, Malformed> {
    Ok(MessageCounts { added: edit.varint()?, duplicates: edit.varint()? })
}

fn read_delivery(edit: &mut Reader<'_>) -> Result<Delivery, Malformed> {
    let at_ms = edit.varint()?;
    let count = u32::try_from(edit.varint()?).map_err(|_| edit.malformed("too many deliveries"))?;
    Ok(Delivery { at_ms, count })
}
