//! What is subscribed to, by its kind and its name.

use std::sync::Arc;

/// The name of a channel or a pattern, shared by all its holders.
pub type Name = Arc<[u8]>;

/// What is subscribed to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(usize)]
pub enum Kind {
    /// A channel: `SUBSCRIBE`.
    Channel,
    /// All channels that match a pattern: `PSUBSCRIBE`.
    Pattern,
    /// A channel of a shard, of which there is one: `SSUBSCRIBE`.
    ShardChannel,
    /// All keys with a prefix: `CLIENT TRACKING ON BCAST`.
    Prefix,
}

impl Kind {
    /// All kinds.
    pub const ALL: [Self; 4] = [Self::Channel, Self::Pattern, Self::ShardChannel, Self::Prefix];
    /// Those of messages.
    pub const SUBSCRIBED: [Self; 3] = [Self::Channel, Self::Pattern, Self::ShardChannel];
}

/// Names of one kind, locked, with how many subscribe to them.
pub(super) trait Audiences {
    /// Adds a subscription.
    fn add(&mut self, name: &[u8], worker: u16) -> Added;

    /// Removes one of those that were added. Whether it was the last one of the name.
    fn remove(&mut self, name: &[u8], worker: u16) -> bool;
}

/// A name to which a subscription was added.
pub(super) struct Added {
    /// As all share it.
    pub(super) name: Name,
    /// There was no other subscription.
    pub(super) is_new: bool,
}
