//! Commands that reply when nothing is under way any more of what passed the gates before one of them closed: who asks
//! for the end of the stream behind the reply to `CLIENT PAUSE` finds it still. Failovers wait in the same way.

use std::sync::Arc;

use super::{Context, Done, Mode};
use crate::clients::{Hold, PauseMode};
use crate::error::{CommandError, Interrupt};
use crate::kernel::Kernel;
use crate::message::{Notice, Reported};
use crate::under_way::Quiet;

impl Kernel {
    /// To be called behind what closes a gate.
    #[must_use]
    pub fn begin_quiet(&self) -> Quiet {
        let workers = Arc::new(Reported::new(self.workers_told()));
        self.tell_all(&Notice::Report(Arc::clone(&workers)));
        Quiet::new(workers, &self.passages)
    }
}

impl Context<'_, '_> {
    /// True if the command has begun something, and is executed again because of [`Context::await_quiet`].
    pub(crate) fn awaits_quiet(&self) -> bool {
        self.caller.quiet.is_some()
    }

    /// Begins a pause, or goes on with the one that it has begun, until nothing is under way of what the gates let pass
    /// before, and all of that is in the stream to replicas: an operator reads the end of the stream behind the reply,
    /// and waits for a replica to have that. Its time counts from then.
    ///
    /// # Errors
    /// An interrupt, until then. Or an error: it was ended.
    pub(crate) fn pause(&mut self, timeout_ms: i64, mode: PauseMode) -> Done {
        const ENDED: CommandError = CommandError::new(
            "TRYAGAIN the pause was ended while writes were still under way that began before",
        );
        let (kernel, now_ms) = (self.kernel, self.now_ms);
        let until_ms = now_ms.saturating_add(timeout_ms);
        let pause = &kernel.pause;
        match &self.caller.quiet {
            Some(quiet) => {
                if quiet.pause.as_ref().is_some_and(|(_, ends)| *ends != pause.ends()) {
                    self.caller.quiet = None;
                    return Err(ENDED);
                }
            }
            None => {
                let hold = (Hold::new(pause), pause.ends());
                pause.begin(until_ms, mode, now_ms);
                let mut quiet = Box::new(kernel.begin_quiet());
                quiet.pause = Some(hold);
                self.caller.quiet = Some(quiet);
            }
        }
        self.await_quiet(true)?;
        pause.begin(until_ms, mode, now_ms);
        self.caller.quiet = None;
        Ok(())
    }

    /// Has the command executed again until nothing is under way of what the gates let pass before it, and all of that is
    /// in the stream to replicas if this `has_stream`. Not within a transaction, whose shards those may wait for, nor
    /// for a program that embeds the kernel.
    ///
    /// # Errors
    /// An interrupt, until then.
    pub(crate) fn await_quiet(&mut self, has_stream: bool) -> Done {
        if matches!(self.mode, Mode::Never) {
            return Ok(());
        }
        let kernel = self.kernel;
        let quiet = self.caller.quiet.get_or_insert_with(|| Box::new(kernel.begin_quiet()));
        if !quiet.is_reached() {
            return Err(Interrupt::Quiet.into());
        }
        // Keys go on expiring: their end is not waited for.
        let position = *quiet.position.get_or_insert_with(|| {
            kernel.call_for_replicas();
            kernel.feed.position()
        });
        match has_stream && !kernel.streams_up_to(position) {
            true => Err(Interrupt::Quiet.into()),
            false => Ok(()),
        }
    }
}
