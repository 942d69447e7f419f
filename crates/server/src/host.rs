//! A server, as its log sees it.

use std::fmt;
use std::sync::{Arc, Weak};
use std::time::Duration;

use crate::config::{Peer, SyncPolicy};
use crate::durability::{Host, KeeperSettings, Operator, Severity, Switched, SyncHost};
use crate::server::Server;
use crate::service::Message;
use crate::spill;

/// It may be gone before the log.
pub struct ServerHost(pub Weak<Server>);

impl Operator for ServerHost {
    fn tell(&self, severity: Severity, line: fmt::Arguments<'_>) {
        if let Some(server) = self.0.upgrade() {
            server.log.tell(severity, line);
        }
    }
}

impl Host for ServerHost {
    fn settings(&self) -> KeeperSettings {
        let server = self.0.upgrade();
        server.map_or(KeeperSettings::default(), |server| {
            let live = server.config.live();
            KeeperSettings {
                growth_percentage: live.log_growth_percentage(),
                bytes_min: live.log_bytes_min(),
                bytes_per_second: live.compaction_bytes_per_second(),
            }
        })
    }

    fn device_reached(&self) {
        if let Some(server) = self.0.upgrade() {
            server.post_to_all(&Message::Durable);
        }
    }

    fn take_back(&self) {
        if let Some(server) = self.0.upgrade() {
            // That is so already, and nobody can refuse it.
            let _ = server.config.set(&[(b"appendonly", b"no")], Peer::Local);
        }
    }

    fn switched(&self, switched: &Switched) {
        let Some(server) = self.0.upgrade() else { return };
        server.post_to_all(&Message::LogSwitched(Arc::new(switched.clone())));
    }
}

impl SyncHost for ServerHost {
    fn sync_policy(&self) -> SyncPolicy {
        let server = self.0.upgrade();
        server.map_or(SyncPolicy::No, |server| server.config.live().appendfsync())
    }

    fn writers_go_on(&self) {
        if let Some(server) = self.0.upgrade() {
            server.post_to_all(&Message::Resume);
        }
    }

    fn note_latency(&self, event: &'static str, took: Duration) {
        if let Some(server) = self.0.upgrade() {
            server.note_latency(event, took);
        }
    }
}

impl spill::Host for ServerHost {
    fn purge_memory(&self) {
        if let Some(server) = self.0.upgrade() {
            server.purge_memory();
        }
    }

    fn purge_rest(&self) -> Duration {
        self.0.upgrade().map_or(Duration::ZERO, |server| server.purge.rest())
    }
}
