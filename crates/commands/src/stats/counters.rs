//! The counters of one worker, and their sum over all workers.
//!
//! A counter has a single writer, the worker that owns it. So adding is a plain load and store, as cheap as for an
//! ordinary variable; readers load and sum. A reset keeps the present counts as a baseline that is subtracted later,
//! because a reader must not write.

use std::iter;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use super::histogram::{BUCKETS, bucket_of};
use crate::command::CommandId;

/// Counters that concern a worker as a whole.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(usize)]
pub enum Stat {
    /// Commands executed, failed ones included.
    Commands,
    /// Replies that were errors.
    Errors,
    /// Connections refused because there were too many (`maxclients`).
    RejectedConnections,
    /// Connections refused by `protected-mode`.
    ProtectedModeRejections,
    /// Connections closed for falling behind with reading.
    OutputLimitDisconnections,
    /// Connections closed for a request that outgrew its limit.
    QueryLimitDisconnections,
    /// Connections closed for `maxmemory-clients`.
    EvictedClients,
    /// Connections closed for `timeout`.
    IdleDisconnections,
    /// Requests refused for their size or that of an argument.
    RequestSizeErrors,
    /// Requests refused for the number of their arguments.
    RequestArgumentsErrors,
    /// Replies of programs refused because they were nested too deep.
    NestingLimitErrors,
    /// Times that input arrived and was served; each ends with one sending of replies.
    Reads,
    /// Times a worker was awake.
    Turns,
    /// Number of the above.
    Count,
}

/// Number of words for each command before its histogram: calls, nanoseconds, refused, failed.
const COMMAND_WORDS: usize = 4;
const COMMAND_STRIDE: usize = COMMAND_WORDS + BUCKETS;

/// The counts of one worker.
pub struct Counters {
    words: Box<[AtomicU64]>,
}

/// Something that is counted.
#[derive(Clone, Copy)]
pub struct Counted(usize);

impl Counters {
    /// Creates counters for a table with `commands` identities, all zero.
    pub fn new(commands: usize) -> Self {
        Self { words: (0..len_for(commands)).map(|_| AtomicU64::new(0)).collect() }
    }

    /// Returns true if they are for a table with this number of identities.
    pub fn has_room_for(&self, commands: usize) -> bool {
        self.words.len() == len_for(commands)
    }

    /// Calls `take` with the counts of the server and of these commands, and resets them; only by the owner.
    pub fn drain(
        &self,
        commands: impl Iterator<Item = CommandId>,
        mut take: impl FnMut(Counted, u64),
    ) {
        let of_commands = commands.map(|id| (base_of(id), COMMAND_STRIDE));
        for (begin, len) in iter::once((0, Stat::Count as usize)).chain(of_commands) {
            for at in begin..begin + len {
                let count = self.words[at].load(Relaxed);
                if count > 0 {
                    self.words[at].store(0, Relaxed);
                    take(Counted(at), count);
                }
            }
        }
    }

    /// Adds a count from other counters; only by the owner.
    pub fn add_counted(&self, counted: Counted, by: u64) {
        bump(&self.words[counted.0], by);
    }

    /// Adds to a counter; only by the worker that owns it.
    #[inline]
    pub fn add(&self, stat: Stat, by: u64) {
        bump(&self.words[stat as usize], by);
    }

    /// Returns a counter of the worker.
    pub fn get(&self, stat: Stat) -> u64 {
        self.words[stat as usize].load(Relaxed)
    }

    /// Counts `calls` of a command that took `nanos` together; only by the owner.
    #[inline]
    pub fn ran(&self, command: CommandId, calls: u64, nanos: u64) {
        let words = &self.words[base_of(command)..][..COMMAND_STRIDE];
        bump(&words[0], calls);
        bump(&words[1], nanos);
        // Most runs have one call, and a division takes as long as all the rest here.
        let each_nanos = if calls > 1 { nanos / calls } else { nanos };
        bump(&words[COMMAND_WORDS + bucket_of(each_nanos)], calls);
    }

    /// Counts a call that was refused before it ran; only by the owner.
    pub fn refused(&self, command: CommandId) {
        bump(&self.words[base_of(command) + 2], 1);
    }

    /// Counts a call that ended in an error; only by the owner.
    pub fn failed(&self, command: CommandId) {
        bump(&self.words[base_of(command) + 3], 1);
    }
}

#[inline]
fn bump(word: &AtomicU64, by: u64) {
    word.store(word.load(Relaxed).wrapping_add(by), Relaxed);
}

fn len_for(commands: usize) -> usize {
    Stat::Count as usize + commands * COMMAND_STRIDE
}

fn base_of(command: CommandId) -> usize {
    Stat::Count as usize + usize::from(command.0) * COMMAND_STRIDE
}

/// The sum over all workers at one moment.
#[derive(Clone)]
pub struct Totals {
    words: Vec<u64>,
}

/// The sums of one command.
pub struct CommandTotals<'a> {
    /// Times it ran.
    pub calls: u64,
    /// Nanoseconds it ran.
    pub nanos: u64,
    /// Times it was refused before it ran.
    pub refused: u64,
    /// Times it ended in an error.
    pub failed: u64,
    /// Calls by duration, see [`super::histogram`].
    pub histogram: &'a [u64],
}

impl Totals {
    /// Sums over `workers`, less the counts in `baseline`.
    pub fn sum<'a>(
        workers: impl IntoIterator<Item = &'a Counters>,
        baseline: Option<&Self>,
    ) -> Self {
        let mut words = Vec::new();
        for counters in workers {
            words.resize(counters.words.len(), 0_u64);
            for (sum, word) in words.iter_mut().zip(&counters.words) {
                *sum = sum.wrapping_add(word.load(Relaxed));
            }
        }
        if let Some(baseline) = baseline {
            for (sum, base) in words.iter_mut().zip(&baseline.words) {
                *sum = sum.wrapping_sub(*base);
            }
        }
        Self { words }
    }

    /// Returns a counter's sum.
    pub fn get(&self, stat: Stat) -> u64 {
        self.words[stat as usize]
    }

    /// Returns the sums of a command.
    pub fn command(&self, command: CommandId) -> CommandTotals<'_> {
        let words = &self.words[base_of(command)..][..COMMAND_STRIDE];
        CommandTotals {
            calls: words[0],
            nanos: words[1],
            refused: words[2],
            failed: words[3],
            histogram: &words[COMMAND_WORDS..],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_drained_is_counted_from_zero() {
        let (aside, own) = (Counters::new(130), Counters::new(130));
        aside.ran(CommandId(129), 3, 1000);
        aside.failed(CommandId(129));
        aside.refused(CommandId(100));
        aside.add(Stat::Errors, 1);
        let ids = || [CommandId(129), CommandId(100)].into_iter();
        aside.drain(ids(), |counted, by| own.add_counted(counted, by));
        aside.drain(ids(), |_, _| unreachable!("it is drained"));
        let totals = Totals::sum([&own], None);
        let figures = |id| {
            let totals = totals.command(CommandId(id));
            (totals.calls, totals.refused, totals.failed, totals.histogram.iter().sum::<u64>())
        };
        assert_eq!((figures(129), figures(100)), ((3, 0, 1, 3), (0, 1, 0, 0)));
        assert_eq!(totals.get(Stat::Errors), 1);
    }

    #[test]
    fn sums_workers_and_subtracts_the_baseline() {
        let workers = [Counters::new(2), Counters::new(2)];
        let id = CommandId(1);
        workers[0].add(Stat::Commands, 3);
        workers[1].ran(id, 4, 4000);
        let baseline = Totals::sum(&workers, None);
        assert_eq!(baseline.get(Stat::Commands), 3);
        assert_eq!((baseline.command(id).calls, baseline.command(id).nanos), (4, 4000));
        assert_eq!(baseline.command(id).histogram.iter().sum::<u64>(), 4);

        workers[0].add(Stat::Commands, 1);
        workers[1].failed(id);
        let since = Totals::sum(&workers, Some(&baseline));
        assert_eq!((since.get(Stat::Commands), since.command(id).calls), (1, 0));
        assert_eq!(since.command(id).failed, 1);
        assert_eq!(since.command(CommandId(0)).failed, 0);
    }
}
