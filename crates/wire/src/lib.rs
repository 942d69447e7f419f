//! Codecs of the wire protocols: pure bytes in and out.
//!
//! This crate performs no I/O, knows no key and never waits. A parser takes the bytes received so far and returns
//! the complete requests; an encoder appends to the caller's buffer.
//!
//! * [`resp`]: the Redis protocol, versions 2 and 3, and its inline commands.
//! * [`memcached`]: the protocols of memcached: binary frames, text lines, meta commands.
//! * [`pedrokv`]: the short frames of PedroKV.
//! * [`number`]: numbers as Redis reads and prints them.
//! * [`glob`]: the patterns of `KEYS`, `SCAN` and `PSUBSCRIBE`.
//! * [`words`]: lines of quoted words, as in inline requests and `redis.conf`.
//!
//! Any input yields a request, a demand for more bytes, or an error. It never causes a panic, and never reserves
//! memory for a length that the peer merely claimed.
//!
//! ```
//! use tierce_wire::resp::{Batch, Encoder, Limits, Parser, Proto, Status};
//!
//! let input = b"*2\r\n$4\r\nECHO\r\n$2\r\nhi\r\n*2\r\n$4\r\nEC";
//! let (mut parser, mut batch) = (Parser::new(), Batch::new());
//! let parsed = parser.parse(input, &Limits::default(), 64, &mut batch);
//!
//! let mut output = Vec::new();
//! for args in batch.iter(input) {
//!     Encoder::new(&mut output, Proto::Resp2).bulk(&args[1]);
//! }
//! assert_eq!(output, b"$2\r\nhi\r\n");
//! // The second request is incomplete: keep its bytes, and pass them again with what follows.
//! assert_eq!(&input[parsed.consumed..], b"*2\r\n$4\r\nEC");
//! assert_eq!(parsed.status, Status::NeedMore { hint: 4 });
//! ```

#![forbid(unsafe_code)]

#[doc(hidden)]
pub mod fuzzing;
pub mod glob;
pub mod memcached;
pub mod number;
pub mod pedrokv;
pub mod resp;
pub mod words;

/// The examples of the README compile.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
mod readme {}
