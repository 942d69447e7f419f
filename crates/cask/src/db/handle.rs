//! [`Db`], the public handle.

use super::batch::{Batch, Change};
use super::compaction::{CompactionReport, Pace};
use super::encoder::BatchEncoder;
use super::iter::{Iter, for_each};
use super::open::open;
use super::range::Range;
use super::recovery::RecoveryReport;
use super::snapshot::Snapshot;
use super::stats::Stats;
use super::store::Store;
use super::threads;
use crate::entry::{Attributes, Entry, Value};
use crate::options::{Durability, Options};
use crate::{BATCH_LEN_MAX, KEY_LEN_MAX, VALUE_LEN_MAX};
use parking_lot::Mutex;
use std::ops::{Bound, ControlFlow};
use std::path::Path;
use std::sync::Arc;
use tierce_storage::disk::{Disk, OsDisk};
use tierce_storage::log::threads::Threads;
use tierce_storage::log::write::Op;
use tierce_storage::{Error, Result};

/// An open store. Clones are handles to the same store, for any thread; the store is closed by
/// [`Db::close`] or with the last handle.
#[derive(Clone)]
pub struct Db(Arc<Handle>);

struct Handle {
    store: Arc<Store>,
    threads: Mutex<Threads<Store>>,
    recovery: RecoveryReport,
}

impl Db {
    /// Opens the store in a directory, which must be on a local file system.
    ///
    /// # Errors
    /// [`Error::Locked`] if another process has it open; [`Error::Corrupt`], [`Error::Missing`] or [`Error::Foreign`]
    /// with the file concerned if the files are not as they were written.
    pub fn open(dir: impl AsRef<Path>, options: Options) -> Result<Self> {
        Self::open_on(Arc::new(OsDisk), dir, options)
    }

    /// As [`Db::open`], on another disk than the operating system's.
    pub fn open_on(disk: Arc<dyn Disk>, dir: impl AsRef<Path>, options: Options) -> Result<Self> {
        let (store, recovery) = open(disk, dir.as_ref(), options)?;
        let store = Arc::new(store);
        let mut threads = Threads::new(&store);
        threads::start(&mut threads, &store.options)
            .map_err(|e| Error::io("serve", dir.as_ref(), e))?;
        Ok(Db(Arc::new(Handle { store, threads: Mutex::new(threads), recovery })))
    }

    fn store(&self) -> &Arc<Store> {
        &self.0.store
    }

    /// Returns the report of opening.
    pub fn recovery(&self) -> &RecoveryReport {
        &self.0.recovery
    }

    /// Returns the value of a key.
    pub fn get(&self, key: &[u8]) -> Result<Option<Value>> {
        Ok(self.get_entry(key)?.map(|entry| entry.value))
    }

    /// Returns the value of a key with its attributes.
    pub fn get_entry(&self, key: &[u8]) -> Result<Option<Entry>> {
        check_key(key)?;
        self.store().get(key)
    }

    /// Returns true if a key has a value.
    pub fn exists(&self, key: &[u8]) -> Result<bool> {
        check_key(key)?;
        self.store().exists(key)
    }

    /// Sets a key to a value, with the durability of [`Options::sync`].
    pub fn put(&self, key: &[u8], value: &[u8]) -> Result<()> {
        self.put_with(key, value, Attributes::default(), Durability::Policy)
    }

    /// Sets a key to a value with attributes.
    ///
    /// # Errors
    /// After [`Error::NoSpace`], the write left nothing behind, and may be retried. After another I/O error, it is
    /// unknown whether the write will exist after reopening the store, and the store is read-only until then.
    pub fn put_with(
        &self,
        key: &[u8],
        value: &[u8],
        attributes: Attributes,
        durability: Durability,
    ) -> Result<()> {
        check_key(key)?;
        check_value(value)?;
        let store = self.store();
        store.files.check_writable()?;
        let write = store.encoder().put(key, value, attributes);
        let shard = store.shard_of(write.ops.as_slice()[0].hash, key);
        store.submit(shard, write, durability)
    }

    /// Removes a key; does nothing if it does not exist.
    pub fn delete(&self, key: &[u8]) -> Result<()> {
        self.delete_with(key, Durability::Policy)
    }

    /// Removes a key.
    pub fn delete_with(&self, key: &[u8], durability: Durability) -> Result<()> {
        check_key(key)?;
        let store = self.store();
        store.files.check_writable()?;
        let write = store.encoder().delete(key);
        let shard = store.shard_of(write.ops.as_slice()[0].hash, key);
        store.submit(shard, write, durability)
    }

    /// Makes all changes of a batch, or none, whatever happens. Snapshots also see all or none; other readers may see
    /// the changes one after the other.
    pub fn write(&self, batch: &Batch) -> Result<()> {
        self.write_with(batch, Durability::Policy)
    }

    /// As [`Db::write`], with its own durability.
    pub fn write_with(&self, batch: &Batch, durability: Durability) -> Result<()> {
        let store = self.store();
        store.files.check_writable()?;
        if batch.is_empty() {
            return Ok(());
        }
        let mut encoder = BatchEncoder::new(store.encoder());
        for change in &batch.changes {
            check_key(change.key())?;
            match change {
                Change::Put { key, value, attributes } => {
                    check_value(value)?;
                    encoder.put(key, value, *attributes);
                }
                Change::Delete { key } => encoder.delete(key),
            }
            if encoder.frame_len() > BATCH_LEN_MAX {
                return Err(Error::BatchTooLarge { len: encoder.frame_len(), max: BATCH_LEN_MAX });
            }
        }
        let write = encoder.finish();
        let shard_of = |op: &Op| store.shard_of(op.hash, op.key(&write.frame));
        let mut shards: Vec<_> = write.ops.as_slice().iter().map(shard_of).collect();
        shards.sort_unstable();
        shards.dedup();
        match shards[..] {
            [shard] => store.submit(shard, write, durability),
            _ => store.submit_across(&shards, write, durability),
        }
    }

    /// Returns all keys and values, in no order.
    pub fn iter(&self) -> Iter {
        Iter::new(self.store().clone(), None)
    }

    /// Calls `visitor` with each key and value, in no order, until it breaks. With either index this reads the disk
    /// from one end to the other, and lends keys and values to the visitor: the fastest way to read a whole store.
    ///
    /// A key that exists throughout is visited exactly once. A key written or deleted meanwhile may or may not be
    /// visited; [`Snapshot::for_each`](crate::Snapshot::for_each) is of one moment.
    ///
    /// # Errors
    /// The first one; the scan ends there.
    pub fn for_each(&self, visitor: impl FnMut(&[u8], &[u8]) -> ControlFlow<()>) -> Result<()> {
        for_each(self.store().clone(), None, visitor)
    }

    /// Returns keys from `lower` on and below `upper`, in order, from both ends. An empty bound is open.
    ///
    /// # Errors
    /// [`Error::Unordered`] unless the store was opened with
    /// [`IndexKind::Ordered`](crate::IndexKind).
    pub fn range(&self, lower: &[u8], upper: &[u8]) -> Result<Range> {
        let upper = if upper.is_empty() { Bound::Unbounded } else { Bound::Excluded(upper) };
        Range::new(self.store().clone(), None, lower, upper)
    }

    /// Calls `visitor` with each key from `lower` on and below `upper` and its value, ascending, until it breaks. As
    /// [`Db::range`] with [`Range::visit`].
    ///
    /// # Errors
    /// As [`Db::range`], and the first read error.
    pub fn scan(
        &self,
        lower: &[u8],
        upper: &[u8],
        visitor: impl FnMut(&[u8], &[u8]) -> ControlFlow<()>,
    ) -> Result<()> {
        self.range(lower, upper)?.visit(visitor)
    }

    /// Returns keys that begin with `prefix`, in order, from both ends.
    ///
    /// # Errors
    /// As [`Db::range`].
    pub fn prefix(&self, prefix: &[u8]) -> Result<Range> {
        Range::with_prefix(self.store().clone(), None, prefix)
    }

    /// Returns a view of the store as it is now.
    pub fn snapshot(&self) -> Result<Snapshot> {
        Snapshot::new(self.store())
    }

    /// Makes every completed write durable.
    pub fn flush(&self) -> Result<()> {
        self.store().files.sync(&**self.store())
    }

    /// Rewrites every finished segment with too much garbage, as fast as the disk allows.
    pub fn compact(&self) -> Result<CompactionReport> {
        self.store().compact(&mut Pace::unlimited())
    }

    /// Returns statistics of the store.
    pub fn stats(&self) -> Stats {
        self.store().stats()
    }

    /// Makes everything durable and closes the store; other handles then get [`Error::Closed`].
    pub fn close(&self) -> Result<()> {
        self.0.close()
    }
}

impl Handle {
    fn close(&self) -> Result<()> {
        self.threads.lock().stop();
        self.store.passes.stop();
        if self.store.files.check_open().is_err() {
            return Ok(());
        }
        let sealed = self.store.shut_down();
        self.store.files.unlock();
        sealed
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        // Errors are returned by `close`. No acknowledged write depends on this.
        let _ = self.close();
    }
}

fn check_key(key: &[u8]) -> Result<()> {
    if key.len() > KEY_LEN_MAX {
        return Err(Error::KeyTooLong { len: key.len(), max: KEY_LEN_MAX });
    }
    Ok(())
}

fn check_value(value: &[u8]) -> Result<()> {
    if value.len() > VALUE_LEN_MAX {
        return Err(Error::ValueTooLong { len: value.len(), max: VALUE_LEN_MAX });
    }
    Ok(())
}
