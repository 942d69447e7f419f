//! The ring of encoded requests from which batches are taken.
//!
//! A batch is `pipeline` consecutive requests, sent with one system call. All requests that a batch can contain are
//! encoded once, one after the other in the order of the mix. Preparing a batch means choosing its start and
//! overwriting its digits. A mix of several commands repeats after `period` requests. So `period + pipeline - 1`
//! requests suffice to take a batch at any point of the period without wrapping around.
//!
//! Invariants:
//! - `ends`, `key_ends` and `number_ends` have one element per request, ascending.
//! - [`DIGITS_LEN`] bytes follow at every offset in `keys` and `numbers`.

use crate::digits::{self, DIGITS_LEN};
use crate::distribution::KeyPicker;
use crate::error::Error;
use crate::random::Random;
use crate::request::Filling;
use crate::template::Template;

/// Upper bound of the memory for the arguments of a worker's encoded requests.
const RING_LEN_MAX: usize = 1 << 30;

/// The commands of a run, and the frequency of each.
#[derive(Clone, Debug)]
pub(crate) struct Mix {
    templates: Vec<(Template, u32)>,
}

impl Mix {
    /// Makes a mix of one command.
    pub(crate) fn one(template: Template) -> Self {
        Self { templates: vec![(template, 1)] }
    }

    /// Makes a mix of two commands in the proportion of two counts. One count may be 0, but not both.
    pub(crate) fn ratio(first: (Template, u32), second: (Template, u32)) -> Self {
        let common = greatest_common_divisor(first.1, second.1);
        assert!(common > 0, "a ratio of 0:0 holds no request");
        let templates = [first, second]
            .into_iter()
            .filter(|(_, count)| *count > 0)
            .map(|(template, count)| (template, count / common))
            .collect();
        Self { templates }
    }

    /// Returns true if several requests get one reply.
    pub(crate) fn is_quiet(&self) -> bool {
        self.templates.iter().any(|(template, _)| template.is_multi_get())
    }

    /// Returns the number of requests after which the order repeats.
    fn period(&self) -> usize {
        self.templates.iter().map(|(_, count)| *count as usize).sum()
    }

    /// Returns the templates of one period. The rarer ones are spread evenly among the others: at each step, the one
    /// that lags most behind its expected number of occurrences comes next.
    fn order(&self) -> Vec<&Template> {
        let period = self.period() as i64;
        let mut given = vec![0_i64; self.templates.len()];
        (1..=period)
            .map(|step| {
                let lag = |index: usize| {
                    step * i64::from(self.templates[index].1) - given[index] * period
                };
                let next = (0..given.len()).max_by_key(|&index| lag(index)).unwrap_or(0);
                given[next] += 1;
                &self.templates[next].0
            })
            .collect()
    }
}

fn greatest_common_divisor(a: u32, b: u32) -> u32 {
    if b == 0 { a } else { greatest_common_divisor(b, a % b) }
}

#[derive(Clone, Debug)]
pub(crate) struct Ring {
    bytes: Vec<u8>,
    ends: Vec<usize>,
    keys: Vec<usize>,
    key_ends: Vec<usize>,
    numbers: Vec<usize>,
    number_ends: Vec<usize>,
    period: usize,
    start: usize,
    keys_per_period: usize,
}

impl Ring {
    /// Encodes the requests that batches of up to `pipeline` requests of `mix` need.
    ///
    /// # Errors
    /// If that would take more than a gibibyte.
    pub(crate) fn new(
        mix: &Mix,
        pipeline: usize,
        filling: &Filling<'_>,
        random: &mut Random,
    ) -> Result<Self, Error> {
        let order = mix.order();
        let requests = (0..order.len() + pipeline - 1).map(|index| order[index % order.len()]);
        let mut len = requests.clone().map(|template| template.arguments_len(filling));
        if len.try_fold(0, usize::checked_add).is_none_or(|len| len > RING_LEN_MAX) {
            return Err(Error::BatchTooLarge { limit: RING_LEN_MAX });
        }
        let mut ring = Self {
            bytes: Vec::new(),
            ends: Vec::new(),
            keys: Vec::new(),
            key_ends: Vec::new(),
            numbers: Vec::new(),
            number_ends: Vec::new(),
            period: order.len(),
            start: 0,
            keys_per_period: 0,
        };
        for template in requests {
            ring.push(template, filling, random);
        }
        ring.keys_per_period = ring.key_ends[ring.period - 1];
        Ok(ring)
    }

    fn push(&mut self, template: &Template, filling: &Filling<'_>, random: &mut Random) {
        let request = template.encode(filling, random);
        let base = self.bytes.len();
        self.bytes.extend_from_slice(&request.bytes);
        self.keys.extend(request.keys.iter().map(|offset| base + offset));
        self.numbers.extend(request.numbers.iter().map(|offset| base + offset));
        self.ends.push(self.bytes.len());
        self.key_ends.push(self.keys.len());
        self.number_ends.push(self.numbers.len());
    }

    /// Returns the number of keys in the first `requests` requests of the run, for any split into batches.
    fn keys_before(&self, requests: u64) -> u64 {
        let period = self.period as u64;
        let rest = (requests % period) as usize;
        let keys_of_rest = if rest == 0 { 0 } else { self.key_ends[rest - 1] };
        requests / period * self.keys_per_period as u64 + keys_of_rest as u64
    }

    /// Returns the next `count` requests, starting at the run's `position`-th, with fresh digits. `count` is at least
    /// 1 and at most the pipeline depth of the ring.
    #[inline]
    pub(crate) fn batch(&mut self, position: u64, count: usize, picker: &mut KeyPicker) -> &[u8] {
        picker.seek(self.keys_before(position));
        self.start = (position % self.period as u64) as usize;
        let last = self.start + count - 1;
        let keys = self.begin(&self.key_ends)..self.key_ends[last];
        for &offset in &self.keys[keys] {
            patch(&mut self.bytes, offset, picker.key());
        }
        let numbers = self.begin(&self.number_ends)..self.number_ends[last];
        for &offset in &self.numbers[numbers] {
            patch(&mut self.bytes, offset, picker.number());
        }
        &self.bytes[self.begin(&self.ends)..self.ends[last]]
    }

    fn begin(&self, ends: &[usize]) -> usize {
        if self.start == 0 { 0 } else { ends[self.start - 1] }
    }
}

#[inline]
fn patch(bytes: &mut [u8], offset: usize, number: u64) {
    let digits = &mut bytes[offset..offset + DIGITS_LEN];
    digits::write(digits.try_into().expect("the range is as long as the array"), number);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::distribution::Distribution;

    const FILLING: Filling<'_> = Filling { key_prefix: "key:", data_size: 2 };

    fn ring(mix: &Mix, pipeline: usize) -> Ring {
        Ring::new(mix, pipeline, &FILLING, &mut Random::new(9)).unwrap()
    }

    fn get() -> Template {
        Template::new(&["GET", "__key__"])
    }

    fn set() -> Template {
        Template::new(&["SET", "__key__", "__data__"])
    }

    /// Returns the first letters of commands, and the keys, of a batch.
    fn read(batch: &[u8]) -> Vec<(char, u64)> {
        let text = std::str::from_utf8(batch).unwrap();
        text.split('*')
            .skip(1)
            .map(|request| {
                let mut lines = request.split("\r\n");
                let name = lines.nth(2).unwrap();
                let key = lines.nth(1).unwrap().strip_prefix("key:").unwrap();
                (name.chars().next().unwrap(), key.parse().unwrap())
            })
            .collect()
    }

    #[test]
    fn a_batch_holds_as_many_requests_as_asked_with_their_own_keys() {
        let mut ring = ring(&Mix::one(get()), 4);
        let mut picker = KeyPicker::new(Distribution::Sequential, 1_000_000, 0);
        assert_eq!(
            read(ring.batch(999_998, 4, &mut picker)),
            [('G', 999_998), ('G', 999_999), ('G', 0), ('G', 1)]
        );
        assert_eq!(read(ring.batch(2, 1, &mut picker)), [('G', 2)]);
    }

    #[test]
    fn a_mix_keeps_its_proportion_however_it_is_cut() {
        let mix = Mix::ratio((set(), 2), (get(), 20));
        let mut ring = ring(&mix, 16);
        let mut picker = KeyPicker::new(Distribution::Sequential, 1_000_000, 0);
        let mut seen = Vec::new();
        for count in [16, 1, 5, 16, 3, 16, 16, 4, 11, 16, 6] {
            let position = seen.len() as u64;
            seen.extend(read(ring.batch(position, count, &mut picker)));
        }
        assert_eq!(seen.len(), 110);
        assert_eq!(seen.iter().filter(|(name, _)| *name == 'S').count(), 10);
        for (position, (_, key)) in seen.iter().enumerate() {
            assert_eq!(*key, position as u64);
        }
        for eleven in seen.chunks(11) {
            assert_eq!(eleven.iter().filter(|(name, _)| *name == 'S').count(), 1);
        }
    }

    #[test]
    fn a_mix_is_spread_evenly() {
        let mix = Mix::ratio((set(), 1), (get(), 3));
        let names: Vec<_> = mix.order().iter().map(|template| template.name()).collect();
        assert_eq!(names.iter().filter(|name| *name == "SET").count(), 1);
        assert_eq!(names.len(), 4);
        assert_eq!(Mix::ratio((set(), 0), (get(), 5)).order().len(), 1);
    }

    #[test]
    fn several_keys_and_numbers_of_a_request_are_all_written() {
        let words = ["MSET", "__key__", "__rand_int__", "__key__", "__data__"];
        let mut ring = ring(&Mix::one(Template::new(&words)), 2);
        let mut picker = KeyPicker::new(Distribution::Sequential, 100, 0);
        let batch = String::from_utf8(ring.batch(3, 2, &mut picker).to_vec()).unwrap();
        for key in ["key:000000000006", "key:000000000007", "key:000000000008", "key:000000000009"]
        {
            assert_eq!(batch.matches(key).count(), 1, "{key} in {batch}");
        }
        assert!(!batch.contains("__"));
    }

    #[test]
    fn an_oversized_ring_is_refused() {
        let huge = Filling { key_prefix: "", data_size: RING_LEN_MAX / 2 };
        let mut random = Random::new(1);
        assert!(matches!(
            Ring::new(&Mix::one(set()), 2, &huge, &mut random),
            Err(Error::BatchTooLarge { .. })
        ));
    }
}
