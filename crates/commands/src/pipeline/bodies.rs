//! What runs the commands of a table, by their identities: the facts about a command know nothing of it.

use std::sync::OnceLock;

use super::Handler;
use super::locking::way_in;
use crate::command::{ADDED_MAX, Command, Spec, Table};

/// The bodies of all commands of a table.
pub struct Bodies {
    built_in: Box<[Ways]>,
    /// Of commands that are added, in the order of their identities.
    added: Box<[OnceLock<Ways>]>,
}

/// Ways to run a command.
#[derive(Clone, Copy)]
pub(super) struct Ways {
    /// Locks what its scope says and runs it.
    pub(super) enter: Handler,
    /// The body alone.
    pub(super) run: Handler,
}

impl Ways {
    fn of((spec, run): (&Spec, Handler)) -> Self {
        Self { enter: way_in(spec, run), run }
    }
}

impl Bodies {
    /// Those of these commands and subcommands, in the order of their identities.
    pub(super) fn new<'s>(all: impl Iterator<Item = (&'s Spec, Handler)>) -> Self {
        let added = (0..ADDED_MAX).map(|_| OnceLock::new()).collect();
        Self { built_in: all.map(Ways::of).collect(), added }
    }

    /// Those of a table that was made here.
    #[inline]
    #[must_use]
    pub fn of(table: &Table) -> &Self {
        table.bodies.downcast_ref().expect("the table was made here")
    }

    /// Gives an added command or subcommand its body.
    pub(super) fn bind(&self, command: &Command, run: Handler) {
        self.added[self.added_at(command)].get_or_init(|| Ways::of((command.spec, run)));
    }

    #[inline]
    pub(super) fn ways(&self, command: &Command) -> &Ways {
        match self.built_in.get(usize::from(command.id.0)) {
            Some(ways) => ways,
            None => self.ways_of_added(command),
        }
    }

    #[cold]
    fn ways_of_added(&self, command: &Command) -> &Ways {
        self.added[self.added_at(command)].get().expect("it has its body before it is found")
    }

    fn added_at(&self, command: &Command) -> usize {
        usize::from(command.id.0) - self.built_in.len()
    }
}
