//! MEMORY.

use tierce_wire::number;
use tierce_wire::resp::Rest;

use super::{help, help_spec};
use crate::command::{Done, Flags, Group, KeyFlags, KeySpec, Spec, at_least, no_arguments};
use crate::commands::cursor::Options;
use crate::error::CommandError;
use crate::execute::Context;
use crate::memory::MemoryReport;

const TIPS: &[&str] =
    &["nondeterministic_output", "request_policy:all_shards", "response_policy:special"];

pub(super) static COMMANDS: &[Spec] = &[Spec::container(
    "memory",
    Group::Server,
    &[
        Spec::new("doctor", Group::Server, no_arguments!(sub doctor))
            .tips(TIPS)
            .since("4.0.0", "O(1)")
            .doc("", "Returns a report on memory for people.")
            .example(
                r#"
                > MEMORY DOCTOR
                There is hardly any data, so there is nothing to diagnose.
                "#,
            ),
        Spec::new("malloc-stats", Group::Server, no_arguments!(sub malloc_stats))
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
        Spec::new("purge", Group::Server, no_arguments!(sub purge))
            .tips(&["request_policy:all_shards", "response_policy:all_succeeded"])
            .since("4.0.0", "Depends on how much memory is allocated")
            .doc("", "Asks the allocator to give unused memory back to the system.")
            .example(
                r#"
                > MEMORY PURGE
                OK
                "#,
            ),
        Spec::new("stats", Group::Server, no_arguments!(sub stats))
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
        Spec::new("usage", Group::Server, at_least!(sub usage))
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
        Spec {
            since: "4.0.0",
            ..help_spec(Group::Server).example(
                r#"
                > MEMORY HELP
                 1) MEMORY <subcommand> [<arg> [value] [opt] ...]. Subcommands are:
                 2) DOCTOR
                 3)     Returns a report on memory for people.
                ...
                "#,
            )
        },
    ],
    help,
)
.since("4.0.0", "Depends on subcommand.")
.doc("", "A container for memory commands.")];

fn usage(ctx: &mut Context<'_, '_>, [key]: [&[u8]; 1], options: Rest<'_>) -> Done {
    let mut options = Options::of(options);
    while options.take("samples") {
        // Nothing has to be estimated, so the number does not matter beyond being one.
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
    let report = MemoryReport::take(ctx.kernel);
    ctx.reply.verbatim(&report.diagnosis());
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

fn stats(ctx: &mut Context<'_, '_>) -> Done {
    let report = MemoryReport::take(ctx.kernel);
    let keys = ctx.kernel.keyspace.total_len() as usize;
    let percent = |part: usize, whole: usize| part as f64 * 100.0 / whole.max(1) as f64;
    let dataset_percent = percent(report.dataset(), report.used() - report.startup);
    let int = |n: usize| Figure::Int(n as i64);
    let figures = [
        ("peak.allocated", int(report.peak)),
        ("total.allocated", int(report.used())),
        ("startup.allocated", int(report.startup)),
        ("replication.backlog", int(ctx.kernel.primary.backlog.memory_bytes())),
        ("clients.slaves", int(0)),
        ("clients.normal", int(report.clients)),
        ("clients.messages", int(report.messages)),
        ("tracking.keys", int(report.tracking)),
        ("cluster.links", int(0)),
        ("aof.buffer", int(0)),
        ("lua.caches", int(ctx.kernel.scripts.memory_bytes())),
        ("functions.caches", int(ctx.kernel.scripts.libraries.memory_bytes(ctx.kernel))),
        ("overhead.total", int(report.overhead())),
        ("keys.count", int(keys)),
        ("keys.bytes-per-key", int(report.dataset() / keys.max(1))),
        ("dataset.bytes", int(report.dataset())),
        ("dataset.percentage", Figure::Double(dataset_percent)),
        ("peak.percentage", Figure::Double(percent(report.used(), report.peak))),
        ("allocator.allocated", int(report.used())),
        ("allocator.active", int(report.resident)),
        ("allocator.resident", int(report.resident)),
        ("allocator-fragmentation.ratio", Figure::Double(report.fragmentation())),
        ("allocator-fragmentation.bytes", Figure::Int(report.fragmentation_bytes())),
        ("allocator-rss.ratio", Figure::Double(1.0)),
        ("allocator-rss.bytes", int(0)),
        ("rss-overhead.ratio", Figure::Double(1.0)),
        ("rss-overhead.bytes", int(0)),
        ("fragmentation", Figure::Double(report.fragmentation())),
        ("fragmentation.bytes", Figure::Int(report.fragmentation_bytes())),
    ];
    ctx.reply.map(figures.len());
    for (name, figure) in figures {
        ctx.reply.bulk(name.as_bytes());
        match figure {
            Figure::Int(value) => ctx.reply.int(value),
            Figure::Double(value) => ctx.reply.double(value),
        }
    }
    Ok(())
}

/// A value of `MEMORY STATS`.
enum Figure {
    Int(i64),
    Double(f64),
}
