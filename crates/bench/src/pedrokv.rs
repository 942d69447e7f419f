//! Requests and replies of PedroKV's protocol.
//!
//! If a server answers out of order, counts are right, but latencies are those of a connection, not of single
//! requests.

use tierce_wire::pedrokv::{Failure, Kind, Request as Frame, Response, Status, Step};

use crate::counted::Counted;
use crate::digits::DIGITS_LEN;
use crate::random::Random;
use crate::request::{Filling, Request};

/// The server sent something that is no response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NoResponse;

/// Encodes a request with zeros for digits, and an id that differs from those of its neighbours.
pub(crate) fn encode(kind: Kind, filling: &Filling<'_>, random: &mut Random) -> Request {
    let mut data = Request::default();
    if kind == Kind::Put {
        data.data(filling.data_size, random);
    }
    let mut key = Request::default();
    key.key(filling);
    let mut request = Request::default();
    let id = random.below(u64::from(u32::MAX)) as u32;
    let frame = Frame { kind, id, key: &key.bytes, value: &data.bytes };
    frame.write(&mut request.bytes).expect("lengths were checked when the load was planned");
    let key_at = request.bytes.len() - data.bytes.len() - DIGITS_LEN;
    request.keys.push(key_at);
    request
}

/// Counts in `input`, which begins with the bytes that the last call did not consume. An absent key is a null reply.
#[inline]
pub(crate) fn count(input: &[u8]) -> Result<Counted, NoResponse> {
    let mut counted = Counted::default();
    loop {
        match Response::read(&input[counted.consumed..]) {
            Step::Frame { frame, len } => {
                counted.consumed += len;
                counted.replies += 1;
                if frame.status == Status::Error {
                    count_error(&frame, &mut counted);
                }
            }
            Step::NeedMore { .. } => return Ok(counted),
            Step::Broken => return Err(NoResponse),
        }
    }
}

#[cold]
fn count_error(response: &Response<'_>, counted: &mut Counted) {
    if Failure::from_text(response.data) == Some(Failure::NotFound) {
        counted.nulls += 1;
        return;
    }
    counted.errors += 1;
    let text = || String::from_utf8_lossy(response.data).into_owned();
    counted.first_error.get_or_insert_with(text);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_have_their_key_where_they_say() {
        let filling = Filling { key_prefix: "key:", data_size: 3 };
        for (kind, value_len) in [(Kind::Get, 0), (Kind::Put, 3)] {
            let request = encode(kind, &filling, &mut Random::new(1));
            let Step::Frame { frame, len } = Frame::read(&request.bytes) else { panic!("whole") };
            assert_eq!(len, request.bytes.len());
            assert_eq!((frame.kind, frame.key), (kind, &b"key:000000000000"[..]));
            assert_eq!(frame.value.len(), value_len);
            let at = request.keys[0];
            assert_eq!(&request.bytes[at..at + DIGITS_LEN], b"000000000000");
        }
    }

    #[test]
    fn responses_are_counted_wherever_they_are_cut() {
        let mut input = Vec::new();
        for (status, data) in [
            (Status::Ok, &b"value"[..]),
            (Status::Error, b"err: not found"),
            (Status::Ok, b""),
            (Status::Error, b"err: io error"),
        ] {
            Response { status, id: 1, data }.write(&mut input).unwrap();
        }
        for cut in 0..input.len() {
            let first = count(&input[..cut]).unwrap();
            let second = count(&input[first.consumed..]).unwrap();
            assert_eq!(first.consumed + second.consumed, input.len());
            assert_eq!(first.replies + second.replies, 4);
            assert_eq!((first.nulls + second.nulls, first.errors + second.errors), (1, 1));
            let error = first.first_error.or(second.first_error);
            assert_eq!(error.as_deref(), Some("err: io error"));
        }
        assert_eq!(count(b"+OK\r\n"), Err(NoResponse));
    }
}
