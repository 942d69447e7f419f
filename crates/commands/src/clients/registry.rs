//! All connected clients.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use parking_lot::Mutex;

use super::places::Places;
use super::{Client, ClientFlags, ClientMemory, Filter, Listening, Pending};

/// The clients by their ids, which is also the order in which they came.
#[derive(Default)]
pub struct Registry {
    clients: Mutex<BTreeMap<u64, Arc<Client>>>,
    /// Changes with `clients` locked.
    places: Mutex<Places>,
    /// Sessions that watch all commands; without any, no lines are formatted.
    monitors: AtomicUsize,
    /// Results that come later.
    pub pending: Pending,
    /// Those that a pause holds.
    pub paused: Arc<AtomicUsize>,
    /// What they occupy, while that is limited.
    pub memory: ClientMemory,
}

impl Registry {
    /// Takes in a client, of `max` at most, some of which are kept for each protocol in `listening`.
    ///
    /// # Errors
    /// Gives the client back when there is no room for it.
    pub fn admit(
        &self,
        client: Arc<Client>,
        max: usize,
        listening: Listening,
    ) -> Result<(), Arc<Client>> {
        let mut clients = self.clients.lock();
        let mut places = self.places.lock();
        if !places.admits(&client, max, listening) {
            return Err(client);
        }
        places.take(&client);
        clients.insert(client.id, client);
        Ok(())
    }

    /// Forgets a client that has gone.
    pub fn remove(&self, id: u64) {
        let mut clients = self.clients.lock();
        if let Some(client) = clients.remove(&id) {
            self.places.lock().leave(&client);
            client.set(ClientFlags::GONE, true);
            self.memory.forget(&client);
        }
    }

    /// Limits the memory of all clients together; 0 is no limit.
    pub fn limit_memory(&self, bytes: u64) {
        let clients = self.clients.lock();
        self.memory.set_limit(bytes);
        clients.values().for_each(|client| self.memory.count(client));
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.clients.lock().len()
    }

    /// Whether no client is connected.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The client with this id.
    pub fn get(&self, id: u64) -> Option<Arc<Client>> {
        self.clients.lock().get(&id).cloned()
    }

    /// The clients that `filter` admits, oldest first.
    pub fn matching(&self, filter: &Filter, now_ms: i64) -> Vec<Arc<Client>> {
        let clients = self.clients.lock();
        clients.values().filter(|client| filter.admits(client, now_ms)).cloned().collect()
    }

    /// All clients, oldest first.
    pub fn all(&self) -> Vec<Arc<Client>> {
        self.clients.lock().values().cloned().collect()
    }

    /// The number that wait for keys, or for the end of a pause.
    pub fn count_waiting(&self) -> usize {
        self.count(ClientFlags::BLOCKED) + self.paused.load(Relaxed)
    }

    /// How many have all of `flags` set.
    pub fn count(&self, flags: ClientFlags) -> usize {
        self.clients.lock().values().filter(|client| client.has(flags)).count()
    }

    /// Counts a session that begins or ends watching.
    pub fn count_monitor(&self, begins: bool) {
        if begins {
            self.monitors.fetch_add(1, Relaxed);
        } else {
            self.monitors.fetch_sub(1, Relaxed);
        }
    }

    /// Whether there are clients of MONITOR.
    #[inline]
    pub fn has_monitors(&self) -> bool {
        self.monitors.load(Relaxed) != 0
    }

    /// The largest input and output backlog of any client, in bytes.
    pub fn largest_backlogs(&self) -> (usize, usize) {
        let clients = self.clients.lock();
        let input = clients.values().map(|c| c.input_bytes.load(Relaxed)).max();
        let output = clients.values().map(|c| c.output_bytes.load(Relaxed)).max();
        (input.unwrap_or(0), output.unwrap_or(0))
    }

    /// Bytes that clients occupy; see [`Client::memory_bytes`].
    pub fn memory_bytes(&self) -> usize {
        self.clients.lock().values().map(|client| client.memory_bytes()).sum()
    }
}
