//! The caller of a command: the state of the client that a command may read and change.
//!
//! Every execution of a command has a caller: for a connection, for the import of a file, or for a blocked client
//! whose command another thread runs. A caller knows no socket.

mod fieldsets;
mod tracking;

use std::iter;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use tierce_engine::feed::{Feed, Reader};
use tierce_keyspace::{DbIndex, KeyHash, Keyspace, Origin, Source, Touch, Watch};
use tierce_output::Output;
use tierce_wire::resp::{Args, Encoder, OwnedArgs, Proto};

use self::fieldsets::Fieldsets;
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
use crate::under_way::{InFlight, Quiet};
use crate::waiting::{Awaited, Pending, ReplyTo, Waits};

/// Upper bound of the messages buffered while a reply is pending. They do not count as output, which has limits.
const HELD_BYTES_MAX: usize = 1 << 20;

/// State of a caller that outlives a command.
pub struct Caller {
    /// Part that other threads may see.
    pub client: Arc<Client>,
    /// Protocol version of replies.
    pub proto: Proto,
    /// The selected database.
    pub db: DbIndex,
    /// May use commands other than those for authentication.
    pub authenticated: bool,
    /// Current user and its rights.
    rights: Rights,
    /// Attempt of the client to authenticate.
    pub attempt: Attempt,
    /// True for a client of MONITOR.
    pub monitor: bool,
    /// State of `CLIENT REPLY`.
    pub reply_mode: ReplyMode,
    /// True if its commands do not update access times of keys.
    pub no_touch: bool,
    /// Sync policy that this client chose instead of `appendfsync`.
    durability: Option<SyncPolicy>,
    /// Replica level that this client chose instead of `durability-replicas`.
    replica_level: Option<ReplicaLevel>,
    /// Requests queued since MULTI.
    pub transaction: Option<Box<Transaction>>,
    /// Keys that it watches.
    watch: Option<Watch>,
    /// Lists of field names that it has prepared, if there are any.
    pub(crate) fieldsets: Option<Box<Fieldsets>>,
    /// State as a replica, if the client has said that it is one.
    replica: Option<Arc<Replica>>,
    /// True if the connection closes after everything up to the current reply is sent.
    pub closing: bool,
    /// True if some requests have run that came together with the next ones: a library that loses the connection would
    /// repeat them as well.
    pub in_pipeline: bool,
    /// True if a program has changed data since [`Caller::has_written_unrecorded`] was last called.
    pub program_has_written: bool,
    /// Pending waits of the client.
    pub waits: Waits,
    /// Subscriptions and key tracking, if there are any.
    subscriptions: Option<Box<Subscriptions>>,
    /// Number of confirmations of SUBSCRIBE and UNSUBSCRIBE that it was sent.
    pub confirmations: usize,
    /// Messages deferred until the end of the transaction that is being executed.
    held_messages: Option<Box<Output>>,
    /// True if invalidations were sent before a reply that may contain the old values.
    has_overtaken: bool,
    /// Commands for replicas, deferred until the end of the transaction that is being executed.
    held_for_replicas: Option<Vec<Vec<u8>>>,
    /// Copy of the tracking, for an offloaded transaction that reports it. The worker keeps the subscriptions.
    shown_tracking: Option<Box<Tracking>>,
    /// Marks the request as in progress while a thread that is not a worker executes it.
    pub(crate) in_flight: Option<InFlight>,
    /// Started operation that replies once no earlier request of any client is in progress.
    pub(crate) quiet: Option<Box<Quiet>>,
    /// State at the admission of the current transaction, if it runs programs.
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
    /// Returns the mode for the next command.
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
    /// Creates a caller with all rights, for an embedding program or the server itself. It may still have to
    /// authenticate.
    #[must_use]
    pub fn new(client: Arc<Client>, authenticated: bool) -> Self {
        Self::with_rights(client, Rights::unlimited(), authenticated)
    }

    /// Creates the caller of a new client. It is the default user, and may have to authenticate.
    #[must_use]
    pub fn of_client(client: Arc<Client>, users: &Users) -> Self {
        let rights = Rights::of_default_user(users);
        client.set_user(rights.user());
        Self::with_rights(client, rights, users.is_open())
    }

    /// Creates a caller with these rights.
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
            fieldsets: None,
            replica: None,
            closing: false,
            in_pipeline: false,
            program_has_written: false,
            waits: Waits::default(),
            subscriptions: None,
            confirmations: 0,
            held_messages: None,
            has_overtaken: false,
            held_for_replicas: None,
            shown_tracking: None,
            in_flight: None,
            quiet: None,
            standing: None,
            remembers_reads: false,
            is_primary: false,
        }
    }

    /// Stops waiting for requests in progress. A pause that was to begin does not begin.
    pub fn give_up(&mut self) {
        self.quiet = None;
    }

    /// Returns true for a replica that has lost its primary.
    pub(crate) fn is_stale(&self, role: &Role) -> bool {
        self.standing.map_or_else(|| role.is_stale(), |standing| standing.is_stale)
    }

    /// Returns a copy of the client for a command that is offloaded from its worker. The transaction, the watched
    /// keys and the prepared lists of fields move to the copy until it comes back.
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
            fieldsets: self.fieldsets.take(),
            ..self.stand_in()
        }
    }

    /// Returns a caller for a command that another thread runs for this client, whose connection may go on.
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

    /// Takes over the state that an offloaded command has changed.
    pub fn come_back(&mut self, from: Self) {
        let Self { proto, db, authenticated, rights, monitor, reply_mode, no_touch, .. } = from;
        (self.proto, self.db, self.authenticated) = (proto, db, authenticated);
        self.rights = rights;
        (self.monitor, self.no_touch) = (monitor, no_touch);
        (self.transaction, self.watch) = (from.transaction, from.watch);
        self.fieldsets = from.fieldsets;
        (self.durability, self.replica_level) = (from.durability, from.replica_level);
        self.closing |= from.closing;
        let barrier = &mut self.waits.logged.barrier;
        *barrier = barrier.and(from.waits.logged.barrier);
        self.reply_mode = reply_mode.after_command();
    }

    /// Returns true for the primary that this server follows. It has executed its commands already, so they are never
    /// refused here.
    #[must_use]
    #[inline]
    pub fn is_primary(&self) -> bool {
        self.is_primary
    }

    /// Marks the caller as the primary.
    pub(crate) fn set_primary(&mut self) {
        self.is_primary = true;
    }

    /// Returns the rights of the user.
    #[must_use]
    #[inline]
    pub fn rights(&self) -> &Rights {
        &self.rights
    }

    /// Switches to a user. `authenticated` is true if the client need not authenticate any more.
    pub fn become_user(&mut self, rights: Rights, authenticated: bool) {
        self.client.set_user(rights.user());
        if let Some(subscriptions) = &mut self.subscriptions {
            subscriptions.set_rights(&rights);
        }
        (self.rights, self.authenticated) = (rights, authenticated);
    }

    /// Refreshes the rights of the user if they changed. The connection closes if the user no longer exists.
    #[inline]
    pub fn renew_rights(&mut self, users: &Users) {
        if self.rights.are_old(users) && !self.rights.renew(users) {
            self.closing = true;
            self.client.set(ClientFlags::CLOSING, true);
        }
    }

    /// Returns true if the user may still use all subscribed channels and patterns.
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

    /// Returns true if the user is enabled and may still call MONITOR, or SUBSCRIBE with the current channels. As for
    /// other clients, the password is not checked again.
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

    /// Returns true after MULTI, while requests are queued.
    #[must_use]
    #[inline]
    pub fn is_in_transaction(&self) -> bool {
        self.transaction.is_some()
    }

    /// Begins a transaction.
    ///
    /// # Errors
    /// Fails if a transaction is open.
    pub fn begin_transaction(&mut self) -> Result<(), CommandError> {
        if self.is_in_transaction() {
            return Err(CommandError::new("ERR MULTI calls can not be nested"));
        }
        self.transaction = Some(Box::default());
        self.show_transaction();
        Ok(())
    }

    /// Ends the transaction and discards queued requests and watches. Returns true if there was one.
    pub fn end_transaction(&mut self) -> bool {
        let was_there = self.transaction.take().is_some();
        self.take_watch();
        self.show_transaction();
        was_there
    }

    /// Returns the watched keys, to add more.
    pub fn watch(&mut self, keyspace: &Keyspace) -> &mut Watch {
        self.watch.get_or_insert_with(|| {
            let watch = Watch::new(keyspace);
            *self.client.watch.lock() = Some(Arc::clone(watch.state()));
            watch
        })
    }

    /// Returns the hashes of the watched keys.
    #[must_use]
    pub fn watched(&self) -> Option<impl Iterator<Item = KeyHash>> {
        self.watch.as_ref().map(Watch::hashes)
    }

    /// Returns true if a watched key has changed, so that EXEC must do nothing; see [`Watch::is_dirty`].
    #[must_use]
    pub fn is_watch_dirty(&self, now_ms: i64) -> bool {
        self.watch.as_ref().is_some_and(|watch| watch.is_dirty(now_ms))
    }

    /// Takes all watches. When the result is dropped, the reaper removes what is left of it.
    pub fn take_watch(&mut self) -> Option<Watch> {
        let watch = self.watch.take()?;
        *self.client.watch.lock() = None;
        Some(watch)
    }

    /// Makes EXEC fail, because a request of the transaction was refused.
    pub fn doom_transaction(&mut self) {
        if let Some(transaction) = &mut self.transaction {
            transaction.doom();
        }
    }

    /// Queues a call of `command` for EXEC. The hash of its first key may be known.
    ///
    /// # Errors
    /// Fails if the queue would exceed its limit. The connection has to be closed then.
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

    /// Queues a call with another limit than [`Caller::queue`].
    ///
    /// # Errors
    /// As [`Caller::queue`].
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

    /// Publishes the size of the queue for other threads.
    pub(crate) fn show_transaction(&self) {
        let queued = self.transaction.as_ref();
        self.client.note_transaction(queued.map(|queued| (queued.len(), queued.memory_bytes())));
    }

    /// Returns the access of a call of `command` to the data. EXEC has the access of all queued requests together.
    /// Queuing a request takes memory.
    #[must_use]
    pub fn access_of(&self, command: &Command, args: Args<'_>) -> Access {
        let access = Access::of_call(command.spec, args);
        match &self.transaction {
            Some(queued) if command.is_exec() => queued.access(),
            Some(_) => Access { grows: access.grows || command.is_queued(), ..access },
            None => access,
        }
    }

    /// Returns true if a replica without its primary runs the call; for EXEC, if it runs all queued requests.
    pub(crate) fn runs_when_stale(&self, command: &Command) -> bool {
        match &self.transaction {
            Some(queued) if command.is_exec() => queued.runs_when_stale,
            _ => command.spec.runs_when_stale(),
        }
    }

    /// Returns true if the call runs while data are being loaded. For EXEC, this must hold for all queued requests.
    pub(crate) fn runs_while_loading(&self, command: &Command) -> bool {
        match &self.transaction {
            Some(queued) if command.is_exec() => queued.runs_while_loading,
            _ => command.spec.runs_while_loading(),
        }
    }

    /// Returns true if the client gets no reply to the next command of a transaction.
    #[must_use]
    #[inline]
    pub fn hears_nothing(&self) -> bool {
        self.closing || matches!(self.reply_mode, ReplyMode::Off | ReplyMode::SkipThis)
    }

    /// Sets the sync policy that replaces `appendfsync`; `None` restores the default. Earlier writes keep the old
    /// level: those of the current batch (`has_written`), which are registered only at its end, and everything
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

    /// Returns the sync policy that the client chose instead of `appendfsync`.
    #[must_use]
    #[inline]
    pub fn durability(&self) -> Option<SyncPolicy> {
        self.durability
    }

    /// Sets the replica level that replaces `durability-replicas`; `None` restores the default.
    pub fn set_replica_level(&mut self, level: Option<ReplicaLevel>) {
        self.replica_level = level;
    }

    /// Returns the replicas that must confirm a write of this client; `None` if none must.
    #[inline]
    pub fn replica_level(&self, engine: &Engine) -> Option<ReplicaLevel> {
        match self.replica_level {
            Some(level) => level.if_any(),
            None => ReplicaLevel::of_server(engine),
        }
    }

    /// Returns true if a call may have changed data that is in no log or stream. Programs report it themselves.
    pub fn has_written_unrecorded(&mut self, engine: &Engine, access: Access) -> bool {
        let has_program_written = std::mem::take(&mut self.program_has_written);
        let is_recorded = engine.durability.durable_log().is_some() || engine.feed.is_followed();
        !is_recorded && (access.writes || access.may_write && has_program_written)
    }

    /// Returns the durability of a write of this client when it is acknowledged.
    #[inline]
    pub fn sync_policy(&self, engine: &Engine) -> SyncPolicy {
        self.durability.unwrap_or_else(|| engine.config.live().appendfsync())
    }

    /// Returns the origin of changes by its commands, for their events.
    #[must_use]
    #[inline]
    pub fn origin(&self) -> Origin {
        Origin { source: Source::Resp, client: self.client.id }
    }

    /// Returns [`Touch::Yes`] if its commands update the access times of keys.
    #[must_use]
    #[inline]
    pub fn touch(&self) -> Touch {
        if self.no_touch { Touch::No } else { Touch::Yes }
    }

    /// Leaves the reply to the current command to another thread; see [`waiting`](crate::waiting).
    pub fn wait_for(&mut self, awaited: Awaited) {
        self.show_waiter(&awaited);
        self.waits.wait_for(awaited, self.reply_mode == ReplyMode::On);
    }

    /// Changes the event that the pending reply waits for.
    pub fn wait_instead_for(&mut self, awaited: Awaited) {
        self.show_waiter(&awaited);
        self.waits.wait_instead_for(awaited);
    }

    /// Shows other threads that the client waits for keys or replicas.
    fn show_waiter(&self, awaited: &Awaited) {
        if let Awaited::Confirmations { .. } = awaited {
            self.client.set(ClientFlags::BLOCKED, true);
        }
        if let Awaited::Keys { waiter, .. } = awaited {
            *self.client.waiter.lock() = Some(Arc::clone(waiter));
            self.client.set(ClientFlags::BLOCKED, true);
        }
    }

    /// Returns the destination of the next reply that [`Caller::wait_for`] defers.
    #[must_use]
    pub fn reply_to(&self) -> ReplyTo {
        ReplyTo { conn: self.client.conn, wait: self.waits.next_reply() }
    }

    /// Ends the wait: the reply is written now, or never.
    pub fn end_wait(&mut self) -> Option<Pending> {
        let pending = self.waits.end()?;
        if let Awaited::Keys { .. } | Awaited::Confirmations { .. } = pending.awaited {
            *self.client.waiter.lock() = None;
            self.client.set(ClientFlags::BLOCKED, false);
        }
        Some(pending)
    }

    /// Returns the state as a replica, and makes the client one at the first call.
    pub fn become_replica(&mut self) -> &Arc<Replica> {
        self.replica.get_or_insert_with(|| Arc::new(Replica::new(Arc::clone(&self.client))))
    }

    /// Returns the state as a replica, if it has asked for the stream or a full copy.
    #[must_use]
    #[inline]
    pub fn replica(&self) -> Option<&Arc<Replica>> {
        self.replica.as_ref().filter(|replica| replica.follows())
    }

    /// Returns the subscriptions and key tracking, if there are any.
    #[must_use]
    #[inline]
    pub fn subscriptions(&self) -> Option<&Subscriptions> {
        self.subscriptions.as_deref()
    }

    /// Returns true if messages may have to be sent between its replies.
    #[must_use]
    #[inline]
    pub fn gets_messages(&self) -> bool {
        self.subscriptions.is_some()
    }

    /// Returns true if it subscribes to channels or patterns.
    #[must_use]
    #[inline]
    pub fn is_subscribed(&self) -> bool {
        self.subscriptions().is_some_and(Subscriptions::is_to_channels)
    }

    /// Returns true if it may send only few commands, because RESP2 does not tell messages from replies.
    #[must_use]
    pub fn reads_messages_only(&self) -> bool {
        self.is_subscribed() && self.proto == Proto::Resp2
    }

    /// Returns the number of subscribed channels, patterns or shard channels.
    #[must_use]
    pub fn subscription_count(&self, kind: Kind) -> usize {
        self.subscriptions().map_or(0, |subscriptions| subscriptions.count(kind))
    }

    /// Subscribes to a channel or pattern. Messages published before go to `output`.
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

    /// Ends a subscription, if there is one. Messages published before go to `output`.
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

    /// Ends all subscriptions and key tracking. Messages published before go to `output`.
    pub fn unsubscribe_all(&mut self, pubsub: &PubSub, output: &mut Output, proto: Proto) {
        self.catch_up(pubsub, output, proto);
        self.leave(pubsub);
    }

    /// Ends all subscriptions of a closed connection.
    pub fn leave(&mut self, pubsub: &PubSub) {
        let Some(mut subscriptions) = self.subscriptions.take() else { return };
        pubsub.leave(&mut subscriptions);
        Kind::ALL.into_iter().for_each(|kind| self.note_subscriptions(kind));
        self.note_tracking();
    }

    /// Sends a message to the subscribers of replicas. `name` is the command that publishes it.
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

    /// Starts to defer messages for replicas, at the begin of a transaction. Its changes reach the replicas at its
    /// end, and the messages must follow them.
    pub(crate) fn hold_for_replicas(&mut self) {
        self.held_for_replicas = Some(Vec::new());
    }

    /// Sends the deferred messages, after the changes of the transaction.
    pub(crate) fn pass_to_replicas(&mut self, feed: &Feed) {
        for command in self.held_for_replicas.take().into_iter().flatten() {
            feed.pass(&command);
        }
    }

    /// Starts to defer messages: none may come between the replies of a transaction that changes subscriptions.
    pub fn hold_messages(&mut self) {
        self.held_messages = Some(Box::new(Output::new()));
    }

    /// Returns true after such a transaction. Replies that the client does not want are left out.
    #[must_use]
    pub fn holds_messages(&self) -> bool {
        self.held_messages.is_some()
    }

    /// Writes the messages published so far. Must not be called between the replies of a transaction.
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

    /// Writes the unseen messages of a run and returns the number of bytes. Messages are deferred while replies wait
    /// for replicas, which come first. With tracking, they are also deferred during a long command, whose reply may
    /// contain older values than the invalidations. Beyond `HELD_BYTES_MAX` they are sent, and after the replies the
    /// whole cache of the client is invalidated.
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

    /// Shows other threads that the target of its invalidations is gone.
    #[inline]
    fn note_broken_redirect(&mut self) {
        if self.tracker().is_some_and(|tracker| tracker.is_broken) {
            self.note_tracking();
        }
    }

    /// Shows other threads its number of subscriptions.
    fn note_subscriptions(&mut self, kind: Kind) {
        if self.subscriptions().is_some_and(Subscriptions::is_empty) {
            self.subscriptions = None;
        }
        let count = self.subscription_count(kind) as u32;
        self.client.subscriptions[kind as usize].store(count, Relaxed);
        self.client.set(ClientFlags::PUBSUB, self.is_subscribed());
    }

    /// Selects another database.
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
