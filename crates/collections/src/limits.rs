//! The size limits of the packed forms.

/// For hashes and sorted sets, and for sets with members that are no integers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PackedLimits {
    /// Fields or members, at most.
    pub entries_max: usize,
    /// Bytes of a name, value or member, at most.
    pub value_len_max: usize,
}

/// For sets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SetLimits {
    /// Members while all are integers, at most.
    pub integers_max: usize,
    /// The limits of other small sets.
    pub packed: PackedLimits,
}

/// For a node of a list, and for a list that is a single one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ListLimits {
    /// Elements, at most.
    pub entries_max: usize,
    /// Bytes, at most; an element that is longer has a node of its own.
    pub bytes_max: usize,
}

impl ListLimits {
    /// From the directive `list-max-listpack-size`: a number of elements, or one of the size classes
    /// -1 to -5 of 4, 8, 16, 32 and 64 KiB.
    ///
    /// ```
    /// use tierce_collections::ListLimits;
    /// assert_eq!(ListLimits::of_directive(-2).bytes_max, 8192);
    /// assert_eq!(ListLimits::of_directive(128).entries_max, 128);
    /// ```
    pub const fn of_directive(value: i64) -> Self {
        /// What bounds a node in bytes when only its elements are counted.
        const SAFE_BYTES: usize = 8192;
        match value {
            ..=-1 => {
                let class = if value < -5 { 5 } else { -value };
                Self { entries_max: usize::MAX, bytes_max: 2048 << class }
            }
            0 => Self { entries_max: 1, bytes_max: SAFE_BYTES },
            entries => Self { entries_max: entries as usize, bytes_max: SAFE_BYTES },
        }
    }
}

/// For a node of a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StreamLimits {
    /// Bytes of a node, at most; 0 for no such limit.
    pub node_bytes_max: usize,
    /// Entries of a node, at most; 0 for no such limit.
    pub node_entries_max: usize,
}
