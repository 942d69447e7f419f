//! Effects that a thread must report to others: collected while shards are locked, delivered before they are
//! unlocked.

use std::cell::{Cell, OnceCell};

use crate::access::keyspace::Keyspace;
use crate::change::event::{Events, Origin};
use crate::change::interest::Interest;
use crate::change::log::batch::{Batch, BatchMark};
use crate::change::log::sink::RecordKind;
use crate::change::stream_position::{Due, StreamPosition};
use crate::db_index::DbIndex;
use crate::planted::{self, Fault};
use crate::registries::cached::Invalidated;
use crate::registries::waiters::{Ready, WaitKey};
use crate::registries::watch::touched::Touched;

/// Effects of the changes under one guard.
#[derive(Debug)]
pub(crate) struct Effects<'k> {
    /// Listeners to changes of all shards, read when the first shard was locked.
    interest: Interest,
    origin: Origin,
    /// Operations for the log, if there is one.
    pub(crate) batch: Option<Batch<'k>>,
    /// Pending replication offset that these changes reach.
    pub(crate) due_position: Option<Due>,
    /// Notices for listeners; usually none are needed, so they are created on demand.
    notices: OnceCell<Box<Notices>>,
    #[cfg(debug_assertions)]
    pub(crate) naming: crate::change::event::Naming,
}

/// Notices for clients and listeners.
#[derive(Debug, Default)]
pub(crate) struct Notices {
    /// Changed keys that clients may wait for. They outlive the locks.
    pub(crate) ready: Ready,
    /// Changed keys that are watched.
    pub(crate) touched: Touched,
    pub(crate) events: Events,
    /// Changed keys that clients may have cached.
    pub(crate) invalidated: Invalidated,
    /// True if a reply tells of changes that are in the log already.
    pub(crate) tells_of_logged: Cell<bool>,
}

impl<'k> Effects<'k> {
    #[inline]
    pub(crate) fn new(keyspace: &'k Keyspace) -> Self {
        let interest = keyspace.interest.get();
        Self {
            interest,
            origin: Origin::SERVER,
            batch: batch(keyspace, interest),
            due_position: None,
            notices: OnceCell::new(),
            #[cfg(debug_assertions)]
            naming: crate::change::event::Naming::default(),
        }
    }

    /// Returns the notices, to note something; creates them if necessary.
    #[cold]
    pub(crate) fn notices(&self) -> &Notices {
        self.notices.get_or_init(Box::default)
    }

    /// Returns the notices, to change them; creates them if necessary.
    #[cold]
    pub(crate) fn notices_mut(&mut self) -> &mut Notices {
        self.notices();
        self.notices.get_mut().expect("they were made")
    }

    /// Returns the notices, if anything was noted.
    #[inline]
    pub(crate) fn noted(&mut self) -> Option<&mut Notices> {
        self.notices.get_mut().map(|notices| &mut **notices)
    }

    /// Returns true if keys that clients may wait for were changed.
    #[inline]
    pub(crate) fn has_ready(&self) -> bool {
        self.notices.get().is_some_and(|notices| notices.ready.len() > 0)
    }

    /// Takes these keys.
    pub(crate) fn take_ready(&mut self) -> Vec<WaitKey> {
        self.noted().map_or_else(Vec::new, |notices| notices.ready.take())
    }

    /// Returns true if there is nothing to deliver; always false while there is a log.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.batch.is_none() && self.due_position.is_none() && self.notices.get().is_none()
    }

    #[inline]
    pub(crate) fn interest(&self) -> Interest {
        self.interest
    }

    #[inline]
    pub(crate) fn origin(&self) -> Origin {
        self.origin
    }

    #[inline]
    pub(crate) fn set_origin(&mut self, origin: Origin) {
        self.origin = origin;
    }

    /// Reads the listeners again. Call it with shards locked in which nothing has changed yet. So every change is
    /// either logged or seen by a pass over all keys that begins after [`Keyspace::begin_logging`].
    #[inline]
    pub(crate) fn look_for_interest(&mut self, keyspace: &'k Keyspace) {
        let interest = keyspace.interest.get();
        if interest != self.interest {
            self.adopt(interest, keyspace);
        }
    }

    /// Stops recording for followers until [`Effects::record_again`]. Records nothing at all, unless the log is
    /// durable.
    pub(crate) fn leave_out_followers(&mut self) -> Unrecorded<'k> {
        let interest = self.interest;
        if interest.includes(Interest::DURABLE) {
            return Unrecorded { interest, batch: None };
        }
        self.interest.set(Interest::LOG, false);
        Unrecorded { interest, batch: self.batch.take() }
    }

    /// Resumes recording.
    pub(crate) fn record_again(&mut self, before: Unrecorded<'k>) {
        self.interest = before.interest;
        if before.batch.is_some() {
            self.batch = before.batch;
        }
    }

    /// Adopts the current event classes; may be called at any time. The log is not adopted here: it begins and ends
    /// with the locks.
    pub(crate) fn look_for_classes(&mut self, keyspace: &'k Keyspace) {
        self.interest = self.interest.with_classes_of(keyspace.interest.get());
    }

    #[cold]
    fn adopt(&mut self, interest: Interest, keyspace: &'k Keyspace) {
        self.interest = interest;
        if interest.includes(Interest::LOG) != self.batch.is_some() {
            self.batch = batch(keyspace, interest);
        }
    }

    /// Adopts the current broadcast mode, whatever has changed already.
    pub(crate) fn adopt_broadcast(&mut self, keyspace: &Keyspace) {
        let is_on = keyspace.interest.get().includes(Interest::BROADCAST);
        self.interest.set(Interest::BROADCAST, is_on);
    }

    /// Appends the changes to the log and delivers their events. Call it before a shard is unlocked. Returns true if
    /// a command's change was logged, or a reply tells of earlier ones.
    // Inlined wherever a shard is unlocked, as most requests do: usually there is nothing to do, and a call costs as
    // much as the check.
    #[inline(always)]
    pub(crate) fn commit(&mut self, keyspace: &Keyspace) -> bool {
        let has_logged = match self.due_position {
            None => self.batch.as_ref().is_some_and(Batch::append),
            Some(_) => self.commit_with_position(keyspace),
        };
        if let Some(notices) = self.noted() {
            return has_logged | notices.tell(keyspace);
        }
        has_logged
    }
}

impl Notices {
    /// Returns true if a reply tells of changes that are in the log already.
    #[cold]
    fn tell(&mut self, keyspace: &Keyspace) -> bool {
        if !self.events.is_empty() {
            self.events.deliver(keyspace.event_sink());
        }
        if !self.invalidated.is_empty() {
            self.invalidated.tell(&keyspace.cached);
        }
        self.tells_of_logged.take()
    }
}

/// Recording state from before a part that is not recorded.
pub(crate) struct Unrecorded<'k> {
    interest: Interest,
    batch: Option<Batch<'k>>,
}

/// Amount of collected effects at a moment.
#[derive(Debug, Clone, Copy)]
pub(crate) struct EffectsMark {
    batch: BatchMark,
    ready: usize,
    touched: usize,
    events: usize,
}

/// For an undo log.
impl Effects<'_> {
    /// Returns the position for [`Effects::truncate`].
    pub(crate) fn mark(&self) -> EffectsMark {
        let batch = self.batch.as_ref().map_or_else(BatchMark::default, Batch::mark);
        let mark = EffectsMark { batch, ready: 0, touched: 0, events: 0 };
        let Some(notices) = self.notices.get() else { return mark };
        EffectsMark {
            ready: notices.ready.len(),
            touched: notices.touched.len(),
            events: notices.events.len(),
            ..mark
        }
    }

    /// Forgets everything collected since that mark.
    pub(crate) fn truncate(&mut self, to: EffectsMark) {
        if let Some(batch) = &self.batch
            && !planted::is(Fault::UndoOfRecords)
        {
            batch.truncate(to.batch);
        }
        let Some(notices) = self.noted() else { return };
        if !planted::is(Fault::UndoOfReadyKeys) {
            notices.ready.truncate(to.ready);
        }
        if !planted::is(Fault::UndoOfTouchedKeys) {
            notices.touched.truncate(to.touched);
        }
        if !planted::is(Fault::UndoOfEvents) {
            notices.events.truncate(to.events);
        }
    }

    /// With `is_held`, defers the records: nothing reaches the log on disk until the locks end or this is called with
    /// `false`.
    pub(crate) fn hold(&self, is_held: bool) {
        if let Some(batch) = &self.batch {
            batch.hold(is_held);
        }
    }

    /// Bytes that are pending for the log on disk.
    pub(crate) fn unlogged_len(&self) -> usize {
        self.batch.as_ref().map_or(0, Batch::len)
    }
}

#[inline]
fn batch(keyspace: &Keyspace, interest: Interest) -> Option<Batch<'_>> {
    keyspace
        .log()
        .filter(|_| interest.includes(Interest::LOG))
        .map(|log| Batch::new(log, RecordKind::Change))
}

impl Effects<'_> {
    /// Commits the changes together with the offset that they reach.
    #[cold]
    pub(crate) fn commit_with_position(&mut self, keyspace: &Keyspace) -> bool {
        let Some(Due { mut position, is_forced, is_own }) = self.due_position else { return false };
        let Some(batch) = &self.batch else {
            // Without a log, the offset of the data cannot be stored.
            self.due_position = None;
            *keyspace.stream_position.lock() = None;
            return false;
        };
        if !is_forced && batch.is_unchanged() {
            return batch.append();
        }
        self.due_position = None;
        let mut known = keyspace.stream_position.lock();
        if !is_own && !keyspace.is_following() {
            // This server is a primary by now, and its clients may have made changes outside of the stream.
            position = None;
        }
        *known = position;
        batch.record_position(position.as_ref());
        batch.append()
    }

    /// Sets the database that is selected at the pending offset.
    pub(crate) fn select_in_lead(&mut self, db: DbIndex) {
        if let Some(Due { position: Some(position), .. }) = &mut self.due_position {
            position.db = db;
        }
    }

    /// Sets the offset that the next changes reach, or none.
    pub(crate) fn lead_to(&mut self, position: Option<StreamPosition>, is_forced: bool) {
        self.due_position = Some(Due { position, is_forced, is_own: false });
    }

    /// Sets this server's final offset in its own stream; the data do not change afterwards.
    pub(crate) fn end_at(&mut self, position: StreamPosition) {
        self.due_position = Some(Due { position: Some(position), is_forced: true, is_own: true });
    }
}
