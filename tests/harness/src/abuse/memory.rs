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

/// What may be there without being a leak: witnesses hold less or more data, and counters of kinds of errors and logs of
/// denials fill up.
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

/// Waits until the connections of abusers have ended, removes their keys, and looks.
pub(super) fn settled(target: &Target, witnesses: usize) -> Memory {
    let mut connection = target.server.connect();
    wait_until("the connections of abusers have ended", || {
        target.info(&mut connection, "connected_clients") <= witnesses + 1
            && target.info(&mut connection, "blocked_clients") == 0
    });
    remove_keys(&mut connection);
    connection.ask("SCRIPT FLUSH SYNC");
    connection.ask("MEMORY PURGE");
    Memory {
        used: target.info(&mut connection, "used_memory"),
        resident: target.server.resident_bytes(),
    }
}

/// Removes what abusers have written.
pub(super) fn remove_keys(connection: &mut Connection) {
    let keys: Vec<_> = (0..bytes::KEYS).map(bytes::key).collect();
    let mut del = vec![b"DEL".to_vec()];
    del.extend(keys);
    assert!(connection.call(&del).int() >= 0, "DEL removes keys");
}
