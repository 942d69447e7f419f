//! The thread that carries out saves, one after the other.

use super::error::SaveError;
use super::save::{Saved, save};
use super::state::{Cause, Job, Task};
use crate::server::Server;
use crate::service::Message;

/// Carries out saves until [`Persistence::end_saver`](super::Persistence::end_saver). Uses no processor
/// time while there is none.
pub fn run(server: &Server) {
    loop {
        match server.persistence.next_task() {
            Task::Save(job) => carry_out(server, job),
            Task::BeginScheduled => {
                let mut locker = server.keyspace.locker();
                // If somebody was faster, there is a save all the same.
                let _ = server.begin_save(
                    &mut locker,
                    crate::clock::unix_ms(),
                    Cause::Background,
                    None,
                );
            }
            Task::End => return,
        }
    }
}

fn carry_out(server: &Server, job: Job) {
    let Job { ticket, cause, mut snapshot, backup } = job;
    let outcome = save(server, &mut snapshot, backup.as_ref());
    let extra_bytes = server.keyspace.snapshot_memory().map_or(0, |memory| memory.peak);
    // Before anybody hears of the end, so that whoever does can begin the next one.
    drop(snapshot);
    server.persistence.finish((ticket, cause), &outcome, extra_bytes);
    server.persistence.decide_on_writes(&server.config.settings());
    tell(server, &outcome, extra_bytes);
    let outcome = outcome.map(|_| ()).map_err(|error| error.to_string().into());
    server.post_to_all(&Message::Saved { ticket, outcome });
}

fn tell(server: &Server, outcome: &Result<Saved, SaveError>, extra_bytes: u64) {
    match outcome {
        Ok(Saved { keys, bytes }) => server.log.notice(format_args!(
            "DB saved on disk: {keys} keys, {bytes} bytes, {} KiB of extra memory",
            extra_bytes / 1024
        )),
        Err(SaveError::GivenUp) => server.log.notice("A save was given up: the server ends"),
        Err(error) => server.log.warning(format_args!("Background saving error: {error}")),
    }
}
