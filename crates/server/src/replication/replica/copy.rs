//! A full copy: written into a file beside the data, and loaded when it is whole.

use std::io::{self, Write};

use tierce_keyspace::{DbIndex, StreamPlace};
use tierce_replication::link::Place;

use super::{FollowError, dir_of};
use crate::commands::replication::role::Following;
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

    /// Replaces all data, unless the link of `following` is to be given up when the copy has been checked.
    pub(super) fn load(
        self,
        server: &Server,
        following: &Following,
    ) -> Result<LoadReport, FollowError> {
        let mut locks = server.keyspace.long_locks();
        let Place { id, offset } = self.place;
        let place = StreamPlace { stream: *id.as_bytes(), offset, db: DbIndex::ZERO };
        let begin = || {
            let nobody_else = server.role.apply_for(following.number)?;
            // From now on the data are those of no place until they are replaced.
            server.role.note_place(following, None, DbIndex::ZERO);
            Some(nobody_else)
        };
        let report = server.engine.replace_all(self.file.path(), &mut locks, place, begin)?;
        report.ok_or(FollowError::GivenUp)
    }
}
