//! Why requests are refused that are right in themselves.

/// Why a request is refused that is right in itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fault {
    /// Snapshots cannot be written.
    NotSaved,
    /// The log takes no writes.
    NotLogged,
    /// Memory is beyond its limit, and nothing may be evicted.
    OutOfMemory,
    /// The user may not do that.
    NoPermission,
    /// The server is a replica.
    ReadOnly,
    /// The server is a replica that has lost its primary.
    Stale,
    /// The data are being loaded.
    Loading,
    /// There are too few replicas.
    TooFewReplicas,
}

impl Fault {
    /// Whether no request is served that has it, and not only those that take memory.
    #[must_use]
    pub fn is_for_all(&self) -> bool {
        *self != Self::OutOfMemory
    }
}

/// The state by which a transaction was judged. It holds for the programs of the transaction: they may run for long, and
/// what was done before them stays.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Standing {
    /// Why its programs must not write.
    pub(crate) fault: Option<Fault>,
    /// The server is a replica that has lost its primary.
    pub(crate) is_stale: bool,
    /// Memory is beyond its limit, and nothing can be evicted.
    pub(crate) is_out_of_memory: bool,
}
