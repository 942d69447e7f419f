//! Reserved space for deletes and compaction, so that a full disk can be freed up.
//!
//! The file `RESERVE` holds it; only its length matters. There are three levels, each part of the next:
//!
//! * **Lists**: a new manifest and some segment headers. Any write may borrow it.
//! * **Floor**: plus the output of compacting the longest segment. For compaction only.
//! * **Whole**: plus tombstones, and tails of shards that have none yet. Deletes borrow from above the floor, and
//!   compact once that is used up.
//!
//! Invariants:
//! * A put reserves segment space only while the reserve is whole, counting the space it is about to take.
//! * A delete does so only while the floor is available. Each tombstone hides a record at least as long, so compaction
//!   alone recovers what was borrowed.
//! * A thread that takes space from the reserve or returns it holds its lock, so space freed by one thread of this
//!   process is not taken by another.
//!
//! Puts pay one flag load; the rest happens only when a segment grows.

use super::store::Store;
use std::sync::atomic::Ordering;
use tierce_storage::log::write::Write;
use tierce_storage::manifest::{ENTRY_LEN, HEAD_LEN};
use tierce_storage::reserve_file::ReserveFile;
use tierce_storage::segment::file::Segment;
use tierce_storage::{Error, Result};

/// Part of all segments that is reserved for tombstones. The smaller it is, the more often segments are rewritten
/// while everything is deleted from a full disk. Half of it is for the floor, which rises when the longest segment
/// grows by tombstones.
const TOMBSTONES_PART: u64 = 32;
/// Blocks that a shard needs to begin and to continue a segment.
const BLOCKS_PER_SHARD: u64 = 2;
/// Segments that may be added before the reserve is checked again, in addition to those of the shards.
const SEGMENTS_TO_COME: u64 = 4;

/// Required size of the reserve.
#[derive(Clone, Copy, Debug)]
struct Need {
    /// One replacement of the manifest.
    list: u64,
    floor: u64,
    whole: u64,
}

/// Returns the space that the reserve should hold when `grown` has that length.
fn reserve_need(store: &Store, grown: Option<(&Segment, u64)>) -> Need {
    let (mut longest, mut total, count) = {
        let segments = store.files.segments.read();
        let spaces = || segments.values().map(|segment| segment.space());
        (spaces().max().unwrap_or(0), spaces().sum::<u64>(), segments.len() as u64)
    };
    if let Some((segment, space)) = grown {
        longest = longest.max(space);
        total += space.saturating_sub(segment.space());
    }
    let (geometry, page) = (store.files.geometry(), store.files.page_len());
    let shards = store.files.appenders.len() as u64;
    let entries = 2 * (count + shards + SEGMENTS_TO_COME);
    let list = (HEAD_LEN as u64 + entries * ENTRY_LEN as u64).next_multiple_of(page);
    let lists = list + (2 * shards + SEGMENTS_TO_COME) * page;
    let floor = lists + longest.next_multiple_of(page);
    let tails = store.files.tails_missing() * geometry.file_len() as u64;
    let blocks = (shards + 1) * BLOCKS_PER_SHARD * geometry.block_len;
    let tombstones = (total / TOMBSTONES_PART).next_multiple_of(page);
    Need { list, floor, whole: floor + tails.next_multiple_of(page) + blocks + tombstones }
}

/// Restores the reserve to its required size. Returns true if it is whole, and publishes that in `is_short`.
pub(super) fn restore_reserve(store: &Store) -> Result<bool> {
    let mut held = store.reserve.held.lock();
    let whole = reserve_need(store, None).whole;
    if held.bytes() > whole {
        held.shrink(whole).map_err(|e| store.files.latch(e))?;
    }
    let is_whole = held.hold_what_there_is(whole).map_err(|e| store.files.latch(e))?;
    // Under its lock, so that a concurrent delete that borrows is not missed.
    store.reserve.is_short.store(!is_whole, Ordering::Relaxed);
    Ok(is_whole)
}

/// Refuses puts while the reserve is not whole.
pub(super) fn check_reserve(store: &Store, write: &Write) -> Result<()> {
    if !store.reserve.is_short() || write.only_deletes() || restore_reserve(store)? {
        return Ok(());
    }
    let needed = reserve_need(store, None).whole;
    Err(Error::NoReserve { path: store.reserve.path.clone(), needed })
}

/// Reserves space in a segment that a shard writes.
pub(super) fn set_segment_space_aside(
    store: &Store,
    segment: &Segment,
    needed: u64,
    usual: u64,
    write: &Write,
) -> Result<()> {
    let wanted = segment.space_wanted(needed, usual);
    let mut held = store.reserve.held.lock();
    let result = if write.only_deletes() {
        set_aside_for_deletes(store, &mut held, segment, needed)
    } else {
        set_aside_for_puts(store, &mut held, segment, wanted).or_else(|error| {
            if !error.is_no_space() || wanted == needed {
                return Err(error);
            }
            // Less may be free by now, or for this user.
            set_aside_for_puts(store, &mut held, segment, needed)
        })
    };
    if result.is_err() {
        store.reserve.set_short();
    }
    result
}

fn set_aside_for_puts(
    store: &Store,
    held: &mut ReserveFile,
    segment: &Segment,
    len: u64,
) -> Result<()> {
    let whole = reserve_need(store, Some((segment, len))).whole;
    if !held.hold(whole)? {
        return Err(Error::NoSpace { path: segment.path.clone() });
    }
    segment.reserve(len)
}

fn set_aside_for_deletes(
    store: &Store,
    held: &mut ReserveFile,
    segment: &Segment,
    len: u64,
) -> Result<()> {
    let floor = reserve_need(store, Some((segment, len))).floor;
    if held.bytes() < floor && !held.hold_what_there_is(floor)? {
        return Err(Error::NoSpace { path: segment.path.clone() });
    }
    let grows = len.saturating_sub(segment.space());
    if held.bytes() < floor + grows {
        return segment.reserve(len);
    }
    let before = held.bytes();
    let result = held.lend(grows, || segment.reserve(len));
    if held.bytes() < before {
        store.reserve.set_short();
    }
    result
}

/// Returns the space that compaction can reserve for its output.
pub(super) fn room_for_output(store: &Store) -> u64 {
    let free = store.files.home.disk.space(&store.files.home.dir).map_or(0, |space| space.free);
    let held = store.reserve.bytes();
    held.saturating_sub(reserve_need(store, None).list).saturating_add(free)
}

/// Reserves space for the output of compaction.
pub(super) fn set_output_aside(store: &Store, segment: &Segment, len: u64) -> Result<()> {
    let mut held = store.reserve.held.lock();
    held.lend(len, || segment.reserve(len))
}
