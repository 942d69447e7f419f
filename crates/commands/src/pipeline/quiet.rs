//! Commands that reply when nothing is under way any more of what passed the gates before one of them closed: who asks
//! for the end of the stream behind the reply to `CLIENT PAUSE` finds it still. Failovers wait in the same way.

use super::{Context, Done, Mode};
use crate::clients::{Hold, PauseMode};
use crate::error::{CommandError, Interrupt};
use crate::under_way::Pending;

/// A pause is given up that cannot begin for so long, as behind a script without end in a transaction: clients wait for it.
const PATIENCE_MS: i64 = 10_000;

/// The stream is called for at these intervals while it lacks something.
const CALL_EVERY_MS: i64 = 50;

/// True if the command has begun something, and is executed again because of [`await_quiet`].
pub(crate) fn awaits_quiet(ctx: &Context<'_, '_>) -> bool {
    ctx.caller.quiet.is_some()
}

/// Pauses clients once nothing is under way of what the gates let pass before, and all of that is in the stream to
/// replicas: an operator reads the end of the stream behind the reply, and waits for a replica to have that. Writes
/// are held back meanwhile.
///
/// # Errors
/// An interrupt, until then. Or an error: it was ended, or that takes too long.
pub(crate) fn pause_clients(ctx: &mut Context<'_, '_>, timeout_ms: i64, mode: PauseMode) -> Done {
    const ENDED: CommandError = CommandError::new(
        "TRYAGAIN the pause was ended before it began: writes were still under way",
    );
    const TOO_LONG: CommandError = CommandError::new(
        "TRYAGAIN there is no pause: writes that began before are still under way, or the stream lacks them",
    );
    let (kernel, now_ms) = (ctx.kernel, ctx.now_ms);
    let ends = kernel.pause.ends();
    let quiet = ctx.caller.quiet.get_or_insert_with(|| {
        let hold = Hold::new(&kernel.pause);
        let mut quiet = Box::new(kernel.begin_quiet());
        quiet.pause = Some(Pending { _hold: hold, ends, until_ms: now_ms + PATIENCE_MS });
        quiet
    });
    let refusal = quiet.pause.as_ref().and_then(|pending| match pending {
        _ if pending.ends != ends => Some(ENDED),
        _ if pending.until_ms <= now_ms => Some(TOO_LONG),
        _ => None,
    });
    if let Some(error) = refusal {
        ctx.caller.quiet = None;
        return Err(error);
    }
    await_quiet(ctx, true)?;
    let until_ms = now_ms.saturating_add(timeout_ms);
    let is_begun = kernel.pause.begin(ends, until_ms, mode, now_ms);
    // Behind it, so that nothing passes in between.
    ctx.caller.quiet = None;
    if is_begun { Ok(()) } else { Err(ENDED) }
}

/// Has the command executed again until nothing is under way of what the gates let pass before it, and all of that is
/// in the stream to replicas if this `has_stream`. Not within a transaction, whose shards those may wait for, nor
/// for a program that embeds the kernel.
///
/// # Errors
/// An interrupt, until then.
pub(crate) fn await_quiet(ctx: &mut Context<'_, '_>, has_stream: bool) -> Done {
    if matches!(ctx.mode, Mode::Never) {
        return Ok(());
    }
    let kernel = ctx.kernel;
    let quiet = ctx.caller.quiet.get_or_insert_with(|| Box::new(kernel.begin_quiet()));
    if !quiet.is_reached() {
        return Err(Interrupt::Quiet.into());
    }
    // Keys go on expiring: their end is not waited for.
    let position = *quiet.position.get_or_insert_with(|| kernel.feed.position());
    if !has_stream || kernel.streams_up_to(position) {
        return Ok(());
    }
    // Again and again: what is in an object of a bucket is streamed when that is there.
    if ctx.now_ms >= quiet.calls_at_ms {
        quiet.calls_at_ms = ctx.now_ms + CALL_EVERY_MS;
        kernel.call_for_replicas();
    }
    Err(Interrupt::Quiet.into())
}
