//! XINFO: information about a stream, its groups and their consumers.

use tierce_collections::Stream;
use tierce_collections::stream::{Consumer, Group as ConsumerGroup, Messages, StreamId};
use tierce_keyspace::BorrowGuard;
use tierce_wire::resp::Rest;

use super::common::{no_group_of_key, since_ms, unsigned_ms};
use super::reply;
use crate::command::{Flags, Group, KeyFlags, KeySpec};
use crate::commands::cursor::Options;
use crate::commands::help::{help, help_spec};
use crate::commands::options::integer;
use crate::error::CommandError;
use crate::pipeline::{Context, Defined, Done, Scale, at_least, exactly};
use crate::reply::Reply;

const KEY: &[KeySpec] = &[KeySpec::at(2, KeyFlags::READ)];

pub(super) static COMMANDS: &[Defined] = &[Defined::container(
    "xinfo",
    Group::Stream,
    &[
        Defined::new("consumers", Group::Stream, exactly!(sub consumers))
            .flags(Flags::READONLY)
            .keys(KEY)
            .tips(&["nondeterministic_output"])
            .since("5.0.0", "O(1)")
            .doc("key group", "Returns a list of the consumers in a group.")
            .example(
                r#"
                > XADD events 1-1 type login
                "1-1"
                > XGROUP CREATE events mailers 0
                OK
                > XREADGROUP GROUP mailers worker-1 STREAMS events >
                1) 1) "events"
                   2) 1) 1) "1-1"
                         2) 1) "type"
                            2) "login"
                > XINFO CONSUMERS events mailers
                1) 1) "name"
                   2) "worker-1"
                   3) "pending"
                   4) (integer) 1
                   5) "idle"
                   6) (integer) ...
                   ...
                "#,
            ),
        Defined::new("groups", Group::Stream, exactly!(sub groups))
            .flags(Flags::READONLY)
            .keys(KEY)
            .since("5.0.0", "O(1)")
            .doc("key", "Returns a list of the consumer groups of a stream.")
            .example(
                r#"
                > XADD events 1-1 type login
                "1-1"
                > XGROUP CREATE events mailers 0
                OK
                > XREADGROUP GROUP mailers worker-1 STREAMS events >
                1) 1) "events"
                   2) 1) 1) "1-1"
                         2) 1) "type"
                            2) "login"
                > XINFO GROUPS events
                1)  1) "name"
                    2) "mailers"
                    3) "consumers"
                    4) (integer) 1
                    5) "pending"
                    6) (integer) 1
                    7) "last-delivered-id"
                    8) "1-1"
                    9) "entries-read"
                   10) (integer) 1
                   11) "lag"
                   12) (integer) 0
                "#,
            ),
        help_spec(Group::Stream).example(
            r#"
                > XINFO HELP
                1) XINFO <subcommand> [<arg> [value] [opt] ...]. Subcommands are:
                2) CONSUMERS key group
                3)     Returns a list of the consumers in a group.
                ...
                "#,
        ),
        Defined::new("stream", Group::Stream, at_least!(sub stream))
            .flags(Flags::READONLY)
            .keys(KEY)
            .since("5.0.0", "O(1)")
            .doc("key [FULL [COUNT count]]", "Returns information about a stream.")
            .example(
                r#"
                > XADD events 1-1 type login
                "1-1"
                > XADD events 2-1 type logout
                "2-1"
                > XINFO STREAM events
                 1) "length"
                 2) (integer) 2
                 3) "radix-tree-keys"
                 4) (integer) 1
                 5) "radix-tree-nodes"
                 6) (integer) 2
                 7) "last-generated-id"
                 8) "2-1"
                 9) "max-deleted-entry-id"
                10) "0-0"
                11) "entries-added"
                12) (integer) 2
                13) "recorded-first-entry-id"
                14) "1-1"
                15) "groups"
                16) (integer) 0
                17) "first-entry"
                18) 1) "1-1"
                    2) 1) "type"
                       2) "login"
                19) "last-entry"
                20) 1) "2-1"
                    2) 1) "type"
                       2) "logout"
                "#,
            ),
    ],
    help,
)
.since("5.0.0", "Depends on subcommand.")
.doc("", "A container for stream introspection commands.")];

/// Replies about a stream that must exist.
fn about(
    ctx: &mut Context<'_, '_>,
    key: &[u8],
    show: impl FnOnce(&mut Reply<'_>, BorrowGuard<'_, Stream>) -> Done,
) -> Done {
    let (mut db, key, reply) = ctx.open(key);
    let stream = db.collection::<Stream>(key)?.ok_or(CommandError::NO_SUCH_KEY)?;
    show(reply, stream)
}

/// Writes the name of the next value.
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

fn labelled_optional(reply: &mut Reply<'_>, name: &str, value: Option<u64>) {
    label(reply, name);
    match value {
        Some(value) => reply.int(value as i64),
        None => reply.null(),
    }
}

fn consumers(ctx: &mut Context<'_, '_>, [key, name]: [&[u8]; 2]) -> Done {
    let now_ms = ctx.now_ms;
    about(ctx, key, |reply, stream| {
        let group = stream.group(name).ok_or_else(|| no_group_of_key(key, name))?;
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

fn groups(ctx: &mut Context<'_, '_>, [key]: [&[u8]; 1]) -> Done {
    about(ctx, key, |reply, stream| {
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

/// Writes the read position of a group: three pairs.
fn write_position(reply: &mut Reply<'_>, stream: &Stream, group: &ConsumerGroup) {
    labelled_id(reply, "last-delivered-id", group.last_delivered());
    labelled_optional(reply, "entries-read", group.entries_read());
    labelled_optional(reply, "lag", stream.lag(group));
}

/// Returns the number of entries that XINFO STREAM FULL shows of each list; `None` without FULL.
fn parse_full(
    ctx: &Context<'_, '_>,
    mut options: Options<'_>,
) -> Result<Option<usize>, CommandError> {
    const COUNT: usize = 10;
    if options.left() == 0 {
        return Ok(None);
    }
    if !options.take("full") {
        return Err(CommandError::subcommand_syntax(ctx.spelled_name(), "xinfo"));
    }
    match options.rest().exactly() {
        Some([word, count]) if word.eq_ignore_ascii_case(b"count") => {
            Ok(Some(match integer(count)? {
                0 => usize::MAX,
                count => usize::try_from(count).unwrap_or(COUNT),
            }))
        }
        _ if options.left() == 0 => Ok(Some(COUNT)),
        _ => Err(CommandError::subcommand_syntax(ctx.spelled_name(), "xinfo")),
    }
}

fn stream(ctx: &mut Context<'_, '_>, [key]: [&[u8]; 1], options: Rest<'_>) -> Done {
    // Redis checks the key first.
    let full = parse_full(ctx, Options::of(options));
    let (scale, now_ms) = (ctx.scale(), unsigned_ms(ctx.now_ms));
    about(ctx, key, |reply, stream| {
        let full = full?;
        full.map_or(Ok(()), |count| weigh(scale, &stream, count))?;
        let messages = stream.messages();
        messages.map_or(Ok(()), |messages| scale.weigh(messages.len()))?;
        let pairs = if full.is_some() { 9 } else { 10 };
        reply.map(pairs + messages.map_or(0, |_| 6));
        write_state(reply, &stream);
        messages.into_iter().for_each(|messages| write_messages(reply, messages, now_ms));
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

/// Weighs the output of FULL, with this many entries of each list.
fn weigh(scale: Scale, stream: &Stream, count: usize) -> Done {
    let of_group = |group: &ConsumerGroup| {
        let of_consumers = group.consumers().map(|consumer| 1 + consumer.pending_len().min(count));
        group.pending_len().min(count) + of_consumers.sum::<usize>()
    };
    let of_groups = stream.groups().map(|(_, group)| of_group(group));
    scale.weigh(stream.len().min(count) + of_groups.sum::<usize>())
}

/// Writes seven pairs. Blocks replace the nodes of the radix tree in Redis.
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

/// Writes six pairs.
fn write_messages(reply: &mut Reply<'_>, messages: &Messages, now_ms: u64) {
    let (limits, counts) = (messages.message_limits(), messages.counts());
    let (producers, tracked) = messages.tracked(now_ms);
    labelled_int(reply, "idmp-duration", limits.duration_s.into());
    labelled_int(reply, "idmp-maxsize", limits.messages_max.into());
    labelled_int(reply, "pids-tracked", producers as i64);
    labelled_int(reply, "iids-tracked", tracked as i64);
    labelled_int(reply, "iids-added", counts.added as i64);
    labelled_int(reply, "iids-duplicates", counts.duplicates as i64);
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
        reply.bulk(group.consumer_name(pending.consumer));
        reply.int(pending.delivered_ms as i64);
        reply::deliveries(reply, pending.deliveries);
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
        reply::deliveries(reply, pending.map_or(0, |pending| pending.deliveries));
    }
}
