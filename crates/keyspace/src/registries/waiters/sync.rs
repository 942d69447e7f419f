//! What `state` is made of; its model checker puts something else here.

pub(super) use std::sync::atomic::{AtomicU32, Ordering};
