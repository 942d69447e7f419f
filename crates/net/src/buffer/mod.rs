//! Input buffers that outlive a turn.

pub(crate) mod rest;
pub(crate) mod side_buffer;
