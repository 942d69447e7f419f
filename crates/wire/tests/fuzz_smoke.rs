//! A short run of every fuzz target on seeded random bytes, for machines without a fuzzer. A
//! failure prints the input; `TIERCE_SEED` chooses another run, `TIERCE_FUZZ_ROUNDS` a longer one.

use tierce_harness::effort;
use tierce_wire::fuzzing;

const ROUNDS: u64 = 20_000;

/// Longest generated input that is not based on a seed.
const INPUT_LEN_MAX: u64 = 64;

/// Bytes with a meaning for at least one of the decoders.
const ALPHABET: &[u8] =
    b"*$:+-_#,!=%~|>(\r\n\r\n0123456789.eExinfa'\"\\[]^?tz \x80\0\0\0gmskvqTNRMCIb";

/// Chooses bytes.
struct Random(tierce_harness::Random);

impl Random {
    fn next(&mut self) -> u64 {
        self.0.next_u64()
    }

    fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    fn byte(&mut self) -> u8 {
        match self.below(4) {
            0 => self.next() as u8,
            _ => ALPHABET[self.below(ALPHABET.len() as u64) as usize],
        }
    }

    /// Returns a new input, or one of `seeds` with a few changes.
    fn input(&mut self, seeds: &[&[u8]]) -> Vec<u8> {
        let chosen = self.below(seeds.len() as u64 + 1) as usize;
        let mut input = vec![self.next() as u8];
        match seeds.get(chosen) {
            Some(seed) => input.extend_from_slice(seed),
            None => {
                let len = self.below(INPUT_LEN_MAX);
                input.extend((0..len).map(|_| self.byte()));
            }
        }
        for _ in 0..self.below(5) {
            self.mutate(&mut input);
        }
        input
    }

    fn mutate(&mut self, input: &mut Vec<u8>) {
        let at = self.below(input.len() as u64 + 1) as usize;
        match (self.below(4), at < input.len()) {
            (0, true) => input[at] = self.byte(),
            (1, true) => {
                input.remove(at);
            }
            (2, _) => {
                let tail = input[at..].to_vec();
                input.extend(tail);
            }
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

fn run(target: fn(&[u8]), seeds: &[&[u8]]) {
    let seed = std::env::var("TIERCE_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(1);
    let rounds = effort(ROUNDS);
    println!("TIERCE_SEED={seed}");
    let mut random = Random(tierce_harness::Random::new(seed));
    for _ in 0..rounds {
        let input = random.input(seeds);
        let _trace = Trace(&input);
        target(&input);
    }
}

#[test]
fn resp_request() {
    run(fuzzing::resp_request, &[
        b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$12\r\nvalue\r\nvalue\r\n*2\r\n$3\r\nGET\r\n$1\r\nk\r\n",
        b"*0\r\n*-1\r\n\r\nPING\r\nSET k \"a\\x41\\n\" 'b\\''\nGET k\n",
        b"*12\r\n$1\r\na\r\n$1\r\na\r\n$1\r\na\r\n$1\r\na\r\n$1\r\na\r\n$1\r\na\r\n",
        b"*2147483647\r\n$536870912\r\nabc",
    ]);
}

#[test]
fn resp_reply() {
    run(fuzzing::resp_reply, &[
        b"+OK\r\n-ERR no\r\n:12\r\n$5\r\nab\r\nc\r\n$-1\r\n*-1\r\n_\r\n",
        b"*3\r\n%1\r\n+a\r\n:1\r\n~2\r\n#t\r\n#f\r\n,1.5\r\n>2\r\n+x\r\n(123456789012345678901\r\n",
        b"|1\r\n+ttl\r\n:3600\r\n*2\r\n=7\r\ntxt:abc\r\n!5\r\nERR x\r\n$?\r\n",
        b"*9223372036854775807\r\n*2\r\n$9223372036854775807\r\n",
        b"+\r\n\r\n;",
    ]);
}

#[test]
fn memcached_binary() {
    run(fuzzing::memcached_binary, &[
        b"\x80\x01\0\x05\x08\0\0\0\0\0\0\x12\xde\xad\xbe\xef\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0helloworld",
        b"\x80\0\0\x05\0\0\0\0\0\0\0\x05\xde\xad\xbe\xef\0\0\0\0\0\0\0\0hello",
        b"\x80\x05\0\x01\x14\0\0\0\0\0\0\x15\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x01\0\0\0\0\0\0\0\x0a\0\0\0\0n",
        b"\x80\x0a\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0",
    ]);
}

#[test]
fn memcached_text() {
    run(
        fuzzing::memcached_text,
        &[
            b"set k 5 60 3 noreply\r\na\nb\r\nget k other\r\ngats 0 k\r\n",
            b"cas k 0 0 1 18446744073709551615\r\nx\r\nincr k 1\r\ndelete k 0 noreply\r\n",
            b"set k 0 0 50\r\nflush_all\r\nflush_all\r\nflush_all\r\n",
            b"touch k -1\r\nflush_all 5\r\nstats items\r\nverbosity 1\r\nversion\r\nquit\r\n",
        ],
    );
}

#[test]
fn memcached_meta() {
    run(
        fuzzing::memcached_meta,
        &[
            b"Zm9v b v t f c k Oabc T30 N5 R9\r\nms k 3 MA C5 F7 I\r\nabc\r\nmn\r\n",
            b"k 2 T0\r\nab\r\nma n N0 J13 D2 MD\r\nmd k q I T3\r\nme k\r\n",
        ],
    );
}

#[test]
fn pedrokv() {
    run(
        fuzzing::pedrokv,
        &[
            b"\0\x12\x05\x02\0\0\0\x01helloworld\0\x0d\x05\x01\0\0\0\x02hello",
            b"\0\x09\x01\x03\x01\x02\x03\x04k\0\x09\xff\x01\0\0\0\0k",
            b"\0\x0c\0\0\0\0\0world\0\x15\x01\x01\x02\x03\x04err: not found",
        ],
    );
}

#[test]
fn glob() {
    run(
        fuzzing::glob,
        &[
            b"user:*:[0-9a-f]?user:12:a0",
            b"*a*a*a*baaaaaaaaaaaaaaaaaaaaab",
            b"[^a-c\\]]\\*dd*",
            b"abcabc",
        ],
    );
}

#[test]
fn number() {
    run(
        fuzzing::number,
        &[
            b"-92233720368547758080.1",
            b"18446744073709551615",
            b"1.5e-10-3.25e+12",
            b"0x1.8p-4infinity",
            b"1e49321.7976931348623157e308",
        ],
    );
}
