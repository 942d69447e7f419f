//! The memory of the server while no abuser is connected.

use std::fmt;

use super::bytes;
use super::target::Target;
use crate::{Connection, wait_until};

/// Memory of a server, in bytes.
#[derive(Clone, Copy, Debug)]
pub struct Memory {
    /// As the server counts it.
    pub used: usize,
    /// As the system does.
    pub resident: usize,
}

/// What may be there without being a leak: witnesses hold less or more data, and counters of kinds of errors and logs
/// of denials fill up.
const USED_SLACK: usize = 4 << 20;

/// The allocator keeps memory for each thread, and gives it back late.
const RESIDENT_SLACK: usize = 48 << 20;

impl Memory {
    /// # Panics
    /// When it is more than before, beyond what varies anyway.
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

/// What watches the server. It knows how many connections there are before the first attack.
pub(super) struct Observer<'a> {
    target: &'a Target,
    connection: Connection,
    in_peace: Connections,
}

/// How many connections the server has. Those to its port for HTTP it counts apart.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Connections {
    clients: usize,
    http: usize,
}

impl<'a> Observer<'a> {
    /// Looks at the server before the first attack, when all witnesses are connected.
    pub(super) fn new(target: &'a Target) -> Self {
        let mut connection = target.server.connect();
        let in_peace = Connections::of(target, &mut connection);
        Self { target, connection, in_peace }
    }

    /// Waits until all connections of abusers have ended, removes their keys, and looks.
    ///
    /// # Panics
    /// When none of those left over ends any more.
    pub(super) fn settled(&mut self) -> Memory {
        let Self { target, connection, in_peace } = self;
        // Those that guess passwords end one after the other, about one each second: the server does not see that they
        // have gone, as for those that wait for keys. So only their number is bounded, not the time that all take.
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

/// Ends the waits for keys. The server does not see that a client has gone while it waits and has sent more behind that
/// than the server keeps: the end of its stream is behind bytes that are not read yet.
fn unblock(connection: &mut Connection) {
    let list = connection.ask("CLIENT LIST").text().to_owned();
    for line in list.lines().filter(|line| line.contains(" flags=b ")) {
        let id = line.strip_prefix("id=").and_then(|rest| rest.split(' ').next()).expect("an id");
        // It may be over by now.
        connection.ask(&format!("CLIENT UNBLOCK {id}"));
    }
}

/// Removes what abusers have written.
pub(super) fn remove_keys(connection: &mut Connection) {
    let keys: Vec<_> = (0..bytes::KEYS).map(bytes::key).collect();
    let mut del = vec![b"DEL".to_vec()];
    del.extend(keys);
    assert!(connection.call(&del).int() >= 0, "DEL removes keys");
}
