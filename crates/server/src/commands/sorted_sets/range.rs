//! ZRANGE in all its forms, and the older commands that are one form each.

use std::ops::Range;

use tierce_collections::{Collection, IntText, MemberBound, PackedLimits, ScoreBound, SortedSet};
use tierce_wire::resp::Args;

use super::bounds;
use super::scored::Scores;
use crate::command::{Flags, Group, Handler, KeyFlags, KeySpec, Spec};
use crate::commands::options::{index_range, integer};
use crate::error::CommandError;
use crate::execute::Context;
use crate::reply::Reply;

const COMPLEXITY: &str = "O(log(N)+M) with N being the number of elements in the sorted set and M the \
                          number of elements returned";

const fn reader(name: &'static str, arity: i16, run: Handler) -> Spec {
    Spec::new(name, arity, Group::SortedSet, run)
        .flags(Flags::READONLY)
        .keys(const { &[KeySpec::at(1, KeyFlags::READ)] })
}

pub(super) static COMMANDS: &[Spec] = &[
    reader("zrange", -4, zrange).doc(
        "1.2.0",
        COMPLEXITY,
        "key start stop [BYSCORE | BYLEX] [REV] [LIMIT offset count] [WITHSCORES]",
        "Returns members in a sorted set within a range of indexes, scores or members.",
    ),
    reader("zrevrange", -4, zrevrange).deprecated("6.2.0", "`ZRANGE` with the `REV` argument").doc(
        "1.2.0",
        COMPLEXITY,
        "key start stop [WITHSCORES]",
        "Returns members in a sorted set within a range of indexes in reverse order.",
    ),
    reader("zrangebyscore", -4, zrangebyscore)
        .deprecated("6.2.0", "`ZRANGE` with the `BYSCORE` argument")
        .doc(
            "1.0.5",
            COMPLEXITY,
            "key min max [WITHSCORES] [LIMIT offset count]",
            "Returns members in a sorted set within a range of scores.",
        ),
    reader("zrevrangebyscore", -4, zrevrangebyscore)
        .deprecated("6.2.0", "`ZRANGE` with the `REV` and `BYSCORE` arguments")
        .doc(
            "2.2.0",
            COMPLEXITY,
            "key max min [WITHSCORES] [LIMIT offset count]",
            "Returns members in a sorted set within a range of scores in reverse order.",
        ),
    reader("zrangebylex", -4, zrangebylex)
        .deprecated("6.2.0", "`ZRANGE` with the `BYLEX` argument")
        .doc(
            "2.8.9",
            COMPLEXITY,
            "key min max [LIMIT offset count]",
            "Returns members in a sorted set within a lexicographical range.",
        ),
    reader("zrevrangebylex", -4, zrevrangebylex)
        .deprecated("6.2.0", "`ZRANGE` with the `REV` and `BYLEX` arguments")
        .doc(
            "2.8.9",
            COMPLEXITY,
            "key max min [LIMIT offset count]",
            "Returns members in a sorted set within a lexicographical range in reverse order.",
        ),
    Spec::new("zrangestore", -5, Group::SortedSet, zrangestore)
        .flags(Flags::WRITE.with(Flags::DENYOOM))
        .keys(&[KeySpec::at(1, KeyFlags::OVERWRITE), KeySpec::at(2, KeyFlags::READ)])
        .doc(
            "6.2.0",
            "O(log(N)+M) with N being the number of elements in the sorted set and M the number of \
             elements stored into the destination key",
            "dst src min max [BYSCORE | BYLEX] [REV] [LIMIT offset count]",
            "Stores a range of members from a sorted set in a key.",
        ),
];

type Done = Result<(), CommandError>;

fn zrange(ctx: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    reply_with(ctx, args, Form { by: None, reversed: None, stores: false })
}

fn zrevrange(ctx: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    reply_with(ctx, args, Form { by: Some(By::Rank), reversed: Some(true), stores: false })
}

fn zrangebyscore(ctx: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    reply_with(ctx, args, Form { by: Some(By::Score), reversed: Some(false), stores: false })
}

fn zrevrangebyscore(ctx: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    reply_with(ctx, args, Form { by: Some(By::Score), reversed: Some(true), stores: false })
}

fn zrangebylex(ctx: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    reply_with(ctx, args, Form { by: Some(By::Member), reversed: Some(false), stores: false })
}

fn zrevrangebylex(ctx: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    reply_with(ctx, args, Form { by: Some(By::Member), reversed: Some(true), stores: false })
}

/// What a range is of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum By {
    Rank,
    Score,
    Member,
}

/// What a command's name has decided, and what it leaves to its options.
#[derive(Debug, Clone, Copy)]
struct Form {
    by: Option<By>,
    reversed: Option<bool>,
    stores: bool,
}

/// The two ends of a range.
#[derive(Debug, Clone, Copy)]
enum Ends<'a> {
    Ranks(i64, i64),
    Scores(ScoreBound, ScoreBound),
    Members(MemberBound<'a>, MemberBound<'a>),
}

/// A range that is asked for.
#[derive(Debug, Clone, Copy)]
struct Query<'a> {
    ends: Ends<'a>,
    is_reversed: bool,
    offset: i64,
    /// Members at most; any number if it is negative.
    count: i64,
    with_scores: bool,
}

impl<'a> Query<'a> {
    /// Reads the two ends and the options behind them.
    fn parse(args: Args<'a>, form: Form) -> Result<Self, CommandError> {
        let (mut by, mut reversed) = (form.by, form.reversed);
        let (mut offset, mut count, mut with_scores) = (0, -1, false);
        let mut at = 2;
        while let Some(option) = args.get(at) {
            let is = |word: &str| option.eq_ignore_ascii_case(word.as_bytes());
            if !form.stores && is("withscores") {
                with_scores = true;
            } else if is("limit") && at + 2 < args.len() {
                (offset, count) = (integer(&args[at + 1])?, integer(&args[at + 2])?);
                at += 2;
            } else if reversed.is_none() && is("rev") {
                reversed = Some(true);
            } else if by.is_none() && is("bylex") {
                by = Some(By::Member);
            } else if by.is_none() && is("byscore") {
                by = Some(By::Score);
            } else {
                return Err(CommandError::SYNTAX);
            }
            at += 1;
        }
        let (by, is_reversed) = (by.unwrap_or(By::Rank), reversed.unwrap_or(false));
        if count != -1 && by == By::Rank {
            return Err(CommandError::new(
                "ERR syntax error, LIMIT is only supported in combination with either BYSCORE or \
                 BYLEX",
            ));
        }
        if with_scores && by == By::Member {
            return Err(CommandError::new(
                "ERR syntax error, WITHSCORES not supported in combination with BYLEX",
            ));
        }
        // Whoever goes downwards names the higher end first.
        let (min, max) =
            if is_reversed { (args.at(1), args.at(0)) } else { (args.at(0), args.at(1)) };
        let ends = match by {
            By::Rank => Ends::Ranks(integer(&args[0])?, integer(&args[1])?),
            By::Score => Ends::Scores(bounds::score(min)?, bounds::score(max)?),
            By::Member => Ends::Members(bounds::member(min)?, bounds::member(max)?),
        };
        Ok(Self { ends, is_reversed, offset, count, with_scores })
    }

    /// The ranks of the members that are asked for, counted upwards.
    fn ranks(&self, set: &SortedSet) -> Range<usize> {
        let ranks = match self.ends {
            Ends::Ranks(start, stop) => {
                let ranks = index_range(set.len(), start, stop);
                return if self.is_reversed {
                    set.len() - ranks.end..set.len() - ranks.start
                } else {
                    ranks
                };
            }
            Ends::Scores(min, max) => set.ranks_of_scores(min, max),
            Ends::Members(min, max) => set.ranks_of_members(min, max),
        };
        // A negative offset is beyond every end.
        let offset = usize::try_from(self.offset).unwrap_or(usize::MAX).min(ranks.len());
        let left = ranks.len() - offset;
        let count = usize::try_from(self.count).unwrap_or(usize::MAX).min(left);
        if self.is_reversed {
            ranks.end - offset - count..ranks.end - offset
        } else {
            ranks.start + offset..ranks.start + offset + count
        }
    }

    fn reply(&self, set: &SortedSet, reply: &mut Reply<'_>) {
        let scores = Scores::wanted(self.with_scores, reply);
        let entries = set.range(self.ranks(set));
        if self.is_reversed {
            scores.all(reply, entries.rev());
        } else {
            scores.all(reply, entries);
        }
    }

    /// A set of the members.
    fn copy(&self, set: &SortedSet, limits: &PackedLimits) -> SortedSet {
        let mut copy = SortedSet::new();
        let mut text = IntText::new();
        for (member, score) in set.range(self.ranks(set)) {
            copy.insert(member.bytes(&mut text), score, limits);
        }
        copy
    }
}

fn reply_with(ctx: &mut Context<'_, '_>, args: Args<'_>, form: Form) -> Done {
    let query = Query::parse(args.from(2), form)?;
    let (mut db, key, reply) = ctx.open(args.at(1));
    match db.collection::<SortedSet>(key)? {
        Some(set) => query.reply(&set, reply),
        None => reply.array(0),
    }
    Ok(())
}

fn zrangestore(ctx: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    let query = Query::parse(args.from(3), Form { by: None, reversed: None, stores: true })?;
    let (to, from) = (args.at(1), args.at(2));
    let keys = ctx.keys([to, from].into_iter());
    let limits = ctx.server.keyspace.limits().sorted_set;
    let copy = match ctx
        .guard
        .db(ctx.session.db, keys[1].hash(), ctx.now_ms)
        .collection::<SortedSet>(keys[1])?
    {
        Some(set) => query.copy(&set, &limits),
        None => SortedSet::new(),
    };
    let len = copy.len();
    ctx.guard.db(ctx.session.db, keys[0].hash(), ctx.now_ms).put_collection(
        keys[0],
        Collection::SortedSet(copy),
        None,
    )?;
    ctx.reply.count(len);
    Ok(())
}
