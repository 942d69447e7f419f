//! Batches with replies that wait for replicas, or for the bucket.

use tierce_keyspace::ShardLocks;
use tierce_net::{Flow, Io};

use super::{BatchRunner, Progress, note_rest};
use crate::admission;
use crate::caller::Caller;
use crate::command::{Access, Command, Group};
use crate::commands::replica_level::HeldReplies;
use crate::pipeline;
use crate::session::Session;
use crate::suspend::suspend_for_replicas;

impl<'k> BatchRunner<'k, '_> {
    #[cold]
    pub(super) fn look_what_is_told(&mut self, caller: &mut Caller, input: &[u8]) {
        let tells_of_server = |args| {
            let command = pipeline::resolve(self.kernel, args);
            command.is_ok_and(|command| admission::tells_of_server(command.spec))
        };
        let all = self.batch.iter(input).all(tells_of_server);
        caller.waits.logged.tells_of_server =
            *self.tells_of_server.insert(all && self.tells_of_server.unwrap_or(true));
    }

    /// Returns how many requests are through. `ran` is the last one that has run.
    #[cold]
    pub(super) fn through(&self, progress: &Progress, ran: usize) -> usize {
        match progress {
            Progress::Through => self.batch.len(),
            Progress::Yielding { index } => index + 1,
            Progress::Held { index, .. }
            | Progress::Waiting { index }
            | Progress::Fetching { index, .. }
            | Progress::Unconfirmed { index } => *index,
            Progress::Closing => ran + 1,
        }
    }

    /// Returns the length of the executed requests.
    #[cold]
    pub(super) fn executed(&self, progress: &Progress) -> usize {
        let through = match progress {
            Progress::Waiting { index } => index + 1,
            Progress::Closing => return 0,
            _ => self.through(progress, 0),
        };
        if through == 0 { 0 } else { self.batch.end(through - 1) }
    }

    /// Makes the replies wait for replicas. The rest of the input waits behind them.
    #[cold]
    pub(super) fn wait_for_replicas(
        &mut self,
        session: &mut Session,
        io: &mut Io<'_>,
        executed: usize,
        progress: &Progress,
    ) -> Flow {
        self.held.cut(io.output(), false);
        io.consume(executed);
        session.parser.rewind();
        let caller = &mut session.caller;
        if executed > 0 {
            note_rest(caller, io);
        }
        if caller.waits.is_for_reply() {
            // A connection waits for one thing at a time. Without a reply nothing is acknowledged.
            return Flow::Close;
        }
        let closes = matches!(progress, Progress::Closing);
        let held = HeldReplies { closes, ..std::mem::take(self.held) };
        suspend_for_replicas(&mut caller.waits, self.kernel, &caller.client, io, held)
    }

    /// Returns true if a command has to wait until the writes before it are confirmed: it may wait for something else,
    /// end the connection, or change the durability level.
    #[inline]
    pub(super) fn waits_for_writes(&self, caller: &Caller, command: &Command) -> bool {
        self.held.has_writes
            && !command.is_data_only
            && command.spec.group != Group::Transactions
            && !(caller.is_in_transaction() && command.is_queued())
    }

    /// Returns true if the last command has changed data that its reply acknowledges. A command that waits for keys has
    /// no reply: any change from before its wait, such as a new consumer, is confirmed with its later reply.
    #[cold]
    pub(super) fn has_written(
        &self,
        caller: &mut Caller,
        locks: &mut ShardLocks<'k>,
        access: Access,
    ) -> bool {
        // Pending changes of the shard go to the log.
        locks.release();
        let has_written = caller.has_written_unrecorded(self.kernel, access) | locks.take_logged();
        has_written && !caller.waits.is_for_keys()
    }
}
