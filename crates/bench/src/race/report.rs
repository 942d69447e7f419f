//! The results of a race, for people and as JSON.

use std::fmt::Write as _;

use serde::Serialize;

use super::cache::Dropped;
use super::child::Sample;
use super::dataset::{KEY_LEN, VALUE_LEN};
use super::phase::{Outcome, Phase};
use super::plan::Plan;
use super::ratio::Ratio;
use super::raw_disk::RawDisk;
use super::recovery::Recovery;
use crate::machine::Machine;

/// All results of a race.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    pub(super) machine: Machine,
    pub(super) plan: Plan,
    pub(super) page_cache: Option<Dropped>,
    pub(super) raw_disk: Option<RawDisk>,
    pub(super) recovery: Option<Recovery>,
    pub(super) phases: Vec<Outcome>,
    pub(super) ratios: Vec<Ratio>,
    /// Progress of each phase, in the order of `phases`.
    pub(super) samples: Vec<Vec<Sample>>,
}

/// Number of keys at the contest's full size.
const CONTEST_KEYS: f64 = 64e6;

impl Report {
    /// Returns the table and the text around it.
    pub(super) fn text(&self) -> String {
        let mut text = self.head();
        if let Some(disk) = &self.raw_disk {
            text.push_str(&limits(disk));
        }
        if let Some(recovery) = &self.recovery {
            text.push_str(&kills(recovery));
        }
        if !self.phases.is_empty() {
            text.push_str(&self.table());
        }
        if !self.ratios.is_empty() {
            text.push_str(&ratios(&self.ratios));
        }
        text
    }

    fn head(&self) -> String {
        let plan = &self.plan;
        let mut text = format!(
            "{}\n{} threads × {} keys of {KEY_LEN} bytes with values of {VALUE_LEN}, {} in all; {} scans \
             a thread; seed {}\n",
            self.machine.line(),
            plan.threads,
            plan.per_thread,
            gigabytes(plan.bytes() as f64),
            plan.scans,
            plan.seed,
        );
        if let Some(dropped) = self.page_cache {
            let _ = writeln!(text, "page cache {}", dropped.about());
        }
        text + "\n"
    }

    fn table(&self) -> String {
        let mut text = format!(
            "{:<24}{:>12}{:>9}{:>11}{:>10}{:>10}{:>10}{:>10}{:>10}{:>8}{:>8}\n",
            "phase",
            "keys",
            "s",
            "k keys/s",
            "MB/s",
            "disk MB",
            "peak MB",
            "anon MB",
            "file MB",
            "open s",
            "close s",
        );
        for outcome in &self.phases {
            text.push_str(&row(outcome));
        }
        let memory = self.phases.iter().map(|outcome| outcome.memory.peak).max().unwrap_or(0);
        let _ = writeln!(text, "\nmost memory of a phase: {:.0} MB", memory as f64 / 1e6);
        if let Some(last) = self.phases.last() {
            let per_key = last.sizes.index_bytes as f64 / last.sizes.keys.max(1) as f64;
            let _ = writeln!(
                text,
                "index: {:.1} MB, {per_key:.1} bytes a key, so {} for 64 million keys; \
                 on disk: {}",
                last.sizes.index_bytes as f64 / 1e6,
                gigabytes(per_key * CONTEST_KEYS),
                gigabytes(last.sizes.disk_bytes as f64),
            );
        }
        if let Some(write) = self.phases.iter().find(|outcome| outcome.flush_seconds.is_some()) {
            let flush = write.flush_seconds.unwrap_or_default();
            let _ = writeln!(
                text,
                "write: safe against a kill after {:.2} s; everything durable {flush:.2} s later \
                 ({:.0} MB/s in all)",
                write.seconds,
                bytes(write) / (write.seconds + flush) / 1e6,
            );
        }
        text + "\n"
    }
}

fn limits(disk: &RawDisk) -> String {
    format!(
        "disk, past the page cache, with a file of {}:\n  \
         sequential write, 1 MiB blocks, synced  {:>9.0} MB/s\n  \
         sequential read, 1 MiB blocks           {:>9.0} MB/s\n  \
         random read, 4 KiB at depth 64          {:>9.1} k/s\n\n",
        gigabytes(disk.file_bytes as f64),
        disk.write_bytes_per_second / 1e6,
        disk.read_bytes_per_second / 1e6,
        disk.random_reads_per_second / 1e3,
    )
}

fn kills(recovery: &Recovery) -> String {
    format!(
        "recovery: {} kills, {} writes acknowledged, nothing lost in {} comparisons; opened within \
         {:.2} s; {:.1} s in all\n\n",
        recovery.kills,
        recovery.acknowledged,
        recovery.checks,
        recovery.open_seconds_max,
        recovery.seconds,
    )
}

fn title(phase: Phase) -> &'static str {
    match phase {
        Phase::Write => "random write",
        Phase::Read => "random read, cold",
        Phase::Warm => "random read, warm",
        Phase::Scan => "ordered scans",
    }
}

/// Returns the number of bytes that the engine and its users exchanged.
fn bytes(outcome: &Outcome) -> f64 {
    outcome.operations as f64 * (KEY_LEN + VALUE_LEN) as f64
}

fn row(of: &Outcome) -> String {
    let megabytes = |bytes: u64| format!("{:.0}", bytes as f64 / 1e6);
    format!(
        "{:<24}{:>12}{:>9.2}{:>11.1}{:>10.0}{:>10}{:>10}{:>10}{:>10}{:>8.2}{:>8.2}\n",
        title(of.phase),
        of.operations,
        of.seconds,
        of.operations as f64 / of.seconds / 1e3,
        bytes(of) / of.seconds / 1e6,
        megabytes(of.device_bytes_read),
        megabytes(of.memory.peak),
        megabytes(of.memory.anonymous),
        megabytes(of.memory.file),
        of.open_seconds,
        of.close_seconds,
    )
}

fn ratios(ratios: &[Ratio]) -> String {
    let mut text = format!("{:<38}{:>8}{:>10}\n", "ratio", "is", "goal");
    for ratio in ratios {
        let met = if ratio.is_met { "met" } else { "MISSED" };
        let goal = ratio.goal.to_string();
        let _ = writeln!(text, "{:<38}{:>8.2}{goal:>10}  {met}", ratio.name, ratio.value);
    }
    text
}

fn gigabytes(bytes: f64) -> String {
    format!("{:.2} GB", bytes / 1e9)
}
