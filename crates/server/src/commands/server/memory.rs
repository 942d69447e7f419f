//! MEMORY.

use tierce_wire::number;
use tierce_wire::resp::Args;

use super::help;
use crate::command::{Flags, Group, KeyFlags, KeySpec, Spec};
use crate::error::CommandError;
use crate::execute::Context;
use crate::memory::MemoryReport;

pub(super) static COMMANDS: &[Spec] = &[Spec::container(
    "memory",
    Group::Server,
    &[
        Spec::new("doctor", 2, Group::Server, doctor).doc(
            "4.0.0",
            "O(1)",
            "",
            "Returns a report on memory for people.",
        ),
        Spec::new("malloc-stats", 2, Group::Server, malloc_stats).doc(
            "4.0.0",
            "Depends on how much memory is allocated",
            "",
            "Returns what the allocator knows.",
        ),
        Spec::new("purge", 2, Group::Server, purge).doc(
            "4.0.0",
            "Depends on how much memory is allocated",
            "",
            "Asks the allocator to give unused memory back to the system.",
        ),
        Spec::new("stats", 2, Group::Server, stats).doc(
            "4.0.0",
            "O(1)",
            "",
            "Returns details about memory usage.",
        ),
        Spec::new("usage", -3, Group::Server, usage)
            .flags(Flags::READONLY)
            .keys(&[KeySpec::at(2, KeyFlags::LOOK)])
            .doc(
                "4.0.0",
                "O(N) where N is the number of samples",
                "key [SAMPLES count]",
                "Returns how much memory a key occupies.",
            ),
    ],
    help,
)
.doc("4.0.0", "Depends on subcommand.", "", "A container for memory commands.")];

type Done = Result<(), CommandError>;

fn usage(ctx: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    match args.len() {
        3 => {}
        5 if args[3].eq_ignore_ascii_case(b"samples") => {
            let samples = number::parse_i64(&args[4]).ok_or(CommandError::NOT_AN_INTEGER)?;
            if samples < 0 {
                return Err(CommandError::SYNTAX);
            }
        }
        _ => return Err(CommandError::SYNTAX),
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
    crate::memory::purge();
    ctx.reply.ok();
    Ok(())
}

fn stats(ctx: &mut Context<'_, '_>, _args: Args<'_>) -> Done {
    let report = MemoryReport::take(ctx.server);
    let keyspace = &ctx.server.keyspace;
    let keys: u64 = keyspace.db_indices().map(|db| keyspace.len(db)).sum();
    let keys = keys as usize;
    let pairs: [(&str, usize); 9] = [
        ("peak.allocated", report.peak),
        ("total.allocated", report.used()),
        ("startup.allocated", report.startup),
        ("replication.backlog", 0),
        ("clients.slaves", 0),
        ("clients.normal", report.clients),
        ("overhead.total", report.overhead()),
        ("keys.count", keys),
        ("keys.bytes-per-key", report.dataset() / keys.max(1)),
    ];
    ctx.reply.map(pairs.len() + 3);
    for (name, value) in pairs {
        ctx.reply.bulk(name.as_bytes());
        ctx.reply.count(value);
    }
    ctx.reply.bulk(b"dataset.bytes");
    ctx.reply.count(report.dataset());
    for (name, value) in [
        ("peak.percentage", report.used() as f64 * 100.0 / report.peak.max(1) as f64),
        ("fragmentation", report.fragmentation()),
    ] {
        ctx.reply.bulk(name.as_bytes());
        ctx.reply.double(value);
    }
    Ok(())
}
