//! Cask, with either index.

use crate::shape::Shape;
use crate::store::{CACHE_BYTES, Contestant, Result, Store};
use std::path::Path;
use tierce_cask::{Compression, Db, IndexKind, Options, SyncPolicy};

const SETTINGS: &str =
    "8 shards, snappy where compressed, each write handed to the operating system";

pub const HASH: Contestant = Contestant {
    name: "cask-hash",
    settings: SETTINGS,
    open: |dir, shape| open(dir, shape, IndexKind::Hash),
};

pub const ORDERED: Contestant = Contestant {
    name: "cask-ordered",
    settings: SETTINGS,
    open: |dir, shape| open(dir, shape, IndexKind::Ordered),
};

struct Cask(Db);

fn open(dir: &Path, shape: &Shape, index: IndexKind) -> Result<Box<dyn Store>> {
    let compression = if shape.is_compressed { Compression::Snappy } else { Compression::None };
    let options = Options {
        index,
        shards: Some(8),
        compression,
        sync: SyncPolicy::None,
        read_cache_bytes: CACHE_BYTES,
        ..Options::default()
    };
    Ok(Box::new(Cask(Db::open(dir, options)?)))
}

impl Store for Cask {
    fn put(&self, key: &[u8], value: &[u8]) -> Result<()> {
        Ok(self.0.put(key, value)?)
    }

    fn get(&self, key: &[u8], found: &mut dyn FnMut(&[u8])) -> Result<bool> {
        let value = self.0.get(key)?;
        Ok(value.map(|value| found(&value)).is_some())
    }

    fn scan(&self, found: &mut dyn FnMut(&[u8], &[u8])) -> Result<()> {
        for item in self.0.iter() {
            let (key, entry) = item?;
            found(&key, &entry.value);
        }
        Ok(())
    }

    fn close(self: Box<Self>) -> Result<()> {
        Ok(self.0.close()?)
    }
}
