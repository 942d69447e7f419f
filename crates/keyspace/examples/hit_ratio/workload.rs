//! The workloads: sequences of requested keys.

/// A sequence of requests, the same in every run.
pub struct Workload {
    pub name: &'static str,
    exponent: f64,
    pattern: Pattern,
}

/// Requests in addition to the popular keys.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Pattern {
    Plain,
    Mixed,
    Bursts,
    Moving,
}

pub const WORKLOADS: [Workload; 5] = [
    Workload { name: "zipf", exponent: 0.99, pattern: Pattern::Plain },
    Workload { name: "flat", exponent: 0.7, pattern: Pattern::Plain },
    Workload { name: "mixed", exponent: 0.99, pattern: Pattern::Mixed },
    Workload { name: "bursts", exponent: 0.99, pattern: Pattern::Bursts },
    Workload { name: "moving", exponent: 0.99, pattern: Pattern::Moving },
];

/// Keys for each entry that there is room for.
const KEYS_PER_ENTRY: usize = 10;

/// Requests for each entry that there is room for.
const REQUESTS_PER_ENTRY: usize = 150;

/// Keys that are asked for once have numbers from here on.
const ONE_TIME: u64 = 1 << 40;

impl Workload {
    /// The keys, for a cache of so many entries.
    pub fn requests(&self, entries: usize) -> Vec<u64> {
        let keys = entries * KEYS_PER_ENTRY;
        let popularity = cumulated(keys, self.exponent);
        let total = entries * REQUESTS_PER_ENTRY;
        let mut random = Random(42);
        let (mut one_time, mut burst_left) = (ONE_TIME, 0);
        let mut requests = Vec::with_capacity(total);
        for number in 0..total {
            if self.pattern == Pattern::Bursts && random.below_one() * 20.0 * (entries as f64) < 1.0
            {
                burst_left = 2 * entries;
            }
            let is_one_time = match self.pattern {
                Pattern::Mixed => random.below_one() < 1.0 / 3.0,
                _ => burst_left > 0,
            };
            if is_one_time {
                burst_left = usize::saturating_sub(burst_left, 1);
                one_time += 1;
                requests.push(one_time);
                continue;
            }
            let point = random.below_one();
            let rank = popularity.partition_point(|sum| *sum < point);
            let moved = match self.pattern {
                Pattern::Moving => number * 8 / total * keys / 500,
                _ => 0,
            };
            requests.push((rank + moved) as u64);
        }
        requests
    }
}

/// The sums of the probabilities of all ranks up to each.
fn cumulated(keys: usize, exponent: f64) -> Vec<f64> {
    let mut sum = 0.0;
    let weights = (1..=keys).map(|rank| (rank as f64).powf(-exponent));
    let sums: Vec<f64> = weights
        .map(|weight| {
            sum += weight;
            sum
        })
        .collect();
    sums.into_iter().map(|partial| partial / sum).collect()
}

/// SplitMix64.
struct Random(u64);

impl Random {
    fn below_one(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ mixed >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        ((mixed ^ mixed >> 31) >> 11) as f64 / (1u64 << 53) as f64
    }
}
