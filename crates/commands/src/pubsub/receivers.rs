//! The connections of one worker that get the messages for a name.

use std::collections::HashMap;
use std::sync::Arc;

use super::names::{Kind, Name};
use super::run::Run;
use crate::waiting::ConnAddress;

/// Number of receivers of a name from which on they are found by an index.
const INDEXED_FROM: usize = 64;

/// The receivers of one worker.
#[derive(Default)]
pub(super) struct Receivers {
    by_kind: [HashMap<Name, Conns>; Kind::ALL.len()],
    /// The run that is being delivered, if it takes several turns.
    pub(super) current: Option<Run>,
}

/// Connections in any order, each once.
#[derive(Default)]
struct Conns {
    list: Vec<ConnAddress>,
    /// Index of each connection in the list, if there are many.
    index: Option<HashMap<ConnAddress, usize>>,
}

impl Receivers {
    pub(super) fn of(&self, kind: Kind, name: &[u8]) -> &[ConnAddress] {
        self.by_kind[kind as usize].get(name).map_or(&[], |conns| &conns.list)
    }

    pub(super) fn add(&mut self, kind: Kind, name: &Name, conn: ConnAddress) {
        self.by_kind[kind as usize].entry(Arc::clone(name)).or_default().add(conn);
    }

    pub(super) fn remove(&mut self, kind: Kind, name: &[u8], conn: ConnAddress) {
        let map = &mut self.by_kind[kind as usize];
        if let Some(conns) = map.get_mut(name) {
            conns.remove(conn);
            if conns.list.is_empty() {
                map.remove(name);
            }
        }
    }
}

impl Conns {
    fn add(&mut self, conn: ConnAddress) {
        if self.list.is_empty() {
            // Most names have one receiver.
            self.list.reserve_exact(1);
        }
        if let Some(index) = &mut self.index {
            index.insert(conn, self.list.len());
        }
        self.list.push(conn);
        if self.index.is_none() && self.list.len() >= INDEXED_FROM {
            self.index = Some(self.list.iter().copied().zip(0..).collect());
        }
    }

    fn remove(&mut self, conn: ConnAddress) {
        let at = match &mut self.index {
            Some(index) => index.remove(&conn),
            None => self.list.iter().position(|other| *other == conn),
        };
        let Some(at) = at else { return };
        self.list.swap_remove(at);
        if let (Some(index), Some(moved)) = (&mut self.index, self.list.get(at)) {
            index.insert(*moved, at);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_and_many_connections_come_and_go() {
        let conn = |id| ConnAddress { worker: 0, slot: id as u32, id };
        let name: Name = b"news"[..].into();
        let mut receivers = Receivers::default();
        let last = 3 * INDEXED_FROM as u64;
        for id in 0..last {
            receivers.add(Kind::Channel, &name, conn(id));
        }
        assert_eq!(receivers.of(Kind::Channel, &name).len(), last as usize);
        assert!(receivers.of(Kind::Pattern, &name).is_empty());
        // From the middle in both directions, so that the last one moves many times.
        for id in (last / 2..last).chain((0..last / 2).rev()) {
            receivers.remove(Kind::Channel, &name, conn(id));
            receivers.remove(Kind::Channel, &name, conn(id));
            assert!(!receivers.of(Kind::Channel, &name).contains(&conn(id)));
        }
        assert!(receivers.by_kind.iter().all(HashMap::is_empty));
    }
}
