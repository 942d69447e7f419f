//! The examples in `docs/formats/resp.md` match the code.

use tierce_wire::resp::{Batch, DEPTH_MAX, Encoder, Limits, Parser, Proto, Status};

const DOCUMENT: &str = include_str!("../../../docs/formats/resp.md");

/// Returns the bytes of the hexadecimal blocks: on each line, those before the first gap.
fn examples() -> Vec<Vec<u8>> {
    let blocks = DOCUMENT.split("```hex\n").skip(1);
    let bytes = |line: &str| -> Vec<u8> {
        let digits = line.split("  ").next().unwrap_or_default();
        digits.split(' ').map(|byte| u8::from_str_radix(byte, 16).unwrap()).collect()
    };
    blocks
        .map(|block| block.split("```").next().unwrap().lines().flat_map(bytes).collect())
        .collect()
}

#[test]
fn the_example_is_what_is_parsed_and_encoded() {
    let examples = examples();
    let [input, replies] = &examples[..] else { panic!("{} examples", examples.len()) };
    let (mut parser, mut batch) = (Parser::new(), Batch::new());
    let parsed = parser.parse(input, &Limits::default(), 10, &mut batch);
    assert!(batch.get(0, input).iter().eq([&b"SET"[..], b"k", b"hi"]));
    assert!(batch.get(1, input).iter().eq([&b"GET"[..], b"k"]));
    assert_eq!((batch.len(), parsed.consumed, input.len()), (2, 37, 43));
    assert!(matches!(parsed.status, Status::NeedMore { .. }));

    let mut output = Vec::new();
    let mut encoder = Encoder::new(&mut output, Proto::Resp2);
    encoder.ok();
    encoder.bulk(b"hi");
    assert_eq!(&output, replies);
}

#[test]
fn limits_are_those_of_the_code() {
    let limits = Limits::default();
    for (what, limit) in [
        ("count", limits.max_multibulk_len),
        ("count before authentication", Limits::UNAUTHENTICATED_MULTIBULK_LEN_MAX),
        ("length", limits.max_bulk_len),
        ("length before authentication", Limits::UNAUTHENTICATED_BULK_LEN_MAX),
        ("bytes of an inline request", limits.max_inline_len),
        ("bytes of a count line", limits.max_inline_len),
        ("bytes of a length line", limits.max_inline_len),
        ("bytes of one request", u32::MAX as usize),
    ] {
        let row = format!("| {what} | {limit} ");
        assert!(DOCUMENT.contains(&row), "{row:?} is missing");
    }
    assert!(DOCUMENT.contains(&format!("nesting beyond {DEPTH_MAX} levels")));
}
