//! A worker's pool of buffers: arenas divided into blocks by the buddy system.
//!
//! - Blocks are powers of two from [`BLOCK_BYTES_MIN`] to [`BLOCK_BYTES_MAX`]. They never overlap,
//!   and give themselves back when dropped.
//! - The pool grows by an arena when no block is large enough, and returns empty arenas to the
//!   operating system, except for a few that keep a swaying load from mapping and unmapping.
//! - Blocks are taken from the first arena that has one, so that the last ones become empty.
//! - Belongs to one thread: there are no locks, and blocks cannot be sent elsewhere.
//! - The contents of a new block are unspecified, usually another connection's old bytes: whoever
//!   takes it keeps track of what was written. It is always initialized memory.

use std::cell::RefCell;
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::rc::Rc;

use super::arena::Arena;
pub(crate) use super::buddy::{BLOCK_BYTES_MAX, BLOCK_BYTES_MIN};
use super::buddy::{Buddies, Node};

/// One of this many arenas may be empty and kept, and one in any case.
const ARENAS_PER_EMPTY_ONE: usize = 8;

#[derive(Debug)]
struct Seat {
    arena: Arena,
    buddies: Buddies,
}

#[derive(Debug, Default)]
struct State {
    /// A seat without an arena is free for the next one.
    seats: Vec<Option<Seat>>,
    /// The largest free block of each seat; apart from the seats, so that a search reads little.
    largest_free: Vec<usize>,
    arenas: usize,
    empty_arenas: usize,
    used_bytes: usize,
}

/// A pool of blocks; a clone is the same pool.
#[derive(Clone, Debug, Default)]
pub(crate) struct Pool {
    state: Rc<RefCell<State>>,
}

/// Memory of a pool.
pub(crate) struct Block {
    /// The arena's memory from `node.offset()`, `node.len()` bytes.
    bytes: NonNull<[u8]>,
    pool: Pool,
    seat: u32,
    node: Node,
}

/// What a pool has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct PoolStats {
    /// Memory held, in use or not.
    pub(crate) arena_bytes: usize,
    /// Memory in blocks that are taken.
    pub(crate) used_bytes: usize,
}

impl Pool {
    /// Takes a block of at least `len` bytes.
    ///
    /// # Panics
    ///
    /// If `len` is above [`BLOCK_BYTES_MAX`], or the system is out of memory.
    pub(crate) fn take(&self, len: usize) -> Block {
        assert!(len <= BLOCK_BYTES_MAX, "no block has {len} bytes");
        let (seat, node, bytes) = self.state.borrow_mut().take(len);
        Block { bytes, pool: self.clone(), seat, node }
    }

    pub(crate) fn stats(&self) -> PoolStats {
        let state = self.state.borrow();
        let arena_bytes = state.arenas * BLOCK_BYTES_MAX;
        PoolStats { arena_bytes, used_bytes: state.used_bytes }
    }
}

impl State {
    fn take(&mut self, len: usize) -> (u32, Node, NonNull<[u8]>) {
        let fits = |&largest: &usize| largest >= len.max(1);
        let index = match self.largest_free.iter().position(fits) {
            Some(index) => index,
            None => self.add_arena(),
        };
        let seat = self.seats[index].as_mut().expect("only a seat with an arena has free blocks");
        if seat.buddies.is_empty() {
            self.empty_arenas -= 1;
        }
        let node = seat.buddies.take(len).expect("the seat has a block that is large enough");
        self.largest_free[index] = seat.buddies.largest_free();
        self.used_bytes += node.len();
        (index as u32, node, seat.arena.bytes(node.offset(), node.len()))
    }

    fn add_arena(&mut self) -> usize {
        let seat = Seat { arena: Arena::map(), buddies: Buddies::new() };
        self.arenas += 1;
        self.empty_arenas += 1;
        match self.seats.iter().position(Option::is_none) {
            Some(index) => {
                self.seats[index] = Some(seat);
                self.largest_free[index] = BLOCK_BYTES_MAX;
                index
            }
            None => {
                self.seats.push(Some(seat));
                self.largest_free.push(BLOCK_BYTES_MAX);
                self.seats.len() - 1
            }
        }
    }

    fn give(&mut self, index: u32, node: Node) {
        let index = index as usize;
        let seat = self.seats[index].as_mut().expect("an arena stays while blocks are taken");
        seat.buddies.give(node);
        self.used_bytes -= node.len();
        self.largest_free[index] = seat.buddies.largest_free();
        if !seat.buddies.is_empty() {
            return;
        }
        let kept_max = 1 + self.arenas / ARENAS_PER_EMPTY_ONE;
        if self.empty_arenas < kept_max {
            self.empty_arenas += 1;
        } else {
            self.seats[index] = None;
            self.largest_free[index] = 0;
            self.arenas -= 1;
        }
    }
}

impl Deref for Block {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: the memory is initialized (see `arena`), stays mapped while this block is taken
        // and its pool, which it keeps alive, exists, and belongs to this block alone, since the
        // buddy system never gives overlapping blocks. The borrow of `self` keeps writers out.
        unsafe { self.bytes.as_ref() }
    }
}

impl DerefMut for Block {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `deref`; the exclusive borrow of `self` keeps everybody else out.
        unsafe { self.bytes.as_mut() }
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        self.pool.state.borrow_mut().give(self.seat, self.node);
    }
}

impl fmt::Debug for Block {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Block").field("len", &self.len()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[derive(Clone, Debug)]
    enum Step {
        Take(usize),
        /// Gives back the block at this place among those taken, modulo their number.
        Give(usize),
    }

    fn step() -> impl Strategy<Value = Step> {
        // Sizes of all orders are equally likely, not all bytes.
        let len = (0..=20u32, any::<u32>())
            .prop_map(|(order, random)| (1 << order) - (random as usize % (1 << order)) / 2);
        prop_oneof![5 => len.prop_map(Step::Take), 4 => any::<usize>().prop_map(Step::Give)]
    }

    /// A block and the byte that it is marked with at both ends.
    struct Taken {
        block: Block,
        mark: u8,
    }

    impl Taken {
        fn new(mut block: Block, mark: u8) -> Taken {
            block[0] = mark;
            *block.last_mut().expect("no block is empty") = mark;
            Taken { block, mark }
        }

        fn check(&self) {
            assert_eq!((self.block[0], self.block.last()), (self.mark, Some(&self.mark)));
        }

        fn range(&self) -> std::ops::Range<usize> {
            let start = self.block.as_ptr() as usize;
            start..start + self.block.len()
        }
    }

    fn check_apart(taken: &[Taken]) {
        let mut ranges: Vec<_> = taken.iter().map(Taken::range).collect();
        ranges.sort_by_key(|range| range.start);
        assert!(ranges.windows(2).all(|pair| pair[0].end <= pair[1].start), "blocks overlap");
    }

    proptest! {
        #![proptest_config(ProptestConfig {
            cases: if cfg!(miri) { 6 } else { 200 },
            failure_persistence: None,
            ..ProptestConfig::default()
        })]
        #[test]
        fn blocks_are_apart_and_all_memory_comes_back(
            steps in prop::collection::vec(step(), 1..if cfg!(miri) { 40 } else { 300 }),
        ) {
            let pool = Pool::default();
            let mut taken: Vec<Taken> = Vec::new();
            for (number, step) in steps.into_iter().enumerate() {
                match step {
                    Step::Take(len) => {
                        let block = pool.take(len);
                        prop_assert!(block.len() >= len);
                        prop_assert!(block.len() == BLOCK_BYTES_MIN || block.len() < 2 * len);
                        taken.push(Taken::new(block, number as u8));
                    }
                    Step::Give(_) if taken.is_empty() => {}
                    Step::Give(place) => taken.swap_remove(place % taken.len()).check(),
                }
                check_apart(&taken);
                let used: usize = taken.iter().map(|taken| taken.block.len()).sum();
                let stats = pool.stats();
                prop_assert_eq!(stats.used_bytes, used);
                prop_assert!(stats.arena_bytes >= used);
            }
            taken.iter().for_each(Taken::check);
            drop(taken);
            let left = pool.stats();
            prop_assert_eq!(left.used_bytes, 0);
            // One whole arena can be had again without mapping: everything has merged.
            let whole = (left.arena_bytes > 0).then(|| pool.take(BLOCK_BYTES_MAX));
            prop_assert_eq!(pool.stats().arena_bytes, left.arena_bytes);
            drop(whole);
        }
    }

    #[test]
    fn empty_arenas_are_returned_except_for_a_few() {
        let pool = Pool::default();
        let arena_bytes = |count: usize| count * BLOCK_BYTES_MAX;
        let mut blocks: Vec<Block> = (0..32).map(|_| pool.take(BLOCK_BYTES_MAX)).collect();
        assert_eq!(pool.stats().arena_bytes, arena_bytes(32));
        blocks.truncate(31);
        assert_eq!(pool.stats().arena_bytes, arena_bytes(32), "one empty arena is kept");
        blocks.clear();
        assert_eq!(pool.stats(), PoolStats { arena_bytes: arena_bytes(5), used_bytes: 0 });
        // The kept arenas are used before new ones are mapped.
        blocks.extend((0..5).map(|_| pool.take(BLOCK_BYTES_MAX)));
        assert_eq!(pool.stats().arena_bytes, arena_bytes(5));
    }

    #[test]
    fn blocks_outlive_the_pool_they_came_from() {
        let pool = Pool::default();
        let mut block = pool.take(1000);
        drop(pool);
        block.fill(7);
        assert!(block.iter().all(|&byte| byte == 7));
    }
}
