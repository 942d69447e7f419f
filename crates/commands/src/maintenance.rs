//! Notifications of planned maintenance (`CLIENT MAINT_NOTIFICATIONS`): push messages that tell a client library to be
//! patient, or to connect to another server.
//!
//! ```text
//! FAILING_OVER id seconds shards     a failover begins: writes wait
//! FAILED_OVER id shards              it is over, with or without success
//! MOVING id seconds host:port        connect there; this connection serves no more writes
//! ```
//!
//! Libraries act on `MOVING` with the next bytes that they read, so a write may arrive here after it. A replica would
//! refuse that write, and the library would give the error to the application. So the server closes the connection
//! instead ([`Parting`]). The library connects to the new address, and repeats the write there.
//!
//! **Invariant:** ids grow, also from one server to the next, because libraries ignore those that they have seen. So an
//! id is the time in Unix milliseconds, or the previous id plus one.

use std::sync::Arc;

use tierce_output::Output;
use tierce_wire::resp::Proto;

use crate::caller::Caller;
use crate::clients::{Client, ClientFlags};
use crate::error::CommandError;
use crate::kernel::Kernel;
use crate::reply::Reply;

/// Seconds in `MOVING`. Libraries keep the new address, and are patient, for so long. Those that are told no address
/// connect again after half of it.
pub(crate) const MOVING_SECONDS: i64 = 30;

/// Seconds in `FAILING_OVER` for a failover without a timeout.
const FAILING_OVER_SECONDS: i64 = 10;

/// Identity of the only shard of a server, in the form of a list.
const SHARDS: &[u8] = br#"["0"]"#;

/// Error for a library that repeats calls with it.
const HANDED_OVER: CommandError =
    CommandError::new("LOADING This server has handed over to another one, and has done nothing");

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
    /// Creates a notification that a failover begins, which is given up at `until_ms`.
    pub(crate) fn failing_over(kernel: &Kernel, until_ms: Option<i64>, now_ms: i64) -> Self {
        let seconds =
            until_ms.map(|until_ms| until_ms.saturating_sub(now_ms).saturating_add(999) / 1000);
        Self::FailingOver {
            id: kernel.failover.next_id(now_ms),
            seconds: seconds.unwrap_or(FAILING_OVER_SECONDS),
        }
    }

    /// Creates a notification that a failover is over.
    pub(crate) fn failed_over(kernel: &Kernel, now_ms: i64) -> Self {
        Self::FailedOver { id: kernel.failover.next_id(now_ms) }
    }

    /// Creates a notification of the server to which this one has handed over; `None` unless it has, and still follows.
    pub(crate) fn moving(kernel: &Kernel, now_ms: i64) -> Option<Self> {
        let id = kernel.failover.moving_id(now_ms)?;
        let address = kernel.role.following()?.primary.to_string().into();
        Some(Self::Moving { id, address })
    }

    fn write(&self, client: &Client, reply: &mut Reply<'_>) {
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
                match client.has(ClientFlags::KEEPS_ENDPOINT) {
                    true => reply.null(),
                    false => reply.bulk(address.as_bytes()),
                }
            }
        }
    }
}

/// Returns true if the client gets notifications: it has asked for them, and speaks version 3.
pub(crate) fn concerns(client: &Client) -> bool {
    client.has(ClientFlags::MAINTENANCE) && client.proto() == Proto::Resp3
}

/// Writes a notification for a client that gets them. Returns true if so. Only the worker that owns the client calls
/// it.
pub fn notify(client: &Client, notification: &Notification, output: &mut Output) -> bool {
    let is_told = concerns(client);
    if is_told {
        notification.write(client, &mut Reply::new(output, Proto::Resp3));
        client.set(ClientFlags::MOVED, matches!(notification, Notification::Moving { .. }));
    }
    is_told
}

/// Returns true if writes of the client close its connection, because this server has handed over. A client that
/// reconnects to the same address gets errors from then on: otherwise it would come back forever.
pub(crate) fn leads_away(kernel: &Kernel, client: &Client) -> bool {
    concerns(client)
        && kernel.failover.has_moved()
        && (!client.has(ClientFlags::KEEPS_ENDPOINT) || client.has(ClientFlags::MOVED))
}

/// Reaction to a write of a client that is led away, instead of `READONLY`.
#[derive(Debug)]
pub enum Parting {
    /// The connection closes.
    Closes,
    /// The client gets this error, which its library does not show to the application.
    Repeats(CommandError),
}

/// Tells the caller of a write that this replica refuses with `error` where to go, unless it knows. Returns the
/// reaction if it is not that error.
pub fn lead_away(
    kernel: &Kernel,
    caller: &Caller,
    error: &CommandError,
    output: &mut Output,
    now_ms: i64,
) -> Option<Parting> {
    let client = &caller.client;
    if error.kind() != CommandError::REPLICA_IS_READ_ONLY.kind() || !leads_away(kernel, client) {
        return None;
    }
    let moving = Notification::moving(kernel, now_ms)?;
    if !client.has(ClientFlags::MOVED) {
        notify(client, &moving, output);
    }
    Some(match repeats_loading(client) && !caller.is_in_transaction() {
        true => Parting::Repeats(HANDED_OVER),
        false => Parting::Closes,
    })
}

/// Returns true for a client of go-redis. It opens a connection to the old address for each one that closes, three
/// times at most. With this error it keeps the connection, connects it to the new address, and repeats the call.
fn repeats_loading(client: &Client) -> bool {
    !client.has(ClientFlags::KEEPS_ENDPOINT)
        && client.identity.lock().library.starts_with("go-redis")
}
