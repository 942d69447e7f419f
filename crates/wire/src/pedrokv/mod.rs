//! The protocol of PedroKV: requests and responses in short binary frames.
//!
//! The byte layouts are in `docs/formats/pedrokv.md`. A frame begins with its own length in two bytes, so no frame
//! is longer than [`FRAME_LEN_MAX`]. There is no handshake, and any number of requests may be in flight; a client
//! matches responses by id.
//!
//! This module reads and writes both directions, for servers and clients. Readers are stateless functions of the
//! bytes received so far: pass an incomplete frame again with the bytes that follow it.
//!
//! ```
//! use tierce_wire::pedrokv::{Kind, Request, Response, Status, Step};
//!
//! let mut sent = Vec::new();
//! Request { kind: Kind::Get, id: 7, key: b"hello", value: b"" }.write(&mut sent).unwrap();
//!
//! let Step::Frame { frame, len } = Request::read(&sent) else { panic!("it is whole") };
//! assert_eq!((frame.key, len), (&b"hello"[..], sent.len()));
//!
//! let mut answer = Vec::new();
//! Response { status: Status::Ok, id: frame.id, data: b"world" }.write(&mut answer).unwrap();
//! assert_eq!(answer, b"\x00\x0c\x00\x00\x00\x00\x07world");
//! ```

mod failure;
mod request;
mod response;

pub use failure::Failure;
pub use request::{Kind, Request, is_http};
pub use response::{Response, Status};

/// Longest frame; the limit of its length field.
pub const FRAME_LEN_MAX: usize = u16::MAX as usize;

/// The longest key.
pub const KEY_LEN_MAX: usize = u8::MAX as usize;

/// Longest data of a response.
pub const DATA_LEN_MAX: usize = FRAME_LEN_MAX - response::HEADER_LEN;

/// Returns the longest value of a request with a key of this length.
pub const fn value_len_max(key_len: usize) -> usize {
    (FRAME_LEN_MAX - request::HEADER_LEN).saturating_sub(key_len)
}

/// The next item of an input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step<T> {
    /// A whole frame.
    Frame {
        /// Parts of the frame, as slices of the input.
        frame: T,
        /// Length of the frame; the next one begins behind it.
        len: usize,
    },
    /// The frame is incomplete.
    NeedMore {
        /// Bytes that are missing at least; 0 if the input is empty.
        hint: usize,
    },
    /// The length contradicts the rest, so the start of the next frame is unknown; or this is an HTTP request.
    Broken,
}

impl<T> Step<T> {
    /// Converts the frame.
    pub fn map<U>(self, other: impl FnOnce(T) -> U) -> Step<U> {
        match self {
            Self::Frame { frame, len } => Step::Frame { frame: other(frame), len },
            Self::NeedMore { hint } => Step::NeedMore { hint },
            Self::Broken => Step::Broken,
        }
    }
}

/// Reason why a message cannot be sent in this protocol. Nothing of it has been written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TooLong {
    /// The length of a key takes one byte.
    #[error("a key of {len} bytes, and at most {KEY_LEN_MAX} are possible")]
    Key {
        /// Length of the key.
        len: usize,
    },
    /// The length of a frame takes two bytes.
    #[error("a frame of {len} bytes, and at most {FRAME_LEN_MAX} are possible")]
    Frame {
        /// Length of the frame, header included.
        len: usize,
    },
}

/// Returns the declared length of a frame, if that field has arrived.
#[inline]
fn announced_len(input: &[u8]) -> Option<usize> {
    input.first_chunk().map(|len| usize::from(u16::from_be_bytes(*len)))
}

/// Returns the step for a frame with an incomplete length field.
fn need_length<T>(input: &[u8]) -> Step<T> {
    Step::NeedMore { hint: if input.is_empty() { 0 } else { size_of::<u16>() - input.len() } }
}

/// Returns the length field of a frame.
#[inline]
fn length_field(header_len: usize, body_len: usize) -> Result<[u8; 2], TooLong> {
    let len = header_len.saturating_add(body_len);
    u16::try_from(len).map(u16::to_be_bytes).map_err(|_| TooLong::Frame { len })
}
