//! Arrays with the first `len` slots in use.

use std::mem;

/// Inserts a value at `at` and moves those from there on up by one; there is a free slot after
/// them.
#[inline]
pub(super) fn insert<T>(slots: &mut [T], len: usize, at: usize, value: T) {
    slots[at..=len].rotate_right(1);
    slots[at] = value;
}

/// As [`insert`], for plain values, which move in one copy.
#[inline]
pub(super) fn insert_plain<T: Copy>(slots: &mut [T], len: usize, at: usize, value: T) {
    slots.copy_within(at..len, at + 1);
    slots[at] = value;
}

/// Removes the value at `at` and moves those after it down by one.
#[inline]
pub(super) fn remove<T: Default>(slots: &mut [T], len: usize, at: usize) -> T {
    let value = mem::take(&mut slots[at]);
    slots[at..len].rotate_left(1);
    value
}

/// Moves plain values after `at` down by one. The last slot keeps its value.
#[inline]
pub(super) fn remove_plain<T: Copy>(slots: &mut [T], len: usize, at: usize) {
    slots.copy_within(at + 1..len, at);
}

/// Moves the values from `at` on after the first `to_len` of `to`.
#[inline]
pub(super) fn move_tail<T>(from: &mut [T], len: usize, at: usize, to: &mut [T], to_len: usize) {
    from[at..len].swap_with_slice(&mut to[to_len..to_len + len - at]);
}
