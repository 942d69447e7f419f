//! Registry of statistics, as rows of a table: INFO, metrics and MEMORY STATS read the same rows.
//!
//! A row states the source of its value. A field that this server cannot fill truthfully has no row. A true constant
//! has a row, because programs read it.

use super::facts::Facts;
use super::value::Value;
use crate::metrics::Kind;

/// A field: its name, the source of its value, its description, and its metrics.
pub(in crate::commands::server) struct Field {
    pub(in crate::commands::server) name: &'static str,
    pub(super) source: Source,
    pub(super) about: &'static str,
    pub(super) metrics: Metrics,
}

pub(super) enum Source {
    /// Looked up each time.
    Is(fn(&Facts<'_>) -> Value),
    /// Looked up each time; without a value the field is left out.
    Maybe(fn(&Facts<'_>) -> Option<Value>),
    /// A constant.
    Always(&'static str),
    /// Any number of fields, whose names begin with this one.
    Each(fn(&Facts<'_>) -> Vec<Row>),
}

/// Metrics of a field.
pub(super) enum Metrics {
    /// None, because it is no number, or duplicates another field.
    None,
    /// One with this name.
    One(Kind, &'static str),
    /// One for some columns of the rows, which differ in these labels.
    Columns(&'static [&'static str], &'static [Column]),
}

/// A metric column of the rows.
pub(super) struct Column {
    pub(super) key: &'static str,
    pub(super) kind: Kind,
    pub(super) name: &'static str,
    pub(super) about: &'static str,
}

pub(super) const fn counter(key: &'static str, name: &'static str, about: &'static str) -> Column {
    Column { key, kind: Kind::Counter, name, about }
}

pub(super) const fn gauge(key: &'static str, name: &'static str, about: &'static str) -> Column {
    Column { key, kind: Kind::Gauge, name, about }
}

/// One of the fields of a [`Source::Each`].
pub(super) struct Row {
    /// Name in INFO.
    pub(super) name: String,
    /// Values of the labels of its metrics.
    pub(super) labels: Vec<String>,
    pub(super) columns: Vec<(String, Value)>,
}

impl Row {
    pub(super) fn new(
        name: String,
        labels: Vec<String>,
        columns: impl IntoIterator<Item = (&'static str, Value)>,
    ) -> Self {
        let columns = columns.into_iter().map(|(key, value)| (key.to_owned(), value)).collect();
        Self { name, labels, columns }
    }

    /// Formats as `calls=1,usec=2`.
    fn text(&self) -> String {
        let columns = self.columns.iter().map(|(key, value)| format!("{key}={value}"));
        columns.collect::<Vec<_>>().join(",")
    }
}

const fn row(name: &'static str, source: Source, about: &'static str) -> Field {
    Field { name, source, about, metrics: Metrics::None }
}

pub(super) const fn is(
    name: &'static str,
    value: fn(&Facts<'_>) -> Value,
    about: &'static str,
) -> Field {
    row(name, Source::Is(value), about)
}

pub(super) const fn maybe(
    name: &'static str,
    value: fn(&Facts<'_>) -> Option<Value>,
    about: &'static str,
) -> Field {
    row(name, Source::Maybe(value), about)
}

pub(super) const fn always(name: &'static str, value: &'static str, about: &'static str) -> Field {
    row(name, Source::Always(value), about)
}

pub(super) const fn each(
    name: &'static str,
    rows: fn(&Facts<'_>) -> Vec<Row>,
    about: &'static str,
) -> Field {
    row(name, Source::Each(rows), about)
}

impl Field {
    /// Adds the metric of a number that grows until the server ends, or `CONFIG RESETSTAT`.
    pub(super) const fn counter(self, name: &'static str) -> Self {
        Self { metrics: Metrics::One(Kind::Counter, name), ..self }
    }

    /// Adds the metric of a number that goes up and down.
    pub(super) const fn gauge(self, name: &'static str) -> Self {
        Self { metrics: Metrics::One(Kind::Gauge, name), ..self }
    }

    /// Adds the metrics of columns of its rows, with the names of their labels.
    pub(super) const fn columns(
        self,
        labels: &'static [&'static str],
        columns: &'static [Column],
    ) -> Self {
        Self { metrics: Metrics::Columns(labels, columns), ..self }
    }

    /// Returns the value, if the field has one.
    pub(super) fn value(&self, facts: &Facts<'_>) -> Option<Value> {
        match self.source {
            Source::Is(value) => Some(value(facts)),
            Source::Maybe(value) => value(facts),
            Source::Always(text) => Some(Value::parse(text)),
            Source::Each(_) => None,
        }
    }

    /// Returns the rows, if the field has some.
    pub(super) fn rows(&self, facts: &Facts<'_>) -> Vec<Row> {
        match self.source {
            Source::Each(rows) => rows(facts),
            _ => Vec::new(),
        }
    }

    /// Returns the lines in INFO: names with values.
    pub(super) fn lines(&self, facts: &Facts<'_>) -> Vec<(String, String)> {
        match self.source {
            Source::Always(text) => vec![(self.name.to_owned(), text.to_owned())],
            Source::Each(rows) => {
                rows(facts).iter().map(|row| (row.name.clone(), row.text())).collect()
            }
            _ => {
                let value = self.value(facts);
                value.map(|value| (self.name.to_owned(), value.to_string())).into_iter().collect()
            }
        }
    }
}
