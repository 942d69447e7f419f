//! In builds with debug assertions: checks that a command opens only shards that it has declared.

use tierce_keyspace::{KeyHash, Keyspace};
use tierce_wire::resp::Args;

use crate::command::Spec;

/// What the command that is running has declared.
#[derive(Clone, Default)]
pub(super) enum Declared {
    /// Nothing is known: no command is running.
    #[default]
    Anything,
    /// The shards of its keys.
    Keys(Vec<KeyHash>),
}

impl Declared {
    pub(super) fn of(spec: &Spec, args: Args<'_>, keyspace: &Keyspace) -> Self {
        let Some(keys) = spec.needed_keys(args) else { return Self::Anything };
        Self::Keys(keys.map(|index| keyspace.hash(&args[index])).collect())
    }

    pub(super) fn check(&self, keyspace: &Keyspace, hash: KeyHash) {
        if let Self::Keys(declared) = self {
            let shard = |hash| keyspace.shard_of(hash);
            let is_declared = declared.iter().any(|key| shard(*key) == shard(hash));
            assert!(is_declared, "a key that the command has not declared");
        }
    }

    pub(super) fn check_all(&self) {
        assert!(matches!(self, Self::Anything), "the command has not declared all shards");
    }
}
