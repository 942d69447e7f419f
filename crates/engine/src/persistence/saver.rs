//! The thread that executes saves, one after the other.

use std::sync::Arc;

use tierce_keyspace::{Keyspace, SnapshotError};

use super::error::SaveError;
use super::host::Host;
use super::save::{Saved, save};
use super::state::{Cause, Job, Persistence, Task};
use crate::log::Log;

/// Executes saves until [`Persistence::end_saver`]. Uses no processor time while there is none.
pub fn run(persistence: &Persistence, keyspace: &Arc<Keyspace>, log: &Log, host: &dyn Host) {
    loop {
        match persistence.next_task() {
            Task::Save(job) => carry_out(persistence, keyspace, log, host, *job),
            Task::BeginScheduled => {
                let mut locks = keyspace.impatient_long_locks(persistence.patience());
                let now_ms = crate::clock::unix_ms();
                match persistence.begin(keyspace, &mut locks, now_ms, Cause::Background, None) {
                    Ok(begun) => host.note_latency("snapshot", begun.pause),
                    Err(SaveError::Snapshot(SnapshotError::Busy(_))) => persistence.put_off(),
                    // Another thread was faster, so there is a save.
                    Err(_) => {}
                }
            }
            Task::End => return,
        }
    }
}

fn carry_out(persistence: &Persistence, keyspace: &Keyspace, log: &Log, host: &dyn Host, job: Job) {
    let Job { save_id, cause, mut snapshot, target } = job;
    let outcome = save(persistence, host, &mut snapshot, target);
    let extra_bytes = keyspace.snapshot_memory().map_or(0, |memory| memory.peak);
    // Drop it before the end is announced, so that a listener can begin the next save.
    drop(snapshot);
    persistence.finish((save_id, cause), &outcome, extra_bytes);
    persistence.decide_on_writes(&host.settings());
    tell(log, cause, &outcome, extra_bytes);
    let outcome = outcome.map(|_| ()).map_err(|error| error.to_string().into());
    host.saved(save_id, outcome);
}

fn tell(log: &Log, cause: Cause, outcome: &Result<Saved, SaveError>, extra_bytes: u64) {
    match outcome {
        Ok(Saved { keys, bytes }) if cause == Cause::Copy => log.notice(format_args!(
            "Full copy of the data complete: {keys} keys, {bytes} bytes, {} KiB of extra memory",
            extra_bytes / 1024
        )),
        Err(error) if cause == Cause::Copy => {
            log.warning(format_args!("A full copy of the data failed: {error}"));
        }
        Ok(Saved { keys, bytes }) => log.notice(format_args!(
            "DB saved on disk: {keys} keys, {bytes} bytes, {} KiB of extra memory",
            extra_bytes / 1024
        )),
        Err(SaveError::GivenUp) => log.notice("A save was given up: the server ends"),
        Err(error) => log.warning(format_args!("Background saving error: {error}")),
    }
}
