//! In builds with debug assertions: checks that a command opens only declared shards.

use tierce_keyspace::{KeyHash, Keyspace};
use tierce_wire::resp::Args;

use crate::command::Spec;

/// Declaration of the running command.
#[derive(Clone, Default)]
pub(super) enum Declared {
    /// No command is running, so nothing is checked.
    #[default]
    Anything,
    /// Shards of its keys, in ascending order, for a binary search.
    Shards(Vec<usize>),
}

impl Declared {
    pub(super) fn of(spec: &Spec, args: Args<'_>, keyspace: &Keyspace) -> Self {
        let Some(keys) = spec.needed_keys(args) else { return Self::Anything };
        let mut shards: Vec<_> =
            keys.map(|index| keyspace.shard_of(keyspace.hash(&args[index]))).collect();
        shards.sort_unstable();
        shards.dedup();
        Self::Shards(shards)
    }

    pub(super) fn check(&self, keyspace: &Keyspace, hash: KeyHash) {
        if let Self::Shards(declared) = self {
            let is_declared = declared.binary_search(&keyspace.shard_of(hash)).is_ok();
            assert!(is_declared, "a key that the command has not declared");
        }
    }

    pub(super) fn check_all(&self) {
        assert!(matches!(self, Self::Anything), "the command has not declared all shards");
    }
}
