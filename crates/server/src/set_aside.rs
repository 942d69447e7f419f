//! Connections whose next request needs a shard that another thread locks for long.

use tierce_keyspace::Freed;
use tierce_net::ConnKey;

/// Such connections of one worker.
///
/// Freed shards are reserved for the worker until it drops [`Freed`]. A resumed connection is served in the next turn,
/// so the reservation lasts until the end of that turn. Otherwise the next long command could lock the shard before the
/// requests that have waited for it.
#[derive(Default)]
pub struct SetAside {
    /// Each with the shard that it waits for.
    conns: Vec<(usize, ConnKey)>,
    /// Shards whose connections are served in the next turn.
    resumed: Vec<Freed>,
    /// Shards whose connections are served in this turn.
    served: Vec<Freed>,
}

impl SetAside {
    /// Adds a connection that waits for this shard.
    pub fn add(&mut self, shard: usize, conn: ConnKey) {
        self.conns.push((shard, conn));
    }

    /// Handles freed shards. Calls `resume` for each connection that waits for one of them; `resume` returns true if it
    /// has resumed the connection.
    pub fn go_on(&mut self, freed: Freed, mut resume: impl FnMut(usize, ConnKey) -> bool) {
        let mut has_resumed = false;
        self.conns.retain(|&(shard, conn)| {
            let is_free = freed.contains(shard);
            has_resumed |= is_free && resume(shard, conn);
            !is_free
        });
        // Without connections the next turn may be far away. Clients that wait for keys are served in this one.
        if has_resumed { &mut self.resumed } else { &mut self.served }.push(freed);
    }

    /// Ends a turn.
    pub fn turn_end(&mut self) {
        self.served.clear();
        std::mem::swap(&mut self.resumed, &mut self.served);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use tierce_keyspace::{Keyspace, Options};
    use tierce_net::WorkerId;

    use super::*;

    #[test]
    fn a_shard_is_promised_until_who_waited_for_it_was_served() {
        let keyspace = Keyspace::new(Options::default()).unwrap();
        let (sender, receiver) = mpsc::channel();
        keyspace.on_freed(move |_, freed| sender.send(freed).unwrap());
        let hash = keyspace.hash(b"held");
        let hold = || {
            let mut locks = keyspace.long_locks();
            let _held = locks.lock_many(&[hash]);
            keyspace.worker_locks(0).reach(hash).unwrap_err().shard
        };
        let conn = ConnKey { id: 1, worker: WorkerId(0), slot: 0 };
        let mut set_aside = SetAside::default();

        let shard = hold();
        set_aside.add(shard, conn);
        let freed = receiver.recv().unwrap();
        let mut resumed = Vec::new();
        set_aside.go_on(freed, |of, conn| {
            resumed.push((of, conn));
            true
        });
        assert_eq!(resumed, [(shard, conn)]);
        let promises = |set_aside: &SetAside| set_aside.resumed.len() + set_aside.served.len();
        set_aside.turn_end();
        assert_eq!(promises(&set_aside), 1, "it is served in the next turn");
        set_aside.turn_end();
        assert_eq!(promises(&set_aside), 0);

        hold();
        set_aside.go_on(receiver.recv().unwrap(), |_, _| unreachable!("no request waits"));
        assert_eq!(promises(&set_aside), 1);
        set_aside.turn_end();
        assert_eq!(promises(&set_aside), 0, "no request is served in the next turn");
    }
}
