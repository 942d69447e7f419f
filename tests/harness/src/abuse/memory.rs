//! The memory of the server while no abuser is connected.

use std::fmt;

use super::bytes;
use super::target::Target;
use crate::{Connection, wait_until};

/// Memory of a server, in bytes.
#[derive(Clone, Copy, Debug)]
pub struct Memory {
    /// Memory as counted by the server.
    pub used: usize,
    /// Memory as counted by the system.
    pub resident: usize,
}

/// Growth that is no leak: witnesses hold more or less data, and counters of kinds of errors and logs of denials fill
/// up.
const USED_SLACK: usize = 4 << 20;

/// The allocator keeps memory for each thread, and returns it late.
const RESIDENT_SLACK: usize = 48 << 20;

impl Memory {
    /// # Panics
    /// If it is more than before, beyond the slack.
    #[track_caller]
    pub(super) fn assert_no_more_than(self, before: Self) {
        assert!(
            self.used <= before.used + USED_SLACK,
            "used memory has grown: {before}, then {self}"
        );
        assert!(
            self.resident <= before.resident + RESIDENT_SLACK,
            "the resident set has grown: {before}, then {self}"
        );
    }
}

impl fmt::Display for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} KiB used, {} KiB resident", self.used >> 10, self.resident >> 10)
    }
}

/// Observer of the server. It knows the number of connections before the first attack.
pub(super) struct Observer<'a> {
    target: &'a Target,
    connection: Connection,
    in_peace: Connections,
}

/// Number of connections of the server. It counts those to its HTTP port separately.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Connections {
    clients: usize,
    http: usize,
}

impl<'a> Observer<'a> {
    /// Inspects the server before the first attack, when all witnesses are connected.
    pub(super) fn new(target: &'a Target) -> Self {
        let mut connection = target.server.connect();
        let in_peace = Connections::of(target, &mut connection);
        Self { target, connection, in_peace }
    }

    /// Waits until all connections of abusers have ended, removes their keys, and measures memory.
    ///
    /// # Panics
    /// If the remaining connections do not end.
    pub(super) fn settled(&mut self) -> Memory {
        let Self { target, connection, in_peace } = self;
        // Connections that guess passwords end one after the other, about one a second: as for blocked clients, the
        // server does not see that they have gone. So only their number is bounded, not the total time.
        let mut left = Connections::of(target, connection);
        while left != *in_peace {
            wait_until("a connection of abusers ends", || {
                unblock(connection);
                let now = Connections::of(target, connection);
                now != std::mem::replace(&mut left, now) || now == *in_peace
            });
        }
        wait_until("nobody waits for a key", || target.info(connection, "blocked_clients") == 0);
        remove_keys(connection);
        connection.ask("SCRIPT FLUSH SYNC");
        connection.ask("MEMORY PURGE");
        Memory {
            used: target.info(connection, "used_memory"),
            resident: target.server.resident_bytes(),
        }
    }
}

impl Connections {
    fn of(target: &Target, connection: &mut Connection) -> Self {
        Self {
            clients: target.info(connection, "connected_clients"),
            http: target.info(connection, "http_clients"),
        }
    }
}

/// Unblocks the clients that wait for keys. The server does not see that a blocked client has gone if it has sent
/// more than the server keeps: the end of its stream is after bytes that are not read yet.
fn unblock(connection: &mut Connection) {
    let list = connection.ask("CLIENT LIST").text().to_owned();
    for line in list.lines().filter(|line| line.contains(" flags=b ")) {
        let id = line.strip_prefix("id=").and_then(|rest| rest.split(' ').next()).expect("an id");
        // The wait may be over by now.
        connection.ask(&format!("CLIENT UNBLOCK {id}"));
    }
}

/// Removes the keys of abusers.
pub(super) fn remove_keys(connection: &mut Connection) {
    let keys: Vec<_> = (0..bytes::KEYS).map(bytes::key).collect();
    let mut del = vec![b"DEL".to_vec()];
    del.extend(keys);
    assert!(connection.call(&del).int() >= 0, "DEL removes keys");
}
