//! Commands that reply only after all requests admitted earlier have ended. After the reply to `CLIENT PAUSE`, the
//! end of the replication stream does not move. Failovers wait in the same way.

use super::{Context, Done, Mode};
use crate::clients::{Hold, PauseMode};
use crate::error::{CommandError, Interrupt};
use crate::under_way::Pending;

/// Time limit for the start of a pause, for example behind an endless script in a transaction. Clients wait
/// meanwhile.
const PATIENCE_MS: i64 = 10_000;

/// Interval of requests for the missing part of the stream.
const CALL_EVERY_MS: i64 = 50;

/// Returns true if the command has started, and runs again because of [`await_quiet`].
pub(crate) fn awaits_quiet(ctx: &Context<'_, '_>) -> bool {
    ctx.caller.quiet.is_some()
}

/// Pauses clients once all requests admitted earlier have ended and their writes are in the replication stream. An
/// operator can then read the end of the stream and wait for a replica to have it. Writes are deferred meanwhile.
///
/// # Errors
/// An interrupt until then. An error if the pause was ended, or did not begin in time.
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
    // This follows the begin of the pause, so that no write passes in between.
    ctx.caller.quiet = None;
    if is_begun { Ok(()) } else { Err(ENDED) }
}

/// Runs the command again until all requests admitted earlier have ended and, if it `has_stream`, their writes are in
/// the replication stream. It does not wait within a transaction, whose shards those requests may need, nor for a
/// program that embeds the kernel.
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
    // The position is fixed, because keys go on expiring.
    let position = *quiet.position.get_or_insert_with(|| kernel.feed.position());
    if !has_stream || kernel.streams_up_to(position) {
        return Ok(());
    }
    // This is repeated: with a bucket, writes are streamed only once they are in an object.
    if ctx.now_ms >= quiet.calls_at_ms {
        quiet.calls_at_ms = ctx.now_ms + CALL_EVERY_MS;
        kernel.call_for_replicas();
    }
    Err(Interrupt::Quiet.into())
}
