//! Where the memory is, and how it goes back to the system.

mod purge;

use std::fs;
use std::sync::OnceLock;

pub use purge::{Purge, collect, on_purge};

/// The allocator of the program.
pub const ALLOCATOR: &str = "mimalloc";

/// Memory use at one moment, in bytes.
pub struct MemoryReport {
    /// Entries: keys, values, and what the allocator rounds up.
    pub entries: usize,
    /// What finds them: index and deadlines.
    pub index: usize,
    /// Removed, and not freed yet.
    pub garbage: usize,
    /// What long commands have copied to compute from.
    pub copies: usize,
    /// What is known of the keys that clients may have cached.
    pub tracking: usize,
    /// Libraries of functions and named scripts.
    pub code: usize,
    /// Connections and their buffers.
    pub clients: usize,
    /// Channels, patterns and prefixes that clients subscribe to, and messages on their way.
    pub messages: usize,
    /// Resident before there was any data.
    pub startup: usize,
    /// Resident now, by the system's count.
    pub resident: usize,
    /// The largest use reported so far.
    pub peak: usize,
    /// Memory of the machine.
    pub total_system: usize,
    /// `maxmemory`; zero is no limit.
    pub limit: usize,
}

impl MemoryReport {
    /// What the server accounts for.
    pub fn used(&self) -> usize {
        self.overhead() + self.entries
    }

    /// What does not count against the limit, because no eviction could make it less.
    pub fn not_evictable(&self) -> usize {
        self.startup + self.clients + self.messages + self.garbage + self.copies
    }

    /// What is not data.
    pub fn overhead(&self) -> usize {
        let clients = self.clients + self.messages;
        self.startup + self.index + self.tracking + clients + self.copies + self.code
    }

    /// What is data.
    pub fn dataset(&self) -> usize {
        self.entries
    }

    /// Resident memory relative to what is accounted for.
    pub fn fragmentation(&self) -> f64 {
        self.resident as f64 / self.used().max(1) as f64
    }

    /// Resident memory beyond what is accounted for; negative when parts are swapped out.
    pub fn fragmentation_bytes(&self) -> i64 {
        self.resident as i64 - self.used() as i64
    }
}

/// Bytes of this process that are in memory.
pub fn resident_bytes() -> usize {
    let page = 4096;
    let statm = fs::read_to_string("/proc/self/statm").unwrap_or_default();
    statm.split(' ').nth(1).and_then(|pages| pages.parse::<usize>().ok()).unwrap_or(0) * page
}

/// The same before there was any data, of which what counts as data is apart.
pub fn resident_at_start() -> usize {
    static BYTES: OnceLock<usize> = OnceLock::new();
    *BYTES.get_or_init(resident_bytes)
}

/// Memory of the machine, 0 if that is unknown.
pub fn total_system_bytes() -> usize {
    static BYTES: OnceLock<usize> = OnceLock::new();
    *BYTES.get_or_init(read_total_system_bytes)
}

fn read_total_system_bytes() -> usize {
    let meminfo = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"));
    let kib = line.and_then(|rest| rest.split_whitespace().next()?.parse::<usize>().ok());
    kib.unwrap_or(0) * 1024
}

/// `n` bytes for people: `1.50M`.
pub fn human(n: usize) -> String {
    const UNITS: [&str; 5] = ["B", "K", "M", "G", "T"];
    let (mut value, mut unit) = (n as f64, 0);
    while value >= 1024.0 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    if unit == 0 { format!("{n}B") } else { format!("{value:.2}{}", UNITS[unit]) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_for_people() {
        assert_eq!(human(0), "0B");
        assert_eq!(human(1023), "1023B");
        assert_eq!(human(1536), "1.50K");
        assert_eq!(human(3 << 30), "3.00G");
    }

    #[test]
    fn the_system_tells() {
        assert!(resident_bytes() > 4096);
        assert!(total_system_bytes() > resident_bytes());
    }
}
