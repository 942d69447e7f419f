//! Frames of PedroKV are those of the original, byte for byte, however they are split.

use proptest::prelude::*;
use tierce_harness::effort;
use tierce_wire::pedrokv::{
    DATA_LEN_MAX, FRAME_LEN_MAX, Failure, KEY_LEN_MAX, Kind, Request, Response, Status, Step,
    TooLong, value_len_max,
};

fn bytes(hex: &str) -> Vec<u8> {
    hex.split_whitespace().map(|byte| u8::from_str_radix(byte, 16).unwrap()).collect()
}

fn request<'a>(kind: Kind, id: u32, key: &'a [u8], value: &'a [u8]) -> Request<'a> {
    Request { kind, id, key, value }
}

fn written(request: &Request<'_>) -> Vec<u8> {
    let mut output = Vec::new();
    request.write(&mut output).unwrap();
    output
}

fn answered(response: &Response<'_>) -> Vec<u8> {
    let mut output = Vec::new();
    response.write(&mut output).unwrap();
    output
}

/// Reads all frames of an input that arrives in pieces. Returns them as text, and the outcome.
fn read_all<'a, T: std::fmt::Debug + 'a>(
    input: &'a [u8],
    piece: usize,
    read: fn(&'a [u8]) -> Step<T>,
) -> (Vec<String>, Result<usize, usize>) {
    let (mut frames, mut consumed, mut arrived) = (Vec::new(), 0, 0);
    loop {
        match read(&input[consumed..arrived]) {
            Step::Frame { frame, len } => {
                frames.push(format!("{frame:?}"));
                consumed += len;
            }
            Step::Broken => return (frames, Err(consumed)),
            Step::NeedMore { hint } => {
                assert_eq!(hint > 0, consumed < arrived);
                assert!(arrived - consumed + hint <= FRAME_LEN_MAX);
                if arrived == input.len() {
                    return (frames, Ok(consumed));
                }
                arrived = (arrived + piece).min(input.len());
            }
        }
    }
}

/// Requests and their bytes, printed by the original's own code.
fn requests() -> Vec<(Request<'static>, Vec<u8>)> {
    vec![
        (request(Kind::Get, 0, b"hello", b""), bytes("00 0d 05 01 00 00 00 00 68 65 6c 6c 6f")),
        (
            request(Kind::Put, 0, b"hello", b"world"),
            bytes("00 12 05 02 00 00 00 00 68 65 6c 6c 6f 77 6f 72 6c 64"),
        ),
        (
            request(Kind::Put, 1, b"hello", b"world"),
            bytes("00 12 05 02 00 00 00 01 68 65 6c 6c 6f 77 6f 72 6c 64"),
        ),
        (request(Kind::Delete, 2, b"hello", b""), bytes("00 0d 05 03 00 00 00 02 68 65 6c 6c 6f")),
        (
            request(Kind::Get, 0x0102_0304, b"hello", b""),
            bytes("00 0d 05 01 01 02 03 04 68 65 6c 6c 6f"),
        ),
        (request(Kind::Put, 7, b"k", b""), bytes("00 09 01 02 00 00 00 07 6b")),
    ]
}

fn responses() -> Vec<(Response<'static>, Vec<u8>)> {
    let failed = |id, failure: Failure| {
        let data = failure.text().as_bytes();
        Response { status: Status::Error, id, data }
    };
    let ok = |id, data| Response { status: Status::Ok, id, data };
    vec![
        (ok(0, b"world"), bytes("00 0c 00 00 00 00 00 77 6f 72 6c 64")),
        (ok(1, b""), bytes("00 07 00 00 00 00 01")),
        (ok(2, b""), bytes("00 07 00 00 00 00 02")),
        (
            failed(0, Failure::NotFound),
            bytes("00 15 01 00 00 00 00 65 72 72 3a 20 6e 6f 74 20 66 6f 75 6e 64"),
        ),
        (
            failed(0x0102_0304, Failure::NotFound),
            bytes("00 15 01 01 02 03 04 65 72 72 3a 20 6e 6f 74 20 66 6f 75 6e 64"),
        ),
        (
            failed(0, Failure::Corruption),
            bytes("00 16 01 00 00 00 00 65 72 72 3a 20 63 6f 72 72 75 70 74 69 6f 6e"),
        ),
        (
            failed(0, Failure::ServerClosed),
            bytes("00 14 01 00 00 00 00 73 65 72 76 65 72 20 63 6c 6f 73 65 64"),
        ),
    ]
}

#[test]
fn requests_have_the_bytes_of_the_original() {
    for (request, bytes) in requests() {
        assert_eq!(written(&request), bytes);
        let len = bytes.len();
        assert_eq!(Request::read(&bytes), Step::Frame { frame: request, len });
    }
}

#[test]
fn responses_have_the_bytes_of_the_original() {
    for (response, bytes) in responses() {
        assert_eq!(answered(&response), bytes);
        let len = bytes.len();
        assert_eq!(Response::read(&bytes), Step::Frame { frame: response, len });
    }
}

#[test]
fn frames_may_be_coalesced_and_cut_anywhere() {
    let input: Vec<u8> = requests().into_iter().flat_map(|(_, bytes)| bytes).collect();
    let expected = requests().iter().map(|(request, _)| format!("{request:?}")).collect();
    let expected = (expected, Ok(input.len()));
    for piece in 1..=input.len() {
        assert_eq!(read_all(&input, piece, Request::read), expected);
    }
    let input: Vec<u8> = responses().into_iter().flat_map(|(_, bytes)| bytes).collect();
    let expected = responses().iter().map(|(response, _)| format!("{response:?}")).collect();
    let expected = (expected, Ok(input.len()));
    for piece in 1..=input.len() {
        assert_eq!(read_all(&input, piece, Response::read), expected);
    }
}

#[test]
fn the_largest_frames_are_whole_and_larger_ones_refused() {
    let (key, value) = (vec![b'k'; KEY_LEN_MAX], vec![b'v'; value_len_max(KEY_LEN_MAX)]);
    let largest = request(Kind::Put, 9, &key, &value);
    let frame = written(&largest);
    assert_eq!((frame.len(), value.len()), (FRAME_LEN_MAX, 65_272));
    assert_eq!(frame[..8], bytes("ff ff ff 02 00 00 00 09"));
    assert_eq!(Request::read(&frame), Step::Frame { frame: largest, len: frame.len() });
    assert_eq!(Request::read(&frame[..frame.len() - 1]), Step::NeedMore { hint: 1 });

    let mut output = vec![1];
    let key = vec![0; 256];
    let result = request(Kind::Get, 0, &key, b"").write(&mut output);
    assert_eq!(result, Err(TooLong::Key { len: 256 }));
    let value = vec![0; value_len_max(1) + 1];
    let result = request(Kind::Put, 0, b"k", &value).write(&mut output);
    assert_eq!(result, Err(TooLong::Frame { len: 65_536 }));
    let data = vec![0; DATA_LEN_MAX + 1];
    let response = Response { status: Status::Ok, id: 0, data: &data };
    assert_eq!(response.write(&mut output), Err(TooLong::Frame { len: 65_536 }));
    assert_eq!(output, [1], "nothing is left of what was refused");
    let response = Response { data: &data[1..], ..response };
    assert_eq!(answered(&response).len(), FRAME_LEN_MAX);
}

#[test]
fn lengths_that_contradict_the_rest_are_broken_as_soon_as_that_is_known() {
    for len in 0..8 {
        assert_eq!(Request::read(&[0, len]), Step::Broken);
    }
    assert_eq!(Request::read(&bytes("00 09 ff")), Step::Broken);
    for line in ["POST / HTTP/1.1\r\n", "GET /k HTTP/1.0\r\n", "OPTIONS * HTTP/1.1\r\n"] {
        assert_eq!(Request::read(&line.as_bytes()[..8]), Step::Broken);
        assert_eq!(Request::read(line.repeat(4000).as_bytes()), Step::Broken);
    }
    assert_eq!(Request::read(&bytes("00 09 ff 01 00 00 00 00 6b")), Step::Broken);
    assert_eq!(Request::read(&bytes("00 0c 05 01 00 00 00 00 68 65 6c 6c 6f")), Step::Broken);
    for len in 0..7 {
        assert_eq!(Response::read(&[0, len]), Step::Broken);
    }
    assert_eq!(Response::read(&bytes("00 07 02")), Step::Broken);
    assert_eq!(Request::read(b""), Step::NeedMore { hint: 0 });
    assert_eq!(Request::read(&[0]), Step::NeedMore { hint: 1 });
    assert_eq!(Response::read(&[0]), Step::NeedMore { hint: 1 });
}

#[test]
fn unknown_kinds_are_whole_requests() {
    for code in [0, 4, 255] {
        let frame = [0, 9, 1, code, 0, 0, 0, 5, b'k'];
        let expected = request(Kind::Unknown(code), 5, b"k", b"");
        assert_eq!(Request::read(&frame), Step::Frame { frame: expected, len: 9 });
        assert_eq!(written(&expected), frame);
    }
}

#[test]
fn failures_are_known_by_their_texts() {
    for failure in Failure::ALL {
        assert_eq!(Failure::from_text(failure.text().as_bytes()), Some(failure));
    }
    assert_eq!(Failure::from_text(b"err: no such thing"), None);
}

#[test]
fn the_document_says_what_is_done() {
    let document = include_str!("../../../docs/formats/pedrokv.md");
    let blocks: Vec<Vec<u8>> = document
        .split("```hex\n")
        .skip(1)
        .map(|block| bytes(block.split("```").next().unwrap()))
        .collect();
    let [requests, responses] = &blocks[..] else { panic!("{} examples", blocks.len()) };
    let expected: Vec<u8> = [
        request(Kind::Put, 1, b"hello", b"world"),
        request(Kind::Get, 2, b"hello", b""),
        request(Kind::Delete, 3, b"hello", b""),
        request(Kind::Get, 0x0102_0304, b"k", b""),
    ]
    .iter()
    .flat_map(written)
    .collect();
    assert_eq!(*requests, expected);
    assert_eq!(read_all(responses, 5, Response::read).1, Ok(responses.len()));
    for (what, limit) in [
        ("bytes of a frame", FRAME_LEN_MAX),
        ("bytes of a key", KEY_LEN_MAX),
        ("bytes of a value", value_len_max(0)),
        ("bytes of data in a response", DATA_LEN_MAX),
    ] {
        let row = format!("| {what} | {limit} ");
        assert!(document.contains(&row), "{row:?} is missing");
    }
    for failure in Failure::ALL {
        assert!(document.contains(&format!("| `{}` |", failure.text())));
    }
}

fn some_bytes(len_max: usize) -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        8 => prop::collection::vec(any::<u8>(), 0..20),
        1 => (0..=len_max).prop_map(|len| vec![7; len]),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(effort(256)))]

    #[test]
    fn what_is_written_is_read(
        frames in prop::collection::vec(
            (any::<u8>(), any::<u32>(), some_bytes(KEY_LEN_MAX + 1), some_bytes(FRAME_LEN_MAX)),
            1..8,
        ),
        pieces in prop::collection::vec(1usize..200, 1..4),
    ) {
        let (mut input, mut expected) = (Vec::new(), Vec::new());
        let (mut answers, mut expected_answers) = (Vec::new(), Vec::new());
        for (code, id, key, value) in &frames {
            let request = request(Kind::from_code(*code), *id, key, value);
            let fits = key.len() <= KEY_LEN_MAX && value.len() <= value_len_max(key.len());
            prop_assert_eq!(request.write(&mut input).is_ok(), fits);
            if fits {
                expected.push(format!("{request:?}"));
            }
            let status = if code % 2 == 0 { Status::Ok } else { Status::Error };
            let response = Response { status, id: *id, data: value };
            let fits = value.len() <= DATA_LEN_MAX;
            prop_assert_eq!(response.write(&mut answers).is_ok(), fits);
            if fits {
                expected_answers.push(format!("{response:?}"));
            }
        }
        for piece in pieces {
            let all = read_all(&input, piece, Request::read);
            prop_assert_eq!(all, (expected.clone(), Ok(input.len())));
            let all = read_all(&answers, piece, Response::read);
            prop_assert_eq!(all, (expected_answers.clone(), Ok(answers.len())));
        }
    }
}
