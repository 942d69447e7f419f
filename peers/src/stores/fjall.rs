//! fjall: a log-structured merge tree.

use crate::shape::Shape;
use crate::store::{CACHE_BYTES, Contestant, Result, Store};
use fjall::config::CompressionPolicy;
use fjall::{CompressionType, Database, Keyspace, KeyspaceCreateOptions};
use std::path::Path;

pub const FJALL: Contestant = Contestant {
    name: "fjall",
    settings: "version 3, lz4 where compressed (it has no snappy), each write handed to the operating system",
    open,
};

struct Fjall {
    items: Keyspace,
    // Dropped last.
    _database: Database,
}

fn open(dir: &Path, shape: &Shape) -> Result<Box<dyn Store>> {
    let method = if shape.is_compressed { CompressionType::Lz4 } else { CompressionType::None };
    let builder = Database::builder(dir).cache_size(CACHE_BYTES as u64);
    let database = builder.journal_compression(method).open()?;
    let items = database.keyspace("items", || {
        let policy = CompressionPolicy::all(method);
        KeyspaceCreateOptions::default().data_block_compression_policy(policy)
    })?;
    Ok(Box::new(Fjall { items, _database: database }))
}

impl Store for Fjall {
    fn put(&self, key: &[u8], value: &[u8]) -> Result<()> {
        Ok(self.items.insert(key, value)?)
    }

    fn get(&self, key: &[u8], found: &mut dyn FnMut(&[u8])) -> Result<bool> {
        let value = self.items.get(key)?;
        Ok(value.map(|value| found(&value)).is_some())
    }

    fn scan(&self, found: &mut dyn FnMut(&[u8], &[u8])) -> Result<()> {
        for item in self.items.iter() {
            let (key, value) = item.into_inner()?;
            found(&key, &value);
        }
        Ok(())
    }

    fn close(self: Box<Self>) -> Result<()> {
        Ok(())
    }
}
