//! Kinds and names of subscriptions.

use std::sync::Arc;

/// The name of a channel or a pattern, shared by all users.
pub type Name = Arc<[u8]>;

/// Kind of a subscription.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(usize)]
pub enum Kind {
    /// A channel: `SUBSCRIBE`.
    Channel,
    /// All channels that match a pattern: `PSUBSCRIBE`.
    Pattern,
    /// A shard channel: `SSUBSCRIBE`. There is one shard.
    ShardChannel,
    /// All keys with a prefix: `CLIENT TRACKING ON BCAST`.
    Prefix,
}

impl Kind {
    /// All kinds.
    pub const ALL: [Self; 4] = [Self::Channel, Self::Pattern, Self::ShardChannel, Self::Prefix];
    /// The kinds that receive messages.
    pub const SUBSCRIBED: [Self; 3] = [Self::Channel, Self::Pattern, Self::ShardChannel];
}

/// Locked names of one kind, with the numbers of their subscriptions.
pub(super) trait Audiences {
    /// Adds a subscription.
    fn add(&mut self, name: &[u8], worker: u16) -> Added;

    /// Removes a subscription. Returns true if it was the last one of the name.
    fn remove(&mut self, name: &[u8], worker: u16) -> bool;
}

/// A name to which a subscription was added.
pub(super) struct Added {
    /// The shared copy of the name.
    pub(super) name: Name,
    /// True if it is the first subscription to the name.
    pub(super) is_new: bool,
}
