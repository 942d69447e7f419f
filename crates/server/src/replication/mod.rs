//! The server's part of replication: sending bytes to replicas, the threads that produce the stream and start full
//! copies, and the link to a primary.

mod before_end;
mod copies;
mod handover;
pub mod quiet;
pub mod replica;
mod stream;

pub use before_end::{Outcome, await_replicas, resume_changes};
pub use copies::Copies;
pub use handover::Handover;
pub use stream::{Stream, kept_bytes};

use tierce_net::{Flow, Io};

use crate::caller::Caller;
use crate::server::Server;
use tierce_commands::replication::Took;

/// Maximum number of bytes that a replica gets in a turn. It gets more only when it has read these: all other
/// connections of its worker wait meanwhile. A socket buffer takes about as much.
const TURN_BYTES: usize = 256 << 10;

/// Sends a replica the next part of the stream, as fast as it reads. Unsent bytes stay in the stream, which all
/// replicas share.
#[inline]
pub fn feed(server: &Server, caller: &Caller, io: &mut Io<'_>, flow: Flow) -> Flow {
    match caller.replica() {
        Some(_) if flow == Flow::Continue => feed_replica(server, caller, io),
        _ => flow,
    }
}

#[cold]
fn feed_replica(server: &Server, caller: &Caller, io: &mut Io<'_>) -> Flow {
    let Some(replica) = caller.replica() else { return Flow::Continue };
    if io.output().follows_unsent() {
        io.call_when_sent();
        return Flow::Continue;
    }
    let output = io.output().buffer();
    let before = output.len();
    let took = replica.take(TURN_BYTES, output);
    let len = output.len() - before;
    server.primary.note_sent(len);
    if len > 0 {
        replica.show_progress(io.now().unix_ms as i64);
    }
    match took {
        Took::More => Flow::Yield,
        Took::All => Flow::Continue,
        Took::Lost => Flow::Close,
    }
}
