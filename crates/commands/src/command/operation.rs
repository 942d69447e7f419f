//! Requests of protocols other than RESP, as counted by the statistics.
//!
//! They are not commands: their protocols find, check and run them. Like commands they have an identity, under which
//! they are counted and timed, and a name, such as `memcached|get`, which `INFO`, `LATENCY` and `CLIENT LIST` show.

use super::{CommandId, Table};

/// Kind of a request of another protocol, for counters and timing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Operation {
    /// Its identity.
    pub id: CommandId,
    /// True if it is so short that it is timed together with its neighbours.
    pub is_brief: bool,
}

/// The identities of the operations of one protocol.
#[derive(Clone, Copy, Debug)]
pub struct Operations {
    first: u16,
}

impl Operations {
    /// Returns the operation at this index of the names.
    #[inline]
    pub fn get(self, place: u16, is_brief: bool) -> Operation {
        Operation { id: CommandId(self.first + place), is_brief }
    }
}

impl Table {
    /// Assigns identities to the operations of a protocol with these names.
    pub fn add_operations(&mut self, names: impl IntoIterator<Item = &'static str>) -> Operations {
        let first = self.id_count() as u16;
        self.operations.extend(names);
        Operations { first }
    }

    /// Returns all names under which calls are counted, with their identities: first commands and subcommands, then
    /// operations.
    pub fn counted(&self) -> impl Iterator<Item = (CommandId, &str)> {
        let commands = self.all().map(|command| (command.id, command.full_name.as_str()));
        let first = (self.id_count() - self.operations.len()) as u16;
        let operations = self.operations.iter().zip(first..);
        commands.chain(operations.map(|(name, id)| (CommandId(id), *name)))
    }
}

#[cfg(test)]
mod tests {
    use crate::commands;

    #[test]
    fn operations_are_counted_beside_commands() {
        let mut table = commands::table();
        let before = table.id_count();
        let first = table.add_operations(["one|a", "one|b"]);
        let second = table.add_operations(["two|a"]);
        assert_eq!(table.id_count(), before + 3);
        let ids = [first.get(0, true).id, first.get(1, true).id, second.get(0, false).id];
        let names = ids.map(|id| table.counted().find(|(of, _)| *of == id).map(|(_, name)| name));
        assert_eq!(names, [Some("one|a"), Some("one|b"), Some("two|a")]);
        let mut all: Vec<_> = table.counted().map(|(id, _)| id.0).collect();
        let count = all.len();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), count, "each has an identity of its own");
    }
}
