//! Fills an empty data directory from a log.
//!
//! The snapshot is loaded while it arrives. Then the records behind it are replayed like those of a local log. The
//! local log becomes valid when it has all of that ([`Opening::keep`]), so an interrupted restore starts again.

use std::io::{self, Read};
use std::panic::resume_unwind;
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

use bytes::{Buf, Bytes};
use tierce_bucket::{Group, Item, Moment, Restore, RestoreProgress, Runtime};
use tierce_keyspace::log::{Replay, Unfinished};

use super::error::BucketError;
use super::spool::Content;
use crate::engine::Opening;
use crate::persistence::Source;

/// Interval of progress lines.
const REPORT_EVERY: Duration = Duration::from_secs(2);

/// Number of parts queued for the thread that loads them: the next one is ready while one is read.
const PARTS_AHEAD: usize = 1;

/// Result of a restore.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Restored {
    /// Last object of the log that it contains.
    pub position: u64,
    /// Wall clock of that object, in milliseconds since 1970.
    pub wall_ms: u64,
    /// Number of keys.
    pub keys: u64,
}

/// Loads the state of the log at a moment. `report` gets the done and the total bytes.
///
/// # Errors
/// If an object is missing or damaged (the error names it), or does not fit into this server. The directory is then as
/// empty as before.
///
/// Also returns the batches whose last records are in later objects.
pub(super) fn fill(
    runtime: &Runtime,
    group: &Group,
    moment: Moment,
    opening: &mut Opening,
    report: impl FnMut(u64, u64),
) -> Result<(Restored, Unfinished), BucketError> {
    let url = group.store().url();
    let failed = |error| BucketError::Store { url: url.to_owned(), error };
    let mut restore = runtime.block_on(Restore::at(group, moment)).map_err(failed)?;
    let filled = fill_from(runtime, &mut restore, url, opening, report);
    if let Err(error) = runtime.block_on(restore.finish()) {
        let log = &opening.engine().log;
        log.warning(format_args!("The pin of the restore stays for a day: {error}"));
    }
    filled
}

fn fill_from(
    runtime: &Runtime,
    restore: &mut Restore,
    url: &str,
    opening: &mut Opening,
    mut report: impl FnMut(u64, u64),
) -> Result<(Restored, Unfinished), BucketError> {
    let failed = |error| BucketError::Store { url: url.to_owned(), error };
    let begun = Instant::now();
    if restore.position() == 0 {
        let text = format!("bucket {url}: the log begins after that");
        return Err(BucketError::Settings(text));
    }
    let mut filling = Filling { opening, url, is_begun: false, replay: None, reported: begun };
    filling.begin(restore.progress(), restore.position());
    let mut next = || {
        let item = runtime.block_on(restore.next()).map_err(failed)?;
        let (done, total) = done(restore.progress());
        report(done, total);
        Ok(item.map(|item| (item, done, total)))
    };
    let mut item = next()?;
    while let Some((taken, done, total)) = item {
        item = match taken {
            Item::Snapshot { description, .. } => {
                filling.load_snapshot(&description, total, &mut next)?
            }
            Item::Part(_) => return Err(filling.wrong("a part without a snapshot")),
            Item::Batches { number, batches, .. } => {
                filling.apply(number, &batches)?;
                filling.tell(done, total)?;
                next()?
            }
        };
    }
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
        "Restored {} from the bucket, to object {} of its log: {} MB of snapshot and {} in {:.2} s",
        tierce_engine::count(keys, "key"),
        restore.position(),
        progress.snapshot_bytes / 1_000_000,
        tierce_engine::count(progress.records, "object"),
        begun.elapsed().as_secs_f64()
    ));
    Ok((restored, unfinished))
}

/// Item of the restore, with the done and the total bytes.
type Next = Option<(Item, u64, u64)>;

/// Directory that is being filled.
struct Filling<'f> {
    opening: &'f mut Opening,
    url: &'f str,
    /// True once any item has arrived.
    is_begun: bool,
    /// Replay of records, once the snapshot is loaded.
    replay: Option<Replay>,
    reported: Instant,
}

impl Filling<'_> {
    fn begin(&self, progress: RestoreProgress, position: u64) {
        let engine = self.opening.engine();
        engine.loading.expect(done(progress).1);
        engine.log.notice(format_args!(
            "The data directory is empty: restoring {} to object {position}, {} MB of snapshot and {}",
            self.url,
            progress.snapshot_bytes_total / 1_000_000,
            tierce_engine::count(progress.records_total, "object")
        ));
    }

    /// Loads a snapshot in another thread while this one gets its parts. Returns the item behind them.
    fn load_snapshot(
        &mut self,
        description: &[u8],
        total: u64,
        next: &mut impl FnMut() -> Result<Next, BucketError>,
    ) -> Result<Next, BucketError> {
        if Content::of(description).is_none() {
            let what = description.escape_ascii();
            return Err(self.wrong(format_args!("a snapshot of an unknown kind: {what}")));
        }
        if std::mem::replace(&mut self.is_begun, true) {
            return Err(self.wrong("a second snapshot"));
        }
        let name = PathBuf::from(format!("the snapshot in {}", self.url));
        let opening = &*self.opening;
        let (parts, arriving) = sync_channel(PARTS_AHEAD);
        let (behind, loaded) = thread::scope(|scope| {
            let load = || {
                let snapshot = Source::arriving(&name, Parts::of(arriving), total);
                opening.load_copy(snapshot)
            };
            let loading = thread::Builder::new().name("restore".into()).spawn_scoped(scope, load);
            let behind = pass_on(parts, next);
            let loaded =
                loading.map(|loading| loading.join().unwrap_or_else(|panic| resume_unwind(panic)));
            (behind, loaded)
        });
        // If parts are missing, the loaded data are damaged for that reason.
        let behind = behind?;
        loaded??;
        behind.ok_or_else(|| self.wrong("the snapshot ends before its last part"))
    }

    /// Applies the batches of an object.
    fn apply(&mut self, number: u64, batches: &[Bytes]) -> Result<(), BucketError> {
        self.is_begun = true;
        if self.replay.is_none() {
            self.replay = Some(self.opening.replay()?);
        }
        let replay = self.replay.as_mut().expect("made above");
        let applied = batches.iter().try_for_each(|record| replay.record(record));
        applied.map_err(|error| self.wrong(format_args!("object {number}: {error}")))
    }

    /// Reports the progress of the start.
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

/// Passes on the parts of a snapshot. Returns the first item behind them, or `None` when the receiver is gone.
fn pass_on(
    parts: SyncSender<Bytes>,
    next: &mut impl FnMut() -> Result<Next, BucketError>,
) -> Result<Option<Next>, BucketError> {
    loop {
        match next()? {
            Some((Item::Part(part), ..)) => {
                if parts.send(part).is_err() {
                    return Ok(None);
                }
            }
            behind => return Ok(Some(behind)),
        }
    }
}

/// Reader over the parts, in sequence, as they arrive.
struct Parts {
    arriving: Receiver<Bytes>,
    /// Unread rest of the last part.
    rest: Bytes,
}

impl Parts {
    fn of(arriving: Receiver<Bytes>) -> Self {
        Self { arriving, rest: Bytes::new() }
    }
}

impl Read for Parts {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        while self.rest.is_empty() {
            // The other end is gone, so nothing else comes.
            let Ok(part) = self.arriving.recv() else { return Ok(0) };
            self.rest = part;
        }
        let len = bytes.len().min(self.rest.len());
        self.rest.copy_to_slice(&mut bytes[..len]);
        Ok(len)
    }
}

/// Returns the done and the total bytes: those of the snapshot, and a fixed number for each record.
fn done(progress: RestoreProgress) -> (u64, u64) {
    const RECORD_BYTES: u64 = 64 << 10;
    let RestoreProgress { snapshot_bytes, snapshot_bytes_total, records, records_total } = progress;
    (snapshot_bytes + records * RECORD_BYTES, snapshot_bytes_total + records_total * RECORD_BYTES)
}
