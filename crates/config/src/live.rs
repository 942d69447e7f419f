//! The settings that every request or connection reads, one atomic load each.
//!
//! A reader sees a change at the latest at its next request after CONFIG SET has replied. Fields are independent:
//! loads are relaxed, and two successive ones may see different changes.

use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU8, AtomicU64, Ordering::Relaxed};

use super::settings::Settings;
use super::sync_policy::SyncPolicy;
use super::table::DirectiveId;

/// Makes the struct, its readers, and the method that fills it, from one list.
macro_rules! live {
    ($($(#[$doc:meta])* $field:ident: $cell:ident<$type:ty> = $reader:ident($name:literal);)*) => {
        /// See the module.
        #[derive(Debug, Default)]
        pub struct Live {
            $($field: $cell,)*
        }

        impl Live {
            /// Takes over all values.
            pub(super) fn store(&self, settings: &Settings) {
                $(self.$field.store(settings.$reader(const { DirectiveId::of($name) }), Relaxed);)*
            }

            $($(#[$doc])*
            #[inline]
            pub fn $field(&self) -> $type {
                self.$field.load(Relaxed)
            })*
        }
    };
}

live! {
    /// Connections at the same time.
    maxclients: AtomicU64<u64> = count("maxclients");
    /// Connections a second that one address may open, 0 for no limit.
    max_new_connections_per_address: AtomicU64<u64> = count("max-new-connections-per-address");
    /// Seconds after which a silent client is closed, 0 for never.
    timeout_seconds: AtomicU64<u64> = count("timeout");
    /// Seconds of silence before the kernel probes, 0 for never.
    tcp_keepalive_seconds: AtomicU64<u64> = count("tcp-keepalive");
    /// Whether strangers are refused while there is no password.
    protected_mode: AtomicBool<bool> = is_on("protected-mode");
    /// Whether clients have to say AUTH.
    has_password: AtomicBool<bool> = is_not_empty("requirepass");
    /// Bytes of one argument at most.
    proto_max_bulk_len: AtomicU64<u64> = bytes("proto-max-bulk-len");
    /// Bytes of one value at most, for clients of memcached.
    item_size_max: AtomicU64<u64> = bytes("item-size-max");
    /// Whether clients of memcached may flush everything.
    memcached_flush_all: AtomicBool<bool> = is_on("memcached-flush-all");
    /// Bytes of one request at most.
    client_query_buffer_limit: AtomicU64<u64> = bytes("client-query-buffer-limit");
    /// Results of commands that never block that one client may wait for.
    client_pending_results: AtomicU64<u64> = count("client-pending-results");
    /// Bytes of data at most, 0 for no limit.
    maxmemory: AtomicU64<u64> = bytes("maxmemory");
    /// How long a command may evict, from 0 to 100.
    maxmemory_eviction_tenacity: AtomicU64<u64> = count("maxmemory-eviction-tenacity");
    /// Microseconds from which a command enters the slow log, -1 for never.
    slowlog_log_slower_than: AtomicI64<i64> = number("slowlog-log-slower-than");
    /// Entries of the slow log at most.
    slowlog_max_len: AtomicU64<u64> = count("slowlog-max-len");
    /// Entries of ACL LOG at most.
    acllog_max_len: AtomicU64<u64> = count("acllog-max-len");
    /// Milliseconds from which an event is remembered, 0 for never.
    latency_monitor_threshold: AtomicU64<u64> = count("latency-monitor-threshold");
    /// Milliseconds after which clients get BUSY for what a script holds, 0 for never.
    busy_reply_threshold: AtomicU64<u64> = count("busy-reply-threshold");
    /// Milliseconds after which a script is ended, 0 for never.
    script_time_limit: AtomicU64<u64> = count("script-time-limit");
    /// Bytes that a script may take, 0 for no limit.
    script_memory_limit: AtomicU64<u64> = bytes("script-memory-limit");
    /// Whether scripts that fail are undone.
    script_atomic: AtomicBool<bool> = is_on("script-atomic");
    /// Whether durations are recorded by command.
    latency_tracking: AtomicBool<bool> = is_on("latency-tracking");
    /// Whether FLUSHALL without SYNC or ASYNC is FLUSHALL ASYNC.
    lazyfree_lazy_user_flush: AtomicBool<bool> = is_on("lazyfree-lazy-user-flush");
    /// When the log reaches the device, as a number of `SyncPolicy`.
    appendfsync_code: AtomicU8<u8> = sync_policy_code("appendfsync");
    /// Replicas that have a write before it is acknowledged.
    durability_replicas: AtomicU64<u64> = count("durability-replicas");
    /// Whether they have it on their device.
    durability_replicas_logged: AtomicBool<bool> = is_on("durability-replicas-logged");
    /// Milliseconds that a reply waits for them.
    durability_replicas_timeout: AtomicU64<u64> = count("durability-replicas-timeout");
    /// Growth of the log that has it compacted, in percent; 0 for never.
    log_growth_percentage: AtomicU64<u64> = count("auto-aof-rewrite-percentage");
    /// Bytes of the log below which it is not compacted.
    log_bytes_min: AtomicU64<u64> = bytes("auto-aof-rewrite-min-size");
    /// Bytes a second that compaction may write, 0 for no limit.
    compaction_bytes_per_second: AtomicU64<u64> = bytes("compaction-bytes-per-second");
}

impl Live {
    pub(super) fn new(settings: &Settings) -> Self {
        let live = Self::default();
        live.store(settings);
        live
    }

    /// When the log reaches the device.
    #[inline]
    pub fn appendfsync(&self) -> SyncPolicy {
        SyncPolicy::from_code(self.appendfsync_code())
    }
}

#[cfg(test)]
mod tests {
    use super::super::settings::Settings;
    use super::Live;

    #[test]
    fn all_fields_are_filled_with_values_of_their_kind() {
        let live = Live::new(&Settings::default());
        assert_eq!(live.maxclients(), 10_000);
        assert_eq!(live.proto_max_bulk_len(), 512 << 20);
        assert_eq!(live.slowlog_log_slower_than(), 10_000);
        assert!(live.latency_tracking() && live.protected_mode());
        assert!(!live.has_password());
    }
}
