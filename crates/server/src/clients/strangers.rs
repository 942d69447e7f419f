//! Clients that have still to say a password.

use tierce_net::OutputClass;

/// The output limits of those who have still to say a password.
pub const STRANGERS: OutputClass = OutputClass::new(1);

/// The replies that may wait for them: as much as in Redis, whose first 16 KiB are not counted.
pub const STRANGERS_OUTPUT_BYTES_MAX: usize = 17 * 1024;

/// The output limits of a client, which may use the data or is a stranger.
pub fn output_class(may: bool) -> OutputClass {
    if may { OutputClass::default() } else { STRANGERS }
}
