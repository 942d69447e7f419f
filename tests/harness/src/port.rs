//! Free ports.

use std::net::{Ipv4Addr, TcpListener};
use std::sync::atomic::{AtomicU16, Ordering};

/// First port. The ports are below the range from which Linux takes the ports of outgoing
/// connections (32768 and up). So no client of another test can take one before the start.
const FIRST: u16 = 20_000;
const COUNT: u16 = 12_000;

/// Returns a port of the loopback interface without a listener.
///
/// Another process may still take it before the caller does. [`Launch::start`] tries again then.
///
/// [`Launch::start`]: crate::Launch::start
///
/// # Panics
/// If all ports are taken.
#[must_use]
pub fn free_port() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    // Processes that run at the same time start at different ports.
    let start = (std::process::id().wrapping_mul(97) % u32::from(COUNT)) as u16;
    for _ in 0..COUNT {
        let step = NEXT.fetch_add(1, Ordering::Relaxed);
        let port = FIRST + (start + step % COUNT) % COUNT;
        if TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok() {
            return port;
        }
    }
    panic!("no free port from {FIRST} on");
}
