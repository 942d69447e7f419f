//! The engine's view of a protocol: the ends of frames, and the request that each frame answers.

use memchr::memchr;
use tierce_wire::pedrokv::{Response, Step};
use tierce_wire::resp::{ReplyDecoder, ReplyScanner, Value};

use crate::error::Error;

/// A protocol's way to match answers to requests.
pub(crate) trait Framing: Send + 'static {
    /// True if answers come in the order of the requests. Otherwise they carry ids.
    const ORDERED: bool;

    /// Writes the id into a request. Does nothing if answers are ordered.
    fn set_id(request: &mut [u8], id: u32);

    /// Returns the answer at the front of `input`, or `None` if it is not complete. Input that was not consumed is
    /// passed again, followed by more. If answers are ordered, the next one consists of `replies` replies: 1 except
    /// for pipelines.
    fn next(&mut self, input: &[u8], replies: usize) -> Result<Option<Frame>, Error>;

    /// Forgets a half-read answer, because a new connection begins.
    fn reset(&mut self);
}

/// An answer in an input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Frame {
    /// Id of the request. Meaningless if answers are ordered.
    pub(crate) id: u32,
    /// Start of the answer. The bytes before it answer no request.
    pub(crate) start: usize,
    /// End of the answer.
    pub(crate) end: usize,
}

/// PedroKV's protocol: answers carry ids.
#[derive(Debug, Default)]
pub(crate) struct PedroKvFraming;

/// Offset of the id in a request.
const PEDROKV_ID_OFFSET: usize = 4;

impl Framing for PedroKvFraming {
    const ORDERED: bool = false;

    #[inline]
    fn set_id(request: &mut [u8], id: u32) {
        if let Some(field) =
            request.get_mut(PEDROKV_ID_OFFSET..PEDROKV_ID_OFFSET + size_of::<u32>())
        {
            field.copy_from_slice(&id.to_be_bytes());
        }
    }

    #[inline]
    fn next(&mut self, input: &[u8], _replies: usize) -> Result<Option<Frame>, Error> {
        match Response::read(input) {
            Step::Frame { frame, len } => Ok(Some(Frame { id: frame.id, start: 0, end: len })),
            Step::NeedMore { .. } => Ok(None),
            Step::Broken => Err(Error::Protocol("a frame contradicts its length".to_owned())),
        }
    }

    fn reset(&mut self) {}
}

/// RESP: answers are ordered, with pushes possibly in between.
#[derive(Debug, Default)]
pub(crate) struct RespFraming {
    scanner: ReplyScanner,
    /// Number of input bytes that the scanner has consumed.
    scanned: usize,
    /// Number of replies in these bytes.
    replies: usize,
    /// Number of pushes in these bytes.
    pushes: usize,
}

impl Framing for RespFraming {
    const ORDERED: bool = true;

    fn set_id(_request: &mut [u8], _id: u32) {}

    #[inline]
    fn next(&mut self, input: &[u8], replies: usize) -> Result<Option<Frame>, Error> {
        if self.scanned == 0
            && replies == 1
            && let Some(len) = short_string(input)
        {
            return Ok(Some(Frame { id: 0, start: 0, end: len }));
        }
        let unseen = input.get(self.scanned..).unwrap_or_default();
        let missing = replies.saturating_sub(self.replies);
        let scanned = self.scanner.scan(unseen, missing).map_err(protocol)?;
        self.scanned += scanned.consumed;
        self.pushes += scanned.pushes;
        self.replies += scanned.replies;
        if self.replies < replies {
            return Ok(None);
        }
        self.replies = 0;
        let end = std::mem::take(&mut self.scanned);
        let start = skip_pushes(&input[..end], std::mem::take(&mut self.pushes))?;
        Ok(Some(Frame { id: 0, start, end }))
    }

    fn reset(&mut self) {
        *self = RespFraming::default();
    }
}

/// Returns the length of the answer if it is a complete string of less than 1,000 bytes, like most answers to reads.
#[inline]
fn short_string(input: &[u8]) -> Option<usize> {
    let digits = input.strip_prefix(b"$")?;
    let digits_len = memchr(b'\r', &digits[..digits.len().min(4)])?;
    let mut len = 0;
    for digit in &digits[..digits_len] {
        match digit {
            b'0'..=b'9' => len = len * 10 + usize::from(digit - b'0'),
            _ => return None,
        }
    }
    // Unusual forms are left to the scanner.
    let is_canonical = digits_len > 0 && (digits[0] != b'0' || digits_len == 1);
    let data = 1 + digits_len + 2;
    let end = data + len + 2;
    let is_whole = input.get(data - 1) == Some(&b'\n') && input.get(end - 2..end) == Some(b"\r\n");
    (is_canonical && is_whole).then_some(end)
}

/// Returns the start of the first reply if the input has this many pushes. A push between the replies of a pipeline
/// stays; the caller that decodes them handles it.
fn skip_pushes(input: &[u8], pushes: usize) -> Result<usize, Error> {
    let mut start = 0;
    for _ in 0..pushes {
        let decoded = ReplyDecoder::new().decode(&input[start..]).map_err(protocol)?;
        match decoded {
            Some((Value::Push(_), len)) => start += len,
            _ => break,
        }
    }
    Ok(start)
}

fn protocol(error: tierce_wire::resp::ReplyError) -> Error {
    Error::Protocol(error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replies_are_found_behind_pushes_however_they_are_cut() {
        let input = b">2\r\n+a\r\n:1\r\n>1\r\n$1\r\nx\r\n$5\r\nhello\r\n*2\r\n:1\r\n$-1\r\n$0\r\n\r\n-E\r\n";
        let replies: [&[u8]; 4] =
            [b"$5\r\nhello\r\n", b"*2\r\n:1\r\n$-1\r\n", b"$0\r\n\r\n", b"-E\r\n"];
        for piece in 1..=input.len() {
            let (mut framing, mut found) = (RespFraming::default(), Vec::new());
            let (mut begin, mut end) = (0, 0);
            while end < input.len() {
                end = (end + piece).min(input.len());
                while let Some(frame) = framing.next(&input[begin..end], 1).unwrap() {
                    found.push(&input[begin + frame.start..begin + frame.end]);
                    begin += frame.end;
                }
            }
            assert_eq!(found, replies, "pieces of {piece}");
            assert_eq!(begin, input.len());
        }
    }

    #[test]
    fn the_replies_to_a_pipeline_are_one_answer() {
        let input = b"$1\r\na\r\n:1\r\n$1\r\nb\r\n+OK\r\n";
        for first in 1..input.len() {
            let mut framing = RespFraming::default();
            let early = framing.next(&input[..first], 3).unwrap();
            let frame = early.or_else(|| framing.next(input, 3).unwrap()).unwrap();
            assert_eq!((frame.start, frame.end), (0, 18), "first {first} bytes");
            assert_eq!(framing.next(&input[18..], 1).unwrap().unwrap().end, 5);
        }
    }

    #[test]
    fn the_short_way_agrees_with_the_scanner() {
        let inputs = [
            "$3\r\nabc\r\n",
            "$03\r\nabc\r\n",
            "$-1\r\n",
            "$\r\n",
            "$3\rxabc\r\n",
            "$3\r\nabcd\r\n",
            "$12\r\nabcdefghijkl\r\n",
        ];
        for input in inputs {
            let mut scanner = ReplyScanner::new();
            let scanned = scanner.scan(input.as_bytes(), 1);
            if let Some(len) = short_string(input.as_bytes()) {
                assert_eq!(scanned.unwrap().consumed, len, "{input:?}");
            }
        }
        assert_eq!(short_string(b"$3\r\nabc\r\n+OK\r\n"), Some(9));
        assert_eq!(short_string(b"$3\r\nabc\r"), None);
    }

    #[test]
    fn ids_are_written_where_the_protocol_has_them() {
        let mut request = *b"\x00\x0d\x05\x01\x00\x00\x00\x00hello";
        PedroKvFraming::set_id(&mut request, 0x0102_0304);
        assert_eq!(&request, b"\x00\x0d\x05\x01\x01\x02\x03\x04hello");
        let frame = PedroKvFraming.next(b"\x00\x07\x00\x00\x00\x00\x01\x00", 1).unwrap().unwrap();
        assert_eq!(frame, Frame { id: 1, start: 0, end: 7 });
        assert!(PedroKvFraming.next(b"\x00\x06\x00\x00", 1).is_err());
    }
}
