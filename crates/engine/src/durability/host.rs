//! The interface of the log to the program around it. It is small, so that the log can be driven
//! without threads, sockets and sessions.

use std::fmt;
use std::time::Duration;

use tierce_config::SyncPolicy;

/// Receiver of the log's messages to the operator.
pub trait Operator: Send + Sync {
    /// Writes a line.
    fn tell(&self, severity: Severity, line: fmt::Arguments<'_>);
}

/// The program around the log.
pub trait Host: Operator {
    /// Returns the settings, which may change at run time.
    fn settings(&self) -> CompactionSettings;

    /// Wakes all that wait for a sync: it has ended, or there is no log any more.
    fn device_reached(&self);

    /// Wakes writers that waited for a slow device, or because a pass needed the rest of the disk.
    fn writers_go_on(&self);

    /// Resets settings that ask for a log, because none could be created. Called before
    /// [`Self::switched`] tells anybody.
    fn take_back(&self);

    /// Reports the end of a switch that [`DurableLog::switch`](super::DurableLog::switch) requested.
    fn switched(&self, switched: &Switched);
}

/// The program around the sync thread.
pub trait SyncHost: Host {
    /// Returns the sync policy (`appendfsync`).
    fn sync_policy(&self) -> SyncPolicy;

    /// Records the latency of an event.
    fn note_latency(&self, event: &'static str, took: Duration);
}

/// Importance of a line.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Severity {
    /// For debugging.
    Verbose,
    /// Of interest to an operator.
    Notice,
    /// Needs the attention of an operator.
    Warning,
}

/// Settings of the WAL manager.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct CompactionSettings {
    /// Growth in percent at which the log is compacted; zero for never.
    pub growth_percentage: u64,
    /// Size up to which the log is not compacted.
    pub bytes_min: u64,
    /// Bytes per second that compaction may write; zero for no limit.
    pub bytes_per_second: u64,
}

/// The end of a switch, and of all earlier ones.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Switched {
    /// Id of the switch.
    pub switch_id: u64,
    /// True if there is a log now.
    pub is_on: bool,
    /// Reason why the requested log could not be created.
    pub failure: Option<String>,
}

/// Reason for a switch without effect that did not fail.
pub const SWITCHED_BY_ANOTHER: &str = "another client has switched it meanwhile";
