//! LSET, LINSERT, LREM and LTRIM: changing a list at any place.

use tierce_collections::{Element, List};
use tierce_keyspace::{Editor, Missing};
use tierce_wire::resp::Args;

use super::read::absolute;
use crate::command::{Flags, Group, KeyFlags, KeySpec, Spec};
use crate::commands::options::{index_range, integer, symmetric_integer};
use crate::error::CommandError;
use crate::execute::Context;

const REMOVES: &[KeySpec] = &[KeySpec::at(1, KeyFlags(&["RW", "delete"]))];

pub(super) static COMMANDS: &[Spec] = &[
    Spec::new("lset", 4, Group::List, lset)
        .flags(Flags::WRITE.with(Flags::DENYOOM))
        .keys(&[KeySpec::at(1, KeyFlags::UPDATE)])
        .doc(
            "1.0.0",
            "O(1) for practical lengths: the element is looked up, and not searched for",
            "key index element",
            "Sets the value of an element in a list by its index.",
        ),
    Spec::new("linsert", 5, Group::List, linsert)
        .flags(Flags::WRITE.with(Flags::DENYOOM))
        .keys(&[KeySpec::at(1, KeyFlags(&["RW", "insert"]))])
        .doc(
            "2.2.0",
            "O(N) where N is the number of elements before the pivot",
            "key <BEFORE | AFTER> pivot element",
            "Inserts an element before or after another element in a list.",
        ),
    Spec::new("lrem", 4, Group::List, lrem).flags(Flags::WRITE).keys(REMOVES).doc(
        "1.0.0",
        "O(N+M) where N is the length of the list and M is the number of elements removed",
        "key count element",
        "Removes elements from a list. The key is deleted with the last one.",
    ),
    Spec::new("ltrim", 4, Group::List, ltrim).flags(Flags::WRITE).keys(REMOVES).doc(
        "1.0.0",
        "O(N) where N is the number of elements removed",
        "key start stop",
        "Removes the elements at both ends of a list. The key is deleted if none is left.",
    ),
];

type Done = Result<(), CommandError>;

fn lset(ctx: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    const OUT_OF_RANGE: CommandError = CommandError::new("ERR index out of range");
    let (mut db, key, reply) = ctx.open(args.at(1));
    let set = db.edit::<List, _, CommandError>(key, Missing::Skip, |list| {
        let index = absolute(list.len(), integer(&args[2])?);
        let is_set = index.is_some_and(|index| list.set(index, &args[3]));
        if is_set { Ok(()) } else { Err(OUT_OF_RANGE) }
    })?;
    set.ok_or(CommandError::NO_SUCH_KEY)?;
    reply.ok();
    Ok(())
}

fn linsert(ctx: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    let behind = if args[2].eq_ignore_ascii_case(b"after") {
        1
    } else if args[2].eq_ignore_ascii_case(b"before") {
        0
    } else {
        return Err(CommandError::SYNTAX);
    };
    let (mut db, key, reply) = ctx.open(args.at(1));
    let len = db.edit::<List, _, CommandError>(key, Missing::Skip, |list| {
        let pivot = Element::compact(&args[3]);
        let Some(index) = list.iter().position(|element| element == pivot) else { return Ok(-1) };
        list.insert(index + behind, std::iter::once(args.at(4)));
        Ok(list.len() as i64)
    })?;
    reply.int(len.unwrap_or(0));
    Ok(())
}

fn lrem(ctx: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    let count = symmetric_integer(&args[2])?;
    let (mut db, key, reply) = ctx.open(args.at(1));
    let removed = db.edit::<List, _, CommandError>(key, Missing::Skip, |list| {
        Ok(remove_equal(list, Element::compact(&args[3]), count))
    })?;
    reply.count(removed.unwrap_or(0));
    Ok(())
}

/// Removes elements that equal `wanted`: the first `count` ones, the last `-count`, or all for 0.
fn remove_equal(list: &mut Editor<'_, List>, wanted: Element<'_>, count: i64) -> usize {
    let count_max = if count == 0 { usize::MAX } else { count.unsigned_abs() as usize };
    let equal = |(at, element): (usize, Element<'_>)| (element == wanted).then_some(at);
    // From the last one to the first one, so that removing does not move those to come.
    let mut indexes: Vec<usize>;
    if count < 0 {
        let last = list.len().saturating_sub(1);
        let found = list.rev_iter_from(list.len()).enumerate().filter_map(equal);
        indexes = found.take(count_max).map(|from_end| last - from_end).collect();
    } else {
        indexes = list.iter().enumerate().filter_map(equal).take(count_max).collect();
        indexes.reverse();
    }
    for run in indexes.chunk_by(|later, earlier| *later == earlier + 1) {
        list.remove(run[run.len() - 1], run.len());
    }
    indexes.len()
}

fn ltrim(ctx: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    let (start, stop) = (integer(&args[2])?, integer(&args[3])?);
    let (mut db, key, reply) = ctx.open(args.at(1));
    db.edit::<List, _, CommandError>(key, Missing::Skip, |list| {
        let kept = index_range(list.len(), start, stop);
        list.remove(kept.end, list.len());
        list.remove(0, kept.start);
        Ok(())
    })?;
    reply.ok();
    Ok(())
}
