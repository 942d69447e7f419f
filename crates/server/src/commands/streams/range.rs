//! XLEN, XRANGE, XREVRANGE, XDEL, XSETID: entries by their identities.

use tierce_collections::Stream;
use tierce_collections::stream::{State, StreamId};
use tierce_keyspace::{Editor, Missing};
use tierce_wire::resp::Args;

use super::{DELETE, id, reply};
use crate::command::{Flags, Group, KeyFlags, KeySpec, Spec};
use crate::commands::options::integer;
use crate::error::CommandError;
use crate::execute::Context;

const RANGE_COMPLEXITY: &str = "O(N) with N being the number of elements being returned. If N is \
                                constant (e.g. always asking for the first 10 elements with COUNT), \
                                you can consider it O(1).";

pub(super) static COMMANDS: &[Spec] = &[
    Spec::new("xlen", 2, Group::Stream, xlen)
        .flags(Flags::READONLY.with(Flags::FAST))
        .keys(&[KeySpec::at(1, KeyFlags::LOOK)])
        .doc("5.0.0", "O(1)", "key", "Returns the number of entries of a stream."),
    Spec::new("xrange", -4, Group::Stream, xrange)
        .flags(Flags::READONLY)
        .keys(&[KeySpec::at(1, KeyFlags::READ)])
        .doc(
            "5.0.0",
            RANGE_COMPLEXITY,
            "key start end [COUNT count]",
            "Returns the entries of a stream within a range of identities.",
        ),
    Spec::new("xrevrange", -4, Group::Stream, xrevrange)
        .flags(Flags::READONLY)
        .keys(&[KeySpec::at(1, KeyFlags::READ)])
        .doc(
            "5.0.0",
            RANGE_COMPLEXITY,
            "key end start [COUNT count]",
            "Returns the entries of a stream within a range of identities, the newest first.",
        ),
    Spec::new("xdel", -3, Group::Stream, xdel)
        .flags(Flags::WRITE.with(Flags::FAST))
        .keys(&[KeySpec::at(1, DELETE)])
        .doc(
            "5.0.0",
            "O(1) for each single item to delete in the stream, regardless of the stream size.",
            "key id [id ...]",
            "Deletes entries of a stream, and returns how many there were.",
        ),
    Spec::new("xsetid", -3, Group::Stream, xsetid)
        .flags(Flags::WRITE.with(Flags::DENYOOM).with(Flags::FAST))
        .keys(&[KeySpec::at(1, KeyFlags::UPDATE)])
        .doc(
            "5.0.0",
            "O(1)",
            "key last-id [ENTRIESADDED entries-added] [MAXDELETEDID max-deleted-id]",
            "Sets what a stream knows of its past. An internal command.",
        ),
];

type Done = Result<(), CommandError>;

fn xlen(ctx: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    let (mut db, key, reply) = ctx.open(args.at(1));
    reply.count(db.collection::<Stream>(key)?.map_or(0, |stream| stream.len()));
    Ok(())
}

/// The order of a range.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Order {
    Ascending,
    Descending,
}

fn xrange(ctx: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    range(ctx, args, Order::Ascending)
}

fn xrevrange(ctx: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    range(ctx, args, Order::Descending)
}

fn range(ctx: &mut Context<'_, '_>, args: Args<'_>, order: Order) -> Done {
    let (from_at, to_at) = if order == Order::Ascending { (2, 3) } else { (3, 2) };
    let (from, to) = (id::first(&args[from_at])?, id::last(&args[to_at])?);
    let count = count_option(args.from(4))?;
    let (mut db, key, reply) = ctx.open(args.at(1));
    let Some(stream) = db.collection::<Stream>(key)? else {
        reply.array(0);
        return Ok(());
    };
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

/// The value of COUNT, without which there is no limit; a negative one counts as 0.
fn count_option(options: Args<'_>) -> Result<usize, CommandError> {
    let mut count = usize::MAX;
    let mut at = 0;
    while at < options.len() {
        if !options[at].eq_ignore_ascii_case(b"count") || at + 1 >= options.len() {
            return Err(CommandError::SYNTAX);
        }
        count = usize::try_from(integer(&options[at + 1])?).unwrap_or(0);
        at += 2;
    }
    Ok(count)
}

fn xdel(ctx: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    let (mut db, key, reply) = ctx.open(args.at(1));
    let deleted = db.edit(key, Missing::Skip, |stream: &mut Editor<'_, Stream>| {
        let ids = id::all(args.from(2))?;
        Ok::<_, CommandError>(ids.into_iter().filter(|id| stream.delete(*id)).count())
    })?;
    reply.count(deleted.unwrap_or(0));
    Ok(())
}

/// What XSETID is told.
struct Past {
    last_id: StreamId,
    entries_added: Option<u64>,
    max_deleted_id: StreamId,
}

impl Past {
    fn parse(args: Args<'_>) -> Result<Self, CommandError> {
        const NEGATIVE: CommandError = CommandError::new("ERR entries_added must be positive");
        const BELOW_DELETED: CommandError = CommandError::new(
            "ERR The ID specified in XSETID is smaller than the provided max_deleted_entry_id",
        );
        let last_id = id::strict(&args[2], 0)?;
        let mut past = Self { last_id, entries_added: None, max_deleted_id: StreamId::MIN };
        let mut at = 3;
        while at < args.len() {
            let Some(value) = args.get(at + 1) else { return Err(CommandError::SYNTAX) };
            match args[at].to_ascii_lowercase().as_slice() {
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
            at += 2;
        }
        Ok(past)
    }

    /// The state of a stream with this past.
    fn applied_to(&self, stream: &Stream) -> Result<State, CommandError> {
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
        if self.last_id < state.max_deleted_id {
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

fn xsetid(ctx: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    let past = Past::parse(args)?;
    let (mut db, key, reply) = ctx.open(args.at(1));
    let set = db.edit(key, Missing::Skip, |stream: &mut Editor<'_, Stream>| {
        let state = past.applied_to(stream)?;
        stream.set_state(state);
        Ok::<_, CommandError>(())
    })?;
    if set.is_none() {
        return Err(CommandError::NO_SUCH_KEY);
    }
    reply.ok();
    Ok(())
}
