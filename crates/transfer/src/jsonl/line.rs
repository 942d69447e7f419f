//! The kinds of lines, as types for serde. `write.rs` writes the corresponding members.

use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, Error, Visitor};
use tierce_collections::stream::StreamId;

use super::bytes::Bytes;

/// Type of a line. The other members are ignored.
#[derive(Deserialize)]
pub(super) struct Tag {
    #[serde(rename = "type")]
    pub(super) kind: LineKind,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum LineKind {
    Header,
    Function,
    Script,
    String,
    List,
    Set,
    Zset,
    Hash,
    Stream,
    End,
}

/// The first line of a file.
#[derive(Deserialize)]
pub(super) struct Header {
    pub(super) format: String,
    pub(super) version: u64,
    /// Unix time at which the file was written.
    pub(super) written_ms: Option<i64>,
}

/// The last line of a file.
#[derive(Deserialize)]
pub(super) struct End {
    /// Number of keys before this line.
    pub(super) keys: Option<u64>,
}

/// A library of functions.
#[derive(Deserialize)]
pub(super) struct Library {
    pub(super) source: Bytes,
}

/// A script that clients call by its name.
#[derive(Deserialize)]
pub(super) struct Script {
    pub(super) name: Bytes,
    pub(super) source: Bytes,
}

/// A key, or a part of its value.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct KeyLine<V> {
    #[serde(rename = "type")]
    _kind: LineKind,
    #[serde(default)]
    pub(super) db: u64,
    pub(super) key: Bytes,
    /// Expiry, as Unix time.
    #[serde(default)]
    pub(super) expires_ms: Option<u64>,
    /// The flags that a client of memcached gave the value.
    #[serde(default)]
    pub(super) flags: u32,
    /// True if a memcached client marked the value as stale.
    #[serde(default)]
    pub(super) stale: bool,
    /// True if a memcached client was told to replace the stale value.
    #[serde(default)]
    pub(super) won: bool,
    pub(super) value: V,
    /// True if the next line continues the value.
    #[serde(default)]
    pub(super) more: bool,
}

/// A member of a sorted set.
#[derive(Deserialize)]
pub(super) struct Scored(pub(super) Bytes, pub(super) Score);

/// A field of a hash: name, value and expiry.
#[derive(Deserialize)]
pub(super) struct Field(
    pub(super) Bytes,
    pub(super) Bytes,
    #[serde(default)] pub(super) Option<u64>,
);

/// An element of a stream's value.
#[derive(Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum StreamElement {
    Entry(Entry),
    State(State),
    Group(Group),
    Consumer(Consumer),
    Pending(Pending),
    Messages(Messages),
    Message(Message),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Entry {
    pub(super) id: Id,
    /// Names and values, alternating.
    pub(super) fields: Vec<Bytes>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct State {
    pub(super) last_id: Id,
    pub(super) max_deleted_id: Id,
    pub(super) entries_added: u64,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Group {
    pub(super) name: Bytes,
    pub(super) last_delivered: Id,
    #[serde(default)]
    pub(super) entries_read: Option<u64>,
}

/// A consumer of an earlier group.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Consumer {
    pub(super) group: Bytes,
    pub(super) name: Bytes,
    pub(super) seen_ms: u64,
    #[serde(default)]
    pub(super) active_ms: Option<u64>,
}

/// Entries that are pending for an earlier consumer.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Pending {
    pub(super) group: Bytes,
    pub(super) consumer: Bytes,
    pub(super) delivered_ms: u64,
    pub(super) deliveries: u32,
    pub(super) ids: Vec<Id>,
}

/// Limits and numbers of messages that are not added twice.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Messages {
    pub(super) duration_s: u32,
    pub(super) messages_max: u32,
    pub(super) added: u64,
    pub(super) duplicates: u64,
}

/// A message that is not added twice.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Message {
    pub(super) producer: Bytes,
    pub(super) name: Bytes,
    pub(super) id: Id,
    pub(super) at_ms: u64,
}

/// ID of a stream entry, as the text `ms-seq`.
#[derive(Clone, Copy)]
pub(super) struct Id(pub(super) StreamId);

impl<'de> Deserialize<'de> for Id {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let id = text
            .split_once('-')
            .and_then(|(ms, seq)| Some(StreamId::new(ms.parse().ok()?, seq.parse().ok()?)));
        id.map(Id).ok_or_else(|| D::Error::custom(format!("{text:?} is no ID of a stream's entry")))
    }
}

/// A score: a number, or one of the texts `inf` and `-inf`, for which JSON has no number.
pub(super) struct Score(pub(super) f64);

impl<'de> Deserialize<'de> for Score {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ScoreVisitor)
    }
}

struct ScoreVisitor;

impl Visitor<'_> for ScoreVisitor {
    type Value = Score;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a number, \"inf\" or \"-inf\"")
    }

    fn visit_f64<E: Error>(self, number: f64) -> Result<Score, E> {
        Ok(Score(number))
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<Score, E> {
        Ok(Score(number as f64))
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<Score, E> {
        Ok(Score(number as f64))
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Score, E> {
        match text {
            "inf" => Ok(Score(f64::INFINITY)),
            "-inf" => Ok(Score(f64::NEG_INFINITY)),
            _ => Err(E::invalid_value(serde::de::Unexpected::Str(text), &self)),
        }
    }
}
