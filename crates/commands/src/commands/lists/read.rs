//! LLEN, LRANGE, LINDEX and LPOS.

use tierce_collections::{Element, List};
use tierce_wire::resp::Rest;

use crate::command::{Flags, Group, KeyFlags, KeySpec, Scope, Weight};
use crate::commands::cursor::Options;
use crate::commands::options::{index_range, integer};
use crate::error::CommandError;
use crate::pipeline::{Context, Defined, Done, at_least, exactly};

const KEYS: &[KeySpec] = &[KeySpec::at(1, KeyFlags::READ)];

pub(super) static COMMANDS: &[Defined] = &[
    Defined::new("llen", Group::List, exactly!(llen))
        .flags(Flags::READONLY.with(Flags::FAST))
        .keys(&[KeySpec::at(1, KeyFlags::LOOK)])
        .since("1.0.0", "O(1)")
        .doc("key", "Returns the length of a list.")
        .example(
            r#"
            > RPUSH queue a b c
            (integer) 3
            > LLEN queue
            (integer) 3
            > LLEN nosuch
            (integer) 0
            "#,
        ),
    Defined::new("lrange", Group::List, exactly!(lrange))
        .flags(Flags::READONLY)
        .keys(KEYS)
        .since("1.0.0", "O(N) where N is the number of elements in the range")
        .doc("key start stop", "Returns a range of elements from a list.")
        .example(
            r#"
            > RPUSH queue a b c d
            (integer) 4
            > LRANGE queue 0 1
            1) "a"
            2) "b"
            > LRANGE queue -2 -1
            1) "c"
            2) "d"
            > LRANGE queue 5 10
            (empty array)
            "#,
        ),
    Defined::new("lindex", Group::List, exactly!(lindex))
        .flags(Flags::READONLY)
        .keys(KEYS)
        .since(
            "1.0.0",
            "O(1) for practical lengths: the element is looked up, and not searched for",
        )
        .doc("key index", "Returns an element from a list by its index.")
        .example(
            r#"
            > RPUSH queue a b c
            (integer) 3
            > LINDEX queue 0
            "a"
            > LINDEX queue -1
            "c"
            > LINDEX queue 3
            (nil)
            "#,
        ),
    Defined::new("lpos", Group::List, at_least!(lpos))
        .weighs(Weight::All)
        .locks(Scope::InTurns)
        .flags(Flags::READONLY)
        .keys(KEYS)
        .since("6.0.6", "O(N) where N is the number of elements compared")
        .doc(
            "key element [RANK rank] [COUNT num-matches] [MAXLEN len]",
            "Returns the index of matching elements in a list.",
        )
        .example(
            r#"
            > RPUSH letters a b c a b c
            (integer) 6
            > LPOS letters c
            (integer) 2
            > LPOS letters c RANK -1
            (integer) 5
            > LPOS letters c COUNT 0
            1) (integer) 2
            2) (integer) 5
            > LPOS letters x
            (nil)
            "#,
        ),
];

fn llen(ctx: &mut Context<'_, '_>, [key]: [&[u8]; 1]) -> Done {
    let (mut db, key, reply) = ctx.open(key);
    let len = db.collection::<List>(key)?.map_or(0, |list| list.len());
    reply.count(len);
    Ok(())
}

fn lrange(ctx: &mut Context<'_, '_>, [key, start, stop]: [&[u8]; 3]) -> Done {
    let (start, stop) = (integer(start)?, integer(stop)?);
    let scale = ctx.scale();
    let (mut db, key, reply) = ctx.open(key);
    match db.collection::<List>(key)? {
        None => reply.array(0),
        Some(list) => {
            let range = index_range(list.len(), start, stop);
            scale.weigh(range.len())?;
            reply.array(range.len());
            reply.elements(list.iter_from(range.start).take(range.len()));
        }
    }
    Ok(())
}

fn lindex(ctx: &mut Context<'_, '_>, [key, index]: [&[u8]; 2]) -> Done {
    let (mut db, key, reply) = ctx.open(key);
    let Some(list) = db.collection::<List>(key)? else {
        reply.null();
        return Ok(());
    };
    let element = absolute(list.len(), integer(index)?).and_then(|index| list.get(index));
    match element {
        Some(element) => reply.element(element),
        None => reply.null(),
    }
    Ok(())
}

/// Converts an index that may count from the end.
pub(super) fn absolute(len: usize, index: i64) -> Option<usize> {
    let index = if index < 0 { index + len as i64 } else { index };
    usize::try_from(index).ok()
}

/// Options of LPOS.
struct Search {
    /// Number of the first match to reply; negative from the end.
    rank: i64,
    /// Number of matches to reply; 0 for all. Without it, the reply is one match or null.
    count: Option<usize>,
    /// Maximum number of compared elements.
    compared_max: usize,
}

impl Search {
    fn parse(mut options: Options<'_>) -> Result<Self, CommandError> {
        let natural = |arg: &[u8], refusal| {
            let value = integer(arg).ok().and_then(|value| usize::try_from(value).ok());
            value.ok_or(CommandError::new(refusal))
        };
        let mut search = Self { rank: 1, count: None, compared_max: usize::MAX };
        while let Some(word) = options.next_word() {
            let value = options.value()?;
            if *word == *b"rank" {
                search.rank = integer(value)?;
                if search.rank == 0 {
                    return Err(CommandError::new(
                        "ERR RANK can't be zero: use 1 to start from the first match, 2 from the \
                         second ... or use negative to start from the end of the list",
                    ));
                }
            } else if *word == *b"count" {
                search.count = Some(natural(value, "ERR COUNT can't be negative")?);
            } else if *word == *b"maxlen" {
                let max = natural(value, "ERR MAXLEN can't be negative")?;
                search.compared_max = if max == 0 { usize::MAX } else { max };
            } else {
                return Err(CommandError::SYNTAX);
            }
        }
        Ok(search)
    }

    /// Returns the indexes of the matches to reply.
    fn run(&self, list: &List, wanted: &[u8]) -> Vec<usize> {
        let wanted = Element::compact(wanted);
        let skipped = (self.rank.unsigned_abs() - 1) as usize;
        let count = match self.count {
            None => 1,
            Some(0) => usize::MAX,
            Some(count) => count,
        };
        let matches = |(at, element): (usize, Element<'_>)| (element == wanted).then_some(at);
        if self.rank > 0 {
            let compared = list.iter().take(self.compared_max).enumerate();
            compared.filter_map(matches).skip(skipped).take(count).collect()
        } else {
            let last = list.len() - 1;
            let compared = list.rev_iter_from(list.len()).take(self.compared_max).enumerate();
            let found = compared.filter_map(matches).skip(skipped).take(count);
            found.map(|from_end| last - from_end).collect()
        }
    }
}

fn lpos(ctx: &mut Context<'_, '_>, [key, element]: [&[u8]; 2], options: Rest<'_>) -> Done {
    let search = Search::parse(Options::of(options))?;
    ctx.read_collection(key, |list: Option<&List>, reply| {
        let found = list.map(|list| search.run(list, element)).unwrap_or_default();
        match (search.count, found.first()) {
            (Some(_), _) => {
                reply.array(found.len());
                found.iter().for_each(|index| reply.count(*index));
            }
            (None, Some(index)) => reply.count(*index),
            (None, None) => reply.null(),
        }
    })
}
