//! The decoder reads the encoder's output, however the bytes are split; the scanner counts the same
//! values.

use proptest::prelude::*;
use tierce_harness::effort;
use tierce_wire::resp::{
    DEPTH_MAX, Encoder, Proto, ReplyDecoder, ReplyError, ReplyScanner, Scanned, Value,
};

/// Decodes all values of an input that arrives in pieces of the given sizes.
fn decode_pieces(input: &[u8], sizes: &[usize]) -> Result<Vec<Value>, ReplyError> {
    let mut decoder = ReplyDecoder::new();
    let mut values = Vec::new();
    let (mut consumed, mut arrived) = (0, 0);
    for size in sizes.iter().cycle() {
        arrived = (arrived + size).min(input.len());
        loop {
            let rest = &input[consumed..arrived];
            // Asking for the length before changes nothing.
            let known = (size % 2 == 0).then(|| decoder.reply_len(rest)).transpose()?;
            let decoded = decoder.decode(rest)?;
            assert!(known.is_none_or(|known| known == decoded.as_ref().map(|(_, len)| *len)));
            let Some((value, len)) = decoded else { break };
            values.push(value);
            consumed += len;
        }
        if arrived == input.len() {
            return Ok(values);
        }
    }
    unreachable!("sizes are not empty")
}

fn decode(input: &[u8]) -> Result<Vec<Value>, ReplyError> {
    decode_pieces(input, &[input.len().max(1)])
}

/// Scans an input in pieces of the given sizes; no byte is passed twice.
fn scan_pieces(input: &[u8], sizes: &[usize]) -> Result<Scanned, ReplyError> {
    let mut scanner = ReplyScanner::new();
    let mut total = Scanned::default();
    let mut arrived = 0;
    for size in sizes.iter().cycle() {
        arrived = (arrived + size).min(input.len());
        let scanned = scanner.scan(&input[total.consumed..arrived], usize::MAX)?;
        total.consumed += scanned.consumed;
        total.replies += scanned.replies;
        total.errors += scanned.errors;
        total.nulls += scanned.nulls;
        total.pushes += scanned.pushes;
        if arrived == input.len() {
            return Ok(total);
        }
    }
    unreachable!("sizes are not empty")
}

/// Returns the counts that a scanner should return for these values.
fn count(values: &[Value]) -> (usize, usize, usize, usize) {
    let mut counts = (0, 0, 0, 0);
    for value in values {
        let value = match value {
            Value::Attributed { value, .. } => value,
            value => value,
        };
        match value {
            Value::Push(_) => counts.3 += 1,
            _ => counts.0 += 1,
        }
        counts.1 += usize::from(value.is_error());
        counts.2 += usize::from(*value == Value::Null);
    }
    counts
}

fn encode(value: &Value, encoder: &mut Encoder<'_>) {
    let pairs = |pairs: &[(Value, Value)], encoder: &mut Encoder<'_>| {
        for (key, value) in pairs {
            encode(key, encoder);
            encode(value, encoder);
        }
    };
    match value {
        Value::Simple(text) => encoder.simple(std::str::from_utf8(text).unwrap()),
        Value::Error(text) => encoder.error(text),
        Value::Int(value) => encoder.int(*value),
        Value::Bulk(bytes) => encoder.bulk(bytes),
        Value::Null => encoder.null(),
        Value::Double(value) => encoder.double(*value),
        Value::Bool(value) => encoder.boolean(*value),
        Value::BigNumber(digits) => encoder.big_number(std::str::from_utf8(digits).unwrap()),
        Value::Verbatim { format, text } => encoder.verbatim(format, text),
        Value::Array(values) => {
            encoder.array(values.len());
            values.iter().for_each(|value| encode(value, encoder));
        }
        Value::Set(values) => {
            encoder.set(values.len());
            values.iter().for_each(|value| encode(value, encoder));
        }
        Value::Push(values) => {
            encoder.push(values.len());
            values.iter().for_each(|value| encode(value, encoder));
        }
        Value::Map(entries) => {
            encoder.map(entries.len());
            pairs(entries, encoder);
        }
        Value::Attributed { attributes, value } => {
            encoder.attribute(attributes.len(), |encoder| pairs(attributes, encoder));
            encode(value, encoder);
        }
    }
}

fn value() -> impl Strategy<Value = Value> {
    let bytes = || proptest::collection::vec(any::<u8>(), 0..40);
    let leaf = prop_oneof![
        "[ -~]{0,12}".prop_map(|text| Value::Simple(text.into_bytes())),
        "ERR [ -~]{0,12}".prop_map(|text| Value::Error(text.into_bytes())),
        any::<i64>().prop_map(Value::Int),
        (-120i64..120).prop_map(Value::Int),
        bytes().prop_map(Value::Bulk),
        Just(Value::Bulk(vec![b'\r'; 150])),
        Just(Value::Null),
        proptest::num::f64::ANY
            .prop_filter("equal to itself", |v| !v.is_nan())
            .prop_map(Value::Double),
        any::<bool>().prop_map(Value::Bool),
        "-?[0-9]{1,40}".prop_map(|digits| Value::BigNumber(digits.into_bytes())),
        bytes().prop_map(|text| Value::Verbatim { format: *b"txt", text }),
    ];
    let nested = leaf.prop_recursive(3, 24, 5, |inner| {
        let values = || proptest::collection::vec(inner.clone(), 0..5);
        let pairs = || proptest::collection::vec((inner.clone(), inner.clone()), 0..4);
        prop_oneof![
            values().prop_map(Value::Array),
            values().prop_map(Value::Set),
            pairs().prop_map(Value::Map),
        ]
    });
    let pairs = proptest::collection::vec((nested.clone(), nested.clone()), 0..3);
    prop_oneof![
        8 => nested.clone(),
        1 => proptest::collection::vec(nested.clone(), 0..4).prop_map(Value::Push),
        1 => (pairs, nested).prop_map(|(attributes, value)| {
            Value::Attributed { attributes, value: Box::new(value) }
        }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(effort(256)))]

    #[test]
    fn what_is_encoded_is_decoded(
        values in proptest::collection::vec(value(), 0..6),
        sizes in proptest::collection::vec(1..50usize, 1..5),
    ) {
        let mut bytes = Vec::new();
        for value in &values {
            encode(value, &mut Encoder::new(&mut bytes, Proto::Resp3));
        }
        prop_assert_eq!(&decode_pieces(&bytes, &sizes).unwrap(), &values);
        let scanned = scan_pieces(&bytes, &sizes).unwrap();
        prop_assert_eq!(scanned.consumed, bytes.len());
        let counts = (scanned.replies, scanned.errors, scanned.nulls, scanned.pushes);
        prop_assert_eq!(counts, count(&values));
    }

    #[test]
    fn version_2_is_decoded_too(values in proptest::collection::vec(value(), 0..6)) {
        let mut bytes = Vec::new();
        for value in &values {
            encode(value, &mut Encoder::new(&mut bytes, Proto::Resp2));
        }
        prop_assert_eq!(decode(&bytes).unwrap().len(), values.len());
        prop_assert_eq!(scan_pieces(&bytes, &[7]).unwrap().replies, values.len());
    }

    #[test]
    fn debris_is_refused_or_waited_for(
        input in r"[-+:$*_,#(!=%~|>;.?0-9a\r\n]{0,60}",
        sizes in proptest::collection::vec(1..9usize, 1..5),
    ) {
        let whole = decode(input.as_bytes());
        prop_assert_eq!(decode_pieces(input.as_bytes(), &sizes), whole);
    }
}

#[test]
fn strings_end_where_they_said() {
    assert_eq!(decode(b"$2\r\nabc\r\n"), Err(ReplyError::CrlfMissing));
    assert_eq!(decode(b"$2\r\nab\r\n"), Ok(vec![Value::Bulk(b"ab".to_vec())]));
    assert_eq!(decode(b"=2\r\nab\r\n"), Err(ReplyError::MalformedLine { of: b'=' }));
    assert_eq!(decode(b"!5\r\nERR x\r\n"), Ok(vec![Value::Error(b"ERR x".to_vec())]));
}

#[test]
fn nesting_has_a_limit() {
    let nested = |depth: usize| "*1\r\n".repeat(depth) + "_\r\n";
    assert!(decode(nested(DEPTH_MAX).as_bytes()).is_ok());
    assert_eq!(decode(nested(DEPTH_MAX + 1).as_bytes()), Err(ReplyError::TooDeep));
    let deep = nested(1_000_000);
    assert_eq!(scan_pieces(deep.as_bytes(), &[4096]).unwrap().replies, 1);
}

#[test]
fn announcements_reserve_nothing() {
    assert_eq!(decode(b"*9223372036854775807\r\n"), Ok(vec![]));
    assert_eq!(decode(b"%9223372036854775807\r\n+OK\r\n"), Ok(vec![]));
    let too_many = b"*9223372036854775807\r\n".repeat(3);
    assert_eq!(decode(&too_many), Err(ReplyError::TooManyValues));
    assert_eq!(decode(b"$9223372036854775807\r\n"), Ok(vec![]));
}

#[test]
fn a_scanner_stops_where_asked() {
    let mut scanner = ReplyScanner::new();
    let input = b"+OK\r\n$-1\r\n-ERR x\r\n>1\r\n:1\r\n:2\r\n";
    let scanned = scanner.scan(input, 3).unwrap();
    assert_eq!(scanned, Scanned { consumed: 18, replies: 3, errors: 1, nulls: 1, pushes: 0 });
    let scanned = scanner.scan(&input[18..], 9).unwrap();
    assert_eq!(scanned, Scanned { consumed: 12, replies: 1, pushes: 1, ..Scanned::default() });
    assert!(!scanner.is_inside_reply());
    scanner.scan(b"*2\r\n:1\r\n", 1).unwrap();
    assert!(scanner.is_inside_reply());
}
