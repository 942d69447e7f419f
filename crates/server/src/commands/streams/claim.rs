//! XCLAIM, XAUTOCLAIM: taking over what is pending with others.

use std::ops::Bound;

use tierce_collections::Stream;
use tierce_collections::stream::StreamId;
use tierce_keyspace::{Delivery, Editor, Missing};
use tierce_wire::resp::Args;

use super::{id, moment_ms, no_group, reply, since_ms, unsigned_ms};
use crate::command::{Flags, Group, KeyFlags, KeySpec, Spec};
use crate::commands::options::integer;
use crate::error::CommandError;
use crate::execute::Context;
use crate::reply::Reply;

pub(super) static COMMANDS: &[Spec] = &[
    Spec::new("xclaim", -6, Group::Stream, xclaim)
        .flags(Flags::WRITE.with(Flags::FAST))
        .keys(&[KeySpec::at(1, KeyFlags::UPDATE)])
        .tips(&["nondeterministic_output"])
        .doc(
            "5.0.0",
            "O(log N) with N being the number of messages in the PEL of the consumer group.",
            "key group consumer min-idle-time id [id ...] [IDLE ms] [TIME unix-time-milliseconds] \
             [RETRYCOUNT count] [FORCE] [JUSTID] [LASTID lastid]",
            "Makes a consumer of a group the owner of pending entries, as if they had been delivered \
             to it.",
        ),
    Spec::new("xautoclaim", -6, Group::Stream, xautoclaim)
        .flags(Flags::WRITE.with(Flags::FAST))
        .keys(&[KeySpec::at(1, KeyFlags::READ_REMOVE)])
        .tips(&["nondeterministic_output"])
        .doc(
            "6.2.0",
            "O(1) if COUNT is small.",
            "key group consumer min-idle-time start [COUNT count] [JUSTID]",
            "Makes a consumer of a group the owner of entries that have been pending for long.",
        ),
];

type Done = Result<(), CommandError>;

/// How entries are claimed.
struct Claim<'a> {
    group: &'a [u8],
    consumer: &'a [u8],
    idle_ms_min: u64,
    /// When the entries count as delivered.
    delivered_ms: u64,
    /// How often they count as delivered.
    deliveries: Option<u32>,
    /// Whether entries that are not pending are claimed, too.
    is_forced: bool,
    /// Whether the reply is identities only; then nothing counts as delivered once more.
    just_ids: bool,
    now_ms: i64,
}

/// An integer argument, and what is said of another.
fn integer_or(arg: &[u8], error: &'static str) -> Result<i64, CommandError> {
    integer(arg).map_err(|_| CommandError::new(error))
}

impl<'a> Claim<'a> {
    fn new(ctx: &Context<'_, '_>, args: Args<'a>, idle: i64) -> Self {
        let now_ms = moment_ms(ctx);
        Self {
            group: args.at(2),
            consumer: args.at(3),
            idle_ms_min: u64::try_from(idle).unwrap_or(0),
            delivered_ms: unsigned_ms(now_ms),
            deliveries: None,
            is_forced: false,
            just_ids: false,
            now_ms,
        }
    }

    /// Notes that the consumer tries, which is made if it is not there.
    fn begin(&self, stream: &mut Editor<'_, Stream>) {
        let now_ms = unsigned_ms(self.now_ms);
        let group = stream.group(self.group);
        if group.is_some_and(|group| group.consumer_number(self.consumer).is_some()) {
            stream.saw_consumer(self.group, self.consumer, now_ms);
        } else {
            stream.set_consumer(self.group, self.consumer, now_ms, None);
        }
    }

    /// Claims an entry that is there. Returns whether it may be.
    fn take(&self, stream: &mut Editor<'_, Stream>, id: StreamId) -> bool {
        let pending = stream.group(self.group).and_then(|group| group.pending_entry(id));
        let before = match pending {
            Some(pending) if since_ms(self.now_ms, pending.delivered_ms) < self.idle_ms_min => {
                return false;
            }
            Some(pending) => pending.deliveries,
            None if self.is_forced => 1,
            None => return false,
        };
        let count = match self.deliveries {
            Some(count) => count,
            None if self.just_ids => before,
            None => before.saturating_add(1),
        };
        let delivery = Delivery { at_ms: self.delivered_ms, count };
        stream.deliver(self.group, self.consumer, &[id], delivery);
        true
    }

    /// Notes that the consumer got something.
    fn end(&self, stream: &mut Editor<'_, Stream>) {
        let now_ms = unsigned_ms(self.now_ms);
        stream.set_consumer(self.group, self.consumer, now_ms, Some(now_ms));
    }

    /// What was claimed, which is still there: nothing has changed since.
    fn write(&self, reply: &mut Reply<'_>, stream: &Stream, claimed: &[StreamId]) {
        reply.array(claimed.len());
        for id in claimed {
            match stream.get(*id).filter(|_| !self.just_ids) {
                Some(entry) => reply::entry(reply, &entry),
                None => reply::id(reply, *id),
            }
        }
    }
}

/// What XCLAIM is told beside how to claim.
#[derive(Default)]
struct Claimed {
    ids: Vec<StreamId>,
    last_id: StreamId,
}

/// Reads identities, and behind them options.
fn parse_claim(claim: &mut Claim<'_>, args: Args<'_>) -> Result<Claimed, CommandError> {
    let mut claimed = Claimed::default();
    let mut at = 5;
    while at < args.len()
        && let Ok(id) = id::strict(&args[at], 0)
    {
        claimed.ids.push(id);
        at += 1;
    }
    while at < args.len() {
        let value = args.get(at + 1);
        match (args[at].to_ascii_lowercase().as_slice(), value) {
            (b"force", _) => claim.is_forced = true,
            (b"justid", _) => claim.just_ids = true,
            (b"idle", Some(value)) => {
                at += 1;
                let idle = integer_or(value, "ERR Invalid IDLE option argument for XCLAIM")?;
                claim.deliver_at(claim.now_ms.wrapping_sub(idle));
            }
            (b"time", Some(value)) => {
                at += 1;
                let time = integer_or(value, "ERR Invalid TIME option argument for XCLAIM")?;
                claim.deliver_at(time);
            }
            (b"retrycount", Some(value)) => {
                at += 1;
                let error = "ERR Invalid RETRYCOUNT option argument for XCLAIM";
                let count = integer_or(value, error)?;
                // A negative one counts as none.
                claim.deliveries =
                    u64::try_from(count).ok().map(|count| u32::try_from(count).unwrap_or(u32::MAX));
            }
            (b"lastid", Some(value)) => {
                at += 1;
                claimed.last_id = id::strict(value, 0)?;
            }
            _ => {
                let option = String::from_utf8_lossy(&args[at]);
                return Err(CommandError::text(format!(
                    "ERR Unrecognized XCLAIM option '{option}'"
                )));
            }
        }
        at += 1;
    }
    Ok(claimed)
}

impl Claim<'_> {
    /// Times that make no sense stand for now: clocks of clients differ.
    fn deliver_at(&mut self, ms: i64) {
        let is_sane = (0..=self.now_ms).contains(&ms);
        self.delivered_ms = unsigned_ms(if is_sane { ms } else { self.now_ms });
    }
}

fn xclaim(ctx: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    let mut claim = Claim::new(ctx, args, 0);
    let (mut db, key, reply) = ctx.open(args.at(1));
    let claimed = db.edit(key, Missing::Skip, |stream: &mut Editor<'_, Stream>| {
        let Some(group) = stream.group(claim.group) else {
            return Err(no_group(&args[1], &args[2], ""));
        };
        let (position, read) = (group.last_delivered(), group.entries_read());
        let idle = integer_or(&args[4], "ERR Invalid min-idle-time argument for XCLAIM")?;
        claim.idle_ms_min = u64::try_from(idle).unwrap_or(0);
        let Claimed { ids, last_id } = parse_claim(&mut claim, args)?;
        if last_id > position {
            stream.set_group(claim.group, last_id, read);
        }
        claim.begin(stream);
        let mut claimed = Vec::new();
        for id in ids {
            if stream.get(id).is_none() {
                // It is gone, so nobody can acknowledge it.
                stream.acknowledge(claim.group, std::iter::once(id));
            } else if claim.take(stream, id) {
                claimed.push(id);
            }
        }
        if !claimed.is_empty() {
            claim.end(stream);
        }
        Ok(claimed)
    })?;
    let claimed = claimed.ok_or_else(|| no_group(&args[1], &args[2], ""))?;
    if let Some(stream) = db.collection::<Stream>(key)? {
        claim.write(reply, &stream, &claimed);
    }
    Ok(())
}

/// What XAUTOCLAIM has found.
#[derive(Default)]
struct Found {
    claimed: Vec<StreamId>,
    deleted: Vec<StreamId>,
    /// Where the next call goes on.
    next: StreamId,
}

/// The options of XAUTOCLAIM: how many entries, and whether identities will do.
fn parse_auto(args: Args<'_>) -> Result<(usize, bool), CommandError> {
    /// For each entry that is asked for, so many are looked at.
    const COUNT_MAX: i64 = i64::MAX / 16;
    const NOT_POSITIVE: CommandError = CommandError::new("ERR COUNT must be > 0");
    let (mut count, mut just_ids) = (100, false);
    let mut at = 6;
    while at < args.len() {
        match (args[at].to_ascii_lowercase().as_slice(), args.get(at + 1)) {
            (b"count", Some(value)) => {
                at += 1;
                let value = integer(value).map_err(|_| NOT_POSITIVE)?;
                if !(1..=COUNT_MAX).contains(&value) {
                    return Err(NOT_POSITIVE);
                }
                count = value as usize;
            }
            (b"justid", _) => just_ids = true,
            _ => return Err(CommandError::SYNTAX),
        }
        at += 1;
    }
    Ok((count, just_ids))
}

fn xautoclaim(ctx: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    let idle = integer_or(&args[4], "ERR Invalid min-idle-time argument for XAUTOCLAIM")?;
    let from = id::first(&args[5])?;
    let (count, just_ids) = parse_auto(args)?;
    let claim = Claim { just_ids, ..Claim::new(ctx, args, idle) };
    let (mut db, key, reply) = ctx.open(args.at(1));
    let found = db.edit(key, Missing::Skip, |stream: &mut Editor<'_, Stream>| {
        if stream.group(claim.group).is_none() {
            return Err(no_group(&args[1], &args[2], ""));
        }
        Ok(claim_idle(stream, &claim, from, count))
    })?;
    let found = found.ok_or_else(|| no_group(&args[1], &args[2], ""))?;
    reply.array(3);
    reply::id(reply, found.next);
    if let Some(stream) = db.collection::<Stream>(key)? {
        claim.write(reply, &stream, &found.claimed);
    }
    reply.array(found.deleted.len());
    found.deleted.into_iter().for_each(|id| reply::id(reply, id));
    Ok(())
}

/// Claims up to `count` entries from `from` on.
fn claim_idle(
    stream: &mut Editor<'_, Stream>,
    claim: &Claim<'_>,
    from: StreamId,
    count: usize,
) -> Found {
    /// For each entry that is wanted so many are looked at, which bounds the time a call takes.
    const LOOKS: usize = 10;
    claim.begin(stream);
    let mut found = Found::default();
    let (mut left, mut looks) = (count, count.saturating_mul(LOOKS));
    let mut at = Bound::Included(from);
    let next_pending = |stream: &Stream, at: Bound<StreamId>| {
        let from = match at {
            Bound::Excluded(id) => id.next()?,
            Bound::Included(id) => id,
            Bound::Unbounded => StreamId::MIN,
        };
        let group = stream.group(claim.group)?;
        group.pending(from, StreamId::MAX).next().map(|(id, _)| *id)
    };
    while left > 0
        && looks > 0
        && let Some(id) = next_pending(stream, at)
    {
        at = Bound::Excluded(id);
        looks -= 1;
        if stream.get(id).is_none() {
            stream.acknowledge(claim.group, std::iter::once(id));
            found.deleted.push(id);
            left -= 1;
        } else if claim.take(stream, id) {
            found.claimed.push(id);
            left -= 1;
        }
    }
    if !found.claimed.is_empty() {
        claim.end(stream);
    }
    found.next = next_pending(stream, at).unwrap_or(StreamId::MIN);
    found
}
