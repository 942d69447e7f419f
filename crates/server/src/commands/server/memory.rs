//! MEMORY.

use tierce_wire::number;
use tierce_wire::resp::Args;

use super::{help, help_spec};
use crate::command::{Flags, Group, KeyFlags, KeySpec, Spec};
use crate::error::CommandError;
use crate::execute::Context;
use crate::memory::MemoryReport;

pub(super) static COMMANDS: &[Spec] = &[Spec::container(
    "memory",
    Group::Server,
    &[
        Spec::new("doctor", 2, Group::Server, doctor)
            .tips(&[
                "nondeterministic_output",
                "request_policy:all_shards",
                "response_policy:special",
            ])
            .doc("4.0.0", "O(1)", "", "Returns a report on memory for people."),
        Spec::new("malloc-stats", 2, Group::Server, malloc_stats)
            .tips(&[
                "nondeterministic_output",
                "request_policy:all_shards",
                "response_policy:special",
            ])
            .doc(
                "4.0.0",
                "Depends on how much memory is allocated",
                "",
                "Returns what the allocator knows.",
            ),
        Spec::new("purge", 2, Group::Server, purge)
            .tips(&["request_policy:all_shards", "response_policy:all_succeeded"])
            .doc(
                "4.0.0",
                "Depends on how much memory is allocated",
                "",
                "Asks the allocator to give unused memory back to the system.",
            ),
        Spec::new("stats", 2, Group::Server, stats)
            .tips(&[
                "nondeterministic_output",
                "request_policy:all_shards",
                "response_policy:special",
            ])
            .doc("4.0.0", "O(1)", "", "Returns details about memory usage."),
        Spec::new("usage", -3, Group::Server, usage)
            .flags(Flags::READONLY.with(Flags::KEY_ONLY))
            .keys(&[KeySpec::at(2, KeyFlags::LOOK)])
            .doc(
                "4.0.0",
                "O(N) where N is the number of samples",
                "key [SAMPLES count]",
                "Returns how much memory a key occupies.",
            ),
        Spec { since: "4.0.0", ..help_spec(Group::Server) },
    ],
    help,
)
.doc("4.0.0", "Depends on subcommand.", "", "A container for memory commands.")];

type Done = Result<(), CommandError>;

fn usage(ctx: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    let options = args.from(3);
    for at in (0..options.len()).step_by(2) {
        if !options[at].eq_ignore_ascii_case(b"samples") || at + 1 == options.len() {
            return Err(CommandError::SYNTAX);
        }
        // Nothing has to be estimated, so the number does not matter beyond being one.
        let samples = number::parse_i64(&options[at + 1]).ok_or(CommandError::NOT_AN_INTEGER)?;
        if samples < 0 {
            return Err(CommandError::SYNTAX);
        }
    }
    let (mut db, key, reply) = ctx.open(args.at(2));
    match db.memory_bytes(key) {
        Some(bytes) => reply.count(bytes),
        None => reply.null(),
    }
    Ok(())
}

fn doctor(ctx: &mut Context<'_, '_>, _args: Args<'_>) -> Done {
    let report = MemoryReport::take(ctx.server);
    ctx.reply.verbatim(&report.diagnosis());
    Ok(())
}

fn malloc_stats(ctx: &mut Context<'_, '_>, _args: Args<'_>) -> Done {
    let report = MemoryReport::take(ctx.server);
    let text = format!(
        "allocator: {}\nresident bytes: {}\naccounted bytes: {}\n",
        crate::memory::ALLOCATOR,
        report.resident,
        report.used()
    );
    ctx.reply.verbatim(&text);
    Ok(())
}

fn purge(ctx: &mut Context<'_, '_>, _args: Args<'_>) -> Done {
    ctx.server.purge_memory();
    ctx.reply.ok();
    Ok(())
}

fn stats(ctx: &mut Context<'_, '_>, _args: Args<'_>) -> Done {
    let report = MemoryReport::take(ctx.server);
    let keyspace = &ctx.server.keyspace;
    let keys: u64 = keyspace.db_indices().map(|db| keyspace.len(db)).sum();
    let keys = keys as usize;
    let percent = |part: usize, whole: usize| part as f64 * 100.0 / whole.max(1) as f64;
    let dataset_percent = percent(report.dataset(), report.used() - report.startup);
    let int = |n: usize| Figure::Int(n as i64);
    let figures = [
        ("peak.allocated", int(report.peak)),
        ("total.allocated", int(report.used())),
        ("startup.allocated", int(report.startup)),
        ("replication.backlog", int(0)),
        ("clients.slaves", int(0)),
        ("clients.normal", int(report.clients)),
        ("cluster.links", int(0)),
        ("aof.buffer", int(0)),
        ("lua.caches", int(0)),
        ("functions.caches", int(0)),
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
