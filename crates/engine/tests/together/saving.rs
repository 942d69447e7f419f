//! A snapshot that is taken while other steps continue.

use std::rc::Rc;

use tierce_keyspace::{LargeHead, Snapshot, SnapshotPiece};

use crate::together::contents::{self, difference};
use crate::together::history::DbKey;
use crate::together::life::Life;
use crate::together::model::{Contents, Entry};
use crate::together::world::Failure;

/// A running snapshot, with its expected contents and those found so far.
pub struct Saving {
    snapshot: Snapshot,
    begun_ms: i64,
    expected: Contents,
    found: Contents,
}

impl Saving {
    pub fn begin(life: &Life<'_, '_>, slices: bool) -> Self {
        let now_ms = life.world.now_ms;
        let large_bytes_min = if slices { 200 } else { 1 << 20 };
        let mut locks = life.keyspace.locks();
        let begun = Snapshot::begin_with(life.keyspace, &mut locks, now_ms, large_bytes_min);
        let mut expected = life.world.past.latest().at(now_ms);
        // The file format cannot store these.
        expected.forget_attributes();
        let snapshot = begun.expect("there is one at a time");
        let mut found = Contents::default();
        contents::add_code(&mut found, snapshot.code());
        Self { snapshot, begun_ms: now_ms, expected, found }
    }

    /// Takes the next piece, and calls `between` between the slices of a large one. Returns `false`
    /// at the end.
    pub fn step(&mut self, mut between: impl FnMut()) -> Result<bool, Failure> {
        match self.snapshot.next() {
            Ok(None) => {
                self.found.purge(self.begun_ms);
                check(&self.expected, &self.found)?;
                return Ok(false);
            }
            // A value on disk cannot be read, so there is no snapshot.
            Err(_) => return Ok(false),
            Ok(Some(SnapshotPiece::Batch(batch))) => {
                for entry in &batch {
                    let value = contents::value_of(&entry.value);
                    let place = (entry.db.get(), entry.key[1] - b'0');
                    add(&mut self.found, place, Entry::new(value, entry.deadline_ms))?;
                }
            }
            Ok(Some(SnapshotPiece::Large(mut large))) => {
                let LargeHead { db, key, kind, deadline_ms, .. } = large.head().clone();
                let mut value = contents::empty(kind);
                while let Some(slice) = large.next_slice().map_err(|error| error.to_string())? {
                    contents::add_parts(&mut value, &slice);
                    between();
                }
                let entry = Entry::new(value, deadline_ms);
                add(&mut self.found, (db.get(), key[1] - b'0'), entry)?;
            }
        }
        Ok(true)
    }
}

fn check(expected: &Contents, found: &Contents) -> Result<(), Failure> {
    if found == expected {
        return Ok(());
    }
    let difference = difference(expected, found);
    Err(format!("the snapshot is not what was there when it began:\n{difference}"))
}

fn add(found: &mut Contents, place: DbKey, entry: Entry) -> Result<(), Failure> {
    match found.0.insert(place, Rc::new(entry)) {
        None => Ok(()),
        Some(_) => Err(format!("{place:?} is twice in the snapshot")),
    }
}
