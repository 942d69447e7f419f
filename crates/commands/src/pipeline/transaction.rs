//! EXEC: runs all requests of a transaction under one guard.
//!
//! The shards of all declared keys are locked together before the first request runs, and stay locked until the last
//! one has run. So no client sees a part of a transaction, no log record contains only a part, and transactions are
//! serializable. No request can block in a transaction: blocking commands reply as after a timeout.

use std::borrow::Cow;
use std::mem;

use tierce_keyspace::planted::{self, Fault};
use tierce_keyspace::{Busy, DbIndex, KeyHash, Policy, ShardLocks};
use tierce_wire::number;
use tierce_wire::resp::Args;

use super::program::queued_access;
use super::within::Within;
use super::{Context, Done, Mode, Refused, WEIGHT_MAX, refuse, reply_error, resolve, weigh};
use crate::acl::{self, Denial};
use crate::caller::Caller;
use crate::command::{Access, Command, Flags, Scope, Weight};
use crate::command_log::{self, LogKind};
use crate::error::CommandError;
use crate::fault::Standing;
use crate::kernel::Kernel;
use crate::monitors;
use crate::pipeline::fetch::{self, PendingRead};
use crate::pipeline::meter::Meter;
use crate::pipeline::sizes::Sizes;
use crate::pubsub::Kind;
use crate::transaction::{Known, Needs, Share, Transaction};

/// Weight of a queued request in elements, besides its arguments: for its lookup and its reply.
const REQUEST_WEIGHT: usize = 5;

/// Weight of a request that reports on the server or changes it: INFO takes a hundred microseconds.
const REPORT_WEIGHT: usize = 1_000;

/// Elements in a report for each command (some thirty), and time in elements for a line on a client or a slow
/// command.
const COMMAND_WEIGHT: usize = 30;
const LINE_WEIGHT: usize = 10;

/// Returns the state for a transaction that runs programs. If it writes or grows by itself, that is admitted already.
fn standing(kernel: &Kernel, caller: &Caller, access: Access) -> Standing {
    let keyspace = &kernel.keyspace;
    let is_short = || {
        let has_limit = keyspace.has_memory_limit() && !keyspace.is_following();
        has_limit && keyspace.is_short_of_memory()
    };
    let fault = || kernel.fault_of_writes(caller.replica_level(kernel));
    Standing {
        fault: if access.writes { None } else { fault() },
        is_stale: kernel.role.is_stale(),
        // EXEC has just tried to evict.
        is_out_of_memory: !access.grows
            && is_short()
            && keyspace.eviction().policy == Policy::Noeviction,
    }
}

/// Reply to EXEC of a doomed transaction.
const ABORTED: CommandError =
    CommandError::new("EXECABORT Transaction discarded because of previous errors.");

impl<'k> Context<'_, 'k> {
    /// Ends the caller's watch, and removes it from the shards that can be locked at once.
    pub(crate) fn end_watch(&mut self) {
        if let Some(watch) = self.caller.take_watch() {
            self.guard.unwatch(watch);
        }
    }

    /// Runs the queued requests, and replies with all their replies. The transaction ends, unless EXEC is to run
    /// again.
    ///
    /// # Errors
    /// Fails without a transaction, if it is doomed, or with an interrupt, before anything was changed or replied.
    pub(crate) fn execute_transaction(&mut self) -> Done {
        let Some(transaction) = self.caller.transaction.take() else {
            return Err(CommandError::new("ERR EXEC without MULTI"));
        };
        let done = match transaction.is_doomed {
            true => Err(ABORTED),
            false => self.run_transaction(&transaction),
        };
        self.caller.pass_to_replicas(&self.kernel.feed);
        let keyspace = &self.kernel.keyspace;
        if keyspace.has_memory_limit() && keyspace.is_short_of_memory() {
            // Maybe no later request evicts.
            keyspace.evict_later();
        }
        match &done {
            Err(error) if error.interrupt().is_some() => {
                self.caller.transaction = Some(transaction);
            }
            _ => {
                self.end_watch();
                self.caller.show_transaction();
            }
        }
        done
    }

    /// Locks the watched keys as well, so that none of them changes until the end.
    fn run_transaction(&mut self, transaction: &Transaction) -> Done {
        if self.caller.is_watch_dirty(self.now_ms) {
            self.reply.null_array();
            return Ok(());
        }
        if transaction.runs_programs {
            self.leave_with_programs(transaction)?;
        }
        let requests = transaction.requests();
        let weight = requests.len() * REQUEST_WEIGHT
            + requests.args_len()
            + weigh::elements_in(requests.bytes_len());
        self.weigh_transaction(transaction, weight)?;
        let body = |ctx: &mut Context<'_, 'k>| {
            if ctx.caller.is_watch_dirty(ctx.now_ms) {
                ctx.reply.null_array();
                return Ok(());
            }
            if transaction.may_be_heavy {
                let data = ctx.weight_of_data(transaction);
                ctx.weigh_transaction(transaction, weight.saturating_add(data))?;
            }
            if ctx.mode.comes_late() {
                ctx.check_again_as(queued_access(ctx.kernel, transaction))()?;
            }
            ctx.end_watch();
            if transaction.runs_programs {
                let access = queued_access(ctx.kernel, transaction);
                ctx.caller.standing = Some(standing(ctx.kernel, ctx.caller, access));
            }
            ctx.run_requests(transaction);
            ctx.caller.standing = None;
            // This happens with the keys locked, so that messages follow the order of the changes.
            ctx.guard.locks.commit_effects();
            ctx.caller.pass_to_replicas(&ctx.kernel.feed);
            Ok(())
        };
        // This comes before any shard is locked, because the applier of a stream may wait for a shard.
        let _nothing_is_applied = match transaction.changes_role {
            true => self.hold_role_still()?,
            false => None,
        };
        if planted::is(Fault::TransactionsInPieces) {
            self.end_watch();
            self.run_requests(transaction);
            return Ok(());
        }
        match transaction.needs() {
            Needs::All => self.within(&[], ShardLocks::try_lock_all, body)?,
            // At least one shard is locked, because code inside a guard never waits.
            Needs::Keys(keys) => {
                let mut keys = Cow::Borrowed(keys);
                if let Some(watched) = self.caller.watched() {
                    keys.to_mut().extend(watched);
                }
                if keys.is_empty() {
                    keys.to_mut().push(self.kernel.keyspace.hash(b""));
                }
                self.within(&[], |locks| locks.try_lock_many(&keys), body)?
            }
        }
    }

    /// Leaves the worker: a program may run for any time, and earlier effects could not be rolled back. A transaction
    /// that also changes subscriptions fails, since only the connection's worker can change these.
    fn leave_with_programs(&mut self, transaction: &Transaction) -> Done {
        const NOT_BOTH: CommandError = CommandError::new(
            "ERR a transaction that runs scripts or functions cannot change subscriptions or tracking",
        );
        if transaction.changes_subscriptions { Err(NOT_BOTH) } else { self.weigh(usize::MAX) }
    }

    /// Weighs all requests before the first one runs, because none can be interrupted later. A transaction that
    /// changes subscriptions cannot be offloaded, because the worker of the connection delivers by them.
    fn weigh_transaction(&mut self, transaction: &Transaction, weight: usize) -> Done {
        if transaction.changes_subscriptions { Ok(()) } else { self.weigh(weight) }
    }

    /// Returns the weight of the data. Values count as a whole, because only running a request shows how much of a
    /// value it visits. The keys are locked.
    fn weight_of_data(&mut self, transaction: &Transaction) -> usize {
        let mut sum = 0_usize;
        if !matches!(self.mode, Mode::Client) {
            return sum;
        }
        let (kernel, now_ms) = (self.kernel, self.now_ms);
        let locks = &mut *self.guard.locks;
        for_each_request(kernel, self.caller.db, transaction, |command, args, db| {
            sum = sum.saturating_add(weight_without_values(kernel, command, args, db));
            let share = Share::of(command, args);
            let keys = command.spec.key_indexes(args);
            let mut pairs = 1_usize;
            for index in keys.take_while(|_| !share.is_one()) {
                let key = kernel.keyspace.key(args.at(index));
                let mut db = locks.db(db, key.hash(), now_ms);
                pairs = pairs.saturating_mul(weigh::string_len_of(&mut db, key));
                sum = sum.saturating_add(share.elements(weigh::weight_of(&mut db, key)));
            }
            if command.spec.weight == Weight::Pairs {
                sum = sum.saturating_add(weigh::elements_in(pairs));
            }
        });
        sum
    }

    fn run_requests(&mut self, transaction: &Transaction) {
        let has_header = !self.caller.hears_nothing();
        let begin = self.reply.mark();
        if has_header {
            self.reply.array(transaction.len());
        }
        let (elements, mut len) = (self.reply.mark(), 0);
        if transaction.changes_subscriptions {
            self.caller.hold_messages();
        }
        self.caller.hold_for_replicas();
        let (turn, kernel, counters) = (self.turn(), self.kernel, self.counters);
        let (meter, errors) = (Meter::start(kernel, counters), &kernel.errors);
        let mut within = Within { turn, mode: Mode::Never, meter, counters, errors };
        let mut last = self.call.args();
        self.caller.renew_rights(&kernel.acl.users);
        let mut is_administered = false;
        for (args, known) in transaction.requests().iter().zip(transaction.known()) {
            if mem::take(&mut is_administered) {
                self.look_behind_administration();
            }
            match command_of(kernel, *known, args) {
                Ok(command) => {
                    len += self.run_request(&mut within, (command, args, known.hash), last);
                    is_administered = command.spec.flags.contains(Flags::ADMIN);
                    last = args;
                }
                Err(refused) => {
                    refuse(kernel, counters, &mut self.reply, &refused);
                    len += 1;
                }
            }
        }
        within.meter.finish(&self.caller.client, || command_log::shorten(&kernel.commands, last));
        // The client's last command is EXEC, not the last queued one.
        self.caller.client.note_command(self.command.id);
        if has_header && len != transaction.len() {
            let elements = self.reply.parts().0.take_since(elements);
            self.reply.truncate(begin);
            self.reply.array(len);
            self.reply.parts().0.append(elements);
        }
    }

    /// Refreshes the caller's rights, the role and the state of writes, which the last request may have changed.
    #[cold]
    fn look_behind_administration(&mut self) {
        self.caller.renew_rights(&self.kernel.acl.users);
        if let Some(Standing { is_out_of_memory, .. }) = self.caller.standing {
            let now = standing(self.kernel, self.caller, Access::READ);
            self.caller.standing = Some(Standing { is_out_of_memory, ..now });
        }
    }

    /// Runs a request and returns its number of replies: one for each channel, and none after CLIENT REPLY OFF.
    fn run_request(
        &mut self,
        within: &mut Within<'_, 'k>,
        call: (&'k Command, Args<'_>, Option<KeyHash>),
        last: Args<'_>,
    ) -> usize {
        let (command, args, _) = call;
        // The requests may include CLIENT REPLY, and CLIENT KILL of the caller. CLIENT REPLY does not suppress
        // messages about subscriptions.
        let is_reply = !command.spec.flags.contains(Flags::SUBSCRIBING);
        let may_be_muted = self.caller.hears_nothing() && (is_reply || self.caller.closing);
        let muted_from = may_be_muted.then(|| self.reply.mark());
        let written = self.reply.parts().0.written();
        let confirmations = self.caller.confirmations;
        let denied = self.caller.rights().check(command, args).err();
        let error = denied.map(|denial| self.deny_in_exec(command, args, denial));
        let is_allowed = error.is_none();
        let mut reply = self.reply.in_proto(self.caller.proto);
        if let Some(error) = error {
            // As in Redis, it is not counted as a call.
            reply_error(within.errors, within.counters, &mut reply, &error);
        } else {
            let locks = &mut *self.guard.locks;
            let done = within.run(call, last, self.caller, locks, reply, |ctx| Ok(ctx.enter()));
            debug_assert!(done.is_ok(), "{} is interrupted", command.full_name);
            if done.is_err() {
                self.reply.error(&CommandError::new("ERR the command was interrupted"));
            }
            if self.kernel.clients.has_monitors() {
                monitors::show(self.kernel, command, self.caller, args);
            }
        }
        if let Some(begin) = muted_from
            && self.caller.hears_nothing()
        {
            self.reply.truncate(begin);
        }
        let bytes = self.reply.parts().0.written().saturating_sub(written);
        if is_allowed {
            Sizes(self.kernel).note((command, args), &self.caller.client, bytes);
        }
        match bytes {
            0 => 0,
            _ => (self.caller.confirmations - confirmations).max(1),
        }
    }

    /// Returns the error for a request of EXEC that the user could queue, but may not run any more.
    #[cold]
    fn deny_in_exec(&self, command: &Command, args: Args<'_>, denial: Denial) -> CommandError {
        let log = &self.kernel.acl.log;
        self.kernel.log_denial(log, self.caller, command, args, denial, acl::Origin::Multi);
        CommandError::text(format!(
            "NOPERM ACLs rules changed between the moment the transaction was accumulated and the EXEC call. \
             This command is no longer allowed for the following reason: {}",
            denial.text_in_exec()
        ))
    }
}

/// Returns the weight of a queued request, besides the values of its keys. Normally the body weighs this itself, but
/// in a transaction it cannot be interrupted.
fn weight_without_values(kernel: &Kernel, command: &Command, args: Args<'_>, db: DbIndex) -> usize {
    let spec = command.spec;
    if spec.name == "publish" {
        return kernel.pubsub.weight_of_patterns(args.at(1), WEIGHT_MAX);
    }
    if spec.name == "swapdb" || command.loads_libraries() {
        // The data of later requests cannot be seen yet, nor the effects of a library.
        return usize::MAX;
    }
    if command.is_brief {
        return 0;
    }
    match spec.scope_of(args) {
        Scope::Nothing | Scope::Unlocked if spec.name != "debug" => {
            weight_of_report(kernel, command)
        }
        Scope::Nothing => 0,
        // DEBUG makes keys, loads them or sleeps.
        _ if spec.name == "debug" => usize::MAX,
        Scope::Stepwise | Scope::All if spec.name == "flushall" => {
            kernel.keyspace.estimated_len() as usize
        }
        Scope::Stepwise | Scope::All if spec.keys.is_empty() => kernel.keyspace.len(db) as usize,
        // A random choice with repetitions: its negative count may exceed the number of elements.
        _ if command.has_one_key && spec.arity == -2 && args.len() > 2 => {
            number::parse_i64(args.at(2)).map_or(0, |count| count.min(0).unsigned_abs() as usize)
        }
        _ => 0,
    }
}

/// Returns the weight of a request that uses no key.
fn weight_of_report(kernel: &Kernel, command: &Command) -> usize {
    let contents = match command.full_name.as_str() {
        "command" | "command|docs" | "command|info" => {
            kernel.commands.commands().len() * COMMAND_WEIGHT
        }
        "client|list" | "client|kill" => kernel.clients.len() * LINE_WEIGHT,
        "pubsub|channels" => kernel.pubsub.count(Kind::Channel),
        "pubsub|shardchannels" => kernel.pubsub.count(Kind::ShardChannel),
        "slowlog|get" => kernel.command_logs.of(LogKind::Slow).lock().len() * LINE_WEIGHT,
        "commandlog|get" => {
            let lens = LogKind::ALL.map(|kind| kernel.command_logs.of(kind).lock().len());
            lens.iter().sum::<usize>() * LINE_WEIGHT
        }
        _ => 0,
    };
    REPORT_WEIGHT + contents
}

/// Returns the command of a request, as found when it was queued. An added command may have been removed.
fn command_of<'k>(
    kernel: &'k Kernel,
    known: Known,
    args: Args<'_>,
) -> Result<&'k Command, Refused<'k>> {
    match known.command.and_then(|index| kernel.commands.commands().get(usize::from(index))) {
        Some(command) => Ok(command),
        None => resolve(kernel, args),
    }
}

/// Calls `visit` with each request of a transaction and the database in which it will run.
fn for_each_request<'k>(
    kernel: &'k Kernel,
    mut db: DbIndex,
    transaction: &Transaction,
    mut visit: impl FnMut(&'k Command, Args<'_>, DbIndex),
) {
    for (args, known) in transaction.requests().iter().zip(transaction.known()) {
        let Ok(command) = command_of(kernel, *known, args) else { continue };
        if command.spec.name == "select" {
            let index = number::parse_i64(&args[1]);
            db = index.and_then(|index| kernel.database(index)).unwrap_or(db);
        }
        visit(command, args, db);
    }
}

/// Adds the values on disk that a call needs. For EXEC, it adds those of all queued requests.
///
/// # Errors
/// [`Busy`], as [`fetch::add_pending_reads_of_call`].
pub fn add_pending_reads(
    locks: &mut ShardLocks<'_>,
    kernel: &Kernel,
    caller: &Caller,
    (command, args): (&Command, Args<'_>),
    now_ms: i64,
    pending_reads: &mut Vec<PendingRead>,
) -> Result<(), Busy> {
    let Some(transaction) = caller.transaction.as_ref().filter(|_| command.is_exec()) else {
        return fetch::add_pending_reads_of_call(
            locks,
            caller.db,
            command,
            args,
            now_ms,
            pending_reads,
        );
    };
    let mut added = Ok(());
    for_each_request(kernel, caller.db, transaction, |command, args, db| {
        if added.is_ok() && caller.rights().check(command, args).is_ok() {
            added =
                fetch::add_pending_reads_of_call(locks, db, command, args, now_ms, pending_reads);
        }
    });
    added
}

/// Applies a refusal to the transaction: a refused request dooms it, and a refused EXEC ends it.
#[cold]
pub fn refused_in_transaction<'k>(caller: &mut Caller, refused: Refused<'k>) -> Refused<'k> {
    caller.quiet = None;
    match refused.command {
        // The client repeats the whole transaction at the primary.
        Some(command) if command.is_exec() && refused.error.kind() == "REDIRECT" => {
            caller.end_transaction();
            refused
        }
        Some(command) if command.is_exec() => {
            caller.end_transaction();
            let cause = refused.error.as_str();
            let cause = cause.strip_prefix("ERR ").unwrap_or(cause);
            let text = format!("EXECABORT Transaction discarded because of: {cause}");
            Refused { error: CommandError::text(text), ..refused }
        }
        _ => {
            caller.doom_transaction();
            refused
        }
    }
}
