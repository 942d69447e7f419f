//! Reasons to refuse valid requests.

/// Reason why a valid request is refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fault {
    /// Snapshots cannot be written.
    NotSaved,
    /// The log takes no writes.
    NotLogged,
    /// Memory is beyond its limit, and nothing may be evicted.
    OutOfMemory,
    /// The user lacks the permission.
    NoPermission,
    /// The server is a replica.
    ReadOnly,
    /// The server is a replica that has lost its primary.
    Stale,
    /// The data are being loaded.
    Loading,
    /// There are too few replicas.
    TooFewReplicas,
    /// A script has kept a key locked for `busy-reply-threshold`.
    Busy,
}

impl Fault {
    /// Returns true if it refuses all requests, not only those that need memory.
    #[must_use]
    pub fn is_for_all(&self) -> bool {
        *self != Self::OutOfMemory
    }
}

/// The state that the admission of a transaction was based on. It also applies to the programs of the transaction,
/// because they may run for long, and the effects of earlier commands remain.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Standing {
    /// Reason why its programs must not write.
    pub(crate) fault: Option<Fault>,
    /// The server is a replica that has lost its primary.
    pub(crate) is_stale: bool,
    /// Memory is beyond its limit, and nothing can be evicted.
    pub(crate) is_out_of_memory: bool,
}
