//! Strings under construction.

use std::fmt;

use super::{List, Stack};

/// Bytes that are stored in the frame of the function: most strings that scripts build are shorter.
const INLINE: usize = 512;

/// A growing byte string, stored like a [`List`], that becomes a Lua string.
pub struct Buffer<'call>(List<'call, u8, INLINE>);

impl<'call> Buffer<'call> {
    /// Creates an empty buffer, with its slot on top of the stack.
    #[inline]
    pub fn new(stack: Stack<'call>) -> Self {
        Self(List::new(stack))
    }

    /// Returns the bytes added so far.
    pub fn bytes(&self) -> &[u8] {
        self.0.as_slice()
    }

    /// Adds bytes.
    #[inline]
    pub fn add(&mut self, bytes: &[u8]) {
        self.0.extend(bytes);
    }

    /// Adds one byte.
    #[inline]
    pub fn add_byte(&mut self, byte: u8) {
        self.0.push(byte);
    }

    /// Adds `count` times `byte`.
    pub fn add_repeated(&mut self, byte: u8, count: usize) {
        self.0.extend_repeated(byte, count);
    }

    /// Pushes the bytes as a string.
    pub fn push(&self) {
        self.0.stack().push_bytes(self.bytes());
    }

    /// Removes its bytes, and keeps its memory.
    pub fn clear(&mut self) {
        self.0.clear();
    }
}

impl fmt::Write for Buffer<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.add(text.as_bytes());
        Ok(())
    }
}
