//! Model of the contents: plain maps, and the effect of each write on them.
//!
//! The code is simple, so that it is obviously right. An expired key or field is removed before anything
//! else happens.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use tierce_collections::stream::MessageLimits;
use tierce_keyspace::CodeKind;

use crate::together::history::{DATABASES, DbKey, Edit, End, Write, element, element_range, text};

/// Returns the key of a library or script, in pseudo-databases after the real ones.
pub fn code_place(kind: CodeKind, name: u8) -> DbKey {
    (DATABASES + kind as usize, name)
}

/// All databases, and all code.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Contents(pub BTreeMap<DbKey, Rc<Entry>>);

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    pub value: Value,
    pub deadline_ms: Option<i64>,
    /// Flags that a memcached client stored with it.
    pub flags: u32,
    /// A memcached client has marked it as stale.
    pub is_stale: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    Text(String),
    List(Vec<String>),
    Set(BTreeSet<String>),
    SortedSet(BTreeMap<String, i64>),
    Hash(BTreeMap<String, Field>),
    Stream(Stream),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Field {
    pub value: String,
    pub deadline_ms: Option<i64>,
}

/// Milliseconds and sequence number.
pub type Id = (u64, u64);

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stream {
    pub entries: BTreeMap<Id, Vec<(String, String)>>,
    pub last_id: Id,
    pub max_deleted_id: Id,
    pub entries_added: u64,
    pub groups: BTreeMap<String, Group>,
    /// Producer and name of each message that is remembered.
    pub messages: BTreeMap<Id, (String, String)>,
    pub messages_added: u64,
}

/// Limits of messages of all streams. None expires.
pub const MESSAGE_LIMITS: MessageLimits = MessageLimits { messages_max: 3, ..MessageLimits::MAX };

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Group {
    pub last_delivered: Id,
    pub entries_read: Option<u64>,
    /// Times at which each was seen and active.
    pub consumers: BTreeMap<String, (u64, Option<u64>)>,
    /// Consumer, delivery time and delivery count of each entry.
    pub pending: BTreeMap<Id, (String, u64, u32)>,
}

impl Entry {
    pub fn new(value: Value, deadline_ms: Option<i64>) -> Self {
        Self { value, deadline_ms, flags: 0, is_stale: false }
    }

    /// Removes expired fields. Returns true if the entry still exists.
    fn purge(&mut self, now_ms: i64) -> bool {
        if let Value::Hash(fields) = &mut self.value {
            fields.retain(|_, field| field.deadline_ms.is_none_or(|at| at > now_ms));
        }
        self.deadline_ms.is_none_or(|at| at > now_ms) && !self.value.is_empty()
    }

    fn is_touched_by(&self, now_ms: i64) -> bool {
        let is_due = |at: &Option<i64>| at.is_some_and(|at| at <= now_ms);
        let has_due_fields = matches!(&self.value, Value::Hash(fields)
            if fields.values().any(|field| is_due(&field.deadline_ms)));
        is_due(&self.deadline_ms) || has_due_fields
    }
}

impl Value {
    /// Returns true if a key with this value would be deleted.
    pub fn is_empty(&self) -> bool {
        match self {
            Self::Text(_) | Self::Stream(_) => false,
            Self::List(elements) => elements.is_empty(),
            Self::Set(members) => members.is_empty(),
            Self::SortedSet(members) => members.is_empty(),
            Self::Hash(fields) => fields.is_empty(),
        }
    }
}

impl Contents {
    /// Returns the entry as visible at this time.
    pub fn at(&self, now_ms: i64) -> Self {
        let mut copy = self.clone();
        copy.purge(now_ms);
        copy
    }

    /// Removes everything that has expired.
    pub fn purge(&mut self, now_ms: i64) {
        self.0.retain(|_, entry| !entry.is_touched_by(now_ms) || Rc::make_mut(entry).purge(now_ms));
    }

    /// Removes the attributes that only memcached knows.
    pub fn forget_attributes(&mut self) {
        for entry in self.0.values_mut() {
            let entry = Rc::make_mut(entry);
            (entry.flags, entry.is_stale) = (0, false);
        }
    }

    pub fn remove(&mut self, place: &DbKey) {
        self.0.remove(place);
    }

    /// Applies a write.
    pub fn apply(&mut self, write: &Write, now_ms: i64) {
        self.purge(now_ms);
        match write {
            Write::Key(place, edit) => self.edit(*place, edit, now_ms),
            Write::Transfer { from, to, is_copy } => {
                let entry = self.0.get(from).cloned();
                if let Some(entry) = entry {
                    if !is_copy {
                        self.0.remove(from);
                    }
                    self.0.insert(*to, entry);
                }
            }
            Write::Union { from, to } => {
                let of = |place| match self.0.get(place).map(|entry| &entry.value) {
                    Some(Value::Set(members)) => members.clone(),
                    _ => BTreeSet::new(),
                };
                let members: BTreeSet<_> = &of(&from[0]) | &of(&from[1]);
                self.put(*to, Value::Set(members), None);
            }
            Write::Both(places, number) => {
                let value = Value::Text(text(*number));
                places.iter().for_each(|place| self.put(*place, value.clone(), None));
            }
            Write::Code { kind, name, source } => {
                let place = code_place(*kind, *name);
                match source {
                    Some(number) => self.put(place, Value::Text(text(*number)), None),
                    None => self.remove(&place),
                }
            }
            Write::Flush(db) => self.0.retain(|(of, _), _| of != db),
            Write::Swap(a, b) => {
                let swapped = |db| {
                    if db == *a {
                        *b
                    } else if db == *b {
                        *a
                    } else {
                        db
                    }
                };
                let all = std::mem::take(&mut self.0);
                self.0 = all.into_iter().map(|((db, key), e)| ((swapped(db), key), e)).collect();
            }
        }
    }

    fn put(&mut self, place: DbKey, value: Value, deadline_ms: Option<i64>) {
        if value.is_empty() {
            self.0.remove(&place);
        } else {
            self.0.insert(place, Rc::new(Entry::new(value, deadline_ms)));
        }
    }

    fn edit(&mut self, place: DbKey, edit: &Edit, now_ms: i64) {
        let after = |ttl: &Option<i64>| ttl.map(|ttl| now_ms + ttl);
        match edit {
            Edit::Set { number, ttl } => {
                self.put(place, Value::Text(text(*number)), after(ttl));
            }
            Edit::Store { number, ttl, flags } => {
                let value = Value::Text(text(*number));
                let entry = Entry { flags: *flags, ..Entry::new(value, after(ttl)) };
                self.0.insert(place, Rc::new(entry));
            }
            Edit::Delete => _ = self.0.remove(&place),
            Edit::Expire(ttl) => {
                if let Some(entry) = self.0.get_mut(&place) {
                    Rc::make_mut(entry).deadline_ms = ttl.map(|ttl| now_ms + ttl);
                }
            }
            Edit::MarkStale => {
                if let Some(entry) = self.0.get_mut(&place)
                    && matches!(entry.value, Value::Text(_))
                {
                    Rc::make_mut(entry).is_stale = true;
                }
            }
            of_value => self.edit_value(place, of_value, now_ms),
        }
    }

    /// Edits the existing value, or a new one. An edit of another type does nothing.
    fn edit_value(&mut self, place: DbKey, edit: &Edit, now_ms: i64) {
        let mut entry = match (self.0.remove(&place), edit.creates()) {
            (Some(entry), _) => entry,
            (None, Some(value)) => Rc::new(Entry::new(value, None)),
            (None, None) => return,
        };
        Rc::make_mut(&mut entry).value.edit(edit, now_ms);
        if !entry.value.is_empty() {
            self.0.insert(place, entry);
        }
    }
}

impl Value {
    fn edit(&mut self, edit: &Edit, now_ms: i64) {
        match self {
            Self::Text(text) => edit_text(text, edit),
            Self::List(elements) => edit_list(elements, edit),
            Self::Set(members) => match edit {
                Edit::Add(range) => members.extend(element_range(*range)),
                Edit::Discard(range) => {
                    element_range(*range).for_each(|member| _ = members.remove(&member));
                }
                _ => {}
            },
            Self::SortedSet(members) => match edit {
                Edit::Score(range, score) => {
                    members.extend(element_range(*range).map(|member| (member, *score)));
                }
                Edit::Unscore(range) => {
                    element_range(*range).for_each(|member| _ = members.remove(&member));
                }
                _ => {}
            },
            Self::Hash(fields) => edit_hash(fields, edit, now_ms),
            Self::Stream(stream) => stream.edit(edit, now_ms),
        }
    }
}

fn edit_text(value: &mut String, edit: &Edit) {
    match edit {
        Edit::Append(number) => value.push_str(&text(*number)),
        Edit::SetRange { offset, number } => {
            let (from, new) = (usize::from(*offset), text(*number));
            let mut bytes = value.clone().into_bytes();
            bytes.resize(bytes.len().max(from + new.len()), 0);
            bytes[from..from + new.len()].copy_from_slice(new.as_bytes());
            *value = String::from_utf8(bytes).expect("all are ASCII");
        }
        Edit::Increment(by) => {
            if let Ok(number) = value.parse::<i64>()
                && number.to_string() == *value
            {
                *value = (number + by).to_string();
            }
        }
        _ => {}
    }
}

fn edit_list(list: &mut Vec<String>, edit: &Edit) {
    match edit {
        Edit::Push(End::Back, range) => list.extend(element_range(*range)),
        Edit::Push(End::Front, range) => {
            element_range(*range).for_each(|element| list.insert(0, element));
        }
        Edit::Insert { at, range } => {
            let at = usize::from(*at) % (list.len() + 1);
            list.splice(at..at, element_range(*range));
        }
        Edit::SetElement { at, number } => {
            let at = usize::from(*at) % list.len();
            list[at] = element(*number);
        }
        Edit::RemoveElements { at, count } => {
            let at = usize::from(*at) % list.len();
            list.drain(at..list.len().min(at + usize::from(*count)));
        }
        _ => {}
    }
}

fn edit_hash(fields: &mut BTreeMap<String, Field>, edit: &Edit, now_ms: i64) {
    match edit {
        Edit::SetFields { range, number, ttl } => {
            let field = || Field { value: text(*number), deadline_ms: ttl.map(|ttl| now_ms + ttl) };
            fields.extend(element_range(*range).map(|name| (name, field())));
        }
        Edit::ExpireFields { range, ttl } => {
            for name in element_range(*range) {
                if let Some(field) = fields.get_mut(&name) {
                    field.deadline_ms = ttl.map(|ttl| now_ms + ttl);
                }
            }
        }
        Edit::DropFields(range) => {
            element_range(*range).for_each(|name| _ = fields.remove(&name));
        }
        _ => {}
    }
}

/// Returns the id of an entry that is added at this time.
pub fn next_id(last: Id, now_ms: i64) -> Id {
    let now = (now_ms as u64, 0);
    if now > last { now } else { (last.0, last.1 + 1) }
}

impl Stream {
    fn edit(&mut self, edit: &Edit, now_ms: i64) {
        match edit {
            Edit::AddEntries { count, number } => {
                for _ in 0..*count {
                    self.last_id = next_id(self.last_id, now_ms);
                    let fields = vec![(element(*number), text(*number))];
                    self.entries.insert(self.last_id, fields);
                    self.entries_added += 1;
                }
            }
            Edit::AddMessage { producer, number } => {
                let name = (element(*producer), element(*number));
                if self.messages.values().any(|known| *known == name) {
                    return;
                }
                self.last_id = next_id(self.last_id, now_ms);
                self.entries.insert(self.last_id, vec![(element(*number), text(*number))]);
                self.entries_added += 1;
                self.messages_added += 1;
                self.messages.insert(self.last_id, name.clone());
                let of_producer = self.messages.iter().filter(|(_, (it, _))| *it == name.0);
                let ids: Vec<Id> = of_producer.map(|(id, _)| *id).collect();
                if ids.len() > MESSAGE_LIMITS.messages_max as usize {
                    self.messages.remove(&ids[0]);
                }
            }
            Edit::DeleteEntry(nth) => {
                let nth = self.entries.keys().nth(usize::from(*nth)).copied();
                if let Some(id) = nth {
                    self.entries.remove(&id);
                    self.max_deleted_id = self.max_deleted_id.max(id);
                }
            }
            Edit::TrimEntries(keep) => {
                while self.entries.len() > usize::from(*keep) {
                    self.entries.pop_first();
                }
            }
            Edit::MakeGroup(group) => {
                let last_delivered = self.entries.keys().next().copied().unwrap_or_default();
                let group = self.groups.entry(element(*group)).or_default();
                (group.last_delivered, group.entries_read) = (last_delivered, None);
            }
            Edit::DropGroup(group) => _ = self.groups.remove(&element(*group)),
            Edit::Deliver { group, consumer, count } => {
                let Some(group) = self.groups.get_mut(&element(*group)) else { return };
                let new = self.entries.keys().copied().filter(|id| *id > group.last_delivered);
                let ids: Vec<Id> = new.take(usize::from(*count)).collect();
                let Some(last) = ids.last() else { return };
                (group.last_delivered, group.entries_read) = (*last, Some(self.entries_added));
                let (name, now) = (element(*consumer), now_ms as u64);
                group.consumers.insert(name.clone(), (now, Some(now)));
                group.pending.extend(ids.iter().map(|id| (*id, (name.clone(), now, 1))));
            }
            Edit::Acknowledge { group, nth } => {
                let Some(group) = self.groups.get_mut(&element(*group)) else { return };
                if let Some(id) = group.pending.keys().nth(usize::from(*nth)).copied() {
                    group.pending.remove(&id);
                }
            }
            Edit::DropConsumer { group, consumer } => {
                let Some(group) = self.groups.get_mut(&element(*group)) else { return };
                let name = element(*consumer);
                group.consumers.remove(&name);
                group.pending.retain(|_, (of, ..)| *of != name);
            }
            _ => {}
        }
    }
}
