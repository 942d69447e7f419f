//! Ordered passes over the disk that several ranges share.
//!
//! Records lie in their segments in the order they were written, so a range in key order jumps
//! about on the disk, and many ranges over the same keys would each do it again. Here a
//! *stretch* of neighbouring keys is loaded at once: its records are read in the order of the
//! disk, neighbours in one read, many reads at a time, each verified once; the values are put in
//! key order into *blocks*, from which every range in that region takes them. The next stretches
//! are loaded ahead.
//!
//! * [`cut`], [`copy`]: places between keys, and copying keys out of the index.
//! * [`block`]: neighbouring records in memory.
//! * [`plan`]: which reads make a stretch, and doing them.
//! * [`stretch`]: a run of blocks, being loaded or there.
//! * [`pass`]: which stretches there are, within a budget of memory, and the threads that load.
//! * [`cursor`]: where one range is in all this.
//!
//! What sharing changes for a range: nothing. A stretch serves only ranges for which it is as good
//! as one they would load themselves: the same snapshot, or none and no write finished between the
//! copying of the index for the stretch and the beginning of the range. A record that could not be
//! loaded, be it damaged, moved by compaction or too long, is left out of the block and read by
//! each range itself, which so reports what it finds at the right key.
//!
//! Ranges wait for each other only when memory is short, and never for one that does not move:
//! what was not touched for [`pass::PATIENCE`] is let go of, and a range that finds its stretch
//! gone begins another pass.

pub(crate) mod block;
pub(crate) mod copy;
pub(crate) mod cursor;
pub(crate) mod cut;
pub(crate) mod pass;
pub(crate) mod plan;
pub(crate) mod stretch;
