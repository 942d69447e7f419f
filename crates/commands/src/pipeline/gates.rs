//! Conditions that a request must pass before it runs, checked once for a batch where possible.
//!
//! Most of the time all gates are open. So a batch checks all of them once. While [`Gates::are_open`], a
//! request that only works on data passes without another check. Any other request passes them one by one,
//! and may change them, so all are checked again after it. The next batch notices what other threads have
//! changed in between.
//!
//! Requests of other protocols pass [`Gates::admit`]: the same gates, except for what they have of their own,
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
use crate::pipeline::redirect;
use crate::pipeline::{self, Refused};
use crate::replica_level::ReplicaLevel;
use crate::replication::role::{LACKS_REPLICAS, READ_ONLY, STALE};
use crate::waiting::{Deferral, Obstacle};

/// Why the gates do not let a request pass.
pub enum Barred<R> {
    /// It is answered with an error: in the words of its protocol, or ready for RESP.
    Refused(R),
    /// It waits.
    Held(Deferral),
}

/// The error for clients that speak RESP.
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
    }
}

/// The gates of one batch.
#[derive(Default)]
pub struct Gates {
    now_ms: i64,
    closed: Closed,
    /// A client watches all commands.
    pub watched: bool,
    /// Values may be on disk.
    pub has_spilled: bool,
    /// The replicas that have a write before it is acknowledged.
    pub level: Option<ReplicaLevel>,
    open: Open,
}

/// Requests on data that pass without another look.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Open {
    /// They may not.
    #[default]
    No,
    /// If they are allowed to the caller.
    ToAllowed,
    /// Into the queue of a transaction.
    ToQueue,
    /// All of them.
    ToAll,
}

/// Why requests may not pass unseen: a bit for each cause, those of the role as it has them.
#[derive(Clone, Copy, Default)]
struct Closed(u16);

/// The log takes no writes.
const REFUSES_WRITES: u16 = 1 << 8;
/// A sync takes so long that writes wait.
const IS_LATE: u16 = 1 << 9;
/// Writes are refused because snapshots cannot be written.
const CANNOT_SAVE: u16 = 1 << 10;
/// The data are being loaded.
const IS_LOADING: u16 = 1 << 11;
/// Clients are paused, or some of them.
const PAUSED: u16 = 1 << 12;
/// Memory is limited.
const LIMITED: u16 = 1 << 13;
/// Changes are published, or told to clients that track keys, faster than these get them.
const IS_CONGESTED: u16 = 1 << 14;

impl Closed {
    /// Calls `is_enough` with each cause, and whether it is there, until that returns `true`, and returns whether it has.
    /// The pause comes first and the role behind it: a failover pauses clients before it changes the role.
    #[inline(always)]
    fn any(
        kernel: &Kernel,
        policy: impl Fn() -> SyncPolicy,
        now_ms: i64,
        mut is_enough: impl FnMut(bool, u16) -> bool,
    ) -> bool {
        // Asked for once: behind each look at another's word it would be loaded again.
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

    /// Why no writes run, whatever they write. Memory comes before that, as in Redis.
    fn to_writes(self) -> Option<Fault> {
        let faults = [
            (CANNOT_SAVE, Fault::NotSaved),
            (REFUSES_WRITES, Fault::NotLogged),
            (READ_ONLY.into(), Fault::ReadOnly),
            (LACKS_REPLICAS.into(), Fault::TooFewReplicas),
        ];
        faults.into_iter().find_map(|(bit, fault)| self.has(bit).then_some(fault))
    }

    /// True if a program may be refused or held back for the flags that it states.
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

impl Gates {
    /// Looks at all of them.
    #[inline]
    pub fn read(kernel: &Kernel, caller: &mut Caller, now_ms: i64) -> Self {
        let mut gates = Self::at(now_ms);
        gates.reread(kernel, caller);
        gates
    }

    /// Looks at those that requests of all protocols have to pass.
    #[inline]
    pub fn read_for_all(kernel: &Kernel, now_ms: i64) -> Self {
        let mut gates = Self::at(now_ms);
        let policy = || kernel.config.live().appendfsync();
        if !gates.read_closed(kernel, policy, ReplicaLevel::of_server(kernel)) {
            gates.open = Open::ToAll;
        }
        gates
    }

    /// At this time, before the first look: they let nothing pass.
    #[inline]
    pub fn at(now_ms: i64) -> Self {
        Self { now_ms, ..Self::default() }
    }

    /// Looks at all of them again, behind a request that may have changed some. In line, as each batch begins with that:
    /// a call costs 30 instructions.
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

    /// `true` if a gate is closed to some requests, or somebody watches. Which gate that is, is looked up only then.
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
            // Behind the failover, during which writes are held back, and then refused as those of a replica.
            *closed |= u16::from(kernel.role.closes_to_some() & READ_ONLY);
        }
    }

    /// Whether `command` passes without another look, and changes nothing that is decided here.
    #[inline]
    pub fn are_open(&self, command: &Command) -> bool {
        self.are_open_to_all() && command.is_data_only
    }

    /// True if a call of `command` passes because it is allowed to the caller, to whom not everything is.
    #[inline]
    pub fn are_open_to(&self, caller: &Caller, command: &Command, args: Args<'_>) -> bool {
        self.open == Open::ToAllowed && command.is_data_only && caller.rights().allow(command, args)
    }

    /// Whether `command` may be queued without another look.
    #[inline]
    pub fn are_open_to_queue(&self, command: &Command) -> bool {
        self.open == Open::ToQueue && command.is_data_only
    }

    /// `true` if [`Gates::judge`] may remove keys to make room.
    #[inline]
    pub fn may_evict(&self) -> bool {
        self.closed.has(LIMITED)
    }

    /// Whether every request on data passes without another look.
    #[inline]
    pub fn are_open_to_all(&self) -> bool {
        self.open == Open::ToAll
    }

    /// Admits a call of `command`. Values that it needs may still be on disk.
    ///
    /// # Errors
    /// When it is refused, or has to wait.
    pub fn judge<'k>(
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
        // One that is queued is refused by EXEC if it would have to wait.
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
        // Before what a replica cannot do at the moment: its primary may.
        if self.closed.has(READ_ONLY.into())
            && redirect::concerns(caller, command, access.writes)
            && let Some(error) = redirect::redirection(kernel)
        {
            return refused(error);
        }
        if self.closed.has(IS_LOADING) && !caller.runs_while_loading(command) {
            return refused(CommandError::LOADING);
        }
        // That a replica takes no writes is said first, as it stays true when the primary is back.
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
        // Publishers wait, as those of other messages cannot.
        match access.publishes && kernel.pubsub.is_congested() {
            true => Err(self.held_a_little(Obstacle::Delivery)),
            false => Ok(()),
        }
    }

    /// Why no data may be shown: they are old, or not there yet.
    #[must_use]
    pub fn hide_data(&self) -> Option<Fault> {
        if self.closed.has(IS_LOADING) {
            return Some(Fault::Loading);
        }
        self.closed.has(STALE.into()).then_some(Fault::Stale)
    }

    /// Admits a request. Some are exempt from a pause of all.
    ///
    /// # Errors
    /// When it is refused, or has to wait.
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
        // Threads that change keys publish that.
        if may_write && self.closed.has(IS_CONGESTED) {
            return Err(self.held_a_little(Obstacle::Delivery));
        }
        if self.closed.has(PAUSED) {
            // A message goes into the stream as well, of which a pause is to see the end.
            let passes_on = access.passes_on();
            // If it has ended since the gates were read, they are read again: a failover changes the role before its end.
            let ended = passes_on.then_some(self.now_ms + 1);
            if let Some(until_ms) = kernel.pause.holds(passes_on, is_exempt, self.now_ms).or(ended)
            {
                return Err(Barred::Held(Deferral::At(Obstacle::Pause, until_ms)));
            }
        }
        if may_write && self.closed.has(IS_LATE) {
            return Err(Barred::Held(Deferral::On(Obstacle::SlowSync)));
        }
        // Of a program only the calls that need memory are refused, if there is none.
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

/// True for a command that tells of the server and of no data. Monitoring asks such things, and never waits for a
/// level of durability.
#[must_use]
pub fn tells_of_server(spec: &Spec) -> bool {
    matches!(spec.group, Group::Connection | Group::Server) && spec.runs_while_loading()
}
