//! Reference model: the data that belong to each position in each stream.

use std::collections::HashMap;

use tierce_replication::identity::{ID_LEN, ReplicationId};
use tierce_replication::link::Position;

/// Data of a server: all writes that it has applied, each with its database.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Data {
    writes: Vec<(u8, u64)>,
    digest: u64,
}

impl Data {
    pub(crate) fn apply(&mut self, db: u8, number: u64) {
        self.writes.push((db, number));
        let mixed = self.digest.rotate_left(7) ^ (number << 8 | u64::from(db));
        self.digest = mixed.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(1);
    }

    /// Returns the data as a file, with the database that is selected at their position.
    pub(crate) fn to_file(&self, db: u8) -> Vec<u8> {
        let mut file = vec![db];
        for (db, number) in &self.writes {
            file.push(*db);
            file.extend_from_slice(&number.to_le_bytes());
        }
        file
    }

    pub(crate) fn of_file(file: &[u8]) -> Option<(Self, u8)> {
        let (selected, rest) = file.split_first()?;
        let mut data = Self::default();
        for entry in rest.chunks(9) {
            let (db, number) = entry.split_first()?;
            data.apply(*db, u64::from_le_bytes(number.try_into().ok()?));
        }
        Some((data, *selected))
    }
}

/// Origin of a stream id: the earlier id, and the offset of the change.
type Parent = Option<Position>;

#[derive(Default)]
pub(crate) struct Truth {
    names: HashMap<ReplicationId, Parent>,
    digests: HashMap<(ReplicationId, u64), u64>,
    writes: u64,
}

impl Truth {
    /// Returns an id that no stream has had.
    pub(crate) fn name(&mut self, parent: Parent) -> ReplicationId {
        let mut bytes = [0; ID_LEN / 2];
        bytes[..8].copy_from_slice(&(self.names.len() as u64 + 1).to_le_bytes());
        let id = ReplicationId::from_random(bytes);
        self.names.insert(id, parent);
        id
    }

    /// Returns the number of the next write.
    pub(crate) fn next_write(&mut self) -> u64 {
        self.writes += 1;
        self.writes
    }

    /// Records that a primary has these data at this position.
    pub(crate) fn note(&mut self, position: Position, data: &Data) -> Result<(), String> {
        match self.digests.insert((position.id, position.offset), data.digest) {
            Some(other) if other != data.digest => {
                Err(format!("two histories have the place {position}"))
            }
            _ => Ok(()),
        }
    }

    /// Checks that these are the data of this position.
    pub(crate) fn check(&self, position: Position, data: &Data) -> Result<(), String> {
        let mut of = position;
        while let Some(Some(parent)) = self.names.get(&of.id)
            && of.offset <= parent.offset
        {
            of.id = parent.id;
        }
        match self.digests.get(&(of.id, of.offset)) {
            None => Err(format!("no history has the place {position}")),
            Some(digest) if *digest == data.digest => Ok(()),
            Some(_) => Err(format!("the data are not those of the place {position}")),
        }
    }
}
