//! Output buffers, from the command that writes a reply to the socket that sends it.
//!
//! A worker has one [`Output`] for all its connections: replies are appended to one buffer, and usually one `send`
//! takes them straight from there. Large values are attached by reference. A long reply is split while it is
//! written, and the pieces are attached as well. So it is in memory once, and never moves to a larger allocation.
//!
//! A call may write as much as the hard limit of its connection allows in addition to the output that the peer has
//! not read. Beyond that the connection is condemned: it will be closed, and its further output is discarded. The
//! limit is checked when a piece is attached or split off, not with every append.
//!
//! ```
//! use std::sync::Arc;
//! use tierce_output::Output;
//!
//! let mut output = Output::new();
//! output.buffer().extend_from_slice(b"$5000\r\n");
//! output.attach(Arc::new(vec![b'x'; 5000])); // not copied
//! output.buffer().extend_from_slice(b"\r\n");
//! assert_eq!(output.written(), 7 + 5000 + 2);
//!
//! // A reply that was built elsewhere, for instance on another thread.
//! let reply = output.take();
//! let mut other = Output::new();
//! other.append(reply);
//! assert_eq!(other.written(), 7 + 5000 + 2);
//! ```

#![forbid(unsafe_code)]

mod limits;
mod output;
mod owned;

pub use limits::{LimitState, OUTPUT_CLASSES, OutputClass, OutputLimit, OutputLimits};
pub use output::{ATTACH_BYTES_MIN, Attachment, Mark, Output, Part, Piece};
pub use owned::OwnedOutput;
