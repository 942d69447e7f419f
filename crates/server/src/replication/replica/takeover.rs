//! The link to a replica that is to take over from this server (FAILOVER).

use tierce_replication::link::LinkError;

use super::FollowError;
use crate::server::Server;

/// The links of one failover.
#[derive(Default)]
pub(super) struct Takeover {
    /// The number of the links of which one has asked the replica, and got no answer.
    asked: Option<u64>,
    /// The number of the links of which one has learned later that it has another stream.
    has_other_stream: Option<u64>,
}

impl Takeover {
    /// A link with this number is over, after which there is another one unless the replica has said no. `has_asked`
    /// says whether the link has asked it.
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
            // Its answer to the link before was lost. It may have taken over then, whatever it says now: that it is
            // busy, or that it follows another one already. Only that it is a primary ends the failover.
            FollowError::Link(LinkError::Refused { reply, .. })
                if self.asked == Some(number) && is_primary(reply) =>
            {
                server.failover_is_done(number);
            }
            // It may have taken over, and begun anew since as it was configured. When it waits for this server, and
            // this one for it, only one that gives up ends that, and what it has is replaced by a full copy in any
            // case.
            FollowError::Link(LinkError::Refused { reply, .. })
                if self.asked == Some(number) && has_other_stream(reply) =>
            {
                // In this order: what it has asked for before it said so may be of the time before it took over.
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

/// Whether the reply is that of a replica, of this server or of another one, which does not have the stream that it is
/// to go on with.
fn has_other_stream(reply: &str) -> bool {
    reply.contains("PSYNC FAILOVER replid must match")
}

/// Whether the reply is that of a server which is a primary already.
fn is_primary(reply: &str) -> bool {
    reply.contains("can't be sent to a master") || reply.contains("can\\'t be sent to a master")
}
