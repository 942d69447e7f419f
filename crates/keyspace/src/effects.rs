//! What a thread has done under its locks and must report to others: collected while the shards are locked,
//! and delivered before they are unlocked.

use crate::cached::Invalidated;
use crate::event::{Events, Origin};
use crate::interest::Interest;
use crate::keyspace::Keyspace;
use crate::log::pending::{Pending, PendingMark};
use crate::planted::{self, Fault};
use crate::stream_place::Due;
use crate::waiters::Ready;
use crate::watch::Touched;

/// The effects of what one guard does.
#[derive(Debug)]
pub(crate) struct Effects<'k> {
    /// The listeners to changes of all shards, as of the moment when the first one was locked.
    interest: Interest,
    origin: Origin,
    /// Operations for the log, if there is one.
    pub(crate) pending: Option<Pending<'k>>,
    /// The place in a stream that this leads to.
    pub(crate) due_place: Option<Due>,
    /// Keys that were changed and that a client may wait for. They outlive the locks.
    pub(crate) ready: Ready,
    /// Keys that were changed and are watched.
    pub(crate) touched: Touched,
    pub(crate) events: Events,
    /// Keys that were changed and that clients may have cached.
    pub(crate) invalidated: Invalidated,
    #[cfg(debug_assertions)]
    pub(crate) naming: crate::event::Naming,
}

impl<'k> Effects<'k> {
    #[inline]
    pub(crate) fn new(keyspace: &'k Keyspace) -> Self {
        let interest = keyspace.interest.get();
        Self {
            interest,
            origin: Origin::SERVER,
            pending: pending(keyspace, interest),
            due_place: None,
            ready: Ready::default(),
            touched: Touched::default(),
            events: Events::default(),
            invalidated: Invalidated::default(),
            #[cfg(debug_assertions)]
            naming: crate::event::Naming::default(),
        }
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
            return Unrecorded { interest, pending: None };
        }
        self.interest.set(Interest::LOG, false);
        Unrecorded { interest, pending: self.pending.take() }
    }

    /// Ends that.
    pub(crate) fn record_again(&mut self, before: Unrecorded<'k>) {
        self.interest = before.interest;
        if before.pending.is_some() {
            self.pending = before.pending;
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
        if interest.includes(Interest::LOG) != self.pending.is_some() {
            self.pending = pending(keyspace, interest);
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
            None => self.pending.as_mut().is_some_and(Pending::append),
            Some(_) => self.commit_with_place(keyspace),
        };
        if !self.events.is_empty() || !self.invalidated.is_empty() {
            self.tell(keyspace);
        }
        has_logged
    }

    #[cold]
    fn tell(&mut self, keyspace: &Keyspace) {
        if !self.events.is_empty() {
            self.events.deliver(keyspace);
        }
        if !self.invalidated.is_empty() {
            self.invalidated.tell(keyspace);
        }
    }
}

/// What was recorded before a part that is not.
pub(crate) struct Unrecorded<'k> {
    interest: Interest,
    pending: Option<Pending<'k>>,
}

/// How much was collected at a moment.
#[derive(Debug, Clone, Copy)]
pub(crate) struct EffectsMark {
    pending: PendingMark,
    ready: usize,
    touched: usize,
    events: usize,
}

/// For an undo log.
impl Effects<'_> {
    /// Where [`Effects::truncate`] goes back to.
    pub(crate) fn mark(&self) -> EffectsMark {
        EffectsMark {
            pending: self.pending.as_ref().map_or_else(PendingMark::default, Pending::mark),
            ready: self.ready.len(),
            touched: self.touched.len(),
            events: self.events.len(),
        }
    }

    /// Forgets what was collected since then.
    pub(crate) fn truncate(&mut self, to: EffectsMark) {
        if let Some(pending) = &self.pending
            && !planted::is(Fault::UndoOfRecords)
        {
            pending.truncate(to.pending);
        }
        if !planted::is(Fault::UndoOfReadyKeys) {
            self.ready.truncate(to.ready);
        }
        if !planted::is(Fault::UndoOfTouchedKeys) {
            self.touched.truncate(to.touched);
        }
        if !planted::is(Fault::UndoOfEvents) {
            self.events.truncate(to.events);
        }
    }

    /// With `is_held`, nothing reaches the log on disk until the locks end or this is called without.
    pub(crate) fn hold(&self, is_held: bool) {
        if let Some(pending) = &self.pending {
            pending.hold(is_held);
        }
    }

    /// Bytes that wait for the log on disk.
    pub(crate) fn pending_len(&self) -> usize {
        self.pending.as_ref().map_or(0, Pending::len)
    }
}

#[inline]
fn pending(keyspace: &Keyspace, interest: Interest) -> Option<Pending<'_>> {
    keyspace.log().filter(|_| interest.includes(Interest::LOG)).map(Pending::new)
}
