//! Measures operations on a list of ten million elements, and the memory of its elements.
//!
//! ```sh
//! cargo run --release -p tierce-collections --example list
//! ```

use std::time::{Duration, Instant};

use tierce_collections::{List, ListLimits};

const ELEMENTS: usize = 10_000_000;
const LIMITS: ListLimits = ListLimits::of_directive(-2);

/// Generator of pseudorandom numbers, identical in each run.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, end: usize) -> usize {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((self.0 >> 32) as usize) % end
    }
}

/// Runs `operation` so many times, and prints the mean and the longest time.
fn measure(name: &str, times: usize, mut operation: impl FnMut(usize)) {
    let (mut longest, mut total) = (Duration::ZERO, Duration::ZERO);
    for time in 0..times {
        let begin = Instant::now();
        operation(time);
        let taken = begin.elapsed();
        longest = longest.max(taken);
        total += taken;
    }
    let mean = total.as_nanos() / times as u128;
    println!("{name:<28} {mean:>7} ns, at most {:>7.1} us", longest.as_nanos() as f64 / 1000.0);
}

fn main() {
    let mut list = List::new();
    let mut numbers = Numbers(1);
    measure("push at the end", ELEMENTS, |number| {
        list.push_back(format!("{number:08x}").as_bytes(), LIMITS);
    });
    let per_element = list.allocated_bytes() as f64 / ELEMENTS as f64;
    println!("{per_element:.2} bytes for each element of 8 bytes");
    let len = list.len();
    measure("element by index", 1_000_000, |_| {
        std::hint::black_box(list.get(numbers.below(len)));
    });
    measure("set by index", 1_000_000, |_| {
        list.set(numbers.below(len), b"a longer element", LIMITS);
    });
    measure("insert by index", 1_000_000, |_| {
        list.insert(numbers.below(len), b"inserted", LIMITS);
    });
    measure("remove by index", 1_000_000, |_| {
        list.remove(numbers.below(len), 1, LIMITS);
    });
    measure("push and pop at both ends", 1_000_000, |number| {
        list.push_front(b"first", LIMITS);
        list.remove(list.len() - 1, 1, LIMITS);
        list.push_back(number as i64, LIMITS);
        list.remove(0, 1, LIMITS);
    });
    measure("a range of 100", 100_000, |_| {
        let range = list.iter_from(numbers.below(len - 100)).take(100);
        std::hint::black_box(range.map(|element| element.len()).sum::<usize>());
    });
    let begin = Instant::now();
    let sum: usize = list.iter().map(|element| element.len()).sum();
    println!("all {sum} bytes {:?}", begin.elapsed());
    let begin = Instant::now();
    list.remove(100, list.len() - 200, LIMITS);
    println!("trim to 200 {:?}", begin.elapsed());
    measure("blocks of one element", 1_000_000, |_| {
        let index = numbers.below(list.len() + 1);
        list.insert(index, &[b'x'; 20], ListLimits { entries_max: 1, bytes_max: 8192 });
    });
}
