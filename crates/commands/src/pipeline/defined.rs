//! A command as its chapter defines it: the facts, and the function that runs it.

use std::iter;

use super::{Bodies, Body, Handler};
use crate::command::{
    AddError, Channels, Described, Flags, Group, KeySpec, Scope, Spec, Table, Weight,
};

/// A command or subcommand, stated once, beside its function.
#[derive(Clone, Copy)]
pub struct Defined {
    /// Its facts.
    pub spec: Spec,
    /// What runs.
    pub run: Handler,
    /// Subcommands; a command that has some is only a container for them.
    pub subcommands: &'static [Self],
}

impl Defined {
    /// A command named `name` (lower case), which takes the arguments that its body takes.
    pub const fn new(name: &'static str, group: Group, body: Body) -> Self {
        let Body { arity, words, run } = body;
        Self { spec: Spec::new(name, group, words, arity), run, subcommands: &[] }
    }

    /// A container of subcommands.
    pub const fn container(
        name: &'static str,
        group: Group,
        subcommands: &'static [Self],
        run: Handler,
    ) -> Self {
        let mut spec = Spec::new(name, group, 1, -2);
        (spec.is_container, spec.complexity) = (true, "Depends on subcommand.");
        Self { spec, run, subcommands }
    }

    /// Replaces the number of arguments that follows from the body.
    pub const fn arity(self, arity: i16) -> Self {
        Self { spec: Spec { arity, ..self.spec }, ..self }
    }

    /// With these properties.
    pub const fn flags(self, flags: Flags) -> Self {
        Self { spec: Spec { flags, ..self.spec }, ..self }
    }

    /// With these keys.
    pub const fn keys(self, keys: &'static [KeySpec]) -> Self {
        Self { spec: Spec { keys, ..self.spec }, ..self }
    }

    /// With arguments that are no keys but decide on the node of a cluster.
    pub const fn routes(self, routes: &'static [KeySpec]) -> Self {
        Self { spec: Spec { routes, ..self.spec }, ..self }
    }

    /// With channels that it sends to or subscribes to.
    pub const fn channels(self, channels: Channels) -> Self {
        Self { spec: Spec { channels: Some(channels), ..self.spec }, ..self }
    }

    /// For one that goes through the whole values of its keys, which may be too much for a worker.
    pub const fn weighs(self, weight: Weight) -> Self {
        Self { spec: Spec { weight, ..self.spec }, ..self }
    }

    /// Replaces the scope that follows from the keys.
    pub const fn locks(self, scope: Scope) -> Self {
        Self { spec: Spec { locks: Some(scope), ..self.spec }, ..self }
    }

    /// Looks for the field or member that this argument names, under the key before it.
    pub const fn element_at(self, element_at: usize) -> Self {
        Self { spec: Spec { element_at, ..self.spec }, ..self }
    }

    /// Available since this version of Redis, and its complexity.
    pub const fn since(self, since: &'static str, complexity: &'static str) -> Self {
        Self { spec: Spec { since, complexity, ..self.spec }, ..self }
    }

    /// With the notation of its arguments, and one sentence.
    pub const fn doc(self, syntax: &'static str, summary: &'static str) -> Self {
        Self { spec: Spec { syntax, summary, ..self.spec }, ..self }
    }

    /// With an example: calls after `> `, each followed by the lines of its reply. A test makes these calls in
    /// both protocol versions, and looks for what they wrote after the server was killed.
    pub const fn example(self, example: &'static str) -> Self {
        Self { spec: Spec { example, ..self.spec }, ..self }
    }

    /// With access categories beyond those that follow from flags and group.
    pub const fn categories(self, categories: &'static [&'static str]) -> Self {
        Self { spec: Spec { categories, ..self.spec }, ..self }
    }

    /// With advice for clients and proxies.
    pub const fn tips(self, tips: &'static [&'static str]) -> Self {
        Self { spec: Spec { tips, ..self.spec }, ..self }
    }

    /// Deprecated since this version, in favour of what `replaced_by` says.
    pub const fn deprecated(self, since: &'static str, replaced_by: &'static str) -> Self {
        Self { spec: Spec { deprecated: Some((since, replaced_by)), ..self.spec }, ..self }
    }

    /// The table of these commands, in the order in which they shall be listed.
    pub fn table(all: impl IntoIterator<Item = &'static Self>) -> Table {
        let all: Vec<_> = all.into_iter().collect();
        let parts = all.iter().flat_map(|defined| defined.parts());
        let bodies = Bodies::new(parts.map(|part| (&part.spec, part.run)));
        Table::new(all.into_iter().map(Self::described), bodies)
    }

    /// Adds it to a table while workers run; see [`Table::remove`].
    ///
    /// # Errors
    /// If its name is taken, or none, or the table is full.
    pub fn add_to(&'static self, table: &Table) -> Result<(), AddError> {
        let bodies = Bodies::of(table);
        table.add(self.described(), |command| {
            let commands = iter::once(command).chain(&command.subcommands);
            commands.zip(self.parts()).for_each(|(command, part)| bodies.bind(command, part.run));
        })
    }

    /// It and its subcommands.
    fn parts(&'static self) -> impl Iterator<Item = &'static Self> {
        iter::once(self).chain(self.subcommands)
    }

    fn described(&'static self) -> Described {
        (&self.spec, self.subcommands.iter().map(|sub| &sub.spec).collect())
    }
}
