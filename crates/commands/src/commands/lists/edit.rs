//! LSET, LINSERT, LREM and LTRIM: changing a list at any position.

use tierce_collections::List;
use tierce_keyspace::{Event, ListSide, Missing};

use super::read::absolute;
use crate::command::{Flags, Group, KeyFlags, KeySpec, Weight};
use crate::commands::options::{index_range, integer};
use crate::error::CommandError;
use crate::pipeline::{Context, Defined, Done, exactly};

const REMOVES: &[KeySpec] = &[KeySpec::at(1, KeyFlags(&["RW", "delete"]))];

pub(super) static COMMANDS: &[Defined] = &[
    Defined::new("lset", Group::List, exactly!(lset))
        .flags(Flags::WRITE.with(Flags::DENYOOM))
        .keys(&[KeySpec::at(1, KeyFlags::UPDATE)])
        .since(
            "1.0.0",
            "O(1) for practical lengths: the element is looked up, and not searched for",
        )
        .doc("key index element", "Sets the value of an element in a list by its index.")
        .example(
            r#"
            > RPUSH queue a b c
            (integer) 3
            > LSET queue 1 B
            OK
            > LRANGE queue 0 -1
            1) "a"
            2) "B"
            3) "c"
            > LSET queue 9 x
            (error) ERR index out of range
            "#,
        ),
    Defined::new("linsert", Group::List, exactly!(linsert))
        .weighs(Weight::All)
        .flags(Flags::WRITE.with(Flags::DENYOOM))
        .keys(&[KeySpec::at(1, KeyFlags(&["RW", "insert"]))])
        .since("2.2.0", "O(N) where N is the number of elements before the pivot")
        .doc(
            "key <BEFORE | AFTER> pivot element",
            "Inserts an element before or after another element in a list.",
        )
        .example(
            r#"
            > RPUSH queue a c
            (integer) 2
            > LINSERT queue BEFORE c b
            (integer) 3
            > LRANGE queue 0 -1
            1) "a"
            2) "b"
            3) "c"
            > LINSERT queue AFTER x y
            (integer) -1
            "#,
        ),
    Defined::new("lrem", Group::List, exactly!(lrem))
        .weighs(Weight::All)
        .flags(Flags::WRITE)
        .keys(REMOVES)
        .since(
            "1.0.0",
            "O(N+M) where N is the length of the list and M is the number of elements removed",
        )
        .doc(
            "key count element",
            "Removes elements from a list. The key is deleted with the last one.",
        )
        .example(
            r#"
            > RPUSH letters a b a c a
            (integer) 5
            > LREM letters 2 a
            (integer) 2
            > LRANGE letters 0 -1
            1) "b"
            2) "c"
            3) "a"
            "#,
        ),
    Defined::new("ltrim", Group::List, exactly!(ltrim))
        .flags(Flags::WRITE)
        .keys(REMOVES)
        .since("1.0.0", "O(N) where N is the number of elements removed")
        .doc(
            "key start stop",
            "Removes the elements at both ends of a list. The key is deleted if none is left.",
        )
        .example(
            r#"
            > RPUSH log 1 2 3 4 5
            (integer) 5
            > LTRIM log -3 -1
            OK
            > LRANGE log 0 -1
            1) "3"
            2) "4"
            3) "5"
            "#,
        ),
];

fn lset(ctx: &mut Context<'_, '_>, [key, index, element]: [&[u8]; 3]) -> Done {
    const OUT_OF_RANGE: CommandError = CommandError::new("ERR index out of range");
    let (mut db, key, reply) = ctx.open(key);
    let set = db.edit::<List, _, CommandError>(key, Missing::Skip, |list| {
        let index = absolute(list.len(), integer(index)?);
        let is_set = index.is_some_and(|index| list.set(index, element));
        if is_set { Ok(()) } else { Err(OUT_OF_RANGE) }
    })?;
    set.ok_or(CommandError::NO_SUCH_KEY)?;
    db.event(Event::LSet, key);
    reply.ok();
    Ok(())
}

fn linsert(ctx: &mut Context<'_, '_>, [key, side, pivot, element]: [&[u8]; 4]) -> Done {
    let side = if side.eq_ignore_ascii_case(b"after") {
        ListSide::Back
    } else if side.eq_ignore_ascii_case(b"before") {
        ListSide::Front
    } else {
        return Err(CommandError::SYNTAX);
    };
    let (mut db, key, reply) = ctx.open(key);
    let len = db.edit::<List, _, CommandError>(key, Missing::Skip, |list| {
        Ok(if list.insert_adjacent(side, pivot, element) { list.len() as i64 } else { -1 })
    })?;
    if len.is_some_and(|len| len > 0) {
        db.event(Event::LInsert, key);
    }
    reply.int(len.unwrap_or(0));
    Ok(())
}

fn lrem(ctx: &mut Context<'_, '_>, [key, count, element]: [&[u8]; 3]) -> Done {
    let count = integer(count)?;
    let from = if count < 0 { ListSide::Back } else { ListSide::Front };
    let count_max = if count == 0 { usize::MAX } else { count.unsigned_abs() as usize };
    let (mut db, key, reply) = ctx.open(key);
    let removed = db.edit::<List, _, CommandError>(key, Missing::Skip, |list| {
        Ok(list.remove_equal(from, element, count_max))
    })?;
    if removed.is_some_and(|removed| removed > 0) {
        db.event_of_edit(Event::LRem, key);
    }
    reply.count(removed.unwrap_or(0));
    Ok(())
}

fn ltrim(ctx: &mut Context<'_, '_>, [key, start, stop]: [&[u8]; 3]) -> Done {
    let (start, stop) = (integer(start)?, integer(stop)?);
    /// Whole blocks of elements are removed at once.
    const ELEMENTS_PER_STEP: usize = 16;
    let scale = ctx.scale();
    let (mut db, key, reply) = ctx.open(key);
    let trimmed = db.edit::<List, _, CommandError>(key, Missing::Skip, |list| {
        let kept = index_range(list.len(), start, stop);
        scale.weigh((list.len() - kept.len()) / ELEMENTS_PER_STEP)?;
        list.remove(kept.end, list.len());
        list.remove(0, kept.start);
        Ok(())
    })?;
    if trimmed.is_some() {
        db.event_of_edit(Event::LTrim, key);
    }
    reply.ok();
    Ok(())
}
