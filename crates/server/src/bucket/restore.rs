//! Fills an empty data directory from a log.
//!
//! The snapshot is written to a file and loaded from there, then the records behind it are replayed as those of the local
//! log are. The local log counts when all of that is in it ([`Opening::keep`]), so a restore that is killed begins anew.

use std::io::Write;
use std::time::{Duration, Instant};

use tierce_bucket::{Group, Item, Moment, Restore, RestoreProgress};
use tierce_keyspace::log::{Replay, Unfinished};
use tokio::runtime::Runtime;

use super::BucketError;
use super::spool::DESCRIPTION;
use crate::engine::Opening;
use crate::persistence::{NewFile, Syncing};

/// A line about the progress appears this often.
const REPORT_EVERY: Duration = Duration::from_secs(2);

/// Where a restore came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Restored {
    /// The last object of the log that it contains.
    pub position: u64,
    /// The wall clock of that object, in milliseconds since 1970.
    pub wall_ms: u64,
    /// How many keys there are.
    pub keys: u64,
}

/// Loads what the log had at a moment. `report` gets what is done, and all of it, in bytes.
///
/// # Errors
/// When something is missing or damaged, with its object, or has no place in this server. Then the directory is as empty
/// as before.
///
/// Also returns the batches of which the last pieces are in later objects.
pub(super) fn fill(
    runtime: &Runtime,
    group: &Group,
    moment: Moment,
    opening: &mut Opening,
    mut report: impl FnMut(u64, u64),
) -> Result<(Restored, Unfinished), BucketError> {
    let url = group.store().url().to_owned();
    let failed = |error| BucketError::Store { url: url.clone(), error };
    let begun = Instant::now();
    let mut restore = runtime.block_on(Restore::at(group, moment)).map_err(failed)?;
    if restore.position() == 0 {
        let text = format!("bucket {url}: the log begins after that");
        return runtime
            .block_on(restore.finish())
            .map_err(failed)
            .and(Err(BucketError::Settings(text)));
    }
    let mut filling = Filling { opening, url: &url, file: None, replay: None, reported: begun };
    filling.begin(restore.progress(), restore.position());
    while let Some(item) = runtime.block_on(restore.next()).map_err(failed)? {
        filling.take(item)?;
        let (done, total) = done(restore.progress());
        report(done, total);
        filling.tell(done, total)?;
    }
    filling.load_snapshot()?;
    let mut unfinished = Unfinished::default();
    if let Some(replay) = filling.replay.take() {
        unfinished = replay.finish().map_err(|error| filling.wrong(error))?.unfinished;
    }
    let progress = restore.progress();
    filling.opening.keep()?;
    let engine = filling.opening.engine();
    let keys = engine.keyspace.total_len();
    let restored = Restored { position: restore.position(), wall_ms: restore.wall(), keys };
    engine.log.notice(format_args!(
        "Restored {} keys from the bucket, to object {} of its log: {} MB of snapshot and {} objects in {:.2} s",
        keys,
        restore.position(),
        progress.snapshot_bytes / 1_000_000,
        progress.records,
        begun.elapsed().as_secs_f64()
    ));
    if let Err(error) = runtime.block_on(restore.finish()) {
        engine.log.warning(format_args!("The pin of the restore stays for a day: {error}"));
    }
    Ok((restored, unfinished))
}

/// A directory that is being filled.
struct Filling<'f> {
    opening: &'f mut Opening,
    url: &'f str,
    /// The snapshot, as far as it is there.
    file: Option<NewFile>,
    /// What applies records, once the snapshot is loaded.
    replay: Option<Replay>,
    reported: Instant,
}

impl Filling<'_> {
    fn begin(&self, progress: RestoreProgress, position: u64) {
        let engine = self.opening.engine();
        engine.loading.expect(done(progress).1);
        engine.log.notice(format_args!(
            "The data directory is empty: restoring {} to object {position}, {} MB of snapshot and {} objects",
            self.url,
            progress.snapshot_bytes_total / 1_000_000,
            progress.records_total
        ));
    }

    fn take(&mut self, item: Item) -> Result<(), BucketError> {
        match item {
            Item::Snapshot { description, .. } => {
                if description != DESCRIPTION {
                    let what = description.escape_ascii();
                    return Err(self.wrong(format_args!("a snapshot of an unknown kind: {what}")));
                }
                if self.file.is_some() || self.replay.is_some() {
                    return Err(self.wrong("a second snapshot"));
                }
                // The name is not used: the file never gets it.
                let target = self.opening.settings().dir().join("bucket.rdb");
                let file = NewFile::create(&target, Syncing::AtTheEnd);
                self.file = Some(file.map_err(|error| self.wrong(error))?);
            }
            Item::Part(bytes) => {
                let Some(file) = &mut self.file else {
                    return Err(self.wrong("a part without a snapshot"));
                };
                file.write_all(&bytes)?;
            }
            Item::Batches { number, batches, .. } => {
                self.load_snapshot()?;
                if self.replay.is_none() {
                    self.replay = Some(self.opening.replay()?);
                }
                let replay = self.replay.as_mut().expect("made above");
                let applied = batches.iter().try_for_each(|record| replay.record(record));
                applied.map_err(|error| self.wrong(format_args!("object {number}: {error}")))?;
            }
        }
        Ok(())
    }

    /// Loads the snapshot, if there is one that is not loaded.
    fn load_snapshot(&mut self) -> Result<(), BucketError> {
        let Some(mut file) = self.file.take() else { return Ok(()) };
        file.flush()?;
        self.opening.load_copy(file.path())?;
        Ok(())
    }

    /// Tells those who wait for the start how far it is.
    fn tell(&mut self, done: u64, total: u64) -> Result<(), BucketError> {
        let engine = self.opening.engine();
        if self.reported.elapsed() >= REPORT_EVERY {
            self.reported = Instant::now();
            let percent = done as f64 * 100.0 / total.max(1) as f64;
            engine.log.notice(format_args!("Restoring: {percent:.0} %"));
        }
        engine.loading.expect(total);
        engine.loading.note(done).map_err(|given_up| BucketError::Open(given_up.into()))
    }

    fn wrong(&self, reason: impl ToString) -> BucketError {
        BucketError::Content { url: self.url.to_owned(), reason: reason.to_string() }
    }
}

/// What is done, and all of it: bytes of the snapshot, and records as if each had some.
fn done(progress: RestoreProgress) -> (u64, u64) {
    const RECORD_BYTES: u64 = 64 << 10;
    let RestoreProgress { snapshot_bytes, snapshot_bytes_total, records, records_total } = progress;
    (snapshot_bytes + records * RECORD_BYTES, snapshot_bytes_total + records_total * RECORD_BYTES)
}
