//! Definition of a command: its facts, and its function.

use std::iter;

use super::{Bodies, Body, Handler};
use crate::command::{
    AddError, Channels, Described, Flags, Group, KeySpec, Scope, Spec, Table, Weight,
};

/// Definition of a command or subcommand, next to its function.
#[derive(Clone, Copy)]
pub struct Defined {
    /// Its facts.
    pub spec: Spec,
    /// Its function.
    pub run: Handler,
    /// Subcommands; a command with subcommands is only a container.
    pub subcommands: &'static [Self],
}

impl Defined {
    /// Defines a command named `name` (lower case). Its arity follows from the body.
    pub const fn new(name: &'static str, group: Group, body: Body) -> Self {
        let Body { arity, words, run } = body;
        Self { spec: Spec::new(name, group, words, arity), run, subcommands: &[] }
    }

    /// Defines a container of subcommands.
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

    /// Replaces the arity that follows from the body.
    pub const fn arity(self, arity: i16) -> Self {
        Self { spec: Spec { arity, ..self.spec }, ..self }
    }

    /// Sets the flags.
    pub const fn flags(self, flags: Flags) -> Self {
        Self { spec: Spec { flags, ..self.spec }, ..self }
    }

    /// Sets the keys.
    pub const fn keys(self, keys: &'static [KeySpec]) -> Self {
        Self { spec: Spec { keys, ..self.spec }, ..self }
    }

    /// Sets arguments that are no keys but select the node of a cluster.
    pub const fn routes(self, routes: &'static [KeySpec]) -> Self {
        Self { spec: Spec { routes, ..self.spec }, ..self }
    }

    /// Sets the channels that it sends to or subscribes to.
    pub const fn channels(self, channels: Channels) -> Self {
        Self { spec: Spec { channels: Some(channels), ..self.spec }, ..self }
    }

    /// Sets the weight of a command that visits the whole values of its keys, which may be too much for a worker.
    pub const fn weighs(self, weight: Weight) -> Self {
        Self { spec: Spec { weight, ..self.spec }, ..self }
    }

    /// Replaces the scope that follows from the keys.
    pub const fn locks(self, scope: Scope) -> Self {
        Self { spec: Spec { locks: Some(scope), ..self.spec }, ..self }
    }

    /// Sets the argument with the field or member to look up under the key before it.
    pub const fn element_at(self, element_at: usize) -> Self {
        Self { spec: Spec { element_at, ..self.spec }, ..self }
    }

    /// Sets the Redis version that introduced it, and its complexity.
    pub const fn since(self, since: &'static str, complexity: &'static str) -> Self {
        Self { spec: Spec { since, complexity, ..self.spec }, ..self }
    }

    /// Sets the syntax of its arguments, and a summary in one sentence.
    pub const fn doc(self, syntax: &'static str, summary: &'static str) -> Self {
        Self { spec: Spec { syntax, summary, ..self.spec }, ..self }
    }

    /// Sets an example: calls after `> `, each followed by the lines of its reply. A test makes these calls in both
    /// protocol versions, and checks their writes after the server was killed.
    pub const fn example(self, example: &'static str) -> Self {
        Self { spec: Spec { example, ..self.spec }, ..self }
    }

    /// Adds access categories to those that follow from flags and group.
    pub const fn categories(self, categories: &'static [&'static str]) -> Self {
        Self { spec: Spec { categories, ..self.spec }, ..self }
    }

    /// Sets the command tips for clients and proxies.
    pub const fn tips(self, tips: &'static [&'static str]) -> Self {
        Self { spec: Spec { tips, ..self.spec }, ..self }
    }

    /// Marks it as deprecated since this version, with its replacement.
    pub const fn deprecated(self, since: &'static str, replaced_by: &'static str) -> Self {
        Self { spec: Spec { deprecated: Some((since, replaced_by)), ..self.spec }, ..self }
    }

    /// Creates the table of these commands, in their listing order.
    pub fn table(all: impl IntoIterator<Item = &'static Self>) -> Table {
        let all: Vec<_> = all.into_iter().collect();
        let parts = all.iter().flat_map(|defined| defined.parts());
        let bodies = Bodies::new(parts.map(|part| (&part.spec, part.run)));
        Table::new(all.into_iter().map(Self::described), bodies)
    }

    /// Adds it to a table while workers run; see [`Table::remove`].
    ///
    /// # Errors
    /// Fails if its name is taken or invalid, or the table is full.
    pub fn add_to(&'static self, table: &Table) -> Result<(), AddError> {
        let bodies = Bodies::of(table);
        table.add(self.described(), |command| {
            let commands = iter::once(command).chain(&command.subcommands);
            commands.zip(self.parts()).for_each(|(command, part)| bodies.bind(command, part.run));
        })
    }

    /// Returns it and its subcommands.
    fn parts(&'static self) -> impl Iterator<Item = &'static Self> {
        iter::once(self).chain(self.subcommands)
    }

    fn described(&'static self) -> Described {
        (&self.spec, self.subcommands.iter().map(|sub| &sub.spec).collect())
    }
}
