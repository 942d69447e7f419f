//! The settings that every request or connection reads, one atomic load each.
//!
//! After CONFIG SET has replied, a reader sees the change at its next request at the latest. Fields are independent:
//! loads are relaxed, and two successive loads may see different changes.

use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU8, AtomicU64, Ordering::Relaxed};

use super::settings::Settings;
use super::sync_policy::SyncPolicy;
use super::table::DirectiveId;

/// Makes the struct, its readers, and the method that fills it from one list.
macro_rules! live {
    ($($(#[$doc:meta])* $field:ident: $cell:ident<$type:ty> = $reader:ident($name:literal);)*) => {
        /// Settings that are read without a lock; see the module.
        #[derive(Debug, Default)]
        pub struct Live {
            $($field: $cell,)*
        }

        impl Live {
            /// Stores all values.
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
    /// Maximum number of simultaneous connections.
    maxclients: AtomicU64<u64> = count("maxclients");
    /// Maximum number of connections that one address may open in a second, 0 for no limit.
    max_new_connections_per_address: AtomicU64<u64> = count("max-new-connections-per-address");
    /// Seconds after which an idle client is closed, 0 for never.
    timeout_seconds: AtomicU64<u64> = count("timeout");
    /// Seconds of silence before the kernel sends a probe, 0 for never.
    tcp_keepalive_seconds: AtomicU64<u64> = count("tcp-keepalive");
    /// True if remote clients are refused while there is no password.
    protected_mode: AtomicBool<bool> = is_on("protected-mode");
    /// True if clients must authenticate with AUTH.
    has_password: AtomicBool<bool> = is_not_empty("requirepass");
    /// Maximum number of bytes of one argument.
    proto_max_bulk_len: AtomicU64<u64> = bytes("proto-max-bulk-len");
    /// Maximum number of bytes of one value, for clients of memcached.
    item_size_max: AtomicU64<u64> = bytes("item-size-max");
    /// True if clients of memcached may flush all data.
    memcached_flush_all: AtomicBool<bool> = is_on("memcached-flush-all");
    /// Maximum number of bytes of one request.
    client_query_buffer_limit: AtomicU64<u64> = bytes("client-query-buffer-limit");
    /// Maximum number of pending results of non-blocking commands for each client.
    client_pending_results: AtomicU64<u64> = count("client-pending-results");
    /// Maximum number of bytes of data, 0 for no limit.
    maxmemory: AtomicU64<u64> = bytes("maxmemory");
    /// Effort that a command may spend on eviction, from 0 to 100.
    maxmemory_eviction_tenacity: AtomicU64<u64> = count("maxmemory-eviction-tenacity");
    /// Microseconds from which a command enters the slow log, -1 for never.
    slowlog_log_slower_than: AtomicI64<i64> = number("slowlog-log-slower-than");
    /// Maximum number of entries of the slow log.
    slowlog_max_len: AtomicU64<u64> = count("slowlog-max-len");
    /// Bytes from which a request is in the log of large ones, -1 for never.
    large_request_bytes_min: AtomicI64<i64> = number("commandlog-request-larger-than");
    /// Maximum number of entries of the log of large requests.
    large_request_max_len: AtomicU64<u64> = count("commandlog-large-request-max-len");
    /// Bytes from which a reply is in the log of large ones, -1 for never.
    large_reply_bytes_min: AtomicI64<i64> = number("commandlog-reply-larger-than");
    /// Maximum number of entries of the log of large replies.
    large_reply_max_len: AtomicU64<u64> = count("commandlog-large-reply-max-len");
    /// Maximum number of entries of ACL LOG.
    acllog_max_len: AtomicU64<u64> = count("acllog-max-len");
    /// Milliseconds from which a latency event is recorded, 0 for never.
    latency_monitor_threshold: AtomicU64<u64> = count("latency-monitor-threshold");
    /// Milliseconds of a script after which clients get BUSY for its locked keys, 0 for never.
    busy_reply_threshold: AtomicU64<u64> = count("busy-reply-threshold");
    /// Milliseconds after which a script is ended, 0 for never.
    script_time_limit: AtomicU64<u64> = count("script-time-limit");
    /// Maximum number of bytes that a script may use, 0 for no limit.
    script_memory_limit: AtomicU64<u64> = bytes("script-memory-limit");
    /// True if changes of a failed script are rolled back.
    script_atomic: AtomicBool<bool> = is_on("script-atomic");
    /// True if durations are recorded for each command.
    latency_tracking: AtomicBool<bool> = is_on("latency-tracking");
    /// True if FLUSHALL without SYNC or ASYNC means FLUSHALL ASYNC.
    lazyfree_lazy_user_flush: AtomicBool<bool> = is_on("lazyfree-lazy-user-flush");
    /// Number of the `SyncPolicy` of the log.
    appendfsync_code: AtomicU8<u8> = sync_policy_code("appendfsync");
    /// Number of replicas that must have a write before it is acknowledged.
    durability_replicas: AtomicU64<u64> = count("durability-replicas");
    /// True if replicas must have the write on their device.
    durability_replicas_logged: AtomicBool<bool> = is_on("durability-replicas-logged");
    /// Milliseconds that a reply waits for the replicas.
    durability_replicas_timeout: AtomicU64<u64> = count("durability-replicas-timeout");
    /// Growth of the log, in percent, that starts a compaction; 0 for never.
    log_growth_percentage: AtomicU64<u64> = count("auto-aof-rewrite-percentage");
    /// Bytes of the log below which it is not compacted.
    log_bytes_min: AtomicU64<u64> = bytes("auto-aof-rewrite-min-size");
    /// Maximum number of bytes a second that compaction writes, 0 for no limit.
    compaction_bytes_per_second: AtomicU64<u64> = bytes("compaction-bytes-per-second");
}

impl Live {
    pub(super) fn new(settings: &Settings) -> Self {
        let live = Self::default();
        live.store(settings);
        live
    }

    /// Returns the sync policy of the log.
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
