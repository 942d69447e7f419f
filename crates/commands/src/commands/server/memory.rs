//! MEMORY.

use tierce_wire::number;
use tierce_wire::resp::Rest;

use super::doctor::{self, Around, Spill};
use super::info::{self, Facts, Value};
use crate::command::{Flags, Group, KeyFlags, KeySpec};
use crate::commands::cursor::Options;
use crate::commands::help::{help, help_spec};
use crate::config::DirectiveId;
use crate::error::CommandError;
use crate::memory::MemoryReport;
use crate::pipeline::{Context, Defined, Done, at_least, no_arguments};

const POLICY: DirectiveId = DirectiveId::of("maxmemory-policy");

const TIPS: &[&str] =
    &["nondeterministic_output", "request_policy:all_shards", "response_policy:special"];

pub(super) static COMMANDS: &[Defined] = &[Defined::container(
    "memory",
    Group::Server,
    &[
        Defined::new("doctor", Group::Server, no_arguments!(sub doctor))
            .tips(TIPS)
            .since("4.0.0", "O(1)")
            .doc("", "Returns a report on memory for people.")
            .example(
                r#"
                > MEMORY DOCTOR
                There is hardly any data, so there is nothing to diagnose.
                "#,
            ),
        Defined::new("malloc-stats", Group::Server, no_arguments!(sub malloc_stats))
            .tips(TIPS)
            .since("4.0.0", "Depends on how much memory is allocated")
            .doc("", "Returns what the allocator knows.")
            .example(
                r#"
                > MEMORY MALLOC-STATS
                allocator: mimalloc
                resident bytes: ...
                ...
                "#,
            ),
        Defined::new("purge", Group::Server, no_arguments!(sub purge))
            .tips(&["request_policy:all_shards", "response_policy:all_succeeded"])
            .since("4.0.0", "Depends on how much memory is allocated")
            .doc("", "Asks the allocator to give unused memory back to the system.")
            .example(
                r#"
                > MEMORY PURGE
                OK
                "#,
            ),
        Defined::new("stats", Group::Server, no_arguments!(sub stats))
            .tips(TIPS)
            .since("4.0.0", "O(1)")
            .doc("", "Returns details about memory usage.")
            .example(
                r#"
                > MEMORY STATS
                 1) "peak.allocated"
                 2) (integer) ...
                ...
                "#,
            ),
        Defined::new("usage", Group::Server, at_least!(sub usage))
            .flags(Flags::READONLY.with(Flags::KEY_ONLY))
            .keys(&[KeySpec::at(2, KeyFlags::LOOK)])
            .since("4.0.0", "O(N) where N is the number of samples")
            .doc("key [SAMPLES count]", "Returns how much memory a key occupies.")
            .example(
                r#"
                > SET user:1 Ada
                OK
                > MEMORY USAGE user:1
                (integer) ...
                > MEMORY USAGE nosuch
                (nil)
                "#,
            ),
        help_spec(Group::Server).since("4.0.0", "O(1)").example(
            r#"
                > MEMORY HELP
                 1) MEMORY <subcommand> [<arg> [value] [opt] ...]. Subcommands are:
                 2) DOCTOR
                 3)     Returns a report on memory for people.
                ...
                "#,
        ),
    ],
    help,
)
.since("4.0.0", "Depends on subcommand.")
.doc("", "A container for memory commands.")];

fn usage(ctx: &mut Context<'_, '_>, [key]: [&[u8]; 1], options: Rest<'_>) -> Done {
    let mut options = Options::of(options);
    while options.take("samples") {
        // Nothing is estimated, so the number is only checked.
        let samples = number::parse_i64(options.value()?).ok_or(CommandError::NOT_AN_INTEGER)?;
        if samples < 0 {
            return Err(CommandError::SYNTAX);
        }
    }
    options.end()?;
    let (mut db, key, reply) = ctx.open(key);
    match db.memory_bytes(key) {
        Some(bytes) => reply.count(bytes),
        None => reply.null(),
    }
    Ok(())
}

fn doctor(ctx: &mut Context<'_, '_>) -> Done {
    let kernel = ctx.kernel;
    let report = MemoryReport::take(kernel);
    let spill = kernel.keyspace.cold_store().map(|store| {
        let (stats, figures) = (kernel.keyspace.spill_stats(), store.figures());
        let (reads, late) = (stats.fetched, stats.fetched_late);
        Spill { reads, late, disk: figures.bytes, live: figures.live_bytes }
    });
    let makes_room = kernel.config.settings().word(POLICY) != "noeviction";
    let around = Around { clients: kernel.clients.len(), makes_room, spill };
    ctx.reply.verbatim(&doctor::of_memory(&report, &around));
    Ok(())
}

fn malloc_stats(ctx: &mut Context<'_, '_>) -> Done {
    let report = MemoryReport::take(ctx.kernel);
    let text = format!(
        "allocator: {}\nresident bytes: {}\naccounted bytes: {}\n",
        crate::memory::ALLOCATOR,
        report.resident,
        report.used()
    );
    ctx.reply.verbatim(&text);
    Ok(())
}

fn purge(ctx: &mut Context<'_, '_>) -> Done {
    ctx.kernel.purge_memory();
    ctx.reply.ok();
    Ok(())
}

/// Names in MEMORY STATS, and the names of their figures.
const STATS: &[(&str, &str)] = &[
    ("peak.allocated", "used_memory_peak"),
    ("total.allocated", "used_memory"),
    ("startup.allocated", "used_memory_startup"),
    ("replication.backlog", "mem_replication_backlog"),
    ("clients.slaves", "mem_clients_slaves"),
    ("clients.normal", "mem_clients_normal"),
    ("clients.messages", "mem_clients_messages"),
    ("tracking.keys", "mem_tracking_keys"),
    ("cluster.links", "mem_cluster_links"),
    ("aof.buffer", "mem_aof_buffer"),
    ("lua.caches", "used_memory_scripts_eval"),
    ("functions.caches", "used_memory_functions"),
    ("overhead.total", "used_memory_overhead"),
    ("keys.count", "keys"),
    ("keys.bytes-per-key", "bytes_per_key"),
    ("dataset.bytes", "used_memory_dataset"),
    ("dataset.percentage", "used_memory_dataset_perc"),
    ("peak.percentage", "used_memory_peak_perc"),
    ("allocator.allocated", "allocator_allocated"),
    ("allocator.active", "allocator_active"),
    ("allocator.resident", "allocator_resident"),
    ("allocator-fragmentation.ratio", "allocator_frag_ratio"),
    ("allocator-fragmentation.bytes", "allocator_frag_bytes"),
    ("allocator-rss.ratio", "allocator_rss_ratio"),
    ("allocator-rss.bytes", "allocator_rss_bytes"),
    ("rss-overhead.ratio", "rss_overhead_ratio"),
    ("rss-overhead.bytes", "rss_overhead_bytes"),
    ("fragmentation", "mem_fragmentation_ratio"),
    ("fragmentation.bytes", "mem_fragmentation_bytes"),
];

fn stats(ctx: &mut Context<'_, '_>) -> Done {
    let facts = Facts::new(ctx.kernel, ctx.now_ms);
    ctx.reply.map(STATS.len());
    for (name, field) in STATS {
        ctx.reply.bulk(name.as_bytes());
        match info::value(&facts, field) {
            Some(Value::Real(number, _) | Value::Percent(number)) => ctx.reply.double(number),
            Some(Value::Int(number)) => ctx.reply.int(number),
            _ => ctx.reply.int(0),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_stands_for_a_figure() {
        for (name, field) in STATS {
            assert!(info::all_fields().any(|figure| figure.name == *field), "{name}: {field}");
        }
    }
}
