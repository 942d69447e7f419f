//! All connected clients.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use parking_lot::Mutex;

use super::slots::Slots;
use super::{Client, ClientFlags, ClientMemory, Filter, Listening, Pending};

/// The clients by id, which is also the order of their connections.
#[derive(Default)]
pub struct Registry {
    clients: Mutex<BTreeMap<u64, Arc<Client>>>,
    /// Changed only with `clients` locked.
    slots: Mutex<Slots>,
    /// Number of MONITOR sessions. Without any, no lines are formatted.
    monitors: AtomicUsize,
    /// Number of deferred results.
    pub pending: Pending,
    /// Number of clients that wait for the end of a pause.
    pub paused: Arc<AtomicUsize>,
    /// Memory of the clients, counted while it is limited.
    pub memory: ClientMemory,
}

impl Registry {
    /// Admits a client, of `max` at most. Some are reserved for each protocol in `listening`.
    ///
    /// # Errors
    /// Returns the client if there is no room for it.
    pub fn admit(
        &self,
        client: Arc<Client>,
        max: usize,
        listening: Listening,
    ) -> Result<(), Arc<Client>> {
        let mut clients = self.clients.lock();
        let mut slots = self.slots.lock();
        if !slots.admits(&client, max, listening) {
            return Err(client);
        }
        slots.take(&client);
        clients.insert(client.id, client);
        Ok(())
    }

    /// Removes a client that has disconnected.
    pub fn remove(&self, id: u64) {
        let mut clients = self.clients.lock();
        if let Some(client) = clients.remove(&id) {
            self.slots.lock().leave(&client);
            client.set(ClientFlags::GONE, true);
            self.memory.forget(&client);
        }
    }

    /// Limits the memory of all clients together; 0 for no limit.
    pub fn limit_memory(&self, bytes: u64) {
        let clients = self.clients.lock();
        self.memory.set_limit(bytes);
        clients.values().for_each(|client| self.memory.count(client));
    }

    /// Returns the number of clients.
    pub fn len(&self) -> usize {
        self.clients.lock().len()
    }

    /// Returns true if no client is connected.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the client with this id.
    pub fn get(&self, id: u64) -> Option<Arc<Client>> {
        self.clients.lock().get(&id).cloned()
    }

    /// Returns the clients that `filter` selects, oldest first.
    pub fn matching(&self, filter: &Filter, now_ms: i64) -> Vec<Arc<Client>> {
        let clients = self.clients.lock();
        clients.values().filter(|client| filter.admits(client, now_ms)).cloned().collect()
    }

    /// Returns all clients, oldest first.
    pub fn all(&self) -> Vec<Arc<Client>> {
        self.clients.lock().values().cloned().collect()
    }

    /// Returns the number of clients that wait for keys, or for the end of a pause.
    pub fn count_waiting(&self) -> usize {
        self.count(ClientFlags::BLOCKED) + self.paused.load(Relaxed)
    }

    /// Returns the number of clients with all of `flags` set.
    pub fn count(&self, flags: ClientFlags) -> usize {
        self.clients.lock().values().filter(|client| client.has(flags)).count()
    }

    /// Counts a session that begins or ends MONITOR.
    pub fn count_monitor(&self, begins: bool) {
        if begins {
            self.monitors.fetch_add(1, Relaxed);
        } else {
            self.monitors.fetch_sub(1, Relaxed);
        }
    }

    /// Returns true if there are clients of MONITOR.
    #[inline]
    pub fn has_monitors(&self) -> bool {
        self.monitors.load(Relaxed) != 0
    }

    /// Returns the largest input backlog and the largest output backlog of any client, in bytes.
    pub fn largest_backlogs(&self) -> (usize, usize) {
        let clients = self.clients.lock();
        let input = clients.values().map(|c| c.input_bytes.load(Relaxed)).max();
        let output = clients.values().map(|c| c.output_bytes.load(Relaxed)).max();
        (input.unwrap_or(0), output.unwrap_or(0))
    }

    /// Returns the memory of all clients; see [`Client::memory_bytes`].
    pub fn memory_bytes(&self) -> usize {
        self.clients.lock().values().map(|client| client.memory_bytes()).sum()
    }
}
