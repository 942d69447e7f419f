//! Patterns of keys, with the permissions that they give for matching keys.

use tierce_wire::glob::{self, Case};

use crate::command::KeyFlags;

/// Permission to read a key's value, to write the key, both or neither.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Permission(u8);

impl Permission {
    /// Only to learn that the key exists, or its size.
    pub const NONE: Self = Self(0);
    /// To read its value.
    pub const READ: Self = Self(1);
    /// To change, remove or create it.
    pub const WRITE: Self = Self(2);
    /// Both.
    pub const ALL: Self = Self(3);

    /// Returns the permission that a command needs for such a use of a key.
    #[must_use]
    pub fn for_use(flags: KeyFlags) -> Self {
        flags.0.iter().fold(Self::NONE, |needed, flag| match *flag {
            "access" => needed.with(Self::READ),
            "insert" | "update" | "delete" => needed.with(Self::WRITE),
            _ => needed,
        })
    }

    /// Returns the union of two permissions.
    #[must_use]
    pub const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Returns true if it includes the other one.
    #[must_use]
    #[inline]
    pub const fn includes(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// Encodes it as a small number, 3 at most.
    pub(super) const fn code(self) -> u8 {
        self.0
    }

    /// Decodes a result of [`code`](Self::code).
    pub(super) const fn from_code(code: u8) -> Self {
        Self(code & Self::ALL.0)
    }

    /// The prefix of a pattern with this permission.
    fn prefix(self) -> &'static str {
        match self {
            Self::READ => "%R~",
            Self::WRITE => "%W~",
            _ => "~",
        }
    }
}

/// A pattern of keys.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct KeyPattern {
    /// The pattern as it was given.
    pub text: Vec<u8>,
    /// Permission for matching keys.
    pub permission: Permission,
    /// Precomputed form that is matched without parsing the pattern.
    shape: Shape,
}

/// The usual shapes of patterns, which have a fast match.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Shape {
    /// `*`: any key.
    Any,
    /// A text followed by one star. The first eight bytes of a key have to equal `head` under `mask`; the rest of the
    /// text is compared after them.
    Prefix { head: u64, mask: u64 },
    /// Anything else.
    Glob,
}

/// Number of bytes that are compared as one number.
pub(super) const HEAD_LEN: usize = size_of::<u64>();

impl Shape {
    fn of(text: &[u8]) -> Self {
        let Some(prefix) = text.strip_suffix(b"*") else { return Self::Glob };
        if prefix.is_empty() {
            return Self::Any;
        }
        if prefix.iter().any(|byte| b"*?[\\".contains(byte)) {
            return Self::Glob;
        }
        let (mut head, mut mask) = ([0; HEAD_LEN], [0; HEAD_LEN]);
        for (at, byte) in prefix.iter().take(HEAD_LEN).enumerate() {
            (head[at], mask[at]) = (*byte, u8::MAX);
        }
        Self::Prefix { head: u64::from_le_bytes(head), mask: u64::from_le_bytes(mask) }
    }
}

impl KeyPattern {
    /// Creates a pattern with this permission.
    #[must_use]
    pub fn new(text: &[u8], permission: Permission) -> Self {
        Self { text: text.to_vec(), permission, shape: Shape::of(text) }
    }

    /// Returns true if a key matches.
    #[must_use]
    #[inline]
    pub fn matches(&self, key: &[u8]) -> bool {
        if let (Shape::Prefix { head, mask }, Some(first)) = (self.shape, key.first_chunk()) {
            let is_alike = (u64::from_le_bytes(*first) ^ head) & mask == 0;
            return is_alike && (self.text.len() <= HEAD_LEN + 1 || self.matches_slowly(key));
        }
        self.matches_slowly(key)
    }

    fn matches_slowly(&self, key: &[u8]) -> bool {
        match self.shape {
            Shape::Any => true,
            Shape::Prefix { .. } => key.starts_with(&self.text[..self.text.len() - 1]),
            Shape::Glob => glob::matches(&self.text, key, Case::Sensitive),
        }
    }

    /// Returns the first bytes and their mask, if they alone decide for each key of [`HEAD_LEN`] bytes or more.
    pub(super) fn head(&self) -> Option<(u64, u64)> {
        match self.shape {
            Shape::Prefix { head, mask } if self.text.len() <= HEAD_LEN + 1 => Some((head, mask)),
            _ => None,
        }
    }

    /// Returns true if every key matches.
    #[must_use]
    pub fn is_any(&self) -> bool {
        self.shape == Shape::Any
    }

    /// Appends the rule that adds this pattern.
    pub(super) fn describe_into(&self, out: &mut Vec<u8>) {
        out.extend(self.permission.prefix().as_bytes());
        out.extend(&self.text);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use tierce_harness::effort;

    #[test]
    fn uses_need_permissions() {
        for (flags, needed) in [
            (KeyFlags::READ, Permission::READ),
            (KeyFlags::LOOK, Permission::NONE),
            (KeyFlags::UPDATE, Permission::WRITE),
            (KeyFlags::READ_UPDATE, Permission::ALL),
            (KeyFlags::OVERWRITE, Permission::WRITE),
            (KeyFlags::INSERT, Permission::WRITE),
            (KeyFlags::SHRINK, Permission::WRITE),
            (KeyFlags::REMOVE, Permission::WRITE),
            (KeyFlags::READ_REMOVE, Permission::ALL),
        ] {
            assert_eq!(Permission::for_use(flags), needed, "{flags:?}");
        }
        assert!(Permission::ALL.includes(Permission::READ));
        assert!(!Permission::READ.includes(Permission::WRITE));
        assert!(Permission::NONE.includes(Permission::NONE));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(effort(256)))]

        #[test]
        fn shortcuts_change_nothing(pattern in "[ab*?\\[\\]\\\\]{0,12}\\*?", key in "[ab]{0,14}") {
            let expected = glob::matches(pattern.as_bytes(), key.as_bytes(), Case::Sensitive);
            let pattern = KeyPattern::new(pattern.as_bytes(), Permission::ALL);
            prop_assert_eq!(pattern.matches(key.as_bytes()), expected);
        }

        #[test]
        fn prefixes_of_any_length_match(prefix in "[a-c]{0,20}", more in "[a-c]{0,9}", other in "[a-c]{0,29}") {
            let pattern = KeyPattern::new(format!("{prefix}*").as_bytes(), Permission::ALL);
            let key = format!("{prefix}{more}");
            prop_assert!(pattern.matches(key.as_bytes()));
            prop_assert_eq!(pattern.matches(other.as_bytes()), other.starts_with(&prefix));
        }
    }
}
