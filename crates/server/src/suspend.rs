//! How a connection waits: suspended, with one timer, until it may go on.

use std::time::Duration;

use tierce_net::{Flow, Io, OnHangup};

use crate::clients::Client;
use crate::commands::replica_level::HeldReplies;
use crate::kernel::Kernel;
use crate::waiting::{Counted, Deferral, Obstacle, Patience, Waits};

/// Suspends the connection for as long as it waits. Its timer is the one that ends its patience.
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

/// Has replies wait for replicas, and the connection with them.
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

/// Suspends the connection until what holds its next request back may be over.
#[cold]
pub fn hold(waits: &mut Waits, kernel: &Kernel, deferral: Deferral, io: &mut Io<'_>) -> Flow {
    let obstacle = deferral.obstacle();
    let patience = match deferral {
        Deferral::At(_, until_ms) => {
            Patience::Ms((until_ms - io.now().unix_ms as i64).max(1) as u64)
        }
        Deferral::On(Obstacle::SlowSync) => Patience::Ms(kernel.durability.hold_back()),
        // A program that holds it for too long is told, and does not make the client wait any longer.
        Deferral::On(Obstacle::Shard(shard)) => patience_with_programs(kernel, shard),
        Deferral::On(_) => Patience::Forever,
    };
    waits.retry_after(obstacle, patience);
    if obstacle == Obstacle::Pause {
        waits.paused = Some(Counted::new(&kernel.clients.paused));
    }
    suspend(waits, io)
}

/// How long a client waits for a shard until it is looked whether a program has held it for too long.
fn patience_with_programs(kernel: &Kernel, shard: usize) -> Patience {
    let threshold = kernel.busy_threshold();
    match kernel.scripts.running.patience(shard, threshold) {
        Duration::MAX => Patience::Forever,
        left => Patience::Ms((left.as_millis() as u64).max(1)),
    }
}

/// What becomes of a connection that waits when its client has gone.
pub fn on_hangup(waits: &Waits) -> OnHangup {
    if waits.outlives_client() { OnHangup::Wait } else { OnHangup::Close }
}
