//! XCLAIM, XAUTOCLAIM: take over pending entries of other consumers.

use std::ops::Bound;

use tierce_collections::Stream;
use tierce_collections::stream::StreamId;
use tierce_keyspace::{Db, Delivery, Editor, Event, Key, Missing};
use tierce_wire::resp::Rest;

use super::common::{no_group, since_ms, unsigned_ms};
use super::{id, reply};
use crate::command::{Flags, Group, KeyFlags, KeySpec};
use crate::commands::cursor::Options;
use crate::commands::options::integer;
use crate::error::CommandError;
use crate::pipeline::{Context, Defined, Done, at_least};
use crate::reply::Reply;

pub(super) static COMMANDS: &[Defined] = &[
    Defined::new("xclaim", Group::Stream, at_least!(xclaim))
        .flags(Flags::WRITE.with(Flags::FAST))
        .keys(&[KeySpec::at(1, KeyFlags::UPDATE)])
        .tips(&["nondeterministic_output"])
        .since(
            "5.0.0",
            "O(log N) with N being the number of messages in the PEL of the consumer group.",
        )
        .doc(
            "key group consumer min-idle-time id [id ...] [IDLE ms] [TIME \
                 unix-time-milliseconds] [RETRYCOUNT count] [FORCE] [JUSTID] [LASTID lastid]",
            "Makes a consumer of a group the owner of pending entries, as if they had been \
                 delivered to it.",
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
            > XCLAIM events mailers worker-2 0 1-1
            1) 1) "1-1"
               2) 1) "type"
                  2) "login"
            > XCLAIM events mailers worker-3 3600000 1-1
            (empty array)
            "#,
        ),
    Defined::new("xautoclaim", Group::Stream, at_least!(xautoclaim))
        .flags(Flags::WRITE.with(Flags::FAST))
        .keys(&[KeySpec::at(1, KeyFlags::READ_REMOVE)])
        .tips(&["nondeterministic_output"])
        .since("6.2.0", "O(1) if COUNT is small.")
        .doc(
            "key group consumer min-idle-time start [COUNT count] [JUSTID]",
            "Makes a consumer of a group the owner of entries that have been pending for \
                 long.",
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
            > XAUTOCLAIM events mailers worker-2 0 0
            1) "0-0"
            2) 1) 1) "1-1"
                  2) 1) "type"
                     2) "login"
            3) (empty array)
            > XAUTOCLAIM events mailers worker-3 3600000 0 JUSTID
            1) "0-0"
            2) (empty array)
            3) (empty array)
            "#,
        ),
];

/// Parameters of a claim.
struct Claim<'a> {
    group: &'a [u8],
    consumer: &'a [u8],
    idle_ms_min: u64,
    /// New delivery time of the entries.
    delivered_ms: u64,
    /// New number of deliveries.
    deliveries: Option<u32>,
    /// True if entries that are not pending are claimed, too.
    is_forced: bool,
    /// True if the reply contains only IDs. Deliveries are not counted then.
    just_ids: bool,
    is_of_primary: bool,
    now_ms: i64,
}

/// Parses an integer argument, with an error text for anything else.
fn integer_or(arg: &[u8], error: &'static str) -> Result<i64, CommandError> {
    integer(arg).map_err(|_| CommandError::new(error))
}

impl<'a> Claim<'a> {
    fn new(ctx: &Context<'_, '_>, group: &'a [u8], consumer: &'a [u8], idle: i64) -> Self {
        let now_ms = ctx.moment_ms();
        Self {
            group,
            consumer,
            idle_ms_min: u64::try_from(idle).unwrap_or(0),
            delivered_ms: unsigned_ms(now_ms),
            deliveries: None,
            is_forced: false,
            just_ids: false,
            is_of_primary: ctx.caller.is_primary(),
            now_ms,
        }
    }

    /// Records the attempt of the consumer, which is created if needed. Returns true if it was created.
    fn begin(&self, stream: &mut Editor<'_, Stream>) -> bool {
        let now_ms = unsigned_ms(self.now_ms);
        let group = stream.group(self.group);
        if group.is_some_and(|group| group.consumer_number(self.consumer).is_some()) {
            stream.saw_consumer(self.group, self.consumer, now_ms);
            false
        } else {
            stream.set_consumer(self.group, self.consumer, now_ms, None);
            true
        }
    }

    /// Claims an existing entry. Returns true if that is allowed.
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
        stream.deliver(self.group, self.consumer, &[id], self.delivery(count));
        true
    }

    fn delivery(&self, count: u32) -> Delivery {
        Delivery { at_ms: self.delivered_ms, count }
    }

    /// Records that the consumer got something.
    fn end(&self, stream: &mut Editor<'_, Stream>) {
        let now_ms = unsigned_ms(self.now_ms);
        stream.set_consumer(self.group, self.consumer, now_ms, Some(now_ms));
    }

    /// Replies with the claimed entries. They still exist, since nothing has changed.
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

/// Arguments of XCLAIM, besides the parameters.
#[derive(Default)]
struct Claimed {
    ids: Vec<StreamId>,
    last_id: StreamId,
}

/// Parses IDs, and the options after them.
fn parse_claim(claim: &mut Claim<'_>, mut arguments: Options<'_>) -> Result<Claimed, CommandError> {
    let mut claimed = Claimed::default();
    while let Some(id) = arguments.next_if(|arg| id::strict(arg, 0).is_ok()) {
        claimed.ids.push(id::strict(id, 0)?);
    }
    while let Some(word) = arguments.next_word() {
        let unknown = || {
            let option = String::from_utf8_lossy(word.spelled);
            CommandError::text(format!("ERR Unrecognized XCLAIM option '{option}'"))
        };
        let mut value = || arguments.next_value().ok_or_else(unknown);
        match &*word {
            b"force" => claim.is_forced = true,
            b"justid" => claim.just_ids = true,
            b"idle" => {
                let idle = integer_or(value()?, "ERR Invalid IDLE option argument for XCLAIM")?;
                claim.deliver_at(claim.now_ms.wrapping_sub(idle));
            }
            b"time" => {
                let time = integer_or(value()?, "ERR Invalid TIME option argument for XCLAIM")?;
                claim.deliver_at(time);
            }
            b"retrycount" => {
                let error = "ERR Invalid RETRYCOUNT option argument for XCLAIM";
                let count = integer_or(value()?, error)?;
                // A negative number is ignored.
                claim.deliveries =
                    u64::try_from(count).ok().map(|count| u32::try_from(count).unwrap_or(u32::MAX));
            }
            b"lastid" => claimed.last_id = id::strict(value()?, 0)?,
            _ => return Err(unknown()),
        }
    }
    Ok(claimed)
}

impl Claim<'_> {
    /// Sets the delivery time. An invalid time means now, since clocks of clients differ.
    fn deliver_at(&mut self, ms: i64) {
        let is_sane = (0..=self.now_ms).contains(&ms);
        self.delivered_ms = unsigned_ms(if is_sane { ms } else { self.now_ms });
        if Delivery::given_back(0).at_ms == self.delivered_ms && !self.is_of_primary {
            // A consumer without a name would give the entry back. Only a primary does this.
            self.delivered_ms += u64::from(self.consumer.is_empty());
        }
    }
}

fn xclaim(
    ctx: &mut Context<'_, '_>,
    [key, group, consumer, idle]: [&[u8]; 4],
    ids: Rest<'_, 1>,
) -> Done {
    let mut claim = Claim::new(ctx, group, consumer, 0);
    let (mut db, key, reply) = ctx.open(key);
    let claimed = db.edit(key, Missing::Skip, |stream: &mut Editor<'_, Stream>| {
        let Some(group) = stream.group(claim.group) else {
            return Err(no_group(key.bytes(), claim.group, ""));
        };
        let (position, read) = (group.last_delivered(), group.entries_read());
        let idle = integer_or(idle, "ERR Invalid min-idle-time argument for XCLAIM")?;
        claim.idle_ms_min = u64::try_from(idle).unwrap_or(0);
        let Claimed { ids, last_id } = parse_claim(&mut claim, Options::of(ids))?;
        if last_id > position {
            stream.set_group(claim.group, last_id, read);
        }
        // A primary sends this for entries that were given back and have no consumer.
        let gives_back = claim.delivery(0).is_given_back(claim.consumer);
        let is_new = !gives_back && claim.begin(stream);
        let mut claimed = Vec::new();
        for id in ids {
            if stream.get(id).is_none() {
                // The entry is deleted, so it cannot be acknowledged.
                stream.acknowledge(claim.group, std::iter::once(id));
            } else if claim.take(stream, id) {
                claimed.push(id);
            }
        }
        if !claimed.is_empty() && !gives_back {
            claim.end(stream);
        }
        if !claimed.is_empty() && claim.delivered_ms < unsigned_ms(claim.now_ms) {
            // Others may claim them earlier than they expect.
            stream.serve_waiters();
        }
        Ok((claimed, is_new))
    });
    let (claimed, is_new) = found_group(&mut db, key, &claim, claimed)?;
    name_claim(&db, key, is_new);
    if let Some(stream) = db.collection::<Stream>(key)? {
        claim.write(reply, &stream, &claimed);
    }
    Ok(())
}

/// Returns the result of an edit if the group exists. Otherwise the key counts as read, as in Redis; else the reply
/// counts.
fn found_group<T>(
    db: &mut Db<'_>,
    key: Key<'_>,
    claim: &Claim<'_>,
    edited: Result<Option<T>, CommandError>,
) -> Result<T, CommandError> {
    let edited = edited.and_then(|it| it.ok_or_else(|| no_group(key.bytes(), claim.group, "")));
    if edited.as_ref().is_err_and(|error| error.interrupt().is_none()) {
        db.exists(key);
    }
    edited
}

/// Reports the event of a claim. As in Redis, its effect on entries has no event.
fn name_claim(db: &Db<'_>, key: Key<'_>, is_new_consumer: bool) {
    if is_new_consumer {
        db.event(Event::XGroupCreateConsumer, key);
    }
    db.event(Event::XClaim, key);
}

/// Result of XAUTOCLAIM.
#[derive(Default)]
struct Found {
    is_new_consumer: bool,
    claimed: Vec<StreamId>,
    deleted: Vec<StreamId>,
    /// Start of the next call.
    next: StreamId,
}

/// Parses the options of XAUTOCLAIM: the number of entries, and JUSTID.
fn parse_auto(mut options: Options<'_>) -> Result<(usize, bool), CommandError> {
    /// Upper bound of COUNT, so that no multiple of it overflows.
    const COUNT_MAX: i64 = i64::MAX / 16;
    const NOT_POSITIVE: CommandError = CommandError::new("ERR COUNT must be > 0");
    let (mut count, mut just_ids) = (100, false);
    while let Some(word) = options.next_word() {
        match &*word {
            b"count" => {
                let value = integer(options.value()?).map_err(|_| NOT_POSITIVE)?;
                if !(1..=COUNT_MAX).contains(&value) {
                    return Err(NOT_POSITIVE);
                }
                count = value as usize;
            }
            b"justid" => just_ids = true,
            _ => return Err(CommandError::SYNTAX),
        }
    }
    Ok((count, just_ids))
}

fn xautoclaim(
    ctx: &mut Context<'_, '_>,
    [key, group, consumer, idle, start]: [&[u8]; 5],
    options: Rest<'_>,
) -> Done {
    let idle = integer_or(idle, "ERR Invalid min-idle-time argument for XAUTOCLAIM")?;
    let from = id::first(start)?;
    let (count, just_ids) = parse_auto(Options::of(options))?;
    let claim = Claim { just_ids, ..Claim::new(ctx, group, consumer, idle) };
    let scale = ctx.scale();
    let (mut db, key, reply) = ctx.open(key);
    let found = db.edit(key, Missing::Skip, |stream: &mut Editor<'_, Stream>| {
        let Some(group) = stream.group(claim.group) else {
            return Err(no_group(key.bytes(), claim.group, ""));
        };
        scale.weigh(group.pending_len().min(count.saturating_mul(LOOKS)))?;
        Ok(claim_idle(stream, &claim, from, count))
    });
    let found = found_group(&mut db, key, &claim, found)?;
    name_claim(&db, key, found.is_new_consumer);
    reply.array(3);
    reply::id(reply, found.next);
    if let Some(stream) = db.collection::<Stream>(key)? {
        claim.write(reply, &stream, &found.claimed);
    }
    reply.array(found.deleted.len());
    found.deleted.into_iter().for_each(|id| reply::id(reply, id));
    Ok(())
}

/// Entries visited for each requested one, which bounds the time of a call.
const LOOKS: usize = 10;

/// Claims up to `count` entries from `from` on.
fn claim_idle(
    stream: &mut Editor<'_, Stream>,
    claim: &Claim<'_>,
    from: StreamId,
    count: usize,
) -> Found {
    let mut found = Found { is_new_consumer: claim.begin(stream), ..Found::default() };
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
