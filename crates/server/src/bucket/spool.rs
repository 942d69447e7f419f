//! Snapshots on their way to the bucket. They are first written to a file next to the data, so that a slow network or
//! an outage does not prolong the copies that a snapshot has to make.

use std::fs::File;
use std::io::{self, Read, Write};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Weak};

use tierce_bucket::{Error, SnapshotUpload, UploadedSnapshot};
use tierce_engine::feed::Reader;

use crate::engine::Engine;
use crate::persistence::{CopySink, NewFile, SaveError, Syncing};

/// Description of a snapshot in a bucket: the file of a full copy,
const DESCRIPTION: &[u8] = b"rdb";

/// and one with changes that the objects before it do not have.
const OF_BASE: &[u8] = b"rdb base";

/// Relation of a snapshot to the log before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Content {
    /// The state after the objects up to its position.
    OfLog,
    /// A state with more or other data: only a restore reads it.
    Base,
}

impl Content {
    fn description(self) -> &'static [u8] {
        match self {
            Self::OfLog => DESCRIPTION,
            Self::Base => OF_BASE,
        }
    }

    /// Returns the content by the description of a snapshot; `None` for an unknown one.
    pub(super) fn of(description: &[u8]) -> Option<Self> {
        [Self::OfLog, Self::Base].into_iter().find(|content| content.description() == description)
    }
}

/// Size of the pieces in which the file is read.
const READ_BYTES: usize = 1 << 20;

/// File of a snapshot, or the reason why there is none.
pub(super) type Spooled = Result<NewFile, String>;

/// Receiver of a copy of the data, which hands over its file.
struct Spool {
    file: NewFile,
    done: Sender<Spooled>,
    engine: Weak<Engine>,
}

/// Creates a file next to the data for a copy of them. Returns its sink, and the channel that delivers the finished
/// file.
///
/// # Errors
/// If the file cannot be created.
pub(super) fn begin(
    engine: &Arc<Engine>,
    dir: &Path,
) -> Result<(Box<dyn CopySink>, Receiver<Spooled>), SaveError> {
    // The name is not used: the file never gets it.
    let file = NewFile::create(&dir.join("bucket.rdb"), Syncing::AtTheEnd)?;
    let (done, spooled) = channel();
    Ok((Box::new(Spool { file, done, engine: Arc::downgrade(engine) }), spooled))
}

impl Write for Spool {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

impl CopySink for Spool {
    fn end(self: Box<Self>, outcome: Result<(), &SaveError>) {
        let Self { mut file, done, engine } = *self;
        let flushed = outcome.map_err(|error| error.to_string());
        let flushed = flushed.and_then(|()| file.flush().map_err(|error| error.to_string()));
        // The server may have given it up.
        let _ = done.send(flushed.map(|()| file));
        if let Some(engine) = engine.upgrade() {
            engine.feed.call(Reader::Bucket);
        }
    }
}

/// Uploads a file, and removes it.
///
/// # Errors
/// Those of the store, or of reading.
pub(super) async fn upload(
    mut upload: SnapshotUpload,
    file: NewFile,
    content: Content,
    sent: Arc<AtomicU64>,
) -> Result<UploadedSnapshot, Error> {
    let unreadable = |error: io::Error| Error::Invalid(format!("the snapshot's file: {error}"));
    let mut from = File::open(file.path()).map_err(unreadable)?;
    let mut buffer = vec![0; READ_BYTES];
    loop {
        let count = from.read(&mut buffer).map_err(unreadable)?;
        if count == 0 {
            break;
        }
        upload.write(&buffer[..count]).await?;
        sent.fetch_add(count as u64, Ordering::Relaxed);
    }
    upload.finish(content.description()).await
}
