//! Commands that reply when nothing is under way any more of what passed the gates before one of them closed: who asks
//! for the end of the stream behind the reply to `CLIENT PAUSE` finds it still. Failovers wait in the same way.

use std::sync::Arc;

use super::{Context, Done, Mode};
use crate::error::Interrupt;
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

    /// Has the command executed again until nothing is under way of what the gates let pass before it, and all of that is
    /// in the stream to replicas if this `has_stream`. Not within a transaction, whose shards those may wait for, nor for a program that embeds the kernel.
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
        let position = *quiet.position.get_or_insert_with(|| kernel.feed.position());
        if has_stream && !kernel.streams_up_to(position) {
            return Err(Interrupt::Quiet.into());
        }
        self.caller.quiet = None;
        Ok(())
    }
}
