//! Size limits of compact encodings, which users can change at run time.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use tierce_collections::{ListLimits, PackedLimits, SetLimits, StreamLimits};

/// Limits of all types.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// For lists.
    pub list: ListLimits,
    /// For sets.
    pub set: SetLimits,
    /// For sorted sets.
    pub sorted_set: PackedLimits,
    /// For hashes.
    pub hash: PackedLimits,
    /// For streams.
    pub stream: StreamLimits,
}

impl Default for Limits {
    /// The limits of Redis.
    fn default() -> Self {
        let packed = PackedLimits { entries_max: 128, value_len_max: 64 };
        Self {
            list: ListLimits::of_directive(-2),
            set: SetLimits { integers_max: 512, packed },
            sorted_set: packed,
            hash: PackedLimits { entries_max: 512, ..packed },
            stream: StreamLimits { node_bytes_max: 4096, node_entries_max: 100 },
        }
    }
}

/// The limits as every thread reads them. Relaxed, since each limits future edits and orders
/// nothing.
#[derive(Debug, Default)]
pub struct LimitCells {
    list: [AtomicUsize; 2],
    set: [AtomicUsize; 3],
    sorted_set: [AtomicUsize; 2],
    hash: [AtomicUsize; 2],
    stream: [AtomicUsize; 2],
}

impl LimitCells {
    pub(crate) fn new(limits: &Limits) -> Self {
        let cells = Self::default();
        cells.set_all(limits);
        cells
    }

    pub(crate) fn set_all(&self, limits: &Limits) {
        let Limits { list, set, sorted_set, hash, stream } = *limits;
        store(&self.list, [list.entries_max, list.bytes_max]);
        store(&self.set, [set.integers_max, set.packed.entries_max, set.packed.value_len_max]);
        store(&self.sorted_set, [sorted_set.entries_max, sorted_set.value_len_max]);
        store(&self.hash, [hash.entries_max, hash.value_len_max]);
        store(&self.stream, [stream.node_bytes_max, stream.node_entries_max]);
    }

    pub(crate) fn all(&self) -> Limits {
        Limits {
            list: self.list(),
            set: self.set(),
            sorted_set: self.sorted_set(),
            hash: self.hash(),
            stream: self.stream(),
        }
    }

    pub(crate) fn list(&self) -> ListLimits {
        let [entries_max, bytes_max] = load(&self.list);
        ListLimits { entries_max, bytes_max }
    }

    pub(crate) fn set(&self) -> SetLimits {
        let [integers_max, entries_max, value_len_max] = load(&self.set);
        SetLimits { integers_max, packed: PackedLimits { entries_max, value_len_max } }
    }

    pub(crate) fn sorted_set(&self) -> PackedLimits {
        let [entries_max, value_len_max] = load(&self.sorted_set);
        PackedLimits { entries_max, value_len_max }
    }

    pub(crate) fn hash(&self) -> PackedLimits {
        let [entries_max, value_len_max] = load(&self.hash);
        PackedLimits { entries_max, value_len_max }
    }

    pub(crate) fn stream(&self) -> StreamLimits {
        let [node_bytes_max, node_entries_max] = load(&self.stream);
        StreamLimits { node_bytes_max, node_entries_max }
    }
}

fn load<const N: usize>(cells: &[AtomicUsize; N]) -> [usize; N] {
    std::array::from_fn(|index| cells[index].load(Relaxed))
}

fn store<const N: usize>(cells: &[AtomicUsize; N], values: [usize; N]) {
    for (cell, value) in cells.iter().zip(values) {
        cell.store(value, Relaxed);
    }
}
