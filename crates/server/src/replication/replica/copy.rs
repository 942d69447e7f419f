//! A full copy: written to a file in the data directory, and loaded when it is complete.

use std::io::{self, Write};

use tierce_keyspace::{DbIndex, StreamPosition};
use tierce_replication::link::Position;

use super::dir_of;
use crate::engine::ReloadError;
use crate::persistence::{LoadReport, NewFile, SaveError, Syncing};
use crate::server::Server;

/// Full copy being received. Its file is removed with it.
pub(super) struct Copy {
    position: Position,
    file: NewFile,
}

impl Copy {
    /// Begins a copy of the data at this position of the stream.
    pub(super) fn begin(server: &Server, position: Position) -> Result<Self, SaveError> {
        // The name is not used: the file never gets it.
        let file = NewFile::create(&dir_of(server).join("copy.rdb"), Syncing::AtTheEnd)?;
        Ok(Self { position, file })
    }

    pub(super) fn position(&self) -> Position {
        self.position
    }

    pub(super) fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.file.write_all(bytes)
    }

    /// Replaces all data, if `is_wanted` still says so when clients can change nothing any more. So no write that they
    /// made to a primary is lost.
    pub(super) fn load(
        self,
        server: &Server,
        is_wanted: impl FnOnce() -> bool,
    ) -> Result<LoadReport, ReloadError> {
        let mut locks = server.keyspace.long_locks();
        let Position { id, offset } = self.position;
        let position = StreamPosition { stream: *id.as_bytes(), offset, db: DbIndex::ZERO };
        server.engine.replace_all(self.file.path(), &mut locks, position, is_wanted)
    }
}
