//! The facts about one command.

use super::{Flags, Group, KeySearch, KeySpec, Scope};
use crate::error::CommandError;
use crate::execute::Context;
use tierce_wire::resp::Args;

/// Runs a command: reads `args` (the name included), writes the reply into the context.
///
/// # Errors
/// An error is written as the reply by the caller; the handler must not have replied yet.
pub type Handler = fn(&mut Context<'_, '_>, Args<'_>) -> Result<(), CommandError>;

/// The access categories that commands of today are in, in the order of Redis.
const CATEGORIES: [&str; 18] = [
    "keyspace",
    "read",
    "write",
    "set",
    "sortedset",
    "list",
    "hash",
    "string",
    "bitmap",
    "hyperloglog",
    "geo",
    "stream",
    "admin",
    "fast",
    "slow",
    "blocking",
    "dangerous",
    "connection",
];

/// The facts about one command or subcommand, stated once, beside its handler.
#[derive(Clone, Copy)]
pub struct Spec {
    /// Lower case; a subcommand has only its own word here.
    pub name: &'static str,
    /// Number of arguments with the name; negative: at least that many.
    pub arity: i16,
    /// Properties.
    pub flags: Flags,
    /// Chapter.
    pub group: Group,
    /// The version of Redis that brought the command.
    pub since: &'static str,
    /// Time complexity in the usual notation.
    pub complexity: &'static str,
    /// One sentence on what it does.
    pub summary: &'static str,
    /// The arguments after the name in the notation of manuals: `key [NX | XX] [key ...]`.
    pub syntax: &'static str,
    /// Where the keys are.
    pub keys: &'static [KeySpec],
    /// What is locked while it runs; `None` if that follows from the keys.
    pub locks: Option<Scope>,
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
    /// A command named `name` (lower case) of the given arity.
    #[must_use]
    pub const fn new(name: &'static str, arity: i16, group: Group, run: Handler) -> Self {
        Self {
            name,
            arity,
            flags: Flags::NONE,
            group,
            since: "1.0.0",
            complexity: "O(1)",
            summary: "",
            syntax: "",
            keys: &[],
            locks: None,
            element_at: 0,
            categories: &[],
            tips: &[],
            deprecated: None,
            subcommands: &[],
            run,
        }
    }

    /// A container of subcommands.
    #[must_use]
    pub const fn container(
        name: &'static str,
        group: Group,
        subcommands: &'static [Spec],
        run: Handler,
    ) -> Self {
        let spec = Self::new(name, -2, group, run);
        Self { subcommands, complexity: "Depends on subcommand.", ..spec }
    }

    /// With these properties.
    #[must_use]
    pub const fn flags(self, flags: Flags) -> Self {
        Self { flags, ..self }
    }

    /// With these keys.
    #[must_use]
    pub const fn keys(self, keys: &'static [KeySpec]) -> Self {
        Self { keys, ..self }
    }

    /// With this scope in the place of the one that follows from the keys.
    #[must_use]
    pub const fn locks(self, scope: Scope) -> Self {
        Self { locks: Some(scope), ..self }
    }

    /// What is locked while it runs.
    #[must_use]
    pub const fn scope(&self) -> Scope {
        match self.locks {
            Some(scope) => scope,
            None => Scope::of_keys(self),
        }
    }

    /// Looks for the field or member that this argument names, under the key before it.
    #[must_use]
    pub const fn element_at(self, element_at: usize) -> Self {
        Self { element_at, ..self }
    }

    /// With the documentation: version, complexity, arguments, and one sentence.
    #[must_use]
    pub const fn doc(
        self,
        since: &'static str,
        complexity: &'static str,
        syntax: &'static str,
        summary: &'static str,
    ) -> Self {
        Self { since, complexity, syntax, summary, ..self }
    }

    /// With access categories beyond those that follow from flags and group.
    #[must_use]
    pub const fn categories(self, categories: &'static [&'static str]) -> Self {
        Self { categories, ..self }
    }

    /// With advice for clients and proxies.
    #[must_use]
    pub const fn tips(self, tips: &'static [&'static str]) -> Self {
        Self { tips, ..self }
    }

    /// Deprecated since this version, in favour of what `replaced_by` says.
    #[must_use]
    pub const fn deprecated(self, since: &'static str, replaced_by: &'static str) -> Self {
        Self { deprecated: Some((since, replaced_by)), ..self }
    }

    /// Whether a call with `argc` arguments, the name included, has an acceptable number.
    #[must_use]
    #[inline]
    pub const fn accepts(&self, argc: usize) -> bool {
        if self.arity >= 0 { argc == self.arity as usize } else { argc >= -self.arity as usize }
    }

    /// All access categories, in the order Redis reports them.
    #[must_use]
    pub fn all_categories(&self) -> Vec<&'static str> {
        CATEGORIES.into_iter().filter(|category| self.is_in(category)).collect()
    }

    fn is_in(&self, category: &str) -> bool {
        let has = |flag| self.flags.contains(flag);
        let follows = match category {
            "write" => has(Flags::WRITE),
            "read" => has(Flags::READONLY),
            "admin" | "dangerous" => has(Flags::ADMIN),
            "fast" => has(Flags::FAST),
            "slow" => !has(Flags::FAST),
            "blocking" => has(Flags::BLOCKING),
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
    #[must_use]
    pub fn key_range(&self) -> (i16, i16, i16) {
        let mut ranges = self.keys.iter().filter(|keys| keys.search == KeySearch::Index);
        let first = ranges.next();
        match (first, ranges.next_back().or(first)) {
            (Some(first), Some(last)) => (first.first, last.last, first.step),
            _ => (0, 0, 0),
        }
    }
}
