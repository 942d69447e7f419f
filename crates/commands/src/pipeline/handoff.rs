//! Clients that are told of a failover (`CLIENT MAINT_NOTIFICATIONS`), and go to the server that takes over.
//!
//! Libraries act on `MOVING` with the next bytes that they read, so a write may arrive here after it. A replica would
//! refuse that write, and the library would give the error to the application. So the server closes the connection
//! instead ([`Parting`]). The library connects to the new address, and repeats the write there.

use tierce_output::Output;
use tierce_wire::resp::Proto;

use crate::caller::Caller;
use crate::clients::{Client, ClientFlags};
use crate::clock;
use crate::error::CommandError;
use crate::kernel::Kernel;
use crate::maintenance::Notification;
use crate::replication::role::{Address, LinkState};
use crate::reply::Reply;

/// Seconds in `FAILING_OVER` for a failover without a timeout.
const FAILING_OVER_SECONDS: i64 = 10;

/// Milliseconds without a sign of the server that has taken over, after which no client is sent there.
const SILENT_MS_MAX: i64 = 15_000;

/// Error for a library that repeats calls with it.
const HANDED_OVER: CommandError =
    CommandError::new("LOADING This server has handed over to another one, and has done nothing");

/// Creates a notification that a failover begins, which is given up at `until_ms`.
pub(crate) fn failing_over(kernel: &Kernel, until_ms: Option<i64>, now_ms: i64) -> Notification {
    let seconds =
        until_ms.map(|until_ms| until_ms.saturating_sub(now_ms).saturating_add(999) / 1000);
    Notification::FailingOver {
        id: kernel.failover.next_id(now_ms),
        seconds: seconds.unwrap_or(FAILING_OVER_SECONDS),
    }
}

/// Creates a notification that a failover is over.
pub(crate) fn failed_over(kernel: &Kernel, now_ms: i64) -> Notification {
    Notification::FailedOver { id: kernel.failover.next_id(now_ms) }
}

/// Creates a notification of the server to which this one has handed over; `None` unless it has, and follows it.
pub(crate) fn moving(kernel: &Kernel, now_ms: i64) -> Option<Notification> {
    let id = kernel.failover.moving_id(now_ms)?;
    let address = successor(kernel, now_ms)?.to_string().into();
    Some(Notification::Moving { id, address })
}

/// Returns the address of the server that this one follows, unless that has been silent for too long.
fn successor(kernel: &Kernel, now_ms: i64) -> Option<Address> {
    let following = kernel.role.following()?;
    let is_there = following.link == LinkState::Connected
        || now_ms.saturating_sub(following.last_io_ms) < SILENT_MS_MAX;
    is_there.then_some(following.primary)
}

/// Returns true unless the client gets this address, and it means another machine there than for this server, or
/// redis-py cannot read it: IPv6.
fn can_reach(client: &Client, host: &[u8]) -> bool {
    let is_local =
        host.eq_ignore_ascii_case(b"localhost") || host.starts_with(b"127.") || host == b"0.0.0.0";
    client.has(ClientFlags::KEEPS_ENDPOINT) || (client.local || !is_local) && !host.contains(&b':')
}

/// Returns true if the client gets notifications, and can go to the server that has taken over.
pub(crate) fn can_follow(kernel: &Kernel, client: &Client) -> bool {
    concerns(client)
        && kernel.failover.has_moved()
        && successor(kernel, clock::unix_ms()).is_some_and(|there| can_reach(client, &there.host))
}

/// Returns true if the client gets notifications: it has asked for them, and speaks version 3.
pub(crate) fn concerns(client: &Client) -> bool {
    client.has(ClientFlags::MAINTENANCE) && client.proto() == Proto::Resp3
}

/// Writes a notification for a client that gets them. Returns true if so. Only the worker that owns the client calls
/// it.
pub fn notify(client: &Client, notification: &Notification, output: &mut Output) -> bool {
    let can_go = match notification {
        Notification::Moving { address, .. } => {
            let host = address.rsplit_once(':').map_or(&**address, |(host, _)| host);
            can_reach(client, host.as_bytes())
        }
        _ => true,
    };
    let is_told = concerns(client) && can_go;
    if is_told {
        let keeps_endpoint = client.has(ClientFlags::KEEPS_ENDPOINT);
        notification.write(keeps_endpoint, &mut Reply::new(output, Proto::Resp3));
        client.set(ClientFlags::MOVED, matches!(notification, Notification::Moving { .. }));
    }
    is_told
}

/// Returns true if writes of the client close its connection, because this server has handed over. A client that
/// reconnects to the same address gets errors from then on: otherwise it would come back forever.
pub(crate) fn leads_away(kernel: &Kernel, client: &Client) -> bool {
    can_follow(kernel, client)
        && (!client.has(ClientFlags::KEEPS_ENDPOINT) || client.has(ClientFlags::MOVED))
}

/// Notes, for a client that gets notifications and waits, if requests of the same pipeline have run before: in this
/// batch, if `has_run`, or in an earlier one.
pub fn note_wait(caller: &Caller, has_run: bool) {
    if concerns(&caller.client) {
        caller.client.set(ClientFlags::WAITS_IN_PIPELINE, has_run || caller.in_pipeline);
    }
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
    let there = moving(kernel, now_ms)?;
    if !client.has(ClientFlags::MOVED) {
        notify(client, &there, output);
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
