//! stand-in
use std::ops::{Deref, DerefMut};
pub(crate) const BLOCK_BYTES_MIN: usize = 256;
pub(crate) const BLOCK_BYTES_MAX: usize = 1024 * 1024;
#[derive(Debug, Default)]
pub(crate) struct Pool;
#[derive(Debug)]
pub(crate) struct Block(Box<[u8]>);
impl Pool {
    pub(crate) fn take(&self, len: usize) -> Block {
        Block(vec![0; len.max(BLOCK_BYTES_MIN).next_power_of_two()].into_boxed_slice())
    }
}
impl Deref for Block {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.0
    }
}
impl DerefMut for Block {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.0
    }
}
