//! Channels with subscribers, and the number of their subscriptions on each worker.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::{Mutex, MutexGuard};

use super::names::{Added, Audiences, Name};

/// Number of parts. Each has its own lock, so that publishers on different channels seldom contend.
const PARTS: usize = 64;

/// Channels of one kind.
pub(super) struct Registry {
    parts: [Mutex<Channels>; PARTS],
    hasher: RandomState,
    len: Arc<AtomicUsize>,
}

/// The channels of one part.
pub(super) struct Channels {
    map: HashMap<Name, Audience>,
    /// Numbers of messages in the backlog, by channel.
    waiting: HashMap<Name, usize>,
    /// Number of channels of all parts.
    len: Arc<AtomicUsize>,
}

/// Numbers of subscriptions to one name, by worker.
#[derive(Default)]
pub(super) struct Audience(Vec<(u16, u32)>);

impl Default for Registry {
    fn default() -> Self {
        let len = Arc::new(AtomicUsize::new(0));
        let part = |_| {
            let (map, waiting, len) = (HashMap::new(), HashMap::new(), Arc::clone(&len));
            Mutex::new(Channels { map, waiting, len })
        };
        Self { parts: std::array::from_fn(part), hasher: RandomState::new(), len }
    }
}

impl Registry {
    /// Locks a channel. It need not have subscribers.
    pub(super) fn lock(&self, channel: &[u8]) -> MutexGuard<'_, Channels> {
        self.parts[self.hasher.hash_one(channel) as usize % PARTS].lock()
    }

    /// Number of channels.
    pub(super) fn len(&self) -> usize {
        self.len.load(Ordering::SeqCst)
    }

    /// Returns true if there is no subscriber. Confirmed subscriptions are always counted.
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Visits all channels.
    pub(super) fn each(&self, mut visit: impl FnMut(&Name)) {
        for part in &self.parts {
            part.lock().map.keys().for_each(&mut visit);
        }
    }
}

impl Channels {
    /// Returns the subscriptions to a channel, if there are any.
    pub(super) fn get(&self, channel: &[u8]) -> Option<(&Name, &Audience)> {
        self.map.get_key_value(channel)
    }

    /// Returns true if messages of a channel are in the backlog.
    #[inline]
    pub(super) fn has_waiting(&self, channel: &[u8]) -> bool {
        !self.waiting.is_empty() && self.waiting.contains_key(channel)
    }

    /// Counts a message of a channel that enters the backlog.
    pub(super) fn count_waiting(&mut self, channel: &[u8]) {
        *self.waiting.entry(channel.into()).or_default() += 1;
    }

    /// Counts a message of the backlog that has been published.
    pub(super) fn count_published(&mut self, channel: &[u8]) {
        if let Some(count) = self.waiting.get_mut(channel) {
            *count -= 1;
            if *count == 0 {
                self.waiting.remove(channel);
            }
        }
    }
}

impl Audiences for Channels {
    fn add(&mut self, name: &[u8], worker: u16) -> Added {
        let (name, is_new) = match self.map.get_key_value(name) {
            Some((name, _)) => (Arc::clone(name), false),
            None => {
                self.len.fetch_add(1, Ordering::SeqCst);
                (name.into(), true)
            }
        };
        self.map.entry(Arc::clone(&name)).or_default().add(worker);
        Added { name, is_new }
    }

    fn remove(&mut self, name: &[u8], worker: u16) -> bool {
        let is_last = self.map.get_mut(name).is_some_and(|audience| audience.remove(worker));
        if is_last {
            self.map.remove(name);
            self.len.fetch_sub(1, Ordering::SeqCst);
        }
        is_last
    }
}

impl Audience {
    pub(super) fn add(&mut self, worker: u16) {
        match self.0.iter_mut().find(|(of, _)| *of == worker) {
            Some((_, count)) => *count += 1,
            None => {
                self.0.reserve_exact(1);
                self.0.push((worker, 1));
            }
        }
    }

    /// Removes a subscription. Returns true if none is left.
    pub(super) fn remove(&mut self, worker: u16) -> bool {
        if let Some(at) = self.0.iter().position(|(of, _)| *of == worker) {
            self.0[at].1 -= 1;
            if self.0[at].1 == 0 {
                self.0.swap_remove(at);
            }
        }
        self.0.is_empty()
    }

    /// Returns the workers with subscriptions, and their numbers.
    pub(super) fn workers(&self) -> impl Iterator<Item = (u16, usize)> {
        self.0.iter().map(|(worker, count)| (*worker, *count as usize))
    }

    /// Returns the number of subscriptions.
    pub(super) fn count(&self) -> usize {
        self.workers().map(|(_, count)| count).sum()
    }
}
