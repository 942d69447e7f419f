//! What commands need to run: the store, the table, the registry of clients, and the statistics.
//!
//! A kernel needs no sockets. What it asks of the threads that carry requests and replies goes through
//! [`Front`]; without one, as in the import of a file, nothing is sent.

use std::ops::Deref;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tierce_engine::feed::Reader;
use tierce_keyspace::{ShardLocks, StreamPlace, interleaving};
use tierce_wire::resp::{Args, AuthState, Limits};

use crate::acl::{
    self, Acl, AclLog, ChannelDefault, Denial, Denied, FileError, Reason, Rights, Terms, Users,
};
use crate::answer::Answer;
use crate::bucket::Bucket;
use crate::caller::Caller;
use crate::clients::{Client, ClientFlags, Deferred, Listener, Pause, Registry};
use crate::command::{Access, Command, CommandId, Flags, Table};
use crate::config::{DirectiveId, Peer, Settings};
use crate::engine::Engine;
use crate::error::{CommandError, Interrupt};
use crate::fault::Fault;
use crate::hot_keys::{HotKeys, Sums};
use crate::message::{Notice, Reported};
use crate::offload::Offload;
use crate::process;
use crate::pubsub::PubSub;
use crate::replica_level::ReplicaLevel;
use crate::replication::Primary;
use crate::replication::failover::Failover;
use crate::replication::role::{Address, Role};
use crate::scripting::Scripts;
use crate::shutdown::{Shutdown, ShutdownRequest};
use crate::slowlog::SlowLog;
use crate::stats::{Counters, ErrorCounts, HttpFigures, Rates, SpareCounters, Stat, Totals};
use crate::under_way::{Passages, Quiet};
use crate::waiting::{ConnAddress, Patience};

/// Threads for commands that take too long for a worker. Two, so that one of minutes does not hold up all
/// others; each takes a processor from the workers while it runs.
const LONG_THREADS: usize = 2;

/// Threads for programs that take too long for a worker: as many as there are workers, so that programs on different
/// keys get all processors, up to this number. Others wait for one of them.
const PROGRAM_THREADS_MAX: usize = 8;

fn program_threads(workers: usize) -> usize {
    workers.min(PROGRAM_THREADS_MAX)
}

/// The threads that carry requests to the kernel and replies to clients.
pub trait Front: Send + Sync {
    /// Carries an answer to the client that waits for it.
    fn answer(&self, answer: Answer);

    /// Has a result called due ([`blocking::result_is_due`](crate::pipeline::blocking::result_is_due)) after so many
    /// milliseconds.
    fn set_deadline(&self, deferred: &Arc<Deferred>, after_ms: u64);

    /// Tells all workers.
    fn tell_all(&self, notice: &Notice);

    /// Ends a connection at once.
    fn close(&self, conn: ConnAddress);

    /// Connections and bytes since the start.
    fn traffic(&self) -> Traffic;

    /// Statistics are being reset.
    fn reset_stats(&self);
}

/// An engine with commands and clients.
pub struct Kernel {
    /// The data, and all that keeps them.
    pub engine: Arc<Engine>,
    /// All commands.
    pub commands: Table,
    /// Users and their rights.
    pub acl: Acl,
    /// All connections.
    pub clients: Arc<Registry>,
    /// `CLIENT PAUSE`.
    pub pause: Arc<Pause>,
    /// Requests that threads beside workers have under way.
    pub passages: Passages,
    /// Slow commands.
    pub slowlog: Mutex<SlowLog>,
    /// Keys that take the most time and bytes.
    pub hot_keys: HotKeys,
    /// Error replies by kind.
    pub errors: ErrorCounts,
    /// Commands and bytes over the last moments.
    pub rates: Rates,
    /// The clock by which commands are timed: nanoseconds since some moment in the past, never going back. A
    /// server has a faster one than the default.
    pub nanos: fn() -> u64,
    /// When the server started.
    pub started: Instant,
    /// The same in Unix seconds.
    pub started_unix_seconds: i64,
    /// Forty hexadecimal digits that name this life of the server.
    pub run_id: String,
    /// The service manager that is notified when the process is ready, if there is one.
    pub supervisor: OnceLock<&'static str>,
    /// What is counted of HTTP, if it was ever listened for.
    pub http: OnceLock<Arc<HttpFigures>>,
    /// Commands that take too long for a worker.
    pub offload: Offload,
    /// Scripts, and what of them runs.
    pub scripts: Scripts,
    /// Subscriptions and messages.
    pub pubsub: Arc<PubSub>,
    /// Those that follow this server.
    pub primary: Primary,
    /// Whether this is a replica.
    pub role: Role,
    /// Whether it hands that over.
    pub failover: Failover,
    /// How far the log in a bucket is.
    pub bucket: Bucket,
    shutdown: ShutdownRequest,
    /// Of the workers, then of the threads for long commands, then of those for programs.
    counters: Box<[Counters]>,
    /// For calls of threads that are neither.
    pub(crate) spare: SpareCounters,
    workers: usize,
    baseline: Mutex<Option<Baseline>>,
    front: OnceLock<Box<dyn Front>>,
}

/// What was counted when statistics were last reset.
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
    /// Connections that were closed because there was no descriptor for them.
    pub dropped: u64,
    /// Connections of addresses that opened them faster than `max-new-connections-per-address`.
    pub too_fast: u64,
    /// What became of TLS handshakes.
    pub handshakes: Handshakes,
}

/// What became of TLS handshakes since the start, or since statistics were reset.
#[derive(Clone, Copy, Default, Debug)]
pub struct Handshakes {
    /// Those that were completed.
    pub completed: u64,
    /// Those of them that went on with a session of before.
    pub resumed: u64,
    /// Those that failed, and connections that broke the protocol later.
    pub failed: u64,
    /// Those that were not begun, because too many were under way.
    pub refused: u64,
    /// Those of the failed ones that took too long.
    pub timed_out: u64,
    /// Those under way at the moment.
    pub under_way: u64,
}

impl Handshakes {
    /// Those since `base`.
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

/// What happened to keys since the start, or since statistics were reset.
#[derive(Clone, Copy, Default, Debug)]
pub struct KeyStats {
    /// Reads that found their key.
    pub hits: u64,
    /// Reads that did not.
    pub misses: u64,
    /// Keys removed because their time had come.
    pub expired: u64,
    /// Keys removed because memory ran short.
    pub evicted: u64,
    /// Nanoseconds spent on expiry in the background.
    pub expiry_nanos: u64,
    /// Values and tables freed in the background.
    pub lazily_freed: u64,
}

/// Writes of others are held back while this is there.
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
    /// Executes the commands of a table, with separate counters for this many threads.
    pub fn new(engine: Arc<Engine>, commands: Table, workers: usize) -> Self {
        let counters = (0..workers + LONG_THREADS + program_threads(workers))
            .map(|_| Counters::new(commands.id_count()))
            .collect();
        let terms = Terms { table: &commands, channels: channel_default(&engine) };
        let acl = Acl::new(terms);
        let kernel = Self {
            engine,
            acl,
            commands,
            clients: Arc::default(),
            pause: Arc::default(),
            passages: Passages::default(),
            slowlog: Mutex::default(),
            hot_keys: HotKeys::default(),
            errors: ErrorCounts::default(),
            rates: Rates::default(),
            nanos: crate::clock::monotonic_nanos,
            started: Instant::now(),
            started_unix_seconds: crate::clock::unix_ms() / 1000,
            run_id: random_hex(),
            supervisor: OnceLock::new(),
            http: OnceLock::new(),
            offload: Offload::default(),
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

    /// Connects the kernel with the threads that carry requests to it. A second call has no effect.
    pub fn attach(&self, front: Box<dyn Front>) {
        let _ = self.front.set(front);
    }

    /// Carries an answer to the client that waits for it.
    pub fn answer(&self, answer: Answer) {
        interleaving::pass("answer");
        if answer.to.deferred().is_some_and(|deferred| deferred.answer() == Listener::Gone) {
            return;
        }
        if let Some(front) = self.front.get() {
            front.answer(answer);
        }
    }

    /// A result has come, or will not come. Whether it was pending.
    pub fn end_result(&self, deferred: &Deferred) -> bool {
        deferred.end(&self.clients.pending)
    }

    /// Limits how long a client waits for a result.
    pub(crate) fn set_deadline(&self, deferred: &Arc<Deferred>, patience: Patience) {
        if let (Patience::Ms(after_ms), Some(front)) = (patience, self.front.get()) {
            front.set_deadline(deferred, after_ms);
        }
    }

    /// True if writes at this level are refused, since there are too few replicas. Without a stream they could not be
    /// confirmed, and are not done at all; in a failover it pauses before the role is seen to change. A log in a bucket
    /// follows the changes as well, and confirms nothing for replicas.
    #[inline]
    pub(crate) fn lacks_replicas(&self, level: Option<ReplicaLevel>) -> bool {
        let feed = &self.feed;
        let has_stream = || {
            feed.is_followed() && (!self.bucket.is_on() || feed.is_followed_by(Reader::Replicas))
        };
        self.role.lacks_replicas() || level.is_some() && !has_stream() && !self.failover.is_on()
    }

    /// Counts an error reply that is written beside the run of a command, which has failed by it.
    #[cold]
    pub fn count_error(&self, error: &CommandError, failed: Option<CommandId>) {
        let counters = self.spare.take(self.commands.id_count());
        counters.add(Stat::Errors, 1);
        failed.into_iter().for_each(|command| counters.failed(command));
        self.spare.give_back(counters);
        self.errors.count(error.kind());
    }

    /// Whether what has passed the gates must not change data any more, or not yet, by what other threads have closed
    /// since: a pause, a log or snapshots that fail, replicas that are missing for its level. To be asked with the keys
    /// locked, just before the change.
    #[must_use]
    pub fn has_closed(&self, access: Access, level: Option<ReplicaLevel>) -> bool {
        let is_paused = || self.pause.holds(true, || false, crate::clock::unix_ms()).is_some();
        // In this order: a failover changes the role, and then ends the pause.
        (access.passes_on() && is_paused())
            || (access.writes && self.fault_of_writes(level).is_some())
    }

    /// Why no write of a client with this level may run as things are, in the order in which scripts hear of it.
    pub fn fault_of_writes(&self, level: Option<ReplicaLevel>) -> Option<Fault> {
        if self.role.is_read_only() {
            Some(Fault::ReadOnly)
        } else if self.persistence.refuses_writes() {
            Some(Fault::NotSaved)
        } else if self.durability.refuses_writes() {
            Some(Fault::NotLogged)
        } else if self.lacks_replicas(level) {
            // A failover that has just ended has stopped the stream, and changed the role before.
            let is_replica = self.role.is_read_only();
            Some(if is_replica { Fault::ReadOnly } else { Fault::TooFewReplicas })
        } else {
            None
        }
    }

    /// Follows a primary from now on, or none. Returns whether that is a change. No shard is held, and nothing of the
    /// stream so far is applied any more.
    pub fn follow(&self, primary: Option<Address>, now_ms: i64) -> bool {
        let _nothing_is_applied = self.role.hold_still();
        self.follow_meanwhile(primary, now_ms)
    }

    /// The same where that is ensured already ([`Role::hold_still`]).
    pub fn follow_meanwhile(&self, primary: Option<Address>, now_ms: i64) -> bool {
        if primary.is_none() && self.role.following().is_some() {
            // Before the first change that is not of the stream.
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

    /// The server follows this primary from now on, or none.
    pub(crate) fn note_primary(&self, primary: Option<&Address>) {
        self.note_follows(primary.is_some());
        self.config.set_primary(primary.map(|primary| (primary.host.clone(), primary.port)));
    }

    /// The server follows another one from now on, or none.
    pub(crate) fn note_follows(&self, follows: bool) {
        self.primary.note_role(follows);
        self.feed.call(Reader::Replicas);
        // Keys whose time has come may expire at once, and replicas hear of that.
        self.settle_expiry();
        self.log.set_replica(follows);
    }

    /// Has clients served that wait for keys which were changed with these locks, as the log of another server was
    /// applied.
    pub fn serve_waiting(&self, locks: &mut ShardLocks<'_>) {
        locks.take_ready().into_iter().for_each(|key| self.offload.serve(key));
    }

    /// Finds out whether there are enough replicas for clients to write. To be called when one comes, goes or is
    /// silent.
    pub fn count_replicas(&self, settings: &Settings, now_ms: i64) {
        const WANTED: DirectiveId = DirectiveId::of("min-replicas-to-write");
        const LAG_MAX: DirectiveId = DirectiveId::of("min-replicas-max-lag");
        let (wanted, lag_max) = (settings.count(WANTED), settings.number(LAG_MAX));
        let good = self.primary.count_good(lag_max, now_ms) as u64;
        // As in Redis, no lag at all switches it off as well.
        self.role.set_lacks_replicas(lag_max > 0 && good < wanted);
    }

    /// The data are those of no stream from now on, also after a restart.
    pub fn leave_stream(&self) {
        if self.keyspace.stream_place().is_some() {
            let mut locks = self.keyspace.locks();
            locks.move_to(None);
            locks.release();
        }
    }

    /// The data do not change any more until the next start, and are those of this place. In the log of a replica that
    /// is noted with its last change.
    pub fn end_at(&self, place: StreamPlace) {
        if self.role.following().is_none() {
            let mut locks = self.keyspace.locks();
            locks.end_at(place);
            locks.release();
        }
    }

    /// Tells all workers.
    pub fn tell_all(&self, notice: &Notice) {
        if let Some(front) = self.front.get() {
            front.tell_all(notice);
        }
    }

    /// Ends a connection at once.
    pub fn end_connection(&self, client: &Client) {
        if let Some(front) = self.front.get() {
            front.close(client.conn);
        }
    }

    /// Number of workers that get what [`Kernel::tell_all`] tells.
    pub fn workers_told(&self) -> usize {
        if self.front.get().is_some() { self.workers } else { 0 }
    }

    /// Number of workers.
    pub fn workers(&self) -> usize {
        self.workers
    }

    /// The counters of a worker.
    #[inline]
    pub fn counters(&self, worker: usize) -> &Counters {
        &self.counters[worker]
    }

    /// Number of threads for long commands.
    pub fn long_threads(&self) -> usize {
        LONG_THREADS
    }

    /// The counters of one of them.
    pub fn long_counters(&self, thread: usize) -> &Counters {
        &self.counters[self.workers + thread]
    }

    /// Number of threads for programs.
    pub fn program_threads(&self) -> usize {
        program_threads(self.workers)
    }

    /// The counters of one of them.
    pub fn program_counters(&self, thread: usize) -> &Counters {
        &self.counters[self.workers + LONG_THREADS + thread]
    }

    /// Where a call of a command waits for a thread, if a worker has no time for it.
    pub fn offload_of(&self, command: &Command, caller: &Caller) -> &Offload {
        let runs_programs = command.spec.flags.contains(Flags::PROGRAM)
            || caller.transaction.as_ref().is_some_and(|queued| queued.runs_programs);
        if runs_programs { &self.scripts.offload } else { &self.offload }
    }

    /// For how long clients wait for what a program holds until they get BUSY.
    pub fn busy_threshold(&self) -> Duration {
        match self.config.live().busy_reply_threshold() {
            0 => Duration::MAX,
            ms => Duration::from_millis(ms),
        }
    }

    /// What a client is told whose command was interrupted, if a program has held for too long what it needs, or may
    /// have: who holds the role still may wait for any shard.
    #[cold]
    pub fn busy_with_program(&self, interrupt: Interrupt) -> Option<CommandError> {
        let (running, threshold) = (&self.scripts.running, self.busy_threshold());
        match interrupt {
            Interrupt::Busy(busy) => running.refusal(busy.shard, threshold),
            Interrupt::Role => running.any_for(threshold),
            Interrupt::Long | Interrupt::Gate | Interrupt::Quiet => None,
        }
    }

    /// Whether clients need no password.
    pub fn is_open(&self) -> bool {
        self.acl.users.is_open()
    }

    /// What a request may look like.
    #[inline]
    pub fn request_limits(&self, auth: AuthState) -> Limits {
        let max_bulk_len = self.config.live().proto_max_bulk_len() as usize;
        // Redis receives 16 KiB at a time, and looks for the end of a line before it looks at its length.
        Limits { max_bulk_len, line_slack: 16 * 1024, auth, ..Limits::default() }
    }

    /// Whether protected mode keeps this client out: a stranger, while there is no password.
    pub fn is_protected_from(&self, client: &Client) -> bool {
        client.peer() == Peer::Remote && self.is_open() && self.config.live().protected_mode()
    }

    /// The name of a command or operation by its identity.
    pub fn command_name(&self, id: CommandId) -> &str {
        self.commands.counted().find(|(of, _)| *of == id).map_or("NULL", |(_, name)| name)
    }

    /// Holds writes back, beside any other pause, until the returned guard is dropped.
    pub fn hold_writes(&self) -> HeldWrites<'_> {
        self.pause.hold();
        HeldWrites(self)
    }

    /// Where the end of the server is asked for.
    pub fn shutdown(&self) -> &ShutdownRequest {
        &self.shutdown
    }

    /// Asks for the end of the server.
    pub fn request_shutdown(&self, reason: Shutdown) {
        self.shutdown.ask(reason);
    }
}

/// Users.
impl Kernel {
    /// What rules of users are applied in.
    #[must_use]
    pub fn acl_terms(&self) -> Terms<'_> {
        Terms { table: &self.commands, channels: channel_default(&self.engine) }
    }

    /// The default user gets the password that `requirepass` says, or none.
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

    /// Makes the users of the configuration, or those of its `aclfile`.
    ///
    /// # Errors
    /// When a rule is none, or the file cannot be read.
    pub fn load_users(&self) -> Result<(), FileError> {
        acl::load(&self.config.settings(), &self.acl, self.acl_terms())
    }

    /// The lines of the configuration that make the users, without the word `user`. None if they have a file of their
    /// own, and none of the default user if that is as `requirepass` alone makes it.
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

    /// The rights of the user with this name and password, if there is one. If not, that is logged.
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

    /// Does what [`Kernel::authenticate`] does for a name and a password that were right on the same connection before,
    /// and so did not wait.
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
        // The password is hashed in any case, so that time does not tell which names exist.
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

    /// Whether a call, its name included, is allowed to the caller. What is denied is logged.
    ///
    /// # Errors
    /// The reply when it is denied.
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

    /// Does what [`Kernel::check_rights`] does, and notes a denial in `log`.
    ///
    /// # Errors
    /// As there.
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
            let place = if origin == acl::Origin::Lua { "ACL failure in script: " } else { "" };
            CommandError::text(format!("NOPERM {place}{text}"))
        })
    }

    /// Notes a denial.
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

    /// The same for a command, key or channel of a client of any protocol.
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

    /// Puts a failed attempt to authenticate into ACL LOG: what was called, and who the client wanted to be.
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

    /// The line of `CLIENT LIST` about a client.
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

    /// Entries of the slow log.
    pub(crate) fn slowlog_max_len(&self) -> usize {
        self.config.live().slowlog_max_len() as usize
    }

    /// Ends the connections of users that are no more, except for the one whose turn it is, and those that have lost a
    /// channel they subscribe to.
    pub fn end_connections_without_rights(&self, except: &Client) {
        let users = &self.acl.users;
        for client in self.clients.all().into_iter().filter(|client| client.id != except.id) {
            let Some(user) = client.user() else { continue };
            if users.get(user.name()).is_none_or(|there| there.id() != user.id()) {
                client.set(ClientFlags::CLOSING, true);
                self.end_connection(&client);
            }
        }
        // Only their workers know what connections subscribe to.
        self.tell_all(&Notice::RightsChanged);
    }
}

fn channel_default(engine: &Engine) -> ChannelDefault {
    match engine.config.settings().gives_channels() {
        true => ChannelDefault::All,
        false => ChannelDefault::None,
    }
}

/// Accounts.
impl Kernel {
    /// Counters since the start, or since they were reset.
    pub fn totals(&self) -> Totals {
        let baseline = self.baseline.lock();
        self.totals_since(baseline.as_ref().map(|baseline| &baseline.totals))
    }

    fn totals_since(&self, baseline: Option<&Totals>) -> Totals {
        let spare = self.spare.all();
        Totals::sum(self.counters.iter().chain(spare.iter().map(AsRef::as_ref)), baseline)
    }

    fn all_traffic(&self) -> Traffic {
        self.front.get().map(|front| front.traffic()).unwrap_or_default()
    }

    /// Connections and bytes since the start, or since statistics were reset.
    pub fn traffic(&self) -> Traffic {
        // The baseline first, and locked: what is counted after it was taken is more.
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

    /// Commands, bytes in and bytes out since the start, never reset, for rates.
    pub fn running_totals(&self) -> [u64; 3] {
        let traffic = self.all_traffic();
        let commands = self.totals_since(None).get(Stat::Commands);
        [commands, traffic.bytes_in, traffic.bytes_out]
    }

    /// What all commands have taken since the start, never reset.
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

    /// What happened to keys since the start, or since statistics were reset.
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

    /// To be called behind what closes a gate.
    #[must_use]
    pub fn begin_quiet(&self) -> Quiet {
        let workers = Arc::new(Reported::new(self.workers_told()));
        self.tell_all(&Notice::Report(Arc::clone(&workers)));
        Quiet::new(workers, &self.passages)
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

/// Forty random hexadecimal digits.
fn random_hex() -> String {
    use crate::random::word;
    format!("{:016x}{:016x}{:08x}", word(), word(), word() as u32)
}
