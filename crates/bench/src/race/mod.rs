//! The race of the storage engine: `tierce race`.
//!
//! A contest for storage engines as a program. Writers are killed, and no acknowledged write may be lost. Then many
//! threads write, read and scan, each phase in a new process with an empty page cache, and everything read is
//! verified. The limits of the same disk, measured in the same run, put the figures into proportion. `docs/race.md`
//! explains the measurements and their reasons.
//!
//! In reading order:
//! * `cli`, `plan`: the options. `dataset`: the data.
//! * `engine`: the only file that uses the storage engine.
//! * `raw_disk` on `direct`: the disk alone. `recovery` and `writer`: the kills.
//! * `phase` with a `worker_pool` of threads and `verify`; in its own process by `child`.
//! * `ratio`, `report`, `plot`: the results.

mod cli;
mod plan;

mod dataset;
mod engine;
mod error;
mod verify;
mod worker_pool;

mod cache;
mod child;
mod memory;
mod phase;
mod traffic;

mod direct;
mod raw_disk;

mod recovery;
mod writer;

mod plot;
mod ratio;
mod report;
mod svg;

use std::fs;
use std::path::Path;

pub use cli::RaceArgs;
pub use error::RaceError;

use crate::engine::Goal;
use crate::machine::Machine;
use crate::progress::Progress;
use child::Sample;
use cli::Step;
use phase::{Outcome, Phase};
use plan::Plan;
use ratio::Ratio;
use report::Report;

/// Runs a race and prints its results to standard output.
///
/// The program starts itself for each phase, with `race` as the first argument, followed by a hidden option. So it
/// must have mounted [`RaceArgs`] under that name.
///
/// # Errors
/// If the race cannot be run, or is void because the engine lost or corrupted data. Missed goals are results, not
/// errors.
pub fn run(args: &RaceArgs) -> Result<(), RaceError> {
    if let Some(job) = &args.child {
        return child::serve(job);
    }
    let plan = Plan::new(args);
    plan.prepare(&args.phases)?;
    let mut race = Race::new(args, plan);
    let result = race.run();
    if let Err(error) = result {
        eprintln!("the files of the race are left in {}", args.dir.display());
        return Err(error);
    }
    race.finish()
}

struct Race<'a> {
    args: &'a RaceArgs,
    progress: Progress,
    report: Report,
}

impl<'a> Race<'a> {
    fn new(args: &'a RaceArgs, plan: Plan) -> Self {
        let report = Report {
            machine: Machine::this(),
            plan,
            page_cache: None,
            raw_disk: None,
            recovery: None,
            phases: Vec::new(),
            ratios: Vec::new(),
            samples: Vec::new(),
        };
        let progress = if args.quiet { Progress::Hidden } else { Progress::Shown };
        Self { args, progress, report }
    }

    fn has(&self, step: Step) -> bool {
        self.args.phases.contains(&step)
    }

    fn run(&mut self) -> Result<(), RaceError> {
        if self.has(Step::RawDisk) {
            self.measure_disk()?;
        }
        if self.has(Step::Recovery) {
            let mut bar = self.progress.bar("recovery", Goal::Requests(self.args.kills.into()));
            let start = std::time::Instant::now();
            let tell = |kills: u32| bar.update(kills.into(), start.elapsed());
            self.report.recovery = Some(recovery::run(&self.report.plan, tell)?);
        }
        for (step, phase) in [
            (Step::Write, Phase::Write),
            (Step::Read, Phase::Read),
            (Step::Warm, Phase::Warm),
            (Step::Scan, Phase::Scan),
        ] {
            if self.has(step) {
                self.run_phase(phase)?;
            }
        }
        Ok(())
    }

    fn measure_disk(&mut self) -> Result<(), RaceError> {
        let mut bar = None;
        let progress = self.progress;
        let tell = |part| {
            let title = match part {
                raw_disk::RawDiskTest::Write => "disk write",
                raw_disk::RawDiskTest::RandomRead => "disk random",
                raw_disk::RawDiskTest::Read => "disk read",
            };
            bar = Some(progress.bar(title, Goal::Requests(1)));
        };
        self.report.raw_disk = raw_disk::measure(&self.report.plan, tell)?;
        if self.report.raw_disk.is_none() {
            eprintln!("the file system knows no direct I/O, so the limits of the disk are unknown");
        }
        Ok(())
    }

    fn run_phase(&mut self, phase: Phase) -> Result<(), RaceError> {
        let plan = &self.report.plan;
        // Before the store exists, this writes the dirty pages of earlier steps.
        let dir = if phase == Phase::Write { plan.dir.clone() } else { plan.store() };
        self.report.page_cache = Some(cache::empty(self.args.drop_caches, &dir)?);
        let mut bar = self.progress.bar(phase.name(), Goal::Requests(phase.operations(plan)));
        let mut samples = Vec::new();
        let outcome: Outcome = child::run(plan, phase, |sample: Sample| {
            bar.update(sample.done, std::time::Duration::from_secs_f64(sample.seconds));
            samples.push(sample);
        })?;
        self.report.phases.push(outcome);
        self.report.samples.push(samples);
        Ok(())
    }

    fn finish(mut self) -> Result<(), RaceError> {
        let report = &mut self.report;
        report.ratios = Ratio::all(&report.plan, report.raw_disk.as_ref(), &report.phases);
        if !self.args.keep {
            report.plan.remove()?;
        }
        print(&report.text())?;
        if let Some(path) = &self.args.json {
            save(path, &crate::report::document(report))?;
        }
        if let Some(path) = &self.args.plot {
            save(path, &plot::svg(report))?;
        }
        Ok(())
    }
}

fn save(path: &Path, text: &str) -> Result<(), RaceError> {
    fs::write(path, text).map_err(RaceError::io("write", path))
}

fn print(text: &str) -> Result<(), RaceError> {
    crate::report::write(text).map_err(|error| RaceError::Usage(error.to_string()))
}
