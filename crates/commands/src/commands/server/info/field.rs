//! The fields of INFO, as rows of a table.
//!
//! A row says where its value comes from. A field that this server cannot fill truthfully has no row.
//! A constant that is true has one, because programs read it.

use super::facts::Facts;

/// A field: its name, where its value comes from, and what it says.
pub(super) struct Field {
    pub(super) name: &'static str,
    pub(super) source: Source,
    #[cfg_attr(not(test), expect(dead_code, reason = "a test prints it into docs/info.md"))]
    pub(super) about: &'static str,
}

pub(super) enum Source {
    /// Looked up each time.
    Is(fn(&Facts<'_>) -> String),
    /// The same; without a value the field is left out.
    Maybe(fn(&Facts<'_>) -> Option<String>),
    /// Always so.
    Always(&'static str),
    /// Any number of fields, whose names begin with this one.
    Each(fn(&Facts<'_>) -> Vec<(String, String)>),
}

pub(super) const fn is(
    name: &'static str,
    value: fn(&Facts<'_>) -> String,
    about: &'static str,
) -> Field {
    Field { name, source: Source::Is(value), about }
}

pub(super) const fn maybe(
    name: &'static str,
    value: fn(&Facts<'_>) -> Option<String>,
    about: &'static str,
) -> Field {
    Field { name, source: Source::Maybe(value), about }
}

pub(super) const fn always(name: &'static str, value: &'static str, about: &'static str) -> Field {
    Field { name, source: Source::Always(value), about }
}

pub(super) const fn each(
    name: &'static str,
    values: fn(&Facts<'_>) -> Vec<(String, String)>,
    about: &'static str,
) -> Field {
    Field { name, source: Source::Each(values), about }
}

impl Field {
    /// Its lines: names with values.
    pub(super) fn lines(&self, facts: &Facts<'_>) -> Vec<(String, String)> {
        let one = |value| vec![(self.name.to_owned(), value)];
        match self.source {
            Source::Is(value) => one(value(facts)),
            Source::Maybe(value) => value(facts).map(one).unwrap_or_default(),
            Source::Always(value) => one(value.to_owned()),
            Source::Each(values) => values(facts),
        }
    }
}
