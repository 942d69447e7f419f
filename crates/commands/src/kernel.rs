//! The kernel executes commands: it has the store, the command table, the registry of clients and the statistics.
//!
//! A kernel needs no sockets. It reaches the threads that carry requests and replies through [`Front`]. Without a
//! front, as in the import of a file, nothing is sent.

use std::ops::Deref;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tierce_engine::feed::Reader;
use tierce_keyspace::{ShardLocks, StreamPosition, interleaving};
use tierce_wire::resp::{Args, AuthState, Limits};

use crate::acl::{
    self, Acl, AclLog, ChannelDefault, Denial, Denied, FileError, Reason, Rights, Terms, Users,
};
use crate::answer::Answer;
use crate::bucket::Bucket;
use crate::caller::Caller;
use crate::certificates::Certificates;
use crate::clients::{Client, ClientFlags, Deferred, Listener, Pause, Registry};
use crate::command::{Access, Command, CommandId, Flags, Table};
use crate::command_log::{CommandLogs, LogKind};
use crate::config::{DirectiveId, Peer, Settings};
use crate::engine::Engine;
use crate::error::{CommandError, Interrupt};
use crate::fault::Fault;
use crate::hot_keys::{HotKeys, Sums};
use crate::message::{Notice, Reported};
use crate::offload::Offload;
use crate::outgoing::Connect;
use crate::process;
use crate::pubsub::PubSub;
use crate::replica_level::ReplicaLevel;
use crate::replication::Primary;
use crate::replication::failover::Failover;
use crate::replication::role::{Address, Role};
use crate::scripting::Scripts;
use crate::shutdown::{Shutdown, ShutdownRequest};
use crate::stats::{Counters, ErrorCounts, HttpFigures, Rates, SpareCounters, Stat, Totals};
use crate::under_way::{InFlightRequests, Quiet};
use crate::waiting::{ConnAddress, Patience};

/// Threads for commands that take too long for a worker. With two, a command that takes minutes does not stop all
/// others. Each takes a processor from the workers while it runs.
const LONG_THREADS: usize = 2;

/// Threads for MIGRATE, which waits for other servers.
const MIGRATION_THREADS: usize = 1;

/// Upper bound of threads for programs that take too long for a worker. There is one for each worker up to this
/// number, so that programs on different keys use all processors. Further programs wait for a thread.
const PROGRAM_THREADS_MAX: usize = 8;

fn program_threads(workers: usize) -> usize {
    workers.min(PROGRAM_THREADS_MAX)
}

/// Threads that carry requests to the kernel and replies to clients.
pub trait Front: Send + Sync {
    /// Sends an answer to the client that waits for it.
    fn answer(&self, answer: Answer);

    /// Has [`blocking::result_is_due`](crate::pipeline::blocking::result_is_due) called for a result after this many
    /// milliseconds.
    fn set_deadline(&self, deferred: &Arc<Deferred>, after_ms: u64);

    /// Sends a notice to all workers.
    fn tell_all(&self, notice: &Notice);

    /// Closes a connection at once.
    fn close(&self, conn: ConnAddress);

    /// Returns connections and bytes since the start.
    fn traffic(&self) -> Traffic;

    /// Resets the statistics of the front.
    fn reset_stats(&self);
}

/// An engine with commands and clients.
pub struct Kernel {
    /// Data, log and settings.
    pub engine: Arc<Engine>,
    /// All commands.
    pub commands: Table,
    /// Users and their rights.
    pub acl: Acl,
    /// All connections.
    pub clients: Arc<Registry>,
    /// `CLIENT PAUSE`.
    pub pause: Arc<Pause>,
    /// Requests in progress on threads that are not workers.
    pub in_flight_requests: InFlightRequests,
    /// Slow commands, large requests and large replies.
    pub command_logs: CommandLogs,
    /// Keys that use the most time and bytes.
    pub hot_keys: HotKeys,
    /// Error replies by kind.
    pub errors: ErrorCounts,
    /// Commands and bytes in the last seconds.
    pub rates: Rates,
    /// Clock for timing commands: nanoseconds since some moment in the past, never going back. A server sets a faster
    /// clock than the default.
    pub nanos: fn() -> u64,
    /// Start of the server.
    pub started: Instant,
    /// Start of the server in Unix seconds.
    pub started_unix_seconds: i64,
    /// Forty hexadecimal digits that identify this run of the server.
    pub run_id: String,
    /// Service manager to notify when the process is ready, if there is one.
    pub supervisor: OnceLock<&'static str>,
    /// Certificates that the server shows to others.
    pub certificates: Certificates,
    /// HTTP statistics, if the server ever listened for HTTP.
    pub http: OnceLock<Arc<HttpFigures>>,
    /// Queue of commands that take too long for a worker.
    pub offload: Offload,
    /// Queue of MIGRATE. It has a thread of its own, so that no other command waits for other servers.
    pub migrations: Offload,
    /// Opens connections to other servers, if the program has a network.
    pub connect: OnceLock<Box<Connect>>,
    /// Scripts, and those that are running.
    pub scripts: Scripts,
    /// Subscriptions and messages.
    pub pubsub: Arc<PubSub>,
    /// Replicas that follow this server.
    pub primary: Primary,
    /// Role of this server: primary or replica.
    pub role: Role,
    /// State of a failover, which hands the role over.
    pub failover: Failover,
    /// Progress of the log in a bucket.
    pub bucket: Bucket,
    shutdown: ShutdownRequest,
    /// Of the workers, then of the threads for long commands, then of the threads for programs.
    counters: Box<[Counters]>,
    /// For calls on all other threads.
    pub(crate) spare: SpareCounters,
    workers: usize,
    baseline: Mutex<Option<Baseline>>,
    front: OnceLock<Box<dyn Front>>,
}

/// Counters at the last reset of the statistics.
struct Baseline {
    totals: Totals,
    traffic: Traffic,
    keys: KeyStats,
}

/// Connections and bytes since the start, or since statistics were reset.
#[derive(Clone, Copy, Default, Debug)]
pub struct Traffic {
    /// Connections accepted.
    pub connections: u64,
    /// Bytes received.
    pub bytes_in: u64,
    /// Bytes sent.
    pub bytes_out: u64,
    /// Connections closed for lack of a file descriptor.
    pub dropped: u64,
    /// Connections refused because their address exceeded `max-new-connections-per-address`.
    pub too_fast: u64,
    /// TLS handshakes.
    pub handshakes: Handshakes,
}

/// Number of TLS handshakes since the start, or since statistics were reset.
#[derive(Clone, Copy, Default, Debug)]
pub struct Handshakes {
    /// Completed ones.
    pub completed: u64,
    /// Completed ones that resumed an earlier session.
    pub resumed: u64,
    /// Failed ones, and connections that broke the protocol later.
    pub failed: u64,
    /// Refused ones, because too many were in progress.
    pub refused: u64,
    /// Failed ones that timed out.
    pub timed_out: u64,
    /// In progress now.
    pub under_way: u64,
}

impl Handshakes {
    /// Returns the difference to `base`.
    fn since(self, base: Self) -> Self {
        Self {
            completed: self.completed - base.completed,
            resumed: self.resumed - base.resumed,
            failed: self.failed - base.failed,
            refused: self.refused - base.refused,
            timed_out: self.timed_out - base.timed_out,
            under_way: self.under_way,
        }
    }
}

/// Key statistics since the start, or since statistics were reset.
#[derive(Clone, Copy, Default, Debug)]
pub struct KeyStats {
    /// Reads that found their key.
    pub hits: u64,
    /// Reads that did not.
    pub misses: u64,
    /// Keys removed because they expired.
    pub expired: u64,
    /// Keys evicted because memory was short.
    pub evicted: u64,
    /// Nanoseconds spent on expiry in the background.
    pub expiry_nanos: u64,
    /// Values and tables freed in the background.
    pub lazily_freed: u64,
}

/// Guard that pauses the writes of clients while it exists.
pub struct HeldWrites<'k>(&'k Kernel);

impl Drop for HeldWrites<'_> {
    fn drop(&mut self) {
        self.0.pause.let_go();
        self.0.tell_all(&Notice::Resume);
    }
}

impl Deref for Kernel {
    type Target = Engine;

    #[inline]
    fn deref(&self) -> &Engine {
        &self.engine
    }
}

impl Kernel {
    /// Creates a kernel for a command table, with separate counters for this many workers.
    pub fn new(engine: Arc<Engine>, commands: Table, workers: usize) -> Self {
        let threads = workers + LONG_THREADS + program_threads(workers) + MIGRATION_THREADS;
        let counters = (0..threads).map(|_| Counters::new(commands.id_count())).collect();
        let terms = Terms { table: &commands, channels: channel_default(&engine) };
        let acl = Acl::new(terms);
        let kernel = Self {
            engine,
            acl,
            commands,
            clients: Arc::default(),
            pause: Arc::default(),
            in_flight_requests: InFlightRequests::default(),
            command_logs: CommandLogs::default(),
            hot_keys: HotKeys::default(),
            errors: ErrorCounts::default(),
            rates: Rates::default(),
            nanos: crate::clock::monotonic_nanos,
            started: Instant::now(),
            started_unix_seconds: crate::clock::unix_ms() / 1000,
            run_id: random_hex(),
            supervisor: OnceLock::new(),
            certificates: Certificates::default(),
            http: OnceLock::new(),
            offload: Offload::default(),
            migrations: Offload::default(),
            connect: OnceLock::new(),
            scripts: Scripts::default(),
            pubsub: Arc::new(PubSub::new(workers)),
            primary: Primary::new(),
            role: Role::default(),
            failover: Failover::default(),
            bucket: Bucket::default(),
            shutdown: ShutdownRequest::default(),
            counters,
            spare: SpareCounters::default(),
            workers,
            baseline: Mutex::new(None),
            front: OnceLock::new(),
        };
        kernel.apply_password();
        kernel
    }

    /// Connects the kernel to the threads that carry requests to it. A second call has no effect.
    pub fn attach(&self, front: Box<dyn Front>) {
        let _ = self.front.set(front);
    }

    /// Sends an answer to the client that waits for it.
    pub fn answer(&self, answer: Answer) {
        interleaving::pass("answer");
        if answer.to.deferred().is_some_and(|deferred| deferred.answer() == Listener::Gone) {
            return;
        }
        if let Some(front) = self.front.get() {
            front.answer(answer);
        }
    }

    /// Ends a result, which has come or never will. Returns true if it was pending.
    pub fn end_result(&self, deferred: &Deferred) -> bool {
        deferred.end(&self.clients.pending)
    }

    /// Limits the time that a client waits for a result.
    pub(crate) fn set_deadline(&self, deferred: &Arc<Deferred>, patience: Patience) {
        if let (Patience::Ms(after_ms), Some(front)) = (patience, self.front.get()) {
            front.set_deadline(deferred, after_ms);
        }
    }

    /// Returns true if writes at this level are refused for lack of replicas. Without a replication stream, replicas
    /// could not confirm writes, so they are not executed at all. A failover pauses writes before its role change is
    /// visible, so it is exempt. The log in a bucket reads the feed as well, but confirms nothing for replicas.
    #[inline]
    pub(crate) fn lacks_replicas(&self, level: Option<ReplicaLevel>) -> bool {
        let feed = &self.feed;
        let has_stream = || {
            feed.is_followed() && (!self.bucket.is_on() || feed.is_followed_by(Reader::Replicas))
        };
        self.role.lacks_replicas() || level.is_some() && !has_stream() && !self.failover.is_on()
    }

    /// Counts an error reply written outside the run of a command. `failed` is the command that failed with it.
    #[cold]
    pub fn count_error(&self, error: &CommandError, failed: Option<CommandId>) {
        let counters = self.spare.take(self.commands.id_count());
        counters.add(Stat::Errors, 1);
        failed.into_iter().for_each(|command| counters.failed(command));
        self.spare.give_back(counters);
        self.errors.count(error.kind());
    }

    /// Returns true if an admitted request must not change data any more, or not yet, because another thread has
    /// since paused writes, the log or snapshots fail, or replicas for its level are missing. Call this with the keys
    /// locked, just before the change.
    #[must_use]
    pub fn has_closed(&self, access: Access, level: Option<ReplicaLevel>) -> bool {
        let is_paused = || self.pause.holds(true, || false, crate::clock::unix_ms()).is_some();
        // The order matters: a failover changes the role, and then ends the pause.
        (access.passes_on() && is_paused())
            || (access.writes && self.fault_of_writes(level).is_some())
    }

    /// Returns the reason to refuse writes at this level now, if any, in the order in which scripts report them.
    pub fn fault_of_writes(&self, level: Option<ReplicaLevel>) -> Option<Fault> {
        if self.role.is_read_only() {
            Some(Fault::ReadOnly)
        } else if self.persistence.refuses_writes() {
            Some(Fault::NotSaved)
        } else if self.durability.refuses_writes() {
            Some(Fault::NotLogged)
        } else if self.lacks_replicas(level) {
            // A failover that has just ended changed the role before it stopped the stream.
            let is_replica = self.role.is_read_only();
            Some(if is_replica { Fault::ReadOnly } else { Fault::TooFewReplicas })
        } else {
            None
        }
    }

    /// Follows a primary, or none, from now on. Returns true if that is a change. The caller must hold no shard. On
    /// return, nothing of the old stream is applied any more.
    pub fn follow(&self, primary: Option<Address>, now_ms: i64) -> bool {
        let _nothing_is_applied = self.role.hold_still();
        self.follow_meanwhile(primary, now_ms)
    }

    /// Does [`Kernel::follow`] for a caller that has called [`Role::hold_still`].
    pub fn follow_meanwhile(&self, primary: Option<Address>, now_ms: i64) -> bool {
        if primary.is_none() && self.role.following().is_some() {
            // This comes before the first change that is not from the stream.
            self.leave_stream();
            if self.primary.take_over(now_ms) {
                self.feed.resume(Reader::Replicas);
            }
        }
        if !self.role.follow(primary.clone(), now_ms) {
            return false;
        }
        self.note_primary(primary.as_ref());
        match primary {
            Some(primary) => {
                self.log.notice(format_args!("This server is a replica of {primary} now"));
            }
            None => self.log.notice("This server is a primary now"),
        }
        true
    }

    /// Records the new primary, or none.
    pub(crate) fn note_primary(&self, primary: Option<&Address>) {
        self.note_follows(primary.is_some());
        self.config.set_primary(primary.map(|primary| (primary.host.clone(), primary.port)));
    }

    /// Records that the server follows another one, or none.
    pub(crate) fn note_follows(&self, follows: bool) {
        self.primary.note_role(follows);
        self.feed.call(Reader::Replicas);
        // Expired keys may be removed at once now, and replicas are told.
        self.settle_expiry();
        self.log.set_replica(follows);
    }

    /// Serves the clients that wait for keys changed under these locks while the log of another server was applied.
    pub fn serve_waiting(&self, locks: &mut ShardLocks<'_>) {
        locks.take_ready().into_iter().for_each(|key| self.offload.serve(key));
    }

    /// Checks if there are enough replicas for clients to write. Call this when a replica connects, disconnects or is
    /// silent.
    pub fn count_replicas(&self, settings: &Settings, now_ms: i64) {
        const WANTED: DirectiveId = DirectiveId::of("min-replicas-to-write");
        const LAG_MAX: DirectiveId = DirectiveId::of("min-replicas-max-lag");
        let (wanted, lag_max) = (settings.count(WANTED), settings.number(LAG_MAX));
        let good = self.primary.count_good(lag_max, now_ms) as u64;
        // As in Redis, a maximum lag of 0 disables the check.
        self.role.set_lacks_replicas(lag_max > 0 && good < wanted);
    }

    /// Records that the data belong to no replication stream from now on, also after a restart.
    pub fn leave_stream(&self) {
        if self.keyspace.stream_position().is_some() {
            let mut locks = self.keyspace.locks();
            locks.move_to(None);
            locks.release();
        }
    }

    /// Records this primary's final stream offset. The data do not change any more until the next start. A replica
    /// records the offset with its last change in the log.
    pub fn end_at(&self, position: StreamPosition) {
        if self.role.following().is_none() {
            let mut locks = self.keyspace.locks();
            locks.end_at(position);
            locks.release();
        }
    }

    /// Sends a notice to all workers.
    pub fn tell_all(&self, notice: &Notice) {
        if let Some(front) = self.front.get() {
            front.tell_all(notice);
        }
    }

    /// Closes a connection at once.
    pub fn end_connection(&self, client: &Client) {
        if let Some(front) = self.front.get() {
            front.close(client.conn);
        }
    }

    /// Number of workers that [`Kernel::tell_all`] reaches.
    pub fn workers_told(&self) -> usize {
        if self.front.get().is_some() { self.workers } else { 0 }
    }

    /// Number of workers.
    pub fn workers(&self) -> usize {
        self.workers
    }

    /// Returns the counters of a worker.
    #[inline]
    pub fn counters(&self, worker: usize) -> &Counters {
        &self.counters[worker]
    }

    /// Number of threads for long commands.
    pub fn long_threads(&self) -> usize {
        LONG_THREADS
    }

    /// Returns the counters of a thread for long commands.
    pub fn long_counters(&self, thread: usize) -> &Counters {
        &self.counters[self.workers + thread]
    }

    /// Number of threads for programs.
    pub fn program_threads(&self) -> usize {
        program_threads(self.workers)
    }

    /// Returns the counters of a thread for programs.
    pub fn program_counters(&self, thread: usize) -> &Counters {
        &self.counters[self.workers + LONG_THREADS + thread]
    }

    /// Returns the counters of the thread for MIGRATE.
    pub fn migration_counters(&self) -> &Counters {
        &self.counters[self.workers + LONG_THREADS + self.program_threads()]
    }

    /// Returns the queue for a call of a command that a worker has no time for.
    pub fn offload_of(&self, command: &Command, caller: &Caller) -> &Offload {
        let runs_programs = command.spec.flags.contains(Flags::PROGRAM)
            || caller.transaction.as_ref().is_some_and(|queued| queued.runs_programs);
        match command.spec.name {
            "migrate" => &self.migrations,
            _ if runs_programs => &self.scripts.offload,
            _ => &self.offload,
        }
    }

    /// Time that clients wait for a running program before they get BUSY.
    pub fn busy_threshold(&self) -> Duration {
        match self.config.live().busy_reply_threshold() {
            0 => Duration::MAX,
            ms => Duration::from_millis(ms),
        }
    }

    /// Returns the BUSY error for an interrupted command, if a program has kept what it needs for too long. The
    /// holder of the role may in turn wait for any shard, so any long program counts then.
    #[cold]
    pub fn busy_with_program(&self, interrupt: Interrupt) -> Option<CommandError> {
        let (running, threshold) = (&self.scripts.running, self.busy_threshold());
        match interrupt {
            Interrupt::Busy(busy) => running.refusal(busy.shard, threshold),
            Interrupt::Role => running.any_for(threshold),
            Interrupt::Long | Interrupt::Admission | Interrupt::Quiet => None,
        }
    }

    /// Returns true if clients need no password.
    pub fn is_open(&self) -> bool {
        self.acl.users.is_open()
    }

    /// Returns the size limits of requests.
    #[inline]
    pub fn request_limits(&self, auth: AuthState) -> Limits {
        let max_bulk_len = self.config.live().proto_max_bulk_len() as usize;
        // Redis receives 16 KiB at a time, and looks for the end of a line before it looks at its length.
        Limits { max_bulk_len, line_slack: 16 * 1024, auth, ..Limits::default() }
    }

    /// Returns true if protected mode refuses this client: a remote one, while there is no password.
    pub fn is_protected_from(&self, client: &Client) -> bool {
        client.peer() == Peer::Remote && self.is_open() && self.config.live().protected_mode()
    }

    /// Returns the name of a command or operation.
    pub fn command_name(&self, id: CommandId) -> &str {
        self.commands.counted().find(|(of, _)| *of == id).map_or("NULL", |(_, name)| name)
    }

    /// Pauses writes, in addition to any other pause, until the returned guard is dropped.
    pub fn hold_writes(&self) -> HeldWrites<'_> {
        self.pause.hold();
        HeldWrites(self)
    }

    /// Returns the state of the shutdown request.
    pub fn shutdown(&self) -> &ShutdownRequest {
        &self.shutdown
    }

    /// Requests the shutdown of the server.
    pub fn request_shutdown(&self, reason: Shutdown) {
        self.shutdown.ask(reason);
    }
}

/// Users.
impl Kernel {
    /// Returns the context in which rules of users are applied.
    #[must_use]
    pub fn acl_terms(&self) -> Terms<'_> {
        Terms { table: &self.commands, channels: channel_default(&self.engine) }
    }

    /// Gives the default user the password of `requirepass`, or none.
    pub fn apply_password(&self) {
        let rules = self.password_rules();
        let rules: Vec<&[u8]> = rules.iter().map(Vec::as_slice).collect();
        let changed = self.acl.users.change(acl::DEFAULT, &rules, self.acl_terms());
        debug_assert!(changed.is_ok(), "rules without names");
    }

    fn password_rules(&self) -> Vec<Vec<u8>> {
        match self.config.settings().password() {
            Some(password) => vec![b"resetpass".to_vec(), [b">", password].concat()],
            None => vec![b"nopass".to_vec()],
        }
    }

    /// Creates the users of the configuration or of its `aclfile`.
    ///
    /// # Errors
    /// Fails if a rule is invalid or the file cannot be read.
    pub fn load_users(&self) -> Result<(), FileError> {
        acl::load(&self.config.settings(), &self.acl, self.acl_terms())
    }

    /// Returns the configuration lines that define the users, without the word `user`. There are none if the users
    /// have their own file. The default user is left out if `requirepass` alone defines it.
    #[must_use]
    pub fn user_lines(&self) -> Vec<Vec<u8>> {
        if self.config.settings().acl_file().is_some() {
            return Vec::new();
        }
        let plain = Users::new(self.acl_terms());
        let rules = self.password_rules();
        let rules: Vec<&[u8]> = rules.iter().map(Vec::as_slice).collect();
        let _ = plain.change(acl::DEFAULT, &rules, self.acl_terms());
        let plain = plain.default_user().describe();
        let users = self.acl.users.all();
        users.iter().map(|user| user.describe()).filter(|line| *line != plain).collect()
    }

    /// Returns the rights of the user with this name and password. A failure is logged.
    pub fn authenticate(
        &self,
        client: &Client,
        name: &[u8],
        password: &[u8],
        now_ms: i64,
    ) -> Option<Rights> {
        let rights = self.check_password(client, name, password, now_ms)?;
        self.acl.guesses.note_right(client.host(), name, now_ms);
        Some(rights)
    }

    /// Does [`Kernel::authenticate`] for a name and password that were right on this connection before. The client
    /// was not delayed then.
    pub fn authenticate_again(
        &self,
        client: &Client,
        name: &[u8],
        password: &[u8],
        now_ms: i64,
    ) -> Option<Rights> {
        let rights = self.check_password(client, name, password, now_ms)?;
        self.acl.guesses.note_known(client.host(), name, now_ms);
        Some(rights)
    }

    fn check_password(
        &self,
        client: &Client,
        name: &[u8],
        password: &[u8],
        now_ms: i64,
    ) -> Option<Rights> {
        let user = self.acl.users.get(name);
        // The password is always hashed, so that the time does not reveal which names exist.
        let stand_in = self.acl.users.default_user();
        let is_right = user.as_ref().unwrap_or(&stand_in).accepts(password);
        if let Some(user) = user.filter(|_| is_right) {
            return Some(Rights::of(user, &self.acl.users));
        }
        if let Some(count) = self.acl.guesses.note_wrong(client.host(), name, now_ms) {
            let (addr, name) = (&client.addr, name.escape_ascii());
            self.log.warning(format_args!(
                "{addr} gave a wrong user name or password, for user '{name}' ({count} since the last such line)"
            ));
        }
        None
    }

    /// Checks if the caller may make a call. `args` include the name. A denial is logged.
    ///
    /// # Errors
    /// The reply to a denied call.
    #[inline]
    pub fn check_rights(
        &self,
        caller: &Caller,
        command: &Command,
        args: Args<'_>,
        origin: acl::Origin,
    ) -> Result<(), CommandError> {
        self.check_rights_noting(&self.acl.log, caller, command, args, origin)
    }

    /// Does [`Kernel::check_rights`], and records a denial in `log`.
    ///
    /// # Errors
    /// As [`Kernel::check_rights`].
    #[inline]
    pub(crate) fn check_rights_noting(
        &self,
        log: &AclLog,
        caller: &Caller,
        command: &Command,
        args: Args<'_>,
        origin: acl::Origin,
    ) -> Result<(), CommandError> {
        caller.rights().check(command, args).map_err(|denial| {
            let user = caller.rights().user();
            self.log_denial(log, caller, command, args, denial, origin);
            let text = user.map_or(String::new(), |user| denial.text(user, command));
            let position = if origin == acl::Origin::Lua { "ACL failure in script: " } else { "" };
            CommandError::text(format!("NOPERM {position}{text}"))
        })
    }

    /// Records a denial in ACL LOG.
    #[cold]
    pub(crate) fn log_denial(
        &self,
        log: &AclLog,
        caller: &Caller,
        command: &Command,
        args: Args<'_>,
        denial: Denial,
        origin: acl::Origin,
    ) {
        let object = match denial {
            Denial::Command => command.full_name.as_bytes(),
            Denial::Key { index } | Denial::Channel { index } => args.at(index),
        };
        let (client, reason) = (&caller.client, denial.into());
        self.log_denied_object(log, client, &command.full_name, object, reason, origin);
    }

    /// Records the denial of a command, key or channel, for a client of any protocol.
    #[cold]
    pub fn log_denied_object(
        &self,
        log: &AclLog,
        client: &Client,
        command: &str,
        object: &[u8],
        reason: Reason,
        origin: acl::Origin,
    ) {
        let username = client.user().map_or(Vec::new(), |user| user.name().to_vec());
        let object = object.to_vec();
        self.log_denied(log, client, command, Denied { reason, origin, object, username });
    }

    /// Records a failed authentication in ACL LOG, with the call and the user name that the client gave.
    #[cold]
    pub fn log_wrong_password(
        &self,
        client: &Client,
        command: &str,
        called: &[u8],
        username: &[u8],
        origin: acl::Origin,
    ) {
        let (object, username) = (called.to_vec(), username.to_vec());
        let denied = Denied { reason: Reason::Auth, origin, object, username };
        self.log_denied(&self.acl.log, client, command, denied);
    }

    /// Returns the line of `CLIENT LIST` about a client.
    pub fn describe_client(&self, client: &Client, now_ms: i64) -> String {
        let command = client.last_command().map_or("NULL", |id| self.command_name(id));
        client.describe(now_ms, command)
    }

    fn log_denied(&self, log: &AclLog, client: &Client, command: &str, denied: Denied) {
        let now_ms = crate::clock::unix_ms();
        let line = client.describe(now_ms, command);
        let max_len = self.config.live().acllog_max_len() as usize;
        log.note(denied, line, now_ms, max_len);
    }

    /// Maximum number of entries of a log of commands.
    pub(crate) fn log_max_len(&self, kind: LogKind) -> usize {
        let live = self.config.live();
        let max_len = match kind {
            LogKind::Slow => live.slowlog_max_len(),
            LogKind::LargeRequest => live.large_request_max_len(),
            LogKind::LargeReply => live.large_reply_max_len(),
        };
        max_len as usize
    }

    /// Closes the connections of deleted users, except `except`, which is the current client. Workers also close
    /// those that lost the right to a subscribed channel.
    pub fn end_connections_without_rights(&self, except: &Client) {
        let users = &self.acl.users;
        for client in self.clients.all().into_iter().filter(|client| client.id != except.id) {
            let Some(user) = client.user() else { continue };
            if users.get(user.name()).is_none_or(|there| there.id() != user.id()) {
                client.set(ClientFlags::CLOSING, true);
                self.end_connection(&client);
            }
        }
        // Only the workers know the subscriptions of connections.
        self.tell_all(&Notice::RightsChanged);
    }
}

fn channel_default(engine: &Engine) -> ChannelDefault {
    match engine.config.settings().gives_channels() {
        true => ChannelDefault::All,
        false => ChannelDefault::None,
    }
}

/// Statistics.
impl Kernel {
    /// Returns the counters since the start, or since their reset.
    pub fn totals(&self) -> Totals {
        let baseline = self.baseline.lock();
        self.totals_since(baseline.as_ref().map(|baseline| &baseline.totals))
    }

    fn totals_since(&self, baseline: Option<&Totals>) -> Totals {
        let spare = self.spare.all();
        Totals::sum(self.counters.iter().chain(spare.iter().map(AsRef::as_ref)), baseline)
    }

    /// Returns one counter since the start, or since its reset. The sums of all commands are thousands of counters.
    pub fn stat(&self, stat: Stat) -> u64 {
        let baseline = self.baseline.lock();
        let base = baseline.as_ref().map_or(0, |baseline| baseline.totals.get(stat));
        self.running_stat(stat).wrapping_sub(base)
    }

    fn running_stat(&self, stat: Stat) -> u64 {
        let spare = self.spare.all();
        self.counters.iter().chain(spare.iter().map(AsRef::as_ref)).map(|own| own.get(stat)).sum()
    }

    fn all_traffic(&self) -> Traffic {
        self.front.get().map(|front| front.traffic()).unwrap_or_default()
    }

    /// Returns connections and bytes since the start, or since statistics were reset.
    pub fn traffic(&self) -> Traffic {
        // The baseline is locked first: counters only grow, so they cannot be below it.
        let baseline = self.baseline.lock();
        let base = baseline.as_ref().map(|base| base.traffic).unwrap_or_default();
        let now = self.all_traffic();
        Traffic {
            connections: now.connections - base.connections,
            bytes_in: now.bytes_in - base.bytes_in,
            bytes_out: now.bytes_out - base.bytes_out,
            dropped: now.dropped - base.dropped,
            too_fast: now.too_fast - base.too_fast,
            handshakes: now.handshakes.since(base.handshakes),
        }
    }

    /// Returns commands, bytes in and bytes out since the start, never reset, to compute rates.
    pub fn running_totals(&self) -> [u64; 3] {
        let traffic = self.all_traffic();
        let commands = self.running_stat(Stat::Commands);
        [commands, traffic.bytes_in, traffic.bytes_out]
    }

    /// Returns the time and bytes of all commands since the start, never reset.
    pub fn sums(&self) -> Sums {
        let (totals, traffic) = (self.totals_since(None), self.all_traffic());
        let nanos = self.commands.counted().map(|(id, _)| totals.command(id).nanos).sum();
        let bytes = traffic.bytes_in + traffic.bytes_out;
        Sums { nanos, bytes, cpu: process::cpu_times() }
    }

    fn all_key_stats(&self) -> KeyStats {
        let stats = self.keyspace.stats();
        KeyStats {
            hits: stats.hits,
            misses: stats.misses,
            expired: stats.expired,
            evicted: stats.evicted,
            expiry_nanos: stats.expiry_nanos,
            lazily_freed: stats.lazily_freed,
        }
    }

    /// Returns key statistics since the start, or since they were reset.
    pub fn key_stats(&self) -> KeyStats {
        let baseline = self.baseline.lock();
        let base = baseline.as_ref().map(|base| base.keys).unwrap_or_default();
        let now = self.all_key_stats();
        KeyStats {
            hits: now.hits - base.hits,
            misses: now.misses - base.misses,
            expired: now.expired - base.expired,
            evicted: now.evicted - base.evicted,
            expiry_nanos: now.expiry_nanos - base.expiry_nanos,
            lazily_freed: now.lazily_freed - base.lazily_freed,
        }
    }

    /// Starts to wait until no request admitted earlier is in progress. Call this after closing an admission check.
    #[must_use]
    pub fn begin_quiet(&self) -> Quiet {
        let workers = Arc::new(Reported::new(self.workers_told()));
        self.tell_all(&Notice::Report(Arc::clone(&workers)));
        Quiet::new(workers, &self.in_flight_requests)
    }

    /// `CONFIG RESETSTAT`.
    pub fn reset_stats(&self) {
        let mut baseline = self.baseline.lock();
        let totals = self.totals_since(None);
        let (traffic, keys) = (self.all_traffic(), self.all_key_stats());
        *baseline = Some(Baseline { totals, traffic, keys });
        drop(baseline);
        if let Some(front) = self.front.get() {
            front.reset_stats();
        }
        self.errors.reset();
        self.acl.log.reset_counts();
        self.excess.reset();
    }
}

/// Returns forty random hexadecimal digits.
fn random_hex() -> String {
    use crate::random::word;
    format!("{:016x}{:016x}{:08x}", word(), word(), word() as u32)
}
