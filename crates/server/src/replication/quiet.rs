//! Waits until all writes from before a pause are done, and until replicas have them.

use std::thread;
use std::time::Duration;

use tierce_replication::link::Position;

use crate::commands::replication::Replica;
use crate::server::Server;

/// Polling interval for running writes.
const LOOK_EVERY: Duration = Duration::from_millis(1);

/// Maximum time of one step before `gives_up` is called.
const STEP: Duration = Duration::from_millis(50);

/// Waits until no client's write is running; new ones are deferred or refused already. Returns false if `gives_up`.
#[must_use]
pub fn await_writers(server: &Server, gives_up: impl Fn() -> bool) -> bool {
    let quiet = server.begin_quiet();
    while !quiet.is_reached() {
        if gives_up() {
            return false;
        }
        thread::sleep(LOOK_EVERY);
    }
    true
}

/// Waits until all present holders of shards have unlocked them once. Returns false if `gives_up`.
#[must_use]
pub fn await_shards(server: &Server, gives_up: impl Fn() -> bool) -> bool {
    let mut locks = server.keyspace.impatient_long_locks(STEP);
    let mut next = 0;
    while let Err(busy) = locks.try_pass_shards(next) {
        next = busy.shard;
        if gives_up() {
            return false;
        }
    }
    true
}

/// Stops expiry and eviction, if `is_wanted` in the server's present role. Returns true if so.
pub fn end_expiry(server: &Server, is_wanted: impl FnOnce() -> bool) -> bool {
    let _still = server.role.hold_still();
    let is_wanted = is_wanted();
    if is_wanted {
        server.keyspace.set_following(true);
    }
    is_wanted
}

/// Returns the position of the stream behind everything written so far; `None` while some of that is not in it yet.
#[must_use]
pub fn position(server: &Server) -> Option<Position> {
    let primary = &server.primary;
    let position = server.feed.position();
    let offset = primary.confirmations.offset_of(position)?;
    if primary.confirmations.is_asking() || !primary.is_active() {
        return None;
    }
    // A GETACK to the replicas may have followed it.
    Some(Position { id: primary.identity().id, offset: primary.backlog.end().max(offset) })
}

/// Request for the replicas' offsets (GETACK). Each makes the stream longer, so there is one per change.
#[derive(Default)]
pub struct Question {
    position: Option<u64>,
}

impl Question {
    /// Sends the request unless nothing has changed since the last one.
    pub fn ask(&mut self, server: &Server) {
        let position = server.feed.position();
        if self.position != Some(position) {
            self.position = Some(position);
            server.primary.confirmations.ask();
            server.call_for_replicas();
        }
    }
}

/// Returns true if a replica has the whole stream, which ends at this offset.
#[must_use]
pub fn is_level(replica: &Replica, offset: u64) -> bool {
    replica.confirms() && replica.acknowledged() == offset
}
