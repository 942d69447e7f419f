//! redb: a copy-on-write B+ tree.
//!
//! It either syncs a transaction or keeps it in memory, and neither is what is compared here. So
//! it gets files whose sync does nothing: then a committed transaction has been handed to the
//! operating system, like a write of the others.

use crate::shape::Shape;
use crate::store::{CACHE_BYTES, Contestant, Result, Store};
use redb::WriteTransaction;
use redb::{Database, ReadableDatabase, ReadableTable, StorageBackend, TableDefinition};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Mutex;

const TABLE: TableDefinition<&[u8], &[u8]> = TableDefinition::new("items");

/// Writes of a transaction when there is more than one.
const BATCH: u64 = 1000;

pub const REDB: Contestant = Contestant {
    name: "redb",
    settings: "uncompressed (it has no compression), a transaction for each write, on files whose sync does nothing",
    open: |dir, _| open(dir, 1),
};

pub const BATCHES: Contestant = Contestant {
    name: "redb-batches",
    settings: "as redb with 1000 writes a transaction: death of the process loses up to 1000 writes",
    open: |dir, _: &Shape| open(dir, BATCH),
};

struct Redb {
    database: Database,
    batch: u64,
    pending: Mutex<Pending>,
}

#[derive(Default)]
struct Pending {
    transaction: Option<WriteTransaction>,
    writes: u64,
}

#[derive(Debug)]
struct UnsyncedFile(File);

impl StorageBackend for UnsyncedFile {
    fn len(&self) -> io::Result<u64> {
        Ok(self.0.metadata()?.len())
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.0.read_exact_at(out, offset)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.0.set_len(len)
    }

    fn sync_data(&self) -> io::Result<()> {
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.0.write_all_at(data, offset)
    }
}

fn open(dir: &Path, batch: u64) -> Result<Box<dyn Store>> {
    std::fs::create_dir_all(dir)?;
    let path = dir.join("redb");
    let file = File::options().read(true).write(true).create(true).truncate(false).open(path)?;
    let mut builder = Database::builder();
    builder.set_cache_size(CACHE_BYTES);
    let database = builder.create_with_backend(UnsyncedFile(file))?;
    let transaction = database.begin_write()?;
    transaction.open_table(TABLE)?;
    transaction.commit()?;
    Ok(Box::new(Redb { database, batch, pending: Mutex::default() }))
}

impl Store for Redb {
    fn put(&self, key: &[u8], value: &[u8]) -> Result<()> {
        let mut pending = self.pending.lock().map_err(|_| "a writer died")?;
        let transaction = match pending.transaction.take() {
            Some(transaction) => transaction,
            None => self.database.begin_write()?,
        };
        transaction.open_table(TABLE)?.insert(key, value)?;
        pending.writes += 1;
        if pending.writes.is_multiple_of(self.batch) {
            transaction.commit()?;
        } else {
            pending.transaction = Some(transaction);
        }
        Ok(())
    }

    fn get(&self, key: &[u8], found: &mut dyn FnMut(&[u8])) -> Result<bool> {
        let table = self.database.begin_read()?.open_table(TABLE)?;
        let value = table.get(key)?;
        Ok(value.map(|value| found(value.value())).is_some())
    }

    fn scan(&self, found: &mut dyn FnMut(&[u8], &[u8])) -> Result<()> {
        let table = self.database.begin_read()?.open_table(TABLE)?;
        for item in table.iter()? {
            let (key, value) = item?;
            found(key.value(), value.value());
        }
        Ok(())
    }

    fn close(self: Box<Self>) -> Result<()> {
        let mut pending = self.pending.lock().map_err(|_| "a writer died")?;
        if let Some(transaction) = pending.transaction.take() {
            transaction.commit()?;
        }
        Ok(())
    }
}
