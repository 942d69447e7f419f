//! The data: memory, snapshots and the log of writes.

use super::facts::Facts;
use super::field::{Field, always, is, maybe};
use crate::config::DirectiveId;
use crate::memory::human;

pub(super) const MEMORY: &[Field] = &[
    is("used_memory", |f| f.memory().used().to_string(), "Bytes that the server accounts for."),
    is("used_memory_human", |f| human(f.memory().used()), "The same for people."),
    is(
        "used_memory_rss",
        |f| f.memory().resident.to_string(),
        "Bytes that are resident, by the system's count.",
    ),
    is("used_memory_rss_human", |f| human(f.memory().resident), "The same for people."),
    is(
        "used_memory_peak",
        |f| f.memory().peak.to_string(),
        "The most that `used_memory` was when somebody looked.",
    ),
    is("used_memory_peak_human", |f| human(f.memory().peak), "The same for people."),
    is(
        "used_memory_peak_perc",
        |f| percent(f.memory().used(), f.memory().peak),
        "`used_memory` of it.",
    ),
    is(
        "used_memory_overhead",
        |f| f.memory().overhead().to_string(),
        "What is not data: the program, the index, connections.",
    ),
    is(
        "used_memory_startup",
        |f| f.memory().startup.to_string(),
        "Resident before there was data.",
    ),
    is("used_memory_dataset", |f| f.memory().dataset().to_string(), "Keys and values."),
    is(
        "used_memory_dataset_perc",
        |f| percent(f.memory().dataset(), f.memory().used() - f.memory().startup),
        "Keys and values of what came after the start.",
    ),
    is("allocator_allocated", |f| f.memory().used().to_string(), "As `used_memory`."),
    is(
        "allocator_active",
        |f| f.memory().resident.to_string(),
        "As `used_memory_rss`: the allocator does not tell what it holds.",
    ),
    is("allocator_resident", |f| f.memory().resident.to_string(), "The same."),
    is("total_system_memory", |f| f.memory().total_system.to_string(), "Memory of the machine."),
    is("total_system_memory_human", |f| human(f.memory().total_system), "The same for people."),
    always("used_memory_lua", "0", "There are no scripts."),
    always("used_memory_lua_human", "0B", "The same."),
    always("used_memory_vm_eval", "0", "The same."),
    always("used_memory_scripts_eval", "0", "The same."),
    always("number_of_cached_scripts", "0", "The same."),
    always("number_of_functions", "0", "There are no functions."),
    always("number_of_libraries", "0", "The same."),
    always("used_memory_vm_functions", "0", "The same."),
    always("used_memory_vm_total", "0", "The same."),
    always("used_memory_vm_total_human", "0B", "The same."),
    always("used_memory_functions", "0", "The same."),
    always("used_memory_scripts", "0", "There are no scripts."),
    always("used_memory_scripts_human", "0B", "The same."),
    is("maxmemory", |f| f.memory().limit.to_string(), "The directive; 0 is no limit."),
    is("maxmemory_human", |f| human(f.memory().limit), "The same for people."),
    is(
        "maxmemory_policy",
        |f| f.settings().word(const { DirectiveId::of("maxmemory-policy") }).to_owned(),
        "The directive.",
    ),
    is(
        "spilled_keys",
        |f| f.server.keyspace.spill_stats().keys.to_string(),
        "Keys whose values are on disk.",
    ),
    is(
        "spilled_bytes",
        |f| f.server.keyspace.spill_stats().bytes.to_string(),
        "Bytes of these values.",
    ),
    is(
        "spilled_disk_bytes",
        |f| cold(f).map_or(0, |(bytes, _)| bytes).to_string(),
        "Bytes of the files that they are in.",
    ),
    is(
        "spilled_disk_live_bytes",
        |f| cold(f).map_or(0, |(_, live)| live).to_string(),
        "Of these, what is still needed.",
    ),
    is(
        "spilled_reads",
        |f| f.server.keyspace.spill_stats().fetched.to_string(),
        "Values that came back from disk.",
    ),
    is(
        "spilled_reads_late",
        |f| f.server.keyspace.spill_stats().fetched_late.to_string(),
        "Of these, while a lock was held.",
    ),
    is(
        "spilled_reads_driver",
        |f| f.server.spill.driver().map_or("none", |driver| driver.name()).to_owned(),
        "How they are read.",
    ),
    is(
        "allocator_frag_ratio",
        |f| format!("{:.2}", f.memory().fragmentation()),
        "As `mem_fragmentation_ratio`.",
    ),
    is(
        "allocator_frag_bytes",
        |f| f.memory().fragmentation_bytes().to_string(),
        "As `mem_fragmentation_bytes`.",
    ),
    always(
        "allocator_rss_ratio",
        "1.00",
        "`allocator_resident` by `allocator_active`, which are the same here.",
    ),
    always("allocator_rss_bytes", "0", "Their difference."),
    always(
        "rss_overhead_ratio",
        "1.00",
        "`used_memory_rss` by `allocator_resident`, which are the same here.",
    ),
    always("rss_overhead_bytes", "0", "Their difference."),
    is(
        "mem_fragmentation_ratio",
        |f| format!("{:.2}", f.memory().fragmentation()),
        "`used_memory_rss` by `used_memory`.",
    ),
    is(
        "mem_fragmentation_bytes",
        |f| f.memory().fragmentation_bytes().to_string(),
        "Their difference.",
    ),
    is(
        "mem_not_counted_for_evict",
        |f| f.memory().not_evictable().to_string(),
        "What no eviction could make less.",
    ),
    always("mem_replication_backlog", "0", "There are no replicas."),
    always("mem_total_replication_buffers", "0", "The same."),
    always("mem_clients_slaves", "0", "The same."),
    is("mem_clients_normal", |f| f.memory().clients.to_string(), "Connections and their buffers."),
    always("mem_cluster_links", "0", "There is no cluster."),
    is("mem_allocator", |_| crate::memory::ALLOCATOR.to_owned(), "The allocator."),
    always("active_defrag_running", "0", "Nothing is defragmented."),
    is(
        "lazyfree_pending_objects",
        |f| f.server.keyspace.garbage_pieces().to_string(),
        "Values and tables that wait to be freed in the background.",
    ),
    is(
        "lazyfree_pending_bytes",
        |f| f.server.keyspace.memory().garbage.to_string(),
        "Their bytes.",
    ),
];

pub(super) const PERSISTENCE: &[Field] = &[
    always("loading", "0", "Nobody can connect before all is loaded."),
    always("async_loading", "0", "There are no replicas."),
    is(
        "current_cow_peak",
        |f| snapshot(f).0.to_string(),
        "The most bytes that the snapshot had to copy.",
    ),
    is(
        "current_cow_size",
        |f| snapshot(f).1.to_string(),
        "Bytes that it has copied and not written yet.",
    ),
    always("current_cow_size_age", "0", "That is measured when it is asked for."),
    is(
        "current_fork_perc",
        |f| {
            let (keys, total) = progress(f);
            format!("{:.2}", (keys as f64 * 100.0 / total.max(1) as f64).min(100.0))
        },
        "Percent of the keys that are saved.",
    ),
    is("current_save_keys_processed", |f| progress(f).0.to_string(), "Keys that are saved."),
    is("current_save_keys_total", |f| progress(f).1.to_string(), "Keys to be saved."),
    is(
        "rdb_changes_since_last_save",
        |f| f.server.unsaved_changes().to_string(),
        "Changes since the last snapshot.",
    ),
    is(
        "rdb_bgsave_in_progress",
        |f| u8::from(background(f).is_some()).to_string(),
        "Whether a snapshot is being written.",
    ),
    is(
        "rdb_last_save_time",
        |f| f.server.persistence.report().last_save_unix_seconds.to_string(),
        "When the last one was complete, in seconds since 1970.",
    ),
    is(
        "rdb_last_bgsave_status",
        |f| if f.server.persistence.report().is_last_ok { "ok" } else { "err" }.to_owned(),
        "How the last one ended.",
    ),
    is(
        "rdb_last_bgsave_time_sec",
        |f| f.server.persistence.report().last_seconds.map_or(-1, |time| time as i64).to_string(),
        "How long it took; -1 if there was none.",
    ),
    is(
        "rdb_current_bgsave_time_sec",
        |f| background(f).unwrap_or(-1).to_string(),
        "How long the one underway has taken, or -1.",
    ),
    is(
        "rdb_saves",
        |f| f.server.persistence.report().saves.to_string(),
        "Snapshots since the start.",
    ),
    is(
        "rdb_last_cow_size",
        |f| f.server.persistence.report().last_extra_bytes.to_string(),
        "The most bytes that the last one had to copy.",
    ),
    is(
        "rdb_last_load_keys_expired",
        |f| f.server.persistence.report().loaded.expired.to_string(),
        "Keys of the last file that was loaded which had expired.",
    ),
    is(
        "rdb_last_load_keys_loaded",
        |f| f.server.persistence.report().loaded.keys.to_string(),
        "Its other keys.",
    ),
    is(
        "aof_enabled",
        |f| u8::from(f.log().is_some()).to_string(),
        "Whether there is a log of writes.",
    ),
    is(
        "aof_rewrite_in_progress",
        |f| u8::from(f.compaction().running.is_some() || is_coming(f)).to_string(),
        "Whether it is being compacted or begun.",
    ),
    always("aof_rewrite_scheduled", "0", "A compaction begins when it is asked for."),
    is(
        "aof_last_rewrite_time_sec",
        |f| seconds(f.compaction().last),
        "How long the last compaction took; -1 if there was none.",
    ),
    is(
        "aof_current_rewrite_time_sec",
        |f| seconds(f.compaction().running),
        "How long the one underway has taken, or -1.",
    ),
    is(
        "aof_last_bgrewrite_status",
        |f| status(f.compaction().last_failed),
        "How the last one ended.",
    ),
    is(
        "aof_last_write_status",
        |f| status(f.log().is_some_and(|log| log.wound.is_some())),
        "`err` while the log cannot be written.",
    ),
    is("aof_rewrites", |f| f.compaction().passes.to_string(), "Compactions since the start."),
    always("aof_last_cow_size", "0", "A compaction copies nothing aside."),
    maybe("aof_current_size", |f| Some(f.log()?.bytes.to_string()), "Bytes of the log."),
    maybe(
        "aof_base_size",
        |f| f.log().map(|_| f.compaction().base_bytes.to_string()),
        "Its bytes after the last compaction.",
    ),
    maybe(
        "aof_pending_rewrite",
        |f| f.log().map(|_| "0".to_owned()),
        "Always 0: a compaction begins when it is asked for.",
    ),
    maybe(
        "aof_buffer_length",
        |f| f.log().map(|_| "0".to_owned()),
        "Always 0: records are written into a file mapped into memory.",
    ),
    maybe(
        "aof_pending_bio_fsync",
        |f| f.log().map(|log| u8::from(log.durable < log.appended).to_string()),
        "Whether some of it has yet to reach the device.",
    ),
    maybe(
        "aof_delayed_fsync",
        |f| f.log().map(|_| f.server.durability.delays().to_string()),
        "How often writes had to wait for a slow sync.",
    ),
    maybe("log_records", |f| Some(f.log()?.appended.to_string()), "Where the log ends."),
    maybe(
        "log_records_durable",
        |f| Some(f.log()?.durable.to_string()),
        "Up to where it is on the device.",
    ),
    maybe("log_syncs", |f| Some(f.log()?.syncs.to_string()), "How often it was synced."),
    maybe(
        "log_compaction_bytes_written",
        |f| f.log().map(|_| f.compaction().bytes_written.to_string()),
        "Bytes that compactions wrote.",
    ),
    always("module_fork_in_progress", "0", "There are no modules."),
    always("module_fork_last_cow_size", "0", "The same."),
];

fn percent(part: usize, whole: usize) -> String {
    format!("{:.2}%", part as f64 * 100.0 / whole.max(1) as f64)
}

/// Bytes of the files with spilled values, and those still needed.
fn cold(facts: &Facts<'_>) -> Option<(u64, u64)> {
    let figures = facts.server.keyspace.cold_store()?.figures();
    Some((figures.bytes, figures.live_bytes))
}

/// What Redis says of the copies that a fork makes are here those of the snapshot: most, and now.
fn snapshot(facts: &Facts<'_>) -> (u64, u64) {
    let memory = facts.server.keyspace.snapshot_memory().unwrap_or_default();
    (memory.peak, memory.now)
}

fn progress(facts: &Facts<'_>) -> (u64, u64) {
    let running = facts.server.persistence.report().running;
    running.map_or((0, 0), |save| (save.keys, save.keys_total))
}

/// For how many seconds a snapshot in the background has been underway.
fn background(facts: &Facts<'_>) -> Option<i64> {
    let running = facts.server.persistence.report().running;
    running.filter(|save| save.is_background).map(|save| save.elapsed.as_secs() as i64)
}

/// A log that is about to be begun is as good as underway.
fn is_coming(facts: &Facts<'_>) -> bool {
    let is_wanted = facts.server.durability.is_wanted();
    is_wanted && (facts.log().is_none() || facts.compaction().is_incomplete)
}

fn seconds(time: Option<std::time::Duration>) -> String {
    time.map_or(-1, |time| time.as_secs() as i64).to_string()
}

fn status(failed: bool) -> String {
    if failed { "err" } else { "ok" }.to_owned()
}
