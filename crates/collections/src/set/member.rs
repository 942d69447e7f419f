//! A member of a large set, in 8 bytes if it is short or an integer.
//!
//! | low bits of the handle | the member is |
//! |---|---|
//! | `lll1` | the `lll` bytes, up to 7, that are the rest of the handle |
//! | `..10` | the integer in the upper 62 bits |
//! | `0000` | bytes behind the address; their number in the upper 16 bits, or there [`WIDE`] and in 8 bytes before |
//! | `0100` | the integer of 64 bits behind the address |
//!
//! The canonical text of an integer is always stored as an integer, so equal members are represented alike. A
//! member of 8 to 16 bytes takes an allocation of 16.
//!
//! Invariants, on which every unsafe block of this file relies:
//! - The handle is as the table says, and an address in it is that of a live allocation from
//!   [`thin::allocate`] for `allocated_bytes()` bytes, which this member owns exclusively and which is
//!   initialized as the table says.

use std::ptr::{self, NonNull};

use crate::packed::Element;
use crate::same_bytes;
use crate::size_class;
use crate::thin::{self, ADDRESS_BITS, ADDRESS_MASK};

const _: () = assert!(cfg!(target_endian = "little"), "bytes stand in the handle above its lowest");

pub(super) struct Member {
    handle: NonNull<u8>,
}

// SAFETY: a member owns its bytes alone.
unsafe impl Send for Member {}
// SAFETY: through a shared reference bytes are only read.
unsafe impl Sync for Member {}

const _: () = assert!(size_of::<Member>() == 8);

const SHORT: usize = 0b1;
const SHORT_LEN_SHIFT: u32 = 1;
const SHORT_LEN_MAX: usize = 7;

const INT: usize = 0b10;
const INT_MASK: usize = 0b11;
const INT_SHIFT: u32 = 2;

const LONG_INT: usize = 0b0100;
const KIND_MASK: usize = 0b1111;

/// Marker in place of a length: it is before the bytes.
const WIDE: usize = 0xffff;
const WIDE_LEN: usize = 8;

impl Member {
    #[inline]
    pub(super) fn new(element: Element<'_>) -> Self {
        match element {
            Element::Int(value) => Self::of_int(value),
            Element::Bytes(bytes) if bytes.len() <= SHORT_LEN_MAX => Self::of_short(bytes),
            Element::Bytes(bytes) => Self::of_long(bytes),
        }
    }

    fn of_int(value: i64) -> Self {
        if value << INT_SHIFT >> INT_SHIFT == value {
            return Self::immediate((value << INT_SHIFT) as usize | INT);
        }
        let base = thin::allocate(size_of::<i64>());
        // SAFETY: the allocation has 16 bytes and their alignment.
        unsafe { base.cast::<i64>().write(value) };
        Self::behind(base, LONG_INT)
    }

    fn of_short(bytes: &[u8]) -> Self {
        let mut word = [0; size_of::<usize>()];
        word[1..=bytes.len()].copy_from_slice(bytes);
        Self::immediate(usize::from_le_bytes(word) | bytes.len() << SHORT_LEN_SHIFT | SHORT)
    }

    fn of_long(bytes: &[u8]) -> Self {
        let prefix = if bytes.len() < WIDE { 0 } else { WIDE_LEN };
        let base = thin::allocate(prefix + bytes.len());
        // SAFETY: the allocation has room for both, and the alignment of the length.
        unsafe {
            if prefix > 0 {
                base.cast::<u64>().write(bytes.len() as u64);
            }
            ptr::copy_nonoverlapping(bytes.as_ptr(), base.add(prefix).as_ptr(), bytes.len());
        }
        Self::behind(base, bytes.len().min(WIDE) << ADDRESS_BITS)
    }

    fn immediate(bits: usize) -> Self {
        let handle = NonNull::new(ptr::without_provenance_mut(bits));
        Self { handle: handle.expect("what is no address has a bit that says so") }
    }

    fn behind(base: NonNull<u8>, tag: usize) -> Self {
        let handle = base.as_ptr().map_addr(|address| address | tag);
        Self { handle: NonNull::new(handle).expect("an address is not zero") }
    }

    /// Returns the member.
    #[inline]
    pub(super) fn element(&self) -> Element<'_> {
        let bits = self.bits();
        if bits & SHORT != 0 {
            let len = bits >> SHORT_LEN_SHIFT & SHORT_LEN_MAX;
            let word = ptr::from_ref(&self.handle).cast::<u8>();
            // SAFETY: the handle is 8 initialized bytes without provenance, borrowed with `self`, and
            // `len` is at most 7.
            return Element::Bytes(unsafe { std::slice::from_raw_parts(word.add(1), len) });
        }
        if bits & INT_MASK == INT {
            return Element::Int(bits as i64 >> INT_SHIFT);
        }
        // SAFETY: otherwise there is an allocation, which begins with an integer or with bytes as the length says, and
        // is borrowed with `self`.
        unsafe {
            let base = self.base();
            if bits & KIND_MASK == LONG_INT {
                return Element::Int(base.cast::<i64>().read());
            }
            let (prefix, len) = self.long_len();
            Element::Bytes(std::slice::from_raw_parts(base.add(prefix).as_ptr(), len))
        }
    }

    #[inline]
    pub(super) fn is(&self, element: Element<'_>) -> bool {
        let bits = self.bits();
        match element {
            // Most others differ in length, or are not bytes, and their memory is not read.
            Element::Bytes(bytes) if bytes.len() > SHORT_LEN_MAX => {
                // SAFETY: this kind is bytes behind an address, which are borrowed with `self`.
                let is_same = || unsafe {
                    let (prefix, len) = self.long_len();
                    let own = std::slice::from_raw_parts(self.base().add(prefix).as_ptr(), len);
                    same_bytes(own, bytes)
                };
                bits & KIND_MASK == 0 && bits >> ADDRESS_BITS == bytes.len().min(WIDE) && is_same()
            }
            _ => self.element() == element,
        }
    }

    /// Returns a number that no other member of a set has: the handle states the whole member, or where it is.
    #[inline]
    pub(super) fn identity(&self) -> usize {
        self.bits()
    }

    /// Returns the bytes of its allocation, as the allocator counts them.
    #[inline]
    pub(super) fn allocated_bytes(&self) -> usize {
        if !self.is_behind() {
            return 0;
        }
        if self.bits() & KIND_MASK == LONG_INT {
            return size_class(size_of::<i64>());
        }
        // SAFETY: the member is bytes behind an address.
        let (prefix, len) = unsafe { self.long_len() };
        size_class(prefix + len)
    }

    /// Returns the address to prefetch, if any.
    #[inline]
    pub(super) fn address(&self) -> Option<*const u8> {
        self.is_behind().then(|| self.base().as_ptr().cast_const())
    }

    #[inline]
    fn bits(&self) -> usize {
        self.handle.addr().get()
    }

    /// Returns true if there is an allocation.
    #[inline]
    fn is_behind(&self) -> bool {
        self.bits() & INT_MASK == 0
    }

    /// Returns the start of the bytes in the allocation, and their number.
    ///
    /// # Safety
    ///
    /// The member must be bytes behind an address.
    #[inline]
    unsafe fn long_len(&self) -> (usize, usize) {
        match self.bits() >> ADDRESS_BITS {
            // SAFETY: with this tag the length is at the start.
            WIDE => (WIDE_LEN, unsafe { self.base().cast::<u64>().read() } as usize),
            len => (0, len),
        }
    }

    /// Returns the address; only for a member that has an allocation.
    #[inline]
    fn base(&self) -> NonNull<u8> {
        debug_assert!(self.is_behind());
        let base = self.handle.as_ptr().map_addr(|bits| bits & ADDRESS_MASK);
        NonNull::new(base).expect("an address is not zero")
    }
}

impl std::fmt::Debug for Member {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.element().fmt(formatter)
    }
}

impl Drop for Member {
    #[inline]
    fn drop(&mut self) {
        if self.is_behind() {
            // SAFETY: the member owns the allocation, of this size class.
            unsafe { thin::free(self.base(), self.allocated_bytes()) }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use tierce_harness::effort;

    #[test]
    fn what_members_cost() {
        let cost = |bytes: &[u8]| Member::new(Element::compact(bytes)).allocated_bytes();
        assert_eq!([b"".as_slice(), b"seventh", b"2305843009213693951"].map(cost), [0; 3]);
        assert_eq!(
            [b"eighthly".as_slice(), b"sixteen bytes ok", b"2305843009213693952"].map(cost),
            [16; 3]
        );
        assert_eq!(cost(b"seventeen bytes ??".as_slice()), 32);
    }

    fn bytes() -> impl Strategy<Value = Vec<u8>> {
        let len = prop_oneof![4 => 0..10usize, 2 => 10..40usize, 1 => 65_530..65_540usize];
        prop_oneof![
            3 => (any::<u8>(), len).prop_map(|(byte, len)| vec![byte; len]),
            2 => any::<i64>().prop_map(|value| value.to_string().into_bytes()),
            1 => (-100..100i64).prop_map(|value| value.to_string().into_bytes()),
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig {
            cases: if cfg!(miri) { 20 } else { effort(500) },
            failure_persistence: None,
            ..ProptestConfig::default()
        })]

        #[test]
        fn members_are_what_they_were_made_of(one in bytes(), other in bytes()) {
            let member = Member::new(Element::compact(&one));
            prop_assert_eq!(member.element(), Element::compact(&one));
            prop_assert!(member.is(Element::compact(&one)));
            prop_assert_eq!(member.is(Element::compact(&other)), one == other);
        }
    }
}
