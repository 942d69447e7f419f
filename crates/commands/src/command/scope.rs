//! The locks that a command needs while it runs.

use tierce_wire::resp::{Args, Rest};

use super::{Flags, KeySearch, Spec};

/// The shards that are locked for a command before its body runs. The body cannot lock any itself.
///
/// A guard that locks shards for several commands locks no more: the shards declared here have to be among them. For
/// [`Scope::Stepwise`] these are all shards.
#[derive(Clone, Copy)]
pub enum Scope {
    /// None. A shard that the thread has locked since the previous request stays locked.
    Nothing,
    /// None, and the thread keeps none locked, except inside of a guard: the command takes long, or waits for others
    /// who may need a shard, or looks at effects of a change that appear when its shard is unlocked.
    Unlocked,
    /// Those of the keys that the command declares. A single one is locked when its key is opened, and then stays
    /// locked for the next request; several are locked at once.
    Keys,
    /// Those of the keys. On a thread for long commands the body locks them only while it copies its input and while it
    /// stores its result. See `Context::compute` and `Context::read`.
    InTurns,
    /// Outside of a guard one after the other, each while the body looks at it; otherwise all, for a moment.
    Stepwise,
    /// All at once.
    All,
    /// All at once. On a thread for long commands one after the other, each while some of its keys are read. See
    /// `Context::compute_with_lookups`.
    AllInTurns,
    /// Those of the keys, or all at once if the program uses other keys. `Context::run_program` locks them.
    Program,
    /// Depends on the arguments after the name.
    OfCall(fn(Rest<'_>) -> Scope),
}

impl Scope {
    /// Returns the scope that the keys of a command imply.
    pub const fn of_keys(spec: &Spec) -> Self {
        if spec.keys.is_empty() { Scope::Nothing } else { Scope::Keys }
    }
}

impl Spec {
    /// Returns the scope of one call of the command.
    pub fn scope_of(&self, args: Args<'_>) -> Scope {
        match self.scope() {
            Scope::OfCall(scope) => scope(Rest::new(args.from(self.words.into()))),
            scope => scope,
        }
    }

    /// Returns the indexes of the keys whose shards a call needs (the name has 0); `None` if it may need all.
    pub fn needed_keys(&self, args: Args<'_>) -> Option<impl Iterator<Item = usize>> {
        let most = match self.scope_of(args) {
            Scope::Nothing | Scope::Unlocked => 0,
            Scope::Keys | Scope::InTurns => usize::MAX,
            _ => return None,
        };
        Some(self.key_indexes(args).take(most))
    }

    /// Returns true if a replica serves it even if it must not show stale data and has lost its primary.
    pub fn runs_when_stale(&self) -> bool {
        self.flags.contains(Flags::STALE)
    }

    /// Returns true if it runs while data are being loaded: commands that Redis allows, except those that would see a
    /// part of the keys. WATCH names keys, and commands for developers scan them.
    pub fn runs_while_loading(&self) -> bool {
        let sees_keys = !self.keys.is_empty() || self.flags.contains(Flags::SYSTEM);
        self.flags.contains(Flags::LOADING) && !sees_keys
    }

    /// Returns true if every call names exactly one key.
    pub fn has_one_key(&self) -> bool {
        matches!(self.keys, [keys] if keys.search == KeySearch::Index && keys.first == keys.last)
    }

    /// Returns the indexes of the keys in a call; the name has index 0.
    pub fn key_indexes(&self, args: Args<'_>) -> impl Iterator<Item = usize> {
        self.keys.iter().flat_map(move |keys| keys.indexes(args))
    }
}
