//! What a thread has done under its locks and must report to others: collected while the shards are locked,
//! and delivered before they are unlocked.

use std::cell::OnceCell;

use crate::access::keyspace::Keyspace;
use crate::change::event::{Events, Origin};
use crate::change::interest::Interest;
use crate::change::log::batch::{Batch, BatchMark};
use crate::change::log::sink::RecordKind;
use crate::change::stream_place::{Due, StreamPlace};
use crate::db_index::DbIndex;
use crate::planted::{self, Fault};
use crate::registries::cached::Invalidated;
use crate::registries::waiters::{Ready, WaitKey};
use crate::registries::watch::touched::Touched;

/// The effects of what one guard does.
#[derive(Debug)]
pub(crate) struct Effects<'k> {
    /// The listeners to changes of all shards, as of the moment when the first one was locked.
    interest: Interest,
    origin: Origin,
    /// Operations for the log, if there is one.
    pub(crate) batch: Option<Batch<'k>>,
    /// The place in a stream that this leads to.
    pub(crate) due_place: Option<Due>,
    /// Made when there is something to tell: mostly there is nothing.
    notices: OnceCell<Box<Notices>>,
    #[cfg(debug_assertions)]
    pub(crate) naming: crate::change::event::Naming,
}

/// Notes of what clients and listeners are to be told of.
#[derive(Debug, Default)]
pub(crate) struct Notices {
    /// Keys that were changed and that a client may wait for. They outlive the locks.
    pub(crate) ready: Ready,
    /// Keys that were changed and are watched.
    pub(crate) touched: Touched,
    pub(crate) events: Events,
    /// Keys that were changed and that clients may have cached.
    pub(crate) invalidated: Invalidated,
}

impl<'k> Effects<'k> {
    #[inline]
    pub(crate) fn new(keyspace: &'k Keyspace) -> Self {
        let interest = keyspace.interest.get();
        Self {
            interest,
            origin: Origin::SERVER,
            batch: batch(keyspace, interest),
            due_place: None,
            notices: OnceCell::new(),
            #[cfg(debug_assertions)]
            naming: crate::change::event::Naming::default(),
        }
    }

    /// The notices, made if there are none, to note something.
    #[cold]
    pub(crate) fn notices(&self) -> &Notices {
        self.notices.get_or_init(Box::default)
    }

    /// The notices, made if there are none, to change them.
    #[cold]
    pub(crate) fn notices_mut(&mut self) -> &mut Notices {
        self.notices();
        self.notices.get_mut().expect("they were made")
    }

    /// The notices, if anything was noted.
    #[inline]
    pub(crate) fn noted(&mut self) -> Option<&mut Notices> {
        self.notices.get_mut().map(|notices| &mut **notices)
    }

    /// `true` if keys were changed that clients may wait for.
    #[inline]
    pub(crate) fn has_ready(&self) -> bool {
        self.notices.get().is_some_and(|notices| notices.ready.len() > 0)
    }

    /// These keys. None are left.
    pub(crate) fn take_ready(&mut self) -> Vec<WaitKey> {
        self.noted().map_or_else(Vec::new, |notices| notices.ready.take())
    }

    /// True if nothing is to be handed over; never while there is a log.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.batch.is_none() && self.due_place.is_none() && self.notices.get().is_none()
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

    /// To be called with shards locked in which nothing has changed yet. So there is no change that
    /// is neither seen by a pass over all keys that begins after logging ([`Keyspace::begin_logging`])
    /// nor logged.
    #[inline]
    pub(crate) fn look_for_interest(&mut self, keyspace: &'k Keyspace) {
        let interest = keyspace.interest.get();
        if interest != self.interest {
            self.adopt(interest, keyspace);
        }
    }

    /// Records nothing for followers until [`Effects::record_again`]; nothing at all, unless the log is durable.
    pub(crate) fn leave_out_followers(&mut self) -> Unrecorded<'k> {
        let interest = self.interest;
        if interest.includes(Interest::DURABLE) {
            return Unrecorded { interest, batch: None };
        }
        self.interest.set(Interest::LOG, false);
        Unrecorded { interest, batch: self.batch.take() }
    }

    /// Ends that.
    pub(crate) fn record_again(&mut self, before: Unrecorded<'k>) {
        self.interest = before.interest;
        if before.batch.is_some() {
            self.batch = before.batch;
        }
    }

    /// Adopts the classes of events that are collected from now on; to be called at any time. That there is a log
    /// is another thing: it begins and ends with the locks.
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

    /// Adopts whether every change is told, whatever has changed already.
    pub(crate) fn adopt_broadcast(&mut self, keyspace: &Keyspace) {
        let is_on = keyspace.interest.get().includes(Interest::BROADCAST);
        self.interest.set(Interest::BROADCAST, is_on);
    }

    /// Appends to the log what has changed, and delivers the events of it; to be called before a shard is
    /// unlocked. Whether there was anything in the log that a command did.
    // In line wherever a shard is unlocked, which most requests do: mostly there is nothing, and a call costs as much
    // as looking.
    #[inline(always)]
    pub(crate) fn commit(&mut self, keyspace: &Keyspace) -> bool {
        let has_logged = match self.due_place {
            None => self.batch.as_ref().is_some_and(Batch::append),
            Some(_) => self.commit_with_place(keyspace),
        };
        if let Some(notices) = self.noted() {
            notices.tell(keyspace);
        }
        has_logged
    }
}

impl Notices {
    #[cold]
    fn tell(&mut self, keyspace: &Keyspace) {
        if !self.events.is_empty() {
            self.events.deliver(keyspace.event_sink());
        }
        if !self.invalidated.is_empty() {
            self.invalidated.tell(&keyspace.cached);
        }
    }
}

/// What was recorded before a part that is not.
pub(crate) struct Unrecorded<'k> {
    interest: Interest,
    batch: Option<Batch<'k>>,
}

/// How much was collected at a moment.
#[derive(Debug, Clone, Copy)]
pub(crate) struct EffectsMark {
    batch: BatchMark,
    ready: usize,
    touched: usize,
    events: usize,
}

/// For an undo log.
impl Effects<'_> {
    /// Where [`Effects::truncate`] goes back to.
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

    /// Forgets what was collected since then.
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

    /// With `is_held`, nothing reaches the log on disk until the locks end or this is called without.
    pub(crate) fn hold(&self, is_held: bool) {
        if let Some(batch) = &self.batch {
            batch.hold(is_held);
        }
    }

    /// Bytes that wait for the log on disk.
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
    /// Commits what leads to a place.
    #[cold]
    pub(crate) fn commit_with_place(&mut self, keyspace: &Keyspace) -> bool {
        let Some(Due { mut place, is_forced, is_own }) = self.due_place else { return false };
        let Some(batch) = &self.batch else {
            // It cannot be told from the log where the data are.
            self.due_place = None;
            *keyspace.stream_place.lock() = None;
            return false;
        };
        if !is_forced && batch.is_unchanged() {
            return batch.append();
        }
        self.due_place = None;
        let mut known = keyspace.stream_place.lock();
        if !is_own && !keyspace.is_following() {
            // A primary by now, whose clients may have changed what is no part of the stream.
            place = None;
        }
        *known = place;
        batch.record_place(place.as_ref());
        batch.append()
    }

    /// Another database is selected at the place.
    pub(crate) fn select_in_lead(&mut self, db: DbIndex) {
        if let Some(Due { place: Some(place), .. }) = &mut self.due_place {
            place.db = db;
        }
    }

    /// What is done next leads to this place, or to none.
    pub(crate) fn lead_to(&mut self, place: Option<StreamPlace>, is_forced: bool) {
        self.due_place = Some(Due { place, is_forced, is_own: false });
    }

    /// The data are those of this place in the stream of this server, and do not change any more.
    pub(crate) fn end_at(&mut self, place: StreamPlace) {
        self.due_place = Some(Due { place: Some(place), is_forced: true, is_own: true });
    }
}
