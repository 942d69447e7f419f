//! Whole values: for tests, fuzzing and examples. Not part of the crate's interface.
//!
//! Programs handle values part by part instead, so that no collection has to fit in memory.

mod packed;

use std::io::Write;

use crate::dump::Payload;
use crate::encode::ValueWriter;
use crate::error::Result;
use crate::format::Kind;
use crate::value::{Stream, ValuePart};

/// A whole value.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// A string.
    String(Vec<u8>),
    /// A list, from head to tail.
    List(Vec<Vec<u8>>),
    /// A set, in any order.
    Set(Vec<Vec<u8>>),
    /// A sorted set as members with scores, in any order.
    SortedSet(Vec<(Vec<u8>, f64)>),
    /// A hash, in any order.
    Hash(Vec<Field>),
    /// A stream.
    Stream(Stream),
}

/// A field of a hash.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Field {
    /// Its name.
    pub name: Vec<u8>,
    /// Its value.
    pub value: Vec<u8>,
    /// Expiry, in milliseconds since 1970.
    pub expiry_ms: Option<u64>,
}

impl Value {
    /// Reads a value of this kind. `visit` must pass its parts to the given function.
    ///
    /// # Errors
    /// Fails if `visit` fails.
    pub fn read(
        kind: Kind,
        visit: impl FnOnce(&mut dyn FnMut(ValuePart<'_>) -> Result<()>) -> Result<()>,
    ) -> Result<Self> {
        let mut value = match kind {
            Kind::List => Value::List(Vec::new()),
            Kind::Set => Value::Set(Vec::new()),
            Kind::SortedSet => Value::SortedSet(Vec::new()),
            Kind::Hash => Value::Hash(Vec::new()),
            Kind::Stream => Value::Stream(Stream::default()),
            // A module's value is an error, and has no parts.
            Kind::String | Kind::Module => Value::String(Vec::new()),
        };
        visit(&mut |part| {
            value.push(part);
            Ok(())
        })?;
        Ok(value)
    }

    /// Reads the value in a payload.
    ///
    /// # Errors
    /// Fails as [`Payload::visit`] does.
    pub fn of_payload(payload: &Payload<'_>) -> Result<Self> {
        Self::read(payload.kind(), |add| payload.visit(add))
    }

    /// Adds a part of the value's own kind.
    fn push(&mut self, part: ValuePart<'_>) {
        match (self, part) {
            (Value::String(string), ValuePart::String(bytes)) => string.extend_from_slice(bytes),
            (Value::List(elements), ValuePart::Element(bytes)) => elements.push(bytes.to_vec()),
            (Value::Set(members), ValuePart::Member(bytes)) => members.push(bytes.to_vec()),
            (Value::SortedSet(members), ValuePart::Scored { member, score }) => {
                members.push((member.to_vec(), score));
            }
            (Value::Hash(fields), ValuePart::Field { name, value, expiry_ms }) => {
                fields.push(Field { name: name.to_vec(), value: value.to_vec(), expiry_ms });
            }
            (Value::Stream(stream), ValuePart::StreamEntry(entry)) => {
                stream.entries.push(entry.clone());
            }
            (Value::Stream(stream), ValuePart::StreamState(state)) => stream.state = *state,
            (Value::Stream(stream), ValuePart::Group(group)) => stream.groups.push(group.clone()),
            (value, part) => panic!("{part:?} is no part of a {:?}", value.kind()),
        }
    }

    /// Returns its kind.
    pub fn kind(&self) -> Kind {
        match self {
            Value::String(_) => Kind::String,
            Value::List(_) => Kind::List,
            Value::Set(_) => Kind::Set,
            Value::SortedSet(_) => Kind::SortedSet,
            Value::Hash(_) => Kind::Hash,
            Value::Stream(_) => Kind::Stream,
        }
    }

    /// Writes the value. A small collection is packed as in Redis.
    ///
    /// # Errors
    /// Fails if writing fails, or if the version has no encoding for the value.
    pub fn write<W: Write>(&self, mut writer: ValueWriter<'_, W>) -> Result<()> {
        match packed::pack(self, writer.output.settings.version) {
            Some((encoding, packed)) => {
                writer.begin(encoding)?;
                writer.output.string(&packed)
            }
            None => self.write_plain(writer),
        }
    }

    /// Writes the value, a collection element by element.
    ///
    /// # Errors
    /// Fails if writing fails, or if the version has no encoding for the value.
    pub fn write_plain<W: Write>(&self, writer: ValueWriter<'_, W>) -> Result<()> {
        let (len, earliest_ms) = match self {
            Value::String(string) => return writer.string(string),
            Value::Stream(stream) => return writer.stream(stream),
            Value::List(elements) | Value::Set(elements) => (elements.len(), None),
            Value::SortedSet(members) => (members.len(), None),
            Value::Hash(fields) => {
                (fields.len(), fields.iter().filter_map(|field| field.expiry_ms).min())
            }
        };
        let mut writer = writer.begin_collection(self.kind(), len as u64, earliest_ms)?;
        match self {
            Value::List(elements) | Value::Set(elements) => {
                elements.iter().try_for_each(|element| writer.element(element))?;
            }
            Value::SortedSet(members) => {
                members.iter().try_for_each(|(member, score)| writer.scored(member, *score))?;
            }
            Value::Hash(fields) => {
                for Field { name, value, expiry_ms } in fields {
                    writer.field(name, value, *expiry_ms)?;
                }
            }
            Value::String(_) | Value::Stream(_) => {}
        }
        writer.finish()
    }
}

/// Appends a command in the form of an append-only file.
pub fn encode_command<T: AsRef<[u8]>>(args: &[T], output: &mut Vec<u8>) {
    let mut number = itoa::Buffer::new();
    let mut header = |output: &mut Vec<u8>, kind: u8, len: usize| {
        output.push(kind);
        output.extend_from_slice(number.format(len).as_bytes());
        output.extend_from_slice(b"\r\n");
    };
    header(output, b'*', args.len());
    for arg in args {
        let arg = arg.as_ref();
        header(output, b'$', arg.len());
        output.extend_from_slice(arg);
        output.extend_from_slice(b"\r\n");
    }
}
