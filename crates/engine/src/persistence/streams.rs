//! Converts streams between the keyspace and Redis' formats.

use std::collections::HashMap;
use std::sync::Arc;

use tierce_collections::stream::{
    ConsumerNumber, MessageName, Pending, State, StreamId, deliveries_in_redis,
};
use tierce_collections::{Stream, StreamLimits};
use tierce_keyspace::log::{Edit, Edits, StreamEdit};
use tierce_keyspace::{CollectionPart, Delivery, SavedCollection, StreamFields};
use tierce_rdb as rdb;

/// Converts a stream to its form in a file.
pub(super) fn saved(collection: &SavedCollection<'_>) -> rdb::Stream {
    let mut stream = rdb::Stream::default();
    // Indexes of groups and consumers, by their names.
    let mut groups: HashMap<&[u8], usize> = HashMap::new();
    let mut consumers: HashMap<(&[u8], &[u8]), usize> = HashMap::new();
    for part in collection.parts() {
        let CollectionPart::Stream(edit) = part else { continue };
        match edit {
            StreamEdit::State(state) => stream.state = saved_state(state),
            StreamEdit::Entry { id, fields } => {
                let fields = saved_fields(fields, stream.entries.last());
                stream.entries.push(rdb::StreamEntry { id: saved_id(id), fields });
            }
            StreamEdit::Group { name, last_delivered, entries_read, .. } => {
                groups.insert(name, stream.groups.len());
                let (name, last_delivered) = (name.to_vec(), saved_id(last_delivered));
                let consumers = Vec::new();
                let group = rdb::Group {
                    name,
                    last_delivered,
                    entries_read,
                    consumers,
                    ..rdb::Group::default()
                };
                stream.groups.push(group);
            }
            StreamEdit::Consumer { group, name, seen_ms, active_ms } => {
                let Some(saved) = groups.get(group).map(|at| &mut stream.groups[*at]) else {
                    continue;
                };
                consumers.insert((group, name), saved.consumers.len());
                let (name, pending) = (name.to_vec(), Vec::new());
                saved.consumers.push(rdb::Consumer { name, seen_ms, active_ms, pending });
            }
            StreamEdit::Pending { group, consumer, delivery, ids } => {
                let Some(saved) = groups.get(group).map(|at| &mut stream.groups[*at]) else {
                    continue;
                };
                // Entries that were given back have no consumer, which the format demands.
                let at = consumers.entry((group, consumer)).or_insert_with(|| {
                    let name = consumer.to_vec();
                    saved.consumers.push(rdb::Consumer { name, ..rdb::Consumer::default() });
                    saved.consumers.len() - 1
                });
                saved.consumers[*at].pending.extend(ids.map(|id| rdb::Pending {
                    id: saved_id(id),
                    delivered_ms: delivery.at_ms,
                    deliveries: deliveries_in_redis(delivery.count),
                }));
            }
            // Messages have a field of their own, see [`saved_messages`]. No other edit occurs in a saved stream.
            _ => {}
        }
    }
    stream
}

/// Returns the messages that are not added twice as bytes, in the form of the log; nothing if there were never any.
pub(super) fn saved_messages(collection: &SavedCollection<'_>) -> Vec<u8> {
    let mut bytes = Vec::new();
    let is_head = |part: &CollectionPart<'_>| {
        let CollectionPart::Stream(edit) = part else { return false };
        !matches!(edit, StreamEdit::Entry { .. } | StreamEdit::Pending { .. })
    };
    let is_limits = |part| matches!(part, CollectionPart::Stream(StreamEdit::Messages { .. }));
    // The limits come before all entries.
    if collection.parts().take_while(is_head).any(is_limits) {
        for part in collection.parts() {
            if let CollectionPart::Stream(edit) = part {
                edit.put_message(&mut bytes);
            }
        }
    }
    bytes
}

/// Returns the edits of [`saved_messages`]; `None` for bytes that are not such.
fn messages_of(bytes: &[u8]) -> Option<Vec<StreamEdit<'_>>> {
    let edits = Edits::new(bytes).map(|edit| match edit {
        Ok(Edit::Stream(edit @ StreamEdit::Messages { limits, .. })) => {
            limits.are_allowed().then_some(edit)
        }
        Ok(Edit::Stream(edit @ StreamEdit::Remember { .. })) => Some(edit),
        _ => None,
    });
    edits.collect()
}

/// Returns true if [`load_messages`] can load these bytes.
pub(super) fn are_messages(bytes: &[u8]) -> bool {
    messages_of(bytes).is_some()
}

/// Loads the bytes of [`saved_messages`].
pub(super) fn load_messages(stream: &mut Stream, bytes: &[u8]) {
    for edit in messages_of(bytes).unwrap_or_default() {
        match edit {
            StreamEdit::Messages { limits, counts } => stream.set_messages(Some(limits), counts),
            StreamEdit::Remember { counts, at_ms, id, producer, message } => {
                stream.remember(MessageName { producer, message }, id, at_ms, |_, _| ());
                stream.set_message_counts(counts);
            }
            _ => {}
        }
    }
}

fn saved_id(id: StreamId) -> rdb::StreamId {
    rdb::StreamId { ms: id.ms, seq: id.seq }
}

fn saved_state(state: State) -> rdb::StreamState {
    rdb::StreamState {
        last_id: saved_id(state.last_id),
        max_deleted_id: saved_id(state.max_deleted_id),
        entries_added: state.entries_added,
    }
}

/// Converts fields. Names are shared with the previous entry, which mostly has the same ones.
fn saved_fields(
    fields: StreamFields<'_>,
    before: Option<&rdb::StreamEntry>,
) -> Vec<(Arc<[u8]>, Vec<u8>)> {
    let names = before.map_or(&[][..], |entry| &entry.fields);
    let shared = |at: usize, name: &[u8]| {
        let known = names.get(at).map(|(known, _)| known).filter(|known| ***known == *name);
        known.map_or_else(|| name.into(), Arc::clone)
    };
    fields.enumerate().map(|(at, (name, value))| (shared(at, name), value.to_vec())).collect()
}

/// Adds a part from a file to a stream.
pub(super) fn load(stream: &mut Stream, part: rdb::ValuePart<'_>, limits: StreamLimits) {
    match part {
        rdb::ValuePart::StreamEntry(entry) => {
            let fields = entry.fields.iter().map(|(name, value)| (&**name, value.as_slice()));
            stream.insert(loaded_id(entry.id), fields, limits);
        }
        rdb::ValuePart::StreamState(state) => stream.set_state(State {
            last_id: loaded_id(state.last_id),
            max_deleted_id: loaded_id(state.max_deleted_id),
            entries_added: state.entries_added,
        }),
        rdb::ValuePart::Group(group) => load_group(stream, group),
        _ => {}
    }
}

fn loaded_id(id: rdb::StreamId) -> StreamId {
    StreamId::new(id.ms, id.seq)
}

fn load_group(stream: &mut Stream, group: &rdb::Group) {
    let position = loaded_id(group.last_delivered);
    let read = match group.lacks_entries_read {
        true => stream.entries_added_at(position),
        false => group.entries_read,
    };
    let mut loaded = stream.group_or_new(&group.name);
    loaded.set_position(position, read);
    for consumer in &group.consumers {
        // One without a name that was never seen stands for none.
        let is_none = consumer.name.is_empty() && consumer.seen_ms == 0;
        let number = match is_none {
            true => ConsumerNumber::NONE,
            false => loaded.consumer_or_new(&consumer.name),
        };
        loaded.set_times(number, consumer.seen_ms, consumer.active_ms);
        for pending in &consumer.pending {
            let deliveries = u32::try_from(pending.deliveries).unwrap_or(u32::MAX);
            let delivered_ms = pending.delivered_ms;
            let delivery = Delivery { at_ms: delivered_ms, count: deliveries };
            let is_given_back = delivery.is_given_back(&consumer.name);
            let consumer = if is_given_back { ConsumerNumber::NONE } else { number };
            let pending_there = Pending { consumer, deliveries, delivered_ms };
            loaded.set_pending(loaded_id(pending.id), pending_there);
        }
    }
}

#[cfg(test)]
mod tests {
    use tierce_collections::stream::{MessageCounts, MessageLimits};

    use super::*;

    #[test]
    fn what_a_group_has_read_is_found_out_where_files_do_not_say() {
        let id = |ms| rdb::StreamId { ms, seq: 0 };
        let mut stream = Stream::new();
        let limits = StreamLimits { node_bytes_max: 0, node_entries_max: 0 };
        for ms in 1..=3 {
            let entry = rdb::StreamEntry { id: id(ms), fields: Vec::new() };
            load(&mut stream, rdb::ValuePart::StreamEntry(&entry), limits);
        }
        let state =
            rdb::StreamState { last_id: id(3), entries_added: 3, ..rdb::StreamState::default() };
        load(&mut stream, rdb::ValuePart::StreamState(&state), limits);
        for (position, lacks_entries_read, expected) in
            [(1, true, Some(1)), (2, true, None), (3, true, Some(3)), (3, false, None)]
        {
            let last_delivered = id(position);
            let group = rdb::Group { last_delivered, lacks_entries_read, ..rdb::Group::default() };
            load(&mut stream, rdb::ValuePart::Group(&group), limits);
            let read = stream.group(b"").and_then(|group| group.entries_read());
            assert_eq!(read, expected, "{position}");
        }
    }

    #[test]
    fn entries_without_a_consumer_come_back() {
        let (id, pending) = (rdb::StreamId { ms: 1, seq: 0 }, |ms, delivered_ms| rdb::Pending {
            id: rdb::StreamId { ms, seq: 0 },
            delivered_ms,
            deliveries: i64::MAX as u64,
        });
        let limits = StreamLimits { node_bytes_max: 0, node_entries_max: 0 };
        for (seen_ms, delivered_ms, count) in [(0, 0, 0), (7, 0, 1), (7, 9, 1)] {
            let pending = vec![pending(1, delivered_ms)];
            let consumer = rdb::Consumer { seen_ms, pending, ..rdb::Consumer::default() };
            let consumers = vec![consumer];
            let group = rdb::Group { last_delivered: id, consumers, ..rdb::Group::default() };
            let mut stream = Stream::new();
            load(&mut stream, rdb::ValuePart::Group(&group), limits);
            let group = stream.group(b"").expect("it was loaded");
            let pending = group.pending_entry(loaded_id(id)).expect("it was loaded");
            assert_eq!(group.consumer_count(), count);
            assert_eq!(pending.consumer == ConsumerNumber::NONE, delivered_ms == 0);
            assert_eq!(pending.deliveries, u32::MAX);
        }
    }

    #[test]
    fn limits_of_messages_that_no_command_sets_are_refused() {
        let is_loaded = |duration_s, messages_max| {
            let limits = MessageLimits { duration_s, messages_max };
            let mut bytes = Vec::new();
            let edit = StreamEdit::Messages { limits, counts: MessageCounts::default() };
            edit.put_message(&mut bytes);
            are_messages(&bytes)
        };
        assert!(is_loaded(1, 1) && is_loaded(86_400, 10_000));
        assert!(!is_loaded(0, 1) && !is_loaded(86_401, 1));
        assert!(!is_loaded(1, 0) && !is_loaded(1, u32::MAX));
    }
}
