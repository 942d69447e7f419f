//! Ordered passes over the disk, shared by several ranges.
//!
//! Segments hold records in write order, so a range in key order reads all over the disk, and each range over
//! the same keys would do that again. Instead, a *window* of adjacent keys is loaded at once: its records are
//! read in disk order, neighbours in one read, many reads at a time, each verified once. Their values go in
//! key order into *blocks*, from which every range in the region takes them. The next windows are loaded ahead.
//!
//! * [`cut`], [`copy`]: points between keys, and copying keys out of the index.
//! * [`block`]: adjacent records in memory.
//! * [`plan`]: the reads that fill a window, and their execution.
//! * [`window`]: a run of blocks, loading or loaded.
//! * [`pass`]: the existing windows, within a memory budget, and the threads that load.
//! * [`request`]: finds or creates the window that a range needs.
//! * [`cursor`]: the position of one range.
//!
//! Sharing does not change what a range sees. A window serves a range only if it is as good as one the range
//! would load itself: the same snapshot, or none and no write finished between copying the index for the window
//! and the start of the range. A record that could not be loaded (damaged, moved by compaction, too long) is left
//! out of the block; each range reads it itself and reports any error at the right key.
//!
//! Ranges wait for each other only when memory is short, and never for a stalled one: windows not touched for
//! [`pass::PATIENCE`] are dropped, and a range that finds its window gone starts another pass.

pub(crate) mod block;
pub(crate) mod copy;
pub(crate) mod cursor;
pub(crate) mod cut;
pub(crate) mod pass;
pub(crate) mod plan;
pub(crate) mod request;
pub(crate) mod window;
