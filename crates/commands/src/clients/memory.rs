//! Memory of clients, and client eviction (`maxmemory-clients`).
//!
//! - Buckets group clients by powers of two of their bytes. So a large client is found without visiting all.
//! - The worker of a client updates its figure when it serves the client, so the figure may be outdated. Before that
//!   worker closes the client, it checks again ([`ClientMemory::is_due`]).
//! - Clients with `CLIENT NO-EVICT on` count, but are in no bucket.
//! - Without a limit, nothing is counted.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering::Relaxed};

use parking_lot::Mutex;

use super::{Client, ClientFlags};

/// Parameter of the lowest bucket, which has all clients below 2^(`LOWEST_LOG` + 1) bytes. Most clients stay there.
const LOWEST_LOG: u32 = 15;

/// Number of buckets. The last one has clients of 8 GiB and more.
const BUCKETS: usize = 19;

/// Marks a client that is in no bucket.
pub(super) const NO_BUCKET: u8 = u8::MAX;

/// Number of clients of a bucket that are compared to find the largest. The lowest bucket may have all clients.
const COMPARED_MAX: usize = 64;

type Bucket = BTreeMap<u64, Arc<Client>>;

/// See the module.
#[derive(Default)]
pub struct ClientMemory {
    /// Limit in bytes for all clients together; 0 for no limit.
    limit: AtomicU64,
    /// Memory of all clients, except those chosen for eviction.
    bytes: AtomicI64,
    buckets: Mutex<[Bucket; BUCKETS]>,
    /// True after it was logged that no client can be evicted.
    is_exhausted: AtomicBool,
}

impl ClientMemory {
    /// Returns true if there is a limit.
    #[inline]
    pub fn is_limited(&self) -> bool {
        self.limit.load(Relaxed) > 0
    }

    /// Changes the limit; 0 for no limit. The caller then counts all clients.
    pub fn set_limit(&self, bytes: u64) {
        self.limit.store(bytes, Relaxed);
    }

    /// Counts the current memory of a client. Call it only from its worker, or with the registry locked.
    #[inline]
    pub fn count(&self, client: &Arc<Client>) {
        if self.is_limited() {
            self.count_limited(client);
        }
    }

    #[inline(never)]
    fn count_limited(&self, client: &Arc<Client>) {
        if client.has(ClientFlags::EVICTED) {
            return;
        }
        // The backlog of a replica is not caused by a client, and has limits of its own.
        let is_replica = client.has(ClientFlags::REPLICA);
        let bytes = if is_replica { 0 } else { client.memory_bytes() };
        let before = client.counted_bytes.swap(bytes, Relaxed);
        if bytes != before {
            self.bytes.fetch_add(bytes as i64 - before as i64, Relaxed);
        }
        let is_exempt = is_replica || client.has(ClientFlags::NO_EVICT);
        let bucket = if is_exempt { NO_BUCKET } else { bucket_of(bytes) };
        if client.bucket.load(Relaxed) != bucket {
            self.put(client, bucket);
        }
    }

    /// Moves a client to another bucket, unless it was chosen for eviction in the meantime.
    fn put(&self, client: &Arc<Client>, bucket: u8) {
        let mut buckets = self.buckets.lock();
        if client.has(ClientFlags::EVICTED) {
            return self.take_off(client);
        }
        let before = client.bucket.swap(bucket, Relaxed);
        if let Some(before) = buckets.get_mut(usize::from(before)) {
            before.remove(&client.id);
        }
        if let Some(after) = buckets.get_mut(usize::from(bucket)) {
            after.insert(client.id, Arc::clone(client));
        }
    }

    fn take_off(&self, client: &Client) {
        self.bytes.fetch_sub(client.counted_bytes.swap(0, Relaxed) as i64, Relaxed);
    }

    /// Removes a client that has disconnected. The registry must be locked.
    pub(super) fn forget(&self, client: &Client) {
        let mut buckets = self.buckets.lock();
        let bucket = client.bucket.swap(NO_BUCKET, Relaxed);
        if let Some(bucket) = buckets.get_mut(usize::from(bucket)) {
            bucket.remove(&client.id);
        }
        self.take_off(client);
    }

    /// Returns true if clients use more memory than allowed.
    #[inline]
    pub fn is_exceeded(&self) -> bool {
        self.is_limited() && self.would_exceed(0)
    }

    fn would_exceed(&self, more: usize) -> bool {
        let limit = self.limit.load(Relaxed);
        limit > 0 && self.bytes.load(Relaxed) + more as i64 > limit as i64
    }

    /// Chooses a client for eviction, one of the largest, and stops counting it.
    pub fn choose(&self) -> Option<Arc<Client>> {
        let mut buckets = self.buckets.lock();
        let bucket = buckets.iter_mut().rev().find(|bucket| !bucket.is_empty())?;
        let compared = bucket.values().take(COMPARED_MAX);
        let client = Arc::clone(compared.max_by_key(|client| client.counted_bytes.load(Relaxed))?);
        bucket.remove(&client.id);
        client.bucket.store(NO_BUCKET, Relaxed);
        client.set(ClientFlags::EVICTED, true);
        client.chosen_bucket.store(bucket_of(client.counted_bytes.load(Relaxed)), Relaxed);
        self.take_off(&client);
        Some(client)
    }

    /// Returns true if a chosen client has to be closed, now that its exact memory is known. Otherwise counts it again:
    /// memory is within the limit without it, or it has become smaller than others.
    #[must_use]
    pub fn is_due(&self, client: &Arc<Client>) -> bool {
        let bytes = client.memory_bytes();
        let is_smaller = bucket_of(bytes) < client.chosen_bucket.load(Relaxed);
        let may_go = !client.has(ClientFlags::NO_EVICT);
        if may_go && !is_smaller && self.would_exceed(bytes) {
            return true;
        }
        client.set(ClientFlags::EVICTED, false);
        self.count(client);
        false
    }

    /// Notes whether the limit is exceeded and no client can be evicted. Returns true if this has just begun.
    pub fn note_exhausted(&self, is_exhausted: bool) -> bool {
        // Usually nothing changes. Then nothing is written, because all workers read this.
        self.is_exhausted.load(Relaxed) != is_exhausted
            && self.is_exhausted.swap(is_exhausted, Relaxed) != is_exhausted
            && is_exhausted
    }
}

fn bucket_of(bytes: usize) -> u8 {
    let log = (bytes.max(1) as u64).ilog2();
    log.saturating_sub(LOWEST_LOG).min(BUCKETS as u32 - 1) as u8
}

#[cfg(test)]
mod tests {
    use super::super::Origin;
    use super::*;
    use crate::waiting::ConnAddress;

    fn client(id: u64, bytes: usize) -> Arc<Client> {
        let conn = ConnAddress { id, ..ConnAddress::default() };
        let client = Client::new(Origin { conn, ..Origin::default() }, 0);
        client.output_bytes.store(bytes, Relaxed);
        Arc::new(client)
    }

    fn limited(limit: u64, clients: &[Arc<Client>]) -> ClientMemory {
        let memory = ClientMemory::default();
        memory.set_limit(limit);
        clients.iter().for_each(|client| memory.count(client));
        memory
    }

    #[test]
    fn the_largest_is_chosen_until_the_limit_is_kept() {
        let clients: Vec<_> = (0..10).map(|id| client(id, 100_000 << id)).collect();
        let memory = limited(1_000_000, &clients);
        let mut chosen = Vec::new();
        while memory.is_exceeded() {
            let next = memory.choose().expect("there are more");
            assert!(memory.is_due(&next) || !memory.is_exceeded());
            chosen.push(next.id);
        }
        assert_eq!(chosen, [9, 8, 7, 6, 5, 4, 3]);
    }

    #[test]
    fn a_client_that_has_become_small_stays() {
        let clients = [client(1, 10 << 20), client(2, 5 << 20)];
        let memory = limited(6 << 20, &clients);
        let chosen = memory.choose().expect("the limit is exceeded");
        assert_eq!(chosen.id, 1);
        chosen.output_bytes.store(100, Relaxed);
        assert!(!memory.is_due(&chosen) && !memory.is_exceeded());
        assert_eq!(memory.choose().expect("it is there").id, 2);
        assert_eq!(memory.choose().expect("it is there again").id, 1);
    }

    #[test]
    fn protected_clients_count_and_stay() {
        let clients = [client(1, 10 << 20), client(2, 5 << 20)];
        clients[0].set(ClientFlags::NO_EVICT, true);
        let memory = limited(6 << 20, &clients);
        assert_eq!(memory.choose().expect("one may go").id, 2);
        assert!(memory.is_exceeded() && memory.choose().is_none());
        assert!(memory.note_exhausted(true) && !memory.note_exhausted(true));
        clients[0].set(ClientFlags::NO_EVICT, false);
        memory.count(&clients[0]);
        assert_eq!(memory.choose().expect("it may go now").id, 1);
    }

    #[test]
    fn those_that_have_gone_leave_nothing() {
        let clients = [client(1, 1 << 20), client(2, 1 << 40)];
        let memory = limited(1, &clients);
        let chosen = memory.choose().expect("the limit is exceeded");
        clients.iter().for_each(|client| memory.forget(client));
        assert_eq!((memory.bytes.load(Relaxed), chosen.id), (0, 2));
        assert!(!memory.is_exceeded() && memory.choose().is_none());
    }
}
