//! Buffers that connections own for a while, from a pool of their worker.

pub(crate) mod apart;
mod arena;
mod buddy;
pub(crate) mod pool;
pub(crate) mod rest;
