//! The link to a replica that is to take over from this server (FAILOVER).

use tierce_replication::link::LinkError;

use super::FollowError;
use crate::server::Server;

/// The links of one failover.
#[derive(Default)]
pub(super) struct Takeover {
    /// The number of the links of which one has asked the replica, and got no answer.
    asked: Option<u64>,
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
            // Its answer to the link before was lost. It may have taken over then, whatever it says now: that it is busy, or
            // that it follows another one already. Only that it is a primary ends the failover.
            FollowError::Link(LinkError::Refused { reply, .. })
                if self.asked == Some(number) && is_primary(reply) =>
            {
                server.failover_is_done(number);
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

/// Whether the reply is that of a server which is a primary already.
fn is_primary(reply: &str) -> bool {
    reply.contains("can't be sent to a master") || reply.contains("can\\'t be sent to a master")
}
