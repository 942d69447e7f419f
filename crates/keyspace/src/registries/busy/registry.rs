//! Shards that a thread holds for long, and requests that are set aside until these are free.
//!
//! A thread that will hold shards for longer than a moment announces them before it locks them
//! ([`Registry::announce`]): they are *busy* until it has unlocked them ([`Registry::end`]). A worker that
//! finds a shard locked checks whether it is busy. If not, it waits, because that takes a moment only. If
//! it is, the worker registers ([`Registry::set_aside`]), sets the request aside and serves others, until
//! it is woken.
//!
//! **No wake-up is lost:** a shard becomes free and the list is taken under one lock, under which a worker
//! that registers looks again whether the shard is busy.
//!
//! **No starvation:** announcements of the same shard take turns in the order in which they came, and
//! before the next one all workers that were woken by the end of the last have retried what they had
//! set aside ([`Registry::served`]), within a time limit.
//!
//! This is only the state machine: it locks no shard and wakes no worker. It is verified with loom
//! (`tests/busy_model.rs`).

use std::sync::Arc;

use super::sync::{AtomicBool, Condvar, Deadline, Mutex, Ordering, deadline, wait, wait_until};

/// Shards by their numbers, ascending.
pub(crate) type ShardSet = Arc<[usize]>;

/// Which shards are busy, and which threads wait for them.
#[derive(Debug)]
pub(crate) struct Registry {
    /// Written under the lock of `state` alone. Read without it as a hint.
    busy: Box<[AtomicBool]>,
    state: Mutex<RegistryState>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct RegistryState {
    /// Announcements that wait for their turn, in their order.
    queue: Vec<ShardSet>,
    /// Workers that have set requests aside, and the shards that these wait for.
    set_aside: Vec<(usize, u16)>,
    /// Shards that are free again, and have been promised to the workers that were woken.
    promised: Vec<ShardSet>,
}

/// The workers to wake, and the shards that have come free: those are promised to them until
/// [`Registry::served`] is called.
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

    /// Whether a shard is busy. What it says may be out of date.
    #[inline]
    pub(crate) fn is_busy(&self, shard: usize) -> bool {
        self.busy[shard].load(Ordering::Acquire)
    }

    /// Makes shards busy, which the caller locks next and holds for long. Waits for those who hold one of
    /// them for long or came before, if wanted only until `give_up`, and for the workers they are promised to. The
    /// caller holds none. `false` if it has given up.
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
                    // Those behind may be next.
                    self.changed.notify_all();
                    return false;
                }
            } else if state.is_promised(shards) {
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

    /// The caller has unlocked what it announced. Returns the threads to wake.
    #[must_use]
    pub(crate) fn end(&self, shards: &ShardSet) -> Option<Woken> {
        let mut state = self.state.lock();
        shards.iter().for_each(|shard| self.busy[*shard].store(false, Ordering::Release));
        let mut workers = state.take_set_aside(shards);
        if !workers.is_empty() {
            state.promised.push(Arc::clone(shards));
        }
        drop(state);
        self.changed.notify_all();
        workers.sort_unstable();
        workers.dedup();
        (!workers.is_empty()).then(|| Woken { workers, shards: Arc::clone(shards) })
    }

    /// All workers that [`Registry::end`] woke have retried what they had set aside.
    pub(crate) fn served(&self, shards: &ShardSet) {
        self.state.lock().promised.retain(|promised| !Arc::ptr_eq(promised, shards));
        self.changed.notify_all();
    }

    /// Registers a worker that sets a request aside. `false` if the shard is not busy any more: then
    /// it would never be woken.
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
    /// Whether an earlier announcement waits for one of these shards.
    fn is_behind(&self, shards: &ShardSet) -> bool {
        let before = self.queue.iter().take_while(|queued| !Arc::ptr_eq(queued, shards));
        before.into_iter().any(|queued| have_common(queued, shards))
    }

    /// An announcement does not wait any more.
    fn leave(&mut self, shards: &ShardSet) {
        self.queue.retain(|queued| !Arc::ptr_eq(queued, shards));
    }

    fn is_promised(&self, shards: &ShardSet) -> bool {
        self.promised.iter().any(|promised| have_common(promised, shards))
    }

    fn take_set_aside(&mut self, shards: &ShardSet) -> Vec<u16> {
        let is_free = |(shard, _): &mut (usize, u16)| shards.binary_search(shard).is_ok();
        self.set_aside.extract_if(.., is_free).map(|(_, worker)| worker).collect()
    }
}

fn have_common(a: &[usize], b: &[usize]) -> bool {
    a.iter().any(|shard| b.binary_search(shard).is_ok())
}
