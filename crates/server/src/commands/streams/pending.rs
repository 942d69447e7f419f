//! XPENDING: what was delivered and not acknowledged.

use tierce_collections::Stream;
use tierce_collections::stream::{Group as ConsumerGroup, Pending, StreamId};
use tierce_wire::resp::Args;

use super::{id, no_group, reply, since_ms};
use crate::command::{Flags, Group, KeyFlags, KeySpec, Spec};
use crate::commands::options::integer;
use crate::error::CommandError;
use crate::execute::Context;
use crate::reply::Reply;

pub(super) static COMMANDS: &[Spec] = &[Spec::new("xpending", -3, Group::Stream, xpending)
    .flags(Flags::READONLY)
    .keys(&[KeySpec::at(1, KeyFlags::READ)])
    .tips(&["nondeterministic_output"])
    .doc(
        "5.0.0",
        "O(N) with N being the number of elements returned, so asking for a small fixed number of \
         entries per call is O(1). O(M), where M is the total number of entries scanned when used with \
         the IDLE filter. When the command returns just the summary and the list of consumers is \
         small, it runs in O(1) time; otherwise, an additional O(N) time for iterating every consumer.",
        "key group [[IDLE min-idle-time] start end count [consumer]]",
        "Returns what is pending in a consumer group: a summary, or entries.",
    )];

type Done = Result<(), CommandError>;

/// Which pending entries are asked for.
struct Wanted<'a> {
    idle_ms_min: u64,
    from: StreamId,
    to: StreamId,
    count: usize,
    consumer: Option<&'a [u8]>,
}

impl<'a> Wanted<'a> {
    /// `None` for the summary.
    fn parse(args: Args<'a>) -> Result<Option<Self>, CommandError> {
        if args.len() == 3 {
            return Ok(None);
        }
        if !(6..=9).contains(&args.len()) {
            return Err(CommandError::SYNTAX);
        }
        let (mut at, mut idle_ms_min) = (3, 0);
        if args[3].eq_ignore_ascii_case(b"idle") {
            idle_ms_min = u64::try_from(integer(&args[4])?).unwrap_or(0);
            if args.len() < 8 {
                return Err(CommandError::SYNTAX);
            }
            at = 5;
        }
        let count = usize::try_from(integer(&args[at + 2])?).unwrap_or(0);
        let (from, to) = (id::first(&args[at])?, id::last(&args[at + 1])?);
        let consumer = (at + 3 < args.len()).then(|| args.at(at + 3));
        Ok(Some(Self { idle_ms_min, from, to, count, consumer }))
    }
}

fn xpending(ctx: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    let wanted = Wanted::parse(args)?;
    let now_ms = ctx.now_ms;
    let (mut db, key, reply) = ctx.open(args.at(1));
    let stream = db.collection::<Stream>(key)?;
    let group = stream.as_ref().and_then(|stream| stream.group(&args[2]));
    let group = group.ok_or_else(|| no_group(&args[1], &args[2], ""))?;
    match wanted {
        None => summary(reply, group),
        Some(wanted) => entries(reply, group, &wanted, now_ms),
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
        reply.bulk(group.consumer(pending.consumer).map_or(b"", |consumer| consumer.name()));
        reply.int(since_ms(now_ms, pending.delivered_ms) as i64);
        reply.int(pending.deliveries.into());
    }
}
