//! Measures memory use and returns unused memory to the system.

mod purge;

use std::fs;
use std::sync::OnceLock;

pub use purge::{Purge, collect, on_purge};

/// Name of the program's allocator.
pub const ALLOCATOR: &str = "mimalloc";

/// Memory use at one moment, in bytes.
pub struct MemoryReport {
    /// Entries: keys, values, and the rounding of the allocator.
    pub entries: usize,
    /// Index and deadlines.
    pub index: usize,
    /// Removed entries that are not freed yet.
    pub garbage: usize,
    /// Copies that long commands compute from.
    pub copies: usize,
    /// Tracking of keys that clients may have cached.
    pub tracking: usize,
    /// Libraries of functions and named scripts.
    pub code: usize,
    /// Connections and their buffers.
    pub clients: usize,
    /// Subscriptions to channels, patterns and prefixes, and pending messages.
    pub messages: usize,
    /// Resident memory before there was any data.
    pub startup: usize,
    /// Resident memory now, as counted by the system.
    pub resident: usize,
    /// Peak of the use reported so far.
    pub peak: usize,
    /// Memory of the machine.
    pub total_system: usize,
    /// Value of `maxmemory`; zero for no limit.
    pub limit: usize,
}

impl MemoryReport {
    /// Returns the memory that the server accounts for.
    pub fn used(&self) -> usize {
        self.overhead() + self.entries
    }

    /// Returns the part that does not count against the limit, because no eviction could reduce it.
    pub fn not_evictable(&self) -> usize {
        self.startup + self.clients + self.messages + self.garbage + self.copies
    }

    /// Returns the part that is not data.
    pub fn overhead(&self) -> usize {
        let clients = self.clients + self.messages;
        self.startup + self.index + self.tracking + clients + self.copies + self.code
    }

    /// Returns the part that is data.
    pub fn dataset(&self) -> usize {
        self.entries
    }

    /// Returns the ratio of resident memory to accounted memory.
    pub fn fragmentation(&self) -> f64 {
        self.resident as f64 / self.used().max(1) as f64
    }

    /// Returns the resident memory beyond the accounted memory; negative when parts are swapped
    /// out.
    pub fn fragmentation_bytes(&self) -> i64 {
        self.resident as i64 - self.used() as i64
    }
}

/// Returns the resident bytes of this process.
pub fn resident_bytes() -> usize {
    let page = 4096;
    let statm = fs::read_to_string("/proc/self/statm").unwrap_or_default();
    statm.split(' ').nth(1).and_then(|pages| pages.parse::<usize>().ok()).unwrap_or(0) * page
}

/// Returns the resident bytes before there was any data.
pub fn resident_at_start() -> usize {
    static BYTES: OnceLock<usize> = OnceLock::new();
    *BYTES.get_or_init(resident_bytes)
}

/// Returns the memory of the machine, 0 if unknown.
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

/// Formats `n` bytes for people: `1.50M`.
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
