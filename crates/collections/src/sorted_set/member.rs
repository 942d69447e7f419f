//! A member of a large sorted set: its score and its bytes in one allocation behind a thin handle.
//!
//! | offset | size | field | meaning |
//! |---|---|---|---|
//! | 0 | 8 | score | an `f64` in native byte order |
//! | 8 | 1 or 5 | length | of the bytes: one byte, or 255 and four bytes in native byte order |
//! | | | bytes | |
//!
//! This and the [`index`](super::index) are the only unsafe parts of the large form. Invariants:
//!
//! - A [`Member`] owns an allocation of `allocated_bytes`, all fields of which are initialized.
//! - An [`Alias`] points to a member that has not been dropped; its creator promises that.
//!   Aliases make no references to the score, so the owner may change it.

use std::ptr::NonNull;

use crate::{size_class, thin};

const LEN_AT: usize = 8;

/// Marker that the length follows in four bytes.
const LONG: u8 = u8::MAX;

/// Returns the number of bytes before those of a member of this length.
#[inline]
const fn header_len(len: usize) -> usize {
    if len < LONG as usize { LEN_AT + 1 } else { LEN_AT + 5 }
}

/// A member with its score.
#[derive(Debug)]
pub(super) struct Member(Alias);

/// A non-owning pointer to a member.
#[derive(Debug, Clone, Copy)]
pub(super) struct Alias {
    at: NonNull<u8>,
}

// SAFETY: a member owns its memory, and an alias is in the same collection as the member, so
// that they go from thread to thread together.
unsafe impl Send for Alias {}
// SAFETY: through a shared reference nothing is written.
unsafe impl Sync for Alias {}

impl Member {
    /// # Panics
    ///
    /// If the bytes are 4 GiB or more.
    pub(super) fn new(bytes: &[u8], score: f64) -> Self {
        let len = u32::try_from(bytes.len()).expect("a member of less than 4 GiB");
        let at = thin::allocate(header_len(bytes.len()) + bytes.len());
        // SAFETY: the allocation has room for the three fields, and no other reference to it exists.
        unsafe {
            at.cast::<f64>().write(score);
            if header_len(bytes.len()) == LEN_AT + 1 {
                at.add(LEN_AT).write(len as u8);
            } else {
                at.add(LEN_AT).write(LONG);
                at.add(LEN_AT + 1).cast::<u32>().write_unaligned(len);
            }
            let body = at.add(header_len(bytes.len()));
            body.copy_from_nonoverlapping(NonNull::from_ref(bytes).cast(), bytes.len());
        }
        Self(Alias { at })
    }

    #[inline]
    pub(super) fn score(&self) -> f64 {
        self.0.score()
    }

    #[inline]
    pub(super) fn set_score(&mut self, score: f64) {
        // SAFETY: the allocation begins with the score and is aligned to 16 bytes. The exclusive borrow of the owner
        // keeps others from reading meanwhile; there is no reference to it.
        unsafe { self.0.at.cast::<f64>().write(score) }
    }

    #[inline]
    pub(super) fn bytes(&self) -> &[u8] {
        self.0.bytes()
    }

    /// Returns the address to prefetch.
    #[inline]
    pub(super) fn address(&self) -> *const u8 {
        self.0.address()
    }

    /// Returns the bytes of memory it owns.
    #[inline]
    pub(super) fn allocated_bytes(&self) -> usize {
        let len = self.bytes().len();
        size_class(header_len(len) + len)
    }

    /// Returns a non-owning pointer to this member.
    ///
    /// # Safety
    ///
    /// It must not be used after the member has been dropped, nor on a different thread from the member.
    #[inline]
    pub(super) unsafe fn alias(&self) -> Alias {
        self.0
    }
}

impl Drop for Member {
    #[inline]
    fn drop(&mut self) {
        let len = self.bytes().len();
        // SAFETY: the memory was allocated for as many bytes, and by the contract of `alias` this is its last use.
        unsafe { thin::free(self.0.at, header_len(len) + len) }
    }
}

impl Alias {
    #[inline]
    pub(super) fn score(&self) -> f64 {
        // SAFETY: the member lives, its allocation begins with the score and is aligned.
        unsafe { self.at.cast::<f64>().read() }
    }

    #[inline]
    pub(super) fn bytes(&self) -> &[u8] {
        // SAFETY: the member lives at least as long as the alias is borrowed, and its length is the number of
        // initialized bytes; they never change.
        unsafe {
            let short = self.at.add(LEN_AT).read();
            let len = if short < LONG {
                usize::from(short)
            } else {
                self.at.add(LEN_AT + 1).cast::<u32>().read_unaligned() as usize
            };
            std::slice::from_raw_parts(self.at.add(header_len(len)).as_ptr(), len)
        }
    }

    /// Returns the address to prefetch.
    #[inline]
    pub(super) fn address(&self) -> *const u8 {
        self.at.as_ptr()
    }

    /// Returns true if both point to the same member.
    #[inline]
    pub(super) fn is(&self, other: &Alias) -> bool {
        self.at == other.at
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_member_keeps_its_bytes_and_changes_its_score() {
        for len in [0, 1, 7, 8, 254, 255, 256, 3000] {
            let bytes: Vec<u8> = (0..len).map(|at| at as u8).collect();
            let mut member = Member::new(&bytes, 1.5);
            // SAFETY: the alias is not used after the member.
            let alias = unsafe { member.alias() };
            member.set_score(-0.0);
            assert_eq!((alias.bytes(), member.bytes()), (&bytes[..], &bytes[..]));
            assert!(alias.score().is_sign_negative() && member.score() == 0.0);
            let header = if len < 255 { 9 } else { 13 };
            assert_eq!(member.allocated_bytes(), size_class(header + len));
        }
    }
}
