//! Effects of commands on the keyspace, with the calls that the server makes for them.

use tierce_collections::stream::{
    Keep, MessageCounts, MessageName, Messages, StreamId, Trim, TrimPrecision,
};
use tierce_collections::{Collection, Hash, List, Set, SetLimits, SortedSet, Stream};
use tierce_keyspace::{
    CodeEditor, Condition, Db, Delivery, Editor, Error, Expiry, Freeing, Key, KeyHash, Keyspace,
    Missing, Removal, ShardLocks, flush_dbs, swap_dbs,
};

use crate::together::history::{DbKey, Edit, End, Number, Write, element, element_range, text};
use crate::together::model::{MESSAGE_LIMITS, next_id};

pub fn name((_, key): DbKey) -> [u8; 2] {
    [b'k', b'0' + key]
}

/// Returns the name of a library or script.
pub fn code_name(number: u8) -> [u8; 2] {
    name((0, number))
}

/// Executes the write as one change.
///
/// # Errors
/// When a value on disk cannot be read; nothing has changed then.
pub fn run(
    keyspace: &Keyspace,
    locks: &mut ShardLocks<'_>,
    write: &Write,
    now_ms: i64,
) -> Result<(), Error> {
    let index = |db: usize| keyspace.db_index(db).expect("a database");
    match write {
        Write::Key(place, edit) => {
            let name = name(*place);
            let key = keyspace.key(&name);
            run_edit(&mut locks.db(index(place.0), key.hash(), now_ms), key, edit, now_ms)?;
        }
        Write::Transfer { from, to, is_copy } => {
            let names = [name(*from), name(*to)];
            let [source, target] = [keyspace.key(&names[0]), keyspace.key(&names[1])];
            let mut both = locks.lock_many(&[source.hash(), target.hash()]);
            let mut db = both.db(index(from.0), source.hash(), now_ms);
            let entry = match is_copy {
                true => db.duplicate(source)?,
                false => db.take(source, Removal::Moved),
            };
            if let Some(entry) = entry {
                let mut db = both.db(index(to.0), target.hash(), now_ms);
                db.put(target, entry).expect("a short key");
            }
        }
        Write::Union { from, to } => union(keyspace, locks, from, *to, now_ms)?,
        Write::Both(places, number) => {
            let names = places.map(name);
            let keys = [keyspace.key(&names[0]), keyspace.key(&names[1])];
            let mut both = locks.lock_many(&keys.map(|key| key.hash()));
            for (key, place) in keys.into_iter().zip(places) {
                let mut db = both.db(index(place.0), key.hash(), now_ms);
                db.set(key, &text(*number), Expiry::Never).expect("a short value");
            }
        }
        Write::Flush(db) => _ = flush_dbs(locks, [index(*db)], Freeing::Now),
        Write::Code { kind, name, source: Some(number) } => {
            CodeEditor::lock(locks).put(*kind, &code_name(*name), text(*number).as_bytes());
        }
        Write::Code { kind, name, source: None } => {
            CodeEditor::lock(locks).remove(*kind, &code_name(*name));
        }
        Write::Swap(a, b) => swap_dbs(locks, index(*a), index(*b), now_ms),
    }
    Ok(())
}

/// Returns the union of two sets. A missing set counts as empty.
fn union(
    keyspace: &Keyspace,
    locks: &mut ShardLocks<'_>,
    from: &[DbKey; 2],
    to: DbKey,
    now_ms: i64,
) -> Result<(), Error> {
    let names = [from[0], from[1], to].map(name);
    let keys = [0, 1, 2].map(|at: usize| keyspace.key(&names[at]));
    let hashes: [KeyHash; 3] = keys.map(|key| key.hash());
    let mut all = locks.lock_many(&hashes);
    let mut members = Set::new();
    let limits = keyspace.limits().set;
    for (key, (db, _)) in keys.into_iter().zip(from) {
        let db = keyspace.db_index(*db).expect("a database");
        match all.db(db, key.hash(), now_ms).collection::<Set>(key) {
            Ok(Some(set)) => add_all(&mut members, &set, limits),
            Ok(None) | Err(Error::WrongType) => {}
            Err(error) => return Err(error),
        }
    }
    let db = keyspace.db_index(to.0).expect("a database");
    let collection = Collection::Set(members);
    let mut db = all.db(db, keys[2].hash(), now_ms);
    db.put_collection(keys[2], collection, None).map(drop)
}

fn add_all(members: &mut Set, more: &Set, limits: SetLimits) {
    for member in more.iter() {
        let mut text = tierce_collections::IntText::new();
        members.add(member.bytes(&mut text), limits);
    }
}

/// Executes an edit of one key. An edit that does not fit the type of the value does nothing.
fn run_edit(db: &mut Db<'_>, key: Key<'_>, edit: &Edit, now_ms: i64) -> Result<(), Error> {
    let at = |ttl: &Option<i64>| ttl.map_or(Expiry::Never, |ttl| Expiry::At(now_ms + ttl));
    let done: Result<(), Error> = match edit {
        Edit::Set { number, ttl } => db.set(key, &text(*number), at(ttl)),
        Edit::Store { number, ttl, flags } => {
            let value = text(*number);
            db.store(key, value.as_bytes(), *flags, at(ttl), Condition::Always).map(drop)
        }
        Edit::MarkStale => match db.string(key) {
            Ok(Some(_)) => {
                _ = db.make_stale(key);
                Ok(())
            }
            other => other.map(drop),
        },
        Edit::Append(number) => db.append(key, text(*number).as_bytes()).map(drop),
        Edit::SetRange { offset, number } => {
            db.set_range(key, u64::from(*offset), text(*number).as_bytes()).map(drop)
        }
        Edit::Increment(by) => db.increment(key, *by).map(drop),
        Edit::Expire(Some(ttl)) => {
            db.set_deadline(key, now_ms + ttl);
            Ok(())
        }
        Edit::Expire(None) => {
            db.clear_deadline(key);
            Ok(())
        }
        Edit::Delete => {
            db.remove(key);
            Ok(())
        }
        of_collection => run_collection_edit(db, key, of_collection, now_ms),
    };
    match done {
        Err(Error::WrongType | Error::NotAnInteger) => Ok(()),
        done => done,
    }
}

fn run_collection_edit(
    db: &mut Db<'_>,
    key: Key<'_>,
    edit: &Edit,
    now_ms: i64,
) -> Result<(), Error> {
    let missing = if edit.creates().is_some() { Missing::Create } else { Missing::Skip };
    let done = match edit {
        Edit::Push(..)
        | Edit::Insert { .. }
        | Edit::SetElement { .. }
        | Edit::RemoveElements { .. } => db.edit::<List, _, Error>(key, missing, |list| {
            edit_list(list, edit);
            Ok(())
        }),
        Edit::Add(range) => db.edit::<Set, _, Error>(key, missing, |set| {
            element_range(*range).for_each(|member| _ = set.add(member.as_bytes()));
            Ok(())
        }),
        Edit::Discard(range) => db.edit::<Set, _, Error>(key, missing, |set| {
            element_range(*range).for_each(|member| _ = set.remove(member.as_bytes()));
            Ok(())
        }),
        Edit::Score(range, score) => db.edit::<SortedSet, _, Error>(key, missing, |set| {
            let score = *score as f64;
            element_range(*range).for_each(|m| set.update(m.as_bytes(), |_| Some(score)));
            Ok(())
        }),
        Edit::Unscore(range) => db.edit::<SortedSet, _, Error>(key, missing, |set| {
            element_range(*range).for_each(|member| _ = set.remove(member.as_bytes()));
            Ok(())
        }),
        Edit::SetFields { .. } | Edit::ExpireFields { .. } | Edit::DropFields(_) => db
            .edit::<Hash, _, Error>(key, missing, |hash| {
                edit_hash(hash, edit, now_ms);
                Ok(())
            }),
        _ => db.edit::<Stream, _, Error>(key, missing, |stream| {
            edit_stream(stream, edit, now_ms);
            Ok(())
        }),
    };
    done.map(drop)
}

fn edit_list(list: &mut Editor<'_, List>, edit: &Edit) {
    match edit {
        Edit::Push(end, range) => {
            let elements: Vec<_> = element_range(*range).collect();
            let elements = elements.iter().map(String::as_bytes);
            match end {
                End::Back => list.push_back(elements),
                End::Front => list.push_front(elements),
            }
        }
        Edit::Insert { at, range } => {
            let elements: Vec<_> = element_range(*range).collect();
            let at = usize::from(*at) % (list.len() + 1);
            list.insert(at, elements.iter().map(String::as_bytes));
        }
        Edit::SetElement { at, number } => {
            list.set(usize::from(*at) % list.len(), element(*number).as_bytes());
        }
        Edit::RemoveElements { at, count } => {
            list.remove(usize::from(*at) % list.len(), usize::from(*count));
        }
        _ => unreachable!("no edit of a list"),
    }
}

fn edit_hash(hash: &mut Editor<'_, Hash>, edit: &Edit, now_ms: i64) {
    match edit {
        Edit::SetFields { range, number, ttl } => {
            let (value, deadline_ms) = (text(*number), ttl.map(|ttl| now_ms + ttl));
            for name in element_range(*range) {
                hash.put(name.as_bytes(), value.as_bytes(), deadline_ms);
            }
        }
        Edit::ExpireFields { range, ttl } => {
            let deadline_ms = ttl.map(|ttl| now_ms + ttl);
            for name in element_range(*range) {
                if hash.get(name.as_bytes(), now_ms).is_some() {
                    hash.set_deadline(name.as_bytes(), deadline_ms);
                }
            }
        }
        Edit::DropFields(range) => {
            element_range(*range).for_each(|name| _ = hash.remove(name.as_bytes()));
        }
        _ => unreachable!("no edit of a hash"),
    }
}

fn edit_stream(stream: &mut Editor<'_, Stream>, edit: &Edit, now_ms: i64) {
    match edit {
        Edit::AddEntries { count, number } => {
            let (name, value) = (element(*number), text(*number));
            let fields = [(name.as_bytes(), value.as_bytes())];
            for _ in 0..*count {
                let last = stream.state().last_id;
                let (ms, seq) = next_id((last.ms, last.seq), now_ms);
                assert!(stream.add(StreamId::new(ms, seq), fields.iter().copied()));
            }
        }
        Edit::AddMessage { producer, number } => add_message(stream, *producer, *number, now_ms),
        Edit::DeleteEntry(nth) => {
            let all = stream.ascending(StreamId::MIN, StreamId::MAX);
            let id = all.map(|entry| entry.id).nth(usize::from(*nth));
            id.into_iter().for_each(|id| _ = stream.delete(id));
        }
        Edit::TrimEntries(keep) => {
            let keep = Keep::Newest(usize::from(*keep));
            stream.trim(Trim { keep, precision: TrimPrecision::Exact });
        }
        Edit::MakeGroup(group) => {
            let first = stream.first().map_or(StreamId::new(0, 0), |entry| entry.id);
            stream.set_group(element(*group).as_bytes(), first, None);
        }
        Edit::DropGroup(group) => _ = stream.remove_group(element(*group).as_bytes()),
        Edit::Deliver { group, consumer, count } => {
            deliver(stream, &element(*group), &element(*consumer), (*count).into(), now_ms as u64);
        }
        Edit::Acknowledge { group, nth } => {
            let name = element(*group);
            let Some(group) = stream.group(name.as_bytes()) else { return };
            let mut pending = group.pending(StreamId::MIN, StreamId::MAX);
            let id = pending.nth(usize::from(*nth)).map(|(id, _)| *id);
            stream.acknowledge(name.as_bytes(), id.into_iter());
        }
        Edit::DropConsumer { group, consumer } => {
            let (group, consumer) = (element(*group), element(*consumer));
            stream.remove_consumer(group.as_bytes(), consumer.as_bytes());
        }
        _ => unreachable!("no edit of a stream"),
    }
}

/// Adds a message, unless it is remembered.
fn add_message(stream: &mut Editor<'_, Stream>, producer: Number, number: Number, now_ms: i64) {
    let (producer, message, value) = (element(producer), element(number), text(number));
    let name = MessageName { producer: producer.as_bytes(), message: message.as_bytes() };
    if stream.find_duplicate(name, now_ms as u64).is_some() {
        return;
    }
    let last = stream.state().last_id;
    let (ms, seq) = next_id((last.ms, last.seq), now_ms);
    let id = StreamId::new(ms, seq);
    assert!(stream.add(id, [(message.as_bytes(), value.as_bytes())].into_iter()));
    if stream.messages().is_none() {
        stream.set_messages(MESSAGE_LIMITS, MessageCounts::default());
    }
    let counts = stream.messages().map(Messages::counts).unwrap_or_default();
    let counts = MessageCounts { added: counts.added + 1, ..counts };
    stream.remember(name, id, now_ms as u64, counts);
}

/// Delivers entries that no consumer of the group has received.
fn deliver(stream: &mut Editor<'_, Stream>, name: &str, consumer: &str, count: usize, now: u64) {
    let (name, consumer) = (name.as_bytes(), consumer.as_bytes());
    let Some(group) = stream.group(name) else { return };
    let Some(from) = group.last_delivered().next() else { return };
    let new = stream.ascending(from, StreamId::MAX).take(count);
    let ids: Vec<StreamId> = new.map(|entry| entry.id).collect();
    let Some(last) = ids.last() else { return };
    let entries_read = Some(stream.state().entries_added);
    stream.set_group(name, *last, entries_read);
    stream.set_consumer(name, consumer, now, Some(now));
    stream.deliver(name, consumer, &ids, Delivery { at_ms: now, count: 1 });
}
