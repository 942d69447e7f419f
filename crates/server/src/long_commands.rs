//! The threads that run commands which take too long for a worker.
//!
//! Such a thread marks the shards that it needs as busy, so that workers set aside requests for these shards and serve
//! others. The reply returns to the worker as an answer, like the reply to a client that waits for keys.
//!
//! Another thread publishes notifications that too many patterns may match for a worker.

use std::io;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use tierce_keyspace::{SHARD_PATIENCE, WaitKey};
use tierce_output::Output;

use crate::answer::{Answer, Answered};
use crate::clients::Listener;
use crate::clock;
use crate::error::Interrupt;
use crate::kernel::Kernel;
use crate::offload::{Job, Offload, RETRY_ADMISSION_AFTER, RETRY_SHARD_AFTER, Work};
use crate::pipeline::{self, Executed, Execution, Executor, Stopped, Turn};
use crate::reply::Reply;
use crate::server::Server;
use crate::stats::Counters;

/// Threads for long commands.
pub struct LongCommands {
    server: Arc<Server>,
    threads: Vec<JoinHandle<()>>,
}

impl LongCommands {
    /// Starts the threads: as many as the kernel has counters for.
    ///
    /// # Errors
    /// If the system cannot start a thread.
    pub fn start(server: &Arc<Server>) -> io::Result<Self> {
        // Opens the queues before the first thread looks for work: a thread that finds its queue closed ends.
        server.offload.open();
        server.scripts.offload.open();
        server.migrations.open();
        let mut threads = Vec::new();
        for seat in Seat::all(server) {
            threads.push(start(server, seat)?);
        }
        server.pubsub.set_publisher(true);
        let publisher = Arc::clone(server);
        threads.push(
            thread::Builder::new()
                .name("publisher".to_owned())
                .spawn(move || while publisher.pubsub.publish_next() {})?,
        );
        Ok(Self { server: Arc::clone(server), threads })
    }
}

impl Drop for LongCommands {
    /// Waits for the commands that have begun.
    fn drop(&mut self) {
        self.server.offload.close();
        self.server.scripts.offload.close();
        self.server.migrations.close();
        self.server.scripts.running.end_all();
        self.server.pubsub.set_publisher(false);
        for thread in self.threads.drain(..) {
            // The panic was reported when it happened.
            let _ = thread.join();
        }
    }
}

/// Purpose of a thread.
#[derive(Clone, Copy)]
enum Pool {
    /// Commands that traverse much data, and end.
    Commands,
    /// Programs of clients, which may never end: they must not delay commands.
    Programs,
    /// Commands that wait for another server, one after the other.
    Migrations,
}

/// Thread among those of its pool.
#[derive(Clone, Copy)]
pub(crate) struct Seat {
    pool: Pool,
    index: usize,
}

impl Seat {
    /// Returns the seats of all threads.
    pub(crate) fn all(kernel: &Kernel) -> impl Iterator<Item = Self> + use<> {
        let of = |pool, count| (0..count).map(move |index| Self { pool, index });
        of(Pool::Commands, kernel.long_threads())
            .chain(of(Pool::Programs, kernel.program_threads()))
            .chain(of(Pool::Migrations, 1))
    }

    pub(crate) fn name(self) -> String {
        match self.pool {
            Pool::Commands => format!("long-{}", self.index),
            Pool::Programs => format!("script-{}", self.index),
            Pool::Migrations => "migrate".to_owned(),
        }
    }

    fn offload(self, kernel: &Kernel) -> &Offload {
        match self.pool {
            Pool::Commands => &kernel.offload,
            Pool::Programs => &kernel.scripts.offload,
            Pool::Migrations => &kernel.migrations,
        }
    }

    fn counters(self, kernel: &Kernel) -> &Counters {
        match self.pool {
            Pool::Commands => kernel.long_counters(self.index),
            Pool::Programs => kernel.program_counters(self.index),
            Pool::Migrations => kernel.migration_counters(),
        }
    }
}

fn start(server: &Arc<Server>, seat: Seat) -> io::Result<JoinHandle<()>> {
    let server = Arc::clone(server);
    thread::Builder::new().name(seat.name()).spawn(move || work(&server, seat))
}

/// Main loop of a thread.
pub(crate) fn work(server: &Server, seat: Seat) {
    let mut purges = 0;
    while let Some(work) = seat.offload(server).next(&mut purges) {
        match work {
            Work::GiveBackMemory => server.purge.collect(),
            Work::Command(job) => take_turn(server, seat, *job),
            Work::Serve(key) => serve(server, seat, &key),
        }
    }
}

fn take_turn(kernel: &Kernel, seat: Seat, job: Job) {
    let turn = job.turn();
    if let Some((job, retry_after)) = run(kernel, seat, job) {
        return put_off(kernel, seat, job, retry_after);
    }
    if let Some(client) = turn {
        seat.offload(kernel).end_turn(client);
    }
}

/// Runs a command and answers, unless its client was killed or the receiver of its result is gone. It passes the
/// admission checks again, because conditions may have changed in the queue. If they refuse it, that is the answer. If
/// they defer it, the job is returned with its retry interval.
fn run(kernel: &Kernel, seat: Seat, mut job: Job) -> Option<(Job, Duration)> {
    if job.caller.client.is_closing() {
        return None;
    }
    if let Some(deferred) = job.to.deferred() {
        if deferred.run() == Listener::Gone {
            return None;
        }
        job.caller.proto = deferred.choose_proto();
    }
    let mut output = Output::with_room(job.room);
    let has_written = match execute(kernel, seat.counters(kernel), &mut job, &mut output) {
        Ok(has_written) => has_written,
        Err(Interrupt::Busy(_)) => return Some((job, RETRY_SHARD_AFTER)),
        Err(_) => return Some((job, RETRY_ADMISSION_AFTER)),
    };
    let logged_at = has_written.then(|| kernel.durability.wal_on_or_off().appended());
    if job.caller.waits.is_for_reply() {
        // The thread that serves the client answers it. The connection has its caller back already.
        return None;
    }
    // If the connection continued, it kept its caller, and gets messages meanwhile.
    let (invalidation, caller) = match job.to.deferred() {
        Some(_) => {
            let args = job.command.as_args();
            let command = pipeline::resolve(kernel, args).ok();
            (command.and_then(|command| job.caller.reads_of(command, args)), None)
        }
        None => (None, Some(Box::new(job.caller))),
    };
    let reply = Answered::With(output.take());
    kernel.answer(Answer { to: job.to, reply, logged_at, invalidation, caller });
    None
}

fn put_off(kernel: &Kernel, seat: Seat, job: Job, retry_after: Duration) {
    if let Some(deferred) = job.to.deferred() {
        deferred.queue();
    }
    seat.offload(kernel).put_off(Work::Command(Box::new(job)), retry_after);
}

/// Serves the clients that wait for a key. If others lock a shard for long, it defers this.
fn serve(kernel: &Kernel, seat: Seat, key: &WaitKey) {
    // Dropped after the locks, which publish pending messages.
    let _under_way = kernel.in_flight_requests.enter();
    let mut locks = kernel.keyspace.impatient_long_locks(SHARD_PATIENCE);
    locks.note_ready(key);
    let (counters, now_ms) = (seat.counters(kernel), clock::unix_ms());
    pipeline::serve(kernel, &mut locks, counters, &mut Output::new(), now_ms);
}

/// Returns true if the reply has to wait until the log or replicas have the changes.
///
/// # Errors
/// If an admission check defers the command, or other threads lock its shards for long; it has then changed and replied
/// nothing.
fn execute(
    kernel: &Kernel,
    counters: &Counters,
    job: &mut Job,
    output: &mut Output,
) -> Result<bool, Interrupt> {
    let Job { to, caller, command: args, .. } = job;
    let args = args.as_args();
    let by = Executor::LongThread { to: Some(to) };
    // A program may have removed the command since it was looked up.
    let refused = match pipeline::resolve(kernel, args) {
        Ok(command) => {
            let turn = Turn::new(kernel, counters, clock::unix_ms());
            let mut locks = by.locks(kernel, command, caller);
            let execution = Execution { turn, command, args, by };
            match execution.execute(caller, &mut locks, output) {
                Ok(Executed::Ran { level, is_unrecorded }) => {
                    // Without a log, replicas may still have to confirm it.
                    return Ok(locks.take_logged() || is_unrecorded && level.is_some());
                }
                Ok(Executed::Queued) => unreachable!("a worker keeps requests for EXEC itself"),
                Err(Stopped::Interrupted(interrupt)) => return Err(interrupt),
                Err(Stopped::Refused(refused)) => refused,
            }
        }
        Err(refused) => refused,
    };
    let refused = pipeline::refused_in_transaction(caller, refused);
    pipeline::refuse(kernel, counters, &mut Reply::new(output, caller.proto), &refused);
    Ok(false)
}
