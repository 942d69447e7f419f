//! What was removed and is too large to be freed by whoever removed it.
//!
//! The queue is bounded. When it is full, or when no reaper runs, garbage is freed at once by the
//! thread that brings it: slower, but memory stays bounded.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

use crate::entry::{Annex, Entry};
use crate::flush::Flushed;

/// Entries of this size and more are garbage for the reaper. Freeing less costs about as much as
/// waking it.
pub(crate) const GARBAGE_ENTRY_BYTES_MIN: usize = 64 * 1024;

/// At most this many pieces wait.
const PIECES_MAX: usize = 1024;

#[derive(Debug)]
pub(crate) enum Piece {
    /// One large value.
    Entry(Entry),
    /// The tables of flushed databases, with the bytes of their entries.
    Tables(Vec<Flushed>, usize),
    /// A large value that was overwritten.
    Annex(Annex),
}

impl Piece {
    fn bytes(&self) -> u64 {
        let bytes = match self {
            Piece::Entry(entry) => entry.allocated_bytes(),
            Piece::Tables(tables, entry_bytes) => {
                entry_bytes + tables.iter().map(|table| table.memory_bytes()).sum::<usize>()
            }
            Piece::Annex(annex) => annex.allocated_bytes(),
        };
        bytes as u64
    }
}

#[derive(Debug, Default)]
pub(crate) struct Garbage {
    queue: Mutex<Queue>,
    bytes: AtomicU64,
}

#[derive(Debug, Default)]
struct Queue {
    pieces: VecDeque<Piece>,
    /// Whether somebody empties the queue.
    is_collected: bool,
}

impl Garbage {
    /// Leaves a piece to the reaper, or frees it here.
    pub(crate) fn push(&self, piece: Piece) -> Fate {
        let bytes = piece.bytes();
        let mut queue = self.queue.lock();
        if !queue.is_collected || queue.pieces.len() == PIECES_MAX {
            drop(queue);
            drop(piece);
            return Fate::Freed;
        }
        queue.pieces.push_back(piece);
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        Fate::Queued
    }

    /// Frees one piece; `false` when there is none.
    pub(crate) fn free_one(&self) -> bool {
        let piece = self.queue.lock().pieces.pop_front();
        let Some(piece) = piece else { return false };
        let bytes = piece.bytes();
        drop(piece);
        self.bytes.fetch_sub(bytes, Ordering::Relaxed);
        true
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.queue.lock().pieces.is_empty()
    }

    /// How many pieces wait.
    pub(crate) fn pieces(&self) -> usize {
        self.queue.lock().pieces.len()
    }

    /// Bytes that wait.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// From now on pieces are kept for [`Garbage::free_one`].
    pub(crate) fn begin_collecting(&self) {
        self.queue.lock().is_collected = true;
    }

    /// From now on pieces are freed by whoever brings them. Returns after freeing those that wait.
    pub(crate) fn end_collecting(&self) {
        self.queue.lock().is_collected = false;
        while self.free_one() {}
    }
}

/// What became of a piece of garbage.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fate {
    /// It is freed.
    Freed,
    /// The reaper will free it.
    Queued,
}
