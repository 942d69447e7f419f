//! The caller of a command: what the command may read and change of its client.
//!
//! Every caller of the kernel has one: a connection, the import of a file, a client that waits for keys,
//! for which another thread runs the command. It knows no socket.

mod tracking;

use std::iter;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use tierce_engine::feed::{Feed, Reader};
use tierce_keyspace::{DbIndex, KeyHash, Keyspace, Origin, Source, Touch, Watch};
use tierce_output::Output;
use tierce_wire::resp::{Args, Encoder, OwnedArgs, Proto};

pub use self::tracking::Tracking;
use crate::acl::{Attempt, Rights, Users};
use crate::clients::{Client, ClientFlags};
use crate::command::{Access, ChannelUse, Command, Table};
use crate::durability::SyncPolicy;
use crate::engine::Engine;
use crate::error::CommandError;
use crate::fault::Standing;
use crate::pubsub::{Invalidation, Kind, Name, PubSub, Run, Subscriptions};
use crate::replica_level::ReplicaLevel;
use crate::replication::Replica;
use crate::replication::role::Role;
use crate::transaction::{QueueIsFull, Transaction};
use crate::under_way::{Passage, Quiet};
use crate::waiting::{Awaited, Pending, ReplyTo, Waits};

/// So much is held of the messages of a client whose reply waits. It is no part of its output, which has limits.
const HELD_BYTES_MAX: usize = 1 << 20;

/// State of a caller that outlives a command.
pub struct Caller {
    /// The part that others may see.
    pub client: Arc<Client>,
    /// The protocol version of replies.
    pub proto: Proto,
    /// The selected database.
    pub db: DbIndex,
    /// May use commands other than those for authentication.
    pub authenticated: bool,
    /// The user that it is.
    rights: Rights,
    /// Its attempt to authenticate.
    pub attempt: Attempt,
    /// Watches all commands.
    pub monitor: bool,
    /// Whether replies are sent.
    pub reply_mode: ReplyMode,
    /// Does not renew access times of keys.
    pub no_touch: bool,
    /// What this client asked for in place of `appendfsync`.
    durability: Option<SyncPolicy>,
    /// What this client asked for in place of `durability-replicas`.
    replica_level: Option<ReplicaLevel>,
    /// What it has queued since MULTI.
    pub transaction: Option<Box<Transaction>>,
    /// The keys that it watches.
    watch: Option<Watch>,
    /// What it is as a replica, if it has said that it is one.
    replica: Option<Arc<Replica>>,
    /// The connection ends when everything up to the current reply is sent.
    pub closing: bool,
    /// A program has changed data since it was last asked whether a call has.
    pub program_has_written: bool,
    /// What it waits for.
    pub waits: Waits,
    /// What it subscribes to and how it tracks keys, if it does.
    subscriptions: Option<Box<Subscriptions>>,
    /// Counts how often it was told that a subscription has begun or ended.
    pub confirmations: usize,
    /// Messages that have to wait for the end of a transaction, while one is executed.
    held_messages: Option<Box<Output>>,
    /// Invalidations have come before a reply that may tell of what they are about.
    has_overtaken: bool,
    /// Commands for replicas that have to wait for the end of a transaction, while one is executed.
    held_for_replicas: Option<Vec<Vec<u8>>>,
    /// Its tracking, for a transaction that shows it and has run away from the worker, which keeps the subscriptions.
    shown_tracking: Option<Box<Tracking>>,
    /// Its request, while a thread beside workers executes that.
    pub(crate) passage: Option<Passage>,
    /// Its request has begun something, and replies when no earlier one of anybody is under way.
    pub(crate) quiet: Option<Box<Quiet>>,
    /// By what the transaction was judged that is executed, if it runs programs.
    pub(crate) standing: Option<Standing>,
    /// See [`Caller::remembers_reads`].
    remembers_reads: bool,
    /// See [`Caller::is_primary`].
    is_primary: bool,
}

/// `CLIENT REPLY`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ReplyMode {
    /// Replies are sent.
    On,
    /// None are sent.
    Off,
    /// The next one is not sent.
    SkipNext,
    /// The one of the current command is not sent.
    SkipThis,
}

impl ReplyMode {
    /// What it is for the next command.
    #[must_use]
    pub fn after_command(self) -> Self {
        match self {
            Self::SkipNext => Self::SkipThis,
            Self::SkipThis => Self::On,
            mode => mode,
        }
    }
}

impl Caller {
    /// A program that embeds the kernel, or the server itself: one with all rights. It may still have to
    /// authenticate.
    #[must_use]
    pub fn new(client: Arc<Client>, authenticated: bool) -> Self {
        Self::with_rights(client, Rights::unlimited(), authenticated)
    }

    /// A client that has just come: the default user, who may have to authenticate.
    #[must_use]
    pub fn of_client(client: Arc<Client>, users: &Users) -> Self {
        let rights = Rights::of_default_user(users);
        client.set_user(rights.user());
        Self::with_rights(client, rights, users.is_open())
    }

    /// One with these rights.
    #[must_use]
    pub fn with_rights(client: Arc<Client>, rights: Rights, authenticated: bool) -> Self {
        Self {
            client,
            proto: Proto::Resp2,
            db: DbIndex::ZERO,
            authenticated,
            rights,
            attempt: Attempt::default(),
            monitor: false,
            reply_mode: ReplyMode::On,
            no_touch: false,
            durability: None,
            replica_level: None,
            transaction: None,
            watch: None,
            replica: None,
            closing: false,
            program_has_written: false,
            waits: Waits::default(),
            subscriptions: None,
            confirmations: 0,
            held_messages: None,
            has_overtaken: false,
            held_for_replicas: None,
            shown_tracking: None,
            passage: None,
            quiet: None,
            standing: None,
            remembers_reads: false,
            is_primary: false,
        }
    }

    /// It does not wait any more for what is under way: a pause that was to begin does not.
    pub fn give_up(&mut self) {
        self.quiet = None;
    }

    /// True if it finds a replica that has lost its primary.
    pub(crate) fn is_stale(&self, role: &Role) -> bool {
        self.standing.map_or_else(|| role.is_stale(), |standing| standing.is_stale)
    }

    /// The same client for a command that runs away from its worker. A transaction goes with it, and what it
    /// watches, until it comes back.
    #[must_use]
    pub fn away(&mut self) -> Self {
        let shows_tracking =
            self.transaction.as_ref().is_some_and(|transaction| transaction.shows_tracking);
        Self {
            shown_tracking: if shows_tracking { self.tracking().map(Box::new) } else { None },
            authenticated: self.authenticated,
            reply_mode: self.reply_mode,
            monitor: self.monitor,
            is_primary: self.is_primary,
            transaction: self.transaction.take(),
            watch: self.watch.take(),
            ..self.stand_in()
        }
    }

    /// A caller of this client for a command that another thread runs in its name, while the connection waits or goes on.
    #[must_use]
    pub(crate) fn stand_in(&self) -> Self {
        Self {
            proto: self.proto,
            db: self.db,
            no_touch: self.no_touch,
            durability: self.durability,
            replica_level: self.replica_level,
            remembers_reads: self.remembers_reads,
            ..Self::with_rights(Arc::clone(&self.client), self.rights.clone(), true)
        }
    }

    /// Becomes what a command has made of it that ran away from its worker.
    pub fn come_back(&mut self, from: Self) {
        let Self { proto, db, authenticated, rights, monitor, reply_mode, no_touch, .. } = from;
        (self.proto, self.db, self.authenticated) = (proto, db, authenticated);
        self.rights = rights;
        (self.monitor, self.no_touch) = (monitor, no_touch);
        (self.transaction, self.watch) = (from.transaction, from.watch);
        (self.durability, self.replica_level) = (from.durability, from.replica_level);
        self.closing |= from.closing;
        let barrier = &mut self.waits.logged.barrier;
        *barrier = barrier.and(from.waits.logged.barrier);
        self.reply_mode = reply_mode.after_command();
    }

    /// Whether it is the primary that this server follows. What it sends has been done already, so nothing keeps it
    /// from being done here as well.
    #[must_use]
    #[inline]
    pub fn is_primary(&self) -> bool {
        self.is_primary
    }

    /// Says that it is.
    pub(crate) fn set_primary(&mut self) {
        self.is_primary = true;
    }

    /// What it may do.
    #[must_use]
    #[inline]
    pub fn rights(&self) -> &Rights {
        &self.rights
    }

    /// Becomes a user, who has authenticated if that is necessary.
    pub fn become_user(&mut self, rights: Rights, authenticated: bool) {
        self.client.set_user(rights.user());
        if let Some(subscriptions) = &mut self.subscriptions {
            subscriptions.set_rights(&rights);
        }
        (self.rights, self.authenticated) = (rights, authenticated);
    }

    /// Takes over what has changed of its user. If there is no such user any more, the connection ends.
    #[inline]
    pub fn renew_rights(&mut self, users: &Users) {
        if self.rights.are_old(users) && !self.rights.renew(users) {
            self.closing = true;
            self.client.set(ClientFlags::CLOSING, true);
        }
    }

    /// Whether it may still use all channels and patterns that it subscribes to.
    #[must_use]
    pub fn may_stay_subscribed(&self) -> bool {
        let may = |kind, named_by| {
            let mut names = self.subscriptions().into_iter().flat_map(|all| all.names(kind));
            names.all(|name| self.rights.allow_channel(name, named_by))
        };
        may(Kind::Channel, ChannelUse::Name)
            && may(Kind::ShardChannel, ChannelUse::Name)
            && may(Kind::Pattern, ChannelUse::Pattern)
    }

    /// True if its user is on, and may still call what it listens by: MONITOR, or SUBSCRIBE with these channels. Its
    /// password is not looked at again, as for other clients.
    #[must_use]
    pub fn may_listen_again(&self, commands: &Table) -> bool {
        let may_call = |name: &str, channels: &[&Name]| {
            let mut args = OwnedArgs::new();
            let mut words = iter::once(name.as_bytes()).chain(channels.iter().map(|it| &***it));
            let command = commands.find_original(name.as_bytes());
            words.all(|word| args.push(word).is_ok())
                && command.is_some_and(|it| self.rights.check(it, args.as_args()).is_ok())
        };
        let may_subscribe = |name, kind| {
            let channels = self.subscriptions().into_iter().flat_map(|all| all.names(kind));
            let channels: Vec<_> = channels.collect();
            channels.is_empty() || may_call(name, &channels)
        };
        self.rights.user().is_none_or(|user| user.is_on())
            && (!self.monitor || may_call("monitor", &[]))
            && may_subscribe("subscribe", Kind::Channel)
            && may_subscribe("psubscribe", Kind::Pattern)
            && may_subscribe("ssubscribe", Kind::ShardChannel)
    }

    /// Whether it has said MULTI, so that its requests are queued.
    #[must_use]
    #[inline]
    pub fn is_in_transaction(&self) -> bool {
        self.transaction.is_some()
    }

    /// Begins a transaction.
    ///
    /// # Errors
    /// When there is one.
    pub fn begin_transaction(&mut self) -> Result<(), CommandError> {
        if self.is_in_transaction() {
            return Err(CommandError::new("ERR MULTI calls can not be nested"));
        }
        self.transaction = Some(Box::default());
        self.show_transaction();
        Ok(())
    }

    /// Ends the transaction, and forgets what is queued and watched. Whether there was one.
    pub fn end_transaction(&mut self) -> bool {
        let was_there = self.transaction.take().is_some();
        self.take_watch();
        self.show_transaction();
        was_there
    }

    /// The keys that it watches, for adding some.
    pub fn watch(&mut self, keyspace: &Keyspace) -> &mut Watch {
        self.watch.get_or_insert_with(|| {
            let watch = Watch::new(keyspace);
            *self.client.watch.lock() = Some(Arc::clone(watch.state()));
            watch
        })
    }

    /// The hashes of the keys that it watches.
    #[must_use]
    pub fn watched(&self) -> Option<impl Iterator<Item = KeyHash>> {
        self.watch.as_ref().map(Watch::hashes)
    }

    /// Whether one of the keys that it watches has changed, so that EXEC must do nothing; see [`Watch::is_dirty`].
    #[must_use]
    pub fn is_watch_dirty(&self, now_ms: i64) -> bool {
        self.watch.as_ref().is_some_and(|watch| watch.is_dirty(now_ms))
    }

    /// It watches no keys any more. Dropping what it watched leaves the rest to the reaper.
    pub fn take_watch(&mut self) -> Option<Watch> {
        let watch = self.watch.take()?;
        *self.client.watch.lock() = None;
        Some(watch)
    }

    /// Has EXEC refused: one of the requests that belong to the transaction was.
    pub fn doom_transaction(&mut self) {
        if let Some(transaction) = &mut self.transaction {
            transaction.doom();
        }
    }

    /// Keeps a call of `command` for EXEC. The hash of its first key may be known.
    ///
    /// # Errors
    /// When it may not have so much kept: the connection has to be closed then.
    pub fn queue(
        &mut self,
        engine: &Engine,
        command: &Command,
        args: Args<'_>,
        hash: Option<KeyHash>,
    ) -> Result<(), QueueIsFull> {
        let bytes_max = engine.config.live().client_query_buffer_limit();
        self.queue_up_to(bytes_max, &engine.keyspace, command, args, hash)
    }

    /// The same with another limit.
    ///
    /// # Errors
    /// As there.
    pub(crate) fn queue_up_to(
        &mut self,
        bytes_max: u64,
        keyspace: &Keyspace,
        command: &Command,
        args: Args<'_>,
        hash: Option<KeyHash>,
    ) -> Result<(), QueueIsFull> {
        if let Some(transaction) = &mut self.transaction {
            transaction.push(keyspace, command, args, hash, bytes_max)?;
        }
        self.client.note_command(command.id);
        self.show_transaction();
        Ok(())
    }

    /// Lets others see how much is queued.
    pub(crate) fn show_transaction(&self) {
        let queued = self.transaction.as_ref();
        self.client.note_transaction(queued.map(|queued| (queued.len(), queued.memory_bytes())));
    }

    /// What a call of `command` does to the data. EXEC does what all queued requests do, and to queue one takes
    /// memory.
    #[must_use]
    pub fn access_of(&self, command: &Command, args: Args<'_>) -> Access {
        let access = Access::of_call(command.spec, args);
        match &self.transaction {
            Some(queued) if command.is_exec() => queued.access(),
            Some(_) => Access { grows: access.grows || command.is_queued(), ..access },
            None => access,
        }
    }

    /// True if a replica that has lost its primary answers it; for EXEC, if all that is queued is answered.
    pub(crate) fn runs_when_stale(&self, command: &Command) -> bool {
        match &self.transaction {
            Some(queued) if command.is_exec() => queued.runs_when_stale,
            _ => command.spec.runs_when_stale(),
        }
    }

    /// True if it runs while data are being loaded; for EXEC, if all that is queued does.
    pub(crate) fn runs_while_loading(&self, command: &Command) -> bool {
        match &self.transaction {
            Some(queued) if command.is_exec() => queued.runs_while_loading,
            _ => command.spec.runs_while_loading(),
        }
    }

    /// Whether it gets no reply to the next command of a transaction.
    #[must_use]
    #[inline]
    pub fn hears_nothing(&self) -> bool {
        self.closing || matches!(self.reply_mode, ReplyMode::Off | ReplyMode::SkipThis)
    }

    /// Asks for another level in place of `appendfsync`, or for that again. If it `has_written` in the same
    /// batch, that keeps the level it had: what is written is noted only at the end of a batch. So does whatever was
    /// executed at the level `bucket`.
    pub fn set_durability(
        &mut self,
        level: Option<SyncPolicy>,
        engine: &Engine,
        has_written: bool,
    ) {
        let policy = self.sync_policy(engine);
        let barrier = &mut self.waits.logged.barrier;
        barrier.device |= has_written && policy == SyncPolicy::Always;
        barrier.bucket |= policy == SyncPolicy::Bucket;
        self.durability = level;
    }

    /// What it has asked for in place of `appendfsync`.
    #[must_use]
    #[inline]
    pub fn durability(&self) -> Option<SyncPolicy> {
        self.durability
    }

    /// Asks for confirmations of replicas in place of `durability-replicas`, or for these again.
    pub fn set_replica_level(&mut self, level: Option<ReplicaLevel>) {
        self.replica_level = level;
    }

    /// The replicas that have a write of this client when it is acknowledged; `None` if there need be none.
    #[inline]
    pub fn replica_level(&self, engine: &Engine) -> Option<ReplicaLevel> {
        match self.replica_level {
            Some(level) => level.if_any(),
            None => ReplicaLevel::of_server(engine),
        }
    }

    /// True if a call may have changed data of which neither a log nor a stream tells. A program says if it has.
    pub fn has_written_unrecorded(&mut self, engine: &Engine, access: Access) -> bool {
        let has_program_written = std::mem::take(&mut self.program_has_written);
        let is_recorded = engine.durability.durable_log().is_some() || engine.feed.is_followed();
        !is_recorded && (access.writes || access.may_write && has_program_written)
    }

    /// How durable a write of this client is when it is acknowledged.
    #[inline]
    pub fn sync_policy(&self, engine: &Engine) -> SyncPolicy {
        self.durability.unwrap_or_else(|| engine.config.live().appendfsync())
    }

    /// The origin of changes by its commands, for their events.
    #[must_use]
    #[inline]
    pub fn origin(&self) -> Origin {
        Origin { source: Source::Resp, client: self.client.id }
    }

    /// Whether its commands count as uses of keys.
    #[must_use]
    #[inline]
    pub fn touch(&self) -> Touch {
        if self.no_touch { Touch::No } else { Touch::Yes }
    }

    /// Leaves the reply to the current command to others, for whom [`waiting`](crate::waiting) is.
    pub fn wait_for(&mut self, awaited: Awaited) {
        self.show_waiter(&awaited);
        self.waits.wait_for(awaited, self.reply_mode == ReplyMode::On);
    }

    /// The same reply comes for something else than was thought.
    pub fn wait_instead_for(&mut self, awaited: Awaited) {
        self.show_waiter(&awaited);
        self.waits.wait_instead_for(awaited);
    }

    /// Lets others see that it waits for keys or replicas.
    fn show_waiter(&self, awaited: &Awaited) {
        if let Awaited::Confirmations { .. } = awaited {
            self.client.set(ClientFlags::BLOCKED, true);
        }
        if let Awaited::Keys { waiter, .. } = awaited {
            *self.client.waiter.lock() = Some(Arc::clone(waiter));
            self.client.set(ClientFlags::BLOCKED, true);
        }
    }

    /// Where the next reply goes that [`Caller::wait_for`] leaves to others.
    #[must_use]
    pub fn reply_to(&self) -> ReplyTo {
        ReplyTo { conn: self.client.conn, wait: self.waits.next_reply() }
    }

    /// Its reply comes now, or never: it waits no more.
    pub fn end_wait(&mut self) -> Option<Pending> {
        let pending = self.waits.end()?;
        if let Awaited::Keys { .. } | Awaited::Confirmations { .. } = pending.awaited {
            *self.client.waiter.lock() = None;
            self.client.set(ClientFlags::BLOCKED, false);
        }
        Some(pending)
    }

    /// What it is as a replica; from the first call on it is one.
    pub fn become_replica(&mut self) -> &Arc<Replica> {
        self.replica.get_or_insert_with(|| Arc::new(Replica::new(Arc::clone(&self.client))))
    }

    /// What it is as a replica, if it has asked for the stream or a copy.
    #[must_use]
    #[inline]
    pub fn replica(&self) -> Option<&Arc<Replica>> {
        self.replica.as_ref().filter(|replica| replica.follows())
    }

    /// What it subscribes to and how it tracks keys, if it does.
    #[must_use]
    #[inline]
    pub fn subscriptions(&self) -> Option<&Subscriptions> {
        self.subscriptions.as_deref()
    }

    /// Whether messages may have to come between its replies.
    #[must_use]
    #[inline]
    pub fn gets_messages(&self) -> bool {
        self.subscriptions.is_some()
    }

    /// Whether it subscribes to channels or patterns.
    #[must_use]
    #[inline]
    pub fn is_subscribed(&self) -> bool {
        self.subscriptions().is_some_and(Subscriptions::is_to_channels)
    }

    /// Whether it may send few commands, as RESP2 does not tell messages from replies.
    #[must_use]
    pub fn reads_messages_only(&self) -> bool {
        self.is_subscribed() && self.proto == Proto::Resp2
    }

    /// How many channels, patterns or channels of shards it subscribes to.
    #[must_use]
    pub fn subscription_count(&self, kind: Kind) -> usize {
        self.subscriptions().map_or(0, |subscriptions| subscriptions.count(kind))
    }

    /// Subscribes to a channel or pattern. What was published before goes to `output`.
    pub fn subscribe(
        &mut self,
        pubsub: &PubSub,
        kind: Kind,
        name: &[u8],
        output: &mut Output,
        proto: Proto,
    ) {
        let newcomer = || Box::new(pubsub.newcomer(self.client.conn));
        let subscriptions = self.subscriptions.get_or_insert_with(newcomer);
        let output = self.held_messages.as_deref_mut().unwrap_or(output);
        pubsub.subscribe(subscriptions, kind, name, output, proto);
        self.note_subscriptions(kind);
    }

    /// Ends a subscription, if there is one. What was published before goes to `output`.
    pub fn unsubscribe(
        &mut self,
        pubsub: &PubSub,
        kind: Kind,
        name: &[u8],
        output: &mut Output,
        proto: Proto,
    ) {
        let Some(subscriptions) = self.subscriptions.as_deref_mut() else { return };
        let output = self.held_messages.as_deref_mut().unwrap_or(output);
        pubsub.unsubscribe(subscriptions, kind, name, output, proto);
        self.note_subscriptions(kind);
    }

    /// Ends all subscriptions, and tracks no keys any more. What was published before goes to `output`.
    pub fn unsubscribe_all(&mut self, pubsub: &PubSub, output: &mut Output, proto: Proto) {
        self.catch_up(pubsub, output, proto);
        self.leave(pubsub);
    }

    /// Ends all subscriptions of a connection that is gone.
    pub fn leave(&mut self, pubsub: &PubSub) {
        let Some(mut subscriptions) = self.subscriptions.take() else { return };
        pubsub.leave(&mut subscriptions);
        Kind::ALL.into_iter().for_each(|kind| self.note_subscriptions(kind));
        self.note_tracking();
    }

    /// Subscribers of replicas get a message as well. `name` is that of the command which publishes it.
    pub(crate) fn tell_replicas(
        &mut self,
        feed: &Feed,
        name: &[u8],
        channel: &[u8],
        message: &[u8],
    ) {
        if !feed.is_followed_by(Reader::Replicas) {
            return;
        }
        let mut command = Vec::new();
        let mut encoder = Encoder::new(&mut command, Proto::Resp2);
        encoder.array(3);
        [name, channel, message].iter().for_each(|arg| encoder.bulk(arg));
        match &mut self.held_for_replicas {
            Some(held) => held.push(command),
            None => feed.pass(&command),
        }
    }

    /// Begins to execute a transaction. Its changes go to replicas at its end, and what it tells their subscribers
    /// is to come behind them.
    pub(crate) fn hold_for_replicas(&mut self) {
        self.held_for_replicas = Some(Vec::new());
    }

    /// The changes of the transaction are on their way.
    pub(crate) fn pass_to_replicas(&mut self, feed: &Feed) {
        for command in self.held_for_replicas.take().into_iter().flatten() {
            feed.pass(&command);
        }
    }

    /// Begins to execute a transaction that changes subscriptions: messages shall not come between its replies.
    pub fn hold_messages(&mut self) {
        self.held_messages = Some(Box::new(Output::new()));
    }

    /// Whether it has just executed such a transaction. All of its replies that the caller does not want are left out.
    #[must_use]
    pub fn holds_messages(&self) -> bool {
        self.held_messages.is_some()
    }

    /// Writes what was published for it so far. Not to be called between the replies of a transaction.
    #[inline]
    pub fn catch_up(&mut self, pubsub: &PubSub, output: &mut Output, proto: Proto) {
        if self.gets_messages() || self.held_messages.is_some() {
            self.write_messages(pubsub, output, proto);
        }
    }

    #[cold]
    fn write_messages(&mut self, pubsub: &PubSub, output: &mut Output, proto: Proto) {
        if let Some(mut held) = self.held_messages.take() {
            output.append(held.take());
        }
        if let Some(subscriptions) = &mut self.subscriptions {
            if std::mem::take(&mut self.has_overtaken) {
                pubsub.tell(subscriptions, Invalidation::ALL, output, proto);
            }
            pubsub.catch_up(subscriptions, output, proto);
            self.note_broken_redirect();
        }
    }

    /// Writes what it has not seen of a run of messages, and returns how many bytes. They are held while replies wait for
    /// replicas, which come first, and while the reply of a long command does that may tell of what it tracks: what it
    /// reads there may be older than they are. When that becomes too much, they go out, and all that the client has cached
    /// is invalid behind the replies.
    pub fn receive(&mut self, pubsub: &PubSub, run: &Run, output: &mut Output) -> usize {
        let tracks = self.tracker().is_some();
        let is_reading = tracks && matches!(self.waits.awaited(), Some(Awaited::LongCommand));
        let output = match is_reading || self.waits.has_held() {
            true => {
                let held = self.held_messages.get_or_insert_with(|| Box::new(Output::new()));
                if held.pending() > HELD_BYTES_MAX {
                    output.append(held.take());
                    self.has_overtaken = tracks;
                }
                if self.has_overtaken { output } else { &mut **held }
            }
            false => output,
        };
        let bytes = pubsub.receive(run, self.subscriptions.as_deref_mut(), output, self.proto);
        self.note_broken_redirect();
        bytes
    }

    /// Lets others see that its invalidations have nowhere to go.
    #[inline]
    fn note_broken_redirect(&mut self) {
        if self.tracker().is_some_and(|tracker| tracker.is_broken) {
            self.note_tracking();
        }
    }

    /// Lets others see what it subscribes to.
    fn note_subscriptions(&mut self, kind: Kind) {
        if self.subscriptions().is_some_and(Subscriptions::is_empty) {
            self.subscriptions = None;
        }
        let count = self.subscription_count(kind) as u32;
        self.client.subscriptions[kind as usize].store(count, Relaxed);
        self.client.set(ClientFlags::PUBSUB, self.is_subscribed());
    }

    /// Switches to another database.
    pub fn select(&mut self, db: DbIndex) {
        self.db = db;
        self.client.db.store(db.get() as u16, Relaxed);
    }

    /// Switches to another protocol version.
    pub fn set_proto(&mut self, proto: Proto) {
        self.proto = proto;
        self.client.protocol.store(if proto == Proto::Resp3 { 3 } else { 2 }, Relaxed);
    }
}
