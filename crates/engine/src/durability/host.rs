//! What the log needs of the program around it, and no more: so that it can be driven without threads,
//! sockets and sessions.

use std::fmt;
use std::time::Duration;

use tierce_config::SyncPolicy;

/// The reader of the log's reports.
pub trait Operator: Send + Sync {
    /// A line.
    fn tell(&self, severity: Severity, line: fmt::Arguments<'_>);
}

/// The program around the log.
pub trait Host: Operator {
    /// Settings that may change while it runs.
    fn settings(&self) -> CompactionSettings;

    /// Wakes those who wait for the device: the log has reached it, or there is no log any more.
    fn device_reached(&self);

    /// Writers that were held back because the device took too long, or a pass needed the rest of the
    /// disk, may go on.
    fn writers_go_on(&self);

    /// There is no log although one was asked for. Settings that say otherwise are put back, before
    /// anybody hears of it by [`Self::switched`].
    fn take_back(&self);

    /// A switch that [`DurableLog::switch`](super::DurableLog::switch) asked for has come to an end.
    fn switched(&self, switched: &Switched);
}

/// The program around the thread that has the log reach the device.
pub trait SyncHost: Host {
    /// How soon the log has to reach it.
    fn sync_policy(&self) -> SyncPolicy;

    /// Something took so long.
    fn note_latency(&self, event: &'static str, took: Duration);
}

/// How important a line is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Severity {
    /// For debugging.
    Verbose,
    /// What an operator wants to see.
    Notice,
    /// What an operator has to see.
    Warning,
}

/// Settings that the WAL manager follows.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct CompactionSettings {
    /// The log is compacted when it has grown by so many percent; zero for never.
    pub growth_percentage: u64,
    /// A log that is not larger is not compacted.
    pub bytes_min: u64,
    /// Compaction writes so much a second at most; zero for no limit.
    pub bytes_per_second: u64,
}

/// The end of a switch, and of all before it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Switched {
    /// Which one.
    pub switch_id: u64,
    /// Whether there is a log now.
    pub is_on: bool,
    /// Why there is none although one was asked for.
    pub failure: Option<String>,
}

/// Why a switch of the log came to nothing that did not fail.
pub const SWITCHED_BY_ANOTHER: &str = "another client has switched it meanwhile";
