//! Reads lines into a keyspace.
//!
//! A key is assembled outside the keyspace, and stored with its last line. If a later line is invalid, the stored
//! keys are dropped too: an import is all or nothing.

use std::io::BufRead;

use serde::Deserialize;
use tierce_collections::stream::{
    ConsumerNumber, GroupMut, MessageCounts, MessageLimits, MessageName, Pending, State, StreamId,
};
use tierce_collections::{Collection, Stream, StreamLimits};
use tierce_engine::count;
use tierce_keyspace::{
    CODE_NAME_LEN_MAX, CodeEditor, CodeKind, DbIndex, Delivery, Expiry, ItemNote, Keyspace, Marks,
    ShardLocks,
};
use tierce_rdb::{Kind, ValuePart};

use super::bytes::Bytes;
use super::line::{
    self, End, Field, Header, Id, KeyLine, Library, LineKind, Score, Scored, Script, StreamElement,
    Tag,
};
use super::{FORMAT, VERSION};
use crate::persistence::library_name;
use crate::persistence::values::{Assembly, Flaw};

/// Reason why a line is refused.
type Refused = String;

/// Totals of a file.
#[derive(Clone, Default, Debug)]
pub(crate) struct Read {
    pub(crate) keys: u64,
    /// Number of keys left out because their collection has no elements.
    pub(crate) empty: u64,
    /// Time at which the file was written, if the header states it.
    pub(crate) written_ms: Option<i64>,
    /// Lines with code, which is stored but not yet compiled.
    pub(crate) code: Vec<CodeLine>,
}

/// A line with code.
#[derive(Clone, Debug)]
pub(crate) struct CodeLine {
    /// Line number, from 1.
    pub(crate) number: u64,
    pub(crate) kind: CodeKind,
    pub(crate) name: Vec<u8>,
}

/// Reads a file, line by line.
pub(crate) struct Reader<'a, R> {
    input: R,
    keyspace: &'a Keyspace,
    /// The line that was read last.
    line: Vec<u8>,
    /// Number of `line`, from 1.
    number: u64,
    offset: u64,
    /// The value with lines still missing.
    value: Option<Value>,
    has_header: bool,
    has_ended: bool,
    read: Read,
}

/// Reason why a file is refused.
pub(crate) enum Failure {
    /// The file cannot be read.
    Io(std::io::Error),
    /// This line is invalid.
    Line { number: u64, reason: String },
}

impl<'a, R: BufRead> Reader<'a, R> {
    pub(crate) fn new(input: R, keyspace: &'a Keyspace) -> Self {
        Self {
            input,
            keyspace,
            line: Vec::new(),
            number: 0,
            offset: 0,
            value: None,
            has_header: false,
            has_ended: false,
            read: Read::default(),
        }
    }

    /// Returns the number of bytes read so far.
    pub(crate) fn offset(&self) -> u64 {
        self.offset
    }

    /// Reads the next line; `None` after the last one.
    pub(crate) fn next_line(&mut self, locks: &mut ShardLocks<'_>) -> Result<Option<()>, Failure> {
        self.line.clear();
        self.offset += self.input.read_until(b'\n', &mut self.line).map_err(Failure::Io)? as u64;
        self.number += 1;
        let line = std::mem::take(&mut self.line);
        let taken = match line.is_empty() {
            true => self.check_whole().map(|()| None),
            false => self.take(&line, locks).map(Some),
        };
        self.line = line;
        taken.map_err(|reason| Failure::Line { number: self.number, reason })
    }

    /// Returns the totals of the whole file.
    pub(crate) fn into_read(self) -> Read {
        self.read
    }

    fn check_whole(&self) -> Result<(), Refused> {
        match self.has_ended {
            true => Ok(()),
            false => Err("the file is cut short: it has no line of the type end".to_owned()),
        }
    }

    fn take(&mut self, line: &[u8], locks: &mut ShardLocks<'_>) -> Result<(), Refused> {
        if line.trim_ascii().is_empty() {
            return Ok(());
        }
        let Tag { kind } = parse(line)?;
        if self.has_ended {
            return Err("there is a line after that of the type end".to_owned());
        }
        if (kind == LineKind::Header) == self.has_header {
            return Err("the first line, and no other, has the type header".to_owned());
        }
        if let Some(value) = &self.value
            && value.kind != kind
        {
            return Err(value.is_missing());
        }
        match kind {
            LineKind::Header => self.header(&parse(line)?),
            LineKind::Function => {
                let name = put_library(locks, &parse(line)?)?;
                self.note_code(CodeKind::Library, name);
                Ok(())
            }
            LineKind::Script => {
                let name = put_script(locks, parse(line)?)?;
                self.note_code(CodeKind::Script, name);
                Ok(())
            }
            LineKind::End => self.end(&parse(line)?),
            LineKind::String => self.key(kind, parse(line)?, locks, Body::add_bytes),
            LineKind::List => self.key(kind, parse(line)?, locks, |body, elements| {
                body.add(elements, |Bytes(element)| ValuePart::Element(element))
            }),
            LineKind::Set => self.key(kind, parse(line)?, locks, |body, members| {
                body.add(members, |Bytes(member)| ValuePart::Member(member))
            }),
            LineKind::Zset => self.key(kind, parse(line)?, locks, |body, members| {
                body.add(members, |Scored(Bytes(member), Score(score))| {
                    let score = *score;
                    ValuePart::Scored { member, score }
                })
            }),
            LineKind::Hash => self.key(kind, parse(line)?, locks, |body, fields| {
                body.add(fields, |Field(Bytes(name), Bytes(value), expiry_ms)| {
                    let expiry_ms = *expiry_ms;
                    ValuePart::Field { name, value, expiry_ms }
                })
            }),
            LineKind::Stream => self.key(kind, parse(line)?, locks, Body::add_to_stream),
        }
    }

    fn note_code(&mut self, kind: CodeKind, name: Vec<u8>) {
        self.read.code.push(CodeLine { number: self.number, kind, name });
    }

    fn header(&mut self, header: &Header) -> Result<(), Refused> {
        let Header { format, version, written_ms } = header;
        if format != FORMAT || *version != VERSION {
            return Err(format!(
                "the format {format} {version} is unknown; this version reads {FORMAT} {VERSION}"
            ));
        }
        self.has_header = true;
        self.read.written_ms = *written_ms;
        Ok(())
    }

    fn end(&mut self, end: &End) -> Result<(), Refused> {
        let found = self.read.keys + self.read.empty;
        if let Some(keys) = end.keys
            && keys != found
        {
            return Err(format!(
                "the file has {}, and says that it had {keys}",
                count(found, "key")
            ));
        }
        self.has_ended = true;
        Ok(())
    }

    /// Reads a line of a key: `add` takes its part of the value. Stores the key with its last line.
    fn key<V>(
        &mut self,
        kind: LineKind,
        line: KeyLine<V>,
        locks: &mut ShardLocks<'_>,
        add: impl FnOnce(&mut Body, V) -> Result<(), Refused>,
    ) -> Result<(), Refused> {
        let mut value = match self.value.take() {
            Some(value) => value.continued_by(&line)?,
            None => Value::begin(kind, &line, self.keyspace)?,
        };
        add(&mut value.body, line.value)?;
        if line.more {
            self.value = Some(value);
            return Ok(());
        }
        match value.store(self.keyspace, locks)? {
            Stored::Yes => self.read.keys += 1,
            Stored::Empty => self.read.empty += 1,
        }
        Ok(())
    }
}

fn parse<'de, T: Deserialize<'de>>(line: &'de [u8]) -> Result<T, Refused> {
    serde_json::from_slice(line).map_err(|error| match error.column() {
        0 => error.to_string(),
        column => {
            // serde_json also counts lines, always from 1 here.
            let text = error.to_string();
            let what = text.rsplit_once(" at line ").map_or(text.as_str(), |(what, _)| what);
            format!("{what}, at column {column}")
        }
    })
}

/// Stores a library and returns its name.
fn put_library(locks: &mut ShardLocks<'_>, library: &Library) -> Result<Vec<u8>, Refused> {
    let name = library_name(&library.source.0)?;
    CodeEditor::lock(locks).put(CodeKind::Library, &name, library.source.0.as_slice());
    Ok(name)
}

/// Stores a script and returns its name.
fn put_script(locks: &mut ShardLocks<'_>, script: Script) -> Result<Vec<u8>, Refused> {
    let Script { name: Bytes(name), source: Bytes(source) } = script;
    if !(1..=CODE_NAME_LEN_MAX).contains(&name.len()) {
        return Err(format!("a script's name has 1 to {CODE_NAME_LEN_MAX} bytes"));
    }
    CodeEditor::lock(locks).put(CodeKind::Script, &name, source);
    Ok(name)
}

/// A key whose lines are being read.
struct Value {
    kind: LineKind,
    db: u64,
    db_index: DbIndex,
    key: Vec<u8>,
    deadline_ms: Option<i64>,
    item: ItemNote,
    body: Body,
}

/// Outcome of storing a key.
enum Stored {
    Yes,
    /// The key was left out: it has no elements.
    Empty,
}

impl Value {
    fn begin<V>(kind: LineKind, line: &KeyLine<V>, keyspace: &Keyspace) -> Result<Self, Refused> {
        let db = line.db;
        let db_index = usize::try_from(db).ok().and_then(|number| keyspace.db_index(number));
        let db_index = db_index
            .ok_or_else(|| format!("keys of database {db}: --databases has to be larger"))?;
        let marks = Marks { stale: line.stale, won: line.won, ..Marks::NONE };
        let item = ItemNote { flags: line.flags, marks };
        if kind != LineKind::String && item != ItemNote::NONE {
            return Err("flags, stale and won are for strings alone".to_owned());
        }
        let begin = |kind| {
            let assembly = Assembly::begin(kind, keyspace.limits());
            Body::Collection(assembly.expect("a type of collections"))
        };
        let body = match kind {
            LineKind::List => begin(Kind::List),
            LineKind::Set => begin(Kind::Set),
            LineKind::Zset => begin(Kind::SortedSet),
            LineKind::Hash => begin(Kind::Hash),
            LineKind::Stream => Body::Stream(StreamBody::new(keyspace.limits().stream)),
            LineKind::String => Body::String(Vec::new()),
            LineKind::Header | LineKind::Function | LineKind::Script | LineKind::End => {
                return Err("it is not the line of a key".to_owned());
            }
        };
        let key = line.key.0.clone();
        let deadline_ms = line.expires_ms.map(|ms| i64::try_from(ms).unwrap_or(i64::MAX));
        Ok(Self { kind, db, db_index, key, deadline_ms, item, body })
    }

    fn is_missing(&self) -> Refused {
        let key = self.key.escape_ascii();
        format!("the line before says that more of the key {key} follows, and none does")
    }

    fn continued_by<V>(self, line: &KeyLine<V>) -> Result<Self, Refused> {
        if (self.db, &self.key) != (line.db, &line.key.0) {
            return Err(self.is_missing());
        }
        let has_attributes = line.expires_ms.is_some() || line.flags != 0 || line.stale || line.won;
        if has_attributes {
            return Err(
                "expires_ms, flags, stale and won belong into a key's first line".to_owned()
            );
        }
        Ok(self)
    }

    fn store(self, keyspace: &Keyspace, locks: &mut ShardLocks<'_>) -> Result<Stored, Refused> {
        let key = keyspace.key(&self.key);
        let mut db = locks.db(self.db_index, key.hash(), crate::clock::STOPPED_MS);
        let collection = match self.body {
            Body::String(bytes) => {
                let expiry = self.deadline_ms.map_or(Expiry::Never, Expiry::At);
                let stored = db.restore_item(key, &bytes[..], expiry, self.item);
                return stored.map(|()| Stored::Yes).map_err(|error| error.to_string());
            }
            Body::Collection(assembly) => assembly.finish(),
            Body::Stream(stream) => Ok(Collection::Stream(stream.finish()?)),
        };
        match collection {
            Ok(collection) => db
                .put_collection(key, collection, self.deadline_ms)
                .map(|_| Stored::Yes)
                .map_err(|error| error.to_string()),
            Err(Flaw::Empty) => {
                // The last value wins, and an empty one means no key.
                db.remove(key);
                Ok(Stored::Empty)
            }
            Err(flaw) => Err(flaw.to_string()),
        }
    }
}

enum Body {
    String(Vec<u8>),
    Collection(Assembly),
    Stream(StreamBody),
}

/// Adds a line's part of the value. The type of the line selects the method.
impl Body {
    fn add_bytes(&mut self, Bytes(bytes): Bytes) -> Result<(), Refused> {
        if let Self::String(string) = self {
            match string.is_empty() {
                true => *string = bytes,
                false => string.extend_from_slice(&bytes),
            }
        }
        Ok(())
    }

    fn add<T>(
        &mut self,
        elements: Vec<T>,
        part: impl Fn(&T) -> ValuePart<'_>,
    ) -> Result<(), Refused> {
        let Self::Collection(assembly) = self else { return Ok(()) };
        let added = elements.iter().try_for_each(|element| assembly.add(part(element)));
        added.map_err(|flaw| flaw.to_string())
    }

    fn add_to_stream(&mut self, elements: Vec<StreamElement>) -> Result<(), Refused> {
        let Self::Stream(stream) = self else { return Ok(()) };
        elements.into_iter().try_for_each(|element| stream.add(element))
    }
}

/// A stream under construction. A snapshot has the groups of a stream first, and then, alternating, entries and the
/// pending entries of any group.
struct StreamBody {
    stream: Stream,
    limits: StreamLimits,
    /// The ID of the last entry.
    last_entry: Option<StreamId>,
    has_state: bool,
}

impl StreamBody {
    fn new(limits: StreamLimits) -> Self {
        Self { stream: Stream::new(), limits, last_entry: None, has_state: false }
    }

    fn add(&mut self, element: StreamElement) -> Result<(), Refused> {
        match element {
            StreamElement::Entry(entry) => {
                let (Id(id), fields) = (entry.id, entry.fields);
                if self.last_entry.replace(id).is_some_and(|before| before >= id) {
                    return Err(format!("the entry {id} does not come after the one before it"));
                }
                if id == StreamId::MIN {
                    return Err("there is no entry 0-0".to_owned());
                }
                if fields.is_empty() {
                    return Err(format!("the entry {id} has no fields"));
                }
                if !fields.len().is_multiple_of(2) {
                    return Err(format!("the entry {id} has a field without a value"));
                }
                let fields = fields.chunks_exact(2).map(|pair| (&*pair[0].0, &*pair[1].0));
                self.stream.insert(id, fields, self.limits);
            }
            StreamElement::State(state) => {
                if std::mem::replace(&mut self.has_state, true) {
                    return Err("a stream has one state".to_owned());
                }
                let (Id(last_id), Id(max_deleted_id)) = (state.last_id, state.max_deleted_id);
                let added = state.entries_added;
                if last_id == StreamId::MIN && added > 0 {
                    return Err(format!("`entries_added` is {added}, and the last ID is 0-0"));
                }
                self.stream.set_state(State { last_id, max_deleted_id, entries_added: added });
            }
            StreamElement::Group(group) => {
                let Bytes(name) = group.name;
                if self.stream.group(&name).is_some() {
                    return Err(format!("the group {} is there twice", name.escape_ascii()));
                }
                let (Id(position), read) = (group.last_delivered, group.entries_read);
                self.stream.group_or_new(&name).set_position(position, read);
            }
            StreamElement::Consumer(consumer) => {
                let mut group = self.group(&consumer.group)?;
                let Bytes(name) = consumer.name;
                if group.consumer_number(&name).is_some() {
                    return Err(format!("the consumer {} is there twice", name.escape_ascii()));
                }
                let number = group.consumer_or_new(&name);
                group.set_times(number, consumer.seen_ms, consumer.active_ms);
            }
            StreamElement::Pending(pending) => {
                let mut group = self.group(&pending.group)?;
                let Bytes(name) = pending.consumer;
                let (delivered_ms, deliveries) = (pending.delivered_ms, pending.deliveries);
                let delivery = Delivery { at_ms: delivered_ms, count: deliveries };
                let consumer = match delivery.is_given_back(&name) {
                    true => Some(ConsumerNumber::NONE),
                    false => group.consumer_number(&name),
                };
                let Some(consumer) = consumer else {
                    return Err(format!("there is no consumer {}", name.escape_ascii()));
                };
                for Id(id) in pending.ids {
                    if group.pending_entry(id).is_some() {
                        return Err(format!("the entry {id} is pending twice"));
                    }
                    group.set_pending(id, Pending { consumer, deliveries, delivered_ms });
                }
            }
            StreamElement::Messages(messages) => {
                let line::Messages { duration_s, messages_max, added, duplicates } = messages;
                let limits = MessageLimits { duration_s, messages_max };
                if !limits.are_allowed() {
                    return Err("a limit of messages is out of range".to_owned());
                }
                self.stream.set_messages(Some(limits), MessageCounts { added, duplicates });
            }
            StreamElement::Message(message) => {
                if self.stream.messages().is_none() {
                    return Err("messages come before their limits".to_owned());
                }
                let (Bytes(producer), Bytes(name)) = (&message.producer, &message.name);
                let name = MessageName { producer, message: name };
                self.stream.remember(name, message.id.0, message.at_ms, |_, _| ());
            }
        }
        Ok(())
    }

    fn group(&mut self, Bytes(name): &Bytes) -> Result<GroupMut<'_>, Refused> {
        let group = self.stream.group_mut(name);
        group.ok_or_else(|| format!("there is no group {}", name.escape_ascii()))
    }

    fn finish(self) -> Result<Stream, Refused> {
        if !self.has_state {
            return Err("the stream has no state".to_owned());
        }
        if self.last_entry.is_some_and(|last| last > self.stream.state().last_id) {
            return Err("the stream's last_id is below that of an entry".to_owned());
        }
        Ok(self.stream)
    }
}
