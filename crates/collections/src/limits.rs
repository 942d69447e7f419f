//! The size limits of the packed forms.

/// Limits for hashes and sorted sets, and for sets with members that are not integers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PackedLimits {
    /// Maximum number of fields or members.
    pub entries_max: usize,
    /// Maximum length of a name, value or member, in bytes.
    pub value_len_max: usize,
}

/// Limits for sets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SetLimits {
    /// Maximum number of members while all are integers.
    pub integers_max: usize,
    /// The limits of other small sets.
    pub packed: PackedLimits,
}

/// Limits for a node of a list, and for a list that is a single node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ListLimits {
    /// Maximum number of elements.
    pub entries_max: usize,
    /// Maximum number of bytes; a longer element has a node of its own.
    pub bytes_max: usize,
}

impl ListLimits {
    /// Converts the directive `list-max-listpack-size`: a number of elements, or one of the size classes -1 to -5 of
    /// 4, 8, 16, 32 and 64 KiB.
    ///
    /// ```
    /// use tierce_collections::ListLimits;
    /// assert_eq!(ListLimits::of_directive(-2).bytes_max, 8192);
    /// assert_eq!(ListLimits::of_directive(128).entries_max, 128);
    /// ```
    pub const fn of_directive(value: i64) -> Self {
        /// Maximum bytes of a node if only its elements are limited.
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

/// Limits for a node of a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StreamLimits {
    /// Maximum bytes of a node; 0 for no limit.
    pub node_bytes_max: usize,
    /// Maximum number of entries of a node; 0 for no limit.
    pub node_entries_max: usize,
}
