//! Connections to other servers, which the program opens for commands such as MIGRATE: this crate has no sockets.

use std::io::{self, Read, Write};
use std::time::Duration;

/// Connection to another server.
pub trait Stream: Read + Write {}

impl<T: Read + Write> Stream for T {}

/// Opens a connection to a host and port, which takes at most the given time, including the resolution of the name, and
/// ends if the last argument returns true. Reads and writes fail after a tenth of a second, or the given time if that is
/// shorter, so that the caller can look for a reason to give up.
pub type Connect =
    dyn Fn(&str, u16, Duration, &dyn Fn() -> bool) -> io::Result<Box<dyn Stream>> + Send + Sync;
