//! Clients that track keys, and the delivery of invalidations: see `docs/client-side-caching.md`.
//!
//! An invalidation goes to the worker of the connection that tracks. Only this worker knows its tracking mode and the
//! connection to which it redirects invalidations, if any.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

use parking_lot::{Mutex, RwLock};
use tierce_output::Output;
use tierce_wire::resp::{Encoder, Proto, ReplyDecoder, Value};

use super::lengths::Lengths;
use super::names::{Added, Audiences, Name};
use super::registry::Audience;
use crate::acl::Rights;
use crate::clients::Client;
use crate::waiting::ConnAddress;

/// Number of parts. Each has its own lock, so that threads that change keys seldom contend.
const PARTS: usize = 64;

/// Key tracking of a connection.
#[derive(Clone, Debug)]
pub struct Tracker {
    /// The keys it is told of.
    pub mode: TrackingMode,
    /// True if it is not told of its own changes.
    pub skips_own: bool,
    /// The connection that gets the invalidations instead.
    pub redirect: Option<Redirect>,
    /// True if CLIENT CACHING applies to the next command.
    pub caching: bool,
    /// True after the other connection has ended.
    pub is_broken: bool,
}

/// The keys a client is told of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TrackingMode {
    /// Keys that it has read.
    Read,
    /// Keys that it has read after CLIENT CACHING YES.
    OptIn,
    /// Keys that it has read, except after CLIENT CACHING NO.
    OptOut,
    /// Keys that begin with one of its prefixes.
    Broadcast,
}

/// A connection that gets the invalidations of another one.
#[derive(Clone, Debug)]
pub struct Redirect {
    /// Id of its client.
    pub id: u64,
    client: Weak<Client>,
}

/// Destination of an invalidation after it has reached the connection that tracks.
pub(super) enum Way {
    Nowhere,
    Here,
    To(ConnAddress),
    /// A client that has disconnected.
    Broken(u64),
}

impl Redirect {
    /// Redirects to this client.
    #[must_use]
    pub fn to(client: &Arc<Client>) -> Self {
        Self { id: client.id, client: Arc::downgrade(client) }
    }
}

impl Tracker {
    /// Returns true if it is told of changes of the keys that the next command reads.
    #[must_use]
    pub fn remembers_reads(&self) -> bool {
        match self.mode {
            TrackingMode::Read => true,
            TrackingMode::OptIn => self.caching,
            TrackingMode::OptOut => !self.caching,
            TrackingMode::Broadcast => false,
        }
    }

    pub(super) fn way_of(&mut self, is_own: bool) -> Way {
        if is_own && self.skips_own {
            return Way::Nowhere;
        }
        let Some(redirect) = &self.redirect else { return Way::Here };
        match redirect.client.upgrade() {
            Some(client) if !client.is_gone() => Way::To(client.conn),
            _ => {
                self.is_broken = true;
                Way::Broken(redirect.id)
            }
        }
    }
}

/// Tells a client that the target of its invalidations has disconnected.
pub(super) fn write_broken(redirect: u64, output: &mut Output, proto: Proto) {
    if proto == Proto::Resp3 {
        let mut encoder = Encoder::new(output.buffer(), proto);
        encoder.push(2);
        encoder.bulk(b"tracking-redir-broken");
        encoder.int(redirect as i64);
    }
}

/// Message that all keys, or some, may have changed since a client read them.
#[derive(Clone)]
pub struct Invalidation {
    /// Encoded array of the keys; `None` for all keys.
    keys: Option<Arc<Vec<u8>>>,
    /// The client that has changed them, or 0.
    pub(super) changed_by: u64,
    /// True if the connection that tracks has forwarded it.
    pub(super) is_redirected: bool,
}

impl Invalidation {
    /// Invalidation of all keys.
    pub(crate) const ALL: Self = Self { keys: None, changed_by: 0, is_redirected: false };

    /// Creates an invalidation of these keys.
    pub(crate) fn of<'k>(keys: impl ExactSizeIterator<Item = &'k [u8]>, changed_by: u64) -> Self {
        let mut bytes = Vec::new();
        let mut encoder = Encoder::new(&mut bytes, Proto::Resp2);
        encoder.array(keys.len());
        keys.for_each(|key| encoder.bulk(key));
        Self { keys: Some(Arc::new(bytes)), changed_by, is_redirected: false }
    }

    /// Returns the part with keys that a user may see, if there are any.
    pub(super) fn visible_to(&self, rights: &Rights) -> Option<Self> {
        let Some(keys) = self.keys.as_ref().filter(|_| rights.are_restricted()) else {
            return Some(self.clone());
        };
        let (keys, _) = ReplyDecoder::new().decode(keys).ok().flatten()?;
        let keys = keys.as_values().unwrap_or_default().iter().filter_map(Value::as_bytes);
        let visible: Vec<&[u8]> = keys.filter(|key| rights.see_key(key)).collect();
        let is_any = !visible.is_empty();
        is_any.then(|| Self::of(visible.into_iter(), self.changed_by))
    }

    pub(super) fn redirected(&self) -> Self {
        Self { is_redirected: true, ..self.clone() }
    }

    /// Returns the approximate number of bytes.
    pub(super) fn len(&self) -> usize {
        64 + self.keys.as_ref().map_or(0, |keys| keys.len())
    }

    /// Writes it for the connection that tracks, if that knows push frames.
    pub(super) fn write(&self, output: &mut Output, proto: Proto) {
        if proto == Proto::Resp3 {
            let mut encoder = Encoder::new(output.buffer(), proto);
            encoder.push(2);
            encoder.bulk(b"invalidate");
            self.write_keys(output, proto);
        }
    }

    /// Writes it for another connection, as a message if this one needs subscriptions.
    pub(super) fn write_redirected(&self, is_subscribed: bool, output: &mut Output, proto: Proto) {
        if proto == Proto::Resp2 && is_subscribed {
            let mut encoder = Encoder::new(output.buffer(), proto);
            encoder.array(3);
            encoder.bulk(b"message");
            encoder.bulk(b"__redis__:invalidate");
            self.write_keys(output, proto);
        } else {
            self.write(output, proto);
        }
    }

    fn write_keys(&self, output: &mut Output, proto: Proto) {
        match &self.keys {
            Some(keys) => super::frame::share(output, keys, 0..keys.len()),
            None => Encoder::new(output.buffer(), proto).null(),
        }
    }
}

/// All connections that track keys.
pub(super) struct Trackers {
    parts: [RwLock<HashMap<u64, TrackingConn>>; PARTS],
    /// Number of connections. Locked while it changes, so that listeners are called in order.
    count: Mutex<usize>,
    /// Copy of the number that is readable without the lock.
    seen_count: AtomicUsize,
    prefixes: RwLock<Prefixes>,
}

/// A connection that tracks keys.
#[derive(Clone, Copy)]
struct TrackingConn {
    conn: ConnAddress,
    is_broadcast: bool,
}

impl Default for Trackers {
    fn default() -> Self {
        Self {
            parts: std::array::from_fn(|_| RwLock::default()),
            count: Mutex::default(),
            seen_count: AtomicUsize::new(0),
            prefixes: RwLock::default(),
        }
    }
}

impl Trackers {
    fn part(&self, id: u64) -> &RwLock<HashMap<u64, TrackingConn>> {
        &self.parts[id as usize % PARTS]
    }

    /// Adds a connection, or notes that it has changed its mode. Calls `tell` if it is the first one.
    pub(super) fn add(&self, conn: ConnAddress, is_broadcast: bool, tell: impl FnOnce(bool)) {
        let mut count = self.count.lock();
        if self.part(conn.id).write().insert(conn.id, TrackingConn { conn, is_broadcast }).is_none()
        {
            self.set_count(&mut count, |count| count + 1, tell);
        }
    }

    /// Removes a connection. Calls `tell` if it was the last one.
    pub(super) fn remove(&self, conn: ConnAddress, tell: impl FnOnce(bool)) {
        let mut count = self.count.lock();
        if self.part(conn.id).write().remove(&conn.id).is_some() {
            self.set_count(&mut count, |count| count - 1, tell);
        }
    }

    fn set_count(
        &self,
        count: &mut usize,
        change: impl FnOnce(usize) -> usize,
        tell: impl FnOnce(bool),
    ) {
        let was_any = *count > 0;
        *count = change(*count);
        self.seen_count.store(*count, Ordering::Relaxed);
        if was_any != (*count > 0) {
            tell(*count > 0);
        }
    }

    #[inline]
    pub(super) fn count(&self) -> usize {
        self.seen_count.load(Ordering::Relaxed)
    }

    /// Returns the connection of a client that is told of the keys that it has read.
    pub(super) fn reader(&self, id: u64) -> Option<ConnAddress> {
        let tracking = *self.part(id).read().get(&id)?;
        (!tracking.is_broadcast).then_some(tracking.conn)
    }

    /// Visits all connections.
    pub(super) fn each(&self, mut visit: impl FnMut(ConnAddress)) {
        for part in &self.parts {
            part.read().values().for_each(|tracking| visit(tracking.conn));
        }
    }

    pub(super) fn prefixes(&self) -> &RwLock<Prefixes> {
        &self.prefixes
    }
}

/// Prefixes of keys, with the connections that are told of changes under them.
#[derive(Default)]
pub(super) struct Prefixes {
    map: HashMap<Name, Audience>,
    lens: Lengths,
}

impl Prefixes {
    pub(super) fn len(&self) -> usize {
        self.map.len()
    }

    pub(super) fn get(&self, prefix: &[u8]) -> Option<(&Name, &Audience)> {
        self.map.get_key_value(prefix)
    }

    /// Returns the tracked prefixes of a key, with one lookup for each existing length.
    pub(super) fn of<'a>(&'a self, key: &'a [u8]) -> impl Iterator<Item = &'a Name> {
        let lens = self.lens.up_to(key.len());
        lens.filter_map(|len| self.map.get_key_value(&key[..len]).map(|(name, _)| name))
    }
}

impl Audiences for Prefixes {
    fn add(&mut self, name: &[u8], worker: u16) -> Added {
        let (name, is_new) = match self.map.get_key_value(name) {
            Some((name, _)) => (Arc::clone(name), false),
            None => {
                self.lens.add(name.len());
                (name.into(), true)
            }
        };
        self.map.entry(Arc::clone(&name)).or_default().add(worker);
        Added { name, is_new }
    }

    fn remove(&mut self, name: &[u8], worker: u16) -> bool {
        let is_last = self.map.get_mut(name).is_some_and(|audience| audience.remove(worker));
        if is_last {
            self.map.remove(name);
            self.lens.remove(name.len());
        }
        is_last
    }
}
