//! The facts about one command.

use super::body::accepts;
use super::{Body, Channels, Flags, Group, Handler, KeySearch, KeySpec, Scope, category};

/// How much of the values of its keys a command goes through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Weight {
    /// Little, or as much as its body weighs itself.
    Light,
    /// All of them.
    All,
    /// The smallest of its sources, once for each.
    Smallest,
    /// All pairs of their parts, which its body weighs itself.
    Pairs,
}

/// The facts about one command or subcommand, stated once, beside its function.
#[derive(Clone, Copy)]
pub struct Spec {
    /// Lower case; a subcommand has only its own word here.
    pub name: &'static str,
    /// Number of arguments with the name; negative: at least that many.
    pub arity: i16,
    /// How many words its name has when it is called.
    pub words: u8,
    /// Properties.
    pub flags: Flags,
    /// Chapter.
    pub group: Group,
    /// The version that brought the command: of Redis, or `Tierce 0.1.0` if Redis does not have it.
    pub since: &'static str,
    /// Time complexity in the usual notation.
    pub complexity: &'static str,
    /// One sentence on what it does.
    pub summary: &'static str,
    /// The arguments after the name in the notation of manuals: `key [NX | XX] [key ...]`.
    pub syntax: &'static str,
    /// Calls and their replies, as redis-cli shows them; the page of commands explains the notation.
    pub example: &'static str,
    /// Where the keys are.
    pub keys: &'static [KeySpec],
    /// Arguments that are no keys but decide on the node of a cluster, as keys do.
    pub routes: &'static [KeySpec],
    /// Where the channels are that it sends to or subscribes to.
    pub channels: Option<Channels>,
    /// What is locked while it runs; `None` if that follows from the keys.
    pub locks: Option<Scope>,
    /// Whether it goes through whole values.
    pub weight: Weight,
    /// Which argument is the name of a field or member that is looked for; 0 if none is.
    pub element_at: usize,
    /// Access categories beyond those that follow from flags and group.
    pub categories: &'static [&'static str],
    /// Advice for clients and proxies: how to route the command and to combine replies.
    pub tips: &'static [&'static str],
    /// The version of Redis that deprecated the command, and what replaces it.
    pub deprecated: Option<(&'static str, &'static str)>,
    /// Subcommands; a command that has some is only a container for them.
    pub subcommands: &'static [Spec],
    /// What runs.
    pub run: Handler,
}

impl Spec {
    /// A command named `name` (lower case), which takes the arguments that its body takes.
    pub const fn new(name: &'static str, group: Group, body: Body) -> Self {
        let Body { arity, words, run } = body;
        Self {
            name,
            arity,
            words,
            flags: Flags::NONE,
            group,
            since: "1.0.0",
            complexity: "O(1)",
            summary: "",
            syntax: "",
            example: "",
            keys: &[],
            routes: &[],
            channels: None,
            locks: None,
            weight: Weight::Light,
            element_at: 0,
            categories: &[],
            tips: &[],
            deprecated: None,
            subcommands: &[],
            run,
        }
    }

    /// A container of subcommands.
    pub const fn container(
        name: &'static str,
        group: Group,
        subcommands: &'static [Spec],
        run: Handler,
    ) -> Self {
        let spec = Self::new(name, group, Body::refusal(1, -2, run));
        Self { subcommands, complexity: "Depends on subcommand.", ..spec }
    }

    /// With these properties.
    pub const fn flags(self, flags: Flags) -> Self {
        Self { flags, ..self }
    }

    /// With these keys.
    pub const fn keys(self, keys: &'static [KeySpec]) -> Self {
        Self { keys, ..self }
    }

    /// With arguments that are no keys but decide on the node of a cluster.
    pub const fn routes(self, routes: &'static [KeySpec]) -> Self {
        Self { routes, ..self }
    }

    /// With channels that it sends to or subscribes to.
    pub const fn channels(self, channels: Channels) -> Self {
        Self { channels: Some(channels), ..self }
    }

    /// For one that goes through the whole values of its keys, which may be too much for a worker.
    pub const fn weighs(self, weight: Weight) -> Self {
        Self { weight, ..self }
    }

    /// Replaces the scope that follows from the keys.
    pub const fn locks(self, scope: Scope) -> Self {
        Self { locks: Some(scope), ..self }
    }

    /// What is locked while it runs.
    pub const fn scope(&self) -> Scope {
        match self.locks {
            Some(scope) => scope,
            None => Scope::of_keys(self),
        }
    }

    /// Looks for the field or member that this argument names, under the key before it.
    pub const fn element_at(self, element_at: usize) -> Self {
        Self { element_at, ..self }
    }

    /// Available since this version of Redis, and its complexity.
    pub const fn since(self, since: &'static str, complexity: &'static str) -> Self {
        Self { since, complexity, ..self }
    }

    /// With the notation of its arguments, and one sentence.
    pub const fn doc(self, syntax: &'static str, summary: &'static str) -> Self {
        Self { syntax, summary, ..self }
    }

    /// With an example: calls after `> `, each followed by the lines of its reply. A test makes these calls in
    /// both protocol versions, and looks for what they wrote after the server was killed.
    pub const fn example(self, example: &'static str) -> Self {
        Self { example, ..self }
    }

    /// With access categories beyond those that follow from flags and group.
    pub const fn categories(self, categories: &'static [&'static str]) -> Self {
        Self { categories, ..self }
    }

    /// With advice for clients and proxies.
    pub const fn tips(self, tips: &'static [&'static str]) -> Self {
        Self { tips, ..self }
    }

    /// Deprecated since this version, in favour of what `replaced_by` says.
    pub const fn deprecated(self, since: &'static str, replaced_by: &'static str) -> Self {
        Self { deprecated: Some((since, replaced_by)), ..self }
    }

    /// Whether a call with `argc` arguments, the name included, has an acceptable number.
    #[inline]
    pub const fn accepts(&self, argc: usize) -> bool {
        accepts(self.arity, argc)
    }

    /// All access categories, in the order Redis reports them.
    pub fn all_categories(&self) -> Vec<&'static str> {
        category::ALL.into_iter().filter(|category| self.is_in(category)).collect()
    }

    /// Whether it is in an access category.
    pub fn is_in(&self, category: &str) -> bool {
        let has = |flag| self.flags.contains(flag);
        let follows = match category {
            "write" => has(Flags::WRITE),
            // A script reads nothing by itself: each of its calls needs rights of its own.
            "read" => has(Flags::READONLY) && self.group != Group::Scripting,
            "admin" | "dangerous" => has(Flags::ADMIN),
            "fast" => has(Flags::FAST),
            "slow" => !has(Flags::FAST),
            "blocking" => has(Flags::BLOCKING),
            "pubsub" => has(Flags::PUBSUB),
            group => self.group.category() == Some(group) && !self.has_own_group(),
        };
        follows || self.categories.contains(&category)
    }

    /// Containers are in no category of a group, and WAIT is generic but counts as connection.
    fn has_own_group(&self) -> bool {
        let mut groups = Group::ALL.into_iter().filter_map(Group::category);
        !self.subcommands.is_empty() || groups.any(|group| self.categories.contains(&group))
    }

    /// The flags that `COMMAND INFO` reports.
    pub fn flag_names(&self) -> impl Iterator<Item = &'static str> {
        // Clients that know first, last and step only have to ask where the keys of a call are.
        let is_movable = self.keys.iter().any(|keys| keys.search != KeySearch::Index);
        self.flags.names().chain(is_movable.then_some("movablekeys"))
    }

    /// First key, last key and step as `COMMAND INFO` reports them; zeros without keys, or where one
    /// has to look for them.
    pub fn key_range(&self) -> (i16, i16, i16) {
        let specs = self.keys.iter().chain(self.routes);
        let mut ranges = specs.filter(|keys| keys.search == KeySearch::Index);
        let first = ranges.next();
        match (first, ranges.next_back().or(first)) {
            (Some(first), Some(last)) => (first.first, last.last, first.step),
            _ => (0, 0, 0),
        }
    }
}
