//! The data: memory, snapshots and the log of writes.

use std::sync::atomic::Ordering::Relaxed;

use tierce_keyspace::CodeKind;

use super::facts::Facts;
use super::field::{Field, always, is, maybe};
use super::value::Value;
use crate::config::DirectiveId;
use crate::memory::human;
use crate::scripting::Libraries;

#[rustfmt::skip]
pub(super) const MEMORY: &[Field] = &[
    is("used_memory", |f| f.memory().used().into(), "Bytes that the server accounts for.")
        .gauge("redis_memory_used_bytes"),
    is("used_memory_human", |f| human(f.memory().used()).into(), "The value above in a readable unit."),
    is("used_memory_rss", |f| f.memory().resident.into(),
        "Bytes that are resident, by the system's count.")
        .gauge("redis_memory_used_rss_bytes"),
    is("used_memory_rss_human", |f| human(f.memory().resident).into(), "The value above in a readable unit."),
    is("used_memory_peak", |f| f.memory().peak.into(),
        "The highest `used_memory` seen by INFO or the server's cron.")
        .gauge("redis_memory_used_peak_bytes"),
    is("used_memory_peak_human", |f| human(f.memory().peak).into(), "The value above in a readable unit."),
    is("used_memory_peak_perc", |f| percent(f.memory().used(), f.memory().peak),
        "`used_memory` of it."),
    is("used_memory_overhead", |f| f.memory().overhead().into(),
        "Memory for everything except data: the program, the index, connections, messages, tracking.")
        .gauge("redis_memory_used_overhead_bytes"),
    is("used_memory_startup", |f| f.memory().startup.into(),
        "Resident before there was data.")
        .gauge("redis_memory_used_startup_bytes"),
    is("used_memory_dataset", |f| f.memory().dataset().into(), "Keys and values.")
        .gauge("redis_memory_used_dataset_bytes"),
    is("used_memory_dataset_perc", |f| percent(f.memory().dataset(), f.memory().used() - f.memory().startup),
        "Keys and values of what came after the start."),
    is("allocator_allocated", |f| f.memory().used().into(), "As `used_memory`.")
        .gauge("redis_allocator_allocated_bytes"),
    is("allocator_active", |f| f.memory().resident.into(),
        "As `used_memory_rss`: the allocator does not tell what it holds.")
        .gauge("redis_allocator_active_bytes"),
    is("allocator_resident", |f| f.memory().resident.into(), "As `used_memory_rss`.")
        .gauge("redis_allocator_resident_bytes"),
    is("total_system_memory", |f| f.memory().total_system.into(), "Memory of the machine.")
        .gauge("redis_total_system_memory_bytes"),
    is("total_system_memory_human", |f| human(f.memory().total_system).into(), "The value above in a readable unit."),
    is("used_memory_lua", |f| machines(f).into(),
        "Bytes of the machines that run scripts and functions, one in each thread that has run some.")
        .gauge("redis_memory_used_lua_bytes"),
    is("used_memory_lua_human", |f| human(machines(f)).into(), "The value above in a readable unit."),
    is("used_memory_vm_eval", |f| machines(f).into(), "As `used_memory_lua`.")
        .gauge("redis_memory_used_vm_eval_bytes"),
    is("used_memory_scripts_eval", |f| f.kernel.scripts.memory_bytes().into(),
        "Bytes of the scripts that EVALSHA finds.")
        .gauge("redis_memory_used_scripts_eval_bytes"),
    is("number_of_cached_scripts", |f| f.kernel.scripts.len().into(), "Scripts that EVALSHA finds.")
        .gauge("redis_number_of_cached_scripts"),
    is("number_of_functions", |f| libraries(f).counts(f.kernel).1.into(), "Functions of libraries.")
        .gauge("redis_number_of_functions"),
    is("number_of_libraries", |f| libraries(f).counts(f.kernel).0.into(), "Libraries of functions.")
        .gauge("redis_number_of_libraries"),
    always("used_memory_vm_functions", "0",
        "The machines run scripts as well: `used_memory_vm_eval` has all of them.")
        .gauge("redis_memory_used_vm_functions_bytes"),
    is("used_memory_vm_total", |f| machines(f).into(), "As `used_memory_vm_eval`.")
        .gauge("redis_memory_used_vm_total_bytes"),
    is("used_memory_vm_total_human", |f| human(machines(f)).into(), "The value above in a readable unit."),
    is("used_memory_functions", |f| libraries(f).memory_bytes(f.kernel).into(),
        "Bytes of the libraries and their functions, without machines.")
        .gauge("redis_memory_used_functions_bytes"),
    is("used_memory_scripts", |f| scripts_and_functions(f).into(),
        "Bytes of scripts, those with names among them, and functions, without machines.")
        .gauge("redis_memory_used_scripts_bytes"),
    is("used_memory_scripts_human", |f| human(scripts_and_functions(f)).into(), "The value above in a readable unit."),
    is("maxmemory", |f| f.memory().limit.into(), "The directive; 0 is no limit.")
        .gauge("redis_memory_max_bytes"),
    is("maxmemory_human", |f| human(f.memory().limit).into(), "The value above in a readable unit."),
    is("maxmemory_policy", |f| f.settings().word(const { DirectiveId::of("maxmemory-policy") }).into(),
        "The directive."),
    is("spilled_keys", |f| f.kernel.keyspace.spill_stats().keys.into(),
        "Keys whose values are on disk only.")
        .gauge("tierce_spilled_keys"),
    is("spilled_bytes", |f| f.kernel.keyspace.spill_stats().bytes.into(),
        "Bytes of the values that are on disk only.")
        .gauge("tierce_spilled_bytes"),
    is("spilled_disk_bytes", |f| cold(f).map_or(0, |(bytes, _)| bytes).into(),
        "Bytes of the files with spilled values.")
        .gauge("tierce_spilled_disk_bytes"),
    is("spilled_disk_live_bytes", |f| cold(f).map_or(0, |(_, live)| live).into(),
        "Bytes of these files that are still needed.")
        .gauge("tierce_spilled_disk_live_bytes"),
    is("spilled_reads", |f| f.kernel.keyspace.spill_stats().fetched.into(),
        "Values that were read back from disk.")
        .counter("tierce_spilled_reads_total"),
    is("spilled_reads_late", |f| f.kernel.keyspace.spill_stats().fetched_late.into(),
        "Values that were read back while a lock was held.")
        .counter("tierce_spilled_reads_late_total"),
    is("spilled_reads_driver", |f| f.kernel.spill.driver().map_or("none", |driver| driver.name()).into(),
        "Driver that reads values back."),
    is("allocator_frag_ratio", |f| Value::Real(f.memory().fragmentation(), 2),
        "As `mem_fragmentation_ratio`.")
        .gauge("redis_allocator_frag_ratio"),
    is("allocator_frag_bytes", |f| f.memory().fragmentation_bytes().into(),
        "As `mem_fragmentation_bytes`.")
        .gauge("redis_allocator_frag_bytes"),
    always("allocator_rss_ratio", "1.00",
        "`allocator_resident` by `allocator_active`, which are the same here.")
        .gauge("redis_allocator_rss_ratio"),
    always("allocator_rss_bytes", "0", "`allocator_resident` less `allocator_active`, which are the same here.")
        .gauge("redis_allocator_rss_bytes"),
    always("rss_overhead_ratio", "1.00",
        "`used_memory_rss` by `allocator_resident`, which are the same here."),
    always("rss_overhead_bytes", "0", "`used_memory_rss` less `allocator_resident`, which are the same here."),
    is("mem_fragmentation_ratio", |f| Value::Real(f.memory().fragmentation(), 2),
        "`used_memory_rss` by `used_memory`.")
        .gauge("redis_mem_fragmentation_ratio"),
    is("mem_fragmentation_bytes", |f| f.memory().fragmentation_bytes().into(),
        "`used_memory_rss` less `used_memory`.")
        .gauge("redis_mem_fragmentation_bytes"),
    is("mem_not_counted_for_evict", |f| f.memory().not_evictable().into(),
        "Memory that eviction cannot free.")
        .gauge("redis_mem_not_counted_for_eviction_bytes"),
    is("mem_replication_backlog", |f| f.kernel.primary.backlog.memory_bytes().into(),
        "Stream kept for replicas.")
        .gauge("tierce_mem_replication_backlog_bytes"),
    is("mem_total_replication_buffers",
        |f| (f.kernel.primary.backlog.memory_bytes() + f.kernel.feed.waiting_bytes()).into(),
        "Stream kept for replicas, with changes that are not in the stream yet.")
        .gauge("redis_mem_total_replication_buffers_bytes"),
    always("mem_clients_slaves", "0", "Replicas have no buffers of their own.")
        .gauge("redis_mem_clients_slaves"),
    is("mem_clients_normal", |f| f.memory().clients.into(), "Connections and their buffers.")
        .gauge("redis_mem_clients_normal"),
    is("mem_clients_messages", |f| f.memory().messages.into(),
        "Names that are subscribed to, and messages on their way.")
        .gauge("tierce_mem_clients_messages_bytes"),
    is("mem_tracking_keys", |f| f.memory().tracking.into(),
        "Memory for tracking keys that clients may have cached.")
        .gauge("tierce_mem_tracking_keys_bytes"),
    always("mem_cluster_links", "0", "There is no cluster."),
    always("mem_aof_buffer", "0", "Records are written into a file that is mapped into memory."),
    is("mem_allocator", |_| crate::memory::ALLOCATOR.into(), "The allocator."),
    always("active_defrag_running", "0", "Nothing is defragmented.")
        .gauge("redis_active_defrag_running"),
    is("lazyfree_pending_objects", |f| f.kernel.keyspace.lazy_free_items().into(),
        "Values and tables that wait to be freed in the background.")
        .gauge("redis_lazyfree_pending_objects"),
    is("lazyfreed_objects", |f| f.keys().lazily_freed.into(),
        "Values and tables that were freed in the background.")
        .counter("redis_lazyfreed_objects_total"),
    is("lazyfree_pending_bytes", |f| f.kernel.keyspace.memory().lazy_free.into(),
        "Bytes that wait to be freed in the background.")
        .gauge("tierce_lazyfree_pending_bytes"),
];

#[rustfmt::skip]
pub(super) const PERSISTENCE: &[Field] = &[
    is("loading", |f| f.kernel.loading.is_on().into(), "1 while data are loaded.")
        .gauge("redis_loading_dump_file"),
    always("async_loading", "0", "A replica loads a full copy with all shards locked."),
    maybe("loading_start_time", |f| Some((f.kernel.loading.report()?.begun_ms / 1000).into()),
        "When that began, in seconds since 1970."),
    maybe("loading_total_bytes", |f| Some(f.kernel.loading.report()?.total_bytes.into()),
        "Bytes to be loaded.")
        .gauge("tierce_loading_total_bytes"),
    maybe("loading_loaded_bytes", |f| Some(f.kernel.loading.report()?.loaded_bytes.into()),
        "Those that are loaded.")
        .gauge("tierce_loading_loaded_bytes"),
    maybe("loading_loaded_perc", |f| Some(Value::Real(f.kernel.loading.report()?.percent(), 2)),
        "The share above in percent."),
    maybe("loading_eta_seconds", |f| Some(f.kernel.loading.report()?.eta_seconds.unwrap_or(1).into()),
        "When it is over, in seconds from now, if it goes on as fast; 1 before anything was loaded."),
    is("current_cow_peak", |f| snapshot(f).0.into(),
        "The most bytes that the snapshot had to copy."),
    is("current_cow_size", |f| snapshot(f).1.into(),
        "Bytes that the snapshot has copied and not written yet.")
        .gauge("tierce_snapshot_copied_bytes"),
    always("current_cow_size_age", "0", "The size is measured at each INFO."),
    is("current_fork_perc", |f| {
            let (keys, total) = progress(f);
            Value::Real((keys as f64 * 100.0 / total.max(1) as f64).min(100.0), 2)
        },
        "Percent of the keys that are saved."),
    is("current_save_keys_processed", |f| progress(f).0.into(), "Keys that are saved.")
        .gauge("tierce_snapshot_keys_processed"),
    is("current_save_keys_total", |f| progress(f).1.into(), "Keys to be saved.")
        .gauge("tierce_snapshot_keys"),
    is("rdb_changes_since_last_save", |f| f.kernel.unsaved_changes().into(),
        "Changes since the last snapshot.")
        .gauge("redis_rdb_changes_since_last_save"),
    is("rdb_bgsave_in_progress", |f| (background(f).is_some()).into(),
        "1 while a snapshot is written.")
        .gauge("redis_rdb_bgsave_in_progress"),
    is("rdb_last_save_time", |f| f.kernel.persistence.report().last_save_unix_seconds.into(),
        "When the last snapshot was complete, in seconds since 1970.")
        .gauge("redis_rdb_last_save_timestamp_seconds"),
    is("rdb_last_bgsave_status", |f| Value::ok(f.kernel.persistence.report().is_last_ok),
        "Result of the last snapshot.")
        .gauge("redis_rdb_last_bgsave_status"),
    is("rdb_last_bgsave_time_sec", |f| f.kernel.persistence.report().last_seconds.map_or(-1, |time| time as i64).into(),
        "Seconds that the last snapshot took; -1 if there was none.")
        .gauge("redis_rdb_last_bgsave_duration_sec"),
    is("rdb_current_bgsave_time_sec", |f| background(f).unwrap_or(-1).into(),
        "Seconds that the snapshot underway has taken, or -1.")
        .gauge("redis_rdb_current_bgsave_duration_sec"),
    is("rdb_saves", |f| f.kernel.persistence.report().saves.into(),
        "Snapshots since the start.")
        .counter("redis_rdb_saves_total"),
    is("rdb_last_cow_size", |f| f.kernel.persistence.report().last_extra_bytes.into(),
        "The most bytes that the last snapshot had to copy.")
        .gauge("redis_rdb_last_cow_size_bytes"),
    is("rdb_last_load_keys_expired", |f| f.kernel.persistence.report().loaded.expired.into(),
        "Keys of the last file that was loaded which had expired."),
    is("rdb_last_load_keys_loaded", |f| f.kernel.persistence.report().loaded.keys.into(),
        "Its other keys."),
    is("aof_enabled", |f| (f.log().is_some()).into(),
        "1 if there is a log of writes.")
        .gauge("redis_aof_enabled"),
    is("aof_rewrite_in_progress", |f| (f.compaction().running.is_some() || is_coming(f)).into(),
        "1 while the log is compacted or created.")
        .gauge("redis_aof_rewrite_in_progress"),
    always("aof_rewrite_scheduled", "0", "A compaction begins at once when requested.")
        .gauge("redis_aof_rewrite_scheduled"),
    is("aof_last_rewrite_time_sec", |f| seconds(f.compaction().last),
        "Seconds that the last compaction took; -1 if there was none.")
        .gauge("redis_aof_last_rewrite_duration_sec"),
    is("aof_current_rewrite_time_sec", |f| seconds(f.compaction().running),
        "Seconds that the compaction underway has taken, or -1.")
        .gauge("redis_aof_current_rewrite_duration_sec"),
    is("aof_last_bgrewrite_status", |f| status(f.compaction().failures_in_a_row > 0),
        "Result of the last compaction.")
        .gauge("redis_aof_last_bgrewrite_status"),
    is("aof_rewrites_consecutive_failures", |f| f.compaction().failures_in_a_row.into(),
        "Compactions that have failed since the last success.")
        .gauge("tierce_compaction_consecutive_failures"),
    is("aof_last_write_status", |f| status(f.log().is_some_and(|log| log.write_error.is_some())),
        "`err` while the log cannot be written.")
        .gauge("redis_aof_last_write_status"),
    maybe("data_disk_total_bytes", |f| Some(f.kernel.durability.disk_space()?.total.into()),
        "Bytes of the disk with the data directory.")
        .gauge("tierce_data_disk_total_bytes"),
    maybe("data_disk_free_bytes", |f| Some(f.kernel.durability.disk_space()?.free.into()),
        "Bytes that are free on it. The log warns at 80 and 90 % full.")
        .gauge("tierce_data_disk_free_bytes"),
    is("aof_rewrites", |f| f.compaction().passes.into(), "Compactions since the start.")
        .counter("tierce_compactions_total"),
    always("aof_last_cow_size", "0", "A compaction copies nothing aside.")
        .gauge("redis_aof_last_cow_size_bytes"),
    maybe("aof_current_size", |f| Some(f.log()?.bytes.into()), "Bytes of the log.")
        .gauge("redis_aof_current_size_bytes"),
    maybe("aof_base_size", |f| f.log().map(|_| f.compaction().base_bytes.into()),
        "Bytes of the log after the last compaction.")
        .gauge("redis_aof_base_size_bytes"),
    maybe("aof_pending_rewrite", |f| f.log().map(|_| Value::Int(0)),
        "Always 0: a compaction begins when it is asked for.")
        .gauge("redis_aof_pending_rewrite"),
    maybe("aof_buffer_length", |f| f.log().map(|_| Value::Int(0)),
        "Always 0: records are written into a file mapped into memory.")
        .gauge("redis_aof_buffer_length"),
    maybe("aof_pending_bio_fsync", |f| f.log().map(|log| (log.durable < log.appended).into()),
        "1 if some of the log has not reached the device yet.")
        .gauge("redis_aof_pending_bio_fsync"),
    maybe("aof_delayed_fsync", |f| f.log().map(|_| f.kernel.durability.delays().into()),
        "Number of times that writes waited for a slow sync.")
        .gauge("redis_aof_delayed_fsync"),
    maybe("log_records", |f| Some(f.log()?.appended.into()), "The end position of the log.")
        .counter("tierce_log_records_total"),
    maybe("log_records_durable", |f| Some(f.log()?.durable.into()),
        "The position up to which the log is on the device.")
        .counter("tierce_log_records_durable_total"),
    maybe("log_syncs", |f| Some(f.log()?.syncs.into()), "Number of syncs of the log.")
        .counter("tierce_log_syncs_total"),
    maybe("log_compaction_bytes_written", |f| f.log().map(|_| f.compaction().bytes_written.into()),
        "Bytes that compactions wrote.")
        .counter("tierce_compaction_written_bytes_total"),
    always("module_fork_in_progress", "0", "There are no modules.")
        .gauge("redis_module_fork_in_progress"),
    always("module_fork_last_cow_size", "0", "There are no modules.")
        .gauge("redis_module_fork_last_cow_size"),
];

fn libraries<'f>(facts: &'f Facts<'_>) -> &'f Libraries {
    &facts.kernel.scripts.libraries
}

fn scripts_and_functions(facts: &Facts<'_>) -> usize {
    let named = facts.kernel.keyspace.code().all().memory_bytes(CodeKind::Script);
    facts.kernel.scripts.memory_bytes() + named + libraries(facts).memory_bytes(facts.kernel)
}

fn machines(facts: &Facts<'_>) -> usize {
    facts.kernel.scripts.machine_bytes.load(Relaxed)
}

fn percent(part: usize, whole: usize) -> Value {
    Value::Percent(part as f64 * 100.0 / whole.max(1) as f64)
}

/// Returns the bytes of the files with spilled values, and the bytes still needed.
fn cold(facts: &Facts<'_>) -> Option<(u64, u64)> {
    let figures = facts.kernel.keyspace.cold_store()?.figures();
    Some((figures.bytes, figures.live_bytes))
}

/// Returns peak and current memory of a snapshot, in place of the copy-on-write memory of a fork in
/// Redis.
fn snapshot(facts: &Facts<'_>) -> (u64, u64) {
    let memory = facts.kernel.keyspace.snapshot_memory().unwrap_or_default();
    (memory.peak, memory.now)
}

fn progress(facts: &Facts<'_>) -> (u64, u64) {
    let running = facts.kernel.persistence.report().running;
    running.map_or((0, 0), |save| (save.keys, save.keys_total))
}

/// Returns the elapsed seconds of a snapshot in the background.
fn background(facts: &Facts<'_>) -> Option<i64> {
    let running = facts.kernel.persistence.report().running;
    running.filter(|save| save.is_background).map(|save| save.elapsed.as_secs() as i64)
}

/// Returns true if a log is about to start, which counts as a rewrite.
fn is_coming(facts: &Facts<'_>) -> bool {
    let is_wanted = facts.kernel.durability.is_wanted();
    is_wanted && (facts.log().is_none() || facts.compaction().is_incomplete)
}

fn seconds(time: Option<std::time::Duration>) -> Value {
    time.map_or(-1, |time| time.as_secs() as i64).into()
}

fn status(failed: bool) -> Value {
    Value::ok(!failed)
}
