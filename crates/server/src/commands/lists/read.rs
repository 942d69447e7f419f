//! LLEN, LRANGE, LINDEX and LPOS.

use tierce_collections::{Element, List};
use tierce_wire::resp::Args;

use crate::command::{Flags, Group, KeyFlags, KeySpec, Spec};
use crate::commands::options::{index_range, integer, symmetric_integer};
use crate::error::CommandError;
use crate::execute::Context;

const KEYS: &[KeySpec] = &[KeySpec::at(1, KeyFlags::READ)];

pub(super) static COMMANDS: &[Spec] = &[
    Spec::new("llen", 2, Group::List, llen)
        .flags(Flags::READONLY.with(Flags::FAST))
        .keys(&[KeySpec::at(1, KeyFlags::LOOK)])
        .doc("1.0.0", "O(1)", "key", "Returns the length of a list."),
    Spec::new("lrange", 4, Group::List, lrange).flags(Flags::READONLY).keys(KEYS).doc(
        "1.0.0",
        "O(N) where N is the number of elements in the range",
        "key start stop",
        "Returns a range of elements from a list.",
    ),
    Spec::new("lindex", 3, Group::List, lindex).flags(Flags::READONLY).keys(KEYS).doc(
        "1.0.0",
        "O(1) for practical lengths: the element is looked up, and not searched for",
        "key index",
        "Returns an element from a list by its index.",
    ),
    Spec::new("lpos", -3, Group::List, lpos).flags(Flags::READONLY).keys(KEYS).doc(
        "6.0.6",
        "O(N) where N is the number of elements compared",
        "key element [RANK rank] [COUNT num-matches] [MAXLEN len]",
        "Returns the index of matching elements in a list.",
    ),
];

type Done = Result<(), CommandError>;

fn llen(ctx: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    let (mut db, key, reply) = ctx.open(args.at(1));
    let len = db.collection::<List>(key)?.map_or(0, |list| list.len());
    reply.count(len);
    Ok(())
}

fn lrange(ctx: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    let (start, stop) = (integer(&args[2])?, integer(&args[3])?);
    let (mut db, key, reply) = ctx.open(args.at(1));
    match db.collection::<List>(key)? {
        None => reply.array(0),
        Some(list) => {
            let range = index_range(list.len(), start, stop);
            reply.array(range.len());
            reply.elements(list.iter_from(range.start).take(range.len()));
        }
    }
    Ok(())
}

fn lindex(ctx: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    let (mut db, key, reply) = ctx.open(args.at(1));
    let Some(list) = db.collection::<List>(key)? else {
        reply.null();
        return Ok(());
    };
    let element = absolute(list.len(), integer(&args[2])?).and_then(|index| list.get(index));
    match element {
        Some(element) => reply.element(element),
        None => reply.null(),
    }
    Ok(())
}

/// The index that is meant by one that may count from the end.
pub(super) fn absolute(len: usize, index: i64) -> Option<usize> {
    let index = if index < 0 { index + len as i64 } else { index };
    usize::try_from(index).ok()
}

/// What LPOS is told.
struct Search {
    /// Which match is the first one to reply; negative: from the end.
    rank: i64,
    /// How many matches to reply; 0 for all. Without it the reply is one match or null.
    count: Option<usize>,
    /// How many elements to compare at most.
    compared_max: usize,
}

impl Search {
    fn parse(options: Args<'_>) -> Result<Self, CommandError> {
        let natural = |arg: &[u8], refusal| {
            let value = integer(arg).ok().and_then(|value| usize::try_from(value).ok());
            value.ok_or(CommandError::new(refusal))
        };
        let mut search = Self { rank: 1, count: None, compared_max: usize::MAX };
        let mut at = 0;
        while at < options.len() {
            let Some(value) = options.get(at + 1) else { return Err(CommandError::SYNTAX) };
            if options[at].eq_ignore_ascii_case(b"rank") {
                search.rank = symmetric_integer(value)?;
                if search.rank == 0 {
                    return Err(CommandError::new(
                        "ERR RANK can't be zero: use 1 to start from the first match, 2 from the \
                         second ... or use negative to start from the end of the list",
                    ));
                }
            } else if options[at].eq_ignore_ascii_case(b"count") {
                search.count = Some(natural(value, "ERR COUNT can't be negative")?);
            } else if options[at].eq_ignore_ascii_case(b"maxlen") {
                let max = natural(value, "ERR MAXLEN can't be negative")?;
                search.compared_max = if max == 0 { usize::MAX } else { max };
            } else {
                return Err(CommandError::SYNTAX);
            }
            at += 2;
        }
        Ok(search)
    }

    /// The indexes of the matches to reply.
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

fn lpos(ctx: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    let search = Search::parse(args.from(3))?;
    let (mut db, key, reply) = ctx.open(args.at(1));
    let list = db.collection::<List>(key)?;
    let found = list.map(|list| search.run(&list, &args[2])).unwrap_or_default();
    match (search.count, found.first()) {
        (Some(_), _) => {
            reply.array(found.len());
            found.iter().for_each(|index| reply.count(*index));
        }
        (None, Some(index)) => reply.count(*index),
        (None, None) => reply.null(),
    }
    Ok(())
}
