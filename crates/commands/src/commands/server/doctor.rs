//! Findings of MEMORY DOCTOR and LATENCY DOCTOR, each with its figures and a remedy.
//!
//! A finding compares measured figures with a threshold. Each threshold is a constant with its reason. A server with
//! little data gets no findings about ratios, which mean nothing then.

use crate::latency::LatencyMonitor;
use crate::memory::{MemoryReport, human};

/// Minimum amount of data; below it, ratios are noise.
const DATA_MIN: usize = 5 << 20;

/// Maximum of resident memory divided by used memory. Allocators of this kind exceed it only after much was freed.
const FRAGMENTATION_MAX: f64 = 1.4;

/// Minimum of fragmentation in bytes; less is not worth a purge.
const FRAGMENTATION_BYTES_MIN: i64 = 10 << 20;

/// Peak divided by present use at which resident memory may reflect the past.
const PEAK_MAX: f64 = 1.5;

/// Maximum bytes of a client on average. An idle connection has less than a kilobyte.
const CLIENT_BYTES_MAX: usize = 200 << 10;

/// Minimum part of the spill files that is still needed; compaction keeps more.
const SPILL_LIVE_MIN: f64 = 0.3;

/// Figures for MEMORY DOCTOR besides the report.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Around {
    /// Connected clients.
    pub(super) clients: usize,
    /// True if keys are evicted or spilled when memory is full.
    pub(super) makes_room: bool,
    /// Values on disk, if there are any.
    pub(super) spill: Option<Spill>,
}

/// Figures of spilled values.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Spill {
    /// Number of reads.
    pub(super) reads: u64,
    /// Reads with a shard locked.
    pub(super) late: u64,
    /// Bytes of the files.
    pub(super) disk: u64,
    /// Bytes still needed.
    pub(super) live: u64,
}

/// Returns the findings about memory.
pub(super) fn of_memory(report: &MemoryReport, around: &Around) -> String {
    let data = report.used().saturating_sub(report.startup);
    let mut findings = Vec::new();
    if data >= DATA_MIN {
        findings.extend(fragmentation(report));
        findings.extend(peak(report));
    }
    findings.extend(clients(report, around));
    findings.extend(messages(report));
    findings.extend(limit(report, around));
    findings.extend(around.spill.iter().flat_map(spill));
    if findings.is_empty() {
        let fine = match data < DATA_MIN {
            true => "There is hardly any data, so there is nothing to diagnose.",
            false => "Memory looks fine.",
        };
        findings.push(fine.to_owned());
    }
    findings.join("\n") + "\n"
}

fn fragmentation(report: &MemoryReport) -> Option<String> {
    let (ratio, bytes) = (report.fragmentation(), report.fragmentation_bytes());
    let is_much = ratio > FRAGMENTATION_MAX && bytes > FRAGMENTATION_BYTES_MIN;
    is_much.then(|| {
        format!(
            "Fragmentation: {} are resident, {ratio:.2} times the {} in use. The allocator holds memory that was \
             freed; MEMORY PURGE asks it to give that back.",
            human(report.resident),
            human(report.used()),
        )
    })
}

fn peak(report: &MemoryReport) -> Option<String> {
    let ratio = report.peak as f64 / report.used().max(1) as f64;
    (ratio > PEAK_MAX).then(|| {
        format!(
            "Peak: memory was {} at its peak, {ratio:.1} times as much as now ({}). Leave room for the next one.",
            human(report.peak),
            human(report.used()),
        )
    })
}

fn clients(report: &MemoryReport, around: &Around) -> Option<String> {
    let average = report.clients / around.clients.max(1);
    let is_much = report.clients > DATA_MIN
        && (average > CLIENT_BYTES_MAX || report.clients > report.used() / 2);
    is_much.then(|| {
        format!(
            "Clients: {} in {}, {} each on average. CLIENT LIST shows whose they are (qbuf, omem); \
             client-output-buffer-limit and maxmemory-clients bound them.",
            human(report.clients),
            tierce_engine::count(around.clients, "client"),
            human(average),
        )
    })
}

fn messages(report: &MemoryReport) -> Option<String> {
    let is_much = report.messages > DATA_MIN && report.messages > report.used() / 10;
    is_much.then(|| {
        format!(
            "Messages: {} of published messages wait for their receivers. CLIENT LIST TYPE PUBSUB shows slow \
             ones (omem).",
            human(report.messages)
        )
    })
}

fn limit(report: &MemoryReport, around: &Around) -> Option<String> {
    let counted = report.used().saturating_sub(report.not_evictable());
    let (limit, system) = (report.limit, report.total_system);
    if limit == 0 {
        let is_much = system > 0 && report.used() > system / 10 * 8;
        return is_much.then(|| {
            format!(
                "Limit: {} of the machine's {} are in use, and maxmemory is not set. When the machine has no more, \
                 the system ends the process.",
                human(report.used()),
                human(system)
            )
        });
    }
    if system > 0 && limit > system / 10 * 9 {
        return Some(format!(
            "Limit: maxmemory is {}, and the machine has {}. Buffers, snapshots and the system need some as well.",
            human(limit),
            human(system)
        ));
    }
    let then = match around.makes_room {
        true => "Keys are evicted or spilled from then on.",
        false => "Commands that need memory fail from then on (maxmemory-policy noeviction).",
    };
    (counted > limit / 10 * 9).then(|| {
        format!("Limit: {} of maxmemory {} are in use. {then}", human(counted), human(limit))
    })
}

fn spill(spill: &Spill) -> Vec<String> {
    let Spill { reads, late, disk, live } = *spill;
    let mut findings = Vec::new();
    if reads > 1000 && late > reads / 10 {
        findings.push(format!(
            "Spilled values: {late} of {reads} reads held a shard while they waited for the disk: commands that \
             find out late which keys they need."
        ));
    }
    if disk > DATA_MIN as u64 * 10 && (live as f64) < disk as f64 * SPILL_LIVE_MIN {
        findings.push(format!(
            "Spilled values: {} on disk, of which {} are still needed. Compaction is behind: the disk may be too slow \
             for these writes.",
            human(disk as usize),
            human(live as usize)
        ));
    }
    findings
}

/// Figures for LATENCY DOCTOR besides the monitor.
#[derive(Clone, Copy, Debug)]
pub(super) struct Terms {
    /// `latency-monitor-threshold` in milliseconds; 0 if it is off.
    pub(super) threshold_ms: u64,
    /// `slowlog-log-slower-than` in microseconds; negative if it is off.
    pub(super) slowlog_micros: i64,
    /// Entries in the slow log.
    pub(super) slowlog_len: usize,
}

/// Maximum useful threshold in milliseconds. A higher one misses most moments that users notice.
const THRESHOLD_MS_MAX: u64 = 500;

/// Returns the findings about latency.
pub(super) fn of_latency(monitor: &LatencyMonitor, terms: Terms, now_seconds: i64) -> String {
    let Terms { threshold_ms, slowlog_micros, slowlog_len } = terms;
    let mut lines = Vec::new();
    if threshold_ms == 0 {
        return off(slowlog_micros, slowlog_len);
    }
    for (name, series) in monitor.events() {
        let (count, sum) =
            series.iter().fold((0, 0), |(count, sum), sample| (count + 1, sum + sample.millis));
        let latest = series.latest().map_or(0, |sample| (now_seconds - sample.unix_seconds).max(0));
        lines.push(format!(
            "{name}: {count} spikes over {threshold_ms} ms, {} ms on average, {} ms at worst, the last one {latest} s \
             ago. {}",
            sum / count.max(1),
            series.worst_millis(),
            advice(name, terms)
        ));
    }
    if lines.is_empty() {
        lines.push(format!("Nothing took longer than {threshold_ms} ms."));
    }
    if threshold_ms > THRESHOLD_MS_MAX {
        lines.push(format!(
            "latency-monitor-threshold is {threshold_ms} ms: shorter spikes, which users notice as well, are not seen."
        ));
    }
    lines.join("\n") + "\n"
}

/// Returns the findings without the monitor.
fn off(slowlog_micros: i64, slowlog_len: usize) -> String {
    let slow = match slowlog_len {
        0 => String::new(),
        _ => format!(
            " The slow log has {} of {slowlog_micros} microseconds or more: SLOWLOG GET.",
            tierce_engine::count(slowlog_len, "command")
        ),
    };
    format!(
        "The latency monitor is off. Switch it on with CONFIG SET latency-monitor-threshold <milliseconds>; 100 suits \
         most.{slow}\n"
    )
}

/// Returns advice against spikes of an event.
fn advice(event: &str, terms: Terms) -> &'static str {
    let is_blind =
        terms.slowlog_micros < 0 || terms.slowlog_micros as u64 / 1000 > terms.threshold_ms;
    match event {
        "command" | "fast-command" if is_blind => {
            "Which commands these were, the slow log does not tell: slowlog-log-slower-than is off or above the \
             threshold."
        }
        "command" => {
            "SLOWLOG GET shows which commands. Break up large ones, or use SCAN and its relatives."
        }
        "fast-command" => {
            "Such commands take microseconds, so the processor was not there for them: more threads than cores, \
             swapping, or a busy machine."
        }
        "command-unblocking" => {
            "A blocked command has been served: SLOWLOG GET shows which, and how much it moved or replied."
        }
        "aof-write" => {
            "The log could not take writes as fast as they came: the disk is slow, or values are of many megabytes."
        }
        "aof-fsync-always" | "aof-fsync-everysec" => {
            "The disk took long to sync the log. Other programs may write to it, or it is slow."
        }
        "expire-cycle" => "Many keys expired at one moment. Give their deadlines some randomness.",
        "aof-write-pending-fsync" => {
            "Writes waited for the disk: use a faster one, or appendfsync everysec if it is always."
        }
        "snapshot" => {
            "The beginning of a snapshot holds all shards: fewer save points mean fewer of these."
        }
        "eviction-cycle" => {
            "Eviction could not keep up with writes: raise maxmemory, or write less at once."
        }
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: usize = 1 << 30;

    fn report(entries: usize) -> MemoryReport {
        MemoryReport {
            entries,
            index: 0,
            garbage: 0,
            copies: 0,
            tracking: 0,
            code: 0,
            clients: 0,
            messages: 0,
            startup: 0,
            resident: entries,
            peak: entries,
            total_system: 64 * GIB,
            limit: 0,
        }
    }

    fn said(report: &MemoryReport) -> String {
        of_memory(report, &Around { clients: 10, ..Around::default() })
    }

    #[test]
    fn a_healthy_server_has_no_findings() {
        assert!(said(&report(100)).starts_with("There is hardly any data"));
        assert_eq!(said(&report(GIB)), "Memory looks fine.\n");
        // Ratios mean nothing on a server without data.
        let empty = MemoryReport { resident: 100 << 20, peak: GIB, ..report(100) };
        assert!(said(&empty).starts_with("There is hardly any data"));
    }

    #[test]
    fn each_threshold_has_its_finding_with_figures() {
        let fine = || report(GIB);
        for (report, expected) in [
            (
                MemoryReport { resident: 2 * GIB, ..fine() },
                "Fragmentation: 2.00G are resident, 2.00 times",
            ),
            (
                MemoryReport { peak: 3 * GIB, ..fine() },
                "Peak: memory was 3.00G at its peak, 3.0 times",
            ),
            (
                MemoryReport { clients: 100 << 20, ..fine() },
                "Clients: 100.00M in 10 clients, 10.00M each",
            ),
            (MemoryReport { messages: GIB, ..fine() }, "Messages: 1.00G of published messages"),
            (MemoryReport { total_system: GIB, ..fine() }, "Limit: 1.00G of the machine's 1.00G"),
            (
                MemoryReport { limit: 60 * GIB, ..fine() },
                "Limit: maxmemory is 60.00G, and the machine",
            ),
            (
                MemoryReport { limit: GIB, ..fine() },
                "Limit: 1.00G of maxmemory 1.00G are in use. Commands",
            ),
        ] {
            let said =
                said(&MemoryReport { resident: report.resident.max(report.used()), ..report });
            assert!(said.starts_with(expected), "{said}");
            assert_eq!(said.lines().count(), 1, "{said}");
        }
        let spill = Spill { reads: 5000, late: 1000, disk: GIB as u64, live: 1 << 20 };
        let around = Around { clients: 1, makes_room: true, spill: Some(spill) };
        let said = of_memory(&MemoryReport { limit: GIB, ..fine() }, &around);
        assert!(
            said.contains("evicted or spilled") && said.contains("1000 of 5000 reads"),
            "{said}"
        );
        assert!(said.contains("1.00G on disk, of which 1.00M"), "{said}");
    }

    #[test]
    fn latency_is_told_by_event() {
        let terms = Terms { threshold_ms: 100, slowlog_micros: 10_000, slowlog_len: 0 };
        let mut monitor = LatencyMonitor::default();
        assert_eq!(of_latency(&monitor, terms, 0), "Nothing took longer than 100 ms.\n");
        monitor.record("command", 10, 200);
        monitor.record("command", 20, 400);
        monitor.record("fast-command", 30, 150);
        let said = of_latency(&monitor, terms, 25);
        let expected = "command: 2 spikes over 100 ms, 300 ms on average, 400 ms at worst, the last one 5 s ago. SLOWLOG GET";
        assert!(said.starts_with(expected), "{said}");
        assert!(
            said.contains("fast-command: 1 spikes") && said.contains("the last one 0 s ago"),
            "{said}"
        );
        for event in [
            "command-unblocking",
            "aof-write",
            "aof-write-pending-fsync",
            "aof-fsync-always",
            "aof-fsync-everysec",
            "eviction-cycle",
            "expire-cycle",
            "snapshot",
        ] {
            monitor.record(event, 30, 150);
            assert!(!advice(event, terms).is_empty(), "{event}");
        }
        assert_eq!(of_latency(&monitor, terms, 25).lines().count(), 10);
        let blind = Terms { slowlog_micros: -1, ..terms };
        assert!(of_latency(&monitor, blind, 25).contains("slowlog-log-slower-than is off"));
        let high = Terms { threshold_ms: 1000, ..terms };
        assert!(of_latency(&LatencyMonitor::default(), high, 0).contains("shorter spikes"));
        let off = Terms { threshold_ms: 0, slowlog_len: 3, ..terms };
        let said = of_latency(&monitor, off, 0);
        assert!(said.contains("is off") && said.contains("has 3 commands of 10000"), "{said}");
    }
}
