//! The shutdown wait for replicas: the server defers writes, stops expiry, and waits until replicas have everything,
//! for `shutdown-timeout` seconds at most. So a promoted replica lacks nothing, and all replicas continue without full
//! copies when the server restarts.
//!
//! A server that is itself a replica takes nothing more from its primary ([`Role::hold_link`]), and waits in this way
//! too.
//!
//! [`Role::hold_link`]: crate::commands::replication::role::Role::hold_link

use std::sync::Arc;
use std::time::Duration;

use tierce_keyspace::expire_due;

use super::quiet::{self, Question};
use crate::clock::unix_ms;
use crate::commands::replication::Replica;
use crate::config::DirectiveId;
use crate::server::Server;
use crate::shutdown::{Course, Shutdown};

/// Interval at which the replicas' offsets are checked.
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// Outcome of the wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// There is no replica to wait for.
    None,
    /// All have everything, or time is up. Nothing changes until [`resume_changes`].
    Held,
    /// A client has aborted the shutdown. Nothing changes either.
    Aborted,
}

/// Waits for the replicas of a server that shuts down for this reason.
pub fn await_replicas(server: &Server, reason: Shutdown) -> Outcome {
    const TIMEOUT: DirectiveId = DirectiveId::of("shutdown-timeout");
    let timeout_seconds = server.config.settings().number(TIMEOUT);
    if reason.is_now() || timeout_seconds == 0 || to_await(server).is_empty() {
        return Outcome::None;
    }
    server.pause.hold();
    server.log.notice("Waiting for replicas before shutting down");
    let until_ms = unix_ms().saturating_add(timeout_seconds.saturating_mul(1000));
    server.shutdown().await_replicas(Some(until_ms));
    let outcome = wait(server, until_ms);
    server.shutdown().await_replicas(None);
    if outcome == Outcome::Held {
        log_lags(server);
    }
    outcome
}

/// Resumes changes: clients may write again, and keys expire.
pub fn resume_changes(server: &Server) {
    let still = server.role.hold_still();
    server.settle_expiry();
    drop(still);
    server.pause.let_go();
}

/// Returns the replicas that get the stream or a copy. No other copy begins any more.
fn to_await(server: &Server) -> Vec<Arc<Replica>> {
    let mut replicas = server.primary.replicas();
    replicas.retain(|replica| replica.will_confirm() && replica.waits().is_none());
    replicas
}

fn wait(server: &Server, until_ms: i64) -> Outcome {
    let course = |at_most| match server.shutdown().course(at_most) {
        Course::Aborted => Some(Outcome::Aborted),
        Course::Waits if unix_ms() < until_ms => None,
        Course::Waits | Course::Ends => Some(Outcome::Held),
    };
    let is_over = || course(Duration::ZERO).is_some();
    let is_quiet = quiet::await_writers(server, is_over)
        && (server.role.is_replica() || end_expiry(server))
        && quiet::await_shards(server, is_over);
    let mut question = Question::default();
    loop {
        let is_replica = server.role.is_replica();
        let position = match is_replica {
            // Otherwise the server would be gone before the other one takes over.
            _ if server.failover.is_on() => None,
            true => server.role.link_stands().then(|| server.primary.backlog.end()),
            false => quiet::position(server).map(|position| position.offset),
        };
        if is_quiet && position.is_some_and(|offset| all_are_level(server, offset)) {
            return Outcome::Held;
        }
        // No GETACK goes into the stream of another server: its replicas report their offset each second.
        if !is_replica {
            question.ask(server);
        }
        if let Some(outcome) = course(LOOK_EVERY) {
            return outcome;
        }
    }
}

/// Puts pending expiries into the stream, and stops expiry. Returns false if the server has become a replica.
fn end_expiry(server: &Server) -> bool {
    expire_due(&mut server.keyspace.locks(), unix_ms());
    quiet::end_expiry(server, || !server.role.is_replica())
}

fn all_are_level(server: &Server, offset: u64) -> bool {
    to_await(server).iter().all(|replica| quiet::is_level(replica, offset))
}

fn log_lags(server: &Server) {
    let end = server.primary.backlog.end();
    let replicas = to_await(server);
    let (level, behind): (Vec<_>, Vec<_>) =
        replicas.iter().partition(|replica| replica.confirms() && replica.acknowledged() == end);
    for replica in &behind {
        let lag = end.saturating_sub(replica.acknowledged());
        let (addr, silent) = (replica.address(), replica.silent_seconds(unix_ms()));
        let state = replica.state();
        server.log.warning(format_args!(
            "The replica {addr} lacks {lag} bytes of the stream at the end; it was heard of {silent} s ago, state {state}"
        ));
    }
    let (level, all) = (level.len(), replicas.len());
    server.log.notice(format_args!("{level} of {all} replicas have everything when shutting down"));
}
