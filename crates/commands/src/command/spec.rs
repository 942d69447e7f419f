//! The facts about one command.

use super::{Channels, Flags, Group, KeySearch, KeySpec, Scope, category};

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

/// The facts about one command or subcommand, stated once, beside the function that runs it, of which they know nothing.
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
    /// It is only a container for subcommands.
    pub is_container: bool,
}

impl Spec {
    /// A command or subcommand named `name` (lower case), of so many words and arguments.
    pub const fn new(name: &'static str, group: Group, words: u8, arity: i16) -> Self {
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
            is_container: false,
        }
    }

    /// What is locked while it runs.
    pub const fn scope(&self) -> Scope {
        match self.locks {
            Some(scope) => scope,
            None => Scope::of_keys(self),
        }
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
        self.is_container || groups.any(|group| self.categories.contains(&group))
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

/// Whether this arity accepts a call with `argc` arguments, the name included.
#[inline]
pub(crate) const fn accepts(arity: i16, argc: usize) -> bool {
    if arity >= 0 { argc == arity as usize } else { argc >= arity.unsigned_abs() as usize }
}
