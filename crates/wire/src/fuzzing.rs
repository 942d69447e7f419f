//! Bodies of the fuzz targets. The targets in `fuzz/` pass a fuzzer's input, the test `fuzz_smoke` passes seeded
//! random bytes, so both run the same checks.
//!
//! Each function panics when a guarantee of this crate is violated. Not part of the crate's interface.

use std::fmt::{self, Write as _};

use crate::glob::{Case, matches};
use crate::memcached::{KEY_LEN_MAX, Limits as MemcachedLimits, base64, binary, meta, text};
use crate::number::{LongDouble, format_f64, parse_f64, parse_i64, parse_u64};
use crate::pedrokv::{self, FRAME_LEN_MAX};
use crate::resp::{
    AuthState, Batch, Limits, Parser, ProtocolError, ReplyDecoder, ReplyError, ReplyScanner,
    Status, Value,
};

/// Memory that parsing may take for each byte of input. The worst case is lines of one letter: two bytes for a
/// request of 12 and a span of 8, in vectors that are half empty.
const PARSE_MEMORY_FACTOR: usize = 32;

/// Memory that an empty batch may take at first.
const PARSE_MEMORY_BASE: usize = 4096;

/// Takes the first byte as parameters of the run, and the others as input.
fn split_parameters(data: &[u8]) -> (usize, &[u8]) {
    match data.split_first() {
        Some((&first, input)) => (usize::from(first), input),
        None => (0, data),
    }
}

/// Checks that the requests of an input do not depend on how it was split, and that their memory is bounded by a
/// multiple of the input.
pub fn resp_request(data: &[u8]) {
    let (parameters, input) = split_parameters(data);
    let limits = Limits {
        max_inline_len: if parameters & 1 == 0 { 64 * 1024 } else { 20 },
        auth: if parameters & 2 == 0 { AuthState::Granted } else { AuthState::Required },
        ..Limits::default()
    };
    let whole = parse_in_pieces(input, &limits, input.len().max(1), usize::MAX);
    let pieces = parse_in_pieces(input, &limits, 1 + parameters / 16, 1 + parameters % 5);
    assert_eq!(pieces, whole);
}

/// All arguments concatenated. A length precedes each argument, the number of arguments precedes each request. So a
/// fuzzer spends its time on parsing, not on vectors of vectors.
type Requests = (Vec<u8>, Result<usize, ProtocolError>);

fn parse_in_pieces(input: &[u8], limits: &Limits, piece: usize, max_requests: usize) -> Requests {
    let (mut parser, mut batch) = (Parser::new(), Batch::new());
    let (mut requests, mut consumed, mut arrived) = (Vec::new(), 0, 0);
    loop {
        let view = &input[consumed..arrived];
        let parsed = parser.parse(view, limits, max_requests, &mut batch);
        for args in batch.iter(view) {
            assert!(!args.is_empty(), "a request has a name");
            requests.extend(args.len().to_ne_bytes());
            for arg in args.iter() {
                requests.extend(arg.len().to_ne_bytes());
                requests.extend_from_slice(arg);
            }
        }
        assert!(batch.len() <= max_requests);
        let memory = parser.memory_bytes() + batch.memory_bytes();
        assert!(memory <= PARSE_MEMORY_BASE + PARSE_MEMORY_FACTOR * input.len(), "{memory} bytes");
        consumed += parsed.consumed;
        match parsed.status {
            Status::Error(error) => return (requests, Err(error)),
            Status::Full => {}
            Status::NeedMore { .. } if arrived == input.len() => return (requests, Ok(consumed)),
            Status::NeedMore { .. } => arrived = (arrived + piece).min(input.len()),
        }
    }
}

/// Checks that replies do not depend on how the input was split, and that the scanner counts them all.
pub fn resp_reply(data: &[u8]) {
    let (parameters, input) = split_parameters(data);
    let whole = decode_in_pieces(input, input.len().max(1));
    let pieces = decode_in_pieces(input, 1 + parameters);
    // Compared as text, since NaN does not equal itself.
    assert_eq!(format!("{pieces:?}"), format!("{whole:?}"));
    if let Ok(values) = whole {
        let pushes = values.iter().filter(|value| is_push(value)).count();
        let scanned = ReplyScanner::new().scan(input, usize::MAX).expect("it was decoded");
        assert_eq!((scanned.replies, scanned.pushes), (values.len() - pushes, pushes));
    }
}

fn is_push(value: &Value) -> bool {
    match value {
        Value::Push(_) => true,
        Value::Attributed { value, .. } => is_push(value),
        _ => false,
    }
}

fn decode_in_pieces(input: &[u8], piece: usize) -> Result<Vec<Value>, ReplyError> {
    let mut decoder = ReplyDecoder::new();
    let (mut values, mut consumed, mut arrived) = (Vec::new(), 0, 0);
    loop {
        while let Some((value, len)) = decoder.decode(&input[consumed..arrived])? {
            values.push(value);
            consumed += len;
        }
        if arrived == input.len() {
            return Ok(values);
        }
        arrived = (arrived + piece).min(input.len());
    }
}

/// Limits that a fuzzer can exceed.
const MEMCACHED_LIMITS: MemcachedLimits =
    MemcachedLimits { value_len_max: 40, keys_line_len_max: 4096 };

/// Adds a step to the text of all steps.
fn note(steps: &mut String, step: fmt::Arguments<'_>) {
    writeln!(steps, "{step}").expect("a string takes everything");
}

/// Checks that frames do not depend on how the input was split, and that their parts match the header.
pub fn memcached_binary(data: &[u8]) {
    let (parameters, input) = split_parameters(data);
    let whole = frames_in_pieces(input, input.len().max(1));
    assert_eq!(frames_in_pieces(input, 1 + parameters), whole);
}

fn frames_in_pieces(input: &[u8], piece: usize) -> (String, usize) {
    let mut parser = binary::Parser::default();
    let (mut steps, mut consumed, mut arrived) = (String::new(), 0, 0);
    loop {
        let (step, len) = parser.next(&input[consumed..arrived], &MEMCACHED_LIMITS);
        consumed += len;
        match step {
            binary::Step::Request(request) => {
                assert!(request.value.len() <= MEMCACHED_LIMITS.value_len_max);
                if request.operation().is_ok() {
                    assert!(request.key.len() <= KEY_LEN_MAX && request.extras.len() <= 20);
                }
                note(&mut steps, format_args!("{request:?} {:?}", request.operation()));
            }
            binary::Step::TooLarge(request) => {
                note(&mut steps, format_args!("too large: {request:?}"));
            }
            binary::Step::Broken { .. } | binary::Step::NoRequest => return (steps, consumed),
            binary::Step::NeedMore { .. } if arrived == input.len() => return (steps, consumed),
            binary::Step::NeedMore { hint } => {
                assert!(hint <= binary::HEADER_LEN + 255 + 65_535 + 40);
                arrived = (arrived + piece).min(input.len());
            }
        }
    }
}

/// Checks that commands do not depend on how the input was split.
pub fn memcached_text(data: &[u8]) {
    let (parameters, input) = split_parameters(data);
    let whole = lines_in_pieces(input, input.len().max(1));
    assert_eq!(lines_in_pieces(input, 1 + parameters), whole);
}

/// Does what [`memcached_text`] does, with a meta command in front. Also decodes keys in base64.
pub fn memcached_meta(data: &[u8]) {
    let (parameters, input) = split_parameters(data);
    let verb: &[u8] = [&b"mg "[..], b"ms ", b"md ", b"ma ", b"me "][parameters % 5];
    memcached_text(&[&[parameters as u8], verb, input].concat());
    let mut key = Vec::new();
    base64::encode(input, &mut key);
    let mut room = vec![0; base64::decoded_len_max(key.len())];
    assert_eq!(base64::decode(&key, &mut room).unwrap_or_default(), input);
}

fn lines_in_pieces(input: &[u8], piece: usize) -> (String, usize) {
    let mut parser = text::Parser::default();
    let (mut steps, mut consumed, mut arrived) = (String::new(), 0, 0);
    loop {
        let (step, len) = parser.next(&input[consumed..arrived], &MEMCACHED_LIMITS);
        consumed += len;
        match step {
            text::Step::Command(command) => {
                check_command(&command);
                note(&mut steps, format_args!("{command:?}"));
            }
            // The length at which a line is refused depends on how much of it has arrived.
            text::Step::Refused(refused) if refused.fatal.is_some() => return (steps, 0),
            text::Step::Refused(refused) => note(&mut steps, format_args!("{refused:?}")),
            text::Step::NeedMore { .. } if arrived == input.len() => return (steps, consumed),
            text::Step::NeedMore { .. } => arrived = (arrived + piece).min(input.len()),
        }
    }
}

fn check_command(command: &text::Command<'_>) {
    match command {
        text::Command::Get { keys, .. } => {
            assert!(keys.iter().all(|key| (1..=KEY_LEN_MAX).contains(&key.len())));
        }
        text::Command::Store(store) => {
            assert!(store.data.len() <= MEMCACHED_LIMITS.value_len_max);
            assert!((1..=KEY_LEN_MAX).contains(&store.key.len()));
        }
        text::Command::Meta(request) => {
            assert!((1..=KEY_LEN_MAX).contains(&request.key(&mut [0; KEY_LEN_MAX]).len()));
            if let meta::Verb::Set(data) = request.verb {
                assert!(data.len() <= MEMCACHED_LIMITS.value_len_max);
            }
            assert!(request.flags().count() < 20);
        }
        _ => {}
    }
}

/// Checks that requests and responses do not depend on how the input was split, and that writing a frame restores
/// its bytes.
pub fn pedrokv(data: &[u8]) {
    let (parameters, input) = split_parameters(data);
    let request = |input: &[u8], output: &mut Vec<u8>| {
        pedrokv::Request::read(input).map(|frame| frame.write(output).expect("it was read"))
    };
    let response = |input: &[u8], output: &mut Vec<u8>| {
        pedrokv::Response::read(input).map(|frame| frame.write(output).expect("it was read"))
    };
    let (whole, piece) = (input.len().max(1), 1 + parameters);
    assert_eq!(written_in_pieces(input, piece, request), written_in_pieces(input, whole, request));
    let written = written_in_pieces(input, whole, response);
    assert_eq!(written_in_pieces(input, piece, response), written);
}

/// Reads frames that arrive in pieces, writes them, and compares the result with the input. Returns the offset at
/// which that ended, and true if the rest is no frame.
fn written_in_pieces(
    input: &[u8],
    piece: usize,
    read: impl Fn(&[u8], &mut Vec<u8>) -> pedrokv::Step<()>,
) -> (usize, bool) {
    let (mut written, mut arrived) = (Vec::new(), 0);
    loop {
        let consumed = written.len();
        match read(&input[consumed..arrived], &mut written) {
            pedrokv::Step::Frame { len, .. } => {
                assert_eq!(written[consumed..], input[consumed..consumed + len]);
            }
            pedrokv::Step::Broken => return (consumed, true),
            pedrokv::Step::NeedMore { .. } if arrived == input.len() => return (consumed, false),
            pedrokv::Step::NeedMore { hint } => {
                assert!(arrived - consumed + hint <= FRAME_LEN_MAX);
                arrived = (arrived + piece).min(input.len());
            }
        }
    }
}

/// Checks that any pattern works with any text, and that one without special bytes matches only itself.
pub fn glob(data: &[u8]) {
    let (cut, rest) = split_parameters(data);
    let (pattern, text) = rest.split_at(cut.min(rest.len()));
    let sensitive = matches(pattern, text, Case::Sensitive);
    // Ignoring case never loses a match, except in classes.
    if sensitive && !pattern.contains(&b'[') {
        assert!(matches(pattern, text, Case::Ignored));
    }
    let literal: Vec<u8> = pattern.iter().flat_map(|&byte| [b'\\', byte]).collect();
    assert_eq!(matches(&literal, text, Case::Sensitive), pattern == text);
    let contained = text.windows(pattern.len().max(1)).any(|window| window == pattern);
    let somewhere = [b"*", &literal[..], b"*"].concat();
    assert_eq!(matches(&somewhere, text, Case::Sensitive), contained || pattern.is_empty());
}

/// Checks that a text that is read as a number is printed as the same number.
pub fn number(data: &[u8]) {
    let (cut, rest) = split_parameters(data);
    let (text, other) = rest.split_at(cut.min(rest.len()));
    if let Some(value) = parse_i64(text) {
        assert_eq!(value.to_string().as_bytes(), text);
        assert_eq!(LongDouble::parse(text), Some(LongDouble::from(value)));
    }
    if let Some(value) = parse_u64(text) {
        assert_eq!(value.to_string().as_bytes(), text);
    }
    if let Some(value) = parse_f64(text) {
        let printed = format_f64(value);
        assert_eq!(parse_f64(&printed).map(f64::to_bits), Some(value.to_bits()));
    }
    if let Some(value) = LongDouble::parse(text) {
        let printed = value.to_text();
        let read = LongDouble::parse(printed.as_bytes()).expect("its own text");
        assert_eq!(read.to_text(), printed);
        if let Some(other) = LongDouble::parse(other) {
            let sum = value.checked_add(other).map(LongDouble::to_text);
            assert_eq!(other.checked_add(value).map(LongDouble::to_text), sum);
        }
    }
}
