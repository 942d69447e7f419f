//! Runs the requests of a batch in order.

use tierce_keyspace::{ShardLocks, tell_invalidated};
use tierce_output::{Mark, Output};
use tierce_wire::resp::Args;

use super::refuse::mute;
use super::sizes::{Requests, note_large};
use super::{BatchRunner, Progress, RETRY_ROLE_AFTER_MS, TOO_LARGE_TO_KEEP};
use crate::admission::{Admission, Barred};
use crate::answer::Destination;
use crate::blocking;
use crate::caller::{Caller, ReplyMode};
use crate::command::{Command, Flags};
use crate::command_log;
use crate::error::{CommandError, Interrupt};
use crate::meter::{Meter, Timing};
use crate::monitors;
use crate::offload::Job;
use crate::pipeline::sizes::{self, Sizes};
use crate::pipeline::{self, Context, Mode, Refused, Request, Turn};
use crate::plan::Planned;
use crate::reply::Reply;
use crate::stats::Stat;
use crate::waiting::{Awaited, Deferral, Obstacle};

/// Request of the batch whose command is known.
#[derive(Clone, Copy)]
struct Current<'a, 'k> {
    index: usize,
    command: &'k Command,
    args: Args<'a>,
    planned: Planned,
}

impl<'k> BatchRunner<'k, '_> {
    /// Executes the requests of the batch in order: admission, values from disk, execution and accounting for each.
    /// Their replies begin at `begin`.
    pub(super) fn execute(
        &mut self,
        caller: &mut Caller,
        locks: &mut ShardLocks<'k>,
        input: &[u8],
        output: &mut Output,
        begin: Mark,
        now_ms: i64,
    ) -> Progress {
        if self.batch.is_empty() {
            return Progress::Through;
        }
        self.look_ahead(caller, locks, input, now_ms);
        locks.set_touch(caller.touch());
        locks.set_origin(caller.origin());
        let mut meter = Meter::start(self.kernel, self.counters);
        let until_nanos = self.turn.until(meter.read_nanos());
        // Messages published before these requests arrived precede their replies.
        let proto = caller.proto;
        caller.catch_up(&self.kernel.pubsub, output, proto);
        // Read in place: moving them costs 14 instructions.
        let mut admission = Admission::at(now_ms);
        admission.reread(self.kernel, caller);
        self.held.level = admission.level;
        let commands = &self.kernel.commands;
        if caller.closing {
            // Its user was deleted.
            locks.release();
            return Progress::Closing;
        }
        let mut progress = Progress::Through;
        // Last request that has run: its words stand for those that the meter has timed together.
        let mut ran = 0;
        let mut not_run = Requests::default();
        for (index, args) in self.batch.iter(input).enumerate() {
            let planned = match self.batch.len() {
                1 => self.plan.plan_one(self.kernel, args),
                _ => self.plan.get(index),
            };
            let known = planned.command(self.kernel);
            let Some(command) = known.or_else(|| self.resolve(caller, output, args)) else {
                if caller.closing {
                    progress = Progress::Closing;
                    break;
                }
                not_run.add(index);
                continue;
            };
            let passes_unseen =
                admission.are_open(command) || admission.are_open_to(caller, command, args);
            if self.held.level.is_some() {
                if self.waits_for_writes(caller, command) {
                    progress = Progress::Unconfirmed { index };
                    break;
                }
                self.held.cut(output, false);
            }
            let access = self.held.level.map(|_| caller.access_of(command, args));
            let request = || Current { index, command, args, planned };
            if !passes_unseen {
                match self.pass_admission(
                    request(),
                    &admission,
                    caller,
                    locks,
                    input,
                    output,
                    now_ms,
                ) {
                    Ok(true) => {}
                    Ok(false) => {
                        not_run.add(index);
                        continue;
                    }
                    Err(ends) => {
                        not_run.add(index);
                        progress = ends;
                        break;
                    }
                }
            }
            let timing = meter.begin_within(command).unwrap_or_else(|| {
                let last = self.batch.get(ran, input);
                meter.begin(command, &caller.client, || command_log::shorten(commands, last))
            });
            if let Some(interrupt) = self.run(caller, locks, output, command, args, planned, now_ms)
            {
                meter.take_back(timing);
                match self.interrupted(request(), interrupt, &admission, caller, output, now_ms) {
                    None => {
                        not_run.add(index);
                        continue;
                    }
                    Some(ends) => {
                        not_run.add(index);
                        progress = ends;
                        break;
                    }
                }
            }
            ran = index;
            if let Some(access) = access {
                let has_written = self.has_written(caller, locks, access);
                Sizes(self.kernel).note_reply((command, args), &caller.client, output.written());
                self.held.cut(output, has_written);
            }
            if locks.has_ready() {
                let serving =
                    pipeline::serve(self.kernel, locks, self.counters, self.served, now_ms);
                meter.leave_out(serving);
                self.has_served = true;
            }
            if !passes_unseen && !command.is_data_only {
                meter.look_again();
            }
            if timing == Timing::Alone {
                let words = move || command_log::shorten(commands, args);
                match caller.waits.is_for_keys() {
                    true => meter.end_blocked(command, &caller.client),
                    false => meter.end(timing, command, &caller.client, words),
                }
            }
            // Only commands that may take long are timed alone.
            let is_over = timing == Timing::Alone && meter.read_nanos() >= until_nanos;
            if passes_unseen {
                debug_assert!(self.stops(caller, index).is_none(), "{} did", command.full_name);
                if is_over {
                    progress = Progress::Yielding { index };
                    break;
                }
                continue;
            }
            if let Some(ends) = self.look_behind(request(), &mut admission, caller, locks, output) {
                progress = ends;
                break;
            }
            // Later requests have another level, so they are another batch.
            if is_over || admission.level != self.held.level {
                progress = Progress::Yielding { index };
                break;
            }
        }
        let last = || command_log::shorten(commands, self.batch.get(ran, input));
        meter.finish(&caller.client, last);
        if matches!(progress, Progress::Through) && meter.read_nanos() >= until_nanos {
            progress = Progress::Yielding { index: self.batch.len() - 1 };
        }
        // Other threads must not wait for this shard while replies are sent.
        locks.release();
        // Held replies are not in the output; each was looked at when it was cut.
        let is_held = self.held.level.is_some();
        let reply_bytes = if is_held { 0 } else { output.part_since(begin).len() };
        let value_bytes = self.large.as_ref().map_or(0, |value| value.len());
        let request_bytes = match self.batch.len() {
            0 => 0,
            len => self.batch.end(len - 1) + value_bytes,
        };
        if Sizes(self.kernel).may_be_large(request_bytes, reply_bytes) {
            let has_large = !is_held && Sizes(self.kernel).may_be_large(0, reply_bytes);
            let replies = has_large.then(|| output.part_since(begin));
            let replies = replies.map(|part| sizes::lengths_of_replies(output.pieces(part)));
            let requests = (&*self.batch, input, value_bytes);
            let ran = (self.through(&progress, ran), &not_run);
            let replies = replies.unwrap_or_default();
            note_large(self.kernel, &caller.client, requests, ran, &replies);
        }
        progress
    }

    /// Takes a request that needs checks through admission, the queue of a transaction, and the fetch of values on
    /// disk. Returns false if it has its reply then, and does not run.
    ///
    /// # Errors
    /// If the batch ends before it.
    #[expect(clippy::too_many_arguments, reason = "the state of the batch")]
    fn pass_admission(
        &self,
        Current { index, command, args, planned }: Current<'_, 'k>,
        admission: &Admission,
        caller: &mut Caller,
        locks: &mut ShardLocks<'k>,
        input: &[u8],
        output: &mut Output,
        now_ms: i64,
    ) -> Result<bool, Progress> {
        if !admission.are_open_to_queue(command) {
            let decision = admission.check(self.kernel, caller, locks, command, args);
            if admission.may_evict() {
                // Evicted keys are reported before the reply, as in Redis.
                self.tell(caller, locks, output);
            }
            match decision {
                Ok(()) => {}
                Err(Barred::Refused(refused)) => {
                    return self.refuse_or_lead_away(caller, output, refused, index, now_ms);
                }
                Err(Barred::Held(deferral)) => {
                    return Err(Progress::Held { index, deferral });
                }
            }
        }
        if caller.is_in_transaction() && command.is_queued() {
            self.queue(caller, output, command, args, planned)?;
            return Ok(false);
        }
        if admission.has_spilled && caller.waits.may_fetch() {
            match self.pending_reads(caller, locks, command, input, index, now_ms) {
                Ok(pending_reads) if pending_reads.is_empty() => {}
                Ok(pending_reads) => return Err(Progress::Fetching { index, pending_reads }),
                Err(busy) => {
                    let request = Current { index, command, args, planned };
                    let interrupt = Interrupt::Busy(busy);
                    let ends =
                        self.interrupted(request, interrupt, admission, caller, output, now_ms);
                    return ends.map_or(Ok(false), Err);
                }
            }
        }
        Ok(true)
    }

    /// Returns how the batch ends at a request that did not complete; `None` if it has its reply, or continues
    /// elsewhere without its connection.
    #[cold]
    fn interrupted(
        &self,
        Current { index, command, args, .. }: Current<'_, 'k>,
        interrupt: Interrupt,
        admission: &Admission,
        caller: &mut Caller,
        output: &mut Output,
        now_ms: i64,
    ) -> Option<Progress> {
        let refusal = self.kernel.busy_with_program(interrupt);
        if admission.has_spilled && (interrupt == Interrupt::Long || refusal.is_some()) {
            // The next one may fetch values again.
            caller.waits.has_run();
        }
        if let Some(error) = refusal {
            self.refuse(caller, output, Refused { command: Some(command), error });
            return None;
        }
        // EXEC is shown after the commands that it runs.
        if admission.watched && interrupt == Interrupt::Long && !command.is_exec() {
            monitors::show(self.kernel, command, caller, args);
        }
        match interrupt {
            Interrupt::Long if command.spec.flags.contains(Flags::NONBLOCKING) => {
                caller.end_caching(Some(command));
                None
            }
            Interrupt::Busy(busy) => Some(Progress::Held { index, deferral: busy.into() }),
            Interrupt::Long => Some(Progress::Waiting { index }),
            // A worker decides right before the request runs.
            Interrupt::Admission => Some(Progress::Unconfirmed { index }),
            Interrupt::Role => {
                let deferral = Deferral::At(Obstacle::Role, now_ms + RETRY_ROLE_AFTER_MS);
                Some(Progress::Held { index, deferral })
            }
            Interrupt::Quiet => {
                let deferral = Deferral::At(Obstacle::EarlierRequests, now_ms + 1);
                Some(Progress::Held { index, deferral })
            }
        }
    }

    /// Finishes a request that needed checks: messages, changed admission state, monitors. Returns how the batch ends
    /// after it, if it does.
    fn look_behind(
        &self,
        Current { index, command, args, .. }: Current<'_, 'k>,
        admission: &mut Admission,
        caller: &mut Caller,
        locks: &mut ShardLocks<'k>,
        output: &mut Output,
    ) -> Option<Progress> {
        if admission.has_spilled {
            caller.waits.has_run();
        }
        // Messages that the command has caused follow its reply.
        caller.end_caching(Some(command));
        self.tell(caller, locks, output);
        if !command.is_data_only {
            admission.reread(self.kernel, caller);
        }
        if admission.watched {
            // Afterwards, so that SELECT is shown with the new database, as by Redis.
            monitors::show(self.kernel, command, caller, args);
        }
        self.stops(caller, index)
    }

    /// Sends the invalidations that changes have caused, and writes the caller's messages.
    fn tell(&self, caller: &mut Caller, locks: &mut ShardLocks<'k>, output: &mut Output) {
        tell_invalidated(locks);
        let proto = caller.proto;
        caller.catch_up(&self.kernel.pubsub, output, proto);
    }

    /// Returns the command of a request that is not simple; `None` if it has been answered.
    #[inline(never)]
    pub(super) fn resolve(
        &self,
        caller: &mut Caller,
        output: &mut Output,
        args: Args<'_>,
    ) -> Option<&'k Command> {
        match pipeline::resolve(self.kernel, args) {
            Ok(command) => Some(command),
            Err(_) if self.is_of_browser(caller, args) => {
                caller.closing = true;
                None
            }
            Err(refused) => {
                self.refuse(caller, output, refused);
                None
            }
        }
    }

    /// Returns how the batch ends after this request, if it does.
    #[inline]
    pub(super) fn stops(&self, caller: &Caller, index: usize) -> Option<Progress> {
        if caller.closing {
            return Some(Progress::Closing);
        }
        caller.waits.is_for_reply().then_some(Progress::Waiting { index })
    }

    #[inline(always)]
    #[expect(clippy::too_many_arguments, reason = "all that a request has been found out of")]
    pub(super) fn run(
        &self,
        caller: &mut Caller,
        locks: &mut ShardLocks<'k>,
        output: &mut Output,
        command: &'k Command,
        args: Args<'_>,
        planned: Planned,
        now_ms: i64,
    ) -> Option<Interrupt> {
        if command.has_one_key {
            let hash = match planned.hash {
                Some(hash) => hash,
                None => self.kernel.keyspace.hash(args.at(command.first_key)),
            };
            if let Err(busy) = locks.reach(hash) {
                return Some(Interrupt::Busy(busy));
            }
        }
        let muted_from = (caller.reply_mode != ReplyMode::On).then(|| output.mark());
        let reply = Reply::new(output, caller.proto);
        let hashed = planned.hash.map(|hash| (args.at(command.first_key), hash));
        let (large, hashed) = (self.large.as_ref(), hashed.as_slice());
        let Self { kernel, bodies, counters, .. } = *self;
        let turn = Turn { kernel, bodies, counters, now_ms };
        let request = Request { caller, command, args, mode: Mode::Client, large, hashed };
        let interrupt = Context::new(turn, request, locks, reply).run();
        match interrupt {
            None => {}
            Some(Interrupt::Long) if self.held.has_writes => return Some(Interrupt::Admission),
            Some(Interrupt::Long) => self.send_away(caller, output, command, args),
            Some(_) => return interrupt,
        }
        if caller.reply_mode != ReplyMode::On {
            // CLIENT REPLY does not suppress messages about subscriptions. A transaction that may contain them has left
            // out the rest.
            let is_muted = command.is_exec() && caller.holds_messages();
            let is_reply = !command.spec.flags.contains(Flags::SUBSCRIBING) && !is_muted;
            mute(caller, output, muted_from.filter(|_| is_reply));
        }
        interrupt
    }

    /// Sends a request that takes too long here to another thread; its reply comes later.
    #[cold]
    pub(super) fn send_away(
        &self,
        caller: &mut Caller,
        output: &mut Output,
        command: &Command,
        args: Args<'_>,
    ) {
        if command.spec.flags.contains(Flags::NONBLOCKING) {
            let room = output.room();
            let sent = blocking::send_away(self.kernel, caller, command, args, room);
            if let Err(error) = sent {
                let refused = Refused { command: Some(command), error };
                let mut reply = Reply::new(output, caller.proto);
                pipeline::refuse(self.kernel, self.counters, &mut reply, &refused);
            }
            return;
        }
        let offload = self.kernel.offload_of(command, caller);
        let (to, away, command) = (caller.reply_to(), caller.away(), args.to_owned());
        let is_heard = caller.reply_mode == ReplyMode::On;
        let room = if is_heard { output.room() } else { usize::MAX };
        let is_migration = std::ptr::eq(offload, &self.kernel.migrations);
        caller.wait_for(if is_migration { Awaited::Migration } else { Awaited::LongCommand });
        let to = Destination::Reply(to);
        caller.end_caching(None);
        offload.push(Job { to, caller: away, command, room });
    }

    /// Queues a request for EXEC.
    ///
    /// # Errors
    /// If this exceeds the client's limit of kept requests.
    #[inline(never)]
    pub(super) fn queue(
        &self,
        caller: &mut Caller,
        output: &mut Output,
        command: &Command,
        args: Args<'_>,
        planned: Planned,
    ) -> Result<(), Progress> {
        if caller.queue(self.kernel, command, args, planned.hash).is_err() {
            self.counters.add(Stat::QueryLimitDisconnections, 1);
            let error = CommandError::new(TOO_LARGE_TO_KEEP);
            self.refuse(caller, output, Refused { command: Some(command), error });
            return Err(Progress::Closing);
        }
        self.reply(caller, output, |reply| reply.queued());
        Ok(())
    }
}
