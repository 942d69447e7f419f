//! A full copy: written to a file in the data directory, and loaded when it is complete.

use std::io::{self, Write};

use tierce_keyspace::{DbIndex, StreamPlace};
use tierce_replication::link::Place;

use super::dir_of;
use crate::engine::ReloadError;
use crate::persistence::{LoadReport, NewFile, SaveError, Syncing};
use crate::server::Server;

/// A copy on its way. Its file goes with it.
pub(super) struct Copy {
    place: Place,
    file: NewFile,
}

impl Copy {
    /// Begins one of the data as they are at this place of the stream.
    pub(super) fn begin(server: &Server, place: Place) -> Result<Self, SaveError> {
        // The name is not used: the file never gets it.
        let file = NewFile::create(&dir_of(server).join("copy.rdb"), Syncing::AtTheEnd)?;
        Ok(Self { place, file })
    }

    pub(super) fn place(&self) -> Place {
        self.place
    }

    pub(super) fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.file.write_all(bytes)
    }

    /// Replaces all data, if `is_wanted` says so when clients can change nothing any more: what they write as those of
    /// a primary is not lost.
    pub(super) fn load(
        self,
        server: &Server,
        is_wanted: impl FnOnce() -> bool,
    ) -> Result<LoadReport, ReloadError> {
        let mut locks = server.keyspace.long_locks();
        let Place { id, offset } = self.place;
        let place = StreamPlace { stream: *id.as_bytes(), offset, db: DbIndex::ZERO };
        server.engine.replace_all(self.file.path(), &mut locks, place, is_wanted)
    }
}
