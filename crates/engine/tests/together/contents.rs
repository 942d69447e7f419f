//! Converts a keyspace and a snapshot to the model, and compares them.

use std::fmt::Write as _;
use std::rc::Rc;

use tierce_collections::CollectionKind;
use tierce_collections::stream::StreamId;
use tierce_keyspace::log::StreamEdit;
use tierce_keyspace::{
    CodeKind, CodeSet, CollectionPart, DbIndex, IntText, Keyspace, SavedCollection, SavedValue,
    VersionFor, for_each_entry,
};

use crate::together::history::DbKey;
use crate::together::model::{
    Contents, Entry, Field, Group, Id, MESSAGE_LIMITS, Stream, Value, code_place,
};

/// Returns the contents visible at this time. Reads values from disk.
pub fn read(keyspace: &Keyspace, now_ms: i64) -> Result<Contents, String> {
    let mut contents = Contents::default();
    for db in keyspace.db_indices() {
        let mut keys = Vec::new();
        let mut locks = keyspace.locks();
        for_each_entry(&mut locks, db, now_ms, |entry| keys.push(entry.key().to_vec()));
        for key in keys {
            let place = (db.get(), key[1] - b'0');
            if let Some(entry) = read_key(keyspace, db, &key, now_ms)? {
                contents.0.insert(place, Rc::new(entry));
            }
        }
    }
    add_code(&mut contents, &keyspace.code().all());
    contents.purge(now_ms);
    Ok(contents)
}

/// Adds libraries and scripts.
pub fn add_code(contents: &mut Contents, code: &CodeSet) {
    for kind in CodeKind::ALL {
        for (name, source) in code.of(kind) {
            let entry = Entry::new(Value::Text(string(source)), None);
            contents.0.insert(code_place(kind, name[1] - b'0'), Rc::new(entry));
        }
    }
}

/// Returns the visible value of one key at this time, including fields that are due.
pub fn read_key(
    keyspace: &Keyspace,
    db: DbIndex,
    name: &[u8],
    now_ms: i64,
) -> Result<Option<Entry>, String> {
    let mut locks = keyspace.locks();
    let key = keyspace.key(name);
    let mut shard = locks.db(db, key.hash(), now_ms);
    let Some(deadline_ms) = shard.peek(key).map(tierce_keyspace::Entry::deadline_ms) else {
        return Ok(None);
    };
    let mut copy = Vec::new();
    let found = shard.get(key).map_err(|error| format!("{}: {error}", name.escape_ascii()))?;
    let Some(found) = found else { return Err("a key goes while it is read".to_owned()) };
    let value = value_of(&SavedValue::of(&found, &mut copy));
    let mut entry = Entry::new(value, deadline_ms);
    if matches!(entry.value, Value::Text(_)) {
        let item = shard.item(key, VersionFor::None).map_err(|error| error.to_string())?;
        let item = item.ok_or("an item goes while it is read")?;
        (entry.flags, entry.is_stale) = (item.flags, item.marks.stale);
    }
    Ok(Some(entry))
}

fn string(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn id(id: StreamId) -> Id {
    (id.ms, id.seq)
}

/// Converts a copied value.
pub fn value_of(saved: &SavedValue<'_>) -> Value {
    match saved {
        SavedValue::Collection(collection) => collection_of(collection.kind(), collection),
        text => Value::Text(string(text.string(&mut IntText::new()).expect("a string"))),
    }
}

fn collection_of(kind: CollectionKind, saved: &SavedCollection<'_>) -> Value {
    let mut value = empty(kind);
    add_parts(&mut value, saved);
    value
}

/// Returns a value without elements.
pub fn empty(kind: CollectionKind) -> Value {
    match kind {
        CollectionKind::List => Value::List(Vec::new()),
        CollectionKind::Set => Value::Set(Default::default()),
        CollectionKind::SortedSet => Value::SortedSet(Default::default()),
        CollectionKind::Hash => Value::Hash(Default::default()),
        CollectionKind::Stream => Value::Stream(Stream::default()),
    }
}

/// Adds the parts of a slice of a collection.
pub fn add_parts(value: &mut Value, saved: &SavedCollection<'_>) {
    for part in saved.parts() {
        match (&mut *value, part) {
            (Value::List(elements), CollectionPart::Element(bytes)) => elements.push(string(bytes)),
            (Value::Set(members), CollectionPart::Member(bytes)) => {
                assert!(members.insert(string(bytes)), "a member comes twice");
            }
            (Value::SortedSet(members), CollectionPart::Scored { member, score }) => {
                let before = members.insert(string(member), score as i64);
                assert_eq!(before, None, "a member comes twice");
            }
            (Value::Hash(fields), CollectionPart::Field { name, value, deadline_ms }) => {
                let field = Field { value: string(value), deadline_ms };
                let before = fields.insert(string(name), field);
                assert_eq!(before, None, "a field comes twice");
            }
            (Value::Stream(stream), CollectionPart::Stream(edit)) => add_to_stream(stream, edit),
            (value, part) => panic!("{part:?} is no part of {value:?}"),
        }
    }
}

fn add_to_stream(stream: &mut Stream, edit: StreamEdit<'_>) {
    match edit {
        StreamEdit::State(state) => {
            stream.last_id = id(state.last_id);
            stream.max_deleted_id = id(state.max_deleted_id);
            stream.entries_added = state.entries_added;
        }
        StreamEdit::Entry { id: of, fields } => {
            let fields = fields.map(|(name, value)| (string(name), string(value))).collect();
            assert_eq!(stream.entries.insert(id(of), fields), None, "an entry comes twice");
        }
        StreamEdit::Group { name, last_delivered, entries_read, .. } => {
            let last_delivered = id(last_delivered);
            let group = Group { last_delivered, entries_read, ..Group::default() };
            assert_eq!(stream.groups.insert(string(name), group), None, "a group comes twice");
        }
        StreamEdit::Consumer { group, name, seen_ms, active_ms } => {
            let group = stream.groups.get_mut(&string(group)).expect("a group that came before");
            group.consumers.insert(string(name), (seen_ms, active_ms));
        }
        StreamEdit::Pending { group, consumer, delivery, ids } => {
            let group = stream.groups.get_mut(&string(group)).expect("a group that came before");
            let pending = || (string(consumer), delivery.at_ms, delivery.count);
            group.pending.extend(ids.map(|of| (id(of), pending())));
        }
        StreamEdit::Messages { limits, counts } => {
            assert_eq!(limits, MESSAGE_LIMITS);
            stream.messages_added = counts.added;
        }
        StreamEdit::Remember { id: of, producer, message, .. } => {
            let name = (string(producer), string(message));
            assert_eq!(stream.messages.insert(id(of), name), None, "a message comes twice");
        }
        other => panic!("{other:?} is no part of a stream"),
    }
}

/// Describes the differences of two contents, one line per key.
pub fn difference(expected: &Contents, found: &Contents) -> String {
    let mut out = String::new();
    let places = expected.0.keys().chain(found.0.keys().filter(|p| !expected.0.contains_key(p)));
    for place in places {
        let (expected, found) = (expected.0.get(place), found.0.get(place));
        if expected != found {
            let _ = writeln!(out, "  {}:", shown(place));
            let _ = writeln!(out, "    expected {}", shown_entry(expected));
            let _ = writeln!(out, "    found    {}", shown_entry(found));
        }
    }
    out
}

fn shown((db, key): &DbKey) -> String {
    format!("database {db}, key k{key}")
}

fn shown_entry(entry: Option<&Rc<Entry>>) -> String {
    entry.map_or("nothing".to_owned(), |entry| format!("{entry:?}"))
}
