//! A field of a hash. In a large one: name, value and deadline in one allocation behind a handle of 8 bytes.
//!
//! | bits of the handle | meaning |
//! |---|---|
//! | 0 | whether there is a deadline |
//! | 1-2 | width of the value's length: 0, 1, 2 for 1, 2, 4 bytes |
//! | 4-47 | the address |
//! | 48-63 | the name's length; [`WIDE`] when that is as much or more |
//!
//! | bytes of the allocation | |
//! |---|---|
//! | 4 | the name's length, only when the handle says [`WIDE`] |
//! | 1, 2 or 4 | the value's length |
//! | 8 | the deadline in Unix milliseconds, only if there is one |
//! | | the name, then the value |
//!
//! Numbers are in native byte order and unaligned. A short field costs one byte beyond name and value, and a
//! name of another length is ruled out without reading its memory.
//!
//! Invariants, on which every unsafe block of this file relies:
//! - The address is that of a live allocation from [`thin::allocate`] for `shape().bytes()` bytes, which this
//!   field owns exclusively.
//! - Lengths, deadline, name and value are initialized and laid out as the tables say.

use std::ptr::{self, NonNull};

use crate::packed::Element;
use crate::same_bytes;
use crate::size_class;
use crate::thin::{self, ADDRESS_BITS, ADDRESS_MASK};

const HAS_DEADLINE: usize = 1;
const WIDTH_SHIFT: u32 = 1;
const DEADLINE_LEN: usize = 8;

/// Maximum length of a name or value.
const LEN_MAX: usize = u32::MAX as usize;

/// Marker in place of a name's length: the length is in the allocation.
const WIDE: usize = 0xffff;

pub(super) struct Field {
    handle: NonNull<u8>,
}

// SAFETY: a field owns its bytes alone.
unsafe impl Send for Field {}
// SAFETY: through a shared reference bytes are only read.
unsafe impl Sync for Field {}

const _: () = assert!(size_of::<Field>() == 8);

/// Lengths and flags that determine the layout.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Shape {
    name_len: usize,
    value_len: usize,
    has_deadline: bool,
}

impl Shape {
    #[inline]
    fn of(name_len: usize, value_len: usize, deadline_ms: Option<i64>) -> Self {
        Self { name_len, value_len, has_deadline: deadline_ms.is_some() }
    }

    #[inline]
    fn width(self) -> usize {
        match self.value_len {
            0..=0xff => 0,
            0x100..=0xffff => 1,
            _ => 2,
        }
    }

    /// Returns the bits of a handle other than the address.
    #[inline]
    fn tag(self) -> Tag {
        let name_len = self.name_len.min(WIDE) << ADDRESS_BITS;
        Tag(name_len | self.width() << WIDTH_SHIFT | usize::from(self.has_deadline))
    }

    #[inline]
    fn bytes(self) -> usize {
        self.tag().name_at() + self.name_len + self.value_len
    }
}

/// The decoded bits of a handle.
#[derive(Clone, Copy)]
struct Tag(usize);

impl Tag {
    #[inline]
    fn has_deadline(self) -> bool {
        self.0 & HAS_DEADLINE != 0
    }

    #[inline]
    fn short_name_len(self) -> usize {
        self.0 >> ADDRESS_BITS
    }

    #[inline]
    fn width(self) -> usize {
        self.0 >> WIDTH_SHIFT & 3
    }

    /// Offset of the value's length.
    #[inline]
    fn value_len_at(self) -> usize {
        if self.short_name_len() == WIDE { 4 } else { 0 }
    }

    #[inline]
    fn deadline_at(self) -> usize {
        self.value_len_at() + (1 << self.width())
    }

    #[inline]
    fn name_at(self) -> usize {
        self.deadline_at() + if self.has_deadline() { DEADLINE_LEN } else { 0 }
    }
}

impl Field {
    pub(super) fn new(name: &[u8], value: &[u8], deadline_ms: Option<i64>) -> Self {
        assert!(name.len() <= LEN_MAX && value.len() <= LEN_MAX, "lengths are 32 bits");
        let shape = Shape::of(name.len(), value.len(), deadline_ms);
        let tag = shape.tag();
        let base = thin::allocate(shape.bytes());
        // SAFETY: a tagged address is not zero. All writes lie within the allocated `bytes()`, and establish the
        // invariants.
        unsafe {
            if tag.short_name_len() == WIDE {
                base.cast::<[u8; 4]>().write((name.len() as u32).to_ne_bytes());
            }
            ptr::copy_nonoverlapping(name.as_ptr(), base.add(tag.name_at()).as_ptr(), name.len());
            let handle = base.as_ptr().map_addr(|address| address | tag.0);
            let mut field = Self { handle: NonNull::new_unchecked(handle) };
            field.write(shape, value, deadline_ms);
            field
        }
    }

    /// Writes everything but the name.
    ///
    /// # Safety
    ///
    /// The allocation must have room for a field of this shape, whose tag the handle must have
    /// already, and `shape` must be that of `value` and `deadline_ms`.
    #[inline]
    unsafe fn write(&mut self, shape: Shape, value: &[u8], deadline_ms: Option<i64>) {
        let (base, tag) = (self.base(), self.tag());
        // SAFETY: the caller guarantees that all of it lies within the allocation. The value is not part of it, since
        // the field is borrowed mutably.
        unsafe {
            let len_at = base.add(tag.value_len_at());
            match tag.width() {
                0 => len_at.write(value.len() as u8),
                1 => len_at.cast::<[u8; 2]>().write((value.len() as u16).to_ne_bytes()),
                _ => len_at.cast::<[u8; 4]>().write((value.len() as u32).to_ne_bytes()),
            }
            if let Some(deadline_ms) = deadline_ms {
                let at = base.add(tag.deadline_at()).cast::<[u8; DEADLINE_LEN]>();
                at.write(deadline_ms.to_ne_bytes());
            }
            let at = base.add(tag.name_at() + shape.name_len);
            ptr::copy_nonoverlapping(value.as_ptr(), at.as_ptr(), value.len());
        }
    }

    #[inline]
    pub(super) fn name(&self) -> &[u8] {
        let tag = self.tag();
        // SAFETY: that many bytes are initialized there, and are borrowed with `self`.
        unsafe {
            let at = self.base().add(tag.name_at());
            std::slice::from_raw_parts(at.as_ptr(), self.name_len(tag))
        }
    }

    #[inline]
    pub(super) fn value(&self) -> &[u8] {
        let tag = self.tag();
        // SAFETY: that many bytes are initialized there, and are borrowed with `self`.
        unsafe {
            let at = self.base().add(tag.name_at() + self.name_len(tag));
            std::slice::from_raw_parts(at.as_ptr(), self.value_len(tag))
        }
    }

    /// Returns the deadline of the field, in Unix milliseconds.
    #[inline]
    pub(super) fn deadline_ms(&self) -> Option<i64> {
        let tag = self.tag();
        if !tag.has_deadline() {
            return None;
        }
        // SAFETY: with this tag the 8 bytes there are the deadline.
        Some(i64::from_ne_bytes(unsafe { self.read(tag.deadline_at()) }))
    }

    /// Returns the field as callers see it.
    #[inline]
    pub(super) fn view(&self) -> FieldRef<'_> {
        let (name, value) = (Element::Bytes(self.name()), Element::Bytes(self.value()));
        FieldRef { name, value, deadline_ms: self.deadline_ms() }
    }

    /// Returns true if its deadline has passed. Does not read its memory if it has none.
    #[inline]
    pub(super) fn is_due(&self, now_ms: i64) -> bool {
        self.deadline_ms().is_some_and(|deadline_ms| deadline_ms <= now_ms)
    }

    /// Returns true if the field has this name.
    #[inline]
    pub(super) fn is_named(&self, name: &[u8]) -> bool {
        self.tag().short_name_len() == name.len().min(WIDE) && same_bytes(self.name(), name)
    }

    /// Returns the bytes of its allocation, as the allocator counts them.
    #[inline]
    pub(super) fn allocated_bytes(&self) -> usize {
        size_class(self.shape().bytes())
    }

    /// Returns the address to prefetch.
    #[inline]
    pub(super) fn address(&self) -> *const u8 {
        self.base().as_ptr()
    }

    /// Overwrites the value with one of the same length. Returns false, and changes nothing, if the length differs, or
    /// if the field has or should get a deadline. Only the bytes of the value change.
    #[inline]
    pub(super) fn overwrite(&mut self, value: &[u8], deadline_ms: Option<i64>) -> bool {
        let tag = self.tag();
        if deadline_ms.is_some() || tag.has_deadline() || self.value_len(tag) != value.len() {
            return false;
        }
        // SAFETY: that many bytes are there, and no others are borrowed while `self` is mutably.
        unsafe {
            let at = self.base().add(tag.name_at() + self.name_len(tag));
            ptr::copy_nonoverlapping(value.as_ptr(), at.as_ptr(), value.len());
        }
        true
    }

    /// Sets value and deadline, in place if the size class and the layout before the name stay the same.
    #[inline]
    pub(super) fn set(&mut self, value: &[u8], deadline_ms: Option<i64>) {
        let old = self.shape();
        let new = Shape::of(old.name_len, value.len(), deadline_ms);
        let stays = new.tag().0 == old.tag().0
            && (new == old || size_class(new.bytes()) == size_class(old.bytes()));
        if !stays {
            *self = Self::new(self.name(), value, deadline_ms);
            return;
        }
        // SAFETY: the tag is the same, so the name stays where it is; the rest ends within the size class.
        unsafe { self.write(new, value, deadline_ms) }
    }

    /// Sets or removes the deadline and keeps the value.
    pub(super) fn set_deadline(&mut self, deadline_ms: Option<i64>) {
        let tag = self.tag();
        match deadline_ms {
            Some(deadline_ms) if tag.has_deadline() => {
                // SAFETY: with this tag the 8 bytes there are the deadline.
                unsafe {
                    let at = self.base().add(tag.deadline_at()).cast::<[u8; DEADLINE_LEN]>();
                    at.write(deadline_ms.to_ne_bytes());
                }
            }
            None if !tag.has_deadline() => {}
            _ => *self = Self::new(self.name(), self.value(), deadline_ms),
        }
    }

    #[inline]
    fn tag(&self) -> Tag {
        Tag(self.handle.addr().get() & !ADDRESS_MASK)
    }

    #[inline]
    fn base(&self) -> NonNull<u8> {
        let base = self.handle.as_ptr().map_addr(|bits| bits & ADDRESS_MASK);
        // SAFETY: by the invariants, this is the address of an allocation.
        unsafe { NonNull::new_unchecked(base) }
    }

    #[inline]
    fn name_len(&self, tag: Tag) -> usize {
        match tag.short_name_len() {
            // SAFETY: with this tag the length is at the start.
            WIDE => u32::from_ne_bytes(unsafe { self.read(0) }) as usize,
            len => len,
        }
    }

    #[inline]
    fn value_len(&self, tag: Tag) -> usize {
        let at = tag.value_len_at();
        // SAFETY: with this width the length takes as many bytes there.
        unsafe {
            match tag.width() {
                0 => usize::from(self.read::<1>(at)[0]),
                1 => usize::from(u16::from_ne_bytes(self.read(at))),
                _ => u32::from_ne_bytes(self.read(at)) as usize,
            }
        }
    }

    #[inline]
    fn shape(&self) -> Shape {
        let tag = self.tag();
        Shape {
            name_len: self.name_len(tag),
            value_len: self.value_len(tag),
            has_deadline: tag.has_deadline(),
        }
    }

    /// # Safety
    ///
    /// `N` initialized bytes must be at `offset` of the allocation.
    #[inline]
    unsafe fn read<const N: usize>(&self, offset: usize) -> [u8; N] {
        // SAFETY: as the caller guarantees; bytes have no alignment.
        unsafe { self.base().add(offset).cast::<[u8; N]>().read() }
    }
}

impl std::fmt::Debug for Field {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.view().fmt(formatter)
    }
}

impl Drop for Field {
    fn drop(&mut self) {
        // SAFETY: the field owns the allocation, which has the size class of its shape.
        unsafe { thin::free(self.base(), self.shape().bytes()) }
    }
}

/// A field of a hash.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FieldRef<'a> {
    /// Its name.
    pub name: Element<'a>,
    /// Its value.
    pub value: Element<'a>,
    /// Deadline, as Unix time in milliseconds.
    pub deadline_ms: Option<i64>,
}

impl FieldRef<'_> {
    /// Returns true if its deadline has not passed.
    #[inline]
    pub fn is_live(&self, now_ms: i64) -> bool {
        self.deadline_ms.is_none_or(|deadline_ms| deadline_ms > now_ms)
    }
}

/// State of a field before a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Former {
    /// No field of that name.
    Absent,
    /// A field with this deadline.
    Field(Option<i64>),
}

impl Former {
    /// Returns true if there was a field whose deadline had not passed.
    #[inline]
    pub fn was_live(self, now_ms: i64) -> bool {
        match self {
            Former::Absent => false,
            Former::Field(deadline_ms) => deadline_ms.is_none_or(|at| at > now_ms),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use tierce_harness::effort;

    fn check(field: &Field, name: &[u8], value: &[u8], deadline_ms: Option<i64>) {
        assert_eq!(field.name(), name);
        assert_eq!(field.value(), value);
        assert_eq!(field.deadline_ms(), deadline_ms);
        assert!(field.is_named(name));
        assert!(!field.is_named(&[name, b"x"].concat()));
        assert_eq!(field.is_due(10), deadline_ms.is_some_and(|at| at <= 10));
    }

    #[test]
    fn a_short_field_costs_one_byte_above_its_contents() {
        assert_eq!(Field::new(b"field:01", b"1234567", None).allocated_bytes(), 16);
        assert_eq!(Field::new(b"field:01", b"12345678", None).allocated_bytes(), 32);
        assert_eq!(Field::new(b"field:01", b"1234567", Some(5)).allocated_bytes(), 32);
    }

    #[test]
    fn a_value_of_the_same_size_class_stays_in_place() {
        let mut field = Field::new(b"name", b"value", Some(1));
        let address = field.address();
        field.set(b"another", Some(2));
        assert_eq!(field.address(), address);
        check(&field, b"name", b"another", Some(2));
    }

    fn bytes() -> impl Strategy<Value = Vec<u8>> {
        let len = prop_oneof![6 => 0..40usize, 2 => 200..300usize, 1 => 65_500..65_600usize];
        (any::<u8>(), len).prop_map(|(byte, len)| {
            let len = if cfg!(miri) { len % 300 } else { len };
            (0..len).map(|at| byte.wrapping_add(at as u8)).collect()
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig {
            cases: if cfg!(miri) { 10 } else { effort(256) },
            failure_persistence: None,
            ..ProptestConfig::default()
        })]

        #[test]
        fn fields_hold_what_they_were_given(
            name in bytes(),
            steps in proptest::collection::vec((bytes(), proptest::option::of(0..20i64), any::<bool>()), 1..8),
            is_alike in any::<bool>(),
        ) {
            let mut steps = steps.into_iter();
            let (mut value, mut deadline_ms, _) = steps.next().expect("there is a step");
            let first_len = value.len();
            let mut field = Field::new(&name, &value, deadline_ms);
            check(&field, &name, &value, deadline_ms);
            for (mut next, at, only_deadline) in steps {
                if is_alike {
                    next.resize(first_len, b'.');
                }
                deadline_ms = at;
                if only_deadline {
                    field.set_deadline(at);
                } else {
                    let is_like = next.len() == value.len() && at.is_none();
                    let overwrites = is_like && field.deadline_ms().is_none();
                    prop_assert_eq!(field.overwrite(&next, at), overwrites);
                    if !overwrites {
                        field.set(&next, at);
                    }
                    value = next;
                }
                check(&field, &name, &value, deadline_ms);
                let fresh = Field::new(&name, &value, deadline_ms);
                prop_assert_eq!(field.allocated_bytes(), fresh.allocated_bytes());
            }
        }
    }
}
