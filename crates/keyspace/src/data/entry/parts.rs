//! Writes the parts of an entry into its allocation.

use std::alloc::{Layout, alloc, handle_alloc_error};
use std::ptr::{self, NonNull};
use std::sync::Arc;

use super::Content;
use super::attributes::Attributes;
use super::layout::{DEADLINE_LEN, KEY_LEN_AT, Shape};
use tierce_collections::Form;

/// Alignment of an entry's allocation. Every size class has it, so it costs nothing, and it leaves
/// four bits of the handle free. Nothing inside an entry is aligned.
pub(super) const ALIGN: usize = 16;

/// Returns the fewest of 1, 2, 4 or 8 bytes that hold `value`.
#[inline]
pub(super) fn int_width(value: i64) -> usize {
    // Significant bits with the sign; one byte holds 8 of them.
    let bits = i64::BITS - (value ^ (value >> 63)).leading_zeros() + 1;
    (bits.div_ceil(8) as usize).next_power_of_two()
}

#[inline]
pub(super) fn memory_layout(size: usize) -> Layout {
    // An entry is at most a few blob thresholds and a key long, far below `isize::MAX`.
    Layout::from_size_align(size, ALIGN).expect("an entry's size is far below isize::MAX")
}

#[inline]
pub(super) fn allocate(shape: &Shape) -> NonNull<u8> {
    let layout = memory_layout(shape.allocated());
    // SAFETY: a size class is never zero.
    let pointer = unsafe { alloc(layout) };
    NonNull::new(pointer).unwrap_or_else(|| handle_alloc_error(layout))
}

/// # Safety
///
/// `base` must be valid for writing the header of `shape`.
#[inline]
pub(super) unsafe fn write_header(base: NonNull<u8>, shape: &Shape) {
    let tag = shape.tag();
    // SAFETY: all of these lie before `tag.key_at()`, within the header.
    unsafe {
        base.write(tag.0);
        let key_len = base.add(KEY_LEN_AT);
        if tag.has_wide_key() {
            key_len.cast::<[u8; 4]>().write((shape.key_len as u32).to_le_bytes());
        } else {
            key_len.write(shape.key_len as u8);
        }
        if tag.has_length() {
            let payload_len = base.add(tag.payload_len_at());
            match tag.width_bytes() {
                1 => payload_len.write(shape.payload_len as u8),
                2 => payload_len.cast::<[u8; 2]>().write((shape.payload_len as u16).to_le_bytes()),
                _ => payload_len.cast::<[u8; 4]>().write((shape.payload_len as u32).to_le_bytes()),
            }
        }
        if let Some(deadline_ms) = shape.deadline_ms {
            let at = base.add(tag.key_at() - DEADLINE_LEN);
            at.cast::<[u8; DEADLINE_LEN]>().write(deadline_ms.to_le_bytes());
        }
    }
}

/// # Safety
///
/// `at` must be valid for writing `attributes.tail_len()` bytes.
#[inline]
pub(super) unsafe fn write_tail(at: NonNull<u8>, attributes: &Attributes) {
    let len = attributes.tail_len();
    if len > 0 {
        let tail = attributes.encode();
        // SAFETY: guaranteed by the caller; a tail is never longer than its encoding.
        unsafe { ptr::copy_nonoverlapping(tail.as_ptr(), at.as_ptr(), len) }
    }
}

/// # Safety
///
/// `payload` must be valid for writing as many bytes as `content`'s shape has payload, and be no part
/// of `content`. Afterwards the payload owns the blob's count or the collection, if `content` is one.
#[inline]
pub(super) unsafe fn write_payload(payload: NonNull<u8>, content: Content<'_>) {
    // SAFETY: guaranteed by the caller.
    unsafe {
        match content {
            Content::Embedded(bytes) | Content::Raw(bytes) => write_bytes(payload, bytes),
            Content::Int(value) => write_int(payload, value),
            Content::Blob(blob) => {
                payload.cast::<*const Vec<u8>>().write_unaligned(Arc::into_raw(blob));
            }
            Content::Spilled(spilled) => write_bytes(payload, &spilled.encode()),
            Content::Collection(collection) => {
                let (form, pointer) = collection.into_raw();
                write_collection(payload, form, pointer);
            }
        }
    }
}

/// # Safety
///
/// `payload` must be valid for writing the payload of a collection.
#[inline]
pub(super) unsafe fn write_collection(payload: NonNull<u8>, form: Form, pointer: NonNull<u8>) {
    // SAFETY: guaranteed by the caller.
    unsafe {
        payload.write(form as u8);
        payload.add(1).cast::<NonNull<u8>>().write_unaligned(pointer);
    }
}

/// # Safety
///
/// `payload` must be what [`write_collection`] wrote.
#[inline]
pub(super) unsafe fn read_collection(payload: NonNull<u8>) -> (Form, NonNull<u8>) {
    // SAFETY: guaranteed by the caller; the byte is the number of a form.
    unsafe {
        (payload.cast::<Form>().read(), payload.add(1).cast::<NonNull<u8>>().read_unaligned())
    }
}

/// # Safety
///
/// `payload` must be valid for writing as many bytes, and be no part of them.
#[inline]
pub(super) unsafe fn write_bytes(payload: NonNull<u8>, bytes: &[u8]) {
    // SAFETY: guaranteed by the caller.
    unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), payload.as_ptr(), bytes.len()) }
}

/// # Safety
///
/// `payload` must be valid for writing `int_width(value)` bytes.
#[inline]
pub(super) unsafe fn write_int(payload: NonNull<u8>, value: i64) {
    // SAFETY: guaranteed by the caller; truncation drops bytes that only repeat the sign.
    unsafe {
        match int_width(value) {
            1 => payload.cast::<[u8; 1]>().write((value as i8).to_le_bytes()),
            2 => payload.cast::<[u8; 2]>().write((value as i16).to_le_bytes()),
            4 => payload.cast::<[u8; 4]>().write((value as i32).to_le_bytes()),
            _ => payload.cast::<[u8; 8]>().write(value.to_le_bytes()),
        }
    }
}
