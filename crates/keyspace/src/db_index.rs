//! Numbers of databases.

/// At most this many databases.
pub const DATABASES_MAX: usize = 1 << 16;

/// The number of a database that exists.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct DbIndex(u16);

impl DbIndex {
    /// The first database, which always exists.
    pub const ZERO: Self = Self(0);

    /// The first `databases` ones, at most [`DATABASES_MAX`].
    pub(crate) fn below(databases: usize) -> impl Iterator<Item = Self> + use<> {
        (0..databases).map(|number| Self(number as u16))
    }

    /// The number.
    #[inline]
    #[must_use]
    pub fn get(self) -> usize {
        usize::from(self.0)
    }

    /// The number in the form in which it is stored.
    #[inline]
    pub(crate) fn number(self) -> u16 {
        self.0
    }

    /// The reverse of [`DbIndex::number`].
    #[inline]
    pub(crate) fn from_number(number: u16) -> Self {
        Self(number)
    }
}
