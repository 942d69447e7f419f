//! LZF, the compression of strings in RDB files.
//!
//! The compressed form is a sequence of literal runs and references. A byte below 32 starts a literal run of that
//! many bytes plus one. Any other byte starts a reference to earlier output: its upper three bits are the length
//! less two (7: add another byte), its lower five bits and the last byte are the distance less one.

/// Longest literal run.
const RUN_MAX: usize = 32;
/// Greatest distance of a reference: 13 bits, and one.
const DISTANCE_MAX: usize = 1 << 13;
/// Longest reference: 7 and a byte of 255, and two.
const REFERENCE_MAX: usize = 7 + 255 + 2;
/// Shortest match worth a reference, which takes two bytes.
const MATCH_MIN: usize = 3;
/// Upper bound of output per compressed byte: three bytes expand to a longest reference.
const EXPANSION_MAX: usize = REFERENCE_MAX / 3;

/// Binary logarithm of the table size. Its 16 KiB stay in the L1 cache.
const SLOTS_LOG: u32 = 12;

/// Compresses strings. It keeps its table between them, so that small strings need not pay for clearing it.
#[derive(Debug, Default)]
pub(crate) struct Compressor {
    /// Table indexed by a hash of three bytes: `base` plus the offset in the input at which they were last seen.
    /// Entries below `base` belong to earlier inputs. Empty until first used.
    places: Vec<u32>,
    base: u32,
}

impl Compressor {
    /// Appends the compressed form of `input` to `output`. Returns false and appends nothing if it would take more
    /// than `len_max` bytes.
    pub(crate) fn compress(&mut self, input: &[u8], len_max: usize, output: &mut Vec<u8>) -> bool {
        let Some(base) = self.begin(input.len()) else { return false };
        let start = output.len();
        let (mut at, mut literals) = (0, 0);
        // Random bytes are given up early: output grows by a byte for every 32 bytes of input.
        while at + MATCH_MIN <= input.len() && output.len() - start <= len_max {
            let place = &mut self.places[hash(&input[at..at + MATCH_MIN])];
            let before = place.checked_sub(base).map(|place| place as usize);
            *place = base + at as u32;
            let len = before.map_or(0, |before| match_len(input, before, at));
            if len < MATCH_MIN {
                at += 1;
                continue;
            }
            put_literals(&input[literals..at], output);
            put_reference(at - before.unwrap_or(0), len, output);
            // Adding only the last offsets inside a match finds most of the matches that adding all would find.
            let end = at + len;
            for inside in end.saturating_sub(2)..end.min(input.len() - (MATCH_MIN - 1)) {
                self.places[hash(&input[inside..inside + MATCH_MIN])] = base + inside as u32;
            }
            (at, literals) = (end, end);
        }
        put_literals(&input[literals..], output);
        let fits = output.len() - start <= len_max;
        if !fits {
            output.truncate(start);
        }
        fits
    }

    /// Invalidates all offsets and returns the new base; `None` if the input is too long.
    fn begin(&mut self, len: usize) -> Option<u32> {
        let len = u32::try_from(len).ok()?.checked_add(1)?;
        let exhausted = self.base.checked_add(len).is_none();
        if self.places.is_empty() || exhausted {
            self.places.clear();
            self.places.resize(1 << SLOTS_LOG, 0);
            // Not 0, the value of empty entries.
            self.base = 1;
        }
        let base = self.base;
        self.base = base.checked_add(len)?;
        Some(base)
    }
}

fn hash(three: &[u8]) -> usize {
    let value = u32::from_le_bytes([0, three[0], three[1], three[2]]);
    (value.wrapping_mul(0x9e37_79b1) >> (32 - SLOTS_LOG)) as usize
}

/// Returns the length of the match at `at` with `before`; 0 if the distance is too great.
fn match_len(input: &[u8], before: usize, at: usize) -> usize {
    if at - before > DISTANCE_MAX {
        return 0;
    }
    let len_max = REFERENCE_MAX.min(input.len() - at);
    let pairs = input[before..].iter().zip(&input[at..at + len_max]);
    pairs.take_while(|(earlier, here)| earlier == here).count()
}

fn put_literals(literals: &[u8], output: &mut Vec<u8>) {
    for run in literals.chunks(RUN_MAX) {
        output.push((run.len() - 1) as u8);
        output.extend_from_slice(run);
    }
}

fn put_reference(distance: usize, len: usize, output: &mut Vec<u8>) {
    let (distance, len) = (distance - 1, len - 2);
    let high = (distance >> 8) as u8;
    if len < 7 {
        output.push((len as u8) << 5 | high);
    } else {
        output.extend_from_slice(&[7 << 5 | high, (len - 7) as u8]);
    }
    output.push(distance as u8);
}

/// Appends the decompressed form of `compressed`, which must have exactly `len` bytes; `None` otherwise. Reserves
/// no more memory than the compressed bytes can expand to.
pub(crate) fn decompress(compressed: &[u8], len: u64, output: &mut Vec<u8>) -> Option<()> {
    let len = usize::try_from(len).ok()?;
    if len > compressed.len().saturating_mul(EXPANSION_MAX) {
        return None;
    }
    output.reserve(len);
    let (start, mut rest) = (output.len(), compressed);
    while let Some((&control, after)) = rest.split_first() {
        let control = usize::from(control);
        if control < RUN_MAX {
            let (run, after) = after.split_at_checked(control + 1)?;
            output.extend_from_slice(run);
            rest = after;
        } else {
            rest = expand(control, after, start, output)?;
        }
        if output.len() - start > len {
            return None;
        }
    }
    (output.len() - start == len).then_some(())
}

/// Appends the bytes of a reference, and returns the rest of the input.
fn expand<'a>(
    control: usize,
    mut rest: &'a [u8],
    start: usize,
    output: &mut Vec<u8>,
) -> Option<&'a [u8]> {
    let mut len = (control >> 5) + 2;
    if len == 7 + 2 {
        let (&more, after) = rest.split_first()?;
        (len, rest) = (len + usize::from(more), after);
    }
    let (&low, rest) = rest.split_first()?;
    let distance = ((control & 0x1f) << 8 | usize::from(low)) + 1;
    let mut from = output.len().checked_sub(distance).filter(|&from| from >= start)?;
    // A reference may overlap its own output: then it repeats the last bytes, often a single one.
    if distance == 1 {
        output.resize(output.len() + len, output[from]);
        return Some(rest);
    }
    while len > 0 {
        let piece = len.min(output.len() - from);
        output.extend_from_within(from..from + piece);
        (from, len) = (from + piece, len - piece);
    }
    Some(rest)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::collection::vec;
    use proptest::prelude::*;
    use tierce_harness::effort;

    fn round_trip(compressor: &mut Compressor, input: &[u8]) -> usize {
        let mut compressed = b"before".to_vec();
        assert!(compressor.compress(input, usize::MAX, &mut compressed));
        let compressed = &compressed[6..];
        let mut output = b"before".to_vec();
        assert_eq!(decompress(compressed, input.len() as u64, &mut output), Some(()));
        assert_eq!(&output[6..], input);
        compressed.len()
    }

    #[test]
    fn compresses_what_repeats() {
        let mut compressor = Compressor::default();
        assert!(round_trip(&mut compressor, &[b'a'; 100_000]) < 1_200);
        assert!(round_trip(&mut compressor, &b"all work and no play. ".repeat(50)) < 50);
        assert_eq!(round_trip(&mut compressor, b""), 0);
        assert_eq!(round_trip(&mut compressor, b"ab"), 3);
    }

    #[test]
    fn reads_what_redis_wrote() {
        // 100 times `x`, as in `tests/fixtures/redis-7.0.rdb`.
        let compressed = [1, b'x', b'x', 0xe0, 0x57, 0, 1, b'x', b'x'];
        let mut output = Vec::new();
        assert_eq!(decompress(&compressed, 100, &mut output), Some(()));
        assert_eq!(output, [b'x'; 100]);
    }

    #[test]
    fn gives_up_when_it_does_not_fit() {
        let mut output = b"kept".to_vec();
        assert!(!Compressor::default().compress(&[0, 1, 2, 3, 4, 5, 6, 7], 8, &mut output));
        assert_eq!(output, b"kept");
    }

    #[test]
    fn refuses_lies_about_the_length() {
        let mut output = Vec::new();
        assert_eq!(decompress(&[0, b'x'], 1 << 60, &mut output), None);
        assert!(output.capacity() < 1024);
        assert_eq!(decompress(&[0, b'x'], 2, &mut output), None);
        assert_eq!(decompress(&[1, b'x', b'y'], 1, &mut Vec::new()), None);
        // A reference before the first byte.
        assert_eq!(decompress(&[0, b'x', 0x20, 1], 4, &mut Vec::new()), None);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(effort(256)))]

        #[test]
        fn any_bytes_come_back(inputs in vec(vec(0..4_u8, 0..600), 1..5)) {
            let mut compressor = Compressor::default();
            for input in inputs {
                round_trip(&mut compressor, &input);
            }
        }

        #[test]
        fn any_bytes_decompress_or_fail(bytes in vec(any::<u8>(), 0..100), len in 0..4000_u64) {
            let mut output = Vec::new();
            if decompress(&bytes, len, &mut output).is_some() {
                prop_assert_eq!(output.len() as u64, len);
            }
        }
    }
}
