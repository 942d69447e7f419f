//! Renews the lease, and handles its loss (`bucket-takeover yes`).

use std::time::Duration;

use super::super::lease;
use super::super::settings::LEASE;
use super::{RETRY_AFTER, Stop, Uploader};
use crate::message::Notice;
use crate::server::Server;
use crate::shutdown::Shutdown;

impl Uploader {
    /// Renews the lease, if this server has written nothing for a third of it.
    pub(super) fn renew_if_due(&mut self) -> Result<(), Stop> {
        // Changes are appended next, unless a base has to come first. Messages for replicas alone cause no append.
        let is_appending = !self.needs_base && self.has_changes;
        if is_appending || lease::renew_in(&self.owner) != Some(Duration::ZERO) {
            return Ok(());
        }
        let taken_bytes = self.held_bytes();
        let number = self.commit(taken_bytes, async |owner| owner.renew().await)?;
        self.server.bucket.update(|figures| {
            figures.number = number;
            figures.renewals += 1;
        });
        Ok(())
    }

    /// Notes that the append that began with this number is confirmed: replies may wait for it.
    pub(super) fn note_proven(&self, proof: u64) {
        if self.server.bucket.note_proven(proof) {
            self.server.tell_all(&Notice::Durable);
        }
    }

    /// Returns the delay before a failed request is repeated, short enough for the lease.
    pub(super) fn retry_after(&self) -> Duration {
        let lease = Duration::from_secs(self.server.config.settings().count(LEASE));
        match self.server.bucket.lease.clock() {
            Some(_) => RETRY_AFTER.min(lease / 3),
            None => RETRY_AFTER,
        }
    }
}

/// Handles the loss of the log to another server: this one sends no more replies and its process ends. A supervisor
/// then restarts it as a follower of the new owner.
pub(super) fn deposed(server: &Server, url: &str, object: &str) {
    let cause = format!("another server has taken over the bucket {url} ({object})");
    server.log.warning(format_args!(
        "This server is deposed: {cause}. It answers nothing any more, and ends; started again, it follows the new owner"
    ));
    server.durability.refuse(&cause);
    server.bucket.note_deposed();
    // All connections close, without their deferred replies.
    server.tell_all(&Notice::Durable);
    server.shutdown().ask(Shutdown::Deposed);
}
