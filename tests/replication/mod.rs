//! Primaries and their replicas: what each says to the other, and what becomes of writes and data.

mod chain;
mod durability;
mod items;
pub(crate) mod primary;
pub(crate) mod replica;
mod roles;
mod scripts;
pub(crate) mod stream;
