//! XREAD and the arguments of XREADGROUP: entries after an ID, of several streams; BLOCK waits for them.

use std::iter::zip;

use tierce_collections::Stream;
use tierce_collections::stream::StreamId;
use tierce_keyspace::{Key, Wakes};
use tierce_wire::resp::{Proto, Rest};

use super::read_group::xreadgroup;
use super::room::Room;
use super::{id, reply};
use crate::command::{Flags, Group, KeyFlags, KeySpec};
use crate::commands::cursor::Options;
use crate::commands::options::integer;
use crate::error::CommandError;
use crate::pipeline::blocking::{self, Claims, Patience, Wait};
use crate::pipeline::{Context, Defined, Done, many};
use crate::reply::Reply;

/// Options with their number of values.
const OPTIONS: &[(&str, usize)] =
    &[("COUNT", 1), ("MAXCOUNT", 1), ("MAXSIZE", 1), ("BLOCK", 1), ("CLAIM", 1), ("GROUP", 2)];

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
            "[COUNT count] [MAXCOUNT maxcount] [MAXSIZE maxsize] [BLOCK milliseconds] STREAMS key \
                 [key ...] id [id ...]",
            "Returns entries of several streams with identities greater than those \
                 given, or the last entry for the identity +. Waits until there are any otherwise, if \
                 asked to. COUNT limits the entries of each stream, MAXCOUNT and MAXSIZE the entries and \
                 bytes of the reply.",
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
            > XREAD STREAMS events +
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
            "GROUP group consumer [COUNT count] [MAXCOUNT maxcount] [MAXSIZE maxsize] [BLOCK \
                 milliseconds] [CLAIM min-idle-time] [NOACK] STREAMS key [key ...] id [id ...]",
            "Returns new or historical entries of several streams for a consumer in a \
                 group. Waits until there are any otherwise, if asked to. With CLAIM, entries that have \
                 been pending for long come first, and each comes with its idle time and its number of \
                 deliveries.",
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
pub(super) enum Reader {
    Alone,
    InGroup,
}

/// Parsed arguments.
pub(super) struct Reading<'a> {
    pub(super) keys: Vec<&'a [u8]>,
    pub(super) ids: Vec<&'a [u8]>,
    /// Maximum number of entries of each stream.
    pub(super) count: usize,
    /// Limits of the whole reply.
    pub(super) room: Room,
    /// Idle time from which on pending entries of others are claimed.
    pub(super) claim_ms: Option<u64>,
    /// `None` if the client does not wait.
    pub(super) patience: Option<Patience>,
    /// Names of group and consumer.
    pub(super) group: Option<(&'a [u8], &'a [u8])>,
    pub(super) acknowledges: bool,
}

impl<'a> Reading<'a> {
    pub(super) fn parse(
        name: &str,
        mut options: Options<'a>,
        reader: Reader,
    ) -> Result<Self, CommandError> {
        const NO_GROUP_OPTION: CommandError = CommandError::new(
            "ERR The GROUP option is only supported by XREADGROUP. You called XREAD instead.",
        );
        const NO_ACK_OPTION: CommandError = CommandError::new(
            "ERR The NOACK option is only supported by XREADGROUP. You called XREAD instead.",
        );
        const GROUP_MISSING: CommandError =
            CommandError::new("ERR Missing GROUP option for XREADGROUP");
        const TOO_FEW: CommandError =
            CommandError::new("ERR MAXCOUNT must be greater than or equal to COUNT");
        let (count, room, patience) = (usize::MAX, Room::ANY, None);
        let (keys, ids) = (Vec::new(), Vec::new());
        let (group, claim_ms, acknowledges) = (None, None, false);
        let mut reading = Self { keys, ids, count, room, claim_ms, patience, group, acknowledges };
        while let Some(word) = options.next_word() {
            match &*word {
                b"block" => reading.patience = Some(Patience::from_ms(options.value()?)?),
                b"count" => {
                    let count = usize::try_from(integer(options.value()?)?).unwrap_or(0);
                    reading.count = if count == 0 { usize::MAX } else { count };
                }
                b"maxcount" => {
                    let error = "ERR MAXCOUNT must be a positive integer";
                    reading.room.entries = positive(options.value()?, error)?;
                }
                b"maxsize" => {
                    let error = "ERR MAXSIZE must be a positive integer";
                    reading.room.bytes = positive(options.value()?, error)?;
                }
                b"claim" if options.left() > 0 => {
                    reading.claim_ms = Some(claim_option(options.value()?, reader)?);
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
        if reading.count != usize::MAX && reading.room.entries < reading.count {
            return Err(TOO_FEW);
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
    pub(super) fn wait(
        &self,
        ctx: &mut Context<'_, '_>,
        keys: &[Key<'_>],
        after: &[StreamId],
        claims: Option<Claims>,
    ) {
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
        blocking::wait(ctx, Wait { keys, command, patience, group, wakes, claims });
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

/// Parses a limit.
fn positive(arg: &[u8], error: &'static str) -> Result<usize, CommandError> {
    let limit = integer(arg)?;
    usize::try_from(limit).ok().filter(|limit| *limit > 0).ok_or(CommandError::new(error))
}

/// Parses the idle time of CLAIM.
fn claim_option(arg: &[u8], reader: Reader) -> Result<u64, CommandError> {
    const FOR_GROUPS: CommandError = CommandError::new(
        "ERR The CLAIM option is only supported by XREADGROUP. You called XREAD instead.",
    );
    const NOT_AN_INTEGER: CommandError =
        CommandError::new("ERR min-idle-time is not an integer or out of range");
    const NEGATIVE: CommandError =
        CommandError::new("ERR min-idle-time must be a positive integer");
    if reader == Reader::Alone {
        return Err(FOR_GROUPS);
    }
    u64::try_from(integer(arg).map_err(|_| NOT_AN_INTEGER)?).map_err(|_| NEGATIVE)
}

/// Begins a reply of this many streams, each with its name.
pub(super) fn begin_streams(reply: &mut Reply<'_>, count: usize) {
    match reply.proto() {
        Proto::Resp3 => reply.map(count),
        Proto::Resp2 => reply.array(count),
    }
}

pub(super) fn begin_stream(reply: &mut Reply<'_>, key: &[u8]) {
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
    let (scale, mut room) = (ctx.scale(), reading.room);
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
            b"+" => {
                let last = stream.as_ref().and_then(|stream| stream.last());
                last.and_then(|last| last.id.previous()).unwrap_or(StreamId::MIN)
            }
            b">" => return Err(FOR_GROUPS),
            id => id::strict(id, 0)?,
        };
        after.push(id);
        if room.is_full() {
            continue;
        }
        let is_there = stream.is_some();
        if let (Some(stream), Some(from)) = (stream, id.next())
            && stream.last().is_some_and(|last| last.id > id)
        {
            let at_most = reading.count.min(stream.len()).min(room.entries);
            let entries = stream.ascending(from, StreamId::MAX);
            scale.weigh_each(at_most, room.at_most(reading.count).fitting(entries))?;
            served.push((at, room.take(reading.count, stream.ascending(from, StreamId::MAX))));
        } else {
            unserved.push((*key, is_there));
        }
    }
    // Redis looks up all keys twice; the reply counts the other lookups.
    for (key, is_there) in unserved {
        guard.db(db, key.hash(), now_ms).count_read(key, is_there);
    }
    if served.is_empty() {
        reading.wait(ctx, &keys, &after, None);
        return Ok(());
    }
    begin_streams(reply, served.len());
    for (at, count) in served {
        let mut shard = guard.db(db, keys[at].hash(), now_ms);
        begin_stream(reply, reading.keys[at]);
        let stream = shard.collection::<Stream>(keys[at])?.expect("it had entries, and is locked");
        let from = after[at].next().expect("the last entry is greater");
        reply::entries(reply, stream.ascending(from, StreamId::MAX).take(count));
    }
    Ok(())
}
