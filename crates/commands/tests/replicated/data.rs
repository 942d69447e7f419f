//! All data of a keyspace, classified by the copies that have it: logs, replicas, rollbacks.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use tierce_keyspace::log::StreamEdit;
use tierce_keyspace::{
    CodeKind, CollectionPart, Entry, IntText, Keyspace, SavedValue, for_each_entry,
};

/// The parts of the data that a copy shares. Each part includes the ones before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Sameness {
    /// All that a replica has.
    Replica,
    /// All that a log has.
    Log,
    /// All that a rollback restores: forms of values, and notes that get no record in the log.
    Full,
}

/// Something in the data, with the copies that have it.
type Fact = (Sameness, Vec<u8>);

/// Keys of all databases, libraries and scripts, with facts about each. An expired key counts until it is removed.
#[derive(PartialEq, Eq)]
pub struct Data(BTreeMap<String, Vec<Fact>>);

impl Data {
    pub fn of(keyspace: &Keyspace) -> Self {
        let mut all = BTreeMap::new();
        let mut locks = keyspace.locks();
        for db in keyspace.db_indices().filter(|db| !keyspace.is_empty(*db)) {
            for_each_entry(&mut locks, db, i64::MIN, |entry| {
                let name = format!("{} {}", db.get(), entry.key().escape_ascii());
                all.insert(name, facts(entry));
            });
        }
        for kind in CodeKind::ALL {
            for (name, source) in keyspace.code().all().of(kind) {
                let name = format!("{kind:?} {}", name.escape_ascii());
                all.insert(name, vec![(Sameness::Replica, source.to_vec())]);
            }
        }
        Self(all)
    }

    /// Returns the first key that differs in another copy, with both versions; `None` if all is equal.
    pub fn difference(&self, other: &Self, up_to: Sameness) -> Option<String> {
        let keys = self.0.keys().chain(other.0.keys());
        let of = |data: &Self, key: &String| {
            let facts = data.0.get(key)?.iter().filter(|(sameness, _)| *sameness <= up_to);
            Some(facts.map(|(_, fact)| fact.clone()).collect::<Vec<_>>())
        };
        if self == other {
            return None;
        }
        let mut found = keys.map(|key| (key, of(self, key), of(other, key)));
        let (key, expected, found) = found.find(|(_, expected, found)| expected != found)?;
        Some(format!("{key} is\n{}\nand not\n{}", show(found), show(expected)))
    }

    /// Returns the facts about the key at the start of a difference.
    pub fn shown(&self, difference: &str) -> String {
        let key = difference.split(" is\n").next().unwrap_or_default();
        show(self.0.get(key).map(|facts| facts.iter().map(|(_, fact)| fact.clone()).collect()))
    }
}

fn show(facts: Option<Vec<Vec<u8>>>) -> String {
    let Some(facts) = facts else { return "  absent".into() };
    let mut text = String::new();
    for fact in &facts {
        let shown = fact[..fact.len().min(300)].escape_ascii();
        let _ = writeln!(text, "  {shown}{}", if fact.len() > 300 { ".." } else { "" });
    }
    text.trim_end().into()
}

fn facts(entry: &Entry) -> Vec<Fact> {
    let (marks, value) = (entry.marks(), entry.value());
    let (deadline_ms, flags, is_won) = (entry.deadline_ms(), entry.flags(), marks.won);
    let head = format!("{:?} {deadline_ms:?} {flags} {} {is_won}", entry.value_type(), marks.stale);
    let form = format!("{} {}", entry.encoding(), marks.fetched);
    let mut copy = Vec::new();
    let (mut facts, is_list) = match SavedValue::of(&value, &mut copy) {
        SavedValue::Collection(saved) => {
            let mut facts = Vec::new();
            saved.parts().for_each(|part| add(&mut facts, part));
            (facts, entry.value_type().name() == "list")
        }
        string => {
            let bytes = string.string(&mut IntText::new()).expect("a string").to_vec();
            (vec![(Sameness::Replica, bytes)], false)
        }
    };
    if !is_list {
        // Tables may have another order in a copy; all other facts include their position.
        facts.sort();
    }
    facts.extend([(Sameness::Replica, head.into_bytes()), (Sameness::Full, form.into_bytes())]);
    facts
}

fn add(facts: &mut Vec<Fact>, part: CollectionPart<'_>) {
    let mut push = |sameness, words: &[&[u8]]| facts.push((sameness, words.join(&b' ')));
    match part {
        CollectionPart::Element(bytes) | CollectionPart::Member(bytes) => {
            push(Sameness::Replica, &[bytes]);
        }
        CollectionPart::MemberDeadline { member, deadline_ms } => {
            push(Sameness::Replica, &[member, format!("{deadline_ms:?}").as_bytes()]);
        }
        CollectionPart::Scored { member, score } => {
            push(Sameness::Replica, &[format!("{score:?}").as_bytes(), member]);
        }
        CollectionPart::Field { name, value, deadline_ms } => {
            push(Sameness::Replica, &[name, value, format!("{deadline_ms:?}").as_bytes()]);
        }
        CollectionPart::Stream(StreamEdit::State(state)) => {
            push(Sameness::Replica, &[format!("{state:?}").as_bytes()]);
        }
        CollectionPart::Stream(StreamEdit::Entry { id, fields }) => {
            let fields: Vec<_> = fields.flat_map(|(name, value)| [name, value]).collect();
            push(Sameness::Replica, &[b"entry", id.to_string().as_bytes(), &fields.join(&b' ')]);
        }
        CollectionPart::Stream(StreamEdit::Group {
            name, last_delivered, entries_read, ..
        }) => {
            let position = format!("{last_delivered} {entries_read:?}");
            push(Sameness::Replica, &[b"group", name, position.as_bytes()]);
        }
        // On a redis-server it has the entries that were given back.
        CollectionPart::Stream(StreamEdit::Consumer { name: b"", .. }) => {}
        CollectionPart::Stream(StreamEdit::Consumer { group, name, seen_ms, active_ms }) => {
            push(Sameness::Replica, &[b"consumer", group, name]);
            // A consumer that only asks causes no log record.
            push(Sameness::Full, &[b"seen", group, name, format!("{seen_ms}").as_bytes()]);
            push(Sameness::Log, &[b"active", group, name, format!("{active_ms:?}").as_bytes()]);
        }
        CollectionPart::Stream(StreamEdit::Pending { group, consumer, delivery, ids }) => {
            for id in ids {
                let delivery = format!("{id} {} {}", delivery.at_ms, delivery.count);
                push(Sameness::Replica, &[b"pending", group, consumer, delivery.as_bytes()]);
            }
        }
        CollectionPart::Stream(StreamEdit::Messages { limits, counts }) => {
            push(Sameness::Replica, &[format!("{limits:?} {}", counts.added).as_bytes()]);
            // A message that is not added causes no log record.
            push(Sameness::Full, &[b"duplicates", format!("{}", counts.duplicates).as_bytes()]);
        }
        CollectionPart::Stream(StreamEdit::Remember { at_ms, id, producer, message, .. }) => {
            let added = format!("{id} {at_ms}");
            push(Sameness::Replica, &[b"message", producer, message, added.as_bytes()]);
        }
        other => panic!("{other:?} is a part of its own"),
    }
}
