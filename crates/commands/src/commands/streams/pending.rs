//! XPENDING: entries that were delivered and not acknowledged.

use tierce_collections::Stream;
use tierce_collections::stream::{ConsumerNumber, Group as ConsumerGroup, Pending, StreamId};
use tierce_wire::resp::Rest;

use super::common::{no_group, since_ms};
use super::{id, reply};
use crate::command::{Flags, Group, KeyFlags, KeySpec};
use crate::commands::cursor::Options;
use crate::commands::options::integer;
use crate::error::CommandError;
use crate::pipeline::{Context, Defined, Done, at_least};
use crate::reply::Reply;

pub(super) static COMMANDS: &[Defined] = &[Defined::new(
    "xpending",
    Group::Stream,
    at_least!(xpending),
)
.flags(Flags::READONLY)
.keys(&[KeySpec::at(1, KeyFlags::READ)])
.tips(&["nondeterministic_output"])
.since(
    "5.0.0",
    "O(N) with N being the number of elements returned, so asking for a small \
                 fixed number of entries per call is O(1). O(M), where M is the total \
                 number of entries scanned when used with the IDLE filter. When the command \
                 returns just the summary and the list of consumers is small, it runs in \
                 O(1) time; otherwise, an additional O(N) time for iterating every \
                 consumer.",
)
.doc(
    "key group [[IDLE min-idle-time] start end count [consumer]]",
    "Returns what is pending in a consumer group: a summary, or entries. One that XNACK has \
                 given back has no consumer, and -1 as its idle time.",
)
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
        > XPENDING events mailers
        1) (integer) 1
        2) "1-1"
        3) "1-1"
        4) 1) 1) "worker-1"
              2) "1"
        > XPENDING events mailers - + 10
        1) 1) "1-1"
           2) "worker-1"
           3) (integer) ...
           4) (integer) 1
        "#,
)];

/// Filter of pending entries.
struct Wanted<'a> {
    idle_ms_min: u64,
    from: StreamId,
    to: StreamId,
    count: usize,
    consumer: Option<&'a [u8]>,
}

impl<'a> Wanted<'a> {
    /// Parses the filter; `None` for the summary.
    fn parse(arguments: Rest<'a>) -> Result<Option<Self>, CommandError> {
        if arguments.is_empty() {
            return Ok(None);
        }
        if !(3..=6).contains(&arguments.len()) {
            return Err(CommandError::SYNTAX);
        }
        let (mut idle_ms_min, mut arguments) = (0, Options::of(arguments));
        if arguments.take("idle") {
            idle_ms_min = u64::try_from(integer(arguments.value()?)?).unwrap_or(0);
        }
        let [start, end, count] = arguments.values()?;
        let count = usize::try_from(integer(count)?).unwrap_or(0);
        let (from, to) = (id::first(start)?, id::last(end)?);
        Ok(Some(Self { idle_ms_min, from, to, count, consumer: arguments.next_value() }))
    }
}

fn xpending(ctx: &mut Context<'_, '_>, [key, name]: [&[u8]; 2], options: Rest<'_>) -> Done {
    let wanted = Wanted::parse(options)?;
    let (now_ms, scale) = (ctx.now_ms, ctx.scale());
    let (mut db, key, reply) = ctx.open(key);
    let stream = db.collection::<Stream>(key)?;
    let group = stream.as_ref().and_then(|stream| stream.group(name));
    let group = group.ok_or_else(|| no_group(key.bytes(), name, ""))?;
    match wanted {
        None => summary(reply, group),
        Some(wanted) => {
            // With an idle time or a consumer, many entries may be visited for each match.
            let looked_at = match wanted {
                Wanted { consumer: None, idle_ms_min: 0, count, .. } => count,
                _ => usize::MAX,
            };
            let at_most = looked_at.min(group.pending_len());
            scale.weigh_each(at_most, group.pending(wanted.from, wanted.to).take(at_most))?;
            entries(reply, group, &wanted, now_ms);
        }
    }
    Ok(())
}

fn summary(reply: &mut Reply<'_>, group: &ConsumerGroup) {
    let mut pending = group.pending(StreamId::MIN, StreamId::MAX);
    reply.array(4);
    reply.count(group.pending_len());
    let Some((first, _)) = pending.next() else {
        reply.null();
        reply.null();
        reply.null_array();
        return;
    };
    let last = pending.next_back().map_or(*first, |(id, _)| *id);
    reply::id(reply, *first);
    reply::id(reply, last);
    let consumers = || group.consumers().filter(|consumer| consumer.pending_len() > 0);
    reply.array(consumers().count());
    for consumer in consumers() {
        reply.array(2);
        reply.bulk(consumer.name());
        reply.bulk(itoa::Buffer::new().format(consumer.pending_len()).as_bytes());
    }
}

fn entries(reply: &mut Reply<'_>, group: &ConsumerGroup, wanted: &Wanted<'_>, now_ms: i64) {
    let is_wanted = |(_, pending): &(StreamId, Pending)| {
        since_ms(now_ms, pending.delivered_ms) >= wanted.idle_ms_min
    };
    let (from, to) = (wanted.from, wanted.to);
    let found: Vec<(StreamId, Pending)> = match wanted.consumer {
        None => {
            let pending = group.pending(from, to).map(|(id, pending)| (*id, *pending));
            pending.filter(is_wanted).take(wanted.count).collect()
        }
        Some(name) => {
            let ids = group.consumer_named(name).into_iter().flat_map(|c| c.pending(from, to));
            let pending = ids.filter_map(|id| Some((*id, group.pending_entry(*id)?)));
            pending.filter(is_wanted).take(wanted.count).collect()
        }
    };
    reply.array(found.len());
    for (id, pending) in found {
        reply.array(4);
        reply::id(reply, id);
        reply.bulk(group.consumer_name(pending.consumer));
        reply.int(match pending.consumer {
            ConsumerNumber::NONE => -1,
            _ => since_ms(now_ms, pending.delivered_ms) as i64,
        });
        reply::deliveries(reply, pending.deliveries);
    }
}
