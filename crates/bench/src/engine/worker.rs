//! A worker: one thread, one epoll instance, and its share of the connections.
//!
//! Sockets are registered once, edge-triggered, for reading and writing, so no further system call changes a
//! registration. A batch then costs one send, one receive and a share of one wait.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use rustix::buffer::spare_capacity;
use rustix::event::Timespec;
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::io::Errno;
use rustix::time::{ClockId, clock_gettime};

use super::connection::{Connection, Received};
use super::phase::Phase;
use super::{Load, Pace, Tally};
use crate::counted::Counted;
use crate::distribution::KeyPicker;
use crate::error::Error;
use crate::random::Random;
use crate::replies::{CARRY_LEN_MAX, ReplyCounter};
use crate::request::Filling;
use crate::ring::{Mix, Ring};
use crate::target::Target;

/// Size of the receive buffer: large enough for a deep batch of small replies, small enough for the L2 cache.
const INPUT_LEN: usize = 128 * 1024;
const _: () = assert!(INPUT_LEN > CARRY_LEN_MAX, "a carried line must leave room");

/// Maximum number of events for each wait.
const EVENTS_MAX: usize = 512;

/// A run fails if nothing arrives for this long.
const STALL_AFTER: Duration = Duration::from_secs(60);

#[derive(Debug)]
pub(super) struct Worker {
    epoll: OwnedFd,
    connections: Vec<Connection>,
    ring: Ring,
    picker: KeyPicker,
    pipeline: usize,
    pace: Pace,
    input: Vec<u8>,
    /// Connections whose next batch is not due yet, soonest first. Empty without a rate limit.
    waiting: BinaryHeap<Reverse<(Instant, usize)>>,
    /// This worker is the `index`-th of `workers`.
    index: usize,
    workers: usize,
}

impl Worker {
    /// Opens `clients` connections for the worker with this index.
    pub(super) fn connect(
        target: &Target,
        load: &Load,
        mix: &Mix,
        index: usize,
        clients: usize,
    ) -> Result<Self, Error> {
        let epoll = epoll::create(CreateFlags::CLOEXEC).map_err(Error::io("creating epoll"))?;
        let mut connections = Vec::with_capacity(clients);
        for number in 0..clients {
            let socket = target.connect()?.into_nonblocking()?;
            let flags = EventFlags::IN | EventFlags::OUT | EventFlags::RDHUP | EventFlags::ET;
            epoll::add(&epoll, &socket, EventData::new_u64(number as u64), flags)
                .map_err(Error::io("registering a socket"))?;
            let counter = ReplyCounter::new(load.protocol, mix.is_quiet());
            connections.push(Connection::new(socket, counter, Instant::now()));
        }
        let seed = load.seed.wrapping_add(index as u64);
        let filling = Filling { key_prefix: &load.key_prefix, data_size: load.data_size };
        Ok(Self {
            epoll,
            connections,
            ring: Ring::new(mix, load.pipeline, &filling, &mut Random::new(!seed))?,
            picker: KeyPicker::new(load.distribution, load.keyspace, seed),
            pipeline: load.pipeline,
            pace: load.pace,
            input: vec![0; INPUT_LEN],
            waiting: BinaryHeap::new(),
            index,
            workers: load.threads.min(load.clients),
        })
    }

    /// Loads the server until the phase is over and no reply is pending.
    ///
    /// # Errors
    /// The first failure of any connection. Others may have pending replies then.
    pub(super) fn run(&mut self, phase: &Phase) -> Result<Tally, Error> {
        let mut run = Run { phase, tally: Tally::new(), active: 0, last_reply: phase.start };
        let cpu_before = thread_cpu();
        match self.drive(&mut run) {
            Ok(()) => {}
            Err(Error::ConnectionLost { outstanding, .. }) => {
                return Err(Error::ConnectionLost { outstanding, said: run.tally.first_error });
            }
            Err(error) => return Err(error),
        }
        run.tally.elapsed = run.last_reply - phase.start;
        run.tally.own_cpu = thread_cpu().saturating_sub(cpu_before);
        Ok(run.tally)
    }

    fn drive(&mut self, run: &mut Run<'_>) -> Result<(), Error> {
        let mut events = Vec::with_capacity(EVENTS_MAX);
        self.begin(run)?;
        while run.active > 0 {
            self.wait(&mut events, run)?;
            for event in events.drain(..) {
                self.handle(event, run)?;
            }
            self.send_due(run)?;
        }
        Ok(())
    }

    /// Sends every connection's first batch. With a rate limit, the first batches of all workers' connections are
    /// spread over one interval.
    fn begin(&mut self, run: &mut Run<'_>) -> Result<(), Error> {
        run.active = self.connections.len();
        let start = run.phase.start;
        for index in 0..self.connections.len() {
            match run.phase.interval {
                None => self.send_batch(index, start, Instant::now(), run)?,
                Some(interval) => {
                    let turn = (index * self.workers + self.index) as f64;
                    let all = (self.connections.len() * self.workers) as f64;
                    let due = start + interval.mul_f64(turn / all);
                    self.waiting.push(Reverse((due, index)));
                }
            }
        }
        Ok(())
    }

    /// Waits until something arrives or a batch is due.
    fn wait(&self, events: &mut Vec<Event>, run: &Run<'_>) -> Result<(), Error> {
        let timeout = match self.waiting.peek() {
            Some(Reverse((due, _))) => due.saturating_duration_since(Instant::now()),
            None => STALL_AFTER,
        };
        let timeout = Timespec::try_from(timeout).expect("a minute and less is representable");
        match epoll::wait(&self.epoll, spare_capacity(events), Some(&timeout)) {
            Ok(0) if self.waiting.is_empty() && run.last_reply.elapsed() >= STALL_AFTER => {
                Err(Error::Stalled { seconds: STALL_AFTER.as_secs(), outstanding: run.active })
            }
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(error) => Err(Error::io("waiting for replies")(error)),
        }
    }

    fn handle(&mut self, event: Event, run: &mut Run<'_>) -> Result<(), Error> {
        let index = event.data.u64() as usize;
        let flags = event.flags;
        if flags.contains(EventFlags::OUT) && self.connections[index].has_unsent() {
            self.connections[index].flush()?;
        }
        let readable = EventFlags::IN | EventFlags::RDHUP | EventFlags::HUP | EventFlags::ERR;
        if flags.intersects(readable) {
            self.receive(index, run)?;
        }
        Ok(())
    }

    /// Receives replies. Sends more when all have arrived or there is room in the window.
    fn receive(&mut self, index: usize, run: &mut Run<'_>) -> Result<(), Error> {
        let mut more = true;
        while more {
            let connection = &mut self.connections[index];
            let received = connection.receive(&mut self.input);
            let Some(Received { counted, filled }) = received? else { break };
            more = filled;
            if counted.replies == 0 {
                continue;
            }
            let now = Instant::now();
            connection.settle(counted.replies, |begun, count| run.record(begun, now, count));
            run.note(counted, now);
            if self.pace == Pace::Window || connection.outstanding == 0 {
                self.next_batch(index, now, run)?;
            }
        }
        Ok(())
    }

    /// Sends the next batch at once, or when it is due.
    #[inline]
    fn next_batch(&mut self, index: usize, now: Instant, run: &mut Run<'_>) -> Result<(), Error> {
        let Some(interval) = run.phase.interval else {
            return self.send_batch(index, now, now, run);
        };
        let due = self.connections[index].begun + interval;
        if due <= now {
            self.send_batch(index, due, now, run)
        } else {
            self.waiting.push(Reverse((due, index)));
            Ok(())
        }
    }

    /// Sends the batches that are due.
    fn send_due(&mut self, run: &mut Run<'_>) -> Result<(), Error> {
        while let Some(&Reverse((due, index))) = self.waiting.peek() {
            let now = Instant::now();
            if due > now {
                break;
            }
            self.waiting.pop();
            self.send_batch(index, due, now, run)?;
        }
        Ok(())
    }

    /// Sends as many requests as may be in flight; their latency counts from `begun`. At the end of the phase,
    /// retires the connection instead when no reply is pending.
    #[inline]
    fn send_batch(
        &mut self,
        index: usize,
        begun: Instant,
        now: Instant,
        run: &mut Run<'_>,
    ) -> Result<(), Error> {
        let outstanding = self.connections[index].outstanding;
        let room = self.pipeline - outstanding as usize;
        let Some(claim) = run.phase.claim(room, now) else {
            run.active -= usize::from(outstanding == 0);
            return Ok(());
        };
        let batch = self.ring.batch(claim.position, claim.count, &mut self.picker);
        self.connections[index].send(batch, claim.count, begun)
    }
}

/// A worker's part of a running phase.
struct Run<'a> {
    phase: &'a Phase,
    tally: Tally,
    /// Number of connections that have pending replies or wait for their time.
    active: usize,
    last_reply: Instant,
}

impl Run<'_> {
    #[inline]
    fn record(&mut self, begun: Instant, now: Instant, replies: u64) {
        let latency = now.saturating_duration_since(begun).as_nanos() as u64;
        self.tally.latency.saturating_record_n(latency, replies);
    }

    #[inline]
    fn note(&mut self, counted: Counted, now: Instant) {
        self.tally.replies += counted.replies;
        self.tally.nulls += counted.nulls;
        self.last_reply = now;
        if counted.errors > 0 {
            self.tally.errors += counted.errors;
            self.tally.first_error = self.tally.first_error.take().or(counted.first_error);
        }
    }
}

fn thread_cpu() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::try_from(time).unwrap_or_default()
}
