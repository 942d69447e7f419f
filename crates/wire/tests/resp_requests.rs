//! Requests are parsed as Redis parses them, however the bytes are split.

use proptest::prelude::*;
use tierce_harness::effort;
use tierce_wire::resp::{AuthState, Batch, Limits, Parser, ProtocolError, Status};

type Request = Vec<Vec<u8>>;

/// Parses the whole input in one piece.
fn parse_whole(input: &[u8], limits: &Limits) -> (Vec<Request>, Result<usize, ProtocolError>) {
    let (mut parser, mut batch) = (Parser::new(), Batch::new());
    let (mut requests, mut consumed) = (Vec::new(), 0);
    loop {
        let input = &input[consumed..];
        let parsed = parser.parse(input, limits, usize::MAX, &mut batch);
        let owned = |args: tierce_wire::resp::Args<'_>| args.iter().map(<[u8]>::to_vec).collect();
        requests.extend(batch.iter(input).map(owned));
        consumed += parsed.consumed;
        match parsed.status {
            Status::NeedMore { .. } => return (requests, Ok(consumed)),
            Status::Full => assert!(!batch.is_empty(), "only behind a request"),
            Status::Error(error) => return (requests, Err(error)),
        }
    }
}

/// Parses an input that arrives in pieces of the given sizes, repeated, with at most `max_requests`
/// at once.
fn parse_pieces(
    input: &[u8],
    limits: &Limits,
    sizes: &[usize],
    max_requests: usize,
) -> (Vec<Request>, Result<usize, ProtocolError>) {
    let (mut parser, mut batch) = (Parser::new(), Batch::new());
    let mut requests = Vec::new();
    let mut consumed = 0;
    let mut arrived = 0;
    for size in sizes.iter().cycle() {
        arrived = (arrived + size).min(input.len());
        loop {
            let view = &input[consumed..arrived];
            let parsed = parser.parse(view, limits, max_requests, &mut batch);
            requests.extend(
                batch.iter(view).map(|args| args.iter().map(<[u8]>::to_vec).collect::<Request>()),
            );
            consumed += parsed.consumed;
            match parsed.status {
                Status::Error(error) => return (requests, Err(error)),
                Status::Full => {}
                Status::NeedMore { hint } => {
                    assert_eq!(hint > 0, parser.is_inside_request());
                    assert_eq!(hint > 0, consumed < arrived);
                    break;
                }
            }
        }
        if arrived == input.len() {
            return (requests, Ok(consumed));
        }
    }
    unreachable!("sizes are not empty")
}

#[track_caller]
fn check(input: &[u8], expected: &[&[&str]]) {
    let (requests, end) = parse_whole(input, &Limits::default());
    let expected: Vec<Request> = expected
        .iter()
        .map(|args| args.iter().map(|arg| arg.as_bytes().to_vec()).collect())
        .collect();
    assert_eq!(requests, expected);
    assert_eq!(end, Ok(input.len()));
}

#[track_caller]
fn check_error(limits: &Limits, input: &[u8], expected: &str) {
    let (requests, end) = parse_whole(input, limits);
    assert!(requests.is_empty(), "{requests:?}");
    assert_eq!(end.unwrap_err().to_string(), format!("Protocol error: {expected}"));
}

#[track_caller]
fn check_incomplete(input: &[u8], hint: usize) {
    let (mut parser, mut batch) = (Parser::new(), Batch::new());
    let parsed = parser.parse(input, &Limits::default(), 100, &mut batch);
    assert_eq!((parsed.consumed, parsed.status), (0, Status::NeedMore { hint }));
    assert!(batch.is_empty());
}

#[test]
fn arrays_of_bulk_strings_are_requests() {
    check(b"*1\r\n$4\r\nPING\r\n", &[&["PING"]]);
    check(
        b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$0\r\n\r\n*2\r\n$3\r\nGET\r\n$1\r\nk\r\n",
        &[&["SET", "k", ""], &["GET", "k"]],
    );
    let key = "k".repeat(99);
    let value = "v".repeat(12345);
    let input = format!("*3\r\n$3\r\nSET\r\n$99\r\n{key}\r\n$12345\r\n{value}\r\n");
    check(input.as_bytes(), &[&["SET", &key, &value]]);
    let many = format!("*{}\r\n{}", 1234, "$1\r\na\r\n".repeat(1234));
    check(many.as_bytes(), &[&["a"; 1234]]);
}

#[test]
fn line_feeds_and_ends_of_arguments_are_not_looked_at() {
    check(b"*1\rX$4\rYPINGZZ", &[&["PING"]]);
    check(b"*2\r\n$4\r\nECHO\r\n$1\r\nabc", &[&["ECHO", "a"]]);
}

#[test]
fn lines_are_requests() {
    check(b"PING\r\nSET key 'a b'\n", &[&["PING"], &["SET", "key", "a b"]]);
    check(b"ECHO \"\\x41\\n\"\r\n", &[&["ECHO", "A\n"]]);
    check(b"ECHO a\rb\r\r\n", &[&["ECHO", "a", "b"]]);
    check(b"PING\n*1\r\n$4\r\nPING\r\nPING\n", &[&["PING"], &["PING"], &["PING"]]);
}

#[test]
fn empty_requests_are_skipped() {
    check(b"", &[]);
    check(b"*0\r\n*-1\r\n*-9223372036854775808\r\n\r\n\n \t \r\nPING\r\n", &[&["PING"]]);
}

#[test]
fn malformed_requests_are_named_as_redis_names_them() {
    let check = |input: &[u8], expected| check_error(&Limits::default(), input, expected);
    for count in ["", "a", "1x", "01", "+1", " 1", "1 ", "-", "2147483648", "99999999999999999999"]
    {
        check(format!("*{count}\r\n").as_bytes(), "invalid multibulk length");
    }
    for len in ["", "a", "01", "+1", " 1", "1 ", "-1", "536870913", "99999999999999999999"] {
        check(format!("*1\r\n${len}\r\n").as_bytes(), "invalid bulk length");
    }
    check(b"*1\r\n:1\r\n", "expected '$', got ':'");
    check(b"*1\r\n\r\n", "expected '$', got ' '");
    check(b"*2\r\n$1\r\na\r\nb$1\r\nb\r\n", "expected '$', got 'b'");
    check(b"SET a \"b\r\n", "unbalanced quotes in request");
    check(b"SET 'a'b\r\n", "unbalanced quotes in request");
}

#[test]
fn malformed_requests_do_not_hide_what_came_before() {
    let (requests, end) = parse_whole(b"PING\r\n*1\r\n$1\r\na\r\n*x\r\n", &Limits::default());
    assert_eq!(requests, [[b"PING".to_vec()], [b"a".to_vec()]]);
    assert_eq!(end, Err(ProtocolError::InvalidMultibulkLength));
}

#[test]
fn the_kind_of_an_error_is_known_at_the_end_of_its_line_only() {
    check_incomplete(b"*", 1);
    check_incomplete(b"*x", 1);
    check_incomplete(b"*1\r", 1);
    check_incomplete(b"*1\r\n", 1);
    check_incomplete(b"*1\r\nxyz", 1);
    check_incomplete(b"*1\r\n$99999999999\r", 1);
    check_incomplete(b"'a", 1);
}

#[test]
fn a_known_length_is_a_hint() {
    check_incomplete(b"*1\r\n$4\r\n", 6);
    check_incomplete(b"*1\r\n$4\r\nPING\r", 1);
    check_incomplete(b"*2\r\n$4\r\nPING\r\n$536870912\r\nabc", 536870912 + 2 - 3);
}

#[test]
fn lines_have_a_limit() {
    let limits = Limits { max_inline_len: 20, ..Limits::default() };
    let check = |input, expected| check_error(&limits, input, expected);
    assert_eq!(parse_whole(b"ECHO 678901234567890\n", &limits).1, Ok(21));
    assert_eq!(parse_whole(b"ECHO 678901234567890", &limits).1, Ok(0));
    check(b"ECHO 6789012345678901", "too big inline request");
    check(b"ECHO 6789012345678901\n", "too big inline request");
    check(b"*2345678901234567890\r\n", "invalid multibulk length");
    let slack = Limits { line_slack: 2, ..limits };
    assert_eq!(parse_whole(b"ECHO 67890123456789012\n", &slack).1, Ok(23));
    check_error(&slack, b"ECHO 6789012345678901", "too big inline request");
    check_error(&slack, b"ECHO 678901234567890123\n", "too big inline request");
    check(b"*23456789012345678901\r\n", "too big mbulk count string");
    check(b"*1\r\n$23456789012345678901", "too big bulk count string");
    let limits = Limits::default();
    let digits = vec![b'1'; 70_000];
    check_error(&limits, &[b"*", &digits[..]].concat(), "too big mbulk count string");
    check_error(&limits, &[b"*1\r\n$", &digits[..]].concat(), "too big bulk count string");
    check_error(&limits, &digits, "too big inline request");
}

#[test]
fn strangers_may_send_little() {
    let limits = Limits { auth: AuthState::Required, ..Limits::default() };
    let ten = format!("*10\r\n{}", "$1\r\na\r\n".repeat(10));
    assert_eq!(parse_whole(ten.as_bytes(), &limits).0.len(), 1);
    check_error(&limits, b"*11\r\n", "unauthenticated multibulk length");
    check_error(&limits, b"*100\r\n", "unauthenticated multibulk length");
    check_error(&limits, b"*2147483648\r\n", "invalid multibulk length");
    let long = format!("*1\r\n$16384\r\n{}\r\n", "a".repeat(16384));
    assert_eq!(parse_whole(long.as_bytes(), &limits).0.len(), 1);
    check_error(&limits, b"*1\r\n$16385\r\n", "unauthenticated bulk length");
    check_error(&limits, b"*1\r\n$536870913\r\n", "invalid bulk length");
}

#[test]
fn small_limits_hold_for_short_lengths() {
    let limits = Limits { max_bulk_len: 5, max_multibulk_len: 2, ..Limits::default() };
    check_error(&limits, b"*3\r\n", "invalid multibulk length");
    check_error(&limits, b"*1\r\n$6\r\n", "invalid bulk length");
    assert_eq!(parse_whole(b"*2\r\n$5\r\nabcde\r\n$0\r\n\r\n", &limits).0.len(), 1);
}

#[test]
fn a_batch_ends_where_asked() {
    let input = b"PING\r\n*1\r\n$1\r\na\r\nPING\r\n";
    let (mut parser, mut batch) = (Parser::new(), Batch::new());
    let parsed = parser.parse(input, &Limits::default(), 2, &mut batch);
    assert_eq!(parsed.status, Status::Full);
    assert_eq!((batch.len(), parsed.consumed), (2, 17));
    assert_eq!((batch.end(0), batch.end(1)), (6, 17));
    let parsed = parser.parse(&input[17..], &Limits::default(), 2, &mut batch);
    assert_eq!((batch.len(), parsed.consumed), (1, 6));
    assert_eq!(parsed.status, Status::NeedMore { hint: 0 });
}

#[test]
fn a_batch_ends_before_a_request_without_arguments() {
    let input = b"\r\n*0\r\nPING\r\n*-1\r\n  \r\nPING\r\nPING\r\n\r\n";
    let (mut parser, mut batch) = (Parser::new(), Batch::new());
    let (mut at, mut batches) = (0, Vec::new());
    loop {
        let parsed = parser.parse(&input[at..], &Limits::default(), 9, &mut batch);
        at += parsed.consumed;
        batches.push((batch.len(), batch.follows_empty()));
        match parsed.status {
            Status::Full => {}
            status => break assert_eq!(status, Status::NeedMore { hint: 0 }),
        }
    }
    assert_eq!((batches, at), (vec![(1, true), (2, true), (0, true)], input.len()));
}

#[test]
fn a_rewound_parser_reads_a_request_again() {
    let input = b"*1\r\n$1\r\na\r\n*2\r\n$1\r\nb\r\n$1\r\nc\r\n*2\r\n$1\r\nd\r\n$5";
    let (mut parser, mut batch) = (Parser::new(), Batch::new());
    parser.parse(input, &Limits::default(), 10, &mut batch);
    assert!(parser.is_inside_request());
    assert_eq!(batch.len(), 2);
    let rest = &input[batch.end(0)..];
    parser.rewind();
    parser.parse(rest, &Limits::default(), 10, &mut batch);
    assert_eq!(batch.len(), 1);
    assert_eq!(&batch.get(0, rest)[1], b"c");
}

/// Empty arguments in reads of 16 KiB: memory grows with received bytes, not with the count, and is
/// freed.
#[test]
fn a_million_arguments_cost_their_spans_only() {
    const COUNT: usize = 1_000_000;
    let mut input = format!("*{COUNT}\r\n").into_bytes();
    input.extend(b"$0\r\n\r\n".repeat(COUNT));
    let (mut parser, mut batch) = (Parser::new(), Batch::new());
    let limits = Limits::default();
    for arrived in (10..input.len()).step_by(16 * 1024) {
        let parsed = parser.parse(&input[..arrived], &limits, 10, &mut batch);
        assert_eq!(parsed.consumed, 0);
        assert!(parser.memory_bytes() <= 3 * arrived, "doubled spans of 8 bytes for each 6");
        assert!(batch.memory_bytes() < 1 << 20);
    }
    let parsed = parser.parse(&input, &limits, 10, &mut batch);
    assert_eq!((parsed.consumed, batch.get(0, &input).len()), (input.len(), COUNT));
    assert_eq!(parser.memory_bytes(), 0);
    parser.parse(b"PING\r\n", &limits, 10, &mut batch);
    assert!(batch.memory_bytes() < 1 << 20, "a large request leaves nothing behind");
}

#[test]
fn claims_reserve_nothing() {
    let (mut parser, mut batch) = (Parser::new(), Batch::new());
    parser.parse(b"*2147483647\r\n$536870912\r\n", &Limits::default(), 10, &mut batch);
    assert!(parser.memory_bytes() + batch.memory_bytes() < 1024);
}

/// Requests and near-requests: valid pieces, each followed by one that may be invalid.
fn stream() -> impl Strategy<Value = Vec<u8>> {
    let word = prop_oneof![
        // Names that make many requests begin alike.
        3 => "GET|SET|get|G|STRLEN|STRLEN7".prop_map(String::into_bytes),
        1 => "[a-z]{0,12}".prop_map(String::into_bytes),
        1 => proptest::collection::vec(any::<u8>(), 0..120),
        1 => Just(vec![b'v'; 1000]),
    ];
    let multibulk = proptest::collection::vec(word, 1..5).prop_map(|args| {
        let mut bytes = format!("*{}\r\n", args.len()).into_bytes();
        for arg in args {
            bytes.extend(format!("${}\r\n", arg.len()).bytes());
            bytes.extend(arg);
            bytes.extend(b"\r\n");
        }
        bytes
    });
    let inline = "[ a-c\"'\\\\x4]{0,10}\r?\n".prop_map(String::into_bytes);
    let debris = prop_oneof![
        "[*$][-0-9]{0,3}\r\n".prop_map(String::into_bytes),
        "[*$\r\n0-9a ]{0,6}".prop_map(String::into_bytes),
        proptest::collection::vec(any::<u8>(), 0..4),
        Just(b"*0\r\n".to_vec()),
    ];
    let piece = prop_oneof![8 => multibulk, 3 => inline, 1 => debris];
    proptest::collection::vec(piece, 0..12).prop_map(|pieces| pieces.concat())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(effort(256)))]

    #[test]
    fn cuts_change_nothing(
        input in stream(),
        sizes in proptest::collection::vec(1..40usize, 1..6),
        max_requests in 1..6usize,
        line_max in prop_oneof![Just(64 * 1024), 0..40usize],
        auth in prop_oneof![Just(AuthState::Granted), Just(AuthState::Required)],
    ) {
        let limits = Limits { max_inline_len: line_max, auth, ..Limits::default() };
        let whole = parse_whole(&input, &limits);
        prop_assert_eq!(&parse_pieces(&input, &limits, &sizes, max_requests), &whole);
        prop_assert_eq!(&parse_pieces(&input, &limits, &[1], usize::MAX), &whole);
    }
}
