//! One phase of one store, in a process of its own, and what it took.

use crate::arguments::Arguments;
use crate::rocksdb;
use crate::shape::Shape;
use crate::store::{Result, Store};
use crate::stores;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

/// What is done to a store. Between two phases it is closed and its process ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Phase {
    /// Puts every record once, in random order, into an empty store.
    Fill,
    /// Gets every record once, in another random order, and verifies it.
    Get,
    /// Visits all records; with several threads, each does.
    Scan,
}

impl Phase {
    pub const ALL: [Phase; 3] = [Phase::Fill, Phase::Get, Phase::Scan];

    pub fn name(self) -> &'static str {
        match self {
            Phase::Fill => "fill",
            Phase::Get => "get",
            Phase::Scan => "scan",
        }
    }

    pub fn named(name: &str) -> Result<Self> {
        let found = Self::ALL.into_iter().find(|phase| phase.name() == name);
        found.ok_or_else(|| format!("there is no phase {name}").into())
    }
}

/// What a phase took. Travels from child to parent as one line of numbers.
#[derive(Clone, Copy, Default, PartialEq, Debug)]
pub struct Outcome {
    pub ops: f64,
    /// Of the operations, without opening and closing.
    pub seconds: f64,
    /// Of the whole process, background threads and closing included, opening not.
    pub cpu_seconds: f64,
    pub open_seconds: f64,
    pub close_seconds: f64,
    pub rss_max_bytes: f64,
    pub disk_bytes: f64,
}

const LINE: &str = "outcome";

impl Outcome {
    fn fields(&mut self) -> [&mut f64; 7] {
        let Outcome { ops, seconds, cpu_seconds, open_seconds, close_seconds, .. } = self;
        [
            ops,
            seconds,
            cpu_seconds,
            open_seconds,
            close_seconds,
            &mut self.rss_max_bytes,
            &mut self.disk_bytes,
        ]
    }

    /// The line a child prints.
    pub fn to_line(mut self) -> String {
        let fields = self.fields().map(|field| field.to_string());
        format!("{LINE} {}", fields.join(" "))
    }

    /// Finds the line in a child's output.
    pub fn from_output(output: &str) -> Option<Self> {
        let line = output.lines().find_map(|line| line.strip_prefix(LINE))?;
        let mut words = line.split_whitespace();
        let mut outcome = Outcome::default();
        for field in outcome.fields() {
            *field = words.next()?.parse().ok()?;
        }
        Some(outcome)
    }
}

/// Runs a phase in this process and prints its outcome.
pub fn run(arguments: &Arguments, name: &str, phase: Phase) -> Result<()> {
    let (shape, dir) = (&arguments.shape, arguments.dir.join(name));
    let outcome = match name {
        rocksdb::NAME => rocksdb::run(&dir, shape, phase)?,
        _ => run_here(name, &dir, shape, phase)?,
    };
    println!("{}", outcome.to_line());
    Ok(())
}

fn run_here(name: &str, dir: &Path, shape: &Shape, phase: Phase) -> Result<Outcome> {
    let start = Instant::now();
    let store = (stores::named(name)?.open)(dir, shape)?;
    let open_seconds = start.elapsed().as_secs_f64();
    let (start, cpu) = (Instant::now(), cpu_seconds(Who::Process)?);
    let ops = operate(&*store, shape, phase)?;
    let seconds = start.elapsed().as_secs_f64();
    let start = Instant::now();
    store.close()?;
    Ok(Outcome {
        ops: ops as f64,
        seconds,
        cpu_seconds: cpu_seconds(Who::Process)? - cpu,
        open_seconds,
        close_seconds: start.elapsed().as_secs_f64(),
        rss_max_bytes: rss_max_bytes(std::process::id())?,
        disk_bytes: disk_bytes(dir)?,
    })
}

/// Does the work of a phase with as many threads as the shape has.
fn operate(store: &dyn Store, shape: &Shape, phase: Phase) -> Result<u64> {
    let (next, done) = (AtomicU64::new(0), AtomicU64::new(0));
    let failure = Mutex::new(None);
    std::thread::scope(|scope| {
        for _ in 0..shape.threads {
            scope.spawn(|| match work(store, shape, phase, &next) {
                Ok(count) => drop(done.fetch_add(count, Ordering::Relaxed)),
                Err(error) => {
                    *failure.lock().expect("no thread panics while it holds the lock") = Some(error)
                }
            });
        }
    });
    match failure.into_inner()? {
        Some(error) => Err(error),
        None => Ok(done.into_inner()),
    }
}

/// Records a thread takes at a time.
const STRIDE: u64 = 64;

fn work(store: &dyn Store, shape: &Shape, phase: Phase, next: &AtomicU64) -> Result<u64> {
    if phase == Phase::Scan {
        return scan(store, shape);
    }
    let (mut key, mut value, mut done) = (Vec::new(), Vec::new(), 0);
    loop {
        let first = next.fetch_add(STRIDE, Ordering::Relaxed);
        if first >= shape.records {
            return Ok(done);
        }
        for n in first..shape.records.min(first + STRIDE) {
            if phase == Phase::Fill {
                shape.key(n, &mut key);
                shape.value(n, &mut value);
                store.put(&key, &value)?;
            } else {
                let n = shape.read_order(n);
                shape.key(n, &mut key);
                shape.value(n, &mut value);
                let mut is_right = false;
                store.get(&key, &mut |found| is_right = found == value)?;
                if !is_right {
                    return Err(format!("record {n} is not what was written").into());
                }
            }
            done += 1;
        }
    }
}

fn scan(store: &dyn Store, shape: &Shape) -> Result<u64> {
    let (mut count, mut bytes) = (0, 0);
    store.scan(&mut |key, value| {
        count += 1;
        bytes += key.len() + value.len();
    })?;
    let expected = shape.records * (shape.key_len + shape.value_len) as u64;
    if count != shape.records || bytes as u64 != expected {
        return Err(format!("a scan found {count} records of {}", shape.records).into());
    }
    Ok(count)
}

/// Whose processor time is meant.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Who {
    Process,
    /// Those of its children that have ended.
    Children,
}

/// Processor time so far, user and system. The kernel counts in hundredths of a second.
pub fn cpu_seconds(who: Who) -> Result<f64> {
    let stat = std::fs::read_to_string("/proc/self/stat")?;
    // The name in parentheses may contain anything, so counting begins behind it, at field 3.
    let rest = stat.rsplit_once(')').ok_or("/proc/self/stat is odd")?.1;
    let first = if who == Who::Process { 14 } else { 16 };
    let ticks = rest.split_whitespace().skip(first - 3).take(2);
    let ticks = ticks.map(str::parse::<u64>).sum::<std::result::Result<u64, _>>()?;
    Ok(ticks as f64 / 100.0)
}

/// The most memory a living process has had resident.
pub fn rss_max_bytes(process: u32) -> Result<f64> {
    let status = std::fs::read_to_string(format!("/proc/{process}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib = line.and_then(|line| line.split_whitespace().next()).ok_or("no VmHWM")?;
    Ok(kib.parse::<f64>()? * 1024.0)
}

/// Bytes allocated to the files below a directory, which are fewer than their lengths where a file
/// has holes.
pub fn disk_bytes(dir: &Path) -> Result<f64> {
    use std::os::unix::fs::MetadataExt as _;
    let mut sum = 0.0;
    for entry in std::fs::read_dir(dir)? {
        let entry = entry?;
        let metadata = entry.metadata()?;
        sum += match metadata.is_dir() {
            true => disk_bytes(&entry.path())?,
            false => metadata.blocks() as f64 * 512.0,
        };
    }
    Ok(sum)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outcome_travels_as_a_line() {
        let outcome = Outcome { ops: 3.0, seconds: 0.25, disk_bytes: 7.0, ..Outcome::default() };
        let output = format!("noise\n{}\n", outcome.to_line());
        assert_eq!(Outcome::from_output(&output), Some(outcome));
        assert_eq!(Outcome::from_output("noise\n"), None);
    }

    #[test]
    fn this_process_has_used_memory_and_time_is_readable() {
        assert!(rss_max_bytes(std::process::id()).unwrap() > 1e5);
        assert!(cpu_seconds(Who::Process).unwrap() >= 0.0);
    }
}
