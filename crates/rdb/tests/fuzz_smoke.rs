//! A short run of every fuzz target on seeded random bytes, for machines without a fuzzer. A
//! failure prints the input; `TIERCE_SEED` chooses another run, `TIERCE_FUZZ_ROUNDS` a longer one.

use tierce_harness::effort;
use tierce_rdb::testing::{Field, Value, encode_command};
use tierce_rdb::{
    Consumer, Group, Pending, Stream, StreamEntry, StreamId, StreamState, WriterOptions, dump,
    functions, fuzzing,
};

const ROUNDS: u64 = 5_000;

/// Bytes with a meaning for at least one of the decoders.
const ALPHABET: &[u8] = b"\x00\x01\x02\x04\x05\x0b\x0f\x10\x12\x13\x15\x18\x40\x80\x81\xc0\xc3\xe0\
    \xf0\xf4\xf5\xf7\xfa\xfb\xfc\xfe\xff*$\r\n1#\"";

/// Chooses bytes.
struct Random(tierce_harness::Random);

impl Random {
    fn next(&mut self) -> u64 {
        self.0.next_u64()
    }

    fn below(&mut self, end: usize) -> usize {
        (self.next() % end as u64) as usize
    }

    fn byte(&mut self) -> u8 {
        match self.below(2) {
            0 => self.next() as u8,
            _ => ALPHABET[self.below(ALPHABET.len())],
        }
    }

    /// Returns one of the seeds with a few changes.
    fn input(&mut self, seeds: &[Vec<u8>]) -> Vec<u8> {
        let mut input = seeds[self.below(seeds.len())].clone();
        for _ in 0..1 + self.below(4) {
            self.mutate(&mut input);
        }
        input
    }

    fn mutate(&mut self, input: &mut Vec<u8>) {
        let at = self.below(input.len() + 1);
        match (self.below(6), at < input.len()) {
            (0..=2, true) => input[at] = self.byte(),
            (3, true) => {
                input.remove(at);
            }
            (4, _) => input.truncate(at),
            _ => input.insert(at, self.byte()),
        }
    }
}

/// Prints the input when a target panics.
struct Trace<'a>(&'a [u8]);

impl Drop for Trace<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("the input was b\"{}\"", self.0.escape_ascii());
        }
    }
}

fn run(target: fn(&[u8]), seeds: &[Vec<u8>], rounds: u64) {
    let seed = std::env::var("TIERCE_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(1);
    println!("TIERCE_SEED={seed}");
    seeds.iter().for_each(|seed| target(seed));
    let mut random = Random(tierce_harness::Random::new(seed));
    for _ in 0..effort(rounds) {
        let input = random.input(seeds);
        let _trace = Trace(&input);
        target(&input);
    }
}

/// Returns a value of each kind, packed and plain.
fn values() -> Vec<Value> {
    let bytes = |text: &str| text.as_bytes().to_vec();
    let field = |name: &str, expiry_ms| Field { name: bytes(name), value: bytes("v"), expiry_ms };
    let entry = |ms, name: &str| StreamEntry {
        id: StreamId { ms, seq: 1 },
        fields: vec![(name.as_bytes().into(), bytes("v")), (b"n"[..].into(), bytes("7"))],
    };
    let id = StreamId { ms: 5, seq: 1 };
    let pending = vec![Pending { id, delivered_ms: 7, deliveries: 2 }];
    let consumer = Consumer { name: bytes("ann"), seen_ms: 9, active_ms: Some(8), pending };
    let group = Group { name: bytes("g"), consumers: vec![consumer], ..Group::default() };
    vec![
        Value::String(bytes("a good year")),
        Value::String(bytes("-300")),
        Value::String(b"xyz".repeat(20)),
        Value::List(vec![bytes("a"), bytes("123456")]),
        Value::Set(vec![bytes("1"), bytes("-70000")]),
        Value::Set(vec![bytes("a"), bytes("5")]),
        Value::Set(vec![vec![b'l'; 70]]),
        Value::SortedSet(vec![(bytes("a"), 1.5), (bytes("b"), f64::INFINITY)]),
        Value::SortedSet(vec![(vec![b'l'; 70], -2.0)]),
        Value::Hash(vec![field("f", None), field("12", None)]),
        Value::Hash(vec![field("f", Some(1000)), field("g", None), field("h", Some(999))]),
        Value::Stream(Stream {
            entries: vec![entry(5, "a"), entry(6, "a"), entry(9, "b")],
            state: StreamState { last_id: id, entries_added: 4, ..StreamState::default() },
            groups: vec![group],
        }),
    ]
}

#[test]
fn rdb_file() {
    let mut seeds: Vec<Vec<u8>> =
        values().into_iter().map(|value| fuzzing::sample(&[value])).collect();
    seeds.push(fuzzing::sample(&values()));
    run(fuzzing::rdb_file, &seeds, ROUNDS);
}

#[test]
fn rdb_file_of_redis() {
    let seeds = [
        &include_bytes!("fixtures/redis-7.0.rdb")[..],
        &include_bytes!("fixtures/old-encodings.rdb")[..],
    ];
    run(fuzzing::rdb_file, &seeds.map(<[u8]>::to_vec), 60);
}

#[test]
fn dump_payload() {
    let payload = |value: &Value| {
        let options = WriterOptions { version: 12, ..WriterOptions::default() };
        let mut payload = dump::encode(options, |writer| value.write(writer)).unwrap();
        // The target adds version and checksum itself.
        payload.truncate(payload.len() - 10);
        payload
    };
    run(fuzzing::dump_payload, &values().iter().map(payload).collect::<Vec<_>>(), ROUNDS);
    // A group of a stream from before there was a field for the entries that it has read.
    fuzzing::dump_payload(&[0x0f, 0, 0, 0x12, 0, 1, 0, 0, 0, 0, 0]);
}

#[test]
fn functions_payload() {
    let library = b"#!lua name=l\nredis.register_function('f', function() return 1 end)";
    let repetitive = b"-- again ".repeat(30);
    let payload = |libraries: &[&[u8]]| {
        let mut payload =
            functions::encode(WriterOptions::default(), libraries.iter().copied()).unwrap();
        // The target adds version and checksum itself.
        payload.truncate(payload.len() - 10);
        payload
    };
    let seeds = [payload(&[]), payload(&[library]), payload(&[library, &repetitive, b""])];
    run(fuzzing::functions_payload, &seeds, ROUNDS);
}

#[test]
fn aof_file() {
    let mut commands = Vec::new();
    for command in [&["SET", "k", "v"][..], &["MULTI"], &["INCR", "n"], &["EXEC"], &["DEL", "k"]] {
        encode_command(command, &mut commands);
        commands.extend_from_slice(b"#TS:17\r\n");
    }
    let with_preamble = [fuzzing::sample(&values()[..2]), commands.clone()].concat();
    let manifest = b"file a.1.base.rdb seq 1 type b\nfile \"b\\x20\" seq 2 type i\n".to_vec();
    run(fuzzing::aof_file, &[commands, with_preamble, manifest], ROUNDS);
}
