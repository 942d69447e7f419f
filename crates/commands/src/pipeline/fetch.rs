//! Values on disk that a request needs.
//!
//! A worker never waits for the disk. If a request needs a value on disk, its connection is suspended before. When
//! the value has been read, the worker puts it into memory, and the request starts over. A pipeline has the values of
//! all its requests fetched at the same time. If a value is spilled again several times before its request runs, the
//! request reads it itself, which is slow and rare.

use tierce_keyspace::{Busy, DbIndex, Fetched, ShardLocks};
use tierce_storage::{ColdBuffer, ColdLocation};
use tierce_wire::resp::Args;

use crate::command::{Command, Flags};

/// Upper bounds, in values and bytes, of the reads that a batch waits for together. The values of a single request
/// are always read together.
const PENDING_READS_MAX: usize = 256;
const PENDING_BYTES_MAX: u64 = 4 << 20;

/// A value on disk that a request needs.
#[derive(Debug)]
pub struct PendingRead {
    /// The database of the key.
    pub db: DbIndex,
    /// The key.
    pub key: Box<[u8]>,
    /// Location of the value.
    pub location: ColdLocation,
}

impl PendingRead {
    /// Puts the value, which was read as these bytes, into memory if its key still has it at this location.
    pub fn restore(&self, locks: &mut ShardLocks<'_>, bytes: &[u8], now_ms: i64) {
        let keyspace = locks.keyspace();
        // The request itself reports invalid bytes.
        let Ok(value) = Fetched::new(bytes, keyspace) else { return };
        let key = keyspace.key(&self.key);
        // A worker does not wait for the shard. If another thread has locked it for long, the request is deferred and
        // fetches again.
        if locks.try_reach(key.hash()) {
            value.restore(&mut locks.db(self.db, key.hash(), now_ms), key, self.location);
        }
    }
}

/// Reads values and puts them into memory, one after the other, on this thread. No shard is locked during the reads.
///
/// # Errors
/// [`Busy`] if another thread has locked a shard for long.
pub(crate) fn read_all(
    locks: &mut ShardLocks<'_>,
    reads: &[PendingRead],
    now_ms: i64,
) -> Result<(), Busy> {
    let Some(store) = locks.keyspace().cold_store() else { return Ok(()) };
    let mut buffer = ColdBuffer::default();
    for read in reads {
        // The request itself reports a failed read.
        if let Ok(bytes) = store.read(read.location, &mut buffer) {
            locks.reach(locks.keyspace().hash(&read.key))?;
            read.restore(locks, bytes, now_ms);
            locks.release();
        }
    }
    Ok(())
}

/// Returns true if this many reads are enough for one wait.
pub fn is_enough(pending_reads: &[PendingRead]) -> bool {
    pending_reads.len() >= PENDING_READS_MAX
        || pending_reads.iter().map(|read| read.location.stored_len()).sum::<u64>()
            >= PENDING_BYTES_MAX
}

/// Adds the values on disk that a call of `command` needs.
///
/// # Errors
/// [`Busy`] if another thread has locked a shard for long. The worker is woken when the shard is free.
pub fn add_pending_reads_of_call(
    locks: &mut ShardLocks<'_>,
    db: DbIndex,
    command: &Command,
    args: Args<'_>,
    now_ms: i64,
    pending_reads: &mut Vec<PendingRead>,
) -> Result<(), Busy> {
    if command.spec.flags.contains(Flags::KEY_ONLY) {
        return Ok(());
    }
    for keys in command.spec.keys {
        if !keys.flags.of_call(command.spec.name, args).needs_value() {
            continue;
        }
        for index in keys.indexes(args) {
            add_key(locks, db, &args[index], now_ms, pending_reads)?;
        }
    }
    Ok(())
}

/// Earlier reads that a new one is compared with. Comparing all is slow; reading twice is harmless.
const COMPARED: usize = 32;

/// Adds the value of a key if it is on disk. If the shard is busy, the request must not run: the shard may be free by
/// then, and the worker would read the value itself, with the shard locked.
///
/// # Errors
/// [`Busy`], as [`add_pending_reads_of_call`].
pub fn add_key(
    locks: &mut ShardLocks<'_>,
    db: DbIndex,
    key: &[u8],
    now_ms: i64,
    pending_reads: &mut Vec<PendingRead>,
) -> Result<(), Busy> {
    let found = locks.keyspace().key(key);
    locks.reach(found.hash())?;
    if let Some(location) = locks.db(db, found.hash(), now_ms).spilled_at(found)
        && !pending_reads.iter().rev().take(COMPARED).any(|read| read.location == location)
    {
        pending_reads.push(PendingRead { db, key: key.into(), location });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::{Arc, mpsc};
    use std::thread;
    use std::time::Duration;

    use tierce_keyspace::{Expiry, Keyspace, Options, SpillBatch, gather_cold, leave_to_disk};
    use tierce_storage::disk::SimDisk;
    use tierce_storage::{ColdOptions, ColdStore, Durable, Origin};

    use super::*;

    const NOW_MS: i64 = 1_000_000;
    const DB: DbIndex = DbIndex::ZERO;

    /// Creates a keyspace of two keys in different shards, with their values on disk.
    fn spilled() -> (Keyspace, [PendingRead; 2]) {
        let keyspace = Keyspace::new(Options { shards: 2, ..Options::default() }).expect("options");
        let options = ColdOptions { segment_size_bytes: 1 << 16, open_files_max: 2 };
        let store = ColdStore::open(Arc::new(SimDisk::new(1)), Path::new("/cold"), options);
        keyspace.set_cold_store(Arc::new(store.expect("an empty disk")));
        let names = [0, 1].map(|shard| {
            let is_there =
                |name: &String| keyspace.shard_of(keyspace.hash(name.as_bytes())) == shard;
            (0..).map(|number| format!("key{number}")).find(is_there).expect("one")
        });
        let mut locks = keyspace.locks();
        for name in &names {
            let key = keyspace.key(name.as_bytes());
            let set = locks.db(DB, key.hash(), NOW_MS).set(key, &[b'x'; 1000], Expiry::Never);
            set.expect("there is room");
        }
        let mut batch = SpillBatch::default();
        // Each call checks one shard.
        (0..10).for_each(|_| _ = gather_cold(&mut locks, &mut batch, NOW_MS));
        let store = keyspace.cold_store().expect("it was set");
        let places = store.write(batch.values(), Durable::Yes, Origin::Memory).expect("a disk");
        leave_to_disk(&mut locks, &batch, &places, NOW_MS);
        let mut reads = Vec::new();
        for name in &names {
            let added = add_key(&mut locks, DB, name.as_bytes(), NOW_MS, &mut reads);
            added.expect("nobody holds it");
        }
        drop(locks);
        (keyspace, reads.try_into().expect("both are on disk"))
    }

    fn is_on_disk(keyspace: &Keyspace, read: &PendingRead) -> bool {
        let key = keyspace.key(&read.key);
        keyspace.locks().db(DB, key.hash(), NOW_MS).spilled_at(key).is_some()
    }

    /// A program may keep it locked without end, and the worker serves others.
    #[test]
    fn a_worker_waits_for_no_shard_when_a_value_comes() {
        let (keyspace, [read, _]) = spilled();
        let mut buffer = ColdBuffer::default();
        let store = keyspace.cold_store().expect("it was set");
        let bytes = store.read(read.location, &mut buffer).expect("it is there");
        let (done, is_done) = mpsc::channel();
        let mut others = keyspace.long_locks();
        others.reach(keyspace.hash(&read.key)).expect("it waits");
        thread::scope(|scope| {
            scope.spawn(|| {
                // These are the locks of the thread that restores the value.
                read.restore(&mut keyspace.locks(), bytes, NOW_MS);
                done.send(()).expect("it is listened to");
            });
            let came = is_done.recv_timeout(Duration::from_secs(10));
            drop(others);
            came.expect("it waits for the shard");
        });
        assert!(is_on_disk(&keyspace, &read));
        read.restore(&mut keyspace.locks(), bytes, NOW_MS);
        assert!(!is_on_disk(&keyspace, &read));
    }

    /// Otherwise it would wait this long for each of its values.
    #[test]
    fn a_thread_of_its_own_waits_for_one_shard_that_is_held() {
        let (keyspace, reads) = spilled();
        let mut locks = keyspace.impatient_long_locks(Duration::from_millis(1));
        let mut others = keyspace.long_locks();
        others.reach(keyspace.hash(&reads[0].key)).expect("it waits");
        read_all(&mut locks, &reads, NOW_MS).expect_err("the shard is held");
        drop(others);
        assert!(is_on_disk(&keyspace, &reads[1]), "the request is told before");
        read_all(&mut locks, &reads, NOW_MS).expect("no shard is held");
        assert!(!reads.iter().any(|read| is_on_disk(&keyspace, read)));
    }
}
