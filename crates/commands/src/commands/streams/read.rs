//! XREAD, XREADGROUP: entries after an ID, of several streams; BLOCK waits for them.

use std::iter::zip;

use tierce_collections::Stream;
use tierce_collections::stream::{Group as ConsumerGroup, StreamId};
use tierce_keyspace::{Delivery, Editor, Event, Key, Missing, Wakes};
use tierce_wire::resp::{Proto, Rest};

use super::common::{no_group, unsigned_ms};
use super::{id, reply};
use crate::command::{Flags, Group, KeyFlags, KeySpec};
use crate::commands::cursor::Options;
use crate::commands::options::integer;
use crate::error::CommandError;
use crate::pipeline::blocking::{self, Patience, Wait};
use crate::pipeline::{Context, Defined, Done, Scale, many};
use crate::reply::Reply;

/// Options with their number of values.
const OPTIONS: &[(&str, usize)] = &[("COUNT", 1), ("BLOCK", 1), ("GROUP", 2)];

pub(super) static COMMANDS: &[Defined] = &[
    Defined::new("xread", Group::Stream, many!(xread))
        .flags(Flags::READONLY.with(Flags::BLOCKING))
        .keys(&[KeySpec::first_half_behind("STREAMS", OPTIONS, 1, KeyFlags::READ)])
        .since(
            "5.0.0",
            "For each stream mentioned: O(N) with N being the number of elements being \
                 returned, it means that XREAD-ing with a fixed COUNT is O(1). Note that \
                 when the BLOCK option is used, XADD will pay O(M) time in order to serve \
                 the M clients blocked on the stream getting new data.",
        )
        .doc(
            "[COUNT count] [BLOCK milliseconds] STREAMS key [key ...] id [id ...]",
            "Returns entries of several streams with identities greater than those \
                 given. Waits until there are any otherwise, if asked to.",
        )
        .example(
            r#"
            > XADD events 1-1 type login
            "1-1"
            > XREAD COUNT 10 STREAMS events 0
            1) 1) "events"
               2) 1) 1) "1-1"
                     2) 1) "type"
                        2) "login"
            > XREAD BLOCK 10 STREAMS events $
            (nil)
            "#,
        ),
    Defined::new("xreadgroup", Group::Stream, many!(xreadgroup))
        .flags(Flags::WRITE.with(Flags::BLOCKING))
        .keys(&[KeySpec::first_half_behind("STREAMS", OPTIONS, 4, KeyFlags::READ)])
        .since(
            "5.0.0",
            "For each stream mentioned: O(M) with M being the number of elements \
                 returned. If M is constant (e.g. always asking for the first 10 elements \
                 with COUNT), you can consider it O(1). On the other side when XREADGROUP \
                 blocks, XADD will pay the O(N) time in order to serve the N clients \
                 blocked on the stream getting new data.",
        )
        .doc(
            "GROUP group consumer [COUNT count] [BLOCK milliseconds] [NOACK] STREAMS \
                 key [key ...] id [id ...]",
            "Returns new or historical entries of several streams for a consumer in a \
                 group. Waits until there are any otherwise, if asked to.",
        )
        .example(
            r#"
            > XADD events 1-1 type login
            "1-1"
            > XGROUP CREATE events mailers 0
            OK
            > XREADGROUP GROUP mailers worker-1 COUNT 1 STREAMS events >
            1) 1) "events"
               2) 1) 1) "1-1"
                     2) 1) "type"
                        2) "login"
            > XREADGROUP GROUP mailers worker-1 STREAMS events >
            (nil)
            > XREADGROUP GROUP mailers worker-1 STREAMS events 0
            1) 1) "events"
               2) 1) 1) "1-1"
                     2) 1) "type"
                        2) "login"
            > XREADGROUP GROUP nosuch worker-1 STREAMS events >
            (error) NOGROUP No such key 'events' or consumer group 'nosuch' in XREADGROUP ...
            "#,
        ),
];

/// Kind of reader: XREAD or XREADGROUP.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Reader {
    Alone,
    InGroup,
}

/// Parsed arguments.
struct Reading<'a> {
    keys: Vec<&'a [u8]>,
    ids: Vec<&'a [u8]>,
    /// Maximum number of entries of each stream.
    count: usize,
    /// `None` if the client does not wait.
    patience: Option<Patience>,
    /// Names of group and consumer.
    group: Option<(&'a [u8], &'a [u8])>,
    acknowledges: bool,
}

impl<'a> Reading<'a> {
    fn parse(name: &str, mut options: Options<'a>, reader: Reader) -> Result<Self, CommandError> {
        const NO_GROUP_OPTION: CommandError = CommandError::new(
            "ERR The GROUP option is only supported by XREADGROUP. You called XREAD instead.",
        );
        const NO_ACK_OPTION: CommandError = CommandError::new(
            "ERR The NOACK option is only supported by XREADGROUP. You called XREAD instead.",
        );
        const GROUP_MISSING: CommandError =
            CommandError::new("ERR Missing GROUP option for XREADGROUP");
        let (count, patience) = (usize::MAX, None);
        let (keys, ids) = (Vec::new(), Vec::new());
        let (group, acknowledges) = (None, false);
        let mut reading = Self { keys, ids, count, patience, group, acknowledges };
        while let Some(word) = options.next_word() {
            match &*word {
                b"block" => reading.patience = Some(Patience::from_ms(options.value()?)?),
                b"count" => {
                    let count = usize::try_from(integer(options.value()?)?).unwrap_or(0);
                    reading.count = if count == 0 { usize::MAX } else { count };
                }
                b"streams" if options.left() > 0 => {
                    reading.streams(name, options.rest(), reader)?;
                    break;
                }
                b"group" => {
                    let [group, consumer] = options.values()?;
                    if reader == Reader::Alone {
                        return Err(NO_GROUP_OPTION);
                    }
                    reading.group = Some((group, consumer));
                }
                b"noack" if reader == Reader::Alone => return Err(NO_ACK_OPTION),
                b"noack" => reading.acknowledges = true,
                _ => return Err(CommandError::SYNTAX),
            }
        }
        if reading.keys.is_empty() {
            return Err(CommandError::SYNTAX);
        }
        if reader == Reader::InGroup && reading.group.is_none() {
            return Err(GROUP_MISSING);
        }
        Ok(reading)
    }

    fn streams(&mut self, name: &str, streams: Rest<'a>, reader: Reader) -> Done {
        let half = streams.len() / 2;
        let Some((keys, ids)) =
            streams.split_at(half).filter(|(keys, ids)| keys.len() == ids.len())
        else {
            let symbol = if reader == Reader::InGroup { '>' } else { '$' };
            return Err(CommandError::text(format!(
                "ERR Unbalanced '{name}' list of streams: for each stream key an ID or '{symbol}' \
                 must be specified."
            )));
        };
        (self.keys, self.ids) = (keys.iter().collect(), ids.iter().collect());
        Ok(())
    }

    /// Ends a command that has found nothing. `after` contains the values of `$` for the call that runs again later.
    fn wait(&self, ctx: &mut Context<'_, '_>, keys: &[Key<'_>], after: &[StreamId]) {
        let Some(patience) = self.patience else {
            ctx.reply.null_array();
            return;
        };
        let command = if self.ids.contains(&&b"$"[..]) {
            ctx.call.to_owned_ending_with(&self.resolved(after))
        } else {
            ctx.call.to_owned()
        };
        let group = self.group.map(|(group, _)| group);
        let wakes = if group.is_some() { Wakes::Removal } else { Wakes::Creation };
        let wait = Wait { keys, command, patience, group, wakes };
        blocking::wait(ctx, wait);
    }

    /// Returns the IDs of the call, with `$` replaced by the last ID of the stream.
    fn resolved(&self, after: &[StreamId]) -> Vec<Vec<u8>> {
        let resolved = |(id, after): (&&[u8], &StreamId)| match *id {
            b"$" => after.to_string().into_bytes(),
            id => id.to_vec(),
        };
        self.ids.iter().zip(after).map(resolved).collect()
    }
}

/// Begins a reply of this many streams, each with its name.
fn begin_streams(reply: &mut Reply<'_>, count: usize) {
    match reply.proto() {
        Proto::Resp3 => reply.map(count),
        Proto::Resp2 => reply.array(count),
    }
}

fn begin_stream(reply: &mut Reply<'_>, key: &[u8]) {
    if reply.proto() == Proto::Resp2 {
        reply.array(2);
    }
    reply.bulk(key);
}

fn xread(ctx: &mut Context<'_, '_>, arguments: Rest<'_, 3>) -> Done {
    const FOR_GROUPS: CommandError = CommandError::new(
        "ERR The > ID can be specified only when calling XREADGROUP using the GROUP <group> \
         <consumer> option.",
    );
    let reading = Reading::parse(ctx.name(), Options::of(arguments), Reader::Alone)?;
    let keys = ctx.keys(reading.keys.iter().copied());
    let scale = ctx.scale();
    let Context { guard, caller, reply, now_ms, mode, .. } = ctx;
    let (db, now_ms) = (caller.db, *now_ms);
    let (mut after, mut served, mut unserved) = (Vec::new(), Vec::new(), Vec::new());
    for (at, (key, id)) in zip(&keys, &reading.ids).enumerate() {
        let mut shard = guard.db(db, key.hash(), now_ms);
        let stream = match shard.collection::<Stream>(*key).map_err(CommandError::from) {
            Err(error) if mode.passes_over(&error) => None,
            stream => stream?,
        };
        let id = match *id {
            b"$" => stream.as_ref().map_or(StreamId::MIN, |stream| stream.state().last_id),
            b">" => return Err(FOR_GROUPS),
            id => id::strict(id, 0)?,
        };
        after.push(id);
        let is_there = stream.is_some();
        if let (Some(stream), Some(from)) = (stream, id.next())
            && stream.last().is_some_and(|last| last.id > id)
        {
            let at_most = reading.count.min(stream.len());
            scale.weigh_each(at_most, stream.ascending(from, StreamId::MAX).take(at_most))?;
            served.push(at);
        } else {
            unserved.push((*key, is_there));
        }
    }
    // Redis looks up all keys twice; the reply counts the other lookups.
    for (key, is_there) in unserved {
        guard.db(db, key.hash(), now_ms).count_read(key, is_there);
    }
    if served.is_empty() {
        reading.wait(ctx, &keys, &after);
        return Ok(());
    }
    begin_streams(reply, served.len());
    for at in served {
        let mut shard = guard.db(db, keys[at].hash(), now_ms);
        begin_stream(reply, reading.keys[at]);
        let stream = shard.collection::<Stream>(keys[at])?.expect("it had entries, and is locked");
        let from = after[at].next().expect("the last entry is greater");
        reply::entries(reply, stream.ascending(from, StreamId::MAX).take(reading.count));
    }
    Ok(())
}

/// Entries of a stream for a consumer.
enum Served {
    Nothing,
    /// New entries for the group: their number and range.
    New {
        count: usize,
        first: StreamId,
        last: StreamId,
    },
    /// Entries pending with this consumer.
    History(Vec<StreamId>),
}

fn xreadgroup(ctx: &mut Context<'_, '_>, arguments: Rest<'_, 6>) -> Done {
    let reading = Reading::parse(ctx.name(), Options::of(arguments), Reader::InGroup)?;
    let (group, consumer) = reading.group.expect("parsed");
    let keys = ctx.keys(reading.keys.iter().copied());
    let scale = ctx.scale();
    let Context { guard, caller, reply, now_ms, .. } = ctx;
    let (db, now_ms) = (caller.db, *now_ms);
    let mut after = Vec::new();
    for (key, id) in zip(&keys, &reading.ids) {
        let mut shard = guard.db(db, key.hash(), now_ms);
        after.push(start_of(&mut shard, *key, group, id, |stream, from| {
            weigh(scale, stream, (group, consumer), from, reading.count)
        })?);
    }
    let mut served = Vec::new();
    for (key, after) in zip(&keys, &after) {
        let mut shard = guard.db(db, key.hash(), now_ms);
        let edited = shard.edit(*key, Missing::Skip, |stream: &mut Editor<'_, Stream>| {
            let mut consumer = Delivering { stream, group, consumer, now_ms: unsigned_ms(now_ms) };
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
        reading.wait(ctx, &keys, &[]);
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
            Served::New { count, first, last } => {
                reply::entries(reply, stream.ascending(first, last).take(count));
            }
            Served::History(ids) => write_history(reply, &stream, &ids),
        }
    }
    Ok(())
}

/// Weighs the entries that a consumer of a group will get.
fn weigh(
    scale: Scale,
    stream: &Stream,
    (group, consumer): (&[u8], &[u8]),
    after: Option<StreamId>,
    count: usize,
) -> Done {
    let Some(group) = stream.group(group) else { return Ok(()) };
    let from = after.unwrap_or_else(|| group.last_delivered()).next();
    let Some(from) = from else { return Ok(()) };
    if after.is_none() {
        let at_most = count.min(stream.len());
        return scale.weigh_each(at_most, stream.ascending(from, StreamId::MAX).take(at_most));
    }
    let at_most = count.min(group.pending_len());
    let pending = group.consumer_named(consumer).into_iter();
    scale.weigh_each(at_most, pending.flat_map(|it| it.pending(from, StreamId::MAX)).take(at_most))
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
    let stream = db.collection::<Stream>(key)?.filter(|stream| stream.group(group).is_some());
    let Some(stream) = stream else {
        return Err(no_group(key.bytes(), group, " in XREADGROUP with GROUP option"));
    };
    let from = match id {
        b"$" => return Err(MEANINGLESS),
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
        match after {
            Some(after) => self.history(after, reading.count),
            None => self.deliver(reading),
        }
    }

    /// Delivers new entries.
    fn deliver(&mut self, reading: &Reading<'_>) -> Served {
        let (group, mut read) = (self.group(), self.group().entries_read());
        let mut position = group.last_delivered();
        let Some(from) = position.next() else { return Served::Nothing };
        let mut ids = Vec::new();
        for entry in self.stream.ascending(from, StreamId::MAX).take(reading.count) {
            read = self.stream.entries_read_at(entry.id, position, read);
            position = entry.id;
            ids.push(entry.id);
        }
        let (Some(first), Some(last)) = (ids.first().copied(), ids.last().copied()) else {
            return Served::Nothing;
        };
        self.stream.set_group(self.group, position, read);
        if !reading.acknowledges {
            let delivery = Delivery { at_ms: self.now_ms, count: 1 };
            self.stream.deliver(self.group, self.consumer, &ids, delivery);
            self.stream.set_consumer(self.group, self.consumer, self.now_ms, Some(self.now_ms));
        }
        Served::New { count: ids.len(), first, last }
    }

    /// Delivers the pending entries of the consumer again.
    fn history(&mut self, after: StreamId, count: usize) -> Served {
        let group = self.group();
        let consumer = group.consumer_named(self.consumer).expect("made if it was not there");
        let from = after.next().unwrap_or(StreamId::MAX);
        let pending = consumer.pending(from, StreamId::MAX).take(count);
        let ids: Vec<StreamId> = pending.copied().collect();
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
