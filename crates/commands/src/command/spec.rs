//! The facts about one command.

use super::{Channels, Flags, Group, KeySpec, Scope, category};

/// The share of its keys' values that a command visits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Weight {
    /// Little, or an amount that its body computes itself.
    Light,
    /// All values.
    All,
    /// The smallest of its sources, once for each.
    Smallest,
    /// All pairs of their parts. The body computes their number.
    Pairs,
}

/// Facts about one command or subcommand, next to the function that runs it. They do not know this function.
#[derive(Clone, Copy)]
pub struct Spec {
    /// Lower case; a subcommand has only its own word here.
    pub name: &'static str,
    /// Number of arguments including the name; negative: at least that many.
    pub arity: i16,
    /// Number of words of its name in a call.
    pub words: u8,
    /// Properties.
    pub flags: Flags,
    /// Group in the documentation.
    pub group: Group,
    /// The first version with the command: of Redis, or `Tierce 0.1.0` if Redis does not have it.
    pub since: &'static str,
    /// Time complexity in the usual notation.
    pub complexity: &'static str,
    /// Its effect in one sentence.
    pub summary: &'static str,
    /// The arguments after the name in the notation of manuals: `key [NX | XX] [key ...]`.
    pub syntax: &'static str,
    /// Calls and replies in the style of redis-cli; the page of commands explains the notation.
    pub example: &'static str,
    /// Positions of the keys.
    pub keys: &'static [KeySpec],
    /// Arguments that are no keys but select the node of a cluster, as keys do.
    pub routes: &'static [KeySpec],
    /// Positions of the channels that it sends to or subscribes to.
    pub channels: Option<Channels>,
    /// Locks while it runs; `None` if the keys imply them.
    pub locks: Option<Scope>,
    /// The share of its keys' values that it visits.
    pub weight: Weight,
    /// Index of the argument with the name of the wanted field or member; 0 if there is none.
    pub element_at: usize,
    /// Access categories in addition to those that flags and group imply.
    pub categories: &'static [&'static str],
    /// Hints for clients and proxies on routing the command and combining replies.
    pub tips: &'static [&'static str],
    /// The version of Redis that deprecated the command, and its replacement.
    pub deprecated: Option<(&'static str, &'static str)>,
    /// True if it is only a container for subcommands.
    pub is_container: bool,
}

impl Spec {
    /// A command or subcommand named `name` (lower case), with this number of words and arguments.
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

    /// Returns the locks that it needs while it runs.
    pub const fn scope(&self) -> Scope {
        match self.locks {
            Some(scope) => scope,
            None => Scope::of_keys(self),
        }
    }

    /// Returns true if a call may have `argc` arguments, including the name.
    #[inline]
    pub const fn accepts(&self, argc: usize) -> bool {
        accepts(self.arity, argc)
    }

    /// Returns all access categories, in the order of Redis.
    pub fn all_categories(&self) -> Vec<&'static str> {
        category::ALL.into_iter().filter(|category| self.is_in(category)).collect()
    }

    /// Returns true if it is in an access category.
    pub fn is_in(&self, category: &str) -> bool {
        let has = |flag| self.flags.contains(flag);
        let follows = match category {
            "write" => has(Flags::WRITE),
            // A script itself reads nothing: each of its calls needs rights of its own.
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

    /// True for containers, which no category of a group has, and for WAIT: it is generic but counts as connection.
    fn has_own_group(&self) -> bool {
        let mut groups = Group::ALL.into_iter().filter_map(Group::category);
        self.is_container || groups.any(|group| self.categories.contains(&group))
    }

    /// Returns the flags that `COMMAND INFO` reports.
    pub fn flag_names(&self) -> impl Iterator<Item = &'static str> {
        // Clients that only know first, last and step have to ask for the positions of the keys of a call.
        let is_movable = self.keys.iter().any(|keys| !keys.is_at_index());
        self.flags.names().chain(is_movable.then_some("movablekeys"))
    }

    /// Returns the first key, last key and step that `COMMAND INFO` reports; zeros without keys, or if the keys have to
    /// be searched.
    pub fn key_range(&self) -> (i16, i16, i16) {
        let specs = self.keys.iter().chain(self.routes);
        let mut ranges = specs.filter(|keys| keys.is_at_index());
        let first = ranges.next();
        match (first, ranges.next_back().or(first)) {
            (Some(first), Some(last)) => (first.first, last.last, first.step),
            _ => (0, 0, 0),
        }
    }
}

/// Returns true if this arity accepts a call with `argc` arguments, including the name.
#[inline]
pub(crate) const fn accepts(arity: i16, argc: usize) -> bool {
    if arity >= 0 { argc == arity as usize } else { argc >= arity.unsigned_abs() as usize }
}
