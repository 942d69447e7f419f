//! sled: a lock-free B-link tree over a log.

use crate::shape::Shape;
use crate::store::{CACHE_BYTES, Contestant, Result, Store};
use std::path::Path;

pub const SLED: Contestant = Contestant {
    name: "sled",
    settings: "uncompressed, its log buffered and flushed every 500 ms: death of the process loses up to that",
    open,
};

struct Sled(sled::Db);

fn open(dir: &Path, _: &Shape) -> Result<Box<dyn Store>> {
    let config = sled::Config::new().path(dir).cache_capacity(CACHE_BYTES as u64);
    Ok(Box::new(Sled(config.flush_every_ms(Some(500)).open()?)))
}

impl Store for Sled {
    fn put(&self, key: &[u8], value: &[u8]) -> Result<()> {
        self.0.insert(key, value)?;
        Ok(())
    }

    fn get(&self, key: &[u8], found: &mut dyn FnMut(&[u8])) -> Result<bool> {
        let value = self.0.get(key)?;
        Ok(value.map(|value| found(&value)).is_some())
    }

    fn scan(&self, found: &mut dyn FnMut(&[u8], &[u8])) -> Result<()> {
        for item in self.0.iter() {
            let (key, value) = item?;
            found(&key, &value);
        }
        Ok(())
    }

    fn close(self: Box<Self>) -> Result<()> {
        self.0.flush()?;
        Ok(())
    }
}
