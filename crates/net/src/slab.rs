//! Numbered slots for values that come and go; a number is reused after its value is gone.
//!
//! Slots live in chunks that never move, so growing copies nothing and wastes at most one chunk.

/// Number of slots of one chunk.
const CHUNK_SLOTS: usize = 64;

/// Values by slot number.
#[derive(Debug)]
pub(crate) struct Slab<T> {
    chunks: Vec<Box<[Option<T>; CHUNK_SLOTS]>>,
    free: Vec<u32>,
    len: usize,
}

impl<T> Slab<T> {
    pub(crate) fn new() -> Slab<T> {
        Slab { chunks: Vec::new(), free: Vec::new(), len: 0 }
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Returns the slot that the next [`insert`](Slab::insert) will use.
    pub(crate) fn next_slot(&self) -> u32 {
        self.free.last().copied().unwrap_or(self.slots() as u32)
    }

    pub(crate) fn insert(&mut self, value: T) -> u32 {
        if self.free.is_empty() {
            self.add_chunk();
        }
        let slot = self.free.pop().expect("a chunk was added if none was free");
        self.chunks[slot as usize / CHUNK_SLOTS][slot as usize % CHUNK_SLOTS] = Some(value);
        self.len += 1;
        slot
    }

    pub(crate) fn remove(&mut self, slot: u32) -> Option<T> {
        let chunk = self.chunks.get_mut(slot as usize / CHUNK_SLOTS)?;
        let value = chunk[slot as usize % CHUNK_SLOTS].take()?;
        self.free.push(slot);
        self.len -= 1;
        Some(value)
    }

    #[inline]
    pub(crate) fn get(&self, slot: u32) -> Option<&T> {
        self.chunks.get(slot as usize / CHUNK_SLOTS)?[slot as usize % CHUNK_SLOTS].as_ref()
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, slot: u32) -> Option<&mut T> {
        self.chunks.get_mut(slot as usize / CHUNK_SLOTS)?[slot as usize % CHUNK_SLOTS].as_mut()
    }

    /// Returns the number of slots, used or not; all slot numbers are below.
    pub(crate) fn slots(&self) -> usize {
        self.chunks.len() * CHUNK_SLOTS
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        self.chunks.iter().flat_map(|chunk| chunk.iter()).flatten()
    }

    fn add_chunk(&mut self) {
        let first = self.slots() as u32;
        self.chunks.push(Box::new([const { None }; CHUNK_SLOTS]));
        // Reversed, so that the lowest slot is used first.
        self.free.extend((first..first + CHUNK_SLOTS as u32).rev());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_reused_and_known_beforehand() {
        let mut slab = Slab::new();
        for expected in 0..200u32 {
            assert_eq!(slab.next_slot(), expected);
            assert_eq!(slab.insert(expected * 10), expected);
        }
        assert_eq!(slab.remove(17), Some(170));
        assert_eq!(slab.remove(17), None);
        assert_eq!(slab.get(17), None);
        assert_eq!(slab.next_slot(), 17);
        assert_eq!(slab.insert(1), 17);
        assert_eq!(slab.len(), 200);
        assert_eq!(slab.iter().count(), 200);
        assert_eq!(slab.get_mut(100_000), None);
    }
}
