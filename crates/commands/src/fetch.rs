//! Which spilled values a request needs.
//!
//! A worker never waits for the disk. Before a request runs whose value is on disk, its connection is
//! suspended; when the value has been read, the worker puts it into memory, and the request starts over.
//! A pipeline has the values of all its requests fetched at the same time. If a value is spilled again
//! several times before its request runs, the request reads it itself, which is slow and rare.

use tierce_cask::{ColdBuffer, ColdLocation};
use tierce_keyspace::{Busy, DbIndex, Fetched, ShardLocks};
use tierce_wire::resp::Args;

use crate::command::{Command, Flags};

/// The values of a batch are fetched together up to this number, and this many bytes; those of one
/// request in any case.
const PENDING_READS_MAX: usize = 256;
const PENDING_BYTES_MAX: u64 = 4 << 20;

/// A value on disk that a request needs.
#[derive(Debug)]
pub struct PendingRead {
    /// The database of the key.
    pub db: DbIndex,
    /// The key.
    pub key: Box<[u8]>,
    /// Where the value is.
    pub location: ColdLocation,
}

impl PendingRead {
    /// Puts the value into memory, which was read as these bytes, if its key still has it there.
    pub fn restore(&self, locks: &mut ShardLocks<'_>, bytes: &[u8], now_ms: i64) {
        let keyspace = locks.keyspace();
        // What makes no sense the request will find out itself.
        let Ok(value) = Fetched::new(bytes, keyspace) else { return };
        let key = keyspace.key(&self.key);
        // A worker does not wait for it. If another thread holds the shard for long, the request will be set aside and
        // fetch it again.
        if locks.try_reach(key.hash()) {
            locks.db(self.db, key.hash(), now_ms).restore(key, self.location, value);
        }
    }
}

/// Reads values and puts them into memory, one after the other, on this thread. It holds no shard meanwhile.
pub(crate) fn read_all(locks: &mut ShardLocks<'_>, reads: &[PendingRead], now_ms: i64) {
    let Some(store) = locks.keyspace().cold_store() else { return };
    let mut buffer = ColdBuffer::default();
    for read in reads {
        // What cannot be read the request will find out itself.
        if let Ok(bytes) = store.read(read.location, &mut buffer) {
            if locks.reach(locks.keyspace().hash(&read.key)).is_err() {
                // Others hold it for long, which the request is told when it runs.
                return;
            }
            read.restore(locks, bytes, now_ms);
            locks.release();
        }
    }
}

/// Whether this many are enough for one wait.
pub fn is_enough(pending_reads: &[PendingRead]) -> bool {
    pending_reads.len() >= PENDING_READS_MAX
        || pending_reads.iter().map(|read| read.location.stored_len()).sum::<u64>()
            >= PENDING_BYTES_MAX
}

/// Adds the values on disk that a call of `command` needs.
///
/// # Errors
/// [`Busy`] if that is not known, because another thread holds a shard for long. The worker is woken when it is free.
pub fn add_pending_reads(
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

/// Adds the value of a key if it is on disk. A request whose shard is busy must not run before that is known: the shard
/// may be free by then, and the worker would read the value itself, with the shard locked.
///
/// # Errors
/// [`Busy`], as there.
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
        && !pending_reads.iter().any(|read| read.location == location)
    {
        pending_reads.push(PendingRead { db, key: key.into(), location });
    }
    Ok(())
}
