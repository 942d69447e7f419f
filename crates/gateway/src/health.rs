//! Liveness and readiness. Neither needs a password, and neither reveals more.

use axum::http::StatusCode;
use tierce_commands::kernel::Kernel;

/// `/readyz`: not loading, and writes are accepted.
pub(crate) fn readiness(kernel: Option<&Kernel>) -> (StatusCode, &'static str) {
    const NOT: StatusCode = StatusCode::SERVICE_UNAVAILABLE;
    match kernel {
        None => (NOT, "loading\n"),
        Some(kernel) if kernel.loading.is_on() => (NOT, "loading\n"),
        Some(kernel) if kernel.durability.refuses_writes() => (NOT, "the log takes no writes\n"),
        Some(kernel) if kernel.persistence.refuses_writes() => {
            (NOT, "snapshots cannot be saved, so writes are refused\n")
        }
        Some(_) => (StatusCode::OK, "ready\n"),
    }
}
