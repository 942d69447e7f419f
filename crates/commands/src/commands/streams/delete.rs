//! XDELEX, XACKDEL: delete entries with regard to the groups that refer to them. Trimming with that regard.

use tierce_collections::Stream;
use tierce_collections::stream::{Group as ConsumerGroup, Keep, StreamId, Trim, TrimPrecision};
use tierce_keyspace::{Db, Editor, Event, Key, Missing};
use tierce_wire::resp::Rest;

use super::common::DELETE;
use super::id;
use crate::command::{Flags, Group, KeyFlags, KeySpec};
use crate::commands::cursor::Options;
use crate::error::CommandError;
use crate::pipeline::{Context, Defined, Done, Scale, WEIGHT_MAX, at_least};
use crate::reply::Reply;

pub(super) static COMMANDS: &[Defined] = &[
    Defined::new("xdelex", Group::Stream, at_least!(xdelex))
        .flags(Flags::WRITE.with(Flags::FAST))
        .keys(&[KeySpec::at(1, DELETE)])
        .since(
            "8.2.0",
            "O(1) for each single item to delete in the stream, regardless of the stream size.",
        )
        .doc(
            "key [KEEPREF | DELREF | ACKED] IDS numids id [id ...]",
            "Deletes entries of a stream. DELREF also removes them from what is pending in \
                 groups. ACKED keeps entries that a group has not read, or not acknowledged. Returns \
                 for each entry: 1 if it was deleted, 2 if it was kept, -1 if there is none.",
        )
        .example(
            r#"
            > XADD events 1-1 type login
            "1-1"
            > XADD events 2-1 type logout
            "2-1"
            > XGROUP CREATE events mailers 0
            OK
            > XREADGROUP GROUP mailers worker-1 COUNT 1 STREAMS events >
            1) 1) "events"
               2) 1) 1) "1-1"
                     2) 1) "type"
                        2) "login"
            > XDELEX events ACKED IDS 2 1-1 2-1
            1) (integer) 2
            2) (integer) 2
            > XDELEX events DELREF IDS 2 1-1 9-9
            1) (integer) 1
            2) (integer) -1
            > XPENDING events mailers - + 10
            (empty array)
            "#,
        ),
    Defined::new("xackdel", Group::Stream, at_least!(xackdel))
        .flags(Flags::WRITE.with(Flags::FAST))
        .keys(&[KeySpec::at(1, KeyFlags(&["RW", "update", "delete"]))])
        .since("8.2.0", "O(1) for each message ID processed.")
        .doc(
            "key group [KEEPREF | DELREF | ACKED] IDS numids id [id ...]",
            "Acknowledges entries in a group and deletes them. DELREF also removes them from \
                 what is pending in other groups. ACKED keeps entries that another group has not read, \
                 or not acknowledged. Returns for each entry: 1 if it was deleted, 2 if it was kept, -1 \
                 if it was not pending.",
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
            > XACKDEL events mailers ACKED IDS 1 1-1
            1) (integer) 1
            > XLEN events
            (integer) 0
            > XACKDEL events mailers IDS 1 1-1
            1) (integer) -1
            "#,
        ),
];

/// Treatment of an entry to which groups refer: it is pending there, or not yet read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum References {
    /// It is deleted, and stays pending: KEEPREF.
    #[default]
    Stay,
    /// It is deleted, and no longer pending: DELREF.
    Go,
    /// It is not deleted: ACKED.
    Hold,
}

impl References {
    /// Takes the option if it comes next, unless `given` has one.
    pub(super) fn take(given: &mut Option<Self>, options: &mut Options<'_>) -> bool {
        if given.is_none() {
            let all = [("keepref", Self::Stay), ("delref", Self::Go), ("acked", Self::Hold)];
            *given = all.into_iter().find(|(word, _)| options.take(word)).map(|(_, it)| it);
            return given.is_some();
        }
        false
    }
}

/// Returns true if a group has not read an entry, or has it pending.
fn is_referenced(stream: &Stream, id: StreamId) -> bool {
    stream
        .groups()
        .any(|(_, group)| id > group.last_delivered() || group.pending_entry(id).is_some())
}

/// Makes entries pending in no group. Returns true if any was.
fn release(stream: &mut Editor<'_, Stream>, ids: &[StreamId]) -> bool {
    let has_any = |group: &ConsumerGroup| ids.iter().any(|id| group.pending_entry(*id).is_some());
    let groups = stream.groups().filter(|(_, group)| has_any(group));
    let names: Vec<Vec<u8>> = groups.map(|(name, _)| name.to_vec()).collect();
    for name in &names {
        stream.acknowledge(name, ids.iter().copied());
    }
    !names.is_empty()
}

/// Parsed options of XDELEX and XACKDEL.
struct Deletion<'a> {
    references: References,
    ids: Rest<'a>,
}

impl<'a> Deletion<'a> {
    fn parse(mut options: Options<'a>) -> Result<Self, CommandError> {
        const NO_IDS: CommandError = CommandError::new("ERR IDS option is required");
        let (mut references, mut ids) = (None, None);
        while options.left() > 0 {
            if References::take(&mut references, &mut options) {
                continue;
            }
            if options.left() < 2 || !options.take("ids") {
                return Err(CommandError::SYNTAX);
            }
            ids = Some(id::counted(
                &mut options,
                "ERR Number of IDs must be a positive integer",
                "ERR The `numids` parameter must match the number of arguments",
            )?);
        }
        Ok(Self { references: references.unwrap_or_default(), ids: ids.ok_or(NO_IDS)? })
    }

    /// Weighs the search for references.
    fn weigh(&self, scale: Scale, stream: &Stream) -> Done {
        let groups = if self.references == References::Stay { 1 } else { stream.group_count() };
        scale.weigh(self.ids.len().saturating_mul(groups.max(1)))
    }
}

/// Result of a call: a number for each entry.
#[derive(Default)]
struct Deleted {
    outcomes: Vec<i64>,
    has_deleted: bool,
    has_released: bool,
}

const ABSENT: i64 = -1;
const DELETED: i64 = 1;
const KEPT: i64 = 2;

impl Deleted {
    /// Returns the result if there is no such key or group.
    fn nothing(deletion: &Deletion<'_>) -> Self {
        Self { outcomes: vec![ABSENT; deletion.ids.len()], ..Self::default() }
    }

    /// Deletes an entry. Returns true if there was one; `None` if its references forbid it.
    fn delete(
        &mut self,
        stream: &mut Editor<'_, Stream>,
        id: StreamId,
        references: References,
    ) -> Option<bool> {
        match references {
            References::Stay => {}
            References::Go => self.has_released |= release(stream, &[id]),
            References::Hold if is_referenced(stream, id) => return None,
            References::Hold => {}
        }
        let deleted = stream.delete(id);
        self.has_deleted |= deleted;
        Some(deleted)
    }

    /// Publishes the event of the changes, if any, and replies.
    fn finish(self, db: &Db<'_>, key: Key<'_>, reply: &mut Reply<'_>) {
        if self.has_deleted {
            db.event(Event::XDel, key);
        } else if self.has_released {
            db.event(Event::XAck, key);
        }
        reply.array(self.outcomes.len());
        self.outcomes.iter().for_each(|outcome| reply.int(*outcome));
    }
}

fn xdelex(ctx: &mut Context<'_, '_>, [key]: [&[u8]; 1], options: Rest<'_, 3>) -> Done {
    // Redis checks the type of the key first.
    let parsed = Deletion::parse(Options::of(options));
    let scale = ctx.scale();
    let (mut db, key, reply) = ctx.open(key);
    let deleted = db.edit(key, Missing::Skip, |stream: &mut Editor<'_, Stream>| {
        let deletion = parsed.as_ref().map_err(CommandError::clone)?;
        let ids = id::all(deletion.ids)?;
        deletion.weigh(scale, stream)?;
        let mut deleted = Deleted::default();
        for id in ids {
            let outcome = match deleted.delete(stream, id, deletion.references) {
                Some(true) => DELETED,
                Some(false) => ABSENT,
                None => KEPT,
            };
            deleted.outcomes.push(outcome);
        }
        Ok::<_, CommandError>(deleted)
    })?;
    let deleted = deleted.map_or_else(|| parsed.map(|it| Deleted::nothing(&it)), Ok)?;
    deleted.finish(&db, key, reply);
    Ok(())
}

fn xackdel(ctx: &mut Context<'_, '_>, [key, group]: [&[u8]; 2], options: Rest<'_, 3>) -> Done {
    // Redis checks the type of the key first.
    let parsed = Deletion::parse(Options::of(options));
    let scale = ctx.scale();
    let (mut db, key, reply) = ctx.open(key);
    db.exists(key);
    let deleted = db.edit(key, Missing::Skip, |stream: &mut Editor<'_, Stream>| {
        let deletion = parsed.as_ref().map_err(CommandError::clone)?;
        if stream.group(group).is_none() {
            return Ok(Deleted::nothing(deletion));
        }
        let ids = id::all(deletion.ids)?;
        deletion.weigh(scale, stream)?;
        let mut deleted = Deleted::default();
        for id in ids {
            let outcome = if stream.acknowledge(group, std::iter::once(id)) == 0 {
                ABSENT
            } else {
                deleted.has_released = true;
                // An entry that was deleted before counts.
                deleted.delete(stream, id, deletion.references).map_or(KEPT, |_| DELETED)
            };
            deleted.outcomes.push(outcome);
        }
        Ok::<_, CommandError>(deleted)
    })?;
    let deleted = deleted.map_or_else(|| parsed.map(|it| Deleted::nothing(&it)), Ok)?;
    deleted.finish(&db, key, reply);
    Ok(())
}

/// Removes entries from the beginning of a stream. Returns their number.
pub(super) fn trim(stream: &mut Editor<'_, Stream>, trim: Trim, references: References) -> usize {
    match references {
        References::Stay => stream.trim(trim),
        References::Go => {
            let count = stream.count_to_trim(trim);
            let oldest = stream.ascending(StreamId::MIN, StreamId::MAX).take(count);
            let ids: Vec<StreamId> = oldest.map(|entry| entry.id).collect();
            release(stream, &ids);
            stream.trim(trim)
        }
        References::Hold => trim_acknowledged(stream, trim),
    }
}

/// Returns the last entry that ACKED may trim: all groups have read it.
fn last_to_trim(stream: &Stream, keep: Keep) -> Option<StreamId> {
    let read = stream.groups().map(|(_, group)| group.last_delivered()).min();
    let read = read.unwrap_or(StreamId::MAX);
    match keep {
        Keep::Newest(len) if stream.len() <= len => None,
        Keep::Newest(_) => Some(read),
        Keep::From(id) => Some(read.min(id.previous()?)),
    }
}

/// Removes the oldest entries to which no group refers. An approximate trimming is exact here, up to its limit.
fn trim_acknowledged(stream: &mut Editor<'_, Stream>, trim: Trim) -> usize {
    let Some(last) = last_to_trim(stream, trim.keep) else { return 0 };
    let too_many = match trim.keep {
        Keep::Newest(len) => stream.len() - len,
        Keep::From(_) => usize::MAX,
    };
    let limit = match trim.precision {
        TrimPrecision::Exact | TrimPrecision::Blocks { limit: 0 } => usize::MAX,
        TrimPrecision::Blocks { limit } => limit,
    };
    let is_pending =
        |id: StreamId| stream.groups().any(|(_, group)| group.pending_entry(id).is_some());
    let oldest = || stream.ascending(StreamId::MIN, last).map(|entry| entry.id);
    let ids: Vec<StreamId> =
        oldest().filter(|id| !is_pending(*id)).take(too_many.min(limit)).collect();
    let in_front = ids.iter().zip(oldest()).take_while(|(id, oldest)| *id == oldest).count();
    if in_front > 0 {
        let keep = Keep::Newest(stream.len() - in_front);
        stream.trim(Trim { keep, precision: TrimPrecision::Exact });
    }
    remove_between(stream, &ids[in_front..]);
    ids.len()
}

/// Removes trimmed entries behind others that stay. The highest deleted ID does not count them, as in Redis: lags of
/// groups would be unknown.
fn remove_between(stream: &mut Editor<'_, Stream>, ids: &[StreamId]) {
    /// Least ID of an entry. A replica that got XDEL cannot return to 0-0.
    const LEAST: StreamId = StreamId::new(0, 1);
    if ids.is_empty() {
        return;
    }
    let mut state = stream.state();
    ids.iter().for_each(|id| _ = stream.delete(*id));
    state.max_deleted_id = state.max_deleted_id.max(LEAST);
    stream.set_state(state);
}

/// Weighs the entries that trimming removes or visits.
pub(super) fn weigh_trim(
    scale: Scale,
    stream: &Stream,
    trim: Trim,
    references: References,
) -> Done {
    let before = |last| stream.ascending(StreamId::MIN, last).take(WEIGHT_MAX + 1).count();
    let groups = stream.group_count().max(1);
    if references == References::Hold {
        if stream.len().saturating_mul(groups) <= WEIGHT_MAX {
            return Ok(());
        }
        let visited = last_to_trim(stream, trim.keep).map_or(0, before);
        return scale.weigh(visited.saturating_mul(groups));
    }
    let removed = match trim.keep {
        Keep::Newest(len) => stream.len().saturating_sub(len),
        Keep::From(id) => before(id),
    };
    let removed = match trim.precision {
        TrimPrecision::Exact | TrimPrecision::Blocks { limit: 0 } => removed,
        TrimPrecision::Blocks { limit } => removed.min(limit),
    };
    scale.weigh(match references {
        References::Go => removed.saturating_mul(groups),
        _ => removed,
    })
}
