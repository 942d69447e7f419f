//! The engine as the host of its parts' threads.

use std::fmt;
use std::sync::{Arc, Weak};
use std::time::Duration;

use super::{Engine, News};
use crate::durability::{CompactionSettings, Host, Operator, Severity, Switched, SyncHost};
use tierce_config::{Peer, SyncPolicy};

/// Weak reference to the engine, which may be dropped before its threads end.
pub(super) struct EngineHost(Weak<Engine>);

impl EngineHost {
    pub(super) fn of(engine: &Arc<Engine>) -> Self {
        Self(Arc::downgrade(engine))
    }
}

impl Operator for EngineHost {
    fn tell(&self, severity: Severity, line: fmt::Arguments<'_>) {
        if let Some(engine) = self.0.upgrade() {
            engine.log.tell(severity, line);
        }
    }
}

impl Host for EngineHost {
    fn settings(&self) -> CompactionSettings {
        let engine = self.0.upgrade();
        engine.map_or(CompactionSettings::default(), |engine| {
            let live = engine.config.live();
            CompactionSettings {
                growth_percentage: live.log_growth_percentage(),
                bytes_min: live.log_bytes_min(),
                bytes_per_second: live.compaction_bytes_per_second(),
            }
        })
    }

    fn device_reached(&self) {
        if let Some(engine) = self.0.upgrade() {
            engine.tell(News::DeviceReached);
        }
    }

    fn writers_go_on(&self) {
        if let Some(engine) = self.0.upgrade() {
            engine.tell(News::WritersGoOn);
        }
    }

    fn take_back(&self) {
        if let Some(engine) = self.0.upgrade() {
            // The log is off already, so this change cannot be refused.
            let _ = engine.config.set(&[(b"appendonly", b"no")], Peer::Local);
        }
    }

    fn switched(&self, switched: &Switched) {
        let Some(engine) = self.0.upgrade() else { return };
        engine.tell(News::LogSwitched(Arc::new(switched.clone())));
    }
}

impl SyncHost for EngineHost {
    fn sync_policy(&self) -> SyncPolicy {
        let engine = self.0.upgrade();
        engine.map_or(SyncPolicy::No, |engine| engine.config.live().appendfsync())
    }

    fn note_latency(&self, event: &'static str, took: Duration) {
        if let Some(engine) = self.0.upgrade() {
            engine.note_latency(event, took);
        }
    }
}
