//! Events: changes of keys, by their names in Redis, and the clients that caused them.
//!
//! A command names its changes with [`Db::event`](crate::Db::event). The keyspace names changes that happen by
//! themselves (a key expires, is evicted, is new). Events are collected under the locks of their shards. They go to
//! the [`EventSink`] of the keyspace when the shards are unlocked, after the log has the record of these changes. If
//! a transaction or script sends a message, earlier events are delivered together with the message and before it
//! ([`deliver_events`](crate::deliver_events)).
//!
//! **Order.** Events are delivered before the shards are unlocked. So the events of a key, and of a shard, are in the
//! order of its changes, whichever threads make them.
//!
//! **Cost.** Usually there is no listener: then an event costs one branch on the interest word
//! ([`crate::change::interest`]), which was read when the shard was locked.
//!
//! The collected events grow with the changes under one guard, like its log record. There is no other limit.

use std::cell::RefCell;
#[cfg(debug_assertions)]
use std::collections::HashSet;
use std::fmt;
use std::ops::BitOr;
use std::sync::Arc;

use tierce_collections::CollectionKind;

use crate::data::value::ValueType;
use crate::db_index::DbIndex;

/// A set of classes of events.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub struct EventClasses(u32);

impl EventClasses {
    /// No class.
    pub const NONE: Self = Self(0);
    /// Changes of keys of any type (`g`).
    pub const GENERIC: Self = Self(1 << 0);
    /// Strings (`$`).
    pub const STRING: Self = Self(1 << 1);
    /// Lists (`l`).
    pub const LIST: Self = Self(1 << 2);
    /// Sets (`s`).
    pub const SET: Self = Self(1 << 3);
    /// Hashes (`h`).
    pub const HASH: Self = Self(1 << 4);
    /// Sorted sets (`z`).
    pub const SORTED_SET: Self = Self(1 << 5);
    /// Expired keys (`x`).
    pub const EXPIRED: Self = Self(1 << 6);
    /// Evicted keys (`e`).
    pub const EVICTED: Self = Self(1 << 7);
    /// Streams (`t`).
    pub const STREAM: Self = Self(1 << 8);
    /// Modules (`d`).
    pub const MODULE: Self = Self(1 << 9);
    /// New keys (`n`).
    pub const NEW: Self = Self(1 << 10);
    /// Reads of absent keys (`m`).
    pub const KEY_MISS: Self = Self(1 << 11);
    /// Changes for which Redis has no event. They have no letter.
    pub const UNPUBLISHED: Self = Self(1 << 12);
    /// Changes of a whole database. The class has no letter, and its events no key.
    pub const DATABASE: Self = Self(1 << 13);
    /// All of them.
    pub const ALL: Self = Self((1 << 14) - 1);

    /// Returns true if all of `others` are among these.
    #[inline]
    pub const fn contains(self, others: Self) -> bool {
        self.0 & others.0 == others.0
    }

    #[inline]
    pub(crate) const fn bits(self) -> u32 {
        self.0
    }
}

impl BitOr for EventClasses {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

impl fmt::Debug for EventClasses {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "EventClasses({:#b})", self.0)
    }
}

/// Declares [`Event`]: a class, and its events with their names.
macro_rules! events {
    ($($class:ident { $($event:ident $name:literal),+ $(,)? })+) => {
        /// A change of a key, by the name that Redis publishes.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum Event {
            $($(#[doc = concat!("`", $name, "`")] $event,)+)+
        }

        impl Event {
            /// All of them.
            pub const ALL: &[Self] = &[$($(Self::$event),+),+];

            /// Returns its name.
            pub const fn name(self) -> &'static str {
                match self { $($(Self::$event => $name,)+)+ }
            }

            /// Returns its class.
            #[inline]
            pub const fn class(self) -> EventClasses {
                match self { $($(Self::$event)|+ => EventClasses::$class,)+ }
            }
        }
    };
}

events! {
    GENERIC {
        CopyTo "copy_to", Del "del", Expire "expire", MoveFrom "move_from", MoveTo "move_to",
        Persist "persist", RenameFrom "rename_from", RenameTo "rename_to", Restore "restore",
    }
    STRING {
        Append "append", IncrBy "incrby", IncrByFloat "incrbyfloat", PfAdd "pfadd",
        Set "set", SetBit "setbit", SetRange "setrange",
    }
    LIST {
        LInsert "linsert", LPop "lpop", LPush "lpush", LRem "lrem", LSet "lset", LTrim "ltrim",
        RPop "rpop", RPush "rpush", SortStore "sortstore",
    }
    SET {
        SAdd "sadd", SDiffStore "sdiffstore", SExpire "sexpire", SExpired "sexpired",
        SInterStore "sinterstore", SPersist "spersist", SPop "spop", SRem "srem",
        SUnionStore "sunionstore",
    }
    HASH {
        HDel "hdel", HExpire "hexpire", HExpired "hexpired", HIncrBy "hincrby",
        HIncrByFloat "hincrbyfloat", HPersist "hpersist", HSet "hset",
    }
    SORTED_SET {
        GeoRadiusStore "georadiusstore", GeoSearchStore "geosearchstore", ZAdd "zadd",
        ZDiffStore "zdiffstore", ZIncr "zincr", ZInterStore "zinterstore", ZPopMax "zpopmax",
        ZPopMin "zpopmin", ZRangeStore "zrangestore", ZRem "zrem",
        ZRemRangeByLex "zremrangebylex", ZRemRangeByRank "zremrangebyrank",
        ZRemRangeByScore "zremrangebyscore", ZUnionStore "zunionstore",
    }
    EXPIRED {
        Expired "expired",
    }
    EVICTED {
        Evicted "evicted",
    }
    STREAM {
        XAdd "xadd", XDel "xdel", XGroupCreate "xgroup-create",
        XGroupCreateConsumer "xgroup-createconsumer", XGroupDelConsumer "xgroup-delconsumer",
        XGroupDestroy "xgroup-destroy", XGroupSetId "xgroup-setid", XSetId "xsetid", XTrim "xtrim",
    }
    NEW {
        New "new",
    }
    KEY_MISS {
        KeyMiss "keymiss",
    }
    UNPUBLISHED {
        BitField "bitfield", Debug "debug", PfCount "pfcount", Stale "stale", XAck "xack", XCfgSet "xcfgset",
        XClaim "xclaim", XIdmpRecord "xidmprecord", XNack "xnack", XReadGroup "xreadgroup",
    }
    DATABASE {
        Flush "flushdb", Swap "swapdb",
    }
}

impl Event {
    /// Returns the event of expired elements of a value of this type.
    pub(crate) fn of_reaped(value: ValueType) -> Self {
        match value {
            ValueType::Collection(CollectionKind::Set) => Self::SExpired,
            _ => Self::HExpired,
        }
    }
}

/// The origin of a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash)]
pub struct Origin {
    /// Kind of caller.
    pub source: Source,
    /// Number of the client that caused it; 0 for none.
    pub client: u64,
}

impl Origin {
    /// The server itself.
    pub const SERVER: Self = Self { source: Source::Server, client: 0 };
}

/// Kind of caller that made a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash)]
#[non_exhaustive]
pub enum Source {
    /// The server, of its own accord: a key expired, was evicted or loaded.
    #[default]
    Server,
    /// A client of Redis' protocol.
    Resp,
    /// A client of memcached's protocols.
    Memcached,
    /// A client of PedroKV's protocol.
    PedroKv,
    /// The program that embeds the store.
    Library,
    /// A script that a client has called.
    Script,
    /// The server that this one is a replica of.
    Replication,
}

/// One event, as it is delivered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KeyEvent<'a> {
    /// Kind of change.
    pub event: Event,
    /// The database of the key.
    pub db: DbIndex,
    /// Key; empty if the whole database changed.
    pub key: &'a [u8],
    /// Caller that made the change.
    pub origin: Origin,
}

/// The receiver of events; see [`Keyspace::set_event_sink`](crate::Keyspace::set_event_sink).
///
/// Called with shards locked: an implementation must be quick, must not call the keyspace, and cannot fail.
pub trait EventSink: Send + Sync {
    /// Delivers events in their order. They become visible to other threads when this returns.
    fn deliver(&self, events: &EventBatch<'_>);
}

impl<S: EventSink + ?Sized> EventSink for Arc<S> {
    fn deliver(&self, events: &EventBatch<'_>) {
        (**self).deliver(events);
    }
}

/// Events of the shards that one thread unlocks together.
pub struct EventBatch<'a> {
    collected: &'a Collected,
    len: usize,
}

impl EventBatch<'_> {
    /// Returns the events in their order.
    pub fn iter(&self) -> impl Iterator<Item = KeyEvent<'_>> {
        let Collected { events, keys, delivered } = self.collected;
        let (before, events) = events[..self.len].split_at(*delivered);
        let mut begin = before.last().map_or(0, |last| last.key_end);
        events.iter().map(move |noted| {
            let key = &keys[begin..noted.key_end];
            begin = noted.key_end;
            KeyEvent { event: noted.event, db: noted.db, key, origin: noted.origin }
        })
    }
}

impl fmt::Debug for EventBatch<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

/// Events that a thread has collected under its locks.
#[derive(Debug, Default)]
pub(crate) struct Events(RefCell<Collected>);

#[derive(Debug, Default)]
struct Collected {
    events: Vec<Noted>,
    /// Keys of the events, one after the other.
    keys: Vec<u8>,
    /// Number of delivered events.
    delivered: usize,
}

#[derive(Debug)]
struct Noted {
    event: Event,
    db: DbIndex,
    origin: Origin,
    /// End of its key. The key begins at the end of the previous one.
    key_end: usize,
}

impl Events {
    #[cold]
    pub(crate) fn note(&self, event: Event, db: DbIndex, key: &[u8], origin: Origin) {
        let Collected { events, keys, .. } = &mut *self.0.borrow_mut();
        keys.extend_from_slice(key);
        events.push(Noted { event, db, origin, key_end: keys.len() });
    }

    /// Returns the number of events, for [`Events::truncate`].
    pub(crate) fn len(&self) -> usize {
        self.0.borrow().events.len()
    }

    /// Removes all events but the first `len`.
    pub(crate) fn truncate(&mut self, len: usize) {
        let Collected { events, keys, .. } = self.0.get_mut();
        events.truncate(len);
        keys.truncate(events.last().map_or(0, |last| last.key_end));
    }

    #[inline]
    pub(crate) fn is_empty(&mut self) -> bool {
        self.0.get_mut().events.is_empty()
    }

    /// Delivers the first `len` events to the listeners, unless that was done before.
    #[cold]
    pub(crate) fn deliver_first(&mut self, len: usize, sink: Option<&dyn EventSink>) {
        let collected = self.0.get_mut();
        let len = len.min(collected.events.len());
        if let Some(sink) = sink
            && collected.delivered < len
        {
            sink.deliver(&EventBatch { collected, len });
            collected.delivered = len;
        }
    }

    /// Delivers all events to the listeners, and clears them.
    #[cold]
    pub(crate) fn deliver(&mut self, sink: Option<&dyn EventSink>) {
        self.deliver_first(usize::MAX, sink);
        let Collected { events, keys, delivered } = self.0.get_mut();
        events.clear();
        keys.clear();
        *delivered = 0;
    }
}

/// In builds with debug assertions: changed keys, and keys for which a command has named an event.
#[cfg(debug_assertions)]
#[derive(Debug, Default)]
pub(crate) struct Naming(pub(crate) RefCell<Option<Named>>);

#[cfg(debug_assertions)]
pub(crate) type PlacedKey = (DbIndex, Box<[u8]>);

#[cfg(debug_assertions)]
#[derive(Debug, Default)]
pub(crate) struct Named {
    pub(crate) changed: Vec<PlacedKey>,
    pub(crate) named: HashSet<PlacedKey>,
}

#[cfg(debug_assertions)]
impl Naming {
    pub(crate) fn changed(&self, db: DbIndex, key: &[u8]) {
        if let Some(naming) = &mut *self.0.borrow_mut() {
            naming.changed.push((db, key.into()));
        }
    }

    pub(crate) fn named(&self, db: DbIndex, key: &[u8]) {
        if let Some(naming) = &mut *self.0.borrow_mut() {
            naming.named.insert((db, key.into()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_taken_back_leaves_the_rest_as_it_was() {
        let mut events = Events::default();
        let note = |events: &Events, key: &str| {
            events.note(Event::Set, DbIndex::ZERO, key.as_bytes(), Origin::SERVER);
        };
        ["one", "", "three"].iter().for_each(|key| note(&events, key));
        let len = events.len();
        note(&events, "four");
        events.truncate(len);
        note(&events, "five");
        events.truncate(len + 1);
        let collected = &*events.0.get_mut();
        let batch = EventBatch { collected, len: collected.events.len() };
        let keys: Vec<_> = batch.iter().map(|event| event.key.to_vec()).collect();
        assert_eq!(keys, ["one", "", "three", "five"].map(|key| key.as_bytes().to_vec()));
        events.truncate(0);
        assert!(events.is_empty() && events.0.get_mut().keys.is_empty());
    }

    #[test]
    fn every_name_stands_for_one_event() {
        let mut names: Vec<_> = Event::ALL.iter().map(|event| event.name()).collect();
        names.sort_unstable();
        assert!(names.windows(2).all(|two| two[0] != two[1]), "{names:?}");
        let classes = Event::ALL.iter().fold(EventClasses::NONE, |all, event| all | event.class());
        assert_eq!(classes | EventClasses::MODULE, EventClasses::ALL);
    }
}
