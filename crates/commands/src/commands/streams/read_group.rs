//! XREADGROUP: delivers entries to a consumer of a group.

use std::iter::zip;
use std::time::Duration;

use tierce_collections::Stream;
use tierce_collections::stream::{Entry, Group as ConsumerGroup, StreamId};
use tierce_keyspace::{Delivery, Editor, Event, Key, Missing};
use tierce_wire::resp::Rest;

use super::common::{no_group, since_ms, unsigned_ms};
use super::read::{Reader, Reading, begin_stream, begin_streams};
use super::room::Room;
use super::{id, reply};
use crate::commands::cursor::Options;
use crate::error::CommandError;
use crate::pipeline::blocking::Claims;
use crate::pipeline::{Context, Done, Scale};
use crate::reply::Reply;

/// Entries of a stream for a consumer.
enum Served {
    Nothing,
    /// Entries that were claimed, and new ones for the group.
    Entries(Vec<Claimed>, Option<New>),
    /// Entries pending with this consumer.
    History(Vec<StreamId>),
}

/// An entry that was claimed, and its deliveries before.
struct Claimed {
    id: StreamId,
    idle_ms: u64,
    deliveries: u32,
}

/// Number and range of new entries.
struct New {
    count: usize,
    first: StreamId,
    last: StreamId,
}

impl New {
    fn of<'s>(&self, stream: &'s Stream) -> impl Iterator<Item = Entry<'s>> + Clone + use<'s> {
        stream.ascending(self.first, self.last).take(self.count)
    }
}

pub(super) fn xreadgroup(ctx: &mut Context<'_, '_>, arguments: Rest<'_, 6>) -> Done {
    let reading = Reading::parse(ctx.name(), Options::of(arguments), Reader::InGroup)?;
    let (group, consumer) = reading.group.expect("parsed");
    let keys = ctx.keys(reading.keys.iter().copied());
    let (scale, mut room) = (ctx.scale(), reading.room);
    let Context { guard, caller, reply, now_ms, .. } = ctx;
    let (db, now_ms) = (caller.db, *now_ms);
    let mut after = Vec::new();
    for (key, id) in zip(&keys, &reading.ids) {
        let mut shard = guard.db(db, key.hash(), now_ms);
        after.push(start_of(&mut shard, *key, group, id, |stream, from| {
            weigh(scale, now_ms, stream, from, &reading)
        })?);
    }
    let mut served = Vec::new();
    for (key, after) in zip(&keys, &after) {
        if room.is_full() {
            break;
        }
        let mut shard = guard.db(db, key.hash(), now_ms);
        let edited = shard.edit(*key, Missing::Skip, |stream: &mut Editor<'_, Stream>| {
            let (now_ms, room) = (unsigned_ms(now_ms), &mut room);
            let mut consumer = Delivering { stream, group, consumer, room, now_ms };
            Ok::<_, CommandError>((consumer.is_new(), consumer.serve(*after, &reading)))
        })?;
        let (is_new_consumer, delivered) = edited.unwrap_or((false, Served::Nothing));
        if is_new_consumer {
            shard.event(Event::XGroupCreateConsumer, *key);
        }
        match delivered {
            // Redis looks up all keys twice; the reply counts the other lookups.
            Served::Nothing => shard.count_look(true),
            _ => shard.event(Event::XReadGroup, *key),
        }
        served.push(delivered);
    }
    let count = served.iter().filter(|served| !matches!(served, Served::Nothing)).count();
    if count == 0 {
        let claims = match (reading.claim_ms, reading.patience) {
            (Some(idle_ms), Some(_)) => {
                Some(Claims { idle_ms, after: claimable_after(ctx, &keys, group, idle_ms)? })
            }
            _ => None,
        };
        reading.wait(ctx, &keys, &[], claims);
        return Ok(());
    }
    begin_streams(reply, count);
    for (key, served) in zip(&keys, served) {
        if matches!(served, Served::Nothing) {
            continue;
        }
        let mut shard = guard.db(db, key.hash(), now_ms);
        begin_stream(reply, key.bytes());
        let stream = shard.collection::<Stream>(*key)?.expect("it was read, and is locked");
        match served {
            Served::Nothing => {}
            Served::Entries(claimed, new) if reading.claim_ms.is_some() => {
                write_claimed(reply, &stream, &claimed, new);
            }
            Served::Entries(_, new) => {
                new.iter().for_each(|new| reply::entries(reply, new.of(&stream)));
            }
            Served::History(ids) => write_history(reply, &stream, &ids),
        }
    }
    Ok(())
}

/// Returns the time until the first pending entry can be claimed, or a new one that another consumer gets now. The
/// delivery of that one wakes no waiting client. The time is not too short if nothing is pending yet.
fn claimable_after(
    ctx: &mut Context<'_, '_>,
    keys: &[Key<'_>],
    group: &[u8],
    claim_ms: u64,
) -> Result<Duration, CommandError> {
    /// Entries looked at in a group. If so many were deleted, the time is that of the next one, whatever it is.
    const LOOKS: usize = 1000;
    /// Minimum time if no entry is known that can be claimed earlier.
    const IN_VAIN_MS: u64 = 50;
    let Context { guard, caller, now_ms, .. } = ctx;
    let mut after_ms = claim_ms.max(IN_VAIN_MS);
    // Those that were delivered before have been found deleted.
    let from_ms = (unsigned_ms(*now_ms) + 1).saturating_sub(claim_ms);
    for key in keys {
        let mut shard = guard.db(caller.db, key.hash(), *now_ms);
        let Some(stream) = shard.collection::<Stream>(*key)? else { continue };
        let Some(group) = stream.group(group) else { continue };
        let mut pending = group.pending_by_time(from_ms);
        let first = pending.by_ref().take(LOOKS).find(|(_, id)| stream.get(*id).is_some());
        // A clock that is a little behind would find nothing.
        let next = first.map(|first| (first, 1));
        let next = next.or_else(|| pending.next().map(|unknown| (unknown, IN_VAIN_MS)));
        if let Some(((at_ms, _), min_ms)) = next {
            let left_ms = claim_ms.saturating_sub(since_ms(*now_ms, at_ms));
            after_ms = after_ms.min(left_ms.max(min_ms));
        }
    }
    Ok(Duration::from_millis(after_ms))
}

/// Weighs the entries that a consumer of a group will get.
fn weigh(
    scale: Scale,
    now_ms: i64,
    stream: &Stream,
    after: Option<StreamId>,
    reading: &Reading<'_>,
) -> Done {
    let (name, consumer) = reading.group.expect("parsed");
    let Some(group) = stream.group(name) else { return Ok(()) };
    let mut room = reading.room.at_most(reading.count);
    if let (None, Some(claim_ms)) = (after, reading.claim_ms) {
        weigh_claim(scale, stream, group, room, |at_ms| since_ms(now_ms, at_ms) >= claim_ms)?;
    }
    let from = after.unwrap_or_else(|| group.last_delivered()).next();
    let Some(from) = from else { return Ok(()) };
    if after.is_none() {
        let at_most = room.entries.min(stream.len());
        return scale.weigh_each(at_most, room.fitting(stream.ascending(from, StreamId::MAX)));
    }
    let at_most = room.entries.min(group.pending_len());
    let pending = group.consumer_named(consumer).into_iter();
    let pending = pending.flat_map(|it| it.pending(from, StreamId::MAX));
    scale.weigh_each(at_most, pending.take_while(|id| room.admit(|| history_bytes(stream, **id))))
}

/// Weighs the pending entries that CLAIM visits: those delivered at a time that is long ago, until the room is full.
/// Deleted ones are visited in vain.
fn weigh_claim(
    scale: Scale,
    stream: &Stream,
    group: &ConsumerGroup,
    mut room: Room,
    is_long_ago: impl Fn(u64) -> bool,
) -> Done {
    if !group.is_ordered_by_time() {
        // All are put in this order.
        return scale.weigh(group.pending_len());
    }
    let visited = group.pending_by_time(0).take_while(|(at_ms, id)| {
        let is_visited = is_long_ago(*at_ms) && !room.is_full();
        if is_visited
            && room.is_limited()
            && let Some(entry) = stream.get(*id)
        {
            room.add(|| reply::entry_bytes(&entry));
        }
        is_visited
    });
    scale.weigh_each(group.pending_len(), visited)
}

/// Returns the bytes of a pending entry in a reply; 0 if it was deleted.
fn history_bytes(stream: &Stream, id: StreamId) -> usize {
    stream.get(id).map_or(0, |entry| reply::entry_bytes(&entry))
}

/// Returns the ID after which a consumer reads, if the weight allows it; `None` for new entries.
fn start_of(
    db: &mut tierce_keyspace::Db<'_>,
    key: Key<'_>,
    group: &[u8],
    id: &[u8],
    weigh: impl FnOnce(&Stream, Option<StreamId>) -> Done,
) -> Result<Option<StreamId>, CommandError> {
    const MEANINGLESS: CommandError = CommandError::new(
        "ERR The $ ID is meaningless in the context of XREADGROUP: you want to read the history of \
         this consumer by specifying a proper ID, or use the > ID to get new messages. The $ ID would \
         just return an empty result set.",
    );
    const MEANINGLESS_LAST: CommandError = CommandError::new(
        "ERR The + ID is meaningless in the context of XREADGROUP: you want to read the history of \
         this consumer by specifying a proper ID, or use the > ID to get new messages. The + ID would \
         just return an empty result set.",
    );
    let stream = db.collection::<Stream>(key)?.filter(|stream| stream.group(group).is_some());
    let Some(stream) = stream else {
        return Err(no_group(key.bytes(), group, " in XREADGROUP with GROUP option"));
    };
    let from = match id {
        b"$" => return Err(MEANINGLESS),
        b"+" => return Err(MEANINGLESS_LAST),
        b">" => None,
        // Nothing can follow the greatest ID, which Redis reads as `>`.
        id => Some(id::strict(id, 0)?).filter(|id| *id != StreamId::MAX),
    };
    weigh(&stream, from)?;
    Ok(from)
}

/// A consumer that reads.
struct Delivering<'e, 'v, 'n> {
    stream: &'e mut Editor<'v, Stream>,
    group: &'n [u8],
    consumer: &'n [u8],
    room: &'n mut Room,
    now_ms: u64,
}

impl Delivering<'_, '_, '_> {
    fn group(&self) -> &ConsumerGroup {
        self.stream.group(self.group).expect("the group was found under this lock")
    }

    /// Returns true if the consumer has never read.
    fn is_new(&self) -> bool {
        self.group().consumer_number(self.consumer).is_none()
    }

    fn serve(&mut self, after: Option<StreamId>, reading: &Reading<'_>) -> Served {
        let (group, consumer) = (self.group, self.consumer);
        if self.is_new() {
            self.stream.set_consumer(group, consumer, self.now_ms, None);
        } else {
            self.stream.saw_consumer(group, consumer, self.now_ms);
        }
        if let Some(after) = after {
            return self.history(after, reading.count);
        }
        let claimed = match reading.claim_ms {
            Some(idle_ms) => self.claim(idle_ms, reading.count),
            None => Vec::new(),
        };
        match self.deliver(reading, reading.count - claimed.len()) {
            None if claimed.is_empty() => Served::Nothing,
            new => Served::Entries(claimed, new),
        }
    }

    /// Delivers entries that have been pending for this time, the longest first.
    fn claim(&mut self, idle_ms_min: u64, count: usize) -> Vec<Claimed> {
        self.stream.order_by_time(self.group);
        let group = self.stream.group(self.group).expect("the group was found under this lock");
        let mut claimed = Vec::new();
        for (at_ms, id) in group.pending_by_time(0) {
            let idle_ms = self.now_ms.saturating_sub(at_ms);
            if idle_ms < idle_ms_min || claimed.len() == count || self.room.is_full() {
                break;
            }
            // Deleted entries cannot be delivered.
            if let (Some(entry), Some(pending)) = (self.stream.get(id), group.pending_entry(id)) {
                self.room.add(|| reply::entry_bytes(&entry));
                claimed.push(Claimed { id, idle_ms, deliveries: pending.deliveries });
            }
        }
        for Claimed { id, deliveries, .. } in &claimed {
            let delivery = Delivery { at_ms: self.now_ms, count: deliveries.saturating_add(1) };
            self.stream.deliver(self.group, self.consumer, &[*id], delivery);
        }
        if !claimed.is_empty() {
            self.stream.set_consumer(self.group, self.consumer, self.now_ms, Some(self.now_ms));
        }
        claimed
    }

    /// Delivers new entries.
    fn deliver(&mut self, reading: &Reading<'_>, count: usize) -> Option<New> {
        let (group, mut read) = (self.group(), self.group().entries_read());
        let mut position = group.last_delivered();
        let from = position.next()?;
        let count = self.room.take(count, self.stream.ascending(from, StreamId::MAX));
        let mut ids = Vec::new();
        for entry in self.stream.ascending(from, StreamId::MAX).take(count) {
            read = self.stream.entries_read_at(entry.id, position, read);
            position = entry.id;
            ids.push(entry.id);
        }
        let (first, last) = (ids.first().copied()?, ids.last().copied()?);
        self.stream.set_group(self.group, position, read);
        if !reading.acknowledges {
            let delivery = Delivery { at_ms: self.now_ms, count: 1 };
            self.stream.deliver(self.group, self.consumer, &ids, delivery);
            self.stream.set_consumer(self.group, self.consumer, self.now_ms, Some(self.now_ms));
        }
        Some(New { count: ids.len(), first, last })
    }

    /// Delivers the pending entries of the consumer again.
    fn history(&mut self, after: StreamId, count: usize) -> Served {
        let group = self.stream.group(self.group).expect("the group was found under this lock");
        let consumer = group.consumer_named(self.consumer).expect("made if it was not there");
        let from = after.next().unwrap_or(StreamId::MAX);
        let mut ids = Vec::new();
        for id in consumer.pending(from, StreamId::MAX).take(count) {
            if !self.room.admit(|| history_bytes(self.stream, *id)) {
                break;
            }
            ids.push(*id);
        }
        for id in &ids {
            let Some(pending) = self.group().pending_entry(*id) else { continue };
            // Deleted entries cannot be delivered.
            if self.stream.get(*id).is_some() {
                let count = pending.deliveries.saturating_add(1);
                let delivery = Delivery { at_ms: self.now_ms, count };
                self.stream.deliver(self.group, self.consumer, &[*id], delivery);
            }
        }
        Served::History(ids)
    }
}

/// Writes entries of CLAIM. New ones were not delivered before.
fn write_claimed(reply: &mut Reply<'_>, stream: &Stream, claimed: &[Claimed], new: Option<New>) {
    reply.array(claimed.len() + new.as_ref().map_or(0, |new| new.count));
    for Claimed { id, idle_ms, deliveries } in claimed {
        let entry = stream.get(*id).expect("only entries are claimed");
        reply::delivered(reply, &entry, *idle_ms, *deliveries);
    }
    for entry in new.iter().flat_map(|new| new.of(stream)) {
        reply::delivered(reply, &entry, 0, 0);
    }
}

fn write_history(reply: &mut Reply<'_>, stream: &Stream, ids: &[StreamId]) {
    reply.array(ids.len());
    for id in ids {
        match stream.get(*id) {
            Some(entry) => reply::entry(reply, &entry),
            None => {
                reply.array(2);
                reply::id(reply, *id);
                reply.null_array();
            }
        }
    }
}
