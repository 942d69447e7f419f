//! BUSY errors for clients that wait for a thread for programs while endless programs occupy all of these.
//!
//! No other thread would notice, so these programs check it themselves whenever their machines look.

use tierce_output::Output;

use super::super::{Refused, refuse, refused_in_transaction, resolve};
use crate::answer::{Answer, Answered};
use crate::kernel::Kernel;
use crate::offload::Job;
use crate::reply::Reply;
use crate::scripting::Run;
use crate::stats::Counters;

/// Tells all clients that wait for a thread for programs that the server is busy, if each of these threads has run
/// its program for `busy-reply-threshold`. `run` is one of those.
pub(super) fn turn_away_from_programs(kernel: &Kernel, run: &Run, counters: &Counters) {
    let (scripts, threshold) = (&kernel.scripts, kernel.busy_threshold());
    if run.elapsed() < threshold || !scripts.offload.has_waiting() {
        return;
    }
    if scripts.running.count_for(threshold) >= kernel.program_threads() {
        for job in scripts.offload.take_commands() {
            turn_away(kernel, job, run, counters);
        }
    }
}

fn turn_away(kernel: &Kernel, mut job: Job, run: &Run, counters: &Counters) {
    let command = resolve(kernel, job.command.as_args()).ok();
    let refused = Refused { command, error: run.kind().busy() };
    let refused = refused_in_transaction(&mut job.caller, refused);
    let mut output = Output::with_room(job.room);
    let proto = job.caller.proto;
    refuse(kernel, counters, &mut Reply::new(&mut output, proto), &refused);
    let (reply, caller) = (Answered::With(output.take()), Some(Box::new(job.caller)));
    kernel.answer(Answer { to: job.to, reply, logged_at: None, invalidation: None, caller });
}
