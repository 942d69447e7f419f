//! A large set: members in a table, in no order.

use tierce_dash::{EntryHash, IterAhead, Table, prefetch_read};

use super::member::Member;
use crate::packed::Element;
use crate::prefetch::prefetch;
use crate::raw_box::allocated_bytes_of;
use crate::saving::{CopyOwned, Leftover, SaveId, SaveTag, Saved, Saving};
use crate::seed::{hash_bytes, hash_int};

/// Members in a table.
#[derive(Debug, Default)]
pub(super) struct MemberTable {
    table: Table<Member>,
    /// What the members own.
    member_bytes: usize,
    /// While it is being saved.
    saving: Option<Box<Saving<Member>>>,
}

/// The hash of an element that is an integer if it can be one.
#[inline]
pub(super) fn hash_of(element: Element<'_>) -> u64 {
    match element {
        Element::Int(value) => hash_int(value),
        Element::Bytes(bytes) => hash_bytes(bytes),
    }
}

/// Iterator over all members.
pub(super) type Members<'a> = IterAhead<'a, Member, ByElement>;

/// How the table asks for the hash of a member.
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

    /// All bytes of memory, with those of this struct, which stands in an allocation of its own.
    #[inline]
    pub(super) fn allocated_bytes(&self) -> usize {
        allocated_bytes_of::<Self>() + self.table.memory_bytes() + self.member_bytes
    }

    /// The same without the members.
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

    /// Adds a member; `false` if it is there already.
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

    /// Removes a member; `false` if it is not there.
    pub(super) fn remove(&mut self, element: Element<'_>) -> bool {
        let hash = hash_of(element);
        self.before_change(hash);
        let removed = self.table.remove(hash, |member| member.is(element), &ByElement);
        if let Some(member) = &removed {
            self.member_bytes -= member.allocated_bytes();
        }
        removed.is_some()
    }

    /// To be called before a member with this hash comes or goes.
    #[inline]
    fn before_change(&mut self, hash: u64) {
        if let Some(saving) = &mut self.saving {
            let copy = |member: &Member| Member::new(member.element());
            saving.before_change(&self.table, hash, &ByElement, copy);
        }
    }

    /// See [`Set::save_id`](super::Set::save_id), and those that follow there.
    pub(super) fn save_id(&self) -> Option<SaveId> {
        self.saving.as_ref().map(|saving| saving.id())
    }

    pub(super) fn begin_saving(&mut self, tag: SaveTag) {
        self.saving = Some(Box::new(Saving::begin(tag)));
    }

    pub(super) fn end_saving(&mut self) -> Option<Leftover> {
        self.saving.take().map(Leftover::new)
    }

    pub(super) fn save_slice(
        &mut self,
        bytes_max: usize,
        mut visit: impl FnMut(Element<'_>) -> usize,
    ) -> Saved {
        let Some(saving) = &mut self.saving else { return Saved::Complete };
        let mut visit = |member: &Member| visit(member.element());
        let bytes = saving.take_copies(bytes_max, &mut visit);
        let saved =
            saving.walk_on(&self.table, &ByElement, bytes_max - bytes.min(bytes_max), visit);
        if saved == Saved::Complete {
            self.saving = None;
        }
        saved
    }

    pub(super) fn iter(&self) -> Members<'_> {
        self.table.iter_ahead(ByElement)
    }

    /// Some members at a time; see [`Table::scan`].
    pub(super) fn sweep(&self, cursor: u64, mut visit: impl FnMut(Element<'_>)) -> u64 {
        self.table.scan(cursor, &ByElement, |member| visit(member.element()))
    }

    /// Some member.
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
