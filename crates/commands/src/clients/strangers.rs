//! Classes of clients with output limits of their own.

use tierce_output::OutputClass;

/// The output limits of clients that are not authenticated yet.
pub const STRANGERS: OutputClass = OutputClass::new(1);

/// The output limits of clients with subscriptions.
pub const SUBSCRIBERS: OutputClass = OutputClass::new(2);

/// Replicas have no limits of their own: what waits for them is in the stream, which has them.
pub const REPLICAS: OutputClass = OutputClass::new(3);

/// The replies that may wait for strangers: as much as in Redis, whose first 16 KiB are not counted.
pub const STRANGERS_OUTPUT_BYTES_MAX: usize = 17 * 1024;

/// The output limits of a client, which may use the data or is a stranger.
pub fn output_class(may: bool) -> OutputClass {
    if may { OutputClass::default() } else { STRANGERS }
}
