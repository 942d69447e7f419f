//! The thread that executes FAILOVER: it waits until a replica has everything, and hands over to it.
//!
//! Then the thread that follows a primary continues: its link asks the replica to take over.

use std::io;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use super::quiet::{self, Question};
use crate::clock::unix_ms;
use crate::commands::replication::Replica;
use crate::commands::replication::failover::Plan;
use crate::server::Server;
use crate::shutdown::Shutdown;

/// Polling interval for the time and the position of the stream, which send no notice.
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// Handle of the thread, which ends with its owner.
pub struct Handover {
    server: Arc<Server>,
    thread: Option<JoinHandle<()>>,
}

impl Handover {
    /// Starts the thread.
    ///
    /// # Errors
    /// If the system cannot start a thread.
    pub fn start(server: &Arc<Server>) -> io::Result<Self> {
        let of_thread = Arc::clone(server);
        let thread =
            thread::Builder::new().name("failover".into()).spawn(move || run(&of_thread))?;
        Ok(Self { server: Arc::clone(server), thread: Some(thread) })
    }
}

impl Drop for Handover {
    fn drop(&mut self) {
        self.server.failover.end();
        if let Some(thread) = self.thread.take() {
            // The panic was reported when it happened.
            let _ = thread.join();
        }
    }
}

fn run(server: &Server) {
    let mut last = 0;
    while let Some((number, plan)) = server.failover.wait_for_begin(last) {
        last = number;
        match &plan.target {
            _ if plan.leaves_bucket => server.log.notice("FAILOVER is asked for"),
            Some(target) => server.log.notice(format_args!("FAILOVER to {target} is asked for")),
            None => server.log.notice("FAILOVER to any replica is asked for"),
        }
        let attempt = Attempt { server, number, plan };
        if attempt.plan.leaves_bucket {
            attempt.leave_bucket();
        } else {
            attempt.carry_out();
        }
    }
}

/// One failover.
struct Attempt<'s> {
    server: &'s Server,
    number: u64,
    plan: Plan,
}

impl Attempt<'_> {
    /// Runs until the server follows the replica, or the failover is over.
    fn carry_out(&self) {
        let is_over = || !self.server.failover.waits(self.number) || self.is_late();
        let is_quiet = quiet::await_writers(self.server, is_over)
            && quiet::end_expiry(self.server, || self.server.failover.waits(self.number))
            && quiet::await_shards(self.server, is_over);
        let mut question = Question::default();
        while self.server.failover.waits(self.number) {
            if self.server.durability.log_has_failed() {
                let _still = self.server.role.hold_still();
                self.server
                    .abort_failover("the log has failed, and replicas do not get what it refuses");
                return;
            }
            if self.is_late() {
                return self.time_is_up();
            }
            if is_quiet && self.hand_over_to_one_that_is_level() {
                return;
            }
            question.ask(self.server);
            self.server.failover.wait(LOOK_EVERY);
        }
    }

    /// Runs until the bucket has everything and this server shuts down, or the failover is over.
    fn leave_bucket(&self) {
        let server = self.server;
        let is_over = || !server.failover.waits(self.number) || self.is_late();
        let is_quiet = quiet::await_writers(server, is_over)
            && quiet::end_expiry(server, || server.failover.waits(self.number))
            && quiet::await_shards(server, is_over);
        while server.failover.waits(self.number) {
            if self.is_late() {
                let _still = server.role.hold_still();
                server.abort_failover("the bucket did not have everything in time");
                return;
            }
            let position = server.feed.position();
            if is_quiet && server.bucket.committed() >= position {
                let _still = server.role.hold_still();
                if server.failover.hand_over(self.number) {
                    server.shutdown().ask(Shutdown::HandsOver);
                }
                return;
            }
            server.bucket.hasten(&server.feed);
            server.bucket.wait_for(position, LOOK_EVERY);
        }
    }

    fn is_late(&self) -> bool {
        self.plan.until_ms.is_some_and(|until_ms| unix_ms() >= until_ms)
    }

    /// Hands over to the first replica that has everything, if there is one.
    fn hand_over_to_one_that_is_level(&self) -> bool {
        let server = self.server;
        let Some(position) = quiet::position(server) else { return false };
        let replicas = server.primary.replicas();
        // Matches like FAILOVER itself, which ignores the case of addresses.
        let is_wanted =
            |replica: &Replica| self.plan.target.as_ref().is_none_or(|at| replica.is_at(at));
        let is_level =
            |replica: &Replica| replica.listens() && quiet::is_level(replica, position.offset);
        let target = replicas.iter().find(|replica| is_wanted(replica) && is_level(replica));
        let Some(target) = target.map(|replica| replica.address()) else { return false };
        // Unless a message was published meanwhile.
        server.hand_over(self.number, &target, || quiet::position(server) == Some(position))
    }

    fn time_is_up(&self) {
        let server = self.server;
        let Some(target) = self.plan.target.as_ref().filter(|_| self.plan.is_forced) else {
            let _still = server.role.hold_still();
            server.abort_failover("no replica had everything in time");
            return;
        };
        server.log.warning(format_args!(
            "FAILOVER to {target}: the time is up, it takes over all the same"
        ));
        server.hand_over(self.number, target, || true);
    }
}
