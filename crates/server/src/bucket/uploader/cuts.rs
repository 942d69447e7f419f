//! Cuts: positions known in both logs, from which a start after a crash continues without a new
//! base.

use std::io;
use std::time::{Duration, Instant};

use tierce_engine::feed::Reader;

use super::super::claimed::new_mark;
use super::super::position_file::{Cut, Known};
use super::{BUSY_FOR, LOCKS_MAX, Uploader};

/// Bytes of both logs that a start after a crash reads again, at most, in addition to the changes
/// that the bucket lacks.
const EVERY_BYTES: u64 = 32 << 20;

/// Interval of cuts while there are changes: a cut may need a put of its own.
const EVERY: Duration = Duration::from_secs(60);

/// State of the cuts.
#[derive(Debug, Default)]
pub(super) struct Cuts {
    /// Mark of a cut that is in the feed, and was not reached yet.
    due: Option<u64>,
    /// Cut of the base, with the object before it.
    base: Option<Cut>,
    /// Bytes appended since the last cut, and the time when that was reached.
    bytes: u64,
    met: Option<Instant>,
    /// Earliest time of the next attempt, after the data were busy.
    not_before: Option<Instant>,
}

impl Cuts {
    /// Returns the state of an uploader whose feed has a mark.
    pub(super) fn after(mark: u64) -> Self {
        Self { due: Some(mark), ..Self::default() }
    }

    pub(super) fn note_appended(&mut self, bytes: u64) {
        self.bytes += bytes;
    }

    pub(super) fn note_base(&mut self, id: u64, object: u64) {
        (self.due, self.base) = (None, Some(Cut { id, object }));
    }

    fn is_due(&self) -> bool {
        let is_old = self.met.is_none_or(|met| met.elapsed() >= EVERY);
        let was_busy = self.not_before.is_some_and(|at| Instant::now() < at);
        self.due.is_none() && !was_busy && (self.bytes >= EVERY_BYTES || self.bytes > 0 && is_old)
    }
}

impl Uploader {
    /// Puts a cut behind all taken changes, when due.
    pub(super) fn cut_if_due(&mut self) {
        if !self.cuts.is_due() {
            return;
        }
        let id = new_mark();
        let mut locks = self.server.keyspace.impatient_long_locks(LOCKS_MAX);
        let Ok(all) = locks.try_lock_all() else {
            self.cuts.not_before = Some(Instant::now() + BUSY_FOR);
            return;
        };
        self.server.feed.mark(Reader::Bucket, id);
        drop(all);
        drop(locks);
        self.cuts.due = Some(id);
        self.take(Duration::ZERO);
    }

    /// Notes that exactly the changes before a mark are committed.
    pub(super) fn note_cut(&mut self, id: u64) {
        let object = self.owner.group().end().number;
        if !self.needs_base {
            self.keep_cut(Cut { id, object });
        }
    }

    /// Notes that the base is valid.
    pub(super) fn note_base_cut(&mut self) {
        if let Some(cut) = self.cuts.base.take() {
            self.keep_cut(cut);
        }
    }

    fn keep_cut(&mut self, cut: Cut) {
        if self.cuts.due == Some(cut.id) {
            self.cuts.due = None;
        }
        (self.cuts.bytes, self.cuts.met) = (0, Some(Instant::now()));
        if let Err(error) = self.write_cut(Some(cut)) {
            // The previous cut is still right.
            self.watch.failed(&format!("bucket.state: {error}"));
        }
    }

    /// Deletes the cut before a new base: the base brings data into the bucket that are not in
    /// objects behind a cut.
    pub(super) fn forget_cut(&mut self) -> io::Result<()> {
        self.write_cut(None)
    }

    fn write_cut(&mut self, cut: Option<Cut>) -> io::Result<()> {
        let known = self.position_file.known.unwrap_or_default();
        if known.cut == cut { Ok(()) } else { self.position_file.write(Known { cut, ..known }) }
    }

    /// Sends the loaded records that the log lacks, and ends the batches that can never be
    /// completed there.
    pub(super) fn send_tail(&mut self) -> Result<(), super::Stop> {
        let tail = std::mem::take(&mut self.tail);
        let gaps = std::mem::take(&mut self.gaps);
        if tail.is_empty() && gaps.is_empty() {
            return Ok(());
        }
        self.watch.note_waiting();
        let (mut records, mut bytes) = (Vec::new(), 0);
        for record in &tail {
            bytes += record.len();
            records.push(&record[..]);
            if bytes >= self.pace.object_bytes() {
                self.append(&mut records, &mut bytes)?;
            }
        }
        for gap in &gaps {
            bytes += gap.len();
            records.push(gap);
        }
        self.append(&mut records, &mut bytes)?;
        if !tail.is_empty() {
            self.server.log.notice(format_args!(
                "The bucket has what it lacked of the local log: {}",
                tierce_engine::count(tail.len(), "change")
            ));
        }
        Ok(())
    }
}
