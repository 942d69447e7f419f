//! Batches: several changes that take effect atomically.

use crate::entry::Attributes;

/// A set of changes that are written together. Later changes of a key win over earlier ones.
#[derive(Clone, Default, Debug)]
pub struct Batch {
    pub(crate) changes: Vec<Change>,
}

#[derive(Clone, Debug)]
pub(crate) enum Change {
    Put { key: Vec<u8>, value: Vec<u8>, attributes: Attributes },
    Delete { key: Vec<u8> },
}

impl Batch {
    /// Creates an empty batch.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a put of a value.
    pub fn put(&mut self, key: impl Into<Vec<u8>>, value: impl Into<Vec<u8>>) -> &mut Self {
        self.put_with(key, value, Attributes::default())
    }

    /// Adds a put of a value with attributes.
    pub fn put_with(
        &mut self,
        key: impl Into<Vec<u8>>,
        value: impl Into<Vec<u8>>,
        attributes: Attributes,
    ) -> &mut Self {
        let (key, value) = (key.into(), value.into());
        self.changes.push(Change::Put { key, value, attributes });
        self
    }

    /// Adds the removal of a key.
    pub fn delete(&mut self, key: impl Into<Vec<u8>>) -> &mut Self {
        self.changes.push(Change::Delete { key: key.into() });
        self
    }

    /// Returns the number of changes.
    pub fn len(&self) -> usize {
        self.changes.len()
    }

    /// Returns true if there are no changes.
    pub fn is_empty(&self) -> bool {
        self.changes.is_empty()
    }
}

impl Change {
    pub(crate) fn key(&self) -> &[u8] {
        match self {
            Change::Put { key, .. } | Change::Delete { key } => key,
        }
    }
}
