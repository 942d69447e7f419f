//! The named workloads: the rows of the table that a release is evaluated by.
//!
//! | name | load |
//! |---|---|
//! | `p1` | GET and SET one at a time, 10,000 keys |
//! | `p16` | GET and SET in batches of 16, a million keys with 100-byte values |
//! | `p200` | GET and SET in batches of 200, 10,000 keys |
//! | `p200-hot` | GET and SET in batches of 200, one key |
//! | `latency` | `p1` and `p16`, for their percentiles |
//! | `memory` | resident bytes per entry beyond key and value |
//! | `growth` | the worst request while keys are added, compared with the worst while they are overwritten |
//! | `idle` | throughput and memory with many idle connections |
//! | `pubsub` | messages to 1, 100 and thousands of subscribers |
//! | `handover` | the latency from a push to the client that is blocked on the list |
//! | `transactions` | `MULTI` to `EXEC`, and `WATCH` |
//! | `tracking` | SET of keys that another client tracks |
//! | `handshakes` | TLS handshakes, full and resumed; not among all workloads, since it needs `--tls` |
//!
//! Workloads that do not measure throughput are described in their own modules.

use crate::cli::{LoadArgs, Name};
use crate::error::Error;

/// A load whose throughput is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shape {
    pub(crate) name: &'static str,
    pipeline: u32,
    data_size: u32,
    keyspace: u64,
}

pub(crate) const P1: Shape = Shape { name: "p1", pipeline: 1, data_size: 3, keyspace: 10_000 };
pub(crate) const P16: Shape =
    Shape { name: "p16", pipeline: 16, data_size: 100, keyspace: 1_000_000 };
pub(crate) const P200: Shape =
    Shape { name: "p200", pipeline: 200, data_size: 3, keyspace: 10_000 };
pub(crate) const P200_HOT: Shape =
    Shape { name: "p200-hot", pipeline: 200, data_size: 3, keyspace: 1 };

impl Name {
    /// Workloads of `--all`. Latency is part of the throughput of `p1` and `p16`.
    pub(crate) const ALL: [Self; 11] = [
        Self::P1,
        Self::P16,
        Self::P200,
        Self::P200Hot,
        Self::Memory,
        Self::Growth,
        Self::Idle,
        Self::Pubsub,
        Self::Handover,
        Self::Transactions,
        Self::Tracking,
    ];

    /// Returns the loads whose throughput is compared; none if the workload measures something else.
    pub(crate) fn shapes(self) -> &'static [Shape] {
        match self {
            Self::P1 => &[P1],
            Self::P16 => &[P16],
            Self::P200 => &[P200],
            Self::P200Hot => &[P200_HOT],
            Self::Latency => &[P1, P16],
            Self::Memory
            | Self::Growth
            | Self::Idle
            | Self::Pubsub
            | Self::Handover
            | Self::Transactions
            | Self::Tracking
            | Self::Handshakes => &[],
        }
    }
}

impl Shape {
    /// Completes the user's options by those of the name.
    ///
    /// # Errors
    /// If the user asks for another pipeline, value size or keyspace: that would be another workload with the same
    /// name.
    pub(crate) fn args(self, requested: &LoadArgs) -> Result<LoadArgs, Error> {
        if requested.pipeline.is_some()
            || requested.data_size.is_some()
            || requested.keyspace.is_some()
        {
            let message = format!("workload {} fixes -P, -d and -r: leave them out", self.name);
            return Err(Error::Usage(message));
        }
        Ok(LoadArgs {
            pipeline: Some(self.pipeline),
            data_size: Some(self.data_size),
            keyspace: Some(self.keyspace),
            load_first: true,
            ..requested.clone()
        })
    }
}
