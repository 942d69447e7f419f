//! The engine's figures compared with those of the disk.

use serde::Serialize;

use super::phase::{Outcome, Phase};
use super::plan::Plan;
use super::raw_disk::RawDisk;

/// A figure of the engine relative to one of the disk, and its goal.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Ratio {
    pub(super) name: &'static str,
    pub(super) value: f64,
    pub(super) goal: Goal,
    pub(super) is_met: bool,
}

/// Goal of a ratio.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Goal {
    AtLeast(f64),
    AtMost(f64),
}

const WRITE: Goal = Goal::AtLeast(0.6);
const READ: Goal = Goal::AtLeast(0.95);
const WARM: Goal = Goal::AtLeast(6.0);
const SCAN: Goal = Goal::AtMost(2.5);

impl Ratio {
    fn new(name: &'static str, value: f64, goal: Goal) -> Self {
        let is_met = match goal {
            Goal::AtLeast(least) => value >= least,
            Goal::AtMost(most) => value <= most,
        };
        Self { name, value, goal, is_met }
    }

    /// Returns all ratios whose phases have run.
    pub(super) fn all(plan: &Plan, disk: Option<&RawDisk>, outcomes: &[Outcome]) -> Vec<Self> {
        let of = |phase| outcomes.iter().find(|outcome| outcome.phase == phase);
        let rate = |outcome: &Outcome| outcome.operations as f64 / outcome.seconds;
        let mut ratios = Vec::new();
        if let (Some(disk), Some(write)) = (disk, of(Phase::Write)) {
            let value = plan.bytes() as f64 / write.seconds / disk.write_bytes_per_second;
            ratios.push(Self::new("random write ÷ sequential write", value, WRITE));
        }
        if let (Some(disk), Some(read)) = (disk, of(Phase::Read)) {
            let value = rate(read) / disk.random_reads_per_second;
            ratios.push(Self::new("cold random read ÷ raw 4 KiB reads", value, READ));
        }
        if let (Some(read), Some(warm)) = (of(Phase::Read), of(Phase::Warm)) {
            ratios.push(Self::new("warm ÷ cold random read", rate(warm) / rate(read), WARM));
        }
        if let (Some(disk), Some(scan)) = (disk, of(Phase::Scan)) {
            let once = plan.bytes() as f64 / disk.read_bytes_per_second;
            ratios.push(Self::new("all scans ÷ one sequential read", scan.seconds / once, SCAN));
        }
        ratios
    }
}

impl std::fmt::Display for Goal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::AtLeast(least) => write!(f, "≥ {least}"),
            Self::AtMost(most) => write!(f, "≤ {most}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn goals_are_met_at_their_limit() {
        assert!(Ratio::new("", 0.6, WRITE).is_met && !Ratio::new("", 0.59, WRITE).is_met);
        assert!(Ratio::new("", 2.5, SCAN).is_met && !Ratio::new("", 2.51, SCAN).is_met);
    }
}
