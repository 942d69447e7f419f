//! Client-side caching: connects the keys that clients have read with the messages to these clients.
//!
//! The keyspace knows which client has read which key, and notices its changes (`cached` there). `pubsub` knows the
//! connections of the clients. `docs/client-side-caching.md` states the guarantees for clients.

use std::sync::Arc;

use parking_lot::Mutex;
use tierce_keyspace::{InvalidatedKey, InvalidationSink, Keyspace};

use crate::config::DirectiveId;
use crate::kernel::Kernel;
use crate::pubsub::{PubSub, TrackingListener};

impl InvalidationSink for PubSub {
    fn invalidate(&self, invalidated: &[InvalidatedKey]) {
        Self::invalidate(self, invalidated);
    }

    fn invalidate_all(&self) {
        Self::invalidate_all(self);
    }

    fn still_reads(&self, reader: u64) -> bool {
        Self::tracks(self, reader)
    }

    fn is_congested(&self) -> bool {
        Self::is_congested(self)
    }
}

/// Limit of keys that the keyspace remembers.
struct TableLimit {
    keyspace: Arc<Keyspace>,
    state: Mutex<LimitState>,
}

#[derive(Clone, Copy, Default)]
struct LimitState {
    has_trackers: bool,
    /// `tracking-table-max-keys`; 0 for no limit.
    max: u64,
}

impl TableLimit {
    fn set(&self, change: impl FnOnce(&mut LimitState)) {
        let mut state = self.state.lock();
        change(&mut state);
        let limit = match *state {
            // No client tracks keys.
            LimitState { has_trackers: false, .. } => 0,
            LimitState { max: 0, .. } => u64::MAX,
            LimitState { max, .. } => max,
        };
        self.keyspace.limit_cached_keys(limit);
    }
}

impl TrackingListener for Arc<TableLimit> {
    fn has_trackers(&self, is_any: bool) {
        self.set(|state| state.has_trackers = is_any);
    }

    fn has_prefixes(&self, is_any: bool) {
        self.keyspace.set_broadcast(is_any);
    }
}

/// Tells clients of a kernel of changes, as configured. Follows later changes of the configuration.
pub fn connect(kernel: &Kernel) {
    const MAX_KEYS: DirectiveId = DirectiveId::of("tracking-table-max-keys");
    let limit = Arc::new(TableLimit {
        keyspace: Arc::clone(&kernel.keyspace),
        state: Mutex::new(LimitState::default()),
    });
    limit.set(|state| state.max = kernel.config.settings().count(MAX_KEYS));
    kernel.keyspace.set_invalidation_sink(Arc::clone(&kernel.pubsub) as Arc<dyn InvalidationSink>);
    kernel.pubsub.set_users(&kernel.acl.users);
    kernel.pubsub.on_tracking(Arc::clone(&limit));
    kernel.config.on_change([MAX_KEYS], move |settings| {
        let max = settings.count(MAX_KEYS);
        limit.set(|state| state.max = max);
        Ok(())
    });
}
