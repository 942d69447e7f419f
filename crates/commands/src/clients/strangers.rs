//! Classes of clients with output limits of their own.

use tierce_output::OutputClass;

/// The output limits of clients that are not authenticated yet.
pub const STRANGERS: OutputClass = OutputClass::new(1);

/// The output limits of clients with subscriptions.
pub const SUBSCRIBERS: OutputClass = OutputClass::new(2);

/// The class of replicas, without limits: their pending data are in the stream, which has some.
pub const REPLICAS: OutputClass = OutputClass::new(3);

/// Limit of their pending replies, as in Redis, which does not count the first 16 KiB.
pub const STRANGERS_OUTPUT_BYTES_MAX: usize = 17 * 1024;

/// Returns the output limits of a client; `may` is false before authentication.
pub fn output_class(may: bool) -> OutputClass {
    if may { OutputClass::default() } else { STRANGERS }
}
