//! XLEN, XRANGE, XREVRANGE, XDEL, XSETID: entries by their IDs.

use tierce_collections::Stream;
use tierce_collections::stream::{Group as ConsumerGroup, State, StreamId};
use tierce_keyspace::{Editor, Event, Missing};
use tierce_wire::resp::Rest;

use super::common::DELETE;
use super::{id, reply};
use crate::command::{Flags, Group, KeyFlags, KeySpec};
use crate::commands::cursor::Options;
use crate::commands::options::integer;
use crate::error::CommandError;
use crate::pipeline::{Context, Defined, Done, at_least, exactly};

const RANGE_COMPLEXITY: &str = "O(N) with N being the number of elements being returned. If N is \
                                constant (e.g. always asking for the first 10 elements with COUNT), \
                                you can consider it O(1).";

pub(super) static COMMANDS: &[Defined] = &[
    Defined::new("xlen", Group::Stream, exactly!(xlen))
        .flags(Flags::READONLY.with(Flags::FAST))
        .keys(&[KeySpec::at(1, KeyFlags::LOOK)])
        .since("5.0.0", "O(1)")
        .doc("key", "Returns the number of entries of a stream.")
        .example(
            r#"
            > XADD events 1-1 type login
            "1-1"
            > XLEN events
            (integer) 1
            > XLEN nosuch
            (integer) 0
            "#,
        ),
    Defined::new("xrange", Group::Stream, at_least!(xrange))
        .flags(Flags::READONLY)
        .keys(&[KeySpec::at(1, KeyFlags::READ)])
        .since("5.0.0", RANGE_COMPLEXITY)
        .doc(
            "key start end [COUNT count]",
            "Returns the entries of a stream within a range of identities.",
        )
        .example(
            r#"
            > XADD events 1-1 type login
            "1-1"
            > XADD events 2-1 type logout
            "2-1"
            > XRANGE events - + COUNT 1
            1) 1) "1-1"
               2) 1) "type"
                  2) "login"
            > XRANGE events (1-1 +
            1) 1) "2-1"
               2) 1) "type"
                  2) "logout"
            "#,
        ),
    Defined::new("xrevrange", Group::Stream, at_least!(xrevrange))
        .flags(Flags::READONLY)
        .keys(&[KeySpec::at(1, KeyFlags::READ)])
        .since("5.0.0", RANGE_COMPLEXITY)
        .doc(
            "key end start [COUNT count]",
            "Returns the entries of a stream within a range of identities, the newest first.",
        )
        .example(
            r#"
            > XADD events 1-1 type login
            "1-1"
            > XADD events 2-1 type logout
            "2-1"
            > XREVRANGE events + - COUNT 1
            1) 1) "2-1"
               2) 1) "type"
                  2) "logout"
            "#,
        ),
    Defined::new("xdel", Group::Stream, at_least!(xdel))
        .flags(Flags::WRITE.with(Flags::FAST))
        .keys(&[KeySpec::at(1, DELETE)])
        .since(
            "5.0.0",
            "O(1) for each single item to delete in the stream, regardless of the stream size.",
        )
        .doc("key id [id ...]", "Deletes entries of a stream, and returns how many there were.")
        .example(
            r#"
            > XADD events 1-1 type login
            "1-1"
            > XADD events 2-1 type logout
            "2-1"
            > XDEL events 1-1 9-9
            (integer) 1
            > XLEN events
            (integer) 1
            "#,
        ),
    Defined::new("xsetid", Group::Stream, at_least!(xsetid))
        .flags(Flags::WRITE.with(Flags::DENYOOM).with(Flags::FAST))
        .keys(&[KeySpec::at(1, KeyFlags::UPDATE)])
        .since("5.0.0", "O(1)")
        .doc(
            "key last-id [ENTRIESADDED entries-added] [MAXDELETEDID max-deleted-id]",
            "Sets what a stream knows of its past. An internal command.",
        )
        .example(
            r#"
            > XADD events 1-1 type login
            "1-1"
            > XSETID events 5-0
            OK
            > XADD events 5-* type logout
            "5-1"
            > XSETID events 2-0
            (error) ERR The ID specified in XSETID is smaller than the target stream top item
            "#,
        ),
];

fn xlen(ctx: &mut Context<'_, '_>, [key]: [&[u8]; 1]) -> Done {
    let (mut db, key, reply) = ctx.open(key);
    reply.count(db.collection::<Stream>(key)?.map_or(0, |stream| stream.len()));
    Ok(())
}

/// Order of a range.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Order {
    Ascending,
    Descending,
}

fn xrange(ctx: &mut Context<'_, '_>, [key, start, end]: [&[u8]; 3], options: Rest<'_>) -> Done {
    range(ctx, key, (start, end), options, Order::Ascending)
}

fn xrevrange(ctx: &mut Context<'_, '_>, [key, end, start]: [&[u8]; 3], options: Rest<'_>) -> Done {
    range(ctx, key, (start, end), options, Order::Descending)
}

fn range(
    ctx: &mut Context<'_, '_>,
    key: &[u8],
    (start, end): (&[u8], &[u8]),
    options: Rest<'_>,
    order: Order,
) -> Done {
    let (from, to) = (id::first(start)?, id::last(end)?);
    let count = count_option(Options::of(options))?;
    let scale = ctx.scale();
    let (mut db, key, reply) = ctx.open(key);
    let Some(stream) = db.collection::<Stream>(key)? else {
        reply.array(0);
        return Ok(());
    };
    let at_most = count.min(stream.len());
    scale.weigh_each(at_most, stream.ascending(from, to).take(at_most))?;
    if count == 0 {
        reply.null_array();
        return Ok(());
    }
    match order {
        Order::Ascending => reply::entries(reply, stream.ascending(from, to).take(count)),
        Order::Descending => reply::entries(reply, stream.descending(from, to).take(count)),
    }
    Ok(())
}

/// Parses COUNT. Without it there is no limit; a negative one counts as 0.
fn count_option(mut options: Options<'_>) -> Result<usize, CommandError> {
    let mut count = usize::MAX;
    while options.take("count") {
        count = usize::try_from(integer(options.value()?)?).unwrap_or(0);
    }
    options.end()?;
    Ok(count)
}

fn xdel(ctx: &mut Context<'_, '_>, [key]: [&[u8]; 1], ids: Rest<'_, 1>) -> Done {
    let (mut db, key, reply) = ctx.open(key);
    let deleted = db.edit(key, Missing::Skip, |stream: &mut Editor<'_, Stream>| {
        let ids = id::all(ids)?;
        Ok::<_, CommandError>(ids.into_iter().filter(|id| stream.delete(*id)).count())
    })?;
    if deleted.is_some_and(|deleted| deleted > 0) {
        db.event(Event::XDel, key);
    }
    reply.count(deleted.unwrap_or(0));
    Ok(())
}

/// Arguments of XSETID.
struct Past {
    last_id: StreamId,
    entries_added: Option<u64>,
    max_deleted_id: StreamId,
}

impl Past {
    fn parse(last_id: &[u8], mut options: Options<'_>) -> Result<Self, CommandError> {
        const NEGATIVE: CommandError = CommandError::new("ERR entries_added must be positive");
        const BELOW_DELETED: CommandError = CommandError::new(
            "ERR The ID specified in XSETID is smaller than the provided max_deleted_entry_id",
        );
        let last_id = id::strict(last_id, 0)?;
        let mut past = Self { last_id, entries_added: None, max_deleted_id: StreamId::MIN };
        while let Some(word) = options.next_word() {
            let value = options.value()?;
            match &*word {
                b"entriesadded" => {
                    let added = u64::try_from(integer(value)?).map_err(|_| NEGATIVE)?;
                    past.entries_added = Some(added);
                }
                b"maxdeletedid" => {
                    past.max_deleted_id = id::strict(value, 0)?;
                    if past.max_deleted_id > last_id {
                        return Err(BELOW_DELETED);
                    }
                }
                _ => return Err(CommandError::SYNTAX),
            }
        }
        Ok(past)
    }

    /// Returns the state of a stream after XSETID. Redis 7.0 lets clients set an ID below deleted ones; here only the
    /// primary may.
    fn applied_to(&self, stream: &Stream, is_of_primary: bool) -> Result<State, CommandError> {
        const BELOW_DELETED: CommandError = CommandError::new(
            "ERR The ID specified in XSETID is smaller than current max_deleted_entry_id",
        );
        const BELOW_LAST: CommandError = CommandError::new(
            "ERR The ID specified in XSETID is smaller than the target stream top item",
        );
        const TOO_FEW: CommandError = CommandError::new(
            "ERR The entries_added specified in XSETID is smaller than the target stream length",
        );
        let state = stream.state();
        if self.last_id < state.max_deleted_id && !is_of_primary {
            return Err(BELOW_DELETED);
        }
        if stream.last().is_some_and(|last| self.last_id < last.id) {
            return Err(BELOW_LAST);
        }
        if self.entries_added.is_some_and(|added| added < stream.len() as u64) {
            return Err(TOO_FEW);
        }
        let given = Some(self.max_deleted_id).filter(|id| *id != StreamId::MIN);
        Ok(State {
            last_id: self.last_id,
            max_deleted_id: given.unwrap_or(state.max_deleted_id),
            entries_added: self.entries_added.unwrap_or(state.entries_added),
        })
    }
}

fn xsetid(ctx: &mut Context<'_, '_>, [key, last_id]: [&[u8]; 2], options: Rest<'_>) -> Done {
    let past = Past::parse(last_id, Options::of(options))?;
    let is_of_primary = ctx.caller.is_primary();
    let is_following = ctx.kernel.keyspace.is_following();
    let (mut db, key, reply) = ctx.open(key);
    let set = db.edit(key, Missing::Skip, |stream: &mut Editor<'_, Stream>| {
        let state = past.applied_to(stream, is_of_primary)?;
        stream.set_state(state);
        let added = Some(state.entries_added);
        let beyond = |group: &ConsumerGroup| !is_following && group.entries_read() > added;
        let groups = stream.groups().filter(|(_, group)| beyond(group));
        let groups: Vec<_> =
            groups.map(|(name, group)| (name.to_vec(), group.last_delivered())).collect();
        groups.iter().for_each(|(name, position)| stream.set_group(name, *position, added));
        Ok::<_, CommandError>(())
    })?;
    set.ok_or(CommandError::NO_SUCH_KEY)?;
    db.event(Event::XSetId, key);
    reply.ok();
    Ok(())
}
