//! What a command needs to have locked while it runs.

use tierce_wire::resp::{Args, Rest};

use super::{Flags, KeySearch, Spec};

/// Which shards are locked for a command before its body runs, which cannot lock any itself.
///
/// Inside a guard that holds shards for several commands nothing more is locked: what is declared here has
/// to be among them, and for [`Scope::Stepwise`] these are all shards.
#[derive(Clone, Copy)]
pub enum Scope {
    /// None. A shard that the thread holds since the request before stays locked.
    Nothing,
    /// None, and outside of a guard none is held either: the command takes long, or waits for others who
    /// may need a shard, or looks at what a change leaves behind when its shard is unlocked.
    Apart,
    /// Those of the keys that the command declares. A single one is locked when it is opened, and then
    /// stays so for the next request; several are locked at once.
    Keys,
    /// Those of the keys. On a thread for long commands the body locks them only while it copies what it needs and
    /// while it stores what it made. See `Context::compute` and `Context::read`.
    InTurns,
    /// One after the other outside of a guard, each while it is looked at; or all, for a moment.
    Stepwise,
    /// All at once.
    All,
    /// All at once; on a thread for long commands one after the other, each while some of its keys are read. See
    /// `Context::compute_with_lookups`.
    AllInTurns,
    /// Those of the keys, or all at once when the program reaches for others: see `Context::run_program`, which locks
    /// them.
    Program,
    /// The arguments behind the name tell.
    OfCall(fn(Rest<'_>) -> Scope),
}

impl Scope {
    /// What follows from the keys that a command declares.
    pub const fn of_keys(spec: &Spec) -> Self {
        if spec.keys.is_empty() { Scope::Nothing } else { Scope::Keys }
    }
}

impl Spec {
    /// What is locked for a call of the command.
    pub fn scope_of(&self, args: Args<'_>) -> Scope {
        match self.scope() {
            Scope::OfCall(scope) => scope(Rest::new(args.from(self.words.into()))),
            scope => scope,
        }
    }

    /// The indexes of the keys whose shards a call needs, its name included; `None` if it may need all shards.
    pub fn needed_keys(&self, args: Args<'_>) -> Option<impl Iterator<Item = usize>> {
        let most = match self.scope_of(args) {
            Scope::Nothing | Scope::Apart => 0,
            Scope::Keys | Scope::InTurns => usize::MAX,
            _ => return None,
        };
        Some(self.key_indexes(args).take(most))
    }

    /// True if a replica that must not show old data, and has lost its primary, answers it.
    pub fn runs_when_stale(&self) -> bool {
        self.flags.contains(Flags::STALE)
    }

    /// True if it runs while data are being loaded: what Redis lets run, but nothing that would see a part of the
    /// keys. WATCH names keys, and what is for developers goes through them.
    pub fn runs_while_loading(&self) -> bool {
        let sees_keys = !self.keys.is_empty() || self.flags.contains(Flags::SYSTEM);
        self.flags.contains(Flags::LOADING) && !sees_keys
    }

    /// Whether every call names exactly one key.
    pub fn has_one_key(&self) -> bool {
        matches!(self.keys, [keys] if keys.search == KeySearch::Index && keys.first == keys.last)
    }

    /// Where the keys of a call stand, its name included.
    pub fn key_indexes(&self, args: Args<'_>) -> impl Iterator<Item = usize> {
        self.keys.iter().flat_map(move |keys| keys.indexes(args))
    }
}
