//! How a connection waits: suspended, with one timer, until it may go on.

use std::time::Duration;

use tierce_net::{Flow, Io, OnHangup};

use crate::gates::Cause;
use crate::kernel::Kernel;
use crate::waiting::{Counted, Obstacle, Patience, Waits};

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

/// Suspends the connection until what holds its next request back may be over.
#[cold]
pub fn hold(waits: &mut Waits, kernel: &Kernel, cause: Cause, io: &mut Io<'_>) -> Flow {
    let now_ms = io.now().unix_ms as i64;
    let left = |until_ms: i64| (until_ms - now_ms).max(1) as u64;
    let (obstacle, patience) = match cause {
        Cause::Pause { until_ms } => (Obstacle::Pause, Patience::Ms(left(until_ms))),
        Cause::Guesses { until_ms } => (Obstacle::Guesses, Patience::Ms(left(until_ms))),
        Cause::Memory { until_ms } => (Obstacle::Memory, Patience::Ms(left(until_ms))),
        Cause::Delivery { until_ms } => (Obstacle::Delivery, Patience::Ms(left(until_ms))),
        Cause::Role { until_ms } => (Obstacle::Role, Patience::Ms(left(until_ms))),
        Cause::Device => (Obstacle::SlowSync, Patience::Ms(kernel.durability.hold_back())),
        // A program that holds it for too long is told, and does not make the client wait any longer.
        Cause::Shard(shard) => (Obstacle::Shard(shard), patience_with_programs(kernel, shard)),
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
