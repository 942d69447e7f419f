//! Admission checks: conditions for a request to run now. They are checked once for a batch where possible.
//!
//! Usually all conditions hold. So a batch checks them once. While [`Admission::are_open`], a request that only works on
//! data needs no further check. Any other request is checked one by one, and may change the conditions, so all are
//! read again after it. Changes by other threads are seen by the next batch.
//!
//! Requests of other protocols use [`Admission::admit`]: the same checks, except those that such a protocol does itself,
//! such as passwords.

use tierce_keyspace::ShardLocks;
use tierce_lua::Flags as ProgramFlags;
use tierce_wire::resp::Args;

use crate::caller::{Caller, ReplyMode};
use crate::command::{Access, Command, Flags, Group, Spec};
use crate::durability::SyncPolicy;
use crate::error::CommandError;
use crate::eviction::Room;
use crate::fault::Fault;
use crate::kernel::Kernel;
use crate::pipeline::program::{access_of, stated_flags};
use crate::pipeline::{self, Refused};
use crate::pipeline::{handoff, redirect};
use crate::replica_level::ReplicaLevel;
use crate::replication::role::{LACKS_REPLICAS, READ_ONLY, STALE};
use crate::scripting::Kind;
use crate::waiting::{Deferral, Obstacle};

/// Reason that a request may not run now.
pub enum Barred<R> {
    /// It is answered with an error: in the words of its protocol, or ready for RESP.
    Refused(R),
    /// It is deferred.
    Held(Deferral),
}

/// Returns the error for RESP clients.
#[cold]
pub(super) fn error_of(fault: Fault, kernel: &Kernel) -> CommandError {
    match fault {
        Fault::NotSaved => CommandError::CANNOT_SAVE,
        Fault::NotLogged => CommandError::not_logged(kernel.durability.write_failure()),
        Fault::OutOfMemory => CommandError::OUT_OF_MEMORY,
        Fault::NoPermission => CommandError::new("NOPERM No permissions"),
        Fault::ReadOnly => CommandError::REPLICA_IS_READ_ONLY,
        Fault::Stale => CommandError::PRIMARY_IS_DOWN,
        Fault::Loading => CommandError::LOADING,
        Fault::TooFewReplicas => CommandError::TOO_FEW_REPLICAS,
        Fault::Busy => Kind::Script.busy(),
    }
}

/// Admission state of one batch.
#[derive(Default)]
pub struct Admission {
    now_ms: i64,
    closed: Closed,
    /// True if a client monitors all commands.
    pub watched: bool,
    /// True if values may be on disk.
    pub has_spilled: bool,
    /// Replicas that must have a write before it is acknowledged.
    pub level: Option<ReplicaLevel>,
    open: Open,
}

/// Requests on data that need no further check.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Open {
    /// None.
    #[default]
    No,
    /// Those that the caller may make.
    ToAllowed,
    /// Those that are queued in a transaction.
    ToQueue,
    /// All.
    ToAll,
}

/// Reasons to check requests, a bit for each. The low bits are those of the role.
#[derive(Clone, Copy, Default)]
struct Closed(u16);

/// The log refuses writes.
const REFUSES_WRITES: u16 = 1 << 8;
/// A sync takes so long that writes wait.
const IS_LATE: u16 = 1 << 9;
/// Snapshots fail, so writes are refused.
const CANNOT_SAVE: u16 = 1 << 10;
/// The data are being loaded.
const IS_LOADING: u16 = 1 << 11;
/// Clients, or their writes, are paused.
const PAUSED: u16 = 1 << 12;
/// Memory is limited.
const LIMITED: u16 = 1 << 13;
/// Changes are published, or sent as invalidations, faster than clients receive them.
const IS_CONGESTED: u16 = 1 << 14;

impl Closed {
    /// Calls `is_enough` with each condition and its bit until it returns true, and returns if it did. The pause is
    /// read first and the role later, because a failover pauses clients before it changes the role.
    #[inline(always)]
    fn any(
        kernel: &Kernel,
        policy: impl Fn() -> SyncPolicy,
        now_ms: i64,
        mut is_enough: impl FnMut(bool, u16) -> bool,
    ) -> bool {
        // Loaded once: the compiler would load it again after each atomic read.
        let engine = &*kernel.engine;
        is_enough(kernel.pause.is_on(now_ms), PAUSED)
            || is_enough(engine.durability.refuses_writes(), REFUSES_WRITES)
            || is_enough(engine.durability.holds_back(policy), IS_LATE)
            || is_enough(engine.persistence.refuses_writes(), CANNOT_SAVE)
            || {
                let role = u16::from(kernel.role.closes_to_some());
                is_enough(role != 0, role)
            }
            || is_enough(engine.loading.is_on(), IS_LOADING)
            || is_enough(engine.keyspace.has_memory_limit(), LIMITED)
            || is_enough(is_congested(kernel), IS_CONGESTED)
    }

    fn has(self, any: u16) -> bool {
        self.0 & any != 0
    }

    /// Returns the reason to refuse all writes. As in Redis, the check of memory comes before it.
    fn to_writes(self) -> Option<Fault> {
        let faults = [
            (CANNOT_SAVE, Fault::NotSaved),
            (REFUSES_WRITES, Fault::NotLogged),
            (READ_ONLY.into(), Fault::ReadOnly),
            (LACKS_REPLICAS.into(), Fault::TooFewReplicas),
        ];
        faults.into_iter().find_map(|(bit, fault)| self.has(bit).then_some(fault))
    }

    /// Returns true if a program may be refused or deferred because of its declared flags.
    fn to_some_programs(self, kernel: &Kernel) -> bool {
        self.has(!LIMITED & !IS_LOADING & !u16::from(STALE))
            || self.has(LIMITED) && kernel.keyspace.is_short_of_memory()
    }
}

#[inline(always)]
fn is_congested(kernel: &Kernel) -> bool {
    let is_told = kernel.keyspace.wants_events() || kernel.pubsub.tracker_count() > 0;
    is_told && kernel.pubsub.is_congested()
}

impl Admission {
    /// Reads all conditions.
    #[inline]
    pub fn read(kernel: &Kernel, caller: &mut Caller, now_ms: i64) -> Self {
        let mut admission = Self::at(now_ms);
        admission.reread(kernel, caller);
        admission
    }

    /// Reads the conditions for requests of all protocols.
    #[inline]
    pub fn read_for_all(kernel: &Kernel, now_ms: i64) -> Self {
        let mut admission = Self::at(now_ms);
        let policy = || kernel.config.live().appendfsync();
        if !admission.read_closed(kernel, policy, ReplicaLevel::of_server(kernel)) {
            admission.open = Open::ToAll;
        }
        admission
    }

    /// Creates a state in which nothing is admitted, until the first read.
    #[inline]
    pub fn at(now_ms: i64) -> Self {
        Self { now_ms, ..Self::default() }
    }

    /// Reads all conditions again, after a request that may have changed some. Always inlined, because each batch
    /// begins with it and a call costs 30 instructions.
    #[inline(always)]
    pub fn reread(&mut self, kernel: &Kernel, caller: &mut Caller) {
        caller.renew_rights(&kernel.acl.users);
        let level = caller.replica_level(kernel);
        let is_closed = self.read_closed(kernel, || caller.sync_policy(kernel), level)
            || !caller.authenticated
            || caller.reply_mode != ReplyMode::On
            || caller.gets_messages();
        self.open = match caller.is_in_transaction() {
            _ if is_closed => Open::No,
            false if !caller.rights().are_restricted() => Open::ToAll,
            false => Open::ToAllowed,
            true if !caller.rights().are_restricted() => Open::ToQueue,
            true => Open::No,
        };
    }

    /// Returns true if a condition fails for some requests, or a client monitors. Which one, is found out only then.
    #[inline(always)]
    fn read_closed(
        &mut self,
        kernel: &Kernel,
        policy: impl Fn() -> SyncPolicy,
        level: Option<ReplicaLevel>,
    ) -> bool {
        let is_closed = level.is_some()
            || kernel.clients.has_monitors()
            || kernel.keyspace.has_spilled()
            || Closed::any(kernel, &policy, self.now_ms, |is_so, _| is_so);
        (self.closed, self.level) = (Closed::default(), None);
        (self.watched, self.has_spilled) = (false, false);
        if is_closed {
            self.read_each(kernel, policy, level);
        }
        is_closed
    }

    #[cold]
    fn read_each(
        &mut self,
        kernel: &Kernel,
        policy: impl Fn() -> SyncPolicy,
        level: Option<ReplicaLevel>,
    ) {
        let closed = &mut self.closed.0;
        Closed::any(kernel, policy, self.now_ms, |is_so, bit| {
            *closed |= if is_so { bit } else { 0 };
            false
        });
        self.watched = kernel.clients.has_monitors();
        self.has_spilled = kernel.keyspace.has_spilled();
        self.level = level;
        if level.is_some() {
            *closed |= if kernel.lacks_replicas(level) { LACKS_REPLICAS.into() } else { 0 };
            // After the failover check: writes are deferred during a failover, later refused as on a replica.
            *closed |= u16::from(kernel.role.closes_to_some() & READ_ONLY);
        }
    }

    /// Returns true if `command` needs no further check and does not change the conditions.
    #[inline]
    pub fn are_open(&self, command: &Command) -> bool {
        self.are_open_to_all() && command.is_data_only
    }

    /// Returns true if a call of `command` is admitted by the rights of a caller with limited rights.
    #[inline]
    pub fn are_open_to(&self, caller: &Caller, command: &Command, args: Args<'_>) -> bool {
        self.open == Open::ToAllowed && command.is_data_only && caller.rights().allow(command, args)
    }

    /// Returns true if `command` may be queued without a further check.
    #[inline]
    pub fn are_open_to_queue(&self, command: &Command) -> bool {
        self.open == Open::ToQueue && command.is_data_only
    }

    /// Returns true if [`Admission::check`] may evict keys.
    #[inline]
    pub fn may_evict(&self) -> bool {
        self.closed.has(LIMITED)
    }

    /// Returns true if requests on data need no further check.
    #[inline]
    pub fn are_open_to_all(&self) -> bool {
        self.open == Open::ToAll
    }

    /// Checks a call of `command`. Values that it needs may still be on disk.
    ///
    /// # Errors
    /// Fails if the call is refused, or deferred.
    pub fn check<'k>(
        &self,
        kernel: &'k Kernel,
        caller: &mut Caller,
        locks: &mut ShardLocks<'k>,
        command: &'k Command,
        args: Args<'_>,
    ) -> Result<(), Barred<Refused<'k>>> {
        let refused = |error| Err(Barred::Refused(Refused { command: Some(command), error }));
        pipeline::admit(kernel, caller, command, args).map_err(Barred::Refused)?;
        let spec = command.spec;
        // EXEC refuses a queued request that would have to wait.
        if let Some(user) = pipeline::named_user(command, args)
            && !caller.is_in_transaction()
        {
            let (guesses, host) = (&kernel.acl.guesses, caller.client.host());
            if let Some(until_ms) = caller.attempt.waits_until(guesses, host, user, self.now_ms) {
                return Err(Barred::Held(Deferral::At(Obstacle::Guesses, until_ms)));
            }
        }
        let is_exempt = || {
            spec.flags.contains(Flags::ADMIN)
                || spec.flags.contains(Flags::NO_AUTH)
                || spec.name == "client"
        };
        let access = match self.closed.to_some_programs(kernel) {
            true => access_of(kernel, caller, command, args),
            false => caller.access_of(command, args),
        };
        // A replica redirects before its own temporary errors: the primary may serve the call.
        if self.closed.has(READ_ONLY.into())
            && redirect::concerns(caller, command, access.writes)
            && let Some(error) = redirect::redirection(kernel)
        {
            return refused(error);
        }
        if self.closed.has(IS_LOADING) && !caller.runs_while_loading(command) {
            return refused(CommandError::LOADING);
        }
        // A script that only might write would fail in its midst.
        if self.closed.has(READ_ONLY.into())
            && access.may_write
            && spec.flags.contains(Flags::PROGRAM)
            && handoff::leads_away(kernel, &caller.client)
        {
            return refused(CommandError::REPLICA_IS_READ_ONLY);
        }
        // The error about a read-only replica comes first, since it stays true when the primary is back.
        let is_for_primary = access.writes && self.closed.has(READ_ONLY.into());
        let runs_when_stale = || {
            let states = || stated_flags(kernel, command, args);
            caller.runs_when_stale(command)
                && states().is_none_or(|flags| flags.contains(ProgramFlags::ALLOW_STALE))
        };
        if self.closed.has(STALE.into()) && !is_for_primary && !runs_when_stale() {
            return refused(CommandError::PRIMARY_IS_DOWN);
        }
        match self.admit(kernel, locks, access, is_exempt) {
            Ok(()) => {}
            Err(Barred::Held(deferral)) => return Err(Barred::Held(deferral)),
            Err(Barred::Refused(fault)) => return refused(error_of(fault, kernel)),
        }
        if caller.reads_messages_only() && !spec.flags.contains(Flags::WHILE_SUBSCRIBED) {
            return refused(CommandError::while_subscribed(&command.full_name));
        }
        // Publishers wait during congestion, since senders of other messages cannot.
        match access.publishes && kernel.pubsub.is_congested() {
            true => Err(self.held_a_little(Obstacle::Delivery)),
            false => Ok(()),
        }
    }

    /// Returns the reason to hide data: they are old, or still loading.
    #[must_use]
    pub fn hide_data(&self) -> Option<Fault> {
        if self.closed.has(IS_LOADING) {
            return Some(Fault::Loading);
        }
        self.closed.has(STALE.into()).then_some(Fault::Stale)
    }

    /// Checks a request. `is_exempt` requests ignore a pause of all clients.
    ///
    /// # Errors
    /// Fails if the request is refused, or deferred.
    pub fn admit(
        &self,
        kernel: &Kernel,
        locks: &mut ShardLocks<'_>,
        access: Access,
        is_exempt: impl FnOnce() -> bool,
    ) -> Result<(), Barred<Fault>> {
        if access.writes
            && let Some(fault) = self.closed.to_writes()
        {
            let lacks_memory =
                access.grows && self.closed.has(LIMITED) && kernel.cannot_fit(access.brings);
            return Err(Barred::Refused(if lacks_memory { Fault::OutOfMemory } else { fault }));
        }
        let may_write = access.writes || access.may_write;
        // Threads that change keys publish the changes.
        if may_write && self.closed.has(IS_CONGESTED) {
            return Err(self.held_a_little(Obstacle::Delivery));
        }
        if self.closed.has(PAUSED) {
            // Messages enter the stream as well, and a pause must see its end.
            let passes_on = access.passes_on();
            // If the pause has ended since, conditions are read again: a failover changes the role first.
            let ended = passes_on.then_some(self.now_ms + 1);
            if let Some(until_ms) = kernel.pause.holds(passes_on, is_exempt, self.now_ms).or(ended)
            {
                return Err(Barred::Held(Deferral::At(Obstacle::Pause, until_ms)));
            }
        }
        if may_write && self.closed.has(IS_LATE) {
            return Err(Barred::Held(Deferral::On(Obstacle::SlowSync)));
        }
        // Without memory, only those calls of a program are refused that need memory.
        if access.may_grow
            && self.closed.has(LIMITED)
            && let Room::Soon = kernel.make_room(locks, 0, self.now_ms)
        {
            return Err(self.held_a_little(Obstacle::Memory));
        }
        if access.grows && self.closed.has(LIMITED) {
            return match kernel.make_room(locks, access.brings, self.now_ms) {
                Room::Enough => Ok(()),
                Room::Soon => Err(self.held_a_little(Obstacle::Memory)),
                Room::None => Err(Barred::Refused(Fault::OutOfMemory)),
            };
        }
        Ok(())
    }

    fn held_a_little<R>(&self, obstacle: Obstacle) -> Barred<R> {
        Barred::Held(Deferral::At(obstacle, self.now_ms + 1))
    }
}

/// Returns true for a command that reports on the server and not on data. Monitoring uses these commands, and must
/// never wait for a durability level.
#[must_use]
pub fn tells_of_server(spec: &Spec) -> bool {
    matches!(spec.group, Group::Connection | Group::Server) && spec.runs_while_loading()
}
