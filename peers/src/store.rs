//! What a store must do to take part.

use crate::shape::Shape;
use std::path::Path;

pub type Error = Box<dyn std::error::Error + Send + Sync>;
pub type Result<T> = std::result::Result<T, Error>;

/// An open store. Threads share it.
pub trait Store: Sync {
    /// Sets a key. When this returns, the write survives the death of the process, unless
    /// [`Contestant::settings`] says otherwise; nothing is synced for it.
    fn put(&self, key: &[u8], value: &[u8]) -> Result<()>;

    /// Hands the value of a key to `found`; `false` when there is none.
    fn get(&self, key: &[u8], found: &mut dyn FnMut(&[u8])) -> Result<bool>;

    /// Hands every record to `found`, in any order.
    fn scan(&self, found: &mut dyn FnMut(&[u8], &[u8])) -> Result<()>;

    /// Ends properly.
    fn close(self: Box<Self>) -> Result<()>;
}

/// A kind of store and how it is set up.
pub struct Contestant {
    pub name: &'static str,
    /// What a reader of the table has to know to judge the figures.
    pub settings: &'static str,
    pub open: fn(&Path, &Shape) -> Result<Box<dyn Store>>,
}

/// Memory each store may use to cache what it read.
pub const CACHE_BYTES: usize = 64 << 20;
