//! What one connection is told of.

use std::collections::BTreeSet;
use std::ops::Bound;
use std::sync::Arc;

use tierce_output::Output;
use tierce_wire::resp::Proto;

use super::frame::Frame;
use super::inbox::{Delivery, To};
use super::names::{Kind, Name};
use super::trackers::{Invalidation, Tracker, TrackingMode, Way};
use crate::acl::{Rights, Users};
use crate::waiting::ConnAddress;

/// The subscriptions of a connection, and whether it tracks keys. It is removed when there is nothing of that, so that
/// a connection without any costs one pointer.
pub struct Subscriptions {
    pub(super) conn: ConnAddress,
    by_kind: [BTreeSet<Name>; Kind::ALL.len()],
    /// The connection has got, or is not to get, the deliveries of its worker before this number.
    pub(super) seen: u64,
    /// How it tracks keys, if it does.
    pub(super) tracker: Option<Tracker>,
    /// Invalidations on their way to other connections.
    pub(super) redirected: Vec<Delivery>,
    /// Rights of its user, and the users, among whom they are looked up again after a change.
    rights: Rights,
    users: Option<Arc<Users>>,
}

impl Subscriptions {
    /// Without any. Nothing is seen yet, for a connection may get what other connections redirect to it.
    pub(super) fn new(conn: ConnAddress, users: Option<Arc<Users>>) -> Self {
        Self {
            conn,
            by_kind: Default::default(),
            seen: 0,
            tracker: None,
            redirected: Vec::new(),
            rights: Rights::unlimited(),
            users,
        }
    }

    /// Its client is another user, or has begun to track keys.
    pub fn set_rights(&mut self, rights: &Rights) {
        self.rights = rights.clone();
    }

    /// Whether there is this one.
    #[must_use]
    pub fn has(&self, kind: Kind, name: &[u8]) -> bool {
        self.by_kind[kind as usize].contains(name)
    }

    /// How many there are of a kind.
    #[must_use]
    pub fn count(&self, kind: Kind) -> usize {
        self.by_kind[kind as usize].len()
    }

    /// How many there are of all kinds.
    pub(super) fn len(&self) -> usize {
        self.by_kind.iter().map(BTreeSet::len).sum()
    }

    /// Whether there is none, and no key is tracked.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.tracker.is_none() && self.by_kind.iter().all(BTreeSet::is_empty)
    }

    /// Whether it subscribes to a channel or pattern.
    #[must_use]
    pub fn is_to_channels(&self) -> bool {
        Kind::SUBSCRIBED.into_iter().any(|kind| self.count(kind) > 0)
    }

    /// The names of a kind, in their order.
    pub fn names(&self, kind: Kind) -> impl Iterator<Item = &Name> {
        self.by_kind[kind as usize].iter()
    }

    /// One of its prefixes that begins with this one, or with which this one begins.
    #[must_use]
    pub fn overlapping_prefix(&self, prefix: &[u8]) -> Option<&Name> {
        let prefixes = &self.by_kind[Kind::Prefix as usize];
        if let Some(all) = prefixes.get(b"".as_slice()) {
            return Some(all);
        }
        // The others do not overlap, so those that could are next to this one in their order.
        let bounds = (Bound::Unbounded, Bound::Excluded(prefix));
        let before = prefixes.range::<[u8], _>(bounds).next_back();
        let before = before.filter(|name| prefix.starts_with(name));
        let from = (Bound::Included(prefix), Bound::Unbounded);
        let next = || prefixes.range::<[u8], _>(from).next();
        before.or_else(|| next().filter(|name| name.starts_with(prefix)))
    }

    /// How it tracks keys, if it does.
    #[must_use]
    pub fn tracker(&self) -> Option<&Tracker> {
        self.tracker.as_ref()
    }

    /// The same, to be changed by its connection.
    pub fn tracker_mut(&mut self) -> Option<&mut Tracker> {
        self.tracker.as_mut()
    }

    pub(super) fn add(&mut self, kind: Kind, name: Name) {
        self.by_kind[kind as usize].insert(name);
    }

    pub(super) fn remove(&mut self, kind: Kind, name: &[u8]) -> bool {
        self.by_kind[kind as usize].remove(name)
    }

    /// Whether it is among the receivers of a delivery.
    pub(super) fn gets(&self, to: &To) -> bool {
        match to {
            To::Named(kind, name) => self.has(*kind, name),
            To::Client(conn) => self.conn == *conn,
        }
    }

    pub(super) fn write(&mut self, frame: &Frame, output: &mut Output, proto: Proto) {
        match frame {
            Frame::Message(part) => part.write(output, proto),
            Frame::Invalidation(invalidation) => {
                self.write_invalidation(invalidation, output, proto);
            }
        }
    }

    fn write_invalidation(
        &mut self,
        invalidation: &Invalidation,
        output: &mut Output,
        proto: Proto,
    ) {
        if invalidation.is_redirected {
            return invalidation.write_redirected(self.is_to_channels(), output, proto);
        }
        // It may have stopped tracking since.
        let Some(tracker) = &mut self.tracker else { return };
        let visible;
        let invalidation = match tracker.mode {
            // Of any other key it knows the name: it has read it.
            TrackingMode::Broadcast => {
                let users = self.users.as_ref().filter(|users| self.rights.are_old(users));
                users.into_iter().for_each(|users| _ = self.rights.renew(users));
                visible = invalidation.visible_to(&self.rights);
                let Some(visible) = &visible else { return };
                visible
            }
            _ => invalidation,
        };
        match tracker.way_of(invalidation.changed_by == self.conn.id) {
            Way::Nowhere => {}
            Way::Here => invalidation.write(output, proto),
            Way::To(conn) => {
                let frame = Frame::Invalidation(invalidation.redirected());
                self.redirected.push(Delivery { to: To::Client(conn), frame });
            }
            Way::Broken(client) => super::trackers::write_broken(client, output, proto),
        }
    }
}
