//! Messages about planned maintenance (`CLIENT MAINT_NOTIFICATIONS`): they tell a client library to be patient, or to
//! connect to another server. `pipeline::handoff` sends them.
//!
//! ```text
//! FAILING_OVER id seconds shards     a failover begins: writes wait
//! FAILED_OVER id shards              it is over, with or without success
//! MOVING id seconds host:port        connect there; this connection serves no more writes
//! ```
//!
//! **Invariant:** ids grow, also from one server to the next, because libraries ignore those that they have seen. So an
//! id is the time in Unix milliseconds, or the previous id plus one.

use std::sync::Arc;

use crate::reply::Reply;

/// Seconds in `MOVING`. Libraries keep the new address, and are patient, for so long. Those that are told no address
/// connect again after half of it.
pub(crate) const MOVING_SECONDS: i64 = 30;

/// Identity of the only shard of a server, in the form of a list.
const SHARDS: &[u8] = br#"["0"]"#;

/// A notification.
#[derive(Clone, Debug)]
pub enum Notification {
    /// A failover begins.
    FailingOver {
        /// Its id.
        id: i64,
        /// Expected duration at most.
        seconds: i64,
    },
    /// A failover is over.
    FailedOver {
        /// Its id.
        id: i64,
    },
    /// Another server has taken over.
    Moving {
        /// Its id.
        id: i64,
        /// Host and port of that server.
        address: Arc<str>,
    },
}

impl Notification {
    /// Writes the message. A client that `keeps_endpoint` is told no address.
    pub(crate) fn write(&self, keeps_endpoint: bool, reply: &mut Reply<'_>) {
        match self {
            Self::FailingOver { id, seconds } => {
                reply.push(4);
                reply.bulk(b"FAILING_OVER");
                reply.int(*id);
                reply.int(*seconds);
                reply.bulk(SHARDS);
            }
            Self::FailedOver { id } => {
                reply.push(3);
                reply.bulk(b"FAILED_OVER");
                reply.int(*id);
                reply.bulk(SHARDS);
            }
            Self::Moving { id, address } => {
                reply.push(4);
                reply.bulk(b"MOVING");
                reply.int(*id);
                reply.int(MOVING_SECONDS);
                match keeps_endpoint {
                    true => reply.null(),
                    false => reply.bulk(address.as_bytes()),
                }
            }
        }
    }
}
