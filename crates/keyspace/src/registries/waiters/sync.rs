//! Synchronization primitives of `state`; its model checker replaces this module.

pub(super) use std::sync::atomic::{AtomicU32, Ordering};
