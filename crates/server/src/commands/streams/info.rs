//! XINFO: what is known of a stream, its groups and their consumers.

use tierce_collections::Stream;
use tierce_collections::stream::{Consumer, Group as ConsumerGroup, StreamId};
use tierce_keyspace::Lent;
use tierce_wire::resp::Args;

use super::{no_group_of_key, reply, since_ms};
use crate::command::{Flags, Group, KeyFlags, KeySpec, Spec};
use crate::commands::options::integer;
use crate::commands::server::{help, help_spec};
use crate::error::CommandError;
use crate::execute::Context;
use crate::reply::Reply;

const KEY: &[KeySpec] = &[KeySpec::at(2, KeyFlags::READ)];

pub(super) static COMMANDS: &[Spec] = &[Spec::container(
    "xinfo",
    Group::Stream,
    &[
        Spec::new("consumers", 4, Group::Stream, consumers)
            .flags(Flags::READONLY)
            .keys(KEY)
            .tips(&["nondeterministic_output"])
            .doc("5.0.0", "O(1)", "key group", "Returns a list of the consumers in a group."),
        Spec::new("groups", 3, Group::Stream, groups).flags(Flags::READONLY).keys(KEY).doc(
            "5.0.0",
            "O(1)",
            "key",
            "Returns a list of the consumer groups of a stream.",
        ),
        help_spec(Group::Stream),
        Spec::new("stream", -3, Group::Stream, stream).flags(Flags::READONLY).keys(KEY).doc(
            "5.0.0",
            "O(1)",
            "key [FULL [COUNT count]]",
            "Returns information about a stream.",
        ),
    ],
    help,
)
.doc("5.0.0", "Depends on subcommand.", "", "A container for stream introspection commands.")];

type Done = Result<(), CommandError>;

/// Replies about a stream that must be there.
fn about(
    ctx: &mut Context<'_, '_>,
    args: Args<'_>,
    show: impl FnOnce(&mut Reply<'_>, Lent<'_, Stream>) -> Done,
) -> Done {
    let (mut db, key, reply) = ctx.open(args.at(2));
    let stream = db.collection::<Stream>(key)?.ok_or(CommandError::NO_SUCH_KEY)?;
    show(reply, stream)
}

/// The name of what follows.
fn label(reply: &mut Reply<'_>, name: &str) {
    reply.bulk(name.as_bytes());
}

fn labelled_int(reply: &mut Reply<'_>, name: &str, value: i64) {
    label(reply, name);
    reply.int(value);
}

fn labelled_id(reply: &mut Reply<'_>, name: &str, id: StreamId) {
    label(reply, name);
    reply::id(reply, id);
}

fn labelled_optional(reply: &mut Reply<'_>, name: &str, value: Option<i64>) {
    label(reply, name);
    match value {
        Some(value) => reply.int(value),
        None => reply.null(),
    }
}

fn consumers(ctx: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    let now_ms = ctx.now_ms;
    about(ctx, args, |reply, stream| {
        let group = stream.group(&args[3]);
        let group = group.ok_or_else(|| no_group_of_key(&args[2], &args[3]))?;
        reply.array(group.consumer_count());
        for consumer in group.consumers() {
            reply.map(4);
            label(reply, "name");
            reply.bulk(consumer.name());
            labelled_int(reply, "pending", consumer.pending_len() as i64);
            labelled_int(reply, "idle", since_ms(now_ms, consumer.seen_ms) as i64);
            let inactive = consumer.active_ms.map_or(-1, |ms| since_ms(now_ms, ms) as i64);
            labelled_int(reply, "inactive", inactive);
        }
        Ok(())
    })
}

fn groups(ctx: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    about(ctx, args, |reply, stream| {
        reply.array(stream.group_count());
        for (name, group) in stream.groups() {
            reply.map(6);
            label(reply, "name");
            reply.bulk(name);
            labelled_int(reply, "consumers", group.consumer_count() as i64);
            labelled_int(reply, "pending", group.pending_len() as i64);
            write_position(reply, &stream, group);
        }
        Ok(())
    })
}

/// How far a group has read: three pairs.
fn write_position(reply: &mut Reply<'_>, stream: &Stream, group: &ConsumerGroup) {
    labelled_id(reply, "last-delivered-id", group.last_delivered());
    labelled_optional(reply, "entries-read", group.entries_read().map(|read| read as i64));
    labelled_optional(reply, "lag", stream.lag(group));
}

/// How many entries of each list XINFO STREAM FULL shows; `None` without FULL.
fn parse_full(args: Args<'_>) -> Result<Option<usize>, CommandError> {
    const COUNT: usize = 10;
    let wrong = || CommandError::subcommand_syntax(&args[1], "xinfo");
    if args.len() == 3 {
        return Ok(None);
    }
    if !matches!(args.len(), 4 | 6) || !args[3].eq_ignore_ascii_case(b"full") {
        return Err(wrong());
    }
    if args.len() == 4 {
        return Ok(Some(COUNT));
    }
    if !args[4].eq_ignore_ascii_case(b"count") {
        return Err(wrong());
    }
    Ok(Some(match integer(&args[5])? {
        0 => usize::MAX,
        count => usize::try_from(count).unwrap_or(COUNT),
    }))
}

fn stream(ctx: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    // Redis looks at the key first.
    let full = parse_full(args);
    about(ctx, args, |reply, stream| {
        let full = full?;
        reply.map(if full.is_some() { 9 } else { 10 });
        write_state(reply, &stream);
        match full {
            None => {
                labelled_int(reply, "groups", stream.group_count() as i64);
                for (name, entry) in
                    [("first-entry", stream.first()), ("last-entry", stream.last())]
                {
                    label(reply, name);
                    match entry {
                        Some(entry) => reply::entry(reply, &entry),
                        None => reply.null(),
                    }
                }
            }
            Some(count) => {
                label(reply, "entries");
                reply::entries(reply, stream.ascending(StreamId::MIN, StreamId::MAX).take(count));
                label(reply, "groups");
                reply.array(stream.group_count());
                for (name, group) in stream.groups() {
                    write_group(reply, &stream, name, group, count);
                }
            }
        }
        Ok(())
    })
}

/// Seven pairs. Blocks take the place of the nodes of a radix tree.
fn write_state(reply: &mut Reply<'_>, stream: &Stream) {
    let (state, blocks) = (stream.state(), stream.block_count() as i64);
    labelled_int(reply, "length", stream.len() as i64);
    labelled_int(reply, "radix-tree-keys", blocks);
    labelled_int(reply, "radix-tree-nodes", blocks + 1);
    labelled_id(reply, "last-generated-id", state.last_id);
    labelled_id(reply, "max-deleted-entry-id", state.max_deleted_id);
    labelled_int(reply, "entries-added", state.entries_added as i64);
    let first = stream.first().map_or(StreamId::MIN, |entry| entry.id);
    labelled_id(reply, "recorded-first-entry-id", first);
}

fn write_group(
    reply: &mut Reply<'_>,
    stream: &Stream,
    name: &[u8],
    group: &ConsumerGroup,
    count: usize,
) {
    reply.map(7);
    label(reply, "name");
    reply.bulk(name);
    write_position(reply, stream, group);
    labelled_int(reply, "pel-count", group.pending_len() as i64);
    label(reply, "pending");
    reply.array(group.pending_len().min(count));
    for (id, pending) in group.pending(StreamId::MIN, StreamId::MAX).take(count) {
        reply.array(4);
        reply::id(reply, *id);
        reply.bulk(group.consumer(pending.consumer).map_or(b"", |consumer| consumer.name()));
        reply.int(pending.delivered_ms as i64);
        reply.int(pending.deliveries.into());
    }
    label(reply, "consumers");
    reply.array(group.consumer_count());
    for consumer in group.consumers() {
        write_consumer(reply, group, consumer, count);
    }
}

fn write_consumer(reply: &mut Reply<'_>, group: &ConsumerGroup, consumer: &Consumer, count: usize) {
    reply.map(5);
    label(reply, "name");
    reply.bulk(consumer.name());
    labelled_int(reply, "seen-time", consumer.seen_ms as i64);
    labelled_int(reply, "active-time", consumer.active_ms.map_or(-1, |ms| ms as i64));
    labelled_int(reply, "pel-count", consumer.pending_len() as i64);
    label(reply, "pending");
    reply.array(consumer.pending_len().min(count));
    for id in consumer.pending(StreamId::MIN, StreamId::MAX).take(count) {
        let pending = group.pending_entry(*id);
        reply.array(3);
        reply::id(reply, *id);
        reply.int(pending.map_or(0, |pending| pending.delivered_ms as i64));
        reply.int(pending.map_or(0, |pending| pending.deliveries.into()));
    }
}
