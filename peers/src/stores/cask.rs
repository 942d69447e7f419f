//! Cask, with either index.

use crate::shape::Shape;
use crate::store::{CACHE_BYTES, Contestant, Result, Store};
use std::ops::ControlFlow;
use std::path::Path;
use tierce_cask::{Compression, Db, IndexKind, Options, SyncPolicy};

/// In which order a scan visits the records. Any will do; the other stores have only that of keys.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Order {
    Disk,
    Keys,
}

pub const HASH: Contestant = Contestant {
    name: "cask-hash",
    settings: "8 shards, snappy where compressed, each write handed to the operating system; scanned in the order of the disk",
    open: |dir, shape| open(dir, shape, IndexKind::Hash, Order::Disk),
};

pub const ORDERED: Contestant = Contestant {
    name: "cask-ordered",
    settings: "as cask-hash, with the index that also knows the order of keys",
    open: |dir, shape| open(dir, shape, IndexKind::Ordered, Order::Disk),
};

pub const BY_KEY: Contestant = Contestant {
    name: "cask-by-key",
    settings: "as cask-ordered, scanned in the order of the keys",
    open: |dir, shape| open(dir, shape, IndexKind::Ordered, Order::Keys),
};

struct Cask {
    db: Db,
    order: Order,
}

fn open(dir: &Path, shape: &Shape, index: IndexKind, order: Order) -> Result<Box<dyn Store>> {
    let compression = if shape.is_compressed { Compression::Snappy } else { Compression::None };
    let options = Options {
        index,
        shards: Some(8),
        compression,
        sync: SyncPolicy::None,
        read_cache_bytes: CACHE_BYTES,
        ..Options::default()
    };
    Ok(Box::new(Cask { db: Db::open(dir, options)?, order }))
}

impl Store for Cask {
    fn put(&self, key: &[u8], value: &[u8]) -> Result<()> {
        Ok(self.db.put(key, value)?)
    }

    fn get(&self, key: &[u8], found: &mut dyn FnMut(&[u8])) -> Result<bool> {
        let value = self.db.get(key)?;
        Ok(value.map(|value| found(&value)).is_some())
    }

    fn scan(&self, found: &mut dyn FnMut(&[u8], &[u8])) -> Result<()> {
        let visitor = |key: &[u8], value: &[u8]| {
            found(key, value);
            ControlFlow::Continue(())
        };
        match self.order {
            Order::Disk => self.db.for_each(visitor)?,
            Order::Keys => self.db.scan(b"", b"", visitor)?,
        }
        Ok(())
    }

    fn close(self: Box<Self>) -> Result<()> {
        Ok(self.db.close()?)
    }
}
