//! What takes too long for a worker, on its way to the threads for long commands.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tierce_keyspace::WaitKey;
use tierce_keyspace::interleaving::{Condvar, now, pass};
use tierce_wire::resp::OwnedArgs;

use crate::answer::Destination;
use crate::caller::Caller;
use crate::clients::Deferred;

/// When is looked again at what a gate holds back.
pub const RETRY_GATE_AFTER: Duration = Duration::from_millis(1);

/// When is looked again at what needs a shard that another thread holds for long.
pub const RETRY_SHARD_AFTER: Duration = Duration::from_millis(10);

/// A command to run away from its worker.
///
/// There is one for each connection that waits for its reply, and as many for each that goes on as it may have results
/// pending.
pub struct Job {
    /// The client that gets the reply.
    pub to: Destination,
    /// The caller of the command, as it was when the worker came to it.
    pub caller: Caller,
    /// The command.
    pub command: OwnedArgs,
    /// Bytes that the reply may have; see [`Output::room`](tierce_output::Output::room).
    pub room: usize,
}

impl Job {
    /// The client that it takes the turn of: one that goes on while it runs, and may send more.
    #[must_use]
    pub fn turn(&self) -> Option<u64> {
        self.to.deferred().map(|deferred| deferred.from.id)
    }
}

/// What a thread for long commands does next.
pub enum Work {
    /// It runs a command.
    Command(Box<Job>),
    /// It serves the clients that wait for a key, since a command of theirs takes long. All at once, so that they keep
    /// their order.
    Serve(WaitKey),
    /// It gives unused memory back to the system, which no other thread can do for it.
    GiveBackMemory,
}

/// What waits for a thread, first come, first served. Of the commands of a client that goes on, one waits or runs at a
/// time and the others stand behind it, so that they do not occupy all threads.
#[derive(Default)]
pub struct Offload {
    state: Mutex<Queue>,
    /// What the queue says, to be read without its lock.
    is_open: AtomicBool,
    has_work: Condvar,
}

/// **Invariant:** there is one command for each connection or pending result at most, but for one of each client that
/// was ended in its turn, and each key once for which a client waits.
#[derive(Default)]
struct Queue {
    works: VecDeque<Work>,
    /// The keys among them.
    keys: HashSet<WaitKey>,
    /// What stands behind a command of a client that goes on, in the order of the numbers of their results. There is an
    /// entry while that command waits or runs.
    behind: HashMap<u64, VecDeque<Job>>,
    /// What is held back. It keeps none waiting that can run.
    held: Vec<Work>,
    /// When these are looked at again.
    retry_at: Option<Instant>,
    /// How often memory was to be given back.
    purges: u64,
    is_open: bool,
}

impl Queue {
    /// Puts what is held back behind the others when its time has come.
    fn retry_held(&mut self) {
        if self.retry_at.is_some_and(|at| at <= now()) {
            self.retry_at = None;
            self.works.extend(self.held.drain(..));
        }
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
    /// There are threads from now on.
    pub fn open(&self) {
        self.state.lock().is_open = true;
        self.is_open.store(true, Relaxed);
    }

    /// Whether there are threads.
    pub fn is_open(&self) -> bool {
        self.is_open.load(Relaxed)
    }

    /// Adds a command. After the end it is dropped: its connection is about to be closed.
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

    /// A command has ended, and with it the turn of this client: its next one gets behind those of others.
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

    /// Drops the command of a result that is no longer wanted, unless it is its client's turn.
    pub fn forget(&self, deferred: &Deferred) {
        let mut state = self.state.lock();
        let Some(behind) = state.behind.get_mut(&deferred.from.id) else { return };
        let number = |job: &Job| job.to.deferred().map_or(0, |deferred| deferred.number);
        if let Ok(index) = behind.binary_search_by_key(&deferred.number, number) {
            behind.remove(index);
        }
    }

    /// Has the clients served that wait for a key, unless that is to be done anyway. The caller has changed the key or
    /// found it changed, and given back what it has claimed.
    pub fn serve(&self, key: WaitKey) {
        pass("offload");
        let mut state = self.state.lock();
        if state.is_open && state.keys.insert(key.clone()) {
            state.works.push_back(Work::Serve(key));
            self.has_work.notify_one();
        }
    }

    /// Puts work aside that is held back, for so long at most: what holds it back tells no thread when it ends.
    pub fn put_off(&self, work: Work, retry_after: Duration) {
        pass("put off");
        let mut state = self.state.lock();
        let is_new = |keys: &mut HashSet<WaitKey>| match &work {
            Work::Command(_) | Work::GiveBackMemory => true,
            Work::Serve(key) => keys.insert(key.clone()),
        };
        if state.is_open && is_new(&mut state.keys) {
            state.held.push(work);
            let retry_at = now() + retry_after;
            state.retry_at = Some(state.retry_at.map_or(retry_at, |at| at.min(retry_at)));
            // Threads that wait do so until it was to be retried before.
            self.has_work.notify_one();
        }
    }

    /// Whether anything waits for a thread, or is held back.
    pub fn has_waiting(&self) -> bool {
        let state = self.state.lock();
        !state.works.is_empty() || !state.held.is_empty()
    }

    /// Takes all commands that wait for a thread, for a caller that answers them. No client that goes on has one here.
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

    /// Has all threads give back memory.
    pub fn purge_memory(&self) {
        self.state.lock().purges += 1;
        self.has_work.notify_all();
    }

    /// What is to be done next, when there is anything; `None` at the end. A thread passes what it was given here the
    /// last time, zero at first.
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
                return Some(work);
            }
            match state.retry_at {
                Some(at) => _ = self.has_work.wait_until(&mut state, at),
                None => self.has_work.wait(&mut state),
            }
        }
        None
    }

    /// Drops what has not begun, and has the threads end.
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

    /// A command of a client, whose room is this number.
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

    /// The same of a client that goes on, with the result that it waits for.
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
            (0..100).for_each(|number| offload.put_off(command(number), RETRY_GATE_AFTER));
            (0..2).for_each(|_| offload.put_off(Work::Serve(key("a")), RETRY_GATE_AFTER));
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
        // What has its turn stays.
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
