//! Durability and acknowledgement: restarts of a primary with replicas, and writes that wait for replicas. A replica
//! is another server, or a test that speaks the protocol.
//!
//! - `restarts`: a primary that is started again.
//! - `levels`: number of replicas that a client asks for.
//! - `replies`: writes that wait for replicas.
//! - `frozen`: directories of released versions.

mod frozen;
mod levels;
mod replies;
mod restarts;

use rustix::process::Signal;
use tierce_harness::{Connection, Launch, Server, wait_until};

use super::info;
use crate::launch;

pub(super) fn primary() -> Launch {
    launch().with("repl-diskless-sync-delay", "0")
}

fn replica_of(primary: &Server) -> Launch {
    launch().with("replicaof", &format!("127.0.0.1 {}", primary.port()))
}

fn end(mut server: Server, signal: Signal) {
    server.signal(signal);
    server.wait_for_end();
}

fn wait_for_link(replica: &mut Connection) {
    wait_until("the link is up", || info(replica, "master_link_status") == "up");
}

/// Waits until the only replica has everything.
fn wait_for_all(primary: &mut Connection) {
    wait_until("the replica has all", || primary.ask("WAIT 1 100").int() == 1);
}

fn fill(c: &mut Connection, name: &str) {
    for number in 0..50 {
        c.check(&format!("SET {name}:{number} {number}"), "+OK");
    }
    c.check(&format!("RPUSH {name}:list a b c"), ":3");
}
