//! Confirmations for which replies wait after their requests have run.

use crate::replica_level::ReplicaLevel;

/// Confirmations that replies need before they are sent.
#[must_use]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReplyBarrier {
    /// The log of this server, by its device.
    pub device: bool,
    /// Writes, by replicas.
    pub replicas: Option<ReplicaLevel>,
    /// All that was executed before, by the bucket.
    pub bucket: bool,
}

impl ReplyBarrier {
    /// That the device has the log.
    pub const DEVICE: Self = Self { device: true, replicas: None, bucket: false };

    /// Both of them, for replies that come behind both: of two numbers of replicas, the larger one.
    pub fn and(self, other: Self) -> Self {
        Self {
            device: self.device | other.device,
            replicas: self.replicas.max(other.replicas),
            bucket: self.bucket | other.bucket,
        }
    }
}
