//! Buffers that connections own for a while.

pub(crate) mod pool;
pub(crate) mod rest;
