//! The buddy system of one arena: which blocks are free. Arithmetic only; it touches no memory.
//!
//! The blocks of all sizes form a complete binary tree, numbered like a heap: 1 is the whole arena,
//! the halves of `n` are `2n` and `2n + 1`, so the buddy of `n` is `n ^ 1`. One bit a node tells
//! whether that block is free.
//!
//! Invariants:
//! - The bit of a node is set exactly if the block is free as a whole and its buddy is not.
//! - A word of `free` is zero exactly if its bit in `nonzero_words` is.
//! - Of all free blocks of a size the one with the lowest address is taken.

/// Smallest block. A session with an incomplete request costs at least this much.
pub(crate) const BLOCK_BYTES_MIN: usize = 256;

/// Largest block, and size of an arena. What needs more comes from the heap, where such sizes are
/// mapped from the operating system directly.
pub(crate) const BLOCK_BYTES_MAX: usize = 1024 * 1024;

/// Depth of the smallest blocks in the tree; the whole arena has depth 0.
const DEPTH_MAX: u32 = (BLOCK_BYTES_MAX / BLOCK_BYTES_MIN).trailing_zeros();

/// Words of one bit for each node.
const WORDS: usize = 2 * (BLOCK_BYTES_MAX / BLOCK_BYTES_MIN) / 64;

const _: () = assert!(WORDS == u128::BITS as usize, "one summary word covers all nodes");

/// A block of an arena, by its number in the tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Node(u16);

impl Node {
    fn depth(self) -> u32 {
        self.0.ilog2()
    }

    pub(crate) fn len(self) -> usize {
        BLOCK_BYTES_MAX >> self.depth()
    }

    /// Distance from the beginning of the arena.
    pub(crate) fn offset(self) -> usize {
        (usize::from(self.0) - (1 << self.depth())) * self.len()
    }

    fn buddy(self) -> Node {
        Node(self.0 ^ 1)
    }

    fn parent(self) -> Node {
        Node(self.0 >> 1)
    }

    fn left_half(self) -> Node {
        Node(self.0 << 1)
    }
}

/// Which blocks of an arena are free.
#[derive(Debug)]
pub(crate) struct Buddies {
    free: Box<[u64; WORDS]>,
    nonzero_words: u128,
}

impl Buddies {
    /// An arena that is free as a whole.
    pub(crate) fn new() -> Buddies {
        let mut buddies = Buddies { free: Box::new([0; WORDS]), nonzero_words: 0 };
        buddies.set(Node(1));
        buddies
    }

    /// Takes a block of the smallest size that holds `len` bytes.
    pub(crate) fn take(&mut self, len: usize) -> Option<Node> {
        let depth = depth_for(len)?;
        let found = (0..=depth).rev().find_map(|depth| self.lowest_free(depth))?;
        self.clear(found);
        let mut node = found;
        while node.depth() < depth {
            node = node.left_half();
            self.set(node.buddy());
        }
        Some(node)
    }

    /// Takes a block back, and unites it with its buddy as long as that is free too.
    pub(crate) fn give(&mut self, node: Node) {
        assert!(!self.is_free(node), "block given back twice");
        let mut node = node;
        while node != Node(1) && self.is_free(node.buddy()) {
            self.clear(node.buddy());
            node = node.parent();
        }
        self.set(node);
    }

    /// Whether no block is taken.
    pub(crate) fn is_empty(&self) -> bool {
        self.is_free(Node(1))
    }

    /// Size of the largest free block.
    pub(crate) fn largest_free(&self) -> usize {
        // Larger blocks have lower numbers.
        if self.nonzero_words == 0 {
            return 0;
        }
        let word = self.nonzero_words.trailing_zeros();
        let bit = self.free[word as usize].trailing_zeros();
        Node((word * 64 + bit) as u16).len()
    }

    fn lowest_free(&self, depth: u32) -> Option<Node> {
        let (first, count) = (1u32 << depth, 1u32 << depth);
        if count < 64 {
            let bits = self.free[0] & (((1u64 << count) - 1) << first);
            return (bits != 0).then(|| Node(bits.trailing_zeros() as u16));
        }
        let (first_word, words) = (first / 64, count / 64);
        let nonzero = self.nonzero_words >> first_word & ((1u128 << words) - 1);
        if nonzero == 0 {
            return None;
        }
        let word = first_word + nonzero.trailing_zeros();
        let bit = self.free[word as usize].trailing_zeros();
        Some(Node((word * 64 + bit) as u16))
    }

    fn is_free(&self, node: Node) -> bool {
        self.free[usize::from(node.0) / 64] >> (node.0 % 64) & 1 == 1
    }

    fn set(&mut self, node: Node) {
        let word = usize::from(node.0) / 64;
        self.free[word] |= 1 << (node.0 % 64);
        self.nonzero_words |= 1 << word;
    }

    fn clear(&mut self, node: Node) {
        let word = usize::from(node.0) / 64;
        self.free[word] &= !(1 << (node.0 % 64));
        if self.free[word] == 0 {
            self.nonzero_words &= !(1 << word);
        }
    }
}

/// Depth of the smallest block that holds `len` bytes.
fn depth_for(len: usize) -> Option<u32> {
    if len > BLOCK_BYTES_MAX {
        return None;
    }
    let size = len.max(BLOCK_BYTES_MIN).next_power_of_two();
    Some(DEPTH_MAX - (size / BLOCK_BYTES_MIN).trailing_zeros())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_rounded_up_to_a_power_of_two() {
        for (len, block) in [
            (0, 256),
            (1, 256),
            (256, 256),
            (257, 512),
            (65_536, 65_536),
            (65_537, 131_072),
            (BLOCK_BYTES_MAX, BLOCK_BYTES_MAX),
        ] {
            let node = Buddies::new().take(len).expect("an empty arena");
            assert_eq!((node.len(), node.offset()), (block, 0), "for {len} bytes");
        }
        assert_eq!(Buddies::new().take(BLOCK_BYTES_MAX + 1), None);
    }

    #[test]
    fn an_arena_holds_exactly_its_size_in_smallest_blocks() {
        let mut buddies = Buddies::new();
        let count = BLOCK_BYTES_MAX / BLOCK_BYTES_MIN;
        let nodes: Vec<Node> = (0..count).map(|_| buddies.take(1).expect("room")).collect();
        let offsets = nodes.iter().map(|node| node.offset());
        assert!(offsets.eq((0..count).map(|index| index * BLOCK_BYTES_MIN)), "lowest first");
        assert_eq!((buddies.take(1), buddies.largest_free()), (None, 0));
        // Every second block leaves nothing to unite.
        nodes.iter().step_by(2).for_each(|&node| buddies.give(node));
        assert_eq!(buddies.largest_free(), BLOCK_BYTES_MIN);
        assert_eq!(buddies.take(BLOCK_BYTES_MIN + 1), None);
        nodes.iter().skip(1).step_by(2).for_each(|&node| buddies.give(node));
        assert!(buddies.is_empty());
        assert_eq!(buddies.largest_free(), BLOCK_BYTES_MAX);
    }

    #[test]
    #[should_panic(expected = "given back twice")]
    fn giving_back_twice_is_noticed() {
        let mut buddies = Buddies::new();
        let (first, _second) = (buddies.take(300).unwrap(), buddies.take(300).unwrap());
        buddies.give(first);
        buddies.give(first);
    }
}
