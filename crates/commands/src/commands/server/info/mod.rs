//! The registry of statistics, and INFO, which prints it. `crate::metrics` and MEMORY STATS read the same rows.

mod bucket;
mod clients_and_stats;
mod commands_and_keys;
mod data;
mod facts;
mod field;
mod only_metrics;
mod page;
mod process;
mod value;

use std::fmt::Write as _;

use tierce_wire::resp::Rest;

pub(super) use self::facts::Facts;
use self::field::Field;
pub use self::only_metrics::read_metrics;
pub(super) use self::value::Value;
use crate::command::{Flags, Group, Scope};
use crate::pipeline::{Context, Defined, Done, many};

pub(super) static COMMANDS: &[Defined] = &[Defined::new("info", Group::Server, many!(info))
    .tips(&["nondeterministic_output", "request_policy:all_shards", "response_policy:special"])
    .flags(Flags::LOADING.with(Flags::STALE))
    .categories(&["dangerous"])
    .locks(Scope::Unlocked)
    .since("1.0.0", "O(1)")
    .doc("[section [section ...]]", "Returns information and statistics about the server.")
    .example(
        r#"
        > INFO server
        # Server
        redis_version:7...
        ...
        tcp_port:...
        ...
        "#,
    )];

/// A section: its name, its title, its fields, and if it is shown by default.
struct Section {
    name: &'static str,
    title: &'static str,
    default: bool,
    fields: &'static [Field],
}

const fn shown(name: &'static str, title: &'static str, fields: &'static [Field]) -> Section {
    Section { name, title, default: true, fields }
}

const fn asked(name: &'static str, title: &'static str, fields: &'static [Field]) -> Section {
    Section { name, title, default: false, fields }
}

static SECTIONS: &[Section] = &[
    shown("server", "Server", process::SERVER),
    shown("clients", "Clients", clients_and_stats::CLIENTS),
    shown("memory", "Memory", data::MEMORY),
    shown("persistence", "Persistence", data::PERSISTENCE),
    shown("stats", "Stats", clients_and_stats::STATS),
    shown("replication", "Replication", process::REPLICATION),
    shown("bucket", "Bucket", bucket::BUCKET),
    shown("tls", "TLS", process::TLS),
    shown("cpu", "CPU", process::CPU),
    shown("modules", "Modules", &[]),
    asked("commandstats", "Commandstats", commands_and_keys::COMMAND_STATS),
    shown("errorstats", "Errorstats", commands_and_keys::ERROR_STATS),
    asked("latencystats", "Latencystats", commands_and_keys::LATENCY_STATS),
    shown("cluster", "Cluster", process::CLUSTER),
    shown("keyspace", "Keyspace", commands_and_keys::KEYSPACE),
];

/// Returns all figures, including those that INFO does not list.
pub(super) fn all_fields() -> impl Iterator<Item = &'static Field> {
    SECTIONS.iter().flat_map(|section| section.fields).chain(only_metrics::ONLY_METRICS)
}

/// Returns the value of a figure by its name.
pub(super) fn value(facts: &Facts<'_>, name: &str) -> Option<Value> {
    all_fields().find(|field| field.name == name)?.value(facts)
}

fn info(ctx: &mut Context<'_, '_>, sections: Rest<'_>) -> Done {
    let wanted = |section: &&Section| {
        let named = |arg: &[u8]| match arg.to_ascii_lowercase().as_slice() {
            b"all" | b"everything" => true,
            b"default" => section.default,
            name => name == section.name.as_bytes(),
        };
        if sections.is_empty() { section.default } else { sections.iter().any(named) }
    };
    let facts = Facts::new(ctx.kernel, ctx.now_ms);
    let mut text = String::with_capacity(8192);
    for section in SECTIONS.iter().filter(wanted) {
        if !text.is_empty() {
            text.push_str("\r\n");
        }
        let _ = write!(text, "# {}\r\n", section.title);
        for (name, value) in section.fields.iter().flat_map(|field| field.lines(&facts)) {
            let _ = write!(text, "{name}:{value}\r\n");
        }
    }
    ctx.reply.verbatim(&text);
    Ok(())
}
