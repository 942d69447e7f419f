//! A large set: an unordered table of members.

use tierce_dash::{EntryHash, IterAhead, Table, prefetch_read};

use super::member::Member;
use crate::incremental_snapshot::{CopyOwned, IncrementalSnapshot, SnapshotProgress};
use crate::packed::Element;
use crate::prefetch::prefetch;
use crate::raw_box::allocated_bytes_of;
use crate::seed::{hash_bytes, hash_int};

#[derive(Debug, Default)]
pub(super) struct MemberTable {
    table: Table<Member>,
    /// Memory that the members own.
    member_bytes: usize,
    /// Set while the set is being saved.
    pub(super) snapshot: Option<Box<IncrementalSnapshot<Member>>>,
}

/// Returns the hash of an element in compact form.
#[inline]
pub(super) fn hash_of(element: Element<'_>) -> u64 {
    match element {
        Element::Int(value) => hash_int(value),
        Element::Bytes(bytes) => hash_bytes(bytes),
    }
}

/// Iterator over all members.
pub(super) type Members<'a> = IterAhead<'a, Member, ByElement>;

/// Computes the hash of a member for the table.
pub(super) struct ByElement;

impl EntryHash<Member> for ByElement {
    #[inline]
    fn hash(&self, member: &Member) -> u64 {
        hash_of(member.element())
    }

    #[inline]
    fn prefetch(&self, member: &Member) {
        if let Some(address) = member.address() {
            prefetch_read(address);
        }
    }
}

impl CopyOwned for Member {
    fn owned_bytes(&self) -> usize {
        self.allocated_bytes()
    }
}

impl MemberTable {
    #[inline]
    pub(super) fn len(&self) -> usize {
        self.table.len()
    }

    /// Returns all bytes of memory, including this struct, which is in an allocation of its own.
    #[inline]
    pub(super) fn allocated_bytes(&self) -> usize {
        allocated_bytes_of::<Self>() + self.table.memory_bytes() + self.member_bytes
    }

    /// Returns all bytes of memory without the members.
    #[cfg(test)]
    pub(super) fn empty_bytes(&self) -> usize {
        allocated_bytes_of::<Self>() + self.table.memory_bytes()
    }

    #[inline]
    pub(super) fn contains(&self, element: Element<'_>) -> bool {
        self.table.find(hash_of(element), |member| member.is(element)).is_some()
    }

    /// See [`Set::prefetch`](super::Set::prefetch).
    pub(super) fn prefetch<'a>(&self, members: impl Iterator<Item = &'a [u8]>) {
        prefetch(&self.table, &ByElement, members.map(|member| hash_of(Element::compact(member))));
    }

    /// Adds a member; `false` if it already exists.
    pub(super) fn insert(&mut self, element: Element<'_>) -> bool {
        let hash = hash_of(element);
        if self.table.find(hash, |member| member.is(element)).is_some() {
            return false;
        }
        self.before_change(hash);
        let member = Member::new(element);
        self.member_bytes += member.allocated_bytes();
        self.table.insert_unique(hash, member, &ByElement);
        true
    }

    /// Removes a member; `false` if it does not exist.
    pub(super) fn remove(&mut self, element: Element<'_>) -> bool {
        self.remove_where(hash_of(element), |member| member.is(element))
    }

    /// Removes a random member, which `visit` sees before; `false` if there is none.
    pub(super) fn pop(&mut self, random: u64, visit: impl FnOnce(Element<'_>)) -> bool {
        let Some(member) = self.table.sample(random) else { return false };
        let (element, identity) = (member.element(), member.identity());
        visit(element);
        let hash = hash_of(element);
        self.remove_where(hash, |member| member.identity() == identity)
    }

    #[inline]
    fn remove_where(&mut self, hash: u64, eq: impl FnMut(&Member) -> bool) -> bool {
        self.before_change(hash);
        let removed = self.table.remove(hash, eq, &ByElement);
        if let Some(member) = &removed {
            self.member_bytes -= member.allocated_bytes();
        }
        removed.is_some()
    }

    /// Must be called before a member with this hash is added or removed.
    #[inline]
    fn before_change(&mut self, hash: u64) {
        if let Some(snapshot) = &mut self.snapshot {
            let copy = |member: &Member| Member::new(member.element());
            snapshot.before_change(&self.table, hash, &ByElement, copy);
        }
    }

    /// Counts memory beside the members that is kept for the snapshot.
    pub(super) fn count_kept(&mut self, bytes: usize) {
        if let Some(snapshot) = &mut self.snapshot {
            snapshot.count_kept(bytes);
        }
    }

    pub(super) fn snapshot_slice(
        &mut self,
        bytes_max: usize,
        mut visit: impl FnMut(Element<'_>) -> usize,
    ) -> SnapshotProgress {
        let Some(snapshot) = &mut self.snapshot else { return SnapshotProgress::Complete };
        let mut visit = |member: &Member| visit(member.element());
        let bytes = snapshot.take_copies(bytes_max, &mut visit);
        let saved =
            snapshot.walk_on(&self.table, &ByElement, bytes_max - bytes.min(bytes_max), visit);
        if saved == SnapshotProgress::Complete {
            self.snapshot = None;
        }
        saved
    }

    pub(super) fn iter(&self) -> Members<'_> {
        self.table.iter_ahead(ByElement)
    }

    /// Visits some members at a time; see [`Table::scan`].
    pub(super) fn scan(&self, cursor: u64, mut visit: impl FnMut(Element<'_>)) -> u64 {
        self.table.scan(cursor, &ByElement, |member| visit(member.element()))
    }

    /// Returns a random member.
    pub(super) fn sample(&self, random: u64) -> Option<Element<'_>> {
        self.table.sample(random).map(Member::element)
    }

    pub(super) fn duplicate(&self) -> Self {
        let mut copy = Self::default();
        for member in self.iter() {
            let element = member.element();
            let member = Member::new(element);
            copy.member_bytes += member.allocated_bytes();
            copy.table.insert_unique(hash_of(element), member, &ByElement);
        }
        copy
    }
}
