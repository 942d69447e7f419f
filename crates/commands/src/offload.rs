//! Queue of work that takes too long for a worker, for the threads for long commands.

use std::collections::{BTreeSet, HashMap, HashSet, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tierce_keyspace::WaitKey;
use tierce_keyspace::interleaving::{Condvar, now, pass};
use tierce_wire::resp::OwnedArgs;

use crate::answer::Destination;
use crate::caller::Caller;
use crate::clients::Deferred;

/// Retry interval for work that is refused at the moment.
pub const RETRY_ADMISSION_AFTER: Duration = Duration::from_millis(1);

/// Retry interval for work that needs a shard which another thread keeps locked for long.
pub const RETRY_SHARD_AFTER: Duration = Duration::from_millis(10);

/// Longest time until a timed key is served. Its clients may have gone, and those that find nothing set a time again.
const TIMED_MAX: Duration = Duration::from_secs(60);

/// A command that runs on another thread than its worker.
///
/// There is at most one for each connection that waits for its reply. A connection that continues has at most as many
/// as it may have pending results.
pub struct Job {
    /// The client that gets the reply.
    pub to: Destination,
    /// A copy of the caller, made when the worker reached the command.
    pub caller: Caller,
    /// The command.
    pub command: OwnedArgs,
    /// Maximum of bytes in the reply; see [`Output::room`](tierce_output::Output::room).
    pub room: usize,
}

impl Job {
    /// Returns the client whose commands take turns: one that continues while they run, and may send more.
    #[must_use]
    pub fn turn(&self) -> Option<u64> {
        self.to.deferred().map(|deferred| deferred.from.id)
    }
}

/// Next task of a thread for long commands.
pub enum Work {
    /// Runs a command.
    Command(Box<Job>),
    /// Serves the clients that are blocked on a key, because one of their commands takes long. One thread serves all of
    /// them, so that they keep their order.
    Serve(WaitKey),
    /// Returns unused memory of the thread to the system. No other thread can do this for it.
    GiveBackMemory,
}

/// Queue of work for the threads, first come, first served. A client that continues has one command in the queue or
/// running at a time; its other commands wait behind it, so that they do not occupy all threads.
#[derive(Default)]
pub struct Offload {
    state: Mutex<Queue>,
    /// Copy of the flag in the queue, readable without its lock.
    is_open: AtomicBool,
    has_work: Condvar,
}

/// **Invariant:** there is at most one command for each connection or pending result, and each key with blocked clients
/// at most once. In addition each client may have one command that was cancelled in its turn.
#[derive(Default)]
struct Queue {
    works: VecDeque<Work>,
    /// The keys in `works`.
    keys: HashSet<WaitKey>,
    /// Jobs behind a command of a client that continues, in the order of the numbers of their results. There is an
    /// entry while that command waits or runs.
    behind: HashMap<u64, VecDeque<Job>>,
    /// Deferred work. It does not delay any work that can run.
    held: Vec<Work>,
    /// Keys whose blocked clients may find something at a time, although no key changes.
    timed: HashMap<WaitKey, Instant>,
    /// The keys in `timed` in the order of their times.
    by_time: BTreeSet<(Instant, WaitKey)>,
    /// Time of the next retry of deferred work, or of the next timed key.
    retry_at: Option<Instant>,
    /// Number of requests to return memory.
    purges: u64,
    is_open: bool,
}

impl Queue {
    /// Appends the deferred work and the timed keys to the queue when their time has come.
    fn retry_held(&mut self) {
        let Some(at) = self.retry_at else { return };
        let now = now();
        if at > now {
            return;
        }
        self.works.extend(self.held.drain(..));
        while self.by_time.first().is_some_and(|(at, _)| *at <= now)
            && let Some((_, key)) = self.by_time.pop_first()
        {
            self.timed.remove(&key);
            if self.keys.insert(key.clone()) {
                self.works.push_back(Work::Serve(key));
            }
        }
        self.retry_at = self.by_time.first().map(|(at, _)| *at);
    }

    /// Sets the time of a key, unless it has an earlier one.
    fn set_time(&mut self, key: WaitKey, at: Instant) {
        if let Some(before) = self.timed.get(&key).copied() {
            if before <= at {
                return;
            }
            self.by_time.remove(&(before, key.clone()));
        }
        self.timed.insert(key.clone(), at);
        self.by_time.insert((at, key));
    }

    /// Sets the time of the next retry if this is earlier. Returns true then: a waiting thread has to know.
    fn retry_by(&mut self, at: Instant) -> bool {
        let is_earlier = self.retry_at.is_none_or(|before| at < before);
        if is_earlier {
            self.retry_at = Some(at);
        }
        is_earlier
    }

    fn pop(&mut self) -> Option<Work> {
        let work = self.works.pop_front()?;
        if let Work::Serve(key) = &work {
            self.keys.remove(key);
        }
        Some(work)
    }
}

impl Offload {
    /// Notes that there are threads from now on.
    pub fn open(&self) {
        self.state.lock().is_open = true;
        self.is_open.store(true, Relaxed);
    }

    /// Returns true if there are threads.
    pub fn is_open(&self) -> bool {
        self.is_open.load(Relaxed)
    }

    /// Adds a command. After [`close`](Self::close) it is dropped: its connection is about to be closed.
    pub fn push(&self, job: Job) {
        pass("offload");
        let mut state = self.state.lock();
        if !state.is_open {
            return;
        }
        if let Some(client) = job.turn() {
            if let Some(behind) = state.behind.get_mut(&client) {
                return behind.push_back(job);
            }
            state.behind.insert(client, VecDeque::new());
        }
        state.works.push_back(Work::Command(Box::new(job)));
        self.has_work.notify_one();
    }

    /// Notes that a command of this client has ended. Queues its next one after those of other clients.
    pub fn end_turn(&self, client: u64) {
        let mut state = self.state.lock();
        let Some(behind) = state.behind.get_mut(&client) else { return };
        let Some(job) = behind.pop_front() else {
            state.behind.remove(&client);
            return;
        };
        state.works.push_back(Work::Command(Box::new(job)));
        self.has_work.notify_one();
    }

    /// Drops the command of a result that is no longer wanted, unless it has the turn of its client.
    pub fn forget(&self, deferred: &Deferred) {
        let mut state = self.state.lock();
        let Some(behind) = state.behind.get_mut(&deferred.from.id) else { return };
        let number = |job: &Job| job.to.deferred().map_or(0, |deferred| deferred.number);
        if let Ok(index) = behind.binary_search_by_key(&deferred.number, number) {
            behind.remove(index);
        }
    }

    /// Queues a key, so that the clients blocked on it are served; does nothing if it is queued. The caller has changed
    /// the key or found it changed, and has returned its claims.
    pub fn serve(&self, key: WaitKey) {
        pass("offload");
        let mut state = self.state.lock();
        if state.is_open && state.keys.insert(key.clone()) {
            state.works.push_back(Work::Serve(key));
            self.has_work.notify_one();
        }
    }

    /// Defers work that cannot run now, at most for `retry_after`: no thread is notified when it could run.
    pub fn put_off(&self, work: Work, retry_after: Duration) {
        pass("put off");
        let mut state = self.state.lock();
        let is_new = |keys: &mut HashSet<WaitKey>| match &work {
            Work::Command(_) | Work::GiveBackMemory => true,
            Work::Serve(key) => keys.insert(key.clone()),
        };
        if state.is_open && is_new(&mut state.keys) {
            state.held.push(work);
            if state.retry_by(now() + retry_after) {
                self.has_work.notify_one();
            }
        }
    }

    /// Queues a key after a time, at most `TIMED_MAX`, so that the clients blocked on it are served; does nothing if
    /// that happens earlier.
    pub fn serve_after(&self, key: WaitKey, after: Duration) {
        pass("serve after");
        let mut state = self.state.lock();
        if !state.is_open {
            return;
        }
        let at = now() + after.min(TIMED_MAX);
        state.set_time(key, at);
        if state.retry_by(at) {
            self.has_work.notify_one();
        }
    }

    /// Returns the time at which a waiting thread looks again.
    #[cfg(test)]
    pub fn retry_at(&self) -> Option<Instant> {
        self.state.lock().retry_at
    }

    /// Returns true if any work is queued or deferred.
    pub fn has_waiting(&self) -> bool {
        let state = self.state.lock();
        !state.works.is_empty() || !state.held.is_empty()
    }

    /// Removes and returns all commands, for a caller that answers them. No client that continues has one here.
    pub fn take_commands(&self) -> Vec<Job> {
        let mut state = self.state.lock();
        let waiting = std::mem::take(&mut state.works).into_iter();
        let mut jobs = Vec::new();
        for work in waiting.chain(std::mem::take(&mut state.held)) {
            match work {
                Work::Command(job) => jobs.push(*job),
                work => state.works.push_back(work),
            }
        }
        jobs
    }

    /// Makes all threads return memory.
    pub fn purge_memory(&self) {
        self.state.lock().purges += 1;
        self.has_work.notify_all();
    }

    /// Waits for the next task and returns it; `None` at the end. `purges` belongs to the thread, and is zero at first.
    pub fn next(&self, purges: &mut u64) -> Option<Work> {
        pass("next");
        let mut state = self.state.lock();
        while state.is_open {
            state.retry_held();
            if *purges < state.purges {
                *purges = state.purges;
                return Some(Work::GiveBackMemory);
            }
            if let Some(work) = state.pop() {
                if state.retry_at.is_some() || !state.works.is_empty() {
                    // Another thread takes what came at its time, and waits for the next time.
                    self.has_work.notify_one();
                }
                return Some(work);
            }
            match state.retry_at {
                Some(at) => _ = self.has_work.wait_until(&mut state, at),
                None => self.has_work.wait(&mut state),
            }
        }
        None
    }

    /// Drops all work that has not begun, and ends the threads.
    pub fn close(&self) {
        self.is_open.store(false, Relaxed);
        *self.state.lock() = Queue::default();
        self.has_work.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use tierce_keyspace::DbIndex;

    use super::*;
    use crate::clients::{Client, Origin, Pending, Terms};
    use crate::waiting::{ConnAddress, ReplyTo, Waits};

    /// A command of a client, with this number as its room.
    fn job(number: usize) -> Job {
        let client = Arc::new(Client::new(Origin::default(), 0));
        let to = ReplyTo { conn: ConnAddress::default(), wait: Waits::default().next_reply() };
        let to = Destination::Reply(to);
        Job { to, caller: Caller::new(client, true), command: OwnedArgs::new(), room: number }
    }

    fn command(number: usize) -> Work {
        Work::Command(Box::new(job(number)))
    }

    fn key(name: &str) -> WaitKey {
        (DbIndex::ZERO, name.as_bytes().into())
    }

    /// A command of a client that continues, with its pending result.
    fn nonblocking(client: &Arc<Client>, number: usize) -> (Job, Arc<Deferred>) {
        let terms = Terms { command: "nbkeys", durability: None, bytes: 0, pending_max: 100 };
        let deferred = Deferred::begin(client, client, &terms, &Pending::default());
        let deferred = deferred.expect("not too many");
        let to = Destination::Result(Arc::clone(&deferred));
        (Job { to, ..job(number) }, deferred)
    }

    fn next(offload: &Offload) -> String {
        match offload.next(&mut 0) {
            Some(Work::Command(job)) => job.room.to_string(),
            Some(Work::Serve((_, key))) => String::from_utf8_lossy(&key).into_owned(),
            Some(Work::GiveBackMemory) => "memory".to_owned(),
            None => "the end".to_owned(),
        }
    }

    #[test]
    fn each_thread_gives_back_memory_once_though_it_was_asked_for_twice() {
        let offload = Offload::default();
        offload.open();
        offload.push(job(7));
        offload.purge_memory();
        offload.purge_memory();
        let mut seen = [0, 0];
        for purges in &mut seen {
            assert!(matches!(offload.next(purges), Some(Work::GiveBackMemory)));
        }
        assert!(matches!(offload.next(&mut seen[0]), Some(Work::Command(_))));
    }

    #[test]
    fn what_is_held_back_keeps_nothing_waiting_and_comes_again() {
        let offload = Offload::default();
        offload.open();
        for round in 0..2 {
            (0..100).for_each(|number| offload.put_off(command(number), RETRY_ADMISSION_AFTER));
            (0..2).for_each(|_| offload.put_off(Work::Serve(key("a")), RETRY_ADMISSION_AFTER));
            offload.push(job(1000));
            assert_eq!(next(&offload), "1000", "round {round}");
            for number in 0..100 {
                assert_eq!(next(&offload), number.to_string(), "round {round}");
            }
            assert_eq!(next(&offload), "a", "round {round}");
        }
        offload.put_off(command(1), RETRY_SHARD_AFTER);
        offload.serve(key("a"));
        offload.push(job(2));
        assert!(offload.has_waiting());
        let rooms: Vec<usize> = offload.take_commands().iter().map(|job| job.room).collect();
        assert_eq!(rooms, [2, 1]);
        assert_eq!(next(&offload), "a");
        assert!(!offload.has_waiting());
        offload.put_off(command(1), RETRY_SHARD_AFTER);
        offload.close();
        assert_eq!(next(&offload), "the end");
    }

    #[test]
    fn a_key_is_served_at_its_time_without_delaying_anything() {
        let offload = Offload::default();
        offload.open();
        offload.serve_after(key("late"), Duration::from_secs(3600));
        offload.serve_after(key("a"), Duration::from_secs(3600));
        offload.serve_after(key("a"), Duration::ZERO);
        offload.serve_after(key("a"), Duration::MAX);
        offload.put_off(command(1), RETRY_ADMISSION_AFTER);
        offload.serve(key("late"));
        let mut all = [(); 3].map(|()| next(&offload));
        all.sort_unstable();
        assert_eq!(all, ["1", "a", "late"]);
        assert_eq!(offload.state.lock().timed.len(), 1);
        offload.close();
        assert_eq!(next(&offload), "the end");
    }

    #[test]
    fn a_key_has_one_time_which_is_soon() {
        let offload = Offload::default();
        offload.open();
        for name in ["a", "b", "c"] {
            offload.serve_after(key(name), Duration::MAX);
            offload.serve_after(key(name), Duration::from_secs(50));
        }
        let soon = now() + TIMED_MAX;
        offload.serve_after(key("b"), Duration::ZERO);
        offload.serve_after(key("d"), Duration::from_millis(9_000_000_000_000));
        assert!(offload.retry_at().is_some_and(|at| at <= now()), "the first of them");
        assert_eq!(next(&offload), "b");
        let state = offload.state.lock();
        let times: Vec<_> = state.by_time.iter().map(|(at, key)| (key.clone(), *at)).collect();
        assert_eq!(times.iter().map(|(key, _)| &*key.1).collect::<Vec<_>>(), [b"a", b"c", b"d"]);
        assert!(times[1].1 < soon && times[2].1 <= now() + TIMED_MAX);
        assert_eq!(times.into_iter().collect::<HashMap<_, _>>(), state.timed);
        assert_eq!(state.retry_at, state.by_time.first().map(|(at, _)| *at));
    }

    #[test]
    fn a_key_waits_once_for_its_clients_to_be_served() {
        let offload = Offload::default();
        offload.open();
        for _ in 0..2 {
            ["a", "b", "a"].into_iter().for_each(|name| offload.serve(key(name)));
            offload.push(job(1));
            assert_eq!([(); 3].map(|()| next(&offload)), ["a", "b", "1"]);
        }
    }

    #[test]
    fn clients_that_go_on_take_turns() {
        let offload = Offload::default();
        offload.open();
        let clients = [1, 2].map(|id| {
            Arc::new(Client::new(
                Origin { conn: ConnAddress { id, ..ConnAddress::default() }, ..Origin::default() },
                0,
            ))
        });
        let mut deferred = Vec::new();
        for number in [10, 11, 12, 13] {
            let (job, result) = nonblocking(&clients[0], number);
            offload.push(job);
            deferred.push(result);
        }
        offload.push(nonblocking(&clients[1], 20).0);
        offload.push(job(30));
        // The command that has the turn remains.
        offload.forget(&deferred[0]);
        offload.forget(&deferred[1]);
        assert_eq!([(); 3].map(|()| next(&offload)), ["10", "20", "30"]);
        offload.push(job(31));
        offload.end_turn(clients[0].id);
        offload.end_turn(clients[1].id);
        assert_eq!([(); 2].map(|()| next(&offload)), ["31", "12"]);
        offload.push(nonblocking(&clients[1], 21).0);
        assert_eq!(next(&offload), "21");
        offload.end_turn(clients[0].id);
        assert_eq!(next(&offload), "13");
        offload.end_turn(clients[0].id);
        offload.end_turn(clients[1].id);
        assert!(offload.state.lock().behind.is_empty());
    }
}
