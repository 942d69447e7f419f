//! Subscriptions and key tracking of one connection.

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

/// The subscriptions of a connection, and its key tracking. It is removed when it is empty. So a connection without any
/// costs one pointer.
pub struct Subscriptions {
    pub(super) conn: ConnAddress,
    by_kind: [BTreeSet<Name>; Kind::ALL.len()],
    /// Number of the first delivery of its worker that the connection has not seen.
    pub(super) seen: u64,
    /// Its key tracking, if any.
    pub(super) tracker: Option<Tracker>,
    /// Invalidations on their way to other connections.
    pub(super) redirected: Vec<Delivery>,
    /// Rights of its user. They are renewed from `users` after a change.
    rights: Rights,
    users: Option<Arc<Users>>,
}

impl Subscriptions {
    /// Creates it empty. `seen` starts at 0, because other connections may have redirected deliveries to this one.
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

    /// Sets the rights after its client has changed its user or has begun to track keys.
    pub fn set_rights(&mut self, rights: &Rights) {
        self.rights = rights.clone();
    }

    /// Returns true if it has this subscription.
    #[must_use]
    pub fn has(&self, kind: Kind, name: &[u8]) -> bool {
        self.by_kind[kind as usize].contains(name)
    }

    /// Returns the number of subscriptions of a kind.
    #[must_use]
    pub fn count(&self, kind: Kind) -> usize {
        self.by_kind[kind as usize].len()
    }

    /// Returns the number of all subscriptions.
    pub(super) fn len(&self) -> usize {
        self.by_kind.iter().map(BTreeSet::len).sum()
    }

    /// Returns true if it has no subscription and tracks no keys.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.tracker.is_none() && self.by_kind.iter().all(BTreeSet::is_empty)
    }

    /// Returns true if it subscribes to a channel or pattern.
    #[must_use]
    pub fn is_to_channels(&self) -> bool {
        Kind::SUBSCRIBED.into_iter().any(|kind| self.count(kind) > 0)
    }

    /// Returns the names of a kind, in order.
    pub fn names(&self, kind: Kind) -> impl Iterator<Item = &Name> {
        self.by_kind[kind as usize].iter()
    }

    /// Returns one of its prefixes that begins with `prefix`, or is a prefix of it.
    #[must_use]
    pub fn overlapping_prefix(&self, prefix: &[u8]) -> Option<&Name> {
        let prefixes = &self.by_kind[Kind::Prefix as usize];
        if let Some(all) = prefixes.get(b"".as_slice()) {
            return Some(all);
        }
        // The others do not overlap, so candidates are adjacent to this one in the order.
        let bounds = (Bound::Unbounded, Bound::Excluded(prefix));
        let before = prefixes.range::<[u8], _>(bounds).next_back();
        let before = before.filter(|name| prefix.starts_with(name));
        let from = (Bound::Included(prefix), Bound::Unbounded);
        let next = || prefixes.range::<[u8], _>(from).next();
        before.or_else(|| next().filter(|name| name.starts_with(prefix)))
    }

    /// Returns its key tracking, if any.
    #[must_use]
    pub fn tracker(&self) -> Option<&Tracker> {
        self.tracker.as_ref()
    }

    /// Returns its key tracking for changes by its connection.
    pub fn tracker_mut(&mut self) -> Option<&mut Tracker> {
        self.tracker.as_mut()
    }

    pub(super) fn add(&mut self, kind: Kind, name: Name) {
        self.by_kind[kind as usize].insert(name);
    }

    pub(super) fn remove(&mut self, kind: Kind, name: &[u8]) -> bool {
        self.by_kind[kind as usize].remove(name)
    }

    /// Returns true if it is among the receivers of a delivery.
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
        // It may have stopped tracking in the meantime.
        let Some(tracker) = &mut self.tracker else { return };
        let visible;
        let invalidation = match tracker.mode {
            // In other modes it knows the name of the key, because it has read it.
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
