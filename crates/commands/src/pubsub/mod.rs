//! Publish/subscribe: the subscribers of each channel, and the delivery of messages to them. This module knows no
//! sockets.
//!
//! A message takes two steps. The publisher, on any thread, looks up the workers with receivers and posts a delivery to
//! the inbox of each. Every worker has its own map from names to connections (`Receivers`) and delivers from there. So
//! a publisher never waits for a reader, connections only see messages that they subscribe to, and each message is
//! encoded once.
//!
//! Invariants:
//! * A channel's lock is held while its subscriptions change and while a message for it is posted or enters the
//!   backlog. So `PUBLISH` returns exactly the number of subscriptions that get the message, and all subscribers get
//!   the messages of a channel in one order.
//! * Deliveries of a worker have consecutive numbers. A connection has seen those below `Subscriptions::seen`. It gets
//!   each of the others once, from its worker or, before and after its own commands, from [`PubSub::catch_up`].
//! * Locks are taken in this order: channel, patterns or backlog, prefixes, receivers, inbox. No lock of the keyspace
//!   is taken while one of them is held, so [`PubSub::publish`] may be called with shards locked.
//!
//! Invalidations for clients that cache keys use the same path (`trackers`).

mod backlog;
mod frame;
mod inbox;
mod lengths;
mod names;
mod patterns;
mod receivers;
mod registry;
mod run;
mod subscriptions;
mod trackers;

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use parking_lot::{Mutex, RwLock};
use tierce_keyspace::planted::{self, Fault};
use tierce_keyspace::{InvalidatedKey, interleaving};
use tierce_output::Output;
use tierce_wire::resp::Proto;

use self::backlog::{Backlog, Count, Queued};
use self::frame::{Frame, Message};
use self::inbox::{Delivery, Inbox};
use self::names::{Added, Audiences};
use self::patterns::{Patterns, Resume};
use self::receivers::Receivers;
use self::registry::{Audience, Channels, Registry};
use self::trackers::Trackers;
use crate::acl::Users;
use crate::waiting::ConnAddress;

pub use self::inbox::{Pending, To};
pub use self::names::{Kind, Name};
pub use self::run::Run;
pub use self::subscriptions::Subscriptions;
pub use self::trackers::{Invalidation, Redirect, Tracker, TrackingMode};

/// Number of patterns that a publisher matches before it checks for changed subscriptions, about 100 µs of work.
const PATTERNS_PER_STEP: usize = 1_000;

/// All subscriptions, and the messages on their way.
pub struct PubSub {
    channels: Registry,
    shard_channels: Registry,
    patterns: RwLock<Patterns>,
    /// Number of patterns, readable without the lock.
    pattern_count: AtomicUsize,
    /// Length of the longest pattern, readable without the lock.
    pattern_len_max: AtomicUsize,
    /// Bytes of all names with subscriptions.
    name_bytes: AtomicUsize,
    trackers: Trackers,
    /// Listener that is told if any client tracks keys.
    tracking: OnceLock<Box<dyn TrackingListener>>,
    /// Users whose rights limit the key names that clients are told.
    users: OnceLock<Arc<Users>>,
    /// Messages that many patterns may match.
    backlog: Backlog,
    workers: Box<[Worker]>,
    /// Notifies a worker that its inbox has deliveries.
    wake: OnceLock<Wake>,
}

type Wake = Box<dyn Fn(u16) + Send + Sync>;

/// Is told if there are clients to notify of changes. Called with a lock held, so that the calls are in order.
pub trait TrackingListener: Send + Sync {
    /// `is_any` is true if any client tracks keys.
    fn has_trackers(&self, is_any: bool);

    /// `is_any` is true if any client is told of every change.
    fn has_prefixes(&self, is_any: bool);
}

/// Data of one worker.
#[derive(Default)]
struct Worker {
    inbox: Inbox,
    /// Locked only by this worker, except for statistics.
    receivers: Mutex<Receivers>,
}

impl PubSub {
    /// Creates it without subscriptions.
    #[must_use]
    pub fn new(workers: usize) -> Self {
        Self {
            channels: Registry::default(),
            shard_channels: Registry::default(),
            patterns: RwLock::default(),
            pattern_count: AtomicUsize::new(0),
            pattern_len_max: AtomicUsize::new(0),
            name_bytes: AtomicUsize::new(0),
            trackers: Trackers::default(),
            tracking: OnceLock::new(),
            users: OnceLock::new(),
            backlog: Backlog::default(),
            workers: (0..workers).map(|_| Worker::default()).collect(),
            wake: OnceLock::new(),
        }
    }

    /// Sets the function that notifies a worker when its inbox is no longer empty. A second call has no effect.
    pub fn on_delivery(&self, wake: impl Fn(u16) + Send + Sync + 'static) {
        let _ = self.wake.set(Box::new(wake));
    }

    /// Sets the users whose rights limit the key names that clients are told. A second call has no effect.
    pub fn set_users(&self, users: &Arc<Users>) {
        let _ = self.users.set(Arc::clone(users));
    }

    /// Sets the listener that is told if clients track keys. A second call has no effect.
    pub fn on_tracking(&self, listener: impl TrackingListener + 'static) {
        let _ = self.tracking.set(Box::new(listener));
    }

    /// Sends `message` to the subscribers of `channel` and of the patterns that match it, from any thread. Returns the
    /// number of subscriptions that get it. `from` is the calling worker: it checks its inbox at the end of its turn,
    /// and need not be notified.
    pub fn publish(&self, channel: &[u8], message: &[u8], from: Option<u16>) -> usize {
        if !self.has_subscribers() {
            return 0;
        }
        interleaving::pass("publish");
        let mut audiences = self.channels.lock(channel);
        if audiences.has_waiting(channel) {
            let count = self.enter_backlog(&mut audiences, channel, message);
            drop(audiences);
            return self.wait_for(&count);
        }
        self.publish_locked(&audiences, channel, message, from)
    }

    /// Posts a message. The channel is locked.
    fn publish_locked(
        &self,
        audiences: &Channels,
        channel: &[u8],
        message: &[u8],
        from: Option<u16>,
    ) -> usize {
        let mut post = Post { pubsub: self, channel, message, from, encoded: None, count: 0 };
        if let Some((name, audience)) = audiences.get(channel) {
            post.to(Kind::Channel, name, audience);
        }
        // The channel stays locked, so that patterns get its messages in the same order.
        if self.count(Kind::Pattern) > 0 {
            self.patterns.read().each_match(channel, |name, audience| {
                post.to(Kind::Pattern, name, audience);
            });
        }
        post.count
    }

    /// Like [`PubSub::publish`], for so many patterns that matching takes long. They are matched in steps without a
    /// lock, after all earlier messages are published. A client that subscribes or unsubscribes meanwhile may or may
    /// not get the message, but the count is right.
    pub fn publish_in_steps(&self, channel: &[u8], message: &[u8]) -> usize {
        let count = self.enter_backlog(&mut self.channels.lock(channel), channel, message);
        self.wait_for(&count)
    }

    /// Publishes a message whose sender does not wait, from any thread. If this takes more than `work` (see
    /// [`PubSub::weight_of_patterns`]), or older messages wait, the publishing thread does it later, if there is one.
    /// So the messages of one thread keep their order. Returns the part of `work` that was used.
    pub fn notify(&self, channel: &[u8], message: &[u8], work: usize) -> usize {
        if !self.has_subscribers() {
            return 0;
        }
        interleaving::pass("publish");
        let mut audiences = self.channels.lock(channel);
        let weight = if self.backlog.is_empty() { self.weight(channel, work) } else { usize::MAX };
        if weight <= work {
            self.publish_locked(&audiences, channel, message, None);
            return weight;
        }
        let count = self.enter_backlog(&mut audiences, channel, message);
        drop(audiences);
        if !self.backlog.has_publisher() {
            self.wait_for(&count);
        }
        0
    }

    /// Waits for the next message in the backlog and publishes it. Returns false if there is no publisher any more. A
    /// thread calls it in a loop, between [`PubSub::set_publisher`] with `true` and with `false`.
    pub fn publish_next(&self) -> bool {
        self.backlog.publish_next(|queued| self.publish_queued(queued))
    }

    /// Sets whether there is a thread that publishes the backlog.
    pub fn set_publisher(&self, is_there: bool) {
        self.backlog.set_publisher(is_there);
    }

    fn enter_backlog(&self, audiences: &mut Channels, channel: &[u8], message: &[u8]) -> Count {
        audiences.count_waiting(channel);
        self.backlog.push(channel, message, self.weight_bound(channel))
    }

    fn wait_for(&self, count: &Count) -> usize {
        self.backlog.wait_for(count, |queued| self.publish_queued(queued))
    }

    /// Publishes a message from the backlog. No other message of its channel is published meanwhile.
    fn publish_queued(&self, Queued { channel, message, .. }: &Queued) -> usize {
        let count = self.post_in_steps(channel, message);
        self.channels.lock(channel).count_published(channel);
        count
    }

    fn post_in_steps(&self, channel: &[u8], message: &[u8]) -> usize {
        let mut post = Post { pubsub: self, channel, message, from: None, encoded: None, count: 0 };
        if let Some((name, audience)) = self.channels.lock(channel).get(channel) {
            post.to(Kind::Channel, name, audience);
        }
        let mut resume = Some(Resume::default());
        while let Some(at) = resume.take() {
            let (mut candidates, mut next) = (Vec::new(), None);
            let step = self.patterns.read().candidates(channel, at, |name, place| {
                candidates.push(Arc::clone(name));
                if candidates.len() < PATTERNS_PER_STEP {
                    return ControlFlow::Continue(());
                }
                next = Some(place);
                ControlFlow::Break(())
            });
            if step.is_break() {
                resume = next;
            }
            candidates.retain(|pattern| patterns::is_match(pattern, channel));
            let patterns = self.patterns.read();
            for pattern in &candidates {
                if let Some(audience) = patterns.get(pattern) {
                    post.to(Kind::Pattern, pattern, audience);
                }
            }
        }
        post.count
    }

    /// Returns the work to find the patterns that match `channel`, in patterns of usual length. A result up to `enough`
    /// may be inexact. Waiting for other messages of the channel counts as unlimited.
    #[must_use]
    pub fn weight_of_patterns(&self, channel: &[u8], enough: usize) -> usize {
        if !self.backlog.is_empty() && self.channels.lock(channel).has_waiting(channel) {
            return usize::MAX;
        }
        self.weight(channel, enough)
    }

    /// Returns an upper bound of this work.
    fn weight_bound(&self, channel: &[u8]) -> usize {
        let longest = self.pattern_len_max.load(Ordering::Relaxed);
        self.count(Kind::Pattern).saturating_mul(patterns::weight(longest, channel.len()))
    }

    fn weight(&self, channel: &[u8], enough: usize) -> usize {
        let bound = self.weight_bound(channel);
        if bound <= enough {
            return bound;
        }
        let mut weight = 0_usize;
        let _ = self.patterns.read().candidates(channel, Resume::default(), |pattern, _| {
            weight = weight.saturating_add(patterns::weight(pattern.len(), channel.len()));
            if weight > enough { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        weight
    }

    /// Sends `message` to the subscribers of a shard channel; see [`PubSub::publish`].
    pub fn publish_to_shard(&self, channel: &[u8], message: &[u8], from: Option<u16>) -> usize {
        if self.shard_channels.is_empty() {
            return 0;
        }
        let mut post = Post { pubsub: self, channel, message, from, encoded: None, count: 0 };
        if let Some((name, audience)) = self.shard_channels.lock(channel).get(channel) {
            post.to(Kind::ShardChannel, name, audience);
        }
        post.count
    }

    /// Returns true if publishers have to wait because too many deliveries or too much matching work is pending.
    /// Callers of [`PubSub::publish`] that can wait do so.
    #[must_use]
    #[inline]
    pub fn is_congested(&self) -> bool {
        self.workers.iter().any(|worker| worker.inbox.is_full()) || self.backlog.is_full()
    }

    /// Adds a subscription of a connection. Writes the messages published before to `output` first.
    pub fn subscribe(
        &self,
        subscriptions: &mut Subscriptions,
        kind: Kind,
        name: &[u8],
        output: &mut Output,
        proto: Proto,
    ) {
        let conn = subscriptions.conn;
        let worker = &self.workers[usize::from(conn.worker)];
        self.with_audiences(kind, name, |audiences| {
            self.catch_up(subscriptions, output, proto);
            if subscriptions.has(kind, name) {
                return;
            }
            let Added { name, is_new } = audiences.add(name, conn.worker);
            if is_new {
                self.name_bytes.fetch_add(name.len(), Ordering::Relaxed);
            }
            worker.receivers.lock().add(kind, &name, conn);
            subscriptions.add(kind, name);
        });
    }

    /// Removes a subscription of a connection. Writes the messages published before to `output` first.
    pub fn unsubscribe(
        &self,
        subscriptions: &mut Subscriptions,
        kind: Kind,
        name: &[u8],
        output: &mut Output,
        proto: Proto,
    ) {
        self.with_audiences(kind, name, |audiences| {
            self.catch_up(subscriptions, output, proto);
            if subscriptions.remove(kind, name) {
                self.forget(audiences, kind, name, subscriptions.conn);
            }
        });
    }

    /// Removes all subscriptions of a connection that ends.
    pub fn leave(&self, subscriptions: &mut Subscriptions) {
        if subscriptions.tracker().is_some() {
            self.untrack(subscriptions);
        }
        for kind in Kind::ALL {
            for name in subscriptions.names(kind) {
                self.with_audiences(kind, name, |audiences| {
                    self.forget(audiences, kind, name, subscriptions.conn);
                });
            }
        }
    }

    fn forget(&self, audiences: &mut dyn Audiences, kind: Kind, name: &[u8], conn: ConnAddress) {
        if audiences.remove(name, conn.worker) {
            self.name_bytes.fetch_sub(name.len(), Ordering::Relaxed);
        }
        self.workers[usize::from(conn.worker)].receivers.lock().remove(kind, name, conn);
    }

    fn with_audiences(&self, kind: Kind, name: &[u8], act: impl FnOnce(&mut dyn Audiences)) {
        interleaving::pass("subscribe");
        match kind {
            Kind::Channel => act(&mut *self.channels.lock(name)),
            Kind::ShardChannel => act(&mut *self.shard_channels.lock(name)),
            Kind::Pattern => {
                let mut patterns = self.patterns.write();
                act(&mut *patterns);
                self.pattern_count.store(patterns.len(), Ordering::SeqCst);
                self.pattern_len_max.store(patterns.len_max(), Ordering::Relaxed);
            }
            Kind::Prefix => {
                let mut prefixes = self.trackers.prefixes().write();
                let was_any = prefixes.len() > 0;
                act(&mut *prefixes);
                let is_any = prefixes.len() > 0;
                if let Some(listener) = self.tracking.get().filter(|_| is_any != was_any) {
                    listener.has_prefixes(is_any);
                }
            }
        }
    }

    /// Writes the messages that were published for a connection and are not delivered yet. The connection's worker
    /// calls it between two replies.
    pub fn catch_up(&self, subscriptions: &mut Subscriptions, output: &mut Output, proto: Proto) {
        let worker = &self.workers[usize::from(subscriptions.conn.worker)];
        if worker.inbox.end() == subscriptions.seen {
            return;
        }
        if planted::is(Fault::CommandsDropMessages) {
            subscriptions.seen = worker.inbox.end();
            return;
        }
        let receivers = worker.receivers.lock();
        let seen = subscriptions.seen;
        if let Some(run) = &receivers.current
            && subscriptions.gets(&run.to)
        {
            run.write_unseen(seen, subscriptions, output, proto);
        }
        let end = worker.inbox.each_unseen(subscriptions, |subscriptions, delivery| {
            subscriptions.write(&delivery.frame, output, proto);
        });
        subscriptions.seen = end;
        self.redirect(subscriptions);
    }

    /// Writes the unseen messages of a run for a connection, and returns their bytes. Called by its worker.
    pub fn receive(
        &self,
        run: &Run,
        subscriptions: Option<&mut Subscriptions>,
        output: &mut Output,
        proto: Proto,
    ) -> usize {
        let Some(subscriptions) = subscriptions else { return run.write_to_other(output, proto) };
        let bytes = run.write(subscriptions, output, proto);
        self.redirect(subscriptions);
        bytes
    }

    /// Writes an invalidation for a connection, which may have redirected it. Called by its worker.
    pub fn tell(
        &self,
        subscriptions: &mut Subscriptions,
        invalidation: Invalidation,
        output: &mut Output,
        proto: Proto,
    ) {
        subscriptions.write(&Frame::Invalidation(invalidation), output, proto);
        self.redirect(subscriptions);
    }

    /// Forwards the invalidations that a connection has redirected.
    fn redirect(&self, subscriptions: &mut Subscriptions) {
        for delivery in subscriptions.redirected.drain(..) {
            let To::Client(conn) = delivery.to else { continue };
            self.post(conn.worker, delivery, Some(subscriptions.conn.worker));
        }
    }

    /// Begins to track keys for a connection, or changes its tracking mode.
    pub fn track(&self, subscriptions: &mut Subscriptions, tracker: Tracker) {
        let is_broadcast = tracker.mode == TrackingMode::Broadcast;
        subscriptions.tracker = Some(tracker);
        self.trackers.add(subscriptions.conn, is_broadcast, |is_any| self.note_trackers(is_any));
    }

    /// Stops tracking keys for a connection.
    pub fn untrack(&self, subscriptions: &mut Subscriptions) {
        subscriptions.tracker = None;
        self.trackers.remove(subscriptions.conn, |is_any| self.note_trackers(is_any));
    }

    fn note_trackers(&self, is_any: bool) {
        if let Some(listener) = self.tracking.get() {
            listener.has_trackers(is_any);
        }
    }

    /// Returns the number of connections that track keys.
    #[inline]
    #[must_use]
    pub fn tracker_count(&self) -> usize {
        self.trackers.count()
    }

    /// Returns true if the connection of this client tracks the keys that it reads.
    #[must_use]
    pub fn tracks(&self, client: u64) -> bool {
        self.trackers.reader(client).is_some()
    }

    /// Tells the clients that track these keys that they have changed, from any thread.
    pub fn invalidate(&self, keys: &[InvalidatedKey]) {
        for key in keys {
            let mut frame = None;
            for conn in key.readers().filter_map(|reader| self.trackers.reader(reader)) {
                let frame = frame.get_or_insert_with(|| {
                    let keys = std::iter::once(key.key());
                    Frame::Invalidation(Invalidation::of(keys, key.changed_by()))
                });
                self.post(
                    conn.worker,
                    Delivery { to: To::Client(conn), frame: frame.clone() },
                    None,
                );
            }
        }
        if keys.iter().any(InvalidatedKey::is_broadcast) {
            self.broadcast(keys);
        }
    }

    /// Tells clients of changed keys by prefixes. Adjacent keys that one client has changed share a message.
    fn broadcast(&self, keys: &[InvalidatedKey]) {
        let prefixes = self.trackers.prefixes().read();
        for of_client in keys.chunk_by(|one, next| one.changed_by() == next.changed_by()) {
            let mut by_prefix: BTreeMap<&Name, Vec<&[u8]>> = BTreeMap::new();
            for key in of_client.iter().filter(|key| key.is_broadcast()).map(InvalidatedKey::key) {
                prefixes.of(key).for_each(|prefix| by_prefix.entry(prefix).or_default().push(key));
            }
            for (prefix, keys) in by_prefix {
                let Some((_, audience)) = prefixes.get(prefix) else { continue };
                let changed_by = of_client[0].changed_by();
                let invalidation = Invalidation::of(keys.iter().copied(), changed_by);
                for (worker, _) in audience.workers() {
                    let to = To::Named(Kind::Prefix, Arc::clone(prefix));
                    let frame = Frame::Invalidation(invalidation.clone());
                    self.post(worker, Delivery { to, frame }, None);
                }
            }
        }
    }

    /// Tells all clients that track keys that all keys may have changed, from any thread.
    pub fn invalidate_all(&self) {
        self.trackers.each(|conn| {
            let frame = Frame::Invalidation(Invalidation::ALL);
            self.post(conn.worker, Delivery { to: To::Client(conn), frame }, None);
        });
    }

    /// Posts a delivery to a worker, and notifies it unless it is the calling worker `from`.
    fn post(&self, worker: u16, delivery: Delivery, from: Option<u16>) {
        let is_first = self.workers[usize::from(worker)].inbox.post(delivery);
        if is_first
            && from != Some(worker)
            && let Some(wake) = self.wake.get()
        {
            wake(worker);
        }
    }

    /// Returns true if a worker has deliveries.
    #[must_use]
    #[inline]
    pub fn has_deliveries(&self, worker: usize) -> bool {
        self.workers[worker].inbox.has_deliveries()
    }

    /// Returns the pending deliveries of a worker, unless it is delivering.
    #[must_use]
    pub fn pending(&self, worker: usize) -> Option<Pending> {
        let Worker { inbox, receivers } = &self.workers[worker];
        if receivers.lock().current.is_some() { None } else { inbox.pending() }
    }

    /// Calls `give` with the deliveries of a worker and each receiver, until the total cost reaches `budget`. `give`
    /// returns its cost. Only this worker calls it.
    pub fn deliver(
        &self,
        worker: usize,
        budget: usize,
        mut give: impl FnMut(ConnAddress, &Run) -> usize,
    ) {
        let Worker { inbox, receivers } = &self.workers[worker];
        let mut receivers = receivers.lock();
        let mut spent = 0;
        while spent < budget {
            let Receivers { current, .. } = &mut *receivers;
            let Some(mut run) = current.take().or_else(|| inbox.next_run()) else { return };
            let conns = match &run.to {
                To::Named(kind, name) => receivers.of(*kind, name),
                To::Client(conn) => std::slice::from_ref(conn),
            };
            // The list is processed from its end: when a connection leaves, the last one takes its index, and that one
            // already has the run. Connections that join have seen the run.
            run.left = run.left.min(conns.len());
            while run.left > 0 && spent < budget {
                run.left -= 1;
                spent += give(conns[run.left], &run);
            }
            if run.left > 0 {
                receivers.current = Some(run);
            } else {
                inbox.done(&run);
            }
        }
    }

    /// Returns the memory in bytes that all connections share: names with subscriptions, and messages on their way. All
    /// other memory of a subscription counts as memory of its client.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        let inboxes: usize = self.workers.iter().map(|worker| worker.inbox.bytes()).sum();
        self.name_bytes.load(Ordering::Relaxed) + self.backlog.bytes() + inboxes
    }

    fn has_subscribers(&self) -> bool {
        !self.channels.is_empty() || self.count(Kind::Pattern) > 0
    }

    /// Number of channels or patterns of this kind that have subscribers.
    #[must_use]
    pub fn count(&self, kind: Kind) -> usize {
        match kind {
            Kind::Channel => self.channels.len(),
            Kind::ShardChannel => self.shard_channels.len(),
            Kind::Pattern => self.pattern_count.load(Ordering::SeqCst),
            Kind::Prefix => self.trackers.prefixes().read().len(),
        }
    }

    /// Returns the channels with subscribers for which `select` returns true.
    pub fn channels(&self, kind: Kind, mut select: impl FnMut(&Name) -> bool) -> Vec<Name> {
        let mut names = Vec::new();
        self.registry(kind).each(|name| {
            if select(name) {
                names.push(Arc::clone(name));
            }
        });
        names
    }

    /// Returns the number of subscribers of a channel, without those of patterns.
    #[must_use]
    pub fn subscribers(&self, kind: Kind, channel: &[u8]) -> usize {
        self.registry(kind).lock(channel).get(channel).map_or(0, |(_, audience)| audience.count())
    }

    /// Returns the number of subscriptions that would get a message of a channel.
    #[must_use]
    pub fn receivers(&self, kind: Kind, channel: &[u8]) -> usize {
        let mut count = self.subscribers(kind, channel);
        if kind == Kind::Channel && self.count(Kind::Pattern) > 0 {
            self.patterns.read().each_match(channel, |_, audience| count += audience.count());
        }
        count
    }

    fn registry(&self, kind: Kind) -> &Registry {
        match kind {
            Kind::Channel | Kind::Pattern | Kind::Prefix => &self.channels,
            Kind::ShardChannel => &self.shard_channels,
        }
    }

    /// Creates the state of a connection of a worker, without subscriptions.
    #[must_use]
    pub fn newcomer(&self, conn: ConnAddress) -> Subscriptions {
        Subscriptions::new(conn, self.users.get().cloned())
    }
}

/// A message that is being posted.
struct Post<'a> {
    pubsub: &'a PubSub,
    channel: &'a [u8],
    message: &'a [u8],
    from: Option<u16>,
    /// Encoded for the first receiver.
    encoded: Option<Message>,
    count: usize,
}

impl Post<'_> {
    /// Posts it to the workers of an audience, which is locked.
    fn to(&mut self, kind: Kind, name: &Name, audience: &Audience) {
        let message = self.encoded.get_or_insert_with(|| {
            Message::encode(kind == Kind::ShardChannel, self.channel, self.message)
        });
        let part = message.part(kind, name);
        for (worker, count) in audience.workers() {
            self.count += count;
            let to = To::Named(kind, Arc::clone(name));
            let delivery = Delivery { to, frame: Frame::Message(part.clone()) };
            self.pubsub.post(worker, delivery, self.from);
        }
    }
}

#[cfg(test)]
mod tests;
