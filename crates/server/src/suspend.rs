//! Suspends a waiting connection, with one timer, until it may continue.

use std::time::Duration;

use tierce_net::{Flow, Io, OnHangup};

use crate::clients::Client;
use crate::commands::replica_level::HeldReplies;
use crate::kernel::Kernel;
use crate::waiting::{Counted, Deferral, Obstacle, Patience, Waits};

/// Suspends the connection while it waits. Its timer ends the wait.
#[cold]
pub fn suspend(waits: &Waits, io: &mut Io<'_>) -> Flow {
    match waits.patience() {
        Patience::Forever => io.clear_timer(),
        // The turn began within this millisecond: without one more the client might wait less than it asked for.
        Patience::Ms(ms) => {
            io.set_timer(io.now().monotonic_ms.saturating_add(ms).saturating_add(1));
        }
    }
    Flow::Suspend(on_hangup(waits))
}

/// Makes replies wait for replicas, and suspends the connection.
#[cold]
pub fn suspend_for_replicas(
    waits: &mut Waits,
    kernel: &Kernel,
    client: &Client,
    io: &mut Io<'_>,
    held: HeldReplies,
) -> Flow {
    kernel.wait_for_replicas(waits, client, held);
    suspend(waits, io)
}

/// Suspends the connection until the obstacle to its next request may be gone.
#[cold]
pub fn hold(waits: &mut Waits, kernel: &Kernel, deferral: Deferral, io: &mut Io<'_>) -> Flow {
    let obstacle = deferral.obstacle();
    let patience = match deferral {
        Deferral::At(_, until_ms) => {
            Patience::Ms((until_ms - io.now().unix_ms as i64).max(1) as u64)
        }
        Deferral::On(Obstacle::SlowSync) => Patience::Ms(kernel.durability.hold_back()),
        // A program that locks it for too long is reported, and the client then waits no longer.
        Deferral::On(Obstacle::Shard(shard)) => patience_with_programs(kernel, shard),
        Deferral::On(_) => Patience::Forever,
    };
    waits.retry_after(obstacle, patience);
    if obstacle == Obstacle::Pause {
        waits.paused = Some(Counted::new(&kernel.clients.paused));
    }
    suspend(waits, io)
}

/// Returns how long a client waits for a shard before it checks whether a program has locked it for too long.
fn patience_with_programs(kernel: &Kernel, shard: usize) -> Patience {
    let threshold = kernel.busy_threshold();
    match kernel.scripts.running.patience(shard, threshold) {
        Duration::MAX => Patience::Forever,
        left => Patience::Ms((left.as_millis() as u64).max(1)),
    }
}

/// Returns the action when the client of a waiting connection hangs up.
pub fn on_hangup(waits: &Waits) -> OnHangup {
    if waits.outlives_client() { OnHangup::Wait } else { OnHangup::Close }
}
