//! A short run of every fuzz target on seeded random bytes, for machines without a fuzzer. A
//! failure prints the input; `TIERCE_SEED` chooses another run.

use tierce_cask::fuzzing;
use tierce_harness::effort;

const ROUNDS: u64 = 6_000;

/// Generator of random bytes.
struct Random(tierce_harness::Random);

impl Random {
    fn next(&mut self) -> u64 {
        self.0.next_u64()
    }

    fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    /// Returns mostly small numbers, as for lengths and kinds, and sometimes a large one.
    fn number(&mut self, len: usize) -> Vec<u8> {
        let number = match self.below(8) {
            0 => self.next(),
            1 => u64::MAX >> self.below(64),
            2 => self.below(600),
            _ => self.below(9),
        };
        number.to_le_bytes()[..len].to_vec()
    }

    /// Appends a record as in a segment: checksums, number, lengths, kind, compression, flags,
    /// durable part, key, value and padding.
    fn record(&mut self, seq: u64, out: &mut Vec<u8>) {
        let (key_len, value_len) = (self.below(12) as usize, self.below(90) as usize);
        let start = out.len();
        out.extend_from_slice(&[0; 8]);
        out.extend_from_slice(&seq.to_le_bytes());
        out.extend_from_slice(&(value_len as u32).to_le_bytes());
        out.extend_from_slice(&(key_len as u32).to_le_bytes());
        let kind = 1 + self.below(2) as u8;
        let compression = if self.below(4) == 0 { self.below(5) as u8 } else { 0 };
        let flags = if self.below(4) == 0 { self.below(8) as u8 } else { 0 };
        out.extend_from_slice(&[kind, compression, flags, 0, 0, 0, 0, 0]);
        for _ in 0..(flags & 3).count_ones() {
            out.extend_from_slice(&self.number(8));
        }
        out.extend((0..key_len).map(|_| b'a'));
        out.extend((0..value_len).map(|n| n as u8));
        out.resize(start + (out.len() - start).next_multiple_of(8), 0);
    }

    /// Appends a batch head that describes the records after it.
    fn batch(&mut self, seq: u64, out: &mut Vec<u8>) {
        let head = out.len();
        out.extend_from_slice(&[0; 8]);
        out.extend_from_slice(&seq.to_le_bytes());
        out.extend_from_slice(&[16, 0, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0]);
        out.extend_from_slice(&[0; 16]);
        let members = self.below(4);
        for member in 0..members {
            let at = out.len();
            self.record(seq + member, out);
            // No optional fields, but a member of a batch.
            out[at + 26] = 4;
        }
        let len = (out.len() - head - 48) as u64;
        out[head + 32..head + 36].copy_from_slice(&(members as u32).to_le_bytes());
        out[head + 40..head + 48].copy_from_slice(&len.to_le_bytes());
    }

    fn records(&mut self) -> Vec<u8> {
        let mut out = Vec::new();
        let mut seq = 1;
        for _ in 0..self.below(12) {
            match self.below(4) {
                0 => self.batch(seq, &mut out),
                _ => self.record(seq, &mut out),
            }
            seq += self.below(9);
        }
        out
    }

    /// Returns the entries of a hint file in one block.
    fn entries(&mut self) -> Vec<u8> {
        let mut out = Vec::new();
        for n in 0..self.below(10) as u8 {
            out.extend_from_slice(&[1 << 1, n, 5, n + 1, b'a' + n]);
        }
        out
    }

    /// Returns the entries of a manifest behind a head.
    fn segments(&mut self) -> Vec<u8> {
        let count = self.below(5) as u32;
        let mut out = vec![0; 12];
        out.extend_from_slice(&count.to_le_bytes());
        out.extend_from_slice(&[7; 32]);
        out.extend_from_slice(&[1, self.below(3) as u8, 0, 0]);
        out.extend_from_slice(&self.number(4));
        out.extend_from_slice(&self.number(4));
        out.extend_from_slice(&[0; 4]);
        out.extend_from_slice(&self.number(8));
        for id in 1..=count {
            out.extend_from_slice(&id.to_le_bytes());
            out.extend_from_slice(&[1 + self.below(3) as u8, self.below(2) as u8, 0, 0]);
            out.extend_from_slice(&self.number(8));
            out.extend_from_slice(&self.number(8));
            out.extend_from_slice(&[0; 8]);
        }
        out
    }

    fn mutate(&mut self, input: &mut Vec<u8>) {
        for _ in 0..self.below(4) {
            if input.is_empty() {
                return;
            }
            let at = self.below(input.len() as u64) as usize;
            match self.below(4) {
                0 => input[at] = self.next() as u8,
                1 => input[at] ^= 1 << self.below(8),
                2 => input.truncate(at),
                _ => {
                    let number = self.number(8);
                    let len = number.len().min(input.len() - at);
                    input[at..at + len].copy_from_slice(&number[..len]);
                }
            }
        }
    }
}

/// Runs a target on inputs from `make`, some of them mutated, and on plain random bytes.
fn run(target: fn(&[u8]), rounds_part: u64, make: fn(&mut Random) -> Vec<u8>) {
    let seed = std::env::var("TIERCE_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(1);
    let rounds = effort(ROUNDS) / rounds_part;
    let mut random = Random(tierce_harness::Random::new(seed));
    for round in 0..rounds {
        let mut input = match random.below(8) {
            0 => (0..random.below(800)).map(|_| random.next() as u8).collect(),
            _ => make(&mut random),
        };
        random.mutate(&mut input);
        input.insert(0, random.next() as u8 & 0xfe | u8::from(random.below(8) == 0));
        let failed = std::panic::catch_unwind(|| target(&input)).is_err();
        assert!(!failed, "seed {seed}, round {round}, input {input:?}");
    }
}

#[test]
fn record() {
    run(fuzzing::record, 1, |random| {
        let mut out = Vec::new();
        random.record(5, &mut out);
        out
    });
}

#[test]
fn segment() {
    run(fuzzing::segment, 1, Random::records);
}

#[test]
fn hint() {
    run(fuzzing::hint, 1, Random::entries);
}

#[test]
fn manifest() {
    run(fuzzing::manifest, 1, Random::segments);
}

#[test]
fn store() {
    run(fuzzing::store, 4, Random::records);
}
