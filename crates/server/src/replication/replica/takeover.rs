//! The link to a replica that should take over from this server (FAILOVER).

use tierce_replication::link::LinkError;

use super::FollowError;
use crate::server::Server;

/// Links of one failover.
#[derive(Default)]
pub(super) struct Takeover {
    /// Number of the links of which one has asked the replica, and got no answer.
    asked: Option<u64>,
    /// Number of the links of which a later one has learned that the replica has another stream.
    has_other_stream: Option<u64>,
}

impl Takeover {
    /// Handles the end of a link with this number. Another link follows, unless the replica has refused. `has_asked` is
    /// true if the link has asked it to take over.
    pub(super) fn link_is_over(
        &mut self,
        server: &Server,
        number: u64,
        error: &FollowError,
        has_asked: bool,
    ) {
        if !server.failover.is_on() || !has_asked {
            return;
        }
        match error {
            // The answer to the previous link was lost, and the replica may have taken over. Replies that it is busy or
            // follows another server do not tell. Only the reply that it is a primary completes the failover.
            FollowError::Link(LinkError::Refused { reply, .. })
                if self.asked == Some(number) && is_primary(reply) =>
            {
                server.failover_is_done(number);
            }
            // It may have taken over, and restarted since with its old configuration. If it then waits for this server,
            // and this one for it, one of them must give up. Its data are replaced by a full copy in any case.
            FollowError::Link(LinkError::Refused { reply, .. })
                if self.asked == Some(number) && has_other_stream(reply) =>
            {
                // In this order: an earlier request may be from before it took over.
                let asks_back = server.failover.take_target_asks();
                if self.has_other_stream.replace(number) == Some(number) && asks_back {
                    let _still = server.role.hold_still();
                    server.abort_failover(
                        "the replica has another stream, and waits for this server. If it had taken over before it \
                         started again, what it was told then is lost",
                    );
                }
            }
            _ if self.asked == Some(number) => {}
            FollowError::Link(LinkError::Refused { .. } | LinkError::NotNow(_)) => {
                let _still = server.role.hold_still();
                server.abort_failover(&format!("the replica refuses ({error})"));
            }
            _ => self.asked = Some(number),
        }
    }
}

/// Returns true for the reply of a replica, of this server or of another one, that does not have the stream to
/// continue.
fn has_other_stream(reply: &str) -> bool {
    reply.contains("PSYNC FAILOVER replid must match")
}

/// Returns true for the reply of a server that is a primary already.
fn is_primary(reply: &str) -> bool {
    reply.contains("can't be sent to a master") || reply.contains("can\\'t be sent to a master")
}
