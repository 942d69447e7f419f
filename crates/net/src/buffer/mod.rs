//! Input buffers that outlive a turn.

pub(crate) mod apart;
pub(crate) mod rest;
