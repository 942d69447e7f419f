//! The data: memory, snapshots and the log of writes.

use std::sync::atomic::Ordering::Relaxed;

use super::facts::Facts;
use super::field::{Field, always, is, maybe};
use crate::config::DirectiveId;
use crate::memory::human;
use crate::scripting::Libraries;

#[rustfmt::skip]
pub(super) const MEMORY: &[Field] = &[
    is("used_memory", |f| f.memory().used().to_string(), "Bytes that the server accounts for."),
    is("used_memory_human", |f| human(f.memory().used()), "The same for people."),
    is("used_memory_rss", |f| f.memory().resident.to_string(),
        "Bytes that are resident, by the system's count."),
    is("used_memory_rss_human", |f| human(f.memory().resident), "The same for people."),
    is("used_memory_peak", |f| f.memory().peak.to_string(),
        "The highest `used_memory` seen by INFO or the server's cron."),
    is("used_memory_peak_human", |f| human(f.memory().peak), "The same for people."),
    is("used_memory_peak_perc", |f| percent(f.memory().used(), f.memory().peak),
        "`used_memory` of it."),
    is("used_memory_overhead", |f| f.memory().overhead().to_string(),
        "What is not data: the program, the index, connections, messages, tracking."),
    is("used_memory_startup", |f| f.memory().startup.to_string(),
        "Resident before there was data."),
    is("used_memory_dataset", |f| f.memory().dataset().to_string(), "Keys and values."),
    is("used_memory_dataset_perc", |f| percent(f.memory().dataset(), f.memory().used() - f.memory().startup),
        "Keys and values of what came after the start."),
    is("allocator_allocated", |f| f.memory().used().to_string(), "As `used_memory`."),
    is("allocator_active", |f| f.memory().resident.to_string(),
        "As `used_memory_rss`: the allocator does not tell what it holds."),
    is("allocator_resident", |f| f.memory().resident.to_string(), "The same."),
    is("total_system_memory", |f| f.memory().total_system.to_string(), "Memory of the machine."),
    is("total_system_memory_human", |f| human(f.memory().total_system), "The same for people."),
    is("used_memory_lua", |f| machines(f).to_string(),
        "Bytes of the machines that run scripts and functions, one in each thread that has run some."),
    is("used_memory_lua_human", |f| human(machines(f)), "The same for people."),
    is("used_memory_vm_eval", |f| machines(f).to_string(), "The same."),
    is("used_memory_scripts_eval", |f| f.kernel.scripts.memory_bytes().to_string(),
        "Bytes of the scripts that EVALSHA finds."),
    is("number_of_cached_scripts", |f| f.kernel.scripts.len().to_string(), "How many these are."),
    is("number_of_functions", |f| libraries(f).counts(f.kernel).1.to_string(), "Functions of libraries."),
    is("number_of_libraries", |f| libraries(f).counts(f.kernel).0.to_string(), "Libraries of functions."),
    always("used_memory_vm_functions", "0",
        "The machines run scripts as well: `used_memory_vm_eval` has all of them."),
    is("used_memory_vm_total", |f| machines(f).to_string(), "As `used_memory_vm_eval`."),
    is("used_memory_vm_total_human", |f| human(machines(f)), "The same for people."),
    is("used_memory_functions", |f| libraries(f).memory_bytes(f.kernel).to_string(),
        "Bytes of the libraries and their functions, without machines."),
    is("used_memory_scripts", |f| scripts_and_functions(f).to_string(),
        "Bytes of scripts and functions, without machines."),
    is("used_memory_scripts_human", |f| human(scripts_and_functions(f)), "The same for people."),
    is("maxmemory", |f| f.memory().limit.to_string(), "The directive; 0 is no limit."),
    is("maxmemory_human", |f| human(f.memory().limit), "The same for people."),
    is("maxmemory_policy", |f| f.settings().word(const { DirectiveId::of("maxmemory-policy") }).to_owned(),
        "The directive."),
    is("spilled_keys", |f| f.kernel.keyspace.spill_stats().keys.to_string(),
        "Keys whose values are on disk only."),
    is("spilled_bytes", |f| f.kernel.keyspace.spill_stats().bytes.to_string(),
        "Bytes of these values."),
    is("spilled_disk_bytes", |f| cold(f).map_or(0, |(bytes, _)| bytes).to_string(),
        "Bytes of the files that they are in."),
    is("spilled_disk_live_bytes", |f| cold(f).map_or(0, |(_, live)| live).to_string(),
        "Live bytes among these."),
    is("spilled_reads", |f| f.kernel.keyspace.spill_stats().fetched.to_string(),
        "Values that were read back from disk."),
    is("spilled_reads_late", |f| f.kernel.keyspace.spill_stats().fetched_late.to_string(),
        "Of these, while a lock was held."),
    is("spilled_reads_driver", |f| f.kernel.spill.driver().map_or("none", |driver| driver.name()).to_owned(),
        "How they are read."),
    is("allocator_frag_ratio", |f| format!("{:.2}", f.memory().fragmentation()),
        "As `mem_fragmentation_ratio`."),
    is("allocator_frag_bytes", |f| f.memory().fragmentation_bytes().to_string(),
        "As `mem_fragmentation_bytes`."),
    always("allocator_rss_ratio", "1.00",
        "`allocator_resident` by `allocator_active`, which are the same here."),
    always("allocator_rss_bytes", "0", "Their difference."),
    always("rss_overhead_ratio", "1.00",
        "`used_memory_rss` by `allocator_resident`, which are the same here."),
    always("rss_overhead_bytes", "0", "Their difference."),
    is("mem_fragmentation_ratio", |f| format!("{:.2}", f.memory().fragmentation()),
        "`used_memory_rss` by `used_memory`."),
    is("mem_fragmentation_bytes", |f| f.memory().fragmentation_bytes().to_string(),
        "Their difference."),
    is("mem_not_counted_for_evict", |f| f.memory().not_evictable().to_string(),
        "Memory that eviction cannot free."),
    is("mem_replication_backlog", |f| f.kernel.primary.backlog.memory_bytes().to_string(),
        "What is kept of the stream for replicas."),
    is("mem_total_replication_buffers",
        |f| (f.kernel.primary.backlog.memory_bytes() + f.kernel.feed.waiting_bytes()).to_string(),
        "The same with changes that are not in the stream yet."),
    always("mem_clients_slaves", "0", "Replicas have no buffers of their own."),
    is("mem_clients_normal", |f| f.memory().clients.to_string(), "Connections and their buffers."),
    is("mem_clients_messages", |f| f.memory().messages.to_string(),
        "Names that are subscribed to, and messages on their way."),
    is("mem_tracking_keys", |f| f.memory().tracking.to_string(),
        "What is known of the keys that clients may have cached."),
    always("mem_cluster_links", "0", "There is no cluster."),
    always("mem_aof_buffer", "0", "Records are written into a file that is mapped into memory."),
    is("mem_allocator", |_| crate::memory::ALLOCATOR.to_owned(), "The allocator."),
    always("active_defrag_running", "0", "Nothing is defragmented."),
    is("lazyfree_pending_objects", |f| f.kernel.keyspace.lazy_free_items().to_string(),
        "Values and tables that wait to be freed in the background."),
    is("lazyfreed_objects", |f| f.keys().lazily_freed.to_string(),
        "Those that have been freed."),
    is("lazyfree_pending_bytes", |f| f.kernel.keyspace.memory().lazy_free.to_string(),
        "Bytes of those that wait."),
];

#[rustfmt::skip]
pub(super) const PERSISTENCE: &[Field] = &[
    always("loading", "0", "Always 0: clients can connect only after loading."),
    always("async_loading", "0", "There are no replicas."),
    is("current_cow_peak", |f| snapshot(f).0.to_string(),
        "The most bytes that the snapshot had to copy."),
    is("current_cow_size", |f| snapshot(f).1.to_string(),
        "Bytes that it has copied and not written yet."),
    always("current_cow_size_age", "0", "The size is measured at each INFO."),
    is("current_fork_perc", |f| {
            let (keys, total) = progress(f);
            format!("{:.2}", (keys as f64 * 100.0 / total.max(1) as f64).min(100.0))
        },
        "Percent of the keys that are saved."),
    is("current_save_keys_processed", |f| progress(f).0.to_string(), "Keys that are saved."),
    is("current_save_keys_total", |f| progress(f).1.to_string(), "Keys to be saved."),
    is("rdb_changes_since_last_save", |f| f.kernel.unsaved_changes().to_string(),
        "Changes since the last snapshot."),
    is("rdb_bgsave_in_progress", |f| u8::from(background(f).is_some()).to_string(),
        "Whether a snapshot is being written."),
    is("rdb_last_save_time", |f| f.kernel.persistence.report().last_save_unix_seconds.to_string(),
        "When the last one was complete, in seconds since 1970."),
    is("rdb_last_bgsave_status", |f| if f.kernel.persistence.report().is_last_ok { "ok" } else { "err" }.to_owned(),
        "How the last one ended."),
    is("rdb_last_bgsave_time_sec", |f| f.kernel.persistence.report().last_seconds.map_or(-1, |time| time as i64).to_string(),
        "How long it took; -1 if there was none."),
    is("rdb_current_bgsave_time_sec", |f| background(f).unwrap_or(-1).to_string(),
        "How long the one underway has taken, or -1."),
    is("rdb_saves", |f| f.kernel.persistence.report().saves.to_string(),
        "Snapshots since the start."),
    is("rdb_last_cow_size", |f| f.kernel.persistence.report().last_extra_bytes.to_string(),
        "The most bytes that the last one had to copy."),
    is("rdb_last_load_keys_expired", |f| f.kernel.persistence.report().loaded.expired.to_string(),
        "Keys of the last file that was loaded which had expired."),
    is("rdb_last_load_keys_loaded", |f| f.kernel.persistence.report().loaded.keys.to_string(),
        "Its other keys."),
    is("aof_enabled", |f| u8::from(f.log().is_some()).to_string(),
        "Whether there is a log of writes."),
    is("aof_rewrite_in_progress", |f| u8::from(f.compaction().running.is_some() || is_coming(f)).to_string(),
        "Whether the log is being compacted or created."),
    always("aof_rewrite_scheduled", "0", "A compaction begins at once when requested."),
    is("aof_last_rewrite_time_sec", |f| seconds(f.compaction().last),
        "How long the last compaction took; -1 if there was none."),
    is("aof_current_rewrite_time_sec", |f| seconds(f.compaction().running),
        "How long the one underway has taken, or -1."),
    is("aof_last_bgrewrite_status", |f| status(f.compaction().failures_in_a_row > 0),
        "How the last one ended."),
    is("aof_rewrites_consecutive_failures", |f| f.compaction().failures_in_a_row.to_string(),
        "Compactions that have failed since the last success."),
    is("aof_last_write_status", |f| status(f.log().is_some_and(|log| log.write_error.is_some())),
        "`err` while the log cannot be written."),
    is("aof_rewrites", |f| f.compaction().passes.to_string(), "Compactions since the start."),
    always("aof_last_cow_size", "0", "A compaction copies nothing aside."),
    maybe("aof_current_size", |f| Some(f.log()?.bytes.to_string()), "Bytes of the log."),
    maybe("aof_base_size", |f| f.log().map(|_| f.compaction().base_bytes.to_string()),
        "Its bytes after the last compaction."),
    maybe("aof_pending_rewrite", |f| f.log().map(|_| "0".to_owned()),
        "Always 0: a compaction begins when it is asked for."),
    maybe("aof_buffer_length", |f| f.log().map(|_| "0".to_owned()),
        "Always 0: records are written into a file mapped into memory."),
    maybe("aof_pending_bio_fsync", |f| f.log().map(|log| u8::from(log.durable < log.appended).to_string()),
        "Whether some of it has yet to reach the device."),
    maybe("aof_delayed_fsync", |f| f.log().map(|_| f.kernel.durability.delays().to_string()),
        "How often writes had to wait for a slow sync."),
    maybe("log_records", |f| Some(f.log()?.appended.to_string()), "The end position of the log."),
    maybe("log_records_durable", |f| Some(f.log()?.durable.to_string()),
        "The position up to which the log is on the device."),
    maybe("log_syncs", |f| Some(f.log()?.syncs.to_string()), "How often it was synced."),
    maybe("log_compaction_bytes_written", |f| f.log().map(|_| f.compaction().bytes_written.to_string()),
        "Bytes that compactions wrote."),
    always("module_fork_in_progress", "0", "There are no modules."),
    always("module_fork_last_cow_size", "0", "The same."),
];

fn libraries<'f>(facts: &'f Facts<'_>) -> &'f Libraries {
    &facts.kernel.scripts.libraries
}

fn scripts_and_functions(facts: &Facts<'_>) -> usize {
    facts.kernel.scripts.memory_bytes() + libraries(facts).memory_bytes(facts.kernel)
}

fn machines(facts: &Facts<'_>) -> usize {
    facts.kernel.scripts.machine_bytes.load(Relaxed)
}

fn percent(part: usize, whole: usize) -> String {
    format!("{:.2}%", part as f64 * 100.0 / whole.max(1) as f64)
}

/// Bytes of the files with spilled values, and those still needed.
fn cold(facts: &Facts<'_>) -> Option<(u64, u64)> {
    let figures = facts.kernel.keyspace.cold_store()?.figures();
    Some((figures.bytes, figures.live_bytes))
}

/// What Redis says of the copies that a fork makes are here those of the snapshot: most, and now.
fn snapshot(facts: &Facts<'_>) -> (u64, u64) {
    let memory = facts.kernel.keyspace.snapshot_memory().unwrap_or_default();
    (memory.peak, memory.now)
}

fn progress(facts: &Facts<'_>) -> (u64, u64) {
    let running = facts.kernel.persistence.report().running;
    running.map_or((0, 0), |save| (save.keys, save.keys_total))
}

/// For how many seconds a snapshot in the background has been underway.
fn background(facts: &Facts<'_>) -> Option<i64> {
    let running = facts.kernel.persistence.report().running;
    running.filter(|save| save.is_background).map(|save| save.elapsed.as_secs() as i64)
}

/// A log that is about to be begun counts as underway.
fn is_coming(facts: &Facts<'_>) -> bool {
    let is_wanted = facts.kernel.durability.is_wanted();
    is_wanted && (facts.log().is_none() || facts.compaction().is_incomplete)
}

fn seconds(time: Option<std::time::Duration>) -> String {
    time.map_or(-1, |time| time.as_secs() as i64).to_string()
}

fn status(failed: bool) -> String {
    if failed { "err" } else { "ok" }.to_owned()
}
