//! Shards that a thread keeps locked for long, and requests that are deferred until these are free.
//!
//! A thread that will keep shards locked for longer than a moment announces them before it locks them
//! ([`Registry::announce`]). They are *busy* until it has unlocked them ([`Registry::end`]). A worker that finds a
//! shard locked checks if it is busy. If not, it waits, because that takes only a moment. Otherwise it registers
//! ([`Registry::set_aside`]), defers the request, and serves others until it is woken.
//!
//! **No wake-up is lost:** one lock protects both the end of a busy period, with the list of workers, and the
//! registration of a worker, which checks again if the shard is busy.
//!
//! **No starvation:** announcements of a shard are served in the order of their arrival. Before the next one, all
//! workers woken by the end of the last have retried their deferred requests ([`Registry::served`]), within a time
//! limit.
//!
//! This is only the state machine: it locks no shard and wakes no worker. `tests/busy_model.rs` verifies it with
//! loom.

use std::sync::Arc;

use super::sync::{AtomicBool, Condvar, Deadline, Mutex, Ordering, deadline, wait, wait_until};

/// Shards by their numbers, ascending.
pub(crate) type ShardSet = Arc<[usize]>;

/// The busy shards, and the threads that wait for them.
#[derive(Debug)]
pub(crate) struct Registry {
    /// Written only under the lock of `state`. Read without it as a hint.
    busy: Box<[AtomicBool]>,
    state: Mutex<RegistryState>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct RegistryState {
    /// Announcements that wait for their turn, in order.
    queue: Vec<ShardSet>,
    /// Workers with deferred requests, and the shards that they wait for.
    set_aside: Vec<(usize, u16)>,
    /// Shards that are free again, and reserved for the workers that were woken.
    reserved: Vec<ShardSet>,
}

/// Workers to wake, and the freed shards, which are reserved for them until [`Registry::served`].
#[derive(Debug)]
pub(crate) struct Woken {
    pub(crate) workers: Vec<u16>,
    pub(crate) shards: ShardSet,
}

impl Registry {
    pub(crate) fn new(shards: usize) -> Self {
        Self {
            busy: (0..shards).map(|_| AtomicBool::new(false)).collect(),
            state: Mutex::new(RegistryState::default()),
            changed: Condvar::new(),
        }
    }

    /// Returns true if a shard is busy. The result may be outdated.
    #[inline]
    pub(crate) fn is_busy(&self, shard: usize) -> bool {
        self.busy[shard].load(Ordering::Acquire)
    }

    /// Marks shards as busy; the caller locks them next, for long. Waits for threads that keep one of them locked for
    /// long or came before, until `give_up` if given, and for the workers for which they are reserved. The caller has
    /// no shard locked. `false` if it has given up.
    #[must_use]
    pub(crate) fn announce(&self, shards: &ShardSet, give_up: Option<Deadline>) -> bool {
        let mut state = self.state.lock();
        state.queue.push(Arc::clone(shards));
        let mut patience: Option<Deadline> = None;
        loop {
            if self.any_busy(shards) || state.is_behind(shards) {
                let may_wait = match give_up {
                    None => {
                        wait(&self.changed, &mut state);
                        true
                    }
                    Some(until) => wait_until(&self.changed, &mut state, until),
                };
                if !may_wait {
                    state.leave(shards);
                    drop(state);
                    // Later announcements may be next.
                    self.changed.notify_all();
                    return false;
                }
            } else if state.is_reserved(shards) {
                let until = *patience.get_or_insert_with(deadline);
                if !wait_until(&self.changed, &mut state, until) {
                    break;
                }
            } else {
                break;
            }
        }
        state.leave(shards);
        shards.iter().for_each(|shard| self.busy[*shard].store(true, Ordering::Release));
        true
    }

    /// Ends the busy period: the caller has unlocked the shards. Returns the threads to wake.
    #[must_use]
    pub(crate) fn end(&self, shards: &ShardSet) -> Option<Woken> {
        let mut state = self.state.lock();
        shards.iter().for_each(|shard| self.busy[*shard].store(false, Ordering::Release));
        let mut workers = state.take_set_aside(shards);
        if !workers.is_empty() {
            state.reserved.push(Arc::clone(shards));
        }
        drop(state);
        self.changed.notify_all();
        workers.sort_unstable();
        workers.dedup();
        (!workers.is_empty()).then(|| Woken { workers, shards: Arc::clone(shards) })
    }

    /// Ends the reservation: all workers that [`Registry::end`] woke have retried their deferred requests.
    pub(crate) fn served(&self, shards: &ShardSet) {
        self.state.lock().reserved.retain(|reserved| !Arc::ptr_eq(reserved, shards));
        self.changed.notify_all();
    }

    /// Registers a worker that defers a request. `false` if the shard is not busy any more: it would never be woken.
    #[must_use]
    pub(crate) fn set_aside(&self, shard: usize, worker: u16) -> bool {
        let mut state = self.state.lock();
        let is_busy = self.is_busy(shard);
        if is_busy && !state.set_aside.contains(&(shard, worker)) {
            state.set_aside.push((shard, worker));
        }
        is_busy
    }

    fn any_busy(&self, shards: &ShardSet) -> bool {
        shards.iter().any(|shard| self.is_busy(*shard))
    }
}

impl RegistryState {
    /// Returns true if an earlier announcement waits for one of these shards.
    fn is_behind(&self, shards: &ShardSet) -> bool {
        let before = self.queue.iter().take_while(|queued| !Arc::ptr_eq(queued, shards));
        before.into_iter().any(|queued| have_common(queued, shards))
    }

    /// Removes an announcement that does not wait any more.
    fn leave(&mut self, shards: &ShardSet) {
        self.queue.retain(|queued| !Arc::ptr_eq(queued, shards));
    }

    fn is_reserved(&self, shards: &ShardSet) -> bool {
        self.reserved.iter().any(|reserved| have_common(reserved, shards))
    }

    fn take_set_aside(&mut self, shards: &ShardSet) -> Vec<u16> {
        let is_free = |(shard, _): &mut (usize, u16)| shards.binary_search(shard).is_ok();
        self.set_aside.extract_if(.., is_free).map(|(_, worker)| worker).collect()
    }
}

fn have_common(a: &[usize], b: &[usize]) -> bool {
    a.iter().any(|shard| b.binary_search(shard).is_ok())
}
