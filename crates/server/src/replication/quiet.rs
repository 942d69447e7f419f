//! Waits until all that was written before a pause is done, and until replicas have it.

use std::thread;
use std::time::Duration;

use tierce_replication::link::Place;

use crate::commands::replication::Replica;
use crate::server::Server;

/// Between two looks at what is under way.
const LOOK_EVERY: Duration = Duration::from_millis(1);

/// How long one step takes at most before the caller is asked whether it gives up.
const STEP: Duration = Duration::from_millis(50);

/// Waits until nothing is under way of the writes of clients, which are held back or refused already. `false` if
/// `gives_up`.
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

/// Waits until all shards have been unlocked once by those who hold them now. `false` if `gives_up`.
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

/// Nothing expires or is evicted from now on, if that is wanted of a server in its present role. Whether it is.
pub fn end_expiry(server: &Server, is_wanted: impl FnOnce() -> bool) -> bool {
    let _still = server.role.hold_still();
    let is_wanted = is_wanted();
    if is_wanted {
        server.keyspace.set_following(true);
    }
    is_wanted
}

/// Where the stream is with all that was written so far; `None` while some of that is not in it yet.
#[must_use]
pub fn place(server: &Server) -> Option<Place> {
    let primary = &server.primary;
    let position = server.feed.position();
    let offset = primary.confirmations.offset_of(position)?;
    if primary.confirmations.is_asking() || !primary.is_active() {
        return None;
    }
    // A question to the replicas may have followed it.
    Some(Place { id: primary.identity().id, offset: primary.backlog.end().max(offset) })
}

/// Asks replicas how far they are. Each question makes the stream longer, so there is one for each change.
#[derive(Default)]
pub struct Question {
    position: Option<u64>,
}

impl Question {
    /// Asks unless nothing has changed since the last time.
    pub fn ask(&mut self, server: &Server) {
        let position = server.feed.position();
        if self.position != Some(position) {
            self.position = Some(position);
            server.primary.confirmations.ask();
            server.call_for_replicas();
        }
    }
}

/// Whether a replica has all of a stream that ends at this offset.
#[must_use]
pub fn is_level(replica: &Replica, offset: u64) -> bool {
    replica.confirms() && replica.acknowledged() == offset
}
