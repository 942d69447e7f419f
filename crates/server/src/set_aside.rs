//! Connections whose next request needs a shard that another thread holds for long.

use tierce_keyspace::Freed;
use tierce_net::ConnKey;

/// Those of one worker.
///
/// Shards that come free are promised to the worker until it has dropped [`Freed`]. A connection that is resumed is
/// served in the turn after, so the promise is kept until the end of that turn: otherwise the next long command
/// could take the shard before the requests that have waited for it.
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
    /// A connection waits for this shard.
    pub fn add(&mut self, shard: usize, conn: ConnKey) {
        self.conns.push((shard, conn));
    }

    /// Shards are free. Calls `resume` with those who wait for one of them, which says whether it has resumed them.
    pub fn go_on(&mut self, freed: Freed, mut resume: impl FnMut(usize, ConnKey) -> bool) {
        let mut has_resumed = false;
        self.conns.retain(|&(shard, conn)| {
            let is_free = freed.contains(shard);
            has_resumed |= is_free && resume(shard, conn);
            !is_free
        });
        // Without connections there may be no next turn for long. Clients that wait for keys are served in this one.
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
