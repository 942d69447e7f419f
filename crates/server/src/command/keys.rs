//! Where the keys of a command stand among its arguments.

/// One run of key arguments: from `first`, every `step`, to `last` (negative: from the end).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeySpec {
    /// Index of the first key; the command's name has index 0.
    pub first: i16,
    /// Index of the last key; -1 is the last argument.
    pub last: i16,
    /// Distance between keys.
    pub step: i16,
    /// What the command does with these keys.
    pub flags: KeyFlags,
}

/// What a command does with a key, in the words of `COMMAND INFO`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyFlags(pub &'static [&'static str]);

impl KeyFlags {
    /// Reads the value and returns it, or data made of it.
    pub const READ: Self = Self(&["RO", "access"]);
    /// Looks at the key but returns nothing of the value's content.
    pub const LOOK: Self = Self(&["RO"]);
    /// Changes what is there.
    pub const UPDATE: Self = Self(&["RW", "update"]);
    /// Changes what is there and returns content.
    pub const READ_UPDATE: Self = Self(&["RW", "access", "update"]);
    /// As [`Self::READ_UPDATE`], the exact access depending on options.
    pub const VARIABLE: Self = Self(&["RW", "access", "update", "variable_flags"]);
    /// Overwrites whatever is there.
    pub const OVERWRITE: Self = Self(&["OW", "update"]);
    /// Creates a key that was absent.
    pub const INSERT: Self = Self(&["OW", "insert"]);
    /// Removes the key without returning content.
    pub const REMOVE: Self = Self(&["RM", "delete"]);
    /// Returns content and removes the key.
    pub const READ_REMOVE: Self = Self(&["RW", "access", "delete"]);
}

impl KeySpec {
    /// A single key at `index`.
    #[must_use]
    pub const fn at(index: i16, flags: KeyFlags) -> Self {
        Self { first: index, last: index, step: 1, flags }
    }

    /// Keys from argument 1 to the last one, every `step` arguments.
    #[must_use]
    pub const fn all(step: i16, flags: KeyFlags) -> Self {
        Self { first: 1, last: -1, step, flags }
    }

    /// The indexes of the keys in a call with `argc` arguments (its name included).
    pub fn indexes(self, argc: usize) -> impl Iterator<Item = usize> {
        let last =
            if self.last < 0 { argc as isize + self.last as isize } else { self.last.into() };
        let end = (last + 1).clamp(0, argc as isize) as usize;
        (self.first as usize..end).step_by(self.step as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn indexes_follow_first_last_and_step() {
        let all = |spec: KeySpec, argc| spec.indexes(argc).collect::<Vec<_>>();
        assert_eq!(all(KeySpec::at(1, KeyFlags::READ), 2), [1]);
        assert_eq!(all(KeySpec::at(2, KeyFlags::READ), 2), [] as [usize; 0]);
        assert_eq!(all(KeySpec::all(1, KeyFlags::READ), 4), [1, 2, 3]);
        assert_eq!(all(KeySpec::all(2, KeyFlags::OVERWRITE), 5), [1, 3]);
    }
}
