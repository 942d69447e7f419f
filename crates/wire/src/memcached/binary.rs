//! The binary protocol: frames of a 24-byte header, extras, key and value.
//!
//! All numbers are big-endian. The header determines the end of a frame, so an invalid request is refused and the
//! connection continues. Only contradictory lengths, or a first byte that begins no request, end it.

use super::{BINARY_MAGIC, KEY_LEN_MAX, Limits};

/// Bytes of a header.
pub const HEADER_LEN: usize = 24;

/// The first byte of a reply.
const REPLY_MAGIC: u8 = 0x81;

/// Expiry that tells increment and decrement not to create the key.
pub const DO_NOT_CREATE: u32 = u32::MAX;

/// Command numbers.
#[expect(missing_docs, reason = "the names are those of the protocol")]
pub mod opcode {
    pub const GET: u8 = 0x00;
    pub const SET: u8 = 0x01;
    pub const ADD: u8 = 0x02;
    pub const REPLACE: u8 = 0x03;
    pub const DELETE: u8 = 0x04;
    pub const INCREMENT: u8 = 0x05;
    pub const DECREMENT: u8 = 0x06;
    pub const QUIT: u8 = 0x07;
    pub const FLUSH: u8 = 0x08;
    pub const GETQ: u8 = 0x09;
    pub const NOOP: u8 = 0x0a;
    pub const VERSION: u8 = 0x0b;
    pub const GETK: u8 = 0x0c;
    pub const GETKQ: u8 = 0x0d;
    pub const APPEND: u8 = 0x0e;
    pub const PREPEND: u8 = 0x0f;
    pub const STAT: u8 = 0x10;
    pub const SETQ: u8 = 0x11;
    pub const ADDQ: u8 = 0x12;
    pub const REPLACEQ: u8 = 0x13;
    pub const DELETEQ: u8 = 0x14;
    pub const INCREMENTQ: u8 = 0x15;
    pub const DECREMENTQ: u8 = 0x16;
    pub const QUITQ: u8 = 0x17;
    pub const FLUSHQ: u8 = 0x18;
    pub const APPENDQ: u8 = 0x19;
    pub const PREPENDQ: u8 = 0x1a;
    pub const TOUCH: u8 = 0x1c;
    pub const GAT: u8 = 0x1d;
    pub const GATQ: u8 = 0x1e;
    pub const SASL_LIST: u8 = 0x20;
    pub const SASL_AUTH: u8 = 0x21;
    pub const SASL_STEP: u8 = 0x22;
    pub const GATK: u8 = 0x23;
    pub const GATKQ: u8 = 0x24;
}

/// Outcome of a request, as stated in its reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u16)]
#[expect(missing_docs, reason = "the texts are in the table below")]
pub enum Status {
    Ok = 0x00,
    NotFound = 0x01,
    Exists = 0x02,
    TooLarge = 0x03,
    InvalidArguments = 0x04,
    NotStored = 0x05,
    NotANumber = 0x06,
    AuthError = 0x20,
    UnknownCommand = 0x81,
    OutOfMemory = 0x82,
    NotSupported = 0x83,
    Internal = 0x84,
    Busy = 0x85,
    Temporary = 0x86,
}

impl Status {
    /// Returns the text that clients and people know it by.
    pub const fn text(self) -> &'static str {
        match self {
            Self::Ok => "",
            Self::NotFound => "Not found",
            Self::Exists => "Data exists for key.",
            Self::TooLarge => "Too large.",
            Self::InvalidArguments => "Invalid arguments",
            Self::NotStored => "Not stored.",
            Self::NotANumber => "Non-numeric server-side value for incr or decr",
            Self::AuthError => "Auth failure.",
            Self::UnknownCommand => "Unknown command",
            Self::OutOfMemory => "Out of memory",
            Self::NotSupported => "Not supported",
            Self::Internal => "Internal error",
            Self::Busy => "Busy",
            Self::Temporary => "Temporary failure",
        }
    }
}

/// A request; its parts are slices of the input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request<'a> {
    /// See [`opcode`].
    pub opcode: u8,
    /// Returned unchanged in the reply.
    pub opaque: u32,
    /// Version that the value must have; 0 for any.
    pub version: u64,
    /// Bytes between header and key.
    pub extras: &'a [u8],
    /// At most 65,535 bytes here; see [`Request::operation`].
    pub key: &'a [u8],
    /// Bytes behind the key.
    pub value: &'a [u8],
}

/// Reply policy for success.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loudness {
    /// Success gets a reply.
    Loud,
    /// Quiet: only errors get a reply, and reads that found something.
    Quiet,
}

/// Condition and manner of storing a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Store always.
    Set,
    /// Store if there is no value.
    Add,
    /// Store if there is a value.
    Replace,
    /// Append to the present value.
    Append,
    /// Prepend to the present value.
    Prepend,
}

/// Operation of a request, checked as far as possible without looking at data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "fields are named as in the protocol")]
pub enum Operation<'a> {
    /// GET and its variants; GAT if there is a touch.
    Get {
        with_key: bool,
        touch: Option<u32>,
    },
    Touch {
        expiry: u32,
    },
    /// SET, ADD, REPLACE.
    Store {
        mode: Mode,
        flags: u32,
        expiry: u32,
    },
    /// APPEND, PREPEND.
    Extend {
        mode: Mode,
    },
    Delete,
    Adjust {
        up: bool,
        delta: u64,
        initial: u64,
        expiry: u32,
    },
    Flush {
        delay: u32,
    },
    Noop,
    Version,
    Stat,
    Quit,
    SaslList,
    SaslAuth {
        mechanism: &'a [u8],
        message: &'a [u8],
    },
    SaslStep,
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..).and_then(|rest| rest.first_chunk()).map_or(0, |word| u32::from_be_bytes(*word))
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    bytes.get(at..).and_then(|rest| rest.first_chunk()).map_or(0, |word| u64::from_be_bytes(*word))
}

/// Key that requests of a command must have.
#[derive(PartialEq, Eq)]
enum Key {
    Needed,
    None,
    Free,
}

impl<'a> Request<'a> {
    /// Returns the reply policy for success.
    pub fn loudness(&self) -> Loudness {
        use opcode::*;
        match self.opcode {
            GETQ | GETKQ | GATQ | GATKQ | SETQ..=FLUSHQ | APPENDQ | PREPENDQ => Loudness::Quiet,
            _ => Loudness::Loud,
        }
    }

    /// Returns the operation.
    ///
    /// # Errors
    ///
    /// [`Status::UnknownCommand`], and [`Status::InvalidArguments`] if a part does not have the required length.
    // Always inlined, so that the match on the result merges with a match in the caller.
    #[inline(always)]
    pub fn operation(&self) -> Result<Operation<'a>, Status> {
        use Operation as Op;
        use opcode::*;
        let extras = self.extras;
        let (operation, extras_lens, key, takes_value): (_, &[usize], _, _) = match self.opcode {
            GET | GETQ => (Op::Get { with_key: false, touch: None }, &[0], Key::Needed, false),
            GETK | GETKQ => (Op::Get { with_key: true, touch: None }, &[0], Key::Needed, false),
            GAT | GATQ | GATK | GATKQ => {
                let with_key = self.opcode >= GATK;
                let touch = Some(u32_at(extras, 0));
                (Op::Get { with_key, touch }, &[4], Key::Needed, false)
            }
            TOUCH => (Op::Touch { expiry: u32_at(extras, 0) }, &[4], Key::Needed, false),
            SET | SETQ => (store(Mode::Set, extras), &[8], Key::Needed, true),
            ADD | ADDQ => (store(Mode::Add, extras), &[8], Key::Needed, true),
            REPLACE | REPLACEQ => (store(Mode::Replace, extras), &[8], Key::Needed, true),
            APPEND | APPENDQ => (Op::Extend { mode: Mode::Append }, &[0], Key::Needed, true),
            PREPEND | PREPENDQ => (Op::Extend { mode: Mode::Prepend }, &[0], Key::Needed, true),
            DELETE | DELETEQ => (Op::Delete, &[0], Key::Needed, false),
            INCREMENT | INCREMENTQ => (adjust(true, extras), &[20], Key::Needed, false),
            DECREMENT | DECREMENTQ => (adjust(false, extras), &[20], Key::Needed, false),
            FLUSH | FLUSHQ => (Op::Flush { delay: u32_at(extras, 0) }, &[0, 4], Key::None, false),
            NOOP => (Op::Noop, &[0], Key::None, false),
            VERSION => (Op::Version, &[0], Key::None, false),
            STAT => (Op::Stat, &[0], Key::Free, false),
            QUIT | QUITQ => (Op::Quit, &[0], Key::None, false),
            SASL_LIST => (Op::SaslList, &[0], Key::None, false),
            SASL_AUTH => {
                let auth = Op::SaslAuth { mechanism: self.key, message: self.value };
                (auth, &[0], Key::Needed, true)
            }
            SASL_STEP => (Op::SaslStep, &[0], Key::Needed, true),
            _ => return Err(Status::UnknownCommand),
        };
        let key_fits = match key {
            Key::Needed => (1..=KEY_LEN_MAX).contains(&self.key.len()),
            Key::None => self.key.is_empty(),
            Key::Free => self.key.len() <= KEY_LEN_MAX,
        };
        let fits = extras_lens.contains(&extras.len()) && (takes_value || self.value.is_empty());
        if key_fits && fits { Ok(operation) } else { Err(Status::InvalidArguments) }
    }
}

#[inline]
fn store<'a>(mode: Mode, extras: &[u8]) -> Operation<'a> {
    Operation::Store { mode, flags: u32_at(extras, 0), expiry: u32_at(extras, 4) }
}

fn adjust<'a>(up: bool, extras: &[u8]) -> Operation<'a> {
    let (delta, initial) = (u64_at(extras, 0), u64_at(extras, 8));
    Operation::Adjust { up, delta, initial, expiry: u32_at(extras, 16) }
}

/// The next item of an input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step<'a> {
    /// A whole request.
    Request(Request<'a>),
    /// A request with a value that exceeds the limit. The value is missing and will be skipped.
    TooLarge(Request<'a>),
    /// The request is incomplete: at least `hint` bytes are missing.
    NeedMore {
        /// Bytes that are missing for certain; 0 if that is unknown.
        hint: usize,
    },
    /// The lengths contradict each other. The connection cannot continue.
    Broken {
        /// Opaque of the request, for the last reply.
        opaque: u32,
        /// Opcode of the request.
        opcode: u8,
    },
    /// The input is no request. The connection cannot continue, and there is nothing to reply to.
    NoRequest,
}

/// Finds requests, one at a time.
#[derive(Clone, Debug, Default)]
pub struct Parser {
    /// Bytes of a discarded value that are still to be skipped.
    skip: usize,
}

impl Parser {
    /// Parses the request at the front of `input`, and returns how many bytes of the input are consumed.
    #[inline]
    pub fn next<'a>(&mut self, input: &'a [u8], limits: &Limits) -> (Step<'a>, usize) {
        let skipped = self.skip.min(input.len());
        self.skip -= skipped;
        let (step, len) = self.request(&input[skipped..], limits);
        (step, skipped + len)
    }

    #[inline]
    fn request<'a>(&mut self, input: &'a [u8], limits: &Limits) -> (Step<'a>, usize) {
        if input.first().is_some_and(|&magic| magic != BINARY_MAGIC) {
            return (Step::NoRequest, 0);
        }
        let Some((header, body)) = input.split_first_chunk::<HEADER_LEN>() else {
            // An input may end inside a skipped value.
            let hint = if input.is_empty() { 0 } else { HEADER_LEN - input.len() };
            return (Step::NeedMore { hint }, 0);
        };
        let opcode = header[1];
        let key_len = usize::from(u16::from_be_bytes([header[2], header[3]]));
        let extras_len = usize::from(header[4]);
        let body_len = u32_at(header, 8) as usize;
        let (opaque, version) = (u32_at(header, 12), u64_at(header, 16));
        let Some(value_len) = body_len.checked_sub(key_len + extras_len) else {
            return (Step::Broken { opaque, opcode }, 0);
        };
        let too_large = value_len > limits.value_len_max;
        let needed = if too_large { key_len + extras_len } else { body_len };
        if body.len() < needed {
            return (Step::NeedMore { hint: needed - body.len() }, 0);
        }
        let (extras, rest) = body[..needed].split_at(extras_len);
        let (key, value) = rest.split_at(key_len);
        let request = Request { opcode, opaque, version, extras, key, value };
        if too_large {
            self.skip = value_len;
            return (Step::TooLarge(request), HEADER_LEN + needed);
        }
        (Step::Request(request), HEADER_LEN + needed)
    }
}

/// Header fields of a reply, without lengths.
#[derive(Clone, Copy, Debug)]
pub struct Reply {
    /// Opcode of the request.
    pub opcode: u8,
    /// Outcome of the request.
    pub status: Status,
    /// Opaque of the request.
    pub opaque: u32,
    /// The version of the value; 0 without one.
    pub version: u64,
}

impl Reply {
    /// Appends the header of a reply whose parts have these lengths. Inlined, so that constant lengths cost
    /// nothing.
    #[inline(always)]
    pub fn header(&self, extras_len: usize, key_len: usize, value_len: usize, out: &mut Vec<u8>) {
        let mut header = [0; HEADER_LEN];
        header[0] = REPLY_MAGIC;
        header[1] = self.opcode;
        header[2..4].copy_from_slice(&(key_len as u16).to_be_bytes());
        header[4] = extras_len as u8;
        header[6..8].copy_from_slice(&(self.status as u16).to_be_bytes());
        let body_len = (extras_len + key_len + value_len) as u32;
        header[8..12].copy_from_slice(&body_len.to_be_bytes());
        header[12..16].copy_from_slice(&self.opaque.to_be_bytes());
        header[16..24].copy_from_slice(&self.version.to_be_bytes());
        out.extend_from_slice(&header);
    }

    /// Appends a whole reply.
    pub fn write(&self, extras: &[u8], key: &[u8], value: &[u8], out: &mut Vec<u8>) {
        self.header(extras.len(), key.len(), value.len(), out);
        out.extend_from_slice(extras);
        out.extend_from_slice(key);
        out.extend_from_slice(value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(input: &[u8]) -> Request<'_> {
        match Parser::default().next(input, &Limits::default()) {
            (Step::Request(request), len) if len == input.len() => request,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_length_that_is_claimed_is_not_waited_for() {
        let mut frame = vec![BINARY_MAGIC, opcode::SET, 0, 1, 8, 0, 0, 0, 0xff, 0xff, 0xff, 0xff];
        frame.extend([0; 12]);
        frame.extend([0; 8]);
        frame.push(b'k');
        let mut parser = Parser::default();
        let (step, len) = parser.next(&frame, &Limits::default());
        let Step::TooLarge(request) = step else { panic!("{step:?}") };
        assert_eq!((request.key, request.value.len(), len), (&b"k"[..], 0, frame.len()));
        // Four gigabytes later the next request begins.
        assert_eq!(parser.next(&[0; 100], &Limits::default()), (Step::NeedMore { hint: 0 }, 100));
        assert_eq!(parser.skip, u32::MAX as usize - 9 - 100);
        parser.skip = 1;
        let mut next = vec![7, BINARY_MAGIC, opcode::NOOP];
        next.extend([0; 22]);
        let (step, len) = parser.next(&next, &Limits::default());
        assert!(matches!(step, Step::Request(Request { opcode: opcode::NOOP, .. })), "{step:?}");
        assert_eq!(len, 25);
    }

    #[test]
    fn lengths_that_contradict_each_other_end_it() {
        let mut frame = vec![BINARY_MAGIC, opcode::GET, 0, 5, 0, 0, 0, 0, 0, 0, 0, 4, 1, 2, 3, 4];
        frame.extend([0; 8]);
        let broken = Step::Broken { opaque: 0x0102_0304, opcode: opcode::GET };
        assert_eq!(Parser::default().next(&frame, &Limits::default()), (broken, 0));
        let no_request = (Step::NoRequest, 0);
        assert_eq!(Parser::default().next(b"get k\r\n", &Limits::default()), no_request);
    }

    #[test]
    fn parts_must_have_the_lengths_of_their_command() {
        for (opcode, extras, key, value, fits) in [
            (opcode::GET, 0, 1, 0, true),
            (opcode::GET, 0, 0, 0, false),
            (opcode::GET, 0, 251, 0, false),
            (opcode::GET, 4, 1, 0, false),
            (opcode::GET, 0, 1, 1, false),
            (opcode::GAT, 4, 1, 0, true),
            (opcode::GAT, 0, 1, 0, false),
            (opcode::SET, 8, 250, 0, true),
            (opcode::SET, 4, 1, 1, false),
            (opcode::APPEND, 0, 1, 1, true),
            (opcode::APPEND, 8, 1, 1, false),
            (opcode::INCREMENT, 20, 1, 0, true),
            (opcode::INCREMENT, 19, 1, 0, false),
            (opcode::FLUSH, 0, 0, 0, true),
            (opcode::FLUSH, 4, 0, 0, true),
            (opcode::FLUSH, 2, 0, 0, false),
            (opcode::NOOP, 0, 1, 0, false),
            (opcode::STAT, 0, 5, 0, true),
            (opcode::STAT, 0, 0, 0, true),
        ] {
            let bytes = vec![b'x'; 300];
            let request = Request {
                opcode,
                opaque: 0,
                version: 0,
                extras: &bytes[..extras],
                key: &bytes[..key],
                value: &bytes[..value],
            };
            assert_eq!(request.operation().is_ok(), fits, "{opcode:#x} {extras} {key} {value}");
        }
        let frame = [[BINARY_MAGIC, opcode::NOOP].as_slice(), &[0; 22]].concat();
        let request = Request { opcode: 0x40, ..one(&frame) };
        assert_eq!(request.operation(), Err(Status::UnknownCommand));
    }
}
