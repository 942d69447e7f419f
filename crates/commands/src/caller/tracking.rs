//! Key tracking of a caller, for client-side caching.

use std::sync::atomic::Ordering::Relaxed;

use super::Caller;
use tierce_output::Output;
use tierce_wire::resp::Args;

use crate::clients::ClientFlags;
use crate::command::{Command, Flags};
use crate::pubsub::{Invalidation, Kind, Name, PubSub, Subscriptions, Tracker, TrackingMode};

/// Tracking of a client, as reports show it.
#[derive(Clone, Debug)]
pub struct Tracking {
    /// Mode and options.
    pub tracker: Tracker,
    /// Prefixes, in order.
    pub prefixes: Vec<Name>,
}

impl Caller {
    /// Returns the tracker, if the client tracks keys.
    #[must_use]
    pub fn tracker(&self) -> Option<&Tracker> {
        self.subscriptions().and_then(Subscriptions::tracker)
    }

    /// Returns the tracking for reports. This works in an offloaded transaction, too.
    #[must_use]
    pub fn tracking(&self) -> Option<Tracking> {
        let Some(subscriptions) = self.subscriptions() else {
            return self.shown_tracking.as_deref().cloned();
        };
        let prefixes = subscriptions.names(Kind::Prefix).cloned().collect();
        Some(Tracking { tracker: subscriptions.tracker()?.clone(), prefixes })
    }

    /// Returns true if the client is told about changes of the keys that the current command reads.
    #[must_use]
    #[inline]
    pub fn remembers_reads(&self) -> bool {
        self.remembers_reads
    }

    /// Returns the invalidation that follows the reply to an offloaded call, if the client tracks the keys that the
    /// call reads. The connection gets messages meanwhile, so the invalidation of a key may arrive before a reply
    /// with the old value.
    #[must_use]
    pub fn reads_of(&self, command: &Command, args: Args<'_>) -> Option<Invalidation> {
        if !self.remembers_reads || !command.spec.flags.contains(Flags::READONLY) {
            return None;
        }
        let keys: Vec<_> = command.spec.key_indexes(args).map(|index| args.at(index)).collect();
        (!keys.is_empty()).then(|| Invalidation::of(keys.into_iter(), 0))
    }

    /// Writes or redirects an invalidation that came with a reply.
    pub fn invalidate(
        &mut self,
        pubsub: &PubSub,
        invalidation: Option<Invalidation>,
        output: &mut Output,
    ) {
        if let (Some(invalidation), Some(subscriptions)) = (invalidation, &mut self.subscriptions) {
            pubsub.tell(subscriptions, invalidation, output, self.proto);
            self.note_broken_redirect();
        }
    }

    /// Begins to track keys, or changes the options.
    pub fn track(&mut self, pubsub: &PubSub, tracker: Tracker, prefixes: &[&[u8]]) {
        let all = [b"".as_slice()];
        let prefixes = match tracker.mode {
            TrackingMode::Broadcast if prefixes.is_empty() => &all,
            _ => prefixes,
        };
        let newcomer = || Box::new(pubsub.newcomer(self.client.conn));
        let subscriptions = self.subscriptions.get_or_insert_with(newcomer);
        // Earlier messages are sent after the reply.
        let held = &mut **self.held_messages.get_or_insert_with(|| Box::new(Output::new()));
        pubsub.catch_up(subscriptions, held, self.proto);
        subscriptions.set_rights(&self.rights);
        pubsub.track(subscriptions, tracker);
        for prefix in prefixes {
            pubsub.subscribe(subscriptions, Kind::Prefix, prefix, held, self.proto);
        }
        self.note_subscriptions(Kind::Prefix);
        self.note_tracking();
    }

    /// Ends the tracking of keys.
    pub fn end_tracking(&mut self, pubsub: &PubSub) {
        if self.tracker().is_none() {
            return;
        }
        let Some(subscriptions) = self.subscriptions.as_deref_mut() else { return };
        let held = &mut **self.held_messages.get_or_insert_with(|| Box::new(Output::new()));
        pubsub.catch_up(subscriptions, held, self.proto);
        let prefixes: Vec<_> = subscriptions.names(Kind::Prefix).cloned().collect();
        for prefix in prefixes {
            pubsub.unsubscribe(subscriptions, Kind::Prefix, &prefix, held, self.proto);
        }
        pubsub.untrack(subscriptions);
        self.note_subscriptions(Kind::Prefix);
        self.note_tracking();
    }

    /// CLIENT CACHING: sets the exception from the tracking mode for the keys that the next command reads.
    pub fn set_caching(&mut self, is_given: bool) {
        if let Some(tracker) = self.subscriptions.as_mut().and_then(|all| all.tracker_mut()) {
            tracker.caching = is_given;
            self.remembers_reads = tracker.remembers_reads();
        }
    }

    /// Ends the effect of CLIENT CACHING after one command. It stays after another CLIENT command or a queued one.
    #[inline]
    pub fn end_caching(&mut self, command: Option<&Command>) {
        if self.subscriptions.is_some() && self.tracker().is_some_and(|tracker| tracker.caching) {
            let is_of_client =
                command.is_some_and(|command| command.full_name.starts_with("client|"));
            if !is_of_client && !self.is_in_transaction() {
                self.set_caching(false);
            }
        }
    }

    /// Shows other threads the tracking mode.
    pub(super) fn note_tracking(&mut self) {
        let tracker = self.tracker().cloned();
        self.remembers_reads = tracker.as_ref().is_some_and(Tracker::remembers_reads);
        let is = |test: fn(&Tracker) -> bool| tracker.as_ref().is_some_and(test);
        let client = &self.client;
        client.set(ClientFlags::TRACKING, tracker.is_some());
        client.set(ClientFlags::BROADCAST, is(|it| it.mode == TrackingMode::Broadcast));
        client.set(ClientFlags::BROKEN_REDIRECT, is(|it| it.is_broken));
        let redirect = tracker.as_ref().map(|it| it.redirect.as_ref().map_or(0, |to| to.id as i64));
        client.redirect.store(redirect.unwrap_or(-1), Relaxed);
    }
}
