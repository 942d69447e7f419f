//! Clients that track keys, and how invalidations reach them: see `docs/client-side-caching.md`.
//!
//! An invalidation goes to the connection that tracks, on its worker. That one knows how it wants to be told, and
//! redirects the invalidation to another connection if it was asked to. So no other thread has to know either.

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

/// Parts with a lock each, so that threads that change keys seldom meet.
const PARTS: usize = 64;

/// How a connection tracks keys.
#[derive(Clone, Debug)]
pub struct Tracker {
    /// Of which keys it is told.
    pub mode: TrackingMode,
    /// It is not told of its own changes.
    pub skips_own: bool,
    /// The connection that is told in its place.
    pub redirect: Option<Redirect>,
    /// CLIENT CACHING was said, and holds for the next command.
    pub caching: bool,
    /// The other connection has ended.
    pub is_broken: bool,
}

/// Of which keys a client is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TrackingMode {
    /// Those that it has read.
    Read,
    /// Those that it has read after CLIENT CACHING YES.
    OptIn,
    /// Those that it has read, unless after CLIENT CACHING NO.
    OptOut,
    /// Those that begin with one of its prefixes.
    Broadcast,
}

/// A connection that gets the invalidations of another one.
#[derive(Clone, Debug)]
pub struct Redirect {
    /// Its number.
    pub id: u64,
    client: Weak<Client>,
}

/// Where an invalidation goes that has come to the connection that tracks.
pub(super) enum Way {
    Nowhere,
    Here,
    To(ConnAddress),
    /// To a client that has gone.
    Broken(u64),
}

impl Redirect {
    /// To this client.
    #[must_use]
    pub fn to(client: &Arc<Client>) -> Self {
        Self { id: client.id, client: Arc::downgrade(client) }
    }
}

impl Tracker {
    /// Whether it is told of the keys that the next command reads.
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

/// Tells a client that its invalidations have nowhere to go.
pub(super) fn write_broken(redirect: u64, output: &mut Output, proto: Proto) {
    if proto == Proto::Resp3 {
        let mut encoder = Encoder::new(output.buffer(), proto);
        encoder.push(2);
        encoder.bulk(b"tracking-redir-broken");
        encoder.int(redirect as i64);
    }
}

/// What of all keys, or of some, is no longer what a client has read.
#[derive(Clone)]
pub struct Invalidation {
    /// An array of the keys, encoded; all keys if there is none.
    keys: Option<Arc<Vec<u8>>>,
    /// The client that has changed them, or 0.
    pub(super) changed_by: u64,
    /// It has come from the connection that tracks.
    pub(super) is_redirected: bool,
}

impl Invalidation {
    /// All keys.
    pub(crate) const ALL: Self = Self { keys: None, changed_by: 0, is_redirected: false };

    /// These keys.
    pub(crate) fn of<'k>(keys: impl ExactSizeIterator<Item = &'k [u8]>, changed_by: u64) -> Self {
        let mut bytes = Vec::new();
        let mut encoder = Encoder::new(&mut bytes, Proto::Resp2);
        encoder.array(keys.len());
        keys.for_each(|key| encoder.bulk(key));
        Self { keys: Some(Arc::new(bytes)), changed_by, is_redirected: false }
    }

    /// The part of it whose names a user may know.
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

    /// Bytes, about.
    pub(super) fn len(&self) -> usize {
        64 + self.keys.as_ref().map_or(0, |keys| keys.len())
    }

    /// Writes it for the connection that tracks, which must know push frames.
    pub(super) fn write(&self, output: &mut Output, proto: Proto) {
        if proto == Proto::Resp3 {
            let mut encoder = Encoder::new(output.buffer(), proto);
            encoder.push(2);
            encoder.bulk(b"invalidate");
            self.write_keys(output, proto);
        }
    }

    /// Writes it for another connection, as a message if that has to have subscriptions.
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
    /// How many there are. Locked while that changes, so that listeners learn it in order.
    count: Mutex<usize>,
    /// The same to be read without the lock.
    seen_count: AtomicUsize,
    prefixes: RwLock<Prefixes>,
}

/// Where a connection is that tracks keys.
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

    /// Adds a connection, or notes that it has changed its mode. `tell` is called if it is the first one.
    pub(super) fn add(&self, conn: ConnAddress, is_broadcast: bool, tell: impl FnOnce(bool)) {
        let mut count = self.count.lock();
        if self.part(conn.id).write().insert(conn.id, TrackingConn { conn, is_broadcast }).is_none()
        {
            self.set_count(&mut count, |count| count + 1, tell);
        }
    }

    /// Removes a connection. `tell` is called if it was the last one.
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

    /// The connection of a client that is told of what it has read.
    pub(super) fn reader(&self, id: u64) -> Option<ConnAddress> {
        let tracking = *self.part(id).read().get(&id)?;
        (!tracking.is_broadcast).then_some(tracking.conn)
    }

    /// Visits all of them.
    pub(super) fn each(&self, mut visit: impl FnMut(ConnAddress)) {
        for part in &self.parts {
            part.read().values().for_each(|tracking| visit(tracking.conn));
        }
    }

    pub(super) fn prefixes(&self) -> &RwLock<Prefixes> {
        &self.prefixes
    }
}

/// Prefixes of keys, with the connections that want to be told of them.
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

    /// The prefixes of a key, with one lookup for each length that there is.
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
