//! Memory of the standard library's ordered maps.

use crate::size_class::size_class;

/// Maximum entries of a node. Unchanged in the standard library for years.
const NODE_ENTRIES_MAX: usize = 11;
/// Entries of a node after insertions in ascending order, which split a full node into one with six
/// entries and one with the rest; one more moves up.
const NODE_ENTRIES: usize = 7;
/// Bytes of a node in addition to keys and values: a pointer to its parent, its index there and its length.
const NODE_HEAD_BYTES: usize = 16;

/// Returns the bytes that a `BTreeMap<K, V>` of `len` entries has allocated. It is an estimate, since the map does not
/// tell: exact for one node, and for maps that were filled in ascending order.
pub(super) const fn tree_bytes<K, V>(len: usize) -> usize {
    let leaf_bytes = NODE_ENTRIES_MAX * (size_of::<K>() + size_of::<V>()) + NODE_HEAD_BYTES;
    if len == 0 {
        return 0;
    }
    if len <= NODE_ENTRIES_MAX {
        return size_class(leaf_bytes);
    }
    let leaves = len.div_ceil(NODE_ENTRIES);
    // A node above the leaves has one child more than entries.
    let above = leaves.div_ceil(NODE_ENTRIES);
    let above_bytes = leaf_bytes + (NODE_ENTRIES_MAX + 1) * size_of::<usize>();
    leaves * size_class(leaf_bytes) + above * size_class(above_bytes)
}
